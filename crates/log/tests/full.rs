//! A log that is nearly full goes on taking what overwrites its content: that needs no more room than there is.

mod support;

use std::sync::Arc;

use anteros_core::{Counted, FileSystem, FsError, MemoryDevice};
use anteros_log::Policy;
use support::*;

const BLOCK: u64 = 4096;

/// Fills so many percent of what may be filled, overwrites blocks anywhere until as much was written as the device has,
/// with an fsync after each 64 of them, and says after how many that failed.
fn overwrite(device_bytes: u64, percent: u64) -> Result<(), String> {
    let device = device(device_bytes);
    let tree = open(device.clone());
    let mut blocks = tree.0.statfs().unwrap().blocks_free * percent / 100;
    tree.create("f").unwrap();
    let fill = bytes(1, 64 * BLOCK as usize);
    for at in (0..blocks).step_by(64) {
        let len = 64.min(blocks - at) * BLOCK;
        let written = match tree.write("f", at * BLOCK, &fill[..len as usize]) {
            Err(FsError::NoSpace) => 0,
            written => written.unwrap() as u64,
        };
        if written < len {
            // Nodes take some of it.
            assert_eq!(percent, 100);
            blocks = at + written / BLOCK;
            break;
        }
    }
    tree.fsync("f")
        .map_err(|error| format!("the first fsync: {error}"))?;
    let mut random = 1_u64;
    for count in 0..device_bytes / BLOCK {
        random = random
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        let block = (random >> 33) % blocks;
        let place = || {
            let condition = tree.0.condition();
            format!("write {count} of block {block} of {blocks}: {condition:?}")
        };
        tree.write("f", block * BLOCK, &fill[..BLOCK as usize])
            .map_err(|error| format!("{}: {error}", place()))?;
        if count % 64 == 63 {
            tree.fsync("f")
                .map_err(|error| format!("fsync, {}: {error}", place()))?;
        }
    }
    tree.0.close().map_err(|error| format!("close: {error}"))
}

#[test]
fn overwriting_needs_no_more_room() {
    let mut failed = Vec::new();
    for mib in [64, 128, 600] {
        for percent in [80, 90, 98, 100] {
            if let Err(error) = overwrite(mib * MIB, percent) {
                failed.push(format!("{mib} MiB, {percent} % full: {error}"));
            }
        }
    }
    assert!(failed.is_empty(), "\n{}", failed.join("\n"));
}

/// Looking at many files takes no more memory than changing them.
#[test]
fn a_walk_keeps_to_the_ceiling() {
    const FILES: usize = 20_000;
    let device = device(256 * MIB);
    let tree = open(device.clone());
    for index in 0..FILES {
        tree.put(&format!("f{index}"), b"some content").unwrap();
    }
    tree.0.close().unwrap();
    drop(tree);
    let tree = open(device);
    for index in 0..FILES {
        tree.read(&format!("f{index}")).unwrap();
    }
    let (held, ceiling) = (
        tree.0.condition().memory_bytes,
        options().memory_bytes as u64,
    );
    assert!(
        held <= ceiling + ceiling / 4,
        "{held} bytes are held, but {ceiling} may be"
    );
}

#[test]
fn nearly_all_that_is_free_can_be_promised() {
    for size in [64 * MIB, 512 * MIB] {
        let tree = open_plainly(device(size));
        let stat = tree.0.statfs().unwrap();
        let free = stat.blocks_available * u64::from(stat.block_size);
        tree.create("f").unwrap();
        tree.allocate("f", 0, free / 100 * 98, 0).unwrap();
        assert_eq!(tree.attr("f").unwrap().size, free / 100 * 98);
    }
}

/// A page that shrinks to so many bytes, about.
fn page(seed: u64, noise: usize) -> Vec<u8> {
    let mut page = bytes(seed, noise);
    page.resize(BLOCK as usize, seed as u8);
    page
}

/// Content of small files, several of which share a block.
fn small(number: u64) -> Vec<u8> {
    (0..4).flat_map(|at| page(4 * number + at, 300)).collect()
}

/// Writes small files from a number on until one is refused, and says how many there are. What is dirty is compressed now
/// and then, as a mount does all the time.
fn fill_with_small(tree: &Tree, policy: Policy) -> u64 {
    for number in 0.. {
        let name = format!("{number}");
        if let Err(error) = tree.put(&name, &small(number)) {
            assert!(matches!(error, FsError::NoSpace), "{policy:?}: {error}");
            let _ = tree.unlink(&name);
            return number;
        }
        if number % 64 == 63 {
            tree.0.checkpoint().unwrap();
        }
    }
    unreachable!()
}

/// Fills a log with small files, removes a third of them, and writes half of these again, each of which shares its blocks
/// with others.
fn refill(policy: Policy, is_mounted_anew: bool) {
    let device = device(32 * MIB);
    let mut tree = open_with(device.clone(), with(policy));
    let count = fill_with_small(&tree, policy);
    assert!(count > 3000, "{policy:?}: {count}");
    let is_removed = |number: &u64| number % 3 == 1;
    let removed: Vec<u64> = (0..count).filter(is_removed).collect();
    for number in &removed {
        tree.unlink(&format!("{number}")).unwrap();
    }
    if is_mounted_anew {
        tree.0.close().unwrap();
        drop(tree);
        tree = open_with(device.clone(), with(policy));
    }
    let again = &removed[..removed.len() / 2];
    for number in again {
        let done = tree.put(&format!("{number}"), &small(*number));
        done.unwrap_or_else(|error| panic!("{policy:?}, {number} of {count}: {error}"));
    }
    tree.0.sync().unwrap();
    // Not unmounted.
    let device = Arc::new(MemoryDevice::new(device.to_vec()));
    let tree = open_with(device.clone(), with(policy));
    let kept = (0..count).filter(|number| !is_removed(number));
    for number in kept.chain(again.iter().copied()) {
        let found = tree.read(&format!("{number}")).unwrap();
        assert!(found == small(number), "{policy:?}, {number}");
    }
    tree.0.close().unwrap();
    assert_sound(device);
}

#[test]
fn what_was_removed_from_a_full_log_can_be_filled_at_once() {
    for policy in [Policy::Record, Policy::Force] {
        refill(policy, false);
        refill(policy, true);
    }
}

/// Room for pages as they are is room for more of them compressed.
#[test]
fn what_shrinks_finds_the_room_that_it_takes() {
    const LEFT: u64 = 300;
    for policy in [Policy::Record, Policy::Force] {
        let device = device(64 * MIB);
        let tree = open_with(device.clone(), with(policy));
        let end = tree.fill("noise", 1 << 20);
        tree.truncate("noise", end - LEFT * BLOCK).unwrap();
        tree.0.checkpoint().unwrap();
        let free = tree.0.statfs().unwrap().blocks_free;
        let text: Vec<u8> = (0..2 * free).flat_map(|at| page(at, 1000)).collect();
        tree.put("text", &text)
            .unwrap_or_else(|error| panic!("{policy:?}, {free} blocks: {error}"));
        tree.0.close().unwrap();
        drop(tree);
        assert_sound(device.clone());
        let tree = open_with(device, with(policy));
        assert!(tree.read("text").unwrap() == text, "{policy:?}");
    }
}

#[test]
fn who_is_refused_again_costs_nothing() {
    for policy in [Policy::Record, Policy::Force] {
        let device = Arc::new(Counted::new(MemoryDevice::new(device(64 * MIB).to_vec())));
        let tree = open_with(device.clone(), with(policy));
        tree.create("last").unwrap();
        fill_with_small(&tree, policy);
        let noise = bytes(1, 1 << 20);
        let mut end = 0;
        while let Ok(written) = tree.write("last", end, &noise) {
            end += written as u64;
        }
        let refuse = || {
            let refused = tree.write("last", end, &noise);
            assert!(matches!(refused, Err(FsError::NoSpace)), "{policy:?}");
            device.counts()
        };
        let counts = refuse();
        for _ in 0..10 {
            assert_eq!(refuse(), counts, "{policy:?}");
        }
        assert_eq!(tree.0.failure(), None);
    }
}

/// Until they are written, inodes count for blocks that they will share.
#[test]
fn small_files_find_the_room_that_they_take() {
    for policy in [Policy::Record, Policy::Force] {
        let device = device(64 * MIB);
        let tree = open_with(device.clone(), with(policy));
        let end = tree.fill("noise", 1 << 20);
        tree.truncate("noise", end - 300 * BLOCK).unwrap();
        tree.0.checkpoint().unwrap();
        for number in 0..900_u64 {
            let done = tree.put(&format!("{number}"), &number.to_le_bytes());
            done.unwrap_or_else(|error| panic!("{policy:?}, {number}: {error}"));
        }
        tree.0.close().unwrap();
        assert_sound(device);
    }
}
