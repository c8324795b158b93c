//! Directories with very many names.

mod support;

use std::ops::ControlFlow;
use std::sync::Arc;

use anteros_core::{FileSystem, FsError, Ino, MemoryDevice};
use anteros_log::check;
use anteros_log::layout::dir::{self, Index, Leaf, OwnedEntry};
use support::surgeon::Surgeon;
use support::*;

/// Fewer where nothing is optimized.
const NAMES: u64 = if cfg!(debug_assertions) {
    100_000
} else {
    1_000_000
};
const CEILING: usize = 24 << 20;

/// States what comes in before it is looked again, and what waits for a checkpoint.
const BEYOND: u64 = 8 << 20;

#[test]
fn a_directory_of_a_million_names_needs_no_more_memory_than_there_is() {
    let device = device(256 * MIB);
    let tree = open_with(device.clone(), options_with(CEILING));
    tree.mkdir("d").unwrap();
    tree.put("file", b"content").unwrap();
    let (dir, file) = (tree.ino("d").unwrap(), tree.ino("file").unwrap());
    let name = |n: u64| format!("name-{n}");
    let most = std::cell::Cell::new(0);
    let look = |n: u64| {
        if n % 256 == 0 {
            most.set(most.get().max(tree.0.condition().memory_bytes));
        }
    };
    let find = |n: u64| {
        let found = tree.0.lookup(dir, name(n).as_bytes())?.ino;
        anteros_core::Writable::forget(&tree.0, found, 1);
        Ok::<Ino, FsError>(found)
    };
    for n in 0..NAMES {
        let attr = anteros_core::Writable::link(&tree.0, file, dir, name(n).as_bytes()).unwrap();
        anteros_core::Writable::forget(&tree.0, attr.ino, 1);
        look(n);
    }
    for n in (0..NAMES).step_by(7) {
        assert_eq!(find(n).unwrap(), file);
        look(n);
    }
    assert!(is(find(NAMES), FsError::NotFound));
    let count = |tree: &Tree| {
        let (mut count, mut last) = (0, 0);
        tree.0
            .readdir(dir, 0, &mut |entry| {
                assert!(entry.next > last);
                (count, last) = (count + 1, entry.next);
                ControlFlow::Continue(())
            })
            .unwrap();
        count - 2
    };
    assert_eq!(count(&tree), NAMES);
    look(0);
    tree.0.close().unwrap();
    let report = check(device.clone(), options_with(CEILING)).unwrap();
    assert_eq!(report.faults, [""; 0]);
    // All but each tenth go, and then these.
    for n in (0..NAMES).filter(|n| n % 10 != 0) {
        anteros_core::Writable::unlink(&tree.0, dir, name(n).as_bytes()).unwrap();
        look(n);
    }
    assert_eq!(count(&tree), NAMES / 10);
    for n in (0..NAMES).step_by(10) {
        anteros_core::Writable::unlink(&tree.0, dir, name(n).as_bytes()).unwrap();
        look(n);
    }
    assert_eq!(tree.attr("d").unwrap().blocks, 0);
    tree.rmdir("d").unwrap();
    println!("{} bytes of memory at most", most.get());
    assert!(most.get() < CEILING as u64 + BEYOND, "{} bytes", most.get());
    tree.0.close().unwrap();
    drop(tree);
    assert_sound(device);
}

/// Names whose hashes are in the lower half, all of one length.
fn low_names(seed: &[u8; 16], len: usize) -> impl Iterator<Item = String> + '_ {
    (0..)
        .map(move |n| format!("{n:0len$}"))
        .filter(|name| dir::hash(name.as_bytes(), seed) < HALF)
}

const HALF: u64 = 1 << 62;

/// A tree of as many levels as there may be, in which all blocks on the way to a leaf are full, and the leaf as well. Nothing
/// lies behind other ways.
fn at_its_limit() -> (Arc<MemoryDevice>, Vec<String>, Vec<String>) {
    let device = device(64 * MIB);
    let tree = open(device.clone());
    tree.mkdir("d").unwrap();
    let seed = [9; 16];
    let names: Vec<String> = low_names(&seed, 255).take(60).collect();
    for name in &names {
        tree.create(&format!("d/{name}")).unwrap();
    }
    let dir = tree.ino("d").unwrap().0 as u32;
    let inos: Vec<u32> = names
        .iter()
        .map(|name| tree.ino(&format!("d/{name}")).unwrap().0 as u32)
        .collect();
    tree.0.close().unwrap();
    drop(tree);
    let surgeon = Surgeon::new(device.clone());
    let mut leaf = Leaf::default();
    for (name, &ino) in names[..15].iter().zip(&inos) {
        leaf.insert(OwnedEntry {
            hash: dir::hash(name.as_bytes(), &seed),
            ino,
            kind: 8,
            name: name.as_bytes().into(),
        })
        .unwrap();
    }
    surgeon.set_content(dir, 3, &leaf.encode().unwrap());
    for (lblk, level) in [(2, 1), (1, 2), (0, 3)] {
        let mut items = vec![(0, u32::from(lblk) + 1)];
        // What is above covers what is below.
        let first = HALF + (u64::from(level) << 40);
        items.extend((1..340).map(|n| (first + (n << 8), 1000 + n as u32)));
        let block = Index { level, items }.encode().unwrap();
        assert!(dir::is_full(&block));
        surgeon.set_content(dir, lblk, &block);
    }
    surgeon.change_inode(dir, |inode| inode.entries = 15);
    surgeon.finish();
    let (there, others) = names.split_at(15);
    (device, there.to_vec(), others.to_vec())
}

#[test]
fn a_directory_that_is_full_says_so_and_stays_whole() {
    let (device, there, others) = at_its_limit();
    let tree = open(device.clone());
    let whole = |tree: &Tree| {
        for name in &there {
            assert!(tree.ino(&format!("d/{name}")).is_ok(), "{name}");
        }
    };
    whole(&tree);
    for name in &others[..5] {
        assert!(is(tree.create(&format!("d/{name}")), FsError::NoSpace));
        assert!(is(
            tree.rename("d", &format!("d/{name}"), 0),
            FsError::Invalid
        ));
    }
    whole(&tree);
    assert_eq!(tree.0.failure(), None);
    // A short name still fits, and room that is made can be used.
    let short = low_names(&[9; 16], 5).next().unwrap();
    tree.create(&format!("d/{short}")).unwrap();
    tree.unlink(&format!("d/{}", there[0])).unwrap();
    tree.create(&format!("d/{}", there[0])).unwrap();
    tree.fsync("d").unwrap();
    drop(tree);
    let tree = open(device);
    whole(&tree);
    assert!(tree.ino(&format!("d/{short}")).is_ok());
}
