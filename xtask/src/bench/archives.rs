//! `bench build --only archives`: a tar archive, in place and through a pipe, beside the directory, and beside the peer.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::images::{Bench, FIXED};
use super::report::Comparison;
use crate::outcome::Outcome;
use crate::peers;
use crate::run::run;

/// The options of the images.
const OPTIONS: [&str; 2] = ["-zlz4", "-C65536"];

/// Has images of a corpus made of its archive.
///
/// # Errors
/// When a corpus cannot be had, or a command fails.
pub(super) fn archives(bench: &Bench, name: &str) -> Outcome<Vec<Comparison>> {
    let corpus = super::corpus(name)?;
    let archive = archive(bench, &corpus)?;
    let (ours, other) = (bench.path("ours.erofs"), bench.path("other.erofs"));
    let mkfs = |image: &Path, source: &Path| {
        let mut mkfs = bench.anteros("mkfs");
        mkfs.args(FIXED).args(OPTIONS).arg(image).arg(source);
        mkfs
    };
    let piped = mkfs(&ours, Path::new("-"));
    let mut peer = peers::command("mkfs.erofs")?;
    peer.args(["--tar=f", "--quiet"]).args(FIXED).args(OPTIONS);
    peer.arg(&other);
    let mut comparisons = Vec::new();
    for (what, command, beside) in [
        (
            "in place",
            mkfs(&ours, &archive),
            ("directory", mkfs(&other, &corpus)),
        ),
        (
            "piped",
            through(&archive, &piped),
            ("directory", mkfs(&other, &corpus)),
        ),
        (
            "piped",
            through(&archive, &piped),
            ("erofs-utils", through(&archive, &peer)),
        ),
    ] {
        let subject = format!("{name} {}, archive {what}", OPTIONS.join(" "));
        eprintln!("bench build: {subject}, beside {}", beside.0);
        let beside = (beside.0, beside.1, other.as_path());
        comparisons.extend(bench.built(&subject, (command, &ours), beside)?);
    }
    Ok(comparisons)
}

/// Makes an archive of a directory.
///
/// # Errors
/// When tar fails.
pub(super) fn archive(bench: &Bench, directory: &Path) -> Outcome<PathBuf> {
    let archive = bench.path("archive.tar");
    let mut tar = Command::new("tar");
    tar.args(["--format=posix", "-cf"]).arg(&archive);
    run(tar.arg("-C").arg(directory).arg("."))?;
    Ok(archive)
}

/// A command that gets a file through a pipe.
pub(super) fn through(file: &Path, command: &Command) -> Command {
    let mut shell = Command::new("sh");
    shell
        .args(["-c", "cat \"$0\" | \"$@\" > /dev/null"])
        .arg(file);
    let words = std::iter::once(command.get_program()).chain(command.get_args());
    shell.args(words.collect::<Vec<&OsStr>>());
    for (name, value) in command.get_envs() {
        if let Some(value) = value {
            shell.env(name, value);
        }
    }
    shell
}
