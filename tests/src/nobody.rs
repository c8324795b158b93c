//! Tests that a user without rights runs.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::judge;

/// Names the place that a test finds when it runs as such a user.
const PLACE: &str = "ANTEROS_TEST_AS_NOBODY";

/// Returns the place of a test that runs as a user without rights, with copies of these fixtures. Of whoever calls
/// otherwise, the program runs itself again as such a user, with that test alone, and there is nothing more to do.
///
/// # Panics
///
/// If that test fails.
pub fn place(test: &str, fixtures: &[&str]) -> Option<PathBuf> {
    let place = std::env::var_os(PLACE).map(PathBuf::from);
    if place.is_none() {
        run(test, fixtures);
    }
    place
}

fn run(test: &str, fixtures: &[&str]) {
    let directory = tempfile::tempdir().unwrap();
    let place = |name: &str| directory.path().join(name);
    let everybody = fs::Permissions::from_mode(0o777);
    fs::set_permissions(directory.path(), everybody).unwrap();
    copy(&std::env::current_exe().unwrap(), &place("tests"));
    for name in fixtures {
        let name = format!("{name}.erofs");
        copy(&crate::fixtures_dir().join(&name), &place(&name));
    }
    let mut command = Command::new("setpriv");
    command.args(["--reuid=65534", "--regid=65534", "--clear-groups"]);
    if !judge::is_root() {
        command = Command::new("env");
    }
    let output = command
        .arg(place("tests"))
        .args(["--exact", test])
        .env(PLACE, directory.path())
        .current_dir(directory.path())
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(
        output.status.success() && said.contains("1 passed"),
        "{said}"
    );
}

/// Copies by another process: what this one has open for writing is busy in whatever another thread starts meanwhile.
fn copy(from: &Path, to: &Path) {
    let copied = Command::new("cp").arg(from).arg(to).status().unwrap();
    assert!(copied.success());
}
