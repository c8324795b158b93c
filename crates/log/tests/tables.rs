//! Tables, checkpoints and superblocks on the device: which copy is written, in which order, and that it is counted.

mod support;

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};

use anteros_core::{Caller, Device, MemoryDevice, Writable, WritableDevice};
use anteros_log::layout::Superblock;
use anteros_log::layout::superblock::{
    INCOMPAT_LONG_CHUNKS, INCOMPAT_PACKED, SUPERBLOCK_BYTES, SUPERBLOCK_OFFSET,
};
use anteros_log::{Log, Options, Policy, Shape, mkfs, repair_going_back};
use anteros_tests::crash::{Operation, Recorder};
use anteros_tests::faulty::{Call, Faulty, When};
use rustix::io::Errno;
use support::hooked::{Asked, Hooked};
use support::*;

const BLOCK: u64 = 4096;

/// The blocks that were written since this was asked last.
type Written = Arc<Mutex<Vec<u64>>>;

fn watched(bytes: u64, options: Options) -> (Written, Arc<Hooked>, Tree) {
    let written = Written::default();
    let hears = written.clone();
    let hook = move |asked| {
        if let Asked::Write(offset, len) = asked {
            let blocks = offset / BLOCK..(offset + len as u64).div_ceil(BLOCK);
            hears.lock().unwrap().extend(blocks);
        }
    };
    let empty = Arc::new(MemoryDevice::new(vec![0; bytes as usize]));
    let device = Arc::new(Hooked::around(empty, hook));
    make(device.clone());
    let tree = open_with(device.clone(), options);
    (written, device, tree)
}

/// Each checkpoint writes to a table what its journal has no room for, to the copies that do not count, and counts it.
fn assert_tables_take_turns(bytes: u64, options: Options, name: &str, change: &dyn Fn(&Tree, u64)) {
    let (written, device, tree) = watched(bytes, options);
    tree.0.checkpoint().unwrap();
    let superblock = tree.0.layout().superblock;
    let (start, blocks) = match name {
        "node address table" => (superblock.nat_start, superblock.nat_blocks),
        "segment table" => (superblock.sit_start, superblock.sit_blocks),
        _ => (superblock.bst_start, superblock.bst_blocks),
    };
    let table = start..start + 2 * u64::from(blocks);
    let mut last = BTreeSet::new();
    for round in 0..2 {
        let before = tree.blocks_written();
        written.lock().unwrap().clear();
        change(&tree, round);
        tree.0.checkpoint().unwrap();
        let written = std::mem::take(&mut *written.lock().unwrap());
        let of_table: BTreeSet<u64> = written
            .iter()
            .copied()
            .filter(|block| table.contains(block))
            .collect();
        assert!(!of_table.is_empty(), "{name}");
        assert!(of_table.is_disjoint(&last), "{name}: {of_table:?}");
        assert_eq!(
            tree.blocks_written() - before,
            written.len() as u64,
            "{name}"
        );
        last = of_table;
    }
    tree.0.close().unwrap();
    drop(tree);
    assert_sound(device);
}

/// Invariant L5 of `docs/design/log.md`.
#[test]
fn blocks_of_the_node_address_table_take_turns() {
    let change = |tree: &Tree, round| {
        for n in 0..850 {
            tree.create(&format!("{round} {n}")).unwrap();
        }
        for n in 0..850 {
            tree.unlink(&format!("{round} {n}")).unwrap();
        }
    };
    assert_tables_take_turns(32 * MIB, plainly(), "node address table", &change);
}

#[test]
fn blocks_of_the_segment_table_take_turns() {
    // Of a hundred segments a journal has no room to tell, be they filled or emptied.
    let piece = vec![7; 1 << 20];
    let change = |tree: &Tree, round| match round {
        0 => {
            tree.create("file").unwrap();
            for at in 0..206 {
                tree.write("file", at << 20, &piece).unwrap();
            }
        }
        _ => tree.unlink("file").unwrap(),
    };
    assert_tables_take_turns(320 * MIB, plainly(), "segment table", &change);
}

#[test]
fn blocks_of_the_block_state_table_take_turns() {
    let options = Options {
        policy: Policy::Force,
        ..options()
    };
    let content: Vec<u8> = (0..1300).flat_map(half_random).collect();
    let change = |tree: &Tree, _| tree.put("file", &content).unwrap();
    assert_tables_take_turns(64 * MIB, options, "block state table", &change);
}

/// What is valid there is not known, and no block of it may be written over.
#[test]
fn a_log_whose_valid_slots_cannot_be_read_is_not_written_to() {
    let options = Options {
        policy: Policy::Force,
        ..options()
    };
    let device = device(64 * MIB);
    let tree = open_with(device.clone(), options.clone());
    let content: Vec<u8> = (0..1300).flat_map(half_random).collect();
    tree.put("file", &content).unwrap();
    tree.0.close().unwrap();
    let superblock = tree.0.layout().superblock;
    drop(tree);
    let device = Arc::new(Faulty::new(MemoryDevice::new(device.to_vec())));
    let table = superblock.bst_start..superblock.bst_start + 2 * u64::from(superblock.bst_blocks);
    let broken = When::Touching(table.start * BLOCK..table.end * BLOCK);
    device.inject(Call::Read, broken, Errno::IO);
    let error = Log::open(device.clone(), options.clone()).err().unwrap();
    assert!(error.to_string().contains("block state table"), "{error}");
    device.heal();
    let tree = open_with(device, options);
    assert!(tree.read("file").unwrap() == content);
}

/// A page that shrinks to a half.
fn half_random(page: u64) -> Vec<u8> {
    let mut content = bytes(page, 2048);
    content.resize(4096, 7);
    content
}

fn is_zero(data: &[u8]) -> bool {
    data.iter().all(|&byte| byte == 0)
}

/// What was there is gone for good before anything new comes, and the new log is there for good in the end.
#[test]
fn a_new_log_comes_when_the_old_one_has_gone() {
    let old = device(32 * MIB);
    open(old.clone()).put("old", &bytes(1, 100_000)).unwrap();
    let recorder = Arc::new(Recorder::new(&old.to_vec()));
    let made: Arc<dyn WritableDevice> = recorder.clone();
    mkfs(&made, &Shape::default(), Caller::default(), &options()).unwrap();
    let recording = recorder.recording();
    let operations = recording.operations();
    let is_flush = |done: &Operation| matches!(done, Operation::Flush);
    let first = operations.iter().position(is_flush).unwrap();
    for done in &operations[..first] {
        if let Operation::Write { data, .. } = done {
            assert!(is_zero(data));
        }
    }
    assert!(operations.last().is_some_and(is_flush));
    // The copies of the superblock one after the other.
    let superblocks = operations.iter().enumerate().filter_map(|(at, done)| {
        matches!(done, Operation::Write { data, .. } if data.len() == SUPERBLOCK_BYTES)
            .then_some(at)
    });
    let superblocks: Vec<usize> = superblocks.collect();
    assert_eq!(superblocks.len(), 2);
    assert!(
        operations[superblocks[0]..superblocks[1]]
            .iter()
            .any(is_flush)
    );
}

/// Both copies of the superblock.
fn superblocks(device: &dyn Device) -> [Option<Superblock>; 2] {
    [0, 1].map(|copy| {
        let mut bytes = [0; SUPERBLOCK_BYTES];
        let offset = copy * BLOCK + SUPERBLOCK_OFFSET as u64;
        device.read_at(offset, &mut bytes).unwrap();
        Superblock::parse(&bytes).ok()
    })
}

/// A copy of the superblock that is not what the other one is, or that cannot be read, is written again by the next mount.
#[test]
fn both_superblocks_are_the_same_after_a_mount() {
    let base = device(32 * MIB).to_vec();
    for copy in [0, 1] {
        let mut bytes = base.clone();
        bytes[copy * 4096..][..4096].fill(0);
        let recorder = Arc::new(Recorder::new(&bytes));
        // A policy that compresses has it written anyway.
        let tree = open_plainly(recorder.clone());
        let [first, second] = superblocks(&*recorder);
        assert!(first.is_some() && first == second, "{copy}");
        let recording = recorder.recording();
        let last = recording.operations().last();
        assert!(matches!(last, Some(Operation::Flush)), "{copy}");
        drop(tree);
        let device = Arc::new(Faulty::new(MemoryDevice::new(bytes)));
        let at = copy as u64 * BLOCK;
        device.inject(Call::Read, When::Touching(at..at + BLOCK), Errno::IO);
        drop(open_plainly(device.clone()));
        device.heal();
        let [first, second] = superblocks(device.inner());
        assert!(first.is_some() && first == second, "{copy}, unreadable");
    }
}

/// Who knows nothing of packed blocks must not take the log for one without.
#[test]
fn the_superblock_says_that_content_may_be_compressed() {
    let device = device(32 * MIB);
    let is_said = || {
        superblocks(&*device)
            .map(|copy| copy.is_some_and(|copy| copy.incompat & INCOMPAT_PACKED != 0))
    };
    drop(open_plainly(device.clone()));
    assert_eq!(is_said(), [false; 2]);
    let options = Options {
        policy: Policy::Record,
        ..options()
    };
    drop(Log::open(device.clone(), options).unwrap());
    assert_eq!(is_said(), [true; 2]);
}

/// Versions that replay groups of chunks in two blocks at most must refuse such a log.
#[test]
fn the_superblock_says_that_chunks_of_groups_may_be_long() {
    let device = device(32 * MIB);
    for (policy, is_said) in [(Policy::Paper, false), (Policy::Record, true)] {
        drop(open_with(device.clone(), with(policy)));
        for copy in superblocks(&*device) {
            let incompat = copy.unwrap().incompat;
            assert_eq!(incompat & INCOMPAT_LONG_CHUNKS != 0, is_said, "{policy:?}");
        }
    }
}

/// One copy may be the new one, and the log would not be what it says.
#[test]
fn a_superblock_that_cannot_be_written_ends_all_changes() {
    let device = Arc::new(Faulty::new(MemoryDevice::new(device(32 * MIB).to_vec())));
    let tree = open(device.clone());
    tree.create("file").unwrap();
    let ino = tree.ino("file").unwrap();
    device.inject(Call::Write, When::Touching(0..2 * BLOCK), Errno::IO);
    assert!(tree.0.setxattr(ino, b"user.a", &[1; 30_000], 0).is_err());
    device.heal();
    assert!(tree.0.failure().is_some());
    assert!(tree.create("after").is_err());
}

/// Of versions that there were, groups may be left: none may be taken for one that is still to come.
#[test]
fn a_repair_that_goes_back_leaves_versions_out() {
    let device = device(32 * MIB);
    let tree = open(device.clone());
    for name in ["first", "second"] {
        tree.create(name).unwrap();
        tree.0.checkpoint().unwrap();
    }
    let layout = tree.0.layout();
    drop(tree);
    let superblock = layout.superblock;
    let room = u64::from(superblock.checkpoint_blocks);
    let newest = superblock.checkpoint_start + layout.version % 2 * room;
    device.write_at(newest * BLOCK, &[0xee; 4096]).unwrap();
    assert!(Log::open(device.clone(), options()).is_err());
    repair_going_back(device.clone(), options()).unwrap();
    let tree = open(device);
    assert_eq!(tree.list("").unwrap(), ["first"]);
    let version = tree.0.layout().version;
    assert!(version > layout.version + 1000, "{version}");
}

/// Records behind the checkpoint may name an inode that is gone by its number.
///
/// Invariant L6 of `docs/design/log.md`.
#[test]
fn a_number_is_not_given_again_before_a_checkpoint() {
    let tree = open_plainly(device(32 * MIB));
    let numbers = tree.0.layout().superblock.nids;
    let checkpoints = || tree.0.condition().statistics.checkpoints;
    let (mut given, mut last) = (BTreeSet::new(), checkpoints());
    for _ in 0..numbers + 100 {
        tree.create("file").unwrap();
        if checkpoints() != last {
            (given, last) = (BTreeSet::new(), checkpoints());
        }
        let ino = tree.ino("file").unwrap();
        assert!(given.insert(ino), "{ino:?}");
        tree.unlink("file").unwrap();
    }
    assert!(last > 0);
}
