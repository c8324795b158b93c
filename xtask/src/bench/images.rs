//! Images by our builder and by a peer's, in a place of their own.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::findings::{Findings, versions};
use super::measure::take_turns;
use super::options::Options;
use super::report::{Comparison, Unit};
use crate::outcome::Outcome;
use crate::peers;

/// The options of every image: nothing in it may depend on when or where it is made.
pub(super) const FIXED: [&str; 3] = [
    "-T0",
    "-U616e7465-726f-7300-0000-000000000000",
    "--all-root",
];

/// Tells where things are.
pub(super) struct Bench {
    pub(super) anteros: PathBuf,
    pub(super) scratch: PathBuf,
    pub(super) runs: usize,
}

impl Bench {
    /// Makes the programs and an empty directory.
    pub(super) fn new(options: &Options) -> Outcome<Self> {
        peers::make()?;
        let bench = Self {
            anteros: options.anteros()?,
            scratch: scratch(),
            runs: options.runs,
        };
        clear(&bench.scratch)?;
        fs::create_dir_all(&bench.scratch)?;
        Ok(bench)
    }

    /// Removes the directory.
    pub(super) fn finish(self, comparisons: Vec<Comparison>) -> Outcome<Findings> {
        clear(&self.scratch)?;
        Ok(Findings {
            versions: versions(&self.anteros)?,
            notes: Vec::new(),
            comparisons,
            goals: Vec::new(),
        })
    }

    /// Turns of each command.
    pub(super) const fn runs(&self) -> usize {
        self.runs
    }

    /// A place in the directory.
    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.scratch.join(name)
    }

    /// Builds an image with both programs: its size, the time and the memory.
    pub(super) fn build(
        &self,
        corpus: &Path,
        configuration: &[&str],
        subject: &str,
        ours: &Path,
        peer: &Path,
    ) -> Outcome<Vec<Comparison>> {
        let mut mkfs = self.anteros("mkfs");
        mkfs.args(FIXED).args(configuration).arg(ours).arg(corpus);
        let mut peer_mkfs = peers::command("mkfs.erofs")?;
        peer_mkfs
            .args(["--quiet"])
            .args(FIXED)
            .args(configuration)
            .arg(peer)
            .arg(corpus);
        self.built(subject, (mkfs, ours), ("erofs-utils", peer_mkfs, peer))
    }

    /// Has two builders take turns, and compares what they make.
    pub(super) fn built(
        &self,
        subject: &str,
        (mkfs, ours): (Command, &Path),
        (peer_name, peer_mkfs, peer): (&'static str, Command, &Path),
    ) -> Outcome<Vec<Comparison>> {
        let turns = take_turns(self.runs, mkfs, peer_mkfs, || Ok(()))?.beside(peer_name);
        let size = |image: &Path| fs::metadata(image).map(|metadata| metadata.len() as f64);
        Ok(vec![
            turns.figure("image size", subject, Unit::Bytes, size(ours)?, size(peer)?),
            turns.wall("build: wall time", subject),
            turns.processor("build: processor time", subject),
            turns.memory("build: peak memory", subject),
        ])
    }

    /// Has both programs extract an image, and check all of it.
    pub(super) fn read(&self, subject: &str, image: &Path) -> Outcome<Vec<Comparison>> {
        let tree = self.scratch.join("tree");
        let mut extract = self.anteros("extract");
        extract.arg(image).arg(&tree);
        let mut peer_extract = peers::command("fsck.erofs")?;
        peer_extract.arg(joined("--extract=", &tree)).arg(image);
        let extract = take_turns(self.runs, extract, peer_extract, || clear(&tree))?;
        clear(&tree)?;

        let mut check = self.anteros("check");
        check.arg(image);
        let mut peer_check = peers::command("fsck.erofs")?;
        peer_check.arg("--extract").arg(image);
        let check = take_turns(self.runs, check, peer_check, || Ok(()))?;

        Ok(vec![
            extract.wall("extract: wall time", subject),
            extract.processor("extract: processor time", subject),
            check.wall("check: wall time", subject),
            check.processor("check: processor time", subject),
        ])
    }

    pub(super) fn anteros(&self, command: &str) -> Command {
        let mut anteros = Command::new(&self.anteros);
        anteros.arg(command);
        anteros
    }
}

/// A directory in memory, or else on the disk.
fn scratch() -> PathBuf {
    let memory = Path::new("/dev/shm");
    match memory.is_dir() {
        true => memory.join("anteros-bench"),
        false => PathBuf::from("target/bench/scratch"),
    }
}

/// An option with its value in one word.
pub(super) fn joined(option: &str, path: &Path) -> OsString {
    let mut word = OsStr::new(option).to_owned();
    word.push(path);
    word
}

/// Removes a directory with all that is in it, if it is there.
pub(super) fn clear(directory: &Path) -> Outcome {
    match fs::remove_dir_all(directory) {
        Err(error) if error.kind() != ErrorKind::NotFound => {
            Err(format!("{}: {error}", directory.display()).into())
        }
        _ => Ok(()),
    }
}
