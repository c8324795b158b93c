//! Programs that start cold from a tree that is mounted.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

use super::mounted::{Mounted, bind};
use crate::outcome::Outcome;

/// States what programs write to that nobody reads.
const NULL: &str = "/dev/null";
/// States what programs must find in their root that a tree of files does not have.
const BOUND: [&str; 2] = [NULL, "/proc"];

/// A program: what it is called, and its words.
pub(super) type Program = (&'static str, &'static [&'static str]);

/// Programs of the corpus `programs`, which are large, and may write to it.
pub(super) const LARGE_PROGRAMS: [Program; 4] = [
    (
        "python3, numpy",
        &["/usr/bin/python3", "-c", "import numpy"],
    ),
    ("node", &["/usr/bin/node", "-e", "0"]),
    ("java -version", &["/usr/bin/java", "-version"]),
    (
        "LibreOffice, a text to PDF",
        &[
            "/bin/sh",
            "-ec",
            "cd /tmp && echo text >text.txt && HOME=/tmp soffice --headless --convert-to pdf text.txt",
        ],
    ),
];

/// Programs of the corpus `apps`.
pub(super) const PROGRAMS: [Program; 4] = [
    (
        "python3, many imports",
        &[
            "/usr/bin/python3",
            "-c",
            "import json, http.client, email, xml.dom.minidom, asyncio, unittest, ctypes, decimal",
        ],
    ),
    ("git --version", &["/usr/bin/git", "--version"]),
    (
        "git hash-object",
        &[
            "/usr/bin/git",
            "hash-object",
            "--no-filters",
            "/usr/bin/git",
        ],
    ),
    (
        "perl, some modules",
        &[
            "/usr/bin/perl",
            "-MPOSIX",
            "-MEncode",
            "-MStorable",
            "-e",
            "exit 0",
        ],
    ),
];

/// Shows a tree what its programs must find there: a daemon may be told to show no devices.
///
/// # Errors
/// When the kernel refuses.
pub(super) fn bound(root: &Path) -> Outcome<Vec<Mounted>> {
    let bind = |path: &str| bind(Path::new(path), &root.join(path.trim_start_matches('/')));
    BOUND.map(bind).into_iter().collect()
}

/// Returns how long a program takes, whose root is the mount.
///
/// With a limit, it is one of those that the limit holds for: their numbers go into the file `members`.
///
/// # Errors
/// When it fails.
pub(super) fn seconds(root: &Path, program: &[&str], members: Option<PathBuf>) -> Outcome<f64> {
    let _bound = bound(root)?;
    let members = members.unwrap_or_else(|| NULL.into());
    let mut command = Command::new("sh");
    command
        .args(["-c", "echo $$ >\"$0\" && exec chroot \"$@\""])
        .arg(members)
        .arg(root)
        .args(program)
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped());
    let start = Instant::now();
    let output = command.output()?;
    let elapsed = start.elapsed();
    if !output.status.success() {
        let complaint = String::from_utf8_lossy(&output.stderr);
        return Err(format!("{}: {}: {}", program[0], output.status, complaint.trim()).into());
    }
    Ok(elapsed.as_secs_f64())
}
