//! Tests how much reaches the device of what an application's SQLite wrote. Not a figure of speed: the same each time.

mod support;

use std::sync::Arc;

use anteros_core::{Counted, Device, MemoryDevice};
use anteros_log::{Cause, Options, Policy};
use anteros_tests::recorded::{Replay, Trace, Tree, path};
use support::{make, options};

/// Replays a trace into an empty log, and says how many bytes were written to the device, everything included.
fn written(name: &str, policy: Policy) -> u64 {
    let device = Arc::new(Counted::new(MemoryDevice::new(vec![0; 1 << 30])));
    make(device.clone());
    let options = Options {
        policy,
        ..options()
    };
    let tree = support::open_with(device.clone(), options);
    let before = device.counts();
    let mut replay = Replay::onto(Tree::new(&tree.0));
    for record in Trace::open(path(name)).unwrap() {
        replay.step(&record.unwrap()).unwrap();
    }
    drop(replay.end());
    tree.0.close().unwrap();
    let after = device.counts();
    let statistics = tree.0.condition().statistics;
    let causes = Cause::ALL.map(|cause| (cause, statistics.blocks(cause)));
    let bytes = after.written_bytes - before.written_bytes;
    println!(
        "{name}, {policy:?}: {} MiB in {} writes, {} flushes; blocks by cause {causes:?}",
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

/// Compares with what F2FS writes for the same traces, directory syncs included (Linux 6.1, `mode=lfs`), in whole MiB.
#[test]
fn no_more_is_written_than_by_f2fs() {
    for (name, most_mib) in [("app_DELETE", 165), ("app_WAL", 55)] {
        let bytes = written(name, Policy::None);
        let mib = (bytes + (1 << 19)) >> 20;
        assert!(mib <= most_mib, "{name}: {mib} MiB, F2FS writes {most_mib}");
    }
}

/// Compares with what the paper saves on average, which is 47.5 %; by its rules, with our records instead of its nodes,
/// it is a third at least.
#[test]
fn every_policy_writes_less_and_the_record_policy_least() {
    for name in ["app_DELETE", "app_WAL"] {
        let bytes = Policy::ALL.map(|(_, policy)| written(name, policy));
        let [none, comp, fpc_n, paper, record, force] = bytes;
        assert!(comp < none && fpc_n < none, "{name}: {bytes:?}");
        assert!(paper <= fpc_n && paper < none * 2 / 3, "{name}: {bytes:?}");
        assert!(record < none * 38 / 100, "{name}: {bytes:?}");
        assert!(force <= record, "{name}: {bytes:?}");
    }
}
