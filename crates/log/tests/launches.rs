//! Tests which blocks of files are read, and which inodes are looked up, as a mounted log records it.

mod support;

use std::ops::ControlFlow;
use std::sync::Arc;

use anteros_core::{DirEntry, FileSystem, Ino, MemoryDevice};
use anteros_log::{FileReads, Launches};
use support::*;

const BLOCK: u64 = 4096;

/// A log that records two launches of each file, with what one has recorded before.
fn recording(device: &Arc<MemoryDevice>, before: Option<&[u8]>) -> Tree {
    let tree = open(device.clone());
    let launches = match before {
        Some(bytes) => Launches::parse(bytes).unwrap(),
        None => Launches::new(tree.0.uuid(), 2),
    };
    tree.0.record_launches(launches);
    tree
}

fn record(tree: &Tree) -> Vec<u8> {
    tree.0.with_launches(Launches::encode).unwrap()
}

fn read_block(tree: &Tree, path: &str, lblk: u64) {
    let mut block = [0; BLOCK as usize];
    let ino = tree.ino(path).unwrap();
    assert_eq!(tree.0.read(ino, lblk * BLOCK, &mut block).unwrap(), 4096);
}

/// Returns what was read of the content.
fn reads(tree: &Tree, path: &str) -> Option<FileReads> {
    let reads = tree.0.launch_reads(tree.ino(path).unwrap())?;
    (reads.rounds > 0).then_some(FileReads {
        looked_up: None,
        ..reads
    })
}

/// Returns what only some launches read, in their order.
fn others(reads: &FileReads) -> Vec<u32> {
    reads.other.iter().map(|read| read.lblk).collect()
}

fn fill(tree: &Tree, path: &str) {
    tree.create(path).unwrap();
    tree.write(path, 0, &[1; 10 * BLOCK as usize]).unwrap();
}

/// The clock of these tests moves on by a second with each look, so each read is a launch.
#[test]
fn reads_are_recorded_but_of_what_is_written_again_and_again() {
    let device = device(64 * MIB);
    let tree = recording(&device, None);
    for path in ["libx.so", "notes", "x.db", "tool"] {
        fill(&tree, path);
    }
    let elf = b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0\x03\0";
    tree.write("tool", 0, elf).unwrap();
    for path in ["libx.so", "notes", "x.db", "tool"] {
        read_block(&tree, path, 7);
        read_block(&tree, path, 3);
    }
    for path in ["libx.so", "tool", "notes"] {
        let reads = reads(&tree, path).unwrap();
        assert_eq!((reads.rounds, reads.reads), (2, 2), "{path}");
        assert_eq!(
            (reads.core.len(), others(&reads)),
            (0, vec![7, 3]),
            "{path}"
        );
    }
    assert_eq!(reads(&tree, "x.db"), None);
    // Further launches are, until two read the same.
    for _ in 0..3 {
        read_block(&tree, "tool", 9);
    }
    let reads = reads(&tree, "tool").unwrap();
    assert_eq!((reads.rounds, others(&reads)), (4, vec![7, 3, 9]));
}

/// Whoever looks at all of them once is no program that starts.
#[test]
fn inodes_that_are_looked_up_twice_are_known() {
    let tree = recording(&device(64 * MIB), None);
    tree.mkdir("d").unwrap();
    for path in ["d/once", "d/twice", "d/never"] {
        tree.create(path).unwrap();
    }
    tree.ino("d/once").unwrap();
    tree.ino("d/twice").unwrap();
    tree.ino("d/twice").unwrap();
    let inos: Vec<_> = ["d", "d/once", "d/twice", "d/never"]
        .into_iter()
        .map(|path| number_of(&tree, path))
        .collect();
    let known = |ino: &Ino| {
        let reads = tree.0.launch_reads(*ino);
        reads.and_then(|reads| reads.looked_up).is_some()
    };
    let known: Vec<_> = inos.iter().map(known).collect();
    assert_eq!(known, [true, false, true, false]);
}

/// Without a lookup.
fn number_of(tree: &Tree, path: &str) -> Ino {
    let mut ino = tree.0.root();
    for name in path.split('/') {
        let mut found = None;
        let mut see = |entry: DirEntry<'_>| {
            if entry.name == name.as_bytes() {
                found = Some(entry.ino);
            }
            ControlFlow::Continue(())
        };
        tree.0.readdir(ino, 0, &mut see).unwrap();
        ino = found.unwrap();
    }
    ino
}

#[test]
fn a_read_counts_with_each_block_that_it_touches_and_that_is_there() {
    let device = device(64 * MIB);
    let tree = recording(&device, None);
    fill(&tree, "libx.so");
    let ino = tree.ino("libx.so").unwrap();
    let mut buf = [0; 8192];
    assert_eq!(tree.0.read(ino, BLOCK - 1, &mut buf[..2]).unwrap(), 2);
    assert_eq!(tree.0.read(ino, 9 * BLOCK + 4000, &mut buf).unwrap(), 96);
    assert_eq!(tree.0.read(ino, 10 * BLOCK, &mut buf).unwrap(), 0);
    let reads = reads(&tree, "libx.so").unwrap();
    assert_eq!((reads.rounds, others(&reads)), (2, vec![0, 1, 9]));
}

#[test]
fn what_changes_the_content_begins_anew() {
    let device = device(64 * MIB);
    let tree = recording(&device, None);
    fill(&tree, "libx.so");
    let changes: [fn(&Tree); 3] = [
        |tree| assert_eq!(tree.write("libx.so", 8 * BLOCK, b"x").unwrap(), 1),
        |tree| tree.truncate("libx.so", 9 * BLOCK).unwrap(),
        |tree| {
            tree.unlink("libx.so").unwrap();
            fill(tree, "libx.so");
        },
    ];
    for change in changes {
        read_block(&tree, "libx.so", 7);
        assert!(reads(&tree, "libx.so").is_some());
        change(&tree);
        assert_eq!(reads(&tree, "libx.so"), None);
    }
    read_block(&tree, "libx.so", 2);
    assert_eq!(reads(&tree, "libx.so").unwrap().core.len(), 1);
}

#[test]
fn the_next_mount_goes_on_with_what_is_still_there() {
    let device = device(64 * MIB);
    let tree = recording(&device, None);
    for path in ["kept.so", "gone.so", "changed.so"] {
        fill(&tree, path);
        read_block(&tree, path, 7);
    }
    let (kept, bytes) = (reads(&tree, "kept.so"), record(&tree));
    tree.unlink("gone.so").unwrap();
    tree.write("changed.so", 0, b"x").unwrap();
    tree.0.close().unwrap();
    drop(tree);
    let tree = recording(&device, Some(&bytes));
    assert_eq!(reads(&tree, "kept.so"), kept);
    assert_eq!(reads(&tree, "changed.so"), None);
    assert_eq!(tree.0.with_launches(|all| all.files().count()), Some(1));
    read_block(&tree, "kept.so", 7);
    let reads = reads(&tree, "kept.so").unwrap();
    assert_eq!(
        (reads.rounds, reads.core.len(), others(&reads)),
        (2, 1, vec![])
    );
}

/// Numbers of inodes that no log has are no trouble.
#[test]
fn a_record_of_anything_is_taken() {
    let device = device(64 * MIB);
    let mut launches = Launches::new([7; 16], 2);
    let tree = open(device.clone());
    let version = anteros_log::Version {
        generation: 0,
        mtime: clock(),
    };
    for ino in [0, 1, 2, 70_000, u32::MAX] {
        launches.note(ino, version, 0..5, 0);
    }
    tree.0.record_launches(launches);
    assert_eq!(tree.0.with_launches(|all| all.files().count()), Some(0));
    // Nothing is recorded where nobody asked for it.
    assert_eq!(open(device).0.with_launches(Launches::encode), None);
}
