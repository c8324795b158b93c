//! Tests what is told of a log: how it is used, and what lies where.

mod support;

use std::sync::Arc;

use anteros_core::{FsError, MemoryDevice, Writable, WritableDevice};
use anteros_log::layout::checkpoint::HeadKind;
use anteros_log::layout::node::NodeKind;
use anteros_log::layout::pointer::Pointer;
use anteros_log::layout::record::{Record, records};
use anteros_log::layout::{BLOCK_BYTES, ROOT};
use anteros_log::{Area, Content, Inspector, Use, describe};
use support::surgeon::Surgeon;
use support::*;

fn inspect(device: &Arc<MemoryDevice>) -> Inspector {
    Inspector::open(device.clone(), &options()).unwrap()
}

#[test]
fn segments_and_blocks_are_counted() {
    let device = device(64 * MIB);
    let tree = open(device.clone());
    tree.put("large", &bytes(1, 5 << 20)).unwrap();
    tree.create("preallocated").unwrap();
    tree.allocate("preallocated", 0, 40 * 4096, 0).unwrap();
    tree.0.close().unwrap();
    let (layout, recovery) = describe(device.clone(), options()).unwrap();
    assert!(recovery.was_clean && recovery.groups == 0);
    assert_eq!(layout, tree.0.layout());
    assert_eq!(layout.inodes, 3);
    assert_eq!(layout.preallocated_blocks, 40);
    // Of the large file three nodes: the inode, and two direct ones.
    assert_eq!(layout.nodes, 5);
    assert_eq!(layout.used_blocks, 1280 + 40 + 5);
    assert_eq!(layout.valid_blocks(HeadKind::WarmData), 1280);
    assert_eq!(layout.count(HeadKind::WarmData, Use::Full), 2);
    assert_eq!(layout.count(HeadKind::WarmData, Use::Open), 1);
    // The segment of the packed log, and the one where it goes on.
    assert_eq!(layout.count(HeadKind::Packed, Use::Open), 2);
    assert_eq!(layout.histogram(), [0, 0, 0, 0, 0, 0, 0, 0, 0, 2]);
    let states = Use::ALL.map(|state| layout.count_of(state));
    assert_eq!(states.iter().sum::<u32>(), layout.superblock.segments);
}

/// Cleaning leaves the segments of a log with holes full or free, and its content as it was.
#[test]
fn cleaning_goes_on_until_nothing_is_worth_it() {
    let device = device(128 * MIB);
    let tree = open(device.clone());
    let path = |n: u64| format!("f{n}");
    for n in 0..40 {
        tree.put(&path(n), &bytes(n, 1 << 20)).unwrap();
    }
    tree.0.checkpoint().unwrap();
    for n in (0..40).step_by(2) {
        tree.unlink(&path(n)).unwrap();
    }
    tree.0.checkpoint().unwrap();
    let before = tree.0.layout();
    assert_eq!(tree.0.clean_all(|_| false).unwrap(), 0);
    let cleaned = tree.0.clean_all(|_| true).unwrap();
    let after = tree.0.layout();
    assert!(cleaned > 5, "{cleaned}");
    assert!(
        after.count_of(Use::Free) > before.count_of(Use::Free) + 5,
        "{before:?}\n{after:?}"
    );
    assert_eq!(after.count_of(Use::Prefree), 0);
    assert_eq!(after.histogram()[..9], [0; 9]);
    assert_eq!(tree.0.clean_all(|_| true).unwrap(), 0);
    for n in (1..40).step_by(2) {
        assert!(tree.read(&path(n)).unwrap() == bytes(n, 1 << 20), "{n}");
    }
    tree.0.close().unwrap();
    assert_sound(device);
}

/// There is hardly room to move anything, and each block that is moved changes another inode.
#[test]
fn a_full_log_is_cleaned_as_well() {
    let device = device(32 * MIB);
    let tree = open(device.clone());
    let mut names = Vec::new();
    for n in 0.. {
        let path = format!("f{n}");
        if tree.put(&path, &bytes(n, 9000)).is_err() {
            let _ = tree.unlink(&path);
            break;
        }
        names.push(path);
    }
    tree.0.checkpoint().unwrap();
    for path in names.iter().step_by(5) {
        tree.unlink(path).unwrap();
    }
    tree.0.clean_all(|_| true).unwrap();
    assert_eq!(tree.0.failure(), None);
    for (n, path) in (0..).zip(&names).filter(|(n, _)| n % 5 != 0) {
        assert!(
            tree.read(path).unwrap() == bytes(n, 9000),
            "{n} of {}",
            names.len()
        );
    }
    tree.0.close().unwrap();
    assert_sound(device);
}

#[test]
fn an_inode_is_told_with_its_nodes_and_runs() {
    let device = device(64 * MIB);
    let tree = open(device.clone());
    tree.mkdir("d").unwrap();
    tree.put("d/file", &bytes(1, 600 * 4096)).unwrap();
    tree.write("d/file", 5_000_000, b"behind a hole").unwrap();
    let ino = tree.ino("d/file").unwrap();
    tree.0.setxattr(ino, b"user.short", b"value", 0).unwrap();
    tree.0.setxattr(ino, b"user.long", &[1; 1000], 0).unwrap();
    tree.0.close().unwrap();
    let mut log = inspect(&device);
    assert_eq!(log.find(b"/").unwrap(), ROOT);
    assert!(is(log.find(b"/d/none"), FsError::NotFound));
    let ino = log.find(b"d//file").unwrap();
    let file = log.inode(ino).unwrap();
    assert_eq!(file.faults, [""; 0]);
    assert_eq!(file.attributes.size, 5_000_013);
    let xattrs: Vec<_> = file
        .xattrs
        .iter()
        .map(|(name, len)| (&name[..], *len))
        .collect();
    assert_eq!(xattrs, [(&b"user.long"[..], 1000), (b"user.short", 5)]);
    let kinds: Vec<_> = file
        .nodes
        .iter()
        .map(|node| node.place.unwrap().0)
        .collect();
    assert_eq!(
        kinds,
        [
            NodeKind::Inode,
            NodeKind::Attributes,
            NodeKind::Direct,
            NodeKind::Direct
        ]
    );
    let blocks: u32 = file.runs.iter().map(|run| run.count).sum();
    assert_eq!(blocks, 601);
    assert_eq!(file.runs.last().unwrap().lblk, 5_000_000 / 4096);
    // Each of these says so itself.
    let Pointer::Plain(first, _) = file.runs[0].pointer else {
        panic!("{:?}", file.runs[0]);
    };
    let place = log.block(first).unwrap();
    let owner = place.owner.unwrap();
    assert_eq!(
        (owner.ino, owner.lblk, place.is_valid, place.is_owned),
        (ino, 0, Some(true), Some(true))
    );
    let node = file.nodes[3];
    let place = log.block(node.block.unwrap()).unwrap();
    assert!(
        matches!(place.content, Content::Node(header) if header.nid == node.nid && header.ino == ino)
    );
    assert_eq!((place.is_valid, place.is_owned), (Some(true), Some(true)));
    assert_eq!(log.inode(ROOT).unwrap().entries, 1);
}

#[test]
fn every_block_of_a_device_is_something() {
    let device = device(32 * MIB);
    let tree = open(device.clone());
    tree.put("file", &bytes(1, 3 << 20)).unwrap();
    for n in 0..200 {
        tree.create(&format!("a name that is not short {n}"))
            .unwrap();
    }
    tree.0.checkpoint().unwrap();
    tree.0.close().unwrap();
    let mut log = inspect(&device);
    let superblock = log.superblock().clone();
    let (mut valid, mut owned, mut areas) = (0, 0, [0; 4]);
    for block in 0..superblock.blocks {
        let place = log.block(block).unwrap();
        match place.area {
            Area::Superblock(_) => areas[0] += 1,
            Area::Checkpoint { .. } => areas[1] += 1,
            Area::Table { counts, .. } => areas[2] += u32::from(counts == Some(true)),
            Area::Main { .. } => areas[3] += 1,
            Area::Unused => {}
        }
        valid += u64::from(place.is_valid == Some(true));
        owned += u64::from(place.is_valid == Some(true) && place.is_owned == Some(true));
    }
    let tables = superblock.sit_blocks + superblock.bst_blocks + superblock.nat_blocks;
    assert_eq!(
        areas,
        [
            2,
            2 * superblock.checkpoint_blocks,
            tables,
            superblock.segments * 512
        ]
    );
    let used = log.newest().unwrap().used_blocks;
    assert_eq!((valid, owned), (used, used));
}

#[test]
fn groups_are_told_record_by_record() {
    let device = device(64 * MIB);
    let tree = open_plainly(device.clone());
    tree.put("file", &bytes(1, 20_000)).unwrap();
    tree.fsync("file").unwrap();
    tree.rename("file", "other", 0).unwrap();
    tree.fsync("").unwrap();
    drop(tree);
    let mut log = inspect(&device);
    assert_eq!(log.recovery().unwrap().groups, 2);
    let (groups, is_broken) = log.groups().unwrap();
    assert!(!is_broken);
    assert_eq!(groups.len(), 2);
    assert_eq!(groups[1].sequence, groups[0].sequence + 1);
    let first: Vec<_> = records(&groups[0].stream).map(Result::unwrap).collect();
    assert!(
        first
            .iter()
            .any(|record| matches!(record, Record::Map { count: 5, .. })),
        "{first:?}"
    );
    assert!(
        first
            .iter()
            .any(|record| matches!(record, Record::Checksums { .. })),
        "{first:?}"
    );
    let second: Vec<_> = records(&groups[1].stream).map(Result::unwrap).collect();
    assert!(
        second
            .iter()
            .any(|record| matches!(record, Record::NameAdded { name: b"other", .. })),
        "{second:?}"
    );
    assert!(
        second
            .iter()
            .any(|record| matches!(record, Record::NameRemoved { name: b"file", .. })),
        "{second:?}"
    );
    // What the groups say is what is there.
    assert!(log.find(b"other").is_ok());
    let head = log
        .newest()
        .unwrap()
        .heads
        .iter()
        .find(|head| head.kind == HeadKind::Packed)
        .copied()
        .unwrap();
    let packed = log.superblock().segment_start(head.segment) + u64::from(head.next);
    let place = log.block(packed).unwrap();
    assert!(
        matches!(place.content, Content::Packed(header, _) if header.sequence == groups[0].sequence)
    );
}

/// A log that no mount would open is told as far as it goes.
#[test]
fn damaged_logs_are_looked_into() {
    let make = || {
        let device = device(64 * MIB);
        let tree = open(device.clone());
        tree.put("file", &bytes(1, 600 * 4096)).unwrap();
        tree.0.close().unwrap();
        device
    };
    // The count of valid blocks.
    let device = make();
    let mut surgeon = Surgeon::new(device.clone());
    surgeon.checkpoint.used_blocks += 1;
    surgeon.finish();
    let mut log = inspect(&device);
    assert!(
        log.recovery()
            .unwrap_err()
            .to_string()
            .contains("valid blocks")
    );
    let ino = log.find(b"file").unwrap();
    assert_eq!(
        log.inode(ino)
            .unwrap()
            .runs
            .iter()
            .map(|run| run.count)
            .sum::<u32>(),
        600
    );
    // A node of the file.
    let surgeon = Surgeon::new(device.clone());
    surgeon.write(surgeon.place(surgeon.inode(ino).nids[0]), &[3; BLOCK_BYTES]);
    let file = inspect(&device).inode(ino).unwrap();
    assert_eq!(file.faults.len(), 1, "{:?}", file.faults);
    assert_eq!(file.runs.iter().map(|run| run.count).sum::<u32>(), 460);
    // Both checkpoints.
    let superblock = surgeon.superblock.clone();
    for pack in 0..2 {
        surgeon.write(
            superblock.checkpoint_start + pack * u64::from(superblock.checkpoint_blocks),
            &[0; BLOCK_BYTES],
        );
    }
    let mut log = inspect(&device);
    assert!(log.newest().is_none() && log.packs().iter().all(Result::is_err));
    assert!(is(log.inode(ROOT), FsError::Corrupt(String::new())));
    assert!(matches!(
        log.block(superblock.sit_start).unwrap().area,
        Area::Table { counts: None, .. }
    ));
    // A copy of the superblock.
    device.write_at(0, &[0; BLOCK_BYTES]).unwrap();
    let log = inspect(&device);
    assert!(log.superblocks()[0].is_err() && log.superblocks()[1].is_ok());
    device
        .write_at(BLOCK_BYTES as u64, &[0; BLOCK_BYTES])
        .unwrap();
    assert!(Inspector::open(device, &options()).is_err());
}
