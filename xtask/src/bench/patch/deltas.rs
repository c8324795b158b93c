//! Programs that know nothing of file systems: `xdelta3` and `bsdiff`, between the old image and a rebuilt one.

use std::path::Path;
use std::process::{Command, Stdio};

use super::case::{Case, bytes, side};
use crate::bench::report::Side;
use crate::outcome::Outcome;
use crate::run::{run, words};

/// The programs, and the packages that have them.
const PROGRAMS: [&str; 3] = ["xdelta3", "bsdiff", "casync"];

/// Brings the programs in, as far as they can be had.
///
/// # Errors
/// When the script cannot be started.
pub(super) fn make() -> Outcome {
    let made = Command::new("scripts/peers.sh").arg("deltas").status()?;
    if !made.success() {
        eprintln!("bench patch: not all of {} are there", PROGRAMS.join(", "));
    }
    Ok(())
}

/// Tells of the programs that are not there.
pub(super) fn missing() -> Vec<String> {
    let missing = PROGRAMS.iter().filter(|program| !is_there(program));
    missing
        .map(|program| format!("{program} is missing"))
        .collect()
}

/// Returns whether a program can be started.
pub(super) fn is_there(program: &str) -> bool {
    let mut probe = Command::new(program);
    let probe = probe
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    probe.status().is_ok()
}

/// The packages of the programs, with their versions.
pub(super) fn versions() -> Vec<String> {
    let mut query = Command::new("dpkg-query");
    query
        .args(["-W", "-f", "${Package} ${Version}\n"])
        .args(PROGRAMS);
    let told = query
        .output()
        .map(|output| output.stdout)
        .unwrap_or_default();
    let told = String::from_utf8_lossy(&told);
    told.lines().map(str::to_owned).collect()
}

/// Has each program make its difference of the two images.
///
/// # Errors
/// When an image is not there.
pub(super) fn sides(case: &Case<'_>) -> Outcome<Vec<Side>> {
    let delta = case.bench.path("delta");
    let files = |command: &mut Command| {
        command.arg(&case.old).arg(&case.rebuilt).arg(&delta);
        words(command)
    };
    let mut xdelta = Command::new("xdelta3");
    xdelta.args(["-e", "-f", "-9", "-B", "1073741824", "-s"]);
    let mut bsdiff = Command::new("bsdiff");
    let sides = [
        ("xdelta3 of images", &mut xdelta),
        ("bsdiff of images", &mut bsdiff),
    ];
    let sides = sides.map(|(name, command)| {
        let typed = files(command);
        side(name, typed, made(command, &delta))
    });
    Ok(sides.into())
}

/// Bytes of what a command makes.
fn made(command: &mut Command, file: &Path) -> Result<f64, String> {
    run(command)
        .and_then(|()| bytes(file))
        .map_err(|e| e.to_string())
}
