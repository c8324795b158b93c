//! Reads and heap of checking logs with very many names: every allocation counts against a limit,
//! beyond which the process ends.

mod support;

use std::alloc::System;
use std::sync::{Arc, Mutex};

use anteros_core::{Counted, MemoryDevice, WritableDevice};
use anteros_log::{Report, check, repair};
use cap::Cap;
use support::surgeon::Surgeon;
use support::*;

#[global_allocator]
static HEAP: Cap<System> = Cap::new(System, usize::MAX);

/// The heap is that of all tests here.
static ALONE: Mutex<()> = Mutex::new(());

const BLOCK: u64 = 4096;
const MEMORY_BYTES: usize = 2 << 20;
/// The tables of a log of this size, blocks of the node address table, and what is read at once.
const REST_BYTES: usize = 2 << 20;

type Shared = Arc<Counted<MemoryDevice>>;

fn counted(bytes: u64) -> Shared {
    let device = Arc::new(Counted::new(MemoryDevice::new(vec![0; bytes as usize])));
    make(device.clone());
    device
}

/// The findings of a check, and the bytes that it reads.
fn checked(device: &Shared) -> (Report, u64) {
    let before = device.counts().read_bytes;
    let limit = HEAP.allocated() + MEMORY_BYTES + REST_BYTES;
    HEAP.set_limit(limit).unwrap();
    let report = check(device.clone(), options_with(MEMORY_BYTES)).unwrap();
    HEAP.set_limit(usize::MAX).unwrap();
    assert_eq!(report.faults, [""; 0]);
    (report, device.counts().read_bytes - before)
}

/// Files in directories, which no order of names leaves in that of the device.
fn with_files(count: u64) -> Shared {
    let device = counted(512 * MIB);
    let tree = open_plainly(device.clone() as Arc<dyn WritableDevice>);
    for directory in 0..20 {
        tree.mkdir(&format!("d{directory}")).unwrap();
    }
    for n in 0..count {
        tree.create(&format!("d{}/file-{n}", n % 20)).unwrap();
    }
    tree.0.close().unwrap();
    drop(tree);
    device
}

#[test]
fn a_check_reads_all_metadata_once() {
    let _alone = ALONE.lock();
    for count in [3000, 12_000] {
        let device = with_files(count);
        let (report, read) = checked(&device);
        assert_eq!((report.files, report.directories), (count, 21));
        let metadata = (report.nodes + report.data_blocks) * BLOCK;
        // The tables, and both checkpoints.
        let most = metadata + metadata / 4 + 4 * MIB;
        assert!(
            read <= most,
            "{read} bytes are read for {metadata} of {count} files"
        );
    }
}

/// By the names alone, which were kept for each directory, they would not fit.
#[test]
fn a_check_keeps_to_the_memory_it_was_given() {
    let _alone = ALONE.lock();
    let device = counted(512 * MIB);
    let tree = open_plainly(device.clone() as Arc<dyn WritableDevice>);
    let mut below = String::new();
    for depth in 0..40 {
        below.push_str(&format!("{depth}"));
        tree.mkdir(&below).unwrap();
        below.push('/');
    }
    tree.mkdir("large").unwrap();
    tree.create("file").unwrap();
    for n in 0..80_000 {
        tree.link("file", &format!("large/{n}")).unwrap();
    }
    for n in 0..4000 {
        tree.mkdir(&format!("large/{n}-directory")).unwrap();
    }
    tree.0.close().unwrap();
    drop(tree);
    let (report, _) = checked(&device);
    assert_eq!((report.files, report.directories), (1, 4042));
}

/// Each inode that it had looked at stayed in memory, and notes of all of them; later, a repair with less was refused.
#[test]
fn a_repair_keeps_to_the_memory_it_was_given_and_spills_its_notes() {
    const FILES: u64 = 12_000;
    let _alone = ALONE.lock();
    let device = device(256 * MIB);
    let tree = open_plainly(device.clone());
    for directory in 0..20 {
        tree.mkdir(&format!("d{directory}")).unwrap();
    }
    for n in 0..FILES {
        tree.create(&format!("d{}/file-{n}", n % 20)).unwrap();
    }
    tree.0.close().unwrap();
    drop(tree);
    let surgeon = Surgeon::new(device.clone());
    for ino in [100, 5000, 11_000] {
        surgeon.change_inode(ino, |inode| inode.attributes.nlink = 7);
    }
    surgeon.finish();
    let plenty = Arc::new(MemoryDevice::new(device.to_vec()));
    let expected = repair(plenty.clone(), options_with(64 << 20)).unwrap();
    assert_eq!((expected.repairs.len(), expected.left.len()), (3, 0));
    // What is on its way to the device, and the tables of the log.
    const REST: usize = 8 << 20;
    for memory in [64 << 10, 1 << 20] {
        let copy = Arc::new(MemoryDevice::new(device.to_vec()));
        let limit = HEAP.allocated() + memory + REST;
        HEAP.set_limit(limit).unwrap();
        let told = repair(copy.clone(), options_with(memory)).unwrap();
        HEAP.set_limit(usize::MAX).unwrap();
        assert_eq!(told, expected);
        assert_eq!(check(copy.clone(), options()).unwrap().fault_count, 0);
        let (found, expected) = (open_plainly(copy), open_plainly(plenty.clone()));
        for path in ["", "d3", "d19"] {
            assert_eq!(found.list(path).unwrap(), expected.list(path).unwrap());
        }
    }
}

/// Notes of damage are in memory: beyond their share, nothing is changed.
#[test]
fn a_repair_of_more_damage_than_memory_holds_is_refused() {
    let _alone = ALONE.lock();
    let device = device(64 * MIB);
    let tree = open_plainly(device.clone());
    for n in 0..2000 {
        tree.create(&format!("file-{n}")).unwrap();
    }
    tree.0.close().unwrap();
    drop(tree);
    let surgeon = Surgeon::new(device.clone());
    for ino in 100..1100 {
        surgeon.change_inode(ino, |inode| inode.attributes.blocks = 9);
    }
    let damaged = device.to_vec();
    let refused = repair(device.clone(), options_with(64 << 10)).unwrap_err();
    assert!(refused.to_string().contains("may take 64 KiB"), "{refused}");
    assert!(device.to_vec() == damaged);
    let told = repair(device.clone(), options_with(4 << 20)).unwrap();
    assert_eq!((told.repair_count, told.left.len()), (1000, 0));
    assert_eq!(check(device, options()).unwrap().fault_count, 0);
}
