//! Tests what became of content, by its class: numbers that can be worked out by hand.

mod support;

use std::sync::Arc;
use std::time::Duration;

use anteros_core::{FileSystem, MemoryDevice};
use anteros_log::layout::packed::{self, SlotKind};
use anteros_log::{Class, ClassStatistics, Options, Policy};
use support::surgeon::Surgeon;
use support::*;

const PAGE: usize = 4096;

fn mounted(device: &Arc<MemoryDevice>, policy: Policy) -> Tree {
    let options = Options {
        policy,
        // What is known of a file by its name leaves memory with its inode.
        evicts_always: false,
        ..options()
    };
    open_with(device.clone(), options)
}

/// Pages that shrink to little more than so many random bytes.
fn pages(count: usize, fresh: usize) -> Vec<u8> {
    let page = |number: usize| {
        let mut page = bytes(number as u64, fresh);
        page.resize(PAGE, number as u8);
        page
    };
    (0..count).flat_map(page).collect()
}

fn of(tree: &Tree, class: Class) -> ClassStatistics {
    *tree.0.condition().statistics.class(class)
}

/// Statistics of a class, without what a clock measured.
fn counted(tree: &Tree, class: Class) -> ClassStatistics {
    ClassStatistics {
        compressing: Duration::ZERO,
        decompressing: Duration::ZERO,
        ..of(tree, class)
    }
}

/// Bytes of chunks in valid packed blocks, without their slots.
fn chunk_bytes(device: &Arc<MemoryDevice>) -> u64 {
    let surgeon = Surgeon::new(device.clone());
    let blocks = surgeon.checkpoint.bst_journal.iter();
    let slots = blocks.flat_map(|&(block, _)| packed::parse(&surgeon.read(block)).unwrap().1);
    let chunks = slots.filter(|slot| slot.kind == SlotKind::Data);
    chunks.map(|slot| u64::from(slot.len)).sum()
}

/// With the policy of the paper ten pages that fit into one block take two, for there are five to a block.
#[test]
fn ten_pages_of_a_database_are_counted() {
    let device = device(64 * MIB);
    let tree = mounted(&device, Policy::Paper);
    let data = pages(10, 100);
    tree.put("a.db", &data).unwrap();
    tree.fsync("a.db").unwrap();
    let written = counted(&tree, Class::Database);
    tree.0.close().unwrap();
    let bytes = chunk_bytes(&device);
    assert!((1000..2000).contains(&bytes), "{bytes}");
    let expected = ClassStatistics {
        pages: 10,
        stored_bytes: bytes + 10 * 16,
        compressed_pages: 10,
        touched_blocks: 2,
        least_blocks: 1,
        ..ClassStatistics::default()
    };
    assert_eq!(written, expected);
    assert_eq!(written.car(), Some(2.0));
    assert_eq!(written.ratio(), Some((bytes + 160) as f64 / 40_960.0));
    assert!(of(&tree, Class::Database).compressing > Duration::ZERO);
    for class in &Class::ALL[1..] {
        assert_eq!(of(&tree, *class), ClassStatistics::default(), "{class:?}");
    }
    // One page of the five in a block is wanted.
    let mut page = vec![0; PAGE];
    let ino = tree.ino("a.db").unwrap();
    assert_eq!(tree.0.read(ino, 7 * PAGE as u64, &mut page).unwrap(), PAGE);
    assert!(page == data[7 * PAGE..][..PAGE]);
    let read = counted(&tree, Class::Database);
    let expected = ClassStatistics {
        read_blocks: 1,
        read_stored_pages: 5,
        read_pages: 1,
        ..expected
    };
    assert_eq!(read, expected);
    assert_eq!(read.dar(), Some(5.0));
    assert!(of(&tree, Class::Database).decompressing > Duration::ZERO);
    // Then all of them, of which each block is read once.
    assert!(tree.read("a.db").unwrap() == data);
    let read = counted(&tree, Class::Database);
    assert_eq!(
        (read.read_blocks, read.read_stored_pages, read.read_pages),
        (3, 15, 11)
    );
}

#[test]
fn pages_that_sampling_leaves_are_counted() {
    let tree = mounted(&device(64 * MIB), Policy::Paper);
    // The first page is no good sample of the others.
    let data = [bytes(1, PAGE), pages(4, 10)].concat();
    tree.put("a.db", &data).unwrap();
    tree.fsync("a.db").unwrap();
    let expected = ClassStatistics {
        pages: 5,
        stored_bytes: 5 * PAGE as u64,
        left_pages: 5,
        ..ClassStatistics::default()
    };
    assert_eq!(counted(&tree, Class::Database), expected);
    drop(tree);
    let tree = mounted(&device(64 * MIB), Policy::Record);
    tree.put("a.db", &data).unwrap();
    tree.fsync("a.db").unwrap();
    let found = counted(&tree, Class::Database);
    assert_eq!(
        (found.pages, found.compressed_pages, found.left_pages),
        (5, 4, 1)
    );
    assert_eq!((found.touched_blocks, found.least_blocks), (1, 1));
}

#[test]
fn content_counts_as_what_it_is() {
    let tree = mounted(&device(64 * MIB), Policy::Record);
    let data = pages(3, 10);
    let cases = [
        ("a.db-journal", Class::Journal),
        ("a.db-wal", Class::Journal),
        ("lib.so", Class::Executable),
        ("photo.jpg", Class::Media),
        ("notes", Class::Other),
    ];
    for (name, class) in cases {
        let before = of(&tree, class).pages;
        tree.put(name, &data).unwrap();
        tree.fsync(name).unwrap();
        assert_eq!(of(&tree, class).pages - before, 3, "{name}");
    }
    tree.mkdir("dir").unwrap();
    tree.0.checkpoint().unwrap();
    let pages = Class::ALL.map(|class| of(&tree, class).pages);
    assert_eq!(pages, [0, 6, 3, 3, 3]);
    // Three pages of a journal are one chunk, in one slot.
    assert_eq!(of(&tree, Class::Journal).compressed_pages, 6);
    // So are two, and all inodes but the root are in one block.
    assert_eq!(tree.0.layout().packed_slots, 2 + 6);
    assert_eq!(tree.0.layout().packed_blocks, 2 + 1);
    for (name, _) in &cases[..2] {
        tree.unlink(name).unwrap();
    }
    tree.0.checkpoint().unwrap();
    assert_eq!(
        (tree.0.layout().packed_blocks, tree.0.layout().packed_slots),
        // Three files and a directory.
        (1, 4)
    );
}

/// Nothing is compressed, and all is counted; what has no name that says so is known by its beginning.
#[test]
fn a_log_that_does_not_compress_counts_as_well() {
    let tree = mounted(&device(64 * MIB), Policy::None);
    let mut data = pages(3, 10);
    data[..16].copy_from_slice(b"SQLite format 3\0");
    tree.put("History", &data).unwrap();
    tree.fsync("History").unwrap();
    tree.write("History", 2 * PAGE as u64, &data[..PAGE])
        .unwrap();
    tree.fsync("History").unwrap();
    let expected = ClassStatistics {
        pages: 4,
        stored_bytes: 4 * PAGE as u64,
        ..ClassStatistics::default()
    };
    assert_eq!(of(&tree, Class::Database), expected);
    assert!(tree.0.clean().is_ok());
    assert_eq!(of(&tree, Class::Database), expected);
}
