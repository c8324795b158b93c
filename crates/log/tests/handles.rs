//! Inodes that are looked for by their numbers alone, as file handles have them.

mod support;

use anteros_core::{FileSystem, FsError, FsResult, Ino, Writable};
use support::*;

/// The content of a file handle.
type Handle = (Ino, u32);

fn handle(tree: &Tree, path: &str) -> Handle {
    let ino = tree.ino(path).unwrap();
    (ino, tree.0.generation(ino))
}

/// Finds an inode as the kernel does: by its number, if it is still the same.
fn find(tree: &Tree, (ino, generation): Handle) -> FsResult<Ino> {
    let attr = tree.0.lookup(ino, b".")?;
    let is_same = tree.0.generation(attr.ino) == generation;
    tree.0.forget(attr.ino, 1);
    is_same.then_some(attr.ino).ok_or(FsError::NotFound)
}

#[test]
fn a_handle_outlives_the_mount() {
    let device = device(64 * MIB);
    let tree = open(device.clone());
    tree.mkdir("d").unwrap();
    tree.put("d/kept", b"kept").unwrap();
    tree.put("gone", b"gone").unwrap();
    let handles = ["d", "d/kept", "gone"].map(|path| handle(&tree, path));
    tree.fsync("d").unwrap();
    drop(tree);
    // What was replayed, and what a checkpoint has.
    for _ in 0..2 {
        let tree = open(device.clone());
        for handle in handles {
            assert_eq!(find(&tree, handle).unwrap(), handle.0);
        }
        assert_eq!(
            tree.0.lookup(handles[1].0, b"..").unwrap().ino,
            handles[0].0
        );
        tree.0.close().unwrap();
    }
    let tree = open(device.clone());
    tree.unlink("gone").unwrap();
    assert!(is(find(&tree, handles[2]), FsError::NotFound));
    tree.0.close().unwrap();
    drop(tree);
    let tree = open(device);
    assert!(is(find(&tree, handles[2]), FsError::NotFound));
    assert_eq!(find(&tree, handles[1]).unwrap(), handles[1].0);
}

/// A file without a name is found only by those who hold it.
#[test]
fn a_handle_does_not_bring_back_what_was_removed() {
    let tree = open(device(64 * MIB));
    tree.put("file", b"held").unwrap();
    let held = handle(&tree, "file");
    let attr = tree.0.lookup(tree.0.root(), b"file").unwrap();
    tree.unlink("file").unwrap();
    assert_eq!(find(&tree, held).unwrap(), held.0);
    tree.0.forget(attr.ino, 1);
    assert!(is(find(&tree, held), FsError::NotFound));
    for number in [0, 0xffff, u64::from(u32::MAX), 1 << 40] {
        assert!(is(tree.0.lookup(Ino(number), b"."), FsError::NotFound));
    }
}

/// A number is given again, a handle is not.
#[test]
fn a_handle_of_a_number_that_is_used_again_is_stale() {
    let device = device(32 * MIB);
    let tree = open(device.clone());
    tree.put("file", b"first").unwrap();
    let first = handle(&tree, "file");
    tree.unlink("file").unwrap();
    tree.0.checkpoint().unwrap();
    let nids = tree.0.statfs().unwrap().files;
    for _ in 0..nids {
        tree.create("file").unwrap();
        if tree.ino("file").unwrap() == first.0 {
            break;
        }
        tree.unlink("file").unwrap();
    }
    let again = handle(&tree, "file");
    assert_eq!(again.0, first.0);
    assert_ne!(again.1, first.1);
    assert!(is(find(&tree, first), FsError::NotFound));
    assert_eq!(find(&tree, again).unwrap(), again.0);
}

/// Nothing on the device says that the first of them was there.
#[test]
fn a_handle_of_what_a_crash_took_is_stale() {
    let device = device(64 * MIB);
    let mut lost = None;
    for _ in 0..2 {
        let tree = open(device.clone());
        tree.create("file").unwrap();
        let found = handle(&tree, "file");
        if let Some((ino, generation)) = lost.replace(found) {
            assert_eq!(found.0, ino);
            assert_ne!(found.1, generation);
        }
    }
}
