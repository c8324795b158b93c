//! `bench image --only names`: what checking, listing and extracting take as the names of an image grow in number.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anteros_tests::names::{Shape, write};

use super::images::{clear, joined};
use super::measure::take_turns;
use super::report::Comparison;
use crate::outcome::Outcome;
use crate::peers;

/// The numbers of inodes.
const INODES: [u64; 6] = [10_000, 31_623, 100_000, 316_228, 1_000_000, 3_162_278];
/// More are not extracted: the tree lies in memory.
const EXTRACTED_MAX: u64 = 316_228;
/// Files with their directories, and directories alone.
const SHAPES: [(Shape, &str); 2] = [(Shape::Files, "files"), (Shape::Directories, "directories")];

/// Compares `anteros` with `fsck.erofs` on images that are made in `scratch`.
///
/// # Errors
/// When an image cannot be made, or a command fails.
pub(super) fn names(anteros: &Path, scratch: &Path, runs: usize) -> Outcome<Vec<Comparison>> {
    let bench = Bench {
        anteros,
        image: scratch.join("names.erofs"),
        tree: scratch.join("tree"),
        runs,
    };
    let mut comparisons = Vec::new();
    for (shape, what) in SHAPES {
        for inodes in INODES {
            let subject = format!("{inodes} {what}");
            eprintln!("bench image: {subject}");
            write(&bench.image, shape, inodes)?;
            comparisons.extend(bench.read(&subject)?);
            if inodes <= EXTRACTED_MAX {
                comparisons.extend(bench.extract(&subject)?);
            }
        }
    }
    fs::remove_file(&bench.image)?;
    Ok(comparisons)
}

struct Bench<'a> {
    anteros: &'a Path,
    image: PathBuf,
    tree: PathBuf,
    runs: usize,
}

impl Bench<'_> {
    /// Checking and listing, each beside the check of the peer, which lists nothing itself.
    fn read(&self, subject: &str) -> Outcome<Vec<Comparison>> {
        let mut comparisons = Vec::new();
        for (name, arguments) in [("check", &["check"][..]), ("list", &["ls", "-R"])] {
            let mut ours = Command::new(self.anteros);
            ours.args(arguments).arg(&self.image);
            let mut peer = peers::command("fsck.erofs")?;
            peer.arg(&self.image);
            let turns = take_turns(self.runs, ours, peer, || Ok(()))?;
            comparisons.push(turns.wall(&format!("{name}: wall time"), subject));
            comparisons.push(turns.memory(&format!("{name}: peak memory"), subject));
        }
        Ok(comparisons)
    }

    fn extract(&self, subject: &str) -> Outcome<[Comparison; 2]> {
        let mut ours = Command::new(self.anteros);
        ours.arg("extract").arg(&self.image).arg(&self.tree);
        let mut peer = peers::command("fsck.erofs")?;
        peer.arg(joined("--extract=", &self.tree)).arg(&self.image);
        let turns = take_turns(self.runs, ours, peer, || clear(&self.tree))?;
        clear(&self.tree)?;
        Ok([
            turns.wall("extract: wall time", subject),
            turns.memory("extract: peak memory", subject),
        ])
    }
}
