//! Very many files that are open and have no name any more.

mod support;

use anteros_core::FileSystem;
use support::surgeon::Surgeon;
use support::*;

const FILES: usize = 40_000;

#[test]
fn very_many_open_files_without_a_name_are_given_back_after_a_crash() {
    let device = device(512 * MIB);
    let tree = Tree(anteros_log::Log::open(device.clone(), options_with(8 << 20)).unwrap());
    tree.put("kept", &bytes(1, 10_000)).unwrap();
    tree.0.checkpoint().unwrap();
    let empty = tree.0.condition();
    for n in 0..FILES {
        let path = format!("{n}");
        tree.create(&path).unwrap();
        if n % 100 == 0 {
            tree.put(&path, &bytes(n as u64, 5000)).unwrap();
        }
        // Held, as by a program that has it open.
        tree.0.lookup(tree.0.root(), path.as_bytes()).unwrap();
        tree.unlink(&path).unwrap();
    }
    tree.0.checkpoint().unwrap();
    let held = tree.0.condition();
    assert_eq!(held.inodes as usize, 2 + FILES);
    let in_a_block = if packs_inodes() { 32 } else { 1 };
    assert!(held.used_blocks > empty.used_blocks + FILES as u64 / in_a_block);
    assert!(held.memory_bytes < 24 << 20, "{} bytes", held.memory_bytes);
    // The log goes on.
    tree.put("kept", &bytes(2, 20_000)).unwrap();
    tree.fsync("kept").unwrap();
    drop(tree);

    let report = assert_sound(device.clone());
    assert_eq!((report.files, report.recovery.groups), (1, 1));
    let tree = open(device.clone());
    assert_eq!(tree.0.condition().inodes, 2);
    assert!(tree.0.condition().used_blocks < empty.used_blocks + 10);
    assert_eq!(tree.list("").unwrap(), ["kept"]);
    assert_eq!(tree.read("kept").unwrap(), bytes(2, 20_000));
    tree.0.close().unwrap();
    drop(tree);
    assert_sound(device);
}

/// Tests that files which a checkpoint had no room to list are found.
#[test]
fn open_files_without_a_name_that_no_checkpoint_lists_are_given_back_after_a_crash() {
    let device = device(64 * MIB);
    let tree = open(device.clone());
    tree.put("kept", &bytes(1, 10_000)).unwrap();
    for name in ["a", "b", "c"] {
        tree.put(name, &bytes(2, 5000)).unwrap();
        tree.0.lookup(tree.0.root(), name.as_bytes()).unwrap();
        tree.unlink(name).unwrap();
    }
    tree.0.checkpoint().unwrap();
    assert_eq!(tree.0.condition().inodes, 5);
    drop(tree);
    let mut surgeon = Surgeon::new(device.clone());
    assert_eq!(surgeon.checkpoint.orphans.len(), 3);
    surgeon.checkpoint.orphans.clear();
    surgeon.checkpoint.orphans_left_out = true;
    surgeon.finish();

    let tree = open(device.clone());
    assert_eq!(tree.0.condition().inodes, 2);
    assert_eq!(tree.read("kept").unwrap(), bytes(1, 10_000));
    tree.0.close().unwrap();
    drop(tree);
    assert_sound(device);
}
