//! Tests the program: it reads what a profile names, and says what it could not.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use anteros_trace::resident;
use rustix::fs::{Advice, fadvise};
use tempfile::TempDir;

fn run(top: &TempDir, arguments: &str) -> Output {
    let mut program = Command::new(env!("CARGO_BIN_EXE_anteros-warm"));
    let program = program.args(arguments.split_whitespace());
    program.current_dir(top.path()).output().unwrap()
}

/// The exit status, and the first line of what is said about an error.
fn told(top: &TempDir, arguments: &str) -> (Option<i32>, String) {
    let output = run(top, arguments);
    let text = String::from_utf8(output.stderr).unwrap();
    let line = text.lines().next().unwrap_or_default();
    (output.status.code(), line.to_owned())
}

/// Bytes of a file that are in the page cache.
fn in_memory(path: &Path) -> u64 {
    let file = fs::File::open(path).unwrap();
    let size = file.metadata().unwrap().len();
    let found = resident(&file, size).unwrap();
    found.iter().map(|range| range.end - range.start).sum()
}

#[test]
fn ranges_of_a_profile_are_read() {
    // Pages of a file in memory cannot be dropped.
    let top = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let path = top.path().join("tree/file");
    fs::create_dir(top.path().join("tree")).unwrap();
    fs::write(&path, vec![7; 3 << 20]).unwrap();
    let file = fs::File::open(&path).unwrap();
    file.sync_all().unwrap();
    fadvise(&file, 0, None, Advice::DontNeed).unwrap();
    let before = in_memory(&path);
    let text = "# anteros profile, 2 rounds\n/file\t0\t1048576\t2\n/file\t2097152\t4096\t1\n";
    fs::write(top.path().join("profile"), text).unwrap();
    assert_eq!(told(&top, "tree profile"), (Some(0), String::new()));
    let core = in_memory(&path);
    assert!(
        before == 0 && core >= 1 << 20 || before == 3 << 20,
        "{before} {core}"
    );
    assert_eq!(told(&top, "--all tree profile"), (Some(0), String::new()));
    assert!(in_memory(&path) >= core);
    assert!(
        run(&top, "--help")
            .stdout
            .starts_with(b"usage: anteros-warm ")
    );
}

#[test]
fn what_goes_wrong_is_said() {
    let top = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| fs::write(top.path().join(name), text).unwrap();
    fs::create_dir(top.path().join("tree")).unwrap();
    write("tree/file", "content");
    write(
        "missing",
        "/none\t0\t1\t1\n/file\t7\t1\t1\n/file\t0\t7\t1\n",
    );
    write(
        "changed",
        "/file\t0\t7\t1\t06b05ab6733a618578af5f94892f3950\n",
    );
    write("broken", "/file\tx\t7\t1\n");
    for (arguments, status, line) in [
        ("tree missing", 6, "anteros-warm: 2 ranges are not there"),
        (
            "tree changed",
            6,
            "anteros-warm: 1 ranges have other content than the profile says",
        ),
        ("tree broken", 2, "anteros-warm: broken: line 1: "),
        ("tree none", 5, "anteros-warm: none: No such file"),
        ("none missing", 5, "anteros-warm: none: No such file"),
        (
            "tree/file missing",
            5,
            "anteros-warm: tree/file: not a directory",
        ),
        (
            "tree",
            2,
            "anteros-warm: a directory and a profile are needed",
        ),
        ("tree missing --al", 2, "anteros-warm: unknown option --al"),
    ] {
        let (code, found) = told(&top, arguments);
        assert!(
            code == Some(status) && found.starts_with(line),
            "{arguments}: {code:?} {found}"
        );
    }
}
