//! Growing and shrinking: what the log holds stays, and a crash finds one size or the other.

mod support;

use std::sync::Arc;

use anteros_core::{Caller, MemoryDevice, WritableDevice};
use anteros_log::{LogError, Shape, check, mkfs, resize};
use anteros_tests::crash::{Plan, Recorder};
use support::history::Snapshot;
use support::*;

/// A log at the beginning of a larger device.
fn at_the_beginning(log: u64, bytes: u64, segments_per_section: u16) -> Arc<MemoryDevice> {
    let small = Arc::new(MemoryDevice::new(vec![0; log as usize]));
    let device: Arc<dyn WritableDevice> = small.clone();
    let shape = Shape {
        uuid: [7; 16],
        hash_seed: [9; 16],
        segments_per_section,
        ..Shape::default()
    };
    mkfs(&device, &shape, Caller::default(), &options()).unwrap();
    let mut all = small.to_vec();
    // What lies behind it is anything.
    all.extend(bytes_of(3, (bytes - log) as usize));
    Arc::new(MemoryDevice::new(all))
}

fn bytes_of(seed: u64, len: usize) -> Vec<u8> {
    bytes(seed, 1 << 20).into_iter().cycle().take(len).collect()
}

/// Files of all sizes, with holes where some of them were, so that segments are partly valid.
fn fill(tree: &Tree, round: u64, files: u64) {
    let dir = format!("round{round}");
    tree.mkdir(&dir).unwrap();
    for n in 0..files {
        let len = if n % 7 == 0 { 300_000 } else { 40_000 };
        tree.put(&format!("{dir}/{n}"), &bytes(n + round, len))
            .unwrap();
    }
    tree.0.checkpoint().unwrap();
    for n in (0..files).step_by(2) {
        tree.unlink(&format!("{dir}/{n}")).unwrap();
    }
    tree.allocate(&format!("{dir}/1"), 0, 500_000, 0).unwrap();
}

fn whole(device: &Arc<MemoryDevice>) -> Snapshot {
    let report = assert_sound(device.clone());
    assert!(report.recovery.was_clean);
    let tree = open(device.clone());
    let found = Snapshot::of(&tree).unwrap();
    let used = tree.0.condition().used_blocks;
    assert!(found.adds_up(used), "{used} of {}", found.blocks);
    tree.0.close().unwrap();
    found
}

#[test]
fn a_log_grows_and_shrinks_again_and_again() {
    for segments_per_section in [1, 4] {
        let device = at_the_beginning(64 * MIB, 300 * MIB, segments_per_section);
        let tree = open(device.clone());
        fill(&tree, 0, 200);
        tree.0.close().unwrap();
        drop(tree);
        let mut before = whole(&device);
        for (round, mib) in (1..).zip([128, 100, 300, 90, 64, 200, 260, 90]) {
            let bytes = mib * MIB + 100;
            let device_of: Arc<dyn WritableDevice> = device.clone();
            let done = resize(&device_of, bytes.min(300 * MIB), &options())
                .unwrap_or_else(|error| panic!("{mib} MiB: {error}"));
            assert_eq!(done.new.blocks, mib * 256);
            assert!(whole(&device) == before, "{mib} MiB");
            let tree = open(device.clone());
            let capacity = tree.0.condition().capacity_blocks;
            assert_eq!(capacity, done.new.capacity());
            if done.new.blocks > done.old.blocks {
                // All of the new room can be used.
                let mut size = 0;
                let piece = bytes_of(1, 1 << 20);
                tree.create("large").unwrap();
                while tree
                    .write("large", size, &piece)
                    .is_ok_and(|count| count == 1 << 20)
                {
                    size += 1 << 20;
                }
                assert!(
                    size > (capacity * 4096 - before.blocks * 4096) * 9 / 10,
                    "{mib} MiB: {size}"
                );
                tree.0.sync().unwrap();
                tree.unlink("large").unwrap();
            }
            fill(&tree, round, 40);
            tree.0.close().unwrap();
            before = Snapshot::of(&tree).unwrap();
        }
    }
}

#[test]
fn what_does_not_fit_is_refused_with_the_least_that_does() {
    let device = at_the_beginning(128 * MIB, 160 * MIB, 1);
    let tree = open(device.clone());
    for round in 0..4 {
        fill(&tree, round, 300);
    }
    tree.0.close().unwrap();
    drop(tree);
    let before = whole(&device);
    let bytes = device.to_vec();
    let device_of: Arc<dyn WritableDevice> = device.clone();
    let error = resize(&device_of, 161 * MIB, &options()).unwrap_err();
    assert!(matches!(error, LogError::BeyondDevice { .. }), "{error}");
    let LogError::GrowsTooLittle { least, .. } =
        resize(&device_of, 128 * MIB + 4096, &options()).unwrap_err()
    else {
        panic!("it grows by nothing")
    };
    assert!((129 * MIB..140 * MIB).contains(&least), "{least}");
    let LogError::TooFull {
        least: least_of_all,
        ..
    } = resize(&device_of, 33 * MIB, &options()).unwrap_err()
    else {
        panic!("it fits")
    };
    assert!(
        (40 * MIB..128 * MIB).contains(&least_of_all),
        "{least_of_all}"
    );
    assert!(
        device.to_vec() == bytes,
        "what was refused has changed something"
    );
    let error = resize(&device_of, least_of_all - 4096, &options()).unwrap_err();
    assert!(matches!(error, LogError::TooFull { .. }), "{error}");
    resize(&device_of, least_of_all, &options()).unwrap();
    assert!(whole(&device) == before);
    let least = resize(&device_of, 40 * MIB, &options()).unwrap_err();
    assert!(matches!(least, LogError::TooFull { .. }), "{least}");
    let same = resize(&device_of, least_of_all, &options()).unwrap();
    assert_eq!(same.old, same.new);
    // What was cut off is not needed.
    let cut = device.to_vec()[..least_of_all as usize].to_vec();
    assert!(whole(&Arc::new(MemoryDevice::new(cut))) == before);
}

#[test]
fn a_crash_while_it_changes_its_size_leaves_the_old_one_or_the_new_one() {
    let device = at_the_beginning(48 * MIB, 80 * MIB, 1);
    let tree = open(device.clone());
    fill(&tree, 0, 120);
    tree.0.close().unwrap();
    drop(tree);
    let (mut states, mut seen) = (0, [0, 0]);
    // In place; to the end; from there to the front; to the end; from there further down; to the end.
    for mib in [40, 64, 44, 60, 52, 80] {
        let before = whole(&device);
        let recorder = Arc::new(Recorder::new(&device.to_vec()));
        let through: Arc<dyn WritableDevice> = recorder.clone();
        let done = resize(&through, mib * MIB, &options()).unwrap();
        let sizes = [done.old.blocks, done.new.blocks];
        let plan = Plan {
            subsets_max: 16,
            samples: 4,
            tears: 1,
            seed: mib,
        };
        let found = std::sync::Mutex::new([0, 0]);
        let explored = recorder.recording().explore(&plan, |state| {
            let device: Arc<dyn WritableDevice> = Arc::new(state.device());
            let report = check(device.clone(), options()).map_err(|error| error.to_string())?;
            if report.fault_count > 0 {
                return Err(format!("{:?}", report.faults));
            }
            let tree = Tree(
                anteros_log::Log::open(device.clone(), options())
                    .map_err(|error| error.to_string())?,
            );
            if Snapshot::of(&tree)? != before {
                return Err("it holds something else".into());
            }
            let blocks = tree.0.layout().superblock.blocks;
            let which = sizes.iter().position(|&size| size == blocks);
            found.lock().unwrap()[which.ok_or("it has a third size")?] += 1;
            tree.put("after", b"after")
                .map_err(|error| error.to_string())?;
            tree.fsync("after").map_err(|error| error.to_string())
        });
        assert!(explored.failures.is_empty(), "{mib} MiB: {explored}");
        states += explored.states;
        let found = found.into_inner().unwrap();
        assert!(found[0] > 0 && found[1] > 0, "{mib} MiB: {found:?}");
        seen = [seen[0] + found[0], seen[1] + found[1]];
        resize(
            &(device.clone() as Arc<dyn WritableDevice>),
            mib * MIB,
            &options(),
        )
        .unwrap();
    }
    println!("{states} states, {} old and {} new", seen[0], seen[1]);
}
