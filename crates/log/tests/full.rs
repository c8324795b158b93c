//! A log that is nearly full goes on taking what overwrites its content: that needs no more room than there is.

mod support;

use anteros_core::{FileSystem, FsError};
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
