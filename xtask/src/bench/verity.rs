//! `bench build --only verity`: a hash tree, beside none: building it, checking by it, and reading through the daemon.

use std::path::Path;
use std::process::Command;

use super::caches::drop_caches;
use super::images::{Bench, FIXED};
use super::measure::take_turns;
use super::mounted::Daemon;
use super::report::Comparison;
use crate::outcome::Outcome;
use crate::run::output;

/// The options of the images.
const SETTINGS: [&[&str]; 2] = [&["-znone"], &["-zlz4hc,9", "-C65536"]];

const WITHOUT: &str = "without";

/// Compares images of a corpus with those that have no hash tree.
///
/// # Errors
/// When a corpus cannot be had, or a command fails.
pub(super) fn verity(bench: &Bench, name: &str) -> Outcome<Vec<Comparison>> {
    let corpus = super::corpus(name)?;
    let (with, without) = (bench.path("with.erofs"), bench.path("without.erofs"));
    let mut comparisons = Vec::new();
    for options in SETTINGS {
        let subject = format!("{name} {} --verity", options.join(" "));
        eprintln!("bench build: {subject}");
        let mkfs = |image: &Path, more: &[&str]| {
            let mut mkfs = bench.anteros("mkfs");
            mkfs.args(FIXED).args(options).args(more);
            mkfs.arg(image).arg(&corpus);
            mkfs
        };
        let built = mkfs(&with, &["--verity"]);
        let plain = (WITHOUT, mkfs(&without, &[]), without.as_path());
        comparisons.extend(bench.built(&subject, (built, &with), plain)?);
        let told = output(&mut mkfs(&with, &["--verity", "--json"]))?;
        let root = root_hash(&told)?;
        comparisons.push(check(bench, &subject, &with, root)?);
        comparisons.push(read(bench, &subject, &with, root)?);
    }
    Ok(comparisons)
}

fn root_hash(told: &str) -> Outcome<&str> {
    let told = told.split_once("\"root_hash\": \"");
    let root = told.and_then(|(_, rest)| rest.split('"').next());
    root.ok_or_else(|| "mkfs --json tells no root hash".into())
}

/// Has all of an image checked, with and without the tree.
fn check(bench: &Bench, subject: &str, image: &Path, root: &str) -> Outcome<Comparison> {
    let command = |more: &[&str]| {
        let mut check = bench.anteros("check");
        check.args(more).arg(image);
        check
    };
    let turns = take_turns(
        bench.runs(),
        command(&["--verity", root]),
        command(&[]),
        || Ok(()),
    )?;
    Ok(turns.beside(WITHOUT).wall("check: wall time", subject))
}

/// Has all files of a mount read with cold caches, with and without the tree.
fn read(bench: &Bench, subject: &str, image: &Path, root: &str) -> Outcome<Comparison> {
    let mount = |place: &str, more: &[&str]| -> Outcome<(Daemon, Command)> {
        let directory = bench.path(place);
        std::fs::create_dir_all(&directory)?;
        let mut mount = bench.anteros("mount");
        mount.args(["--fuse", "--foreground"]).args(more);
        let daemon = Daemon::start(mount.arg(image).arg(&directory), &directory)?;
        let mut read = Command::new("sh");
        read.args(["-c", "find \"$0\" -type f -exec cat {} + > /dev/null"]);
        read.arg(&directory);
        Ok((daemon, read))
    };
    let (with, ours) = mount("with", &["--verity", root])?;
    let (without, peer) = mount("without", &[])?;
    let turns = take_turns(bench.runs(), ours, peer, drop_caches)?;
    with.end()?;
    without.end()?;
    Ok(turns
        .beside(WITHOUT)
        .wall("read through FUSE: wall time", subject))
}
