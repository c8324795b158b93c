//! The committed inputs of the fuzz targets, each given to what its target runs: those that once made it fail, and those
//! it starts from.

use std::fs;
use std::path::Path;

/// Functions that the targets run; `fuzz` itself is no part of the workspace.
#[path = "../../fuzz/src/lib.rs"]
mod targets;

/// Runs a target on all its inputs, and names each so that a failure tells which one it was.
fn replay(target: &str, run: fn(&[u8])) {
    let fuzz = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fuzz");
    let directories = [
        "corpus/images".to_owned(),
        format!("corpus/{target}"),
        format!("regressions/{target}"),
    ];
    let directories = directories.iter().map(|directory| fuzz.join(directory));
    let mut count = 0;
    for directory in directories.filter(|directory| directory.exists()) {
        for entry in fs::read_dir(directory).unwrap() {
            let path = entry.unwrap().path();
            println!("{}", path.display());
            run(&fs::read(path).unwrap());
            count += 1;
        }
    }
    assert!(count > 0, "no inputs");
}

#[test]
fn open() {
    replay("open", targets::open);
}

#[test]
fn walk() {
    replay("walk", targets::walk);
}

#[test]
fn read() {
    replay("read", targets::read);
}

#[test]
fn check() {
    replay("check", targets::check);
}

#[test]
fn extract() {
    replay("extract", targets::extract);
}

#[test]
fn lists() {
    replay("lists", targets::lists);
}

#[test]
fn manifest() {
    replay("manifest", targets::manifest);
}

#[test]
fn tar() {
    replay("tar", targets::tar);
}

#[test]
fn profile() {
    replay("profile", targets::profile);
}

#[test]
fn patch() {
    replay("patch", targets::patch);
}

#[test]
fn trace() {
    replay("trace", targets::trace);
}

#[test]
fn launches() {
    replay("launches", targets::launches);
}

#[test]
fn decode() {
    replay("decode", targets::decode);
}

#[test]
fn encode() {
    replay("encode", targets::encode);
}

#[test]
fn log_offline() {
    replay("log_offline", targets::log_offline);
}

#[test]
fn log_open() {
    replay("log_open", targets::log_open);
}

#[test]
fn log_layout() {
    replay("log_layout", targets::log_layout);
}
