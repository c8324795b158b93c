//! `bench build --only callers`: the lines of programs that call mkfs.erofs, beside erofs-utils.
//!
//! `tests/data/callers` has the lines. Both programs run as root and without fakeroot, from the same source; what erofs-utils
//! lacks there is left out for both.

use std::ffi::OsString;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Command;

use anteros_tests::callers::{Caller, callers};

use super::archives::{archive, through};
use super::images::Bench;
use super::report::Comparison;
use crate::outcome::Outcome;
use crate::peers;

/// Hints of a caller.
const HINTS: &str = "16384 [.]so[.0-9]*$\n0 [.](gz|xz|png)$\n";

/// Has images of a corpus made by the lines of all callers.
///
/// # Errors
/// When a corpus cannot be had, or a command fails.
pub(super) fn callers_lines(bench: &Bench, name: &str) -> Outcome<Vec<Comparison>> {
    let corpus = super::corpus(name)?;
    let called = bench.path("mkfs.erofs");
    symlink(bench.anteros("").get_program(), &called)?;
    fs::write(bench.path("hints"), HINTS)?;
    let archive = archive(bench, &corpus)?;
    let mut comparisons = Vec::new();
    for caller in callers() {
        let subject = format!("{name}, {}", caller.name);
        eprintln!("bench build: {subject}");
        let line = |program: Command, image: &str| {
            let line = line(bench, &caller, program, &corpus, image);
            if caller.is_piped() {
                through(&archive, &line)
            } else {
                line
            }
        };
        let ours = line(Command::new(&called), "ours.erofs");
        let theirs = line(peers::command("mkfs.erofs")?, "theirs.erofs");
        let (image, other) = (bench.path("ours.erofs"), bench.path("theirs.erofs"));
        let beside = ("erofs-utils", theirs, other.as_path());
        comparisons.extend(bench.built(&subject, (ours, &image), beside)?);
    }
    Ok(comparisons)
}

/// The command of a caller, which prints nothing.
fn line(
    bench: &Bench,
    caller: &Caller,
    mut program: Command,
    corpus: &Path,
    image: &str,
) -> Command {
    let place = |word: &str| -> OsString {
        match word {
            "OUT" => bench.path(image).into(),
            "TREE" => corpus.into(),
            "HINTS" => bench.path("hints").into(),
            _ => word.into(),
        }
    };
    let arguments = caller.bench.as_ref().unwrap_or(&caller.mkfs);
    program
        .arg("--quiet")
        .args(arguments.iter().map(|word| place(word)));
    program.envs(caller.variables());
    program
}
