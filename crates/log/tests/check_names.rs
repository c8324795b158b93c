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

/// Each inode that it had looked at stayed in memory; what it notes of all of them is more than there may be at last.
#[test]
fn a_repair_keeps_to_the_memory_it_was_given_or_says_what_it_takes() {
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
    surgeon.change_inode(100, |inode| inode.attributes.nlink = 7);
    let refused = repair(device.clone(), options_with(1 << 20)).unwrap_err();
    assert!(
        refused.to_string().contains("about 2 MiB of memory"),
        "{refused}"
    );
    assert_eq!(check(device.clone(), options()).unwrap().fault_count, 1);
    const MEMORY: usize = 8 << 20;
    // What is on its way to the device, and the tables.
    let limit = HEAP.allocated() + MEMORY + (8 << 20);
    HEAP.set_limit(limit).unwrap();
    let told = repair(device.clone(), options_with(MEMORY)).unwrap();
    HEAP.set_limit(usize::MAX).unwrap();
    assert_eq!((told.repairs.len(), told.left.len()), (1, 0), "{told:?}");
    assert_eq!(check(device, options()).unwrap().fault_count, 0);
}
