//! Tests whether each small program can be run: file systems of the kernel do every step, and agree on what comes of
//! it.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use anteros_tests::ace::{self, Program};
use anteros_tests::disk::{Disk, Kind};

/// Runs programs, each in an empty directory; then tells what is there.
fn run(programs: &[Program], root: &Path) -> Vec<Vec<String>> {
    let results = programs.iter().map(|program| {
        let dir = tempfile::tempdir_in(root).unwrap();
        for step in program {
            let done = step.run(dir.path());
            assert!(done.is_ok(), "{step}: {done:?} in {}", ace::line(program));
        }
        tree(dir.path(), dir.path())
    });
    results.collect()
}

/// All paths with what they hold, in order.
fn tree(root: &Path, dir: &Path) -> Vec<String> {
    let entries = fs::read_dir(dir)
        .unwrap()
        .map(|entry| entry.unwrap().path());
    let mut lines = Vec::new();
    for path in entries.collect::<BTreeSet<_>>() {
        let name = path.strip_prefix(root).unwrap().display().to_string();
        if path.is_dir() {
            lines.push(name);
            lines.extend(tree(root, &path));
            continue;
        }
        let content = fs::read(&path).unwrap();
        let runs = content.chunk_by(|a, b| a == b);
        let runs: Vec<_> = runs
            .map(|run| format!("{}*{}", run.len(), run[0]))
            .collect();
        let names = rustix::fs::listxattr(&path, &mut [0; 64][..]).unwrap();
        lines.push(format!(
            "{name}: {} and {names} bytes of names",
            runs.join(" ")
        ));
    }
    lines
}

fn judge(programs: &[Program]) {
    let (Some(ext4), Some(xfs)) = (Disk::new(Kind::Ext4), Disk::new(Kind::Xfs)) else {
        return;
    };
    let (ext4, xfs) = (run(programs, &ext4.path()), run(programs, &xfs.path()));
    for ((program, ext4), xfs) in programs.iter().zip(ext4).zip(xfs) {
        assert_eq!(ext4, xfs, "{}", ace::line(program));
    }
}

#[test]
fn programs_of_one_operation_run() {
    let programs = ace::seq1();
    let distinct: BTreeSet<_> = programs.iter().map(|program| ace::line(program)).collect();
    assert_eq!(distinct.len(), programs.len());
    assert_eq!(programs.len(), 661);
    judge(&programs);
}

#[test]
fn programs_of_more_operations_run() {
    let two = ace::sample(1, 2).take(300);
    judge(&two.chain(ace::sample(2, 4).take(100)).collect::<Vec<_>>());
}
