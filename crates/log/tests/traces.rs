//! How much reaches the device of what an application's SQLite wrote. Not a figure of speed: the same each time.

mod support;

use std::collections::BTreeSet;
use std::sync::Arc;

use anteros_core::{Counted, Device, MemoryDevice};
use anteros_log::Cause;
use anteros_tests::recorded::{Action, Trace, path};
use support::*;

/// Replays a trace into an empty log, and says how many bytes were written to the device, everything included.
fn written(name: &str) -> u64 {
    let device = Arc::new(Counted::new(MemoryDevice::new(vec![0; 1 << 30])));
    make(device.clone());
    let tree = open(device.clone());
    let before = device.counts();
    let mut directories = BTreeSet::new();
    let mut files = BTreeSet::new();
    for record in Trace::open(path(name)).unwrap() {
        let record = record.unwrap();
        let (directory, _) = record.path.split_once('/').unwrap();
        if directories.insert(directory.to_owned()) {
            tree.mkdir(directory).unwrap();
        }
        let file = &record.path;
        match &record.action {
            Action::Write { offset, data } => {
                if tree.ino(file).is_err() {
                    tree.create(file).unwrap();
                }
                files.insert(file.clone());
                assert_eq!(tree.write(file, *offset, data).unwrap(), data.len());
            }
            Action::Truncate { size } if tree.ino(file).is_ok() => {
                tree.truncate(file, *size).unwrap()
            }
            Action::Unlink if tree.ino(file).is_ok() => tree.unlink(file).unwrap(),
            Action::Rename { from } if tree.ino(from).is_ok() => {
                tree.rename(from, file, 0).unwrap()
            }
            Action::Fsync | Action::Fdatasync if files.contains(file) && tree.ino(file).is_ok() => {
                tree.fsync(file).unwrap()
            }
            // A directory.
            Action::Fsync | Action::Fdatasync => tree.fsync("").unwrap(),
            _ => {}
        }
    }
    tree.0.close().unwrap();
    let after = device.counts();
    let statistics = tree.0.condition().statistics;
    let causes = Cause::ALL.map(|cause| (cause, statistics.blocks(cause)));
    let bytes = after.written_bytes - before.written_bytes;
    println!(
        "{name}: {} MiB in {} writes, {} flushes; blocks by cause {causes:?}",
        bytes >> 20,
        after.writes - before.writes,
        after.flushes - before.flushes
    );
    let counted: u64 = Cause::ALL
        .iter()
        .map(|&cause| statistics.blocks(cause) * 4096)
        .sum();
    assert!(
        device.size() > 0 && counted.abs_diff(bytes) < bytes / 50,
        "the log counts {counted} bytes, the device {bytes}"
    );
    bytes
}

/// What F2FS writes for the same traces, directory syncs included (Linux 6.1, `mode=lfs`), in whole MiB.
#[test]
fn no_more_is_written_than_by_f2fs() {
    for (name, most_mib) in [("app_DELETE", 165), ("app_WAL", 55)] {
        let bytes = written(name);
        let mib = (bytes + (1 << 19)) >> 20;
        assert!(mib <= most_mib, "{name}: {mib} MiB, F2FS writes {most_mib}");
    }
}
