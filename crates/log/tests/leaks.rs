//! Room that comes back when what took it has gone, or has never come to be.

mod support;

use std::sync::Arc;

use anteros_core::{AtomicStep, Caller, FileSystem, FsError, MemoryDevice, OpenFile, Writable};
use anteros_log::{Shape, mkfs};
use support::*;

const BLOCK: u64 = 4096;
/// `fallocate(2)`: the size stays.
const KEEP_SIZE: u32 = 1;
/// States where the inode has no pointers any more, and where a node of nodes has none.
const FAR: u64 = 460 * BLOCK;
const FARTHER: u64 = (460 + 508 * 1100) * BLOCK;

fn free(tree: &Tree) -> u64 {
    tree.0.statfs().unwrap().blocks_free
}

/// Ends the mount well, and sees that it has left nothing behind that it should not have.
fn judge(device: Arc<MemoryDevice>, tree: Tree) {
    tree.0.close().unwrap();
    drop(tree);
    assert_sound(device);
}

#[test]
fn what_is_promised_behind_the_end_of_a_file_goes_with_its_content() {
    let device = device(64 * MIB);
    let tree = open_plainly(device.clone());
    let before = free(&tree);
    // As `fallocate -n -l 16M`, `truncate -s 0` and `rm` do. Opening with O_TRUNC truncates as well.
    for _ in 0..8 {
        tree.create("f").unwrap();
        tree.allocate("f", 0, 16 * MIB, KEEP_SIZE).unwrap();
        assert!(free(&tree) < before - 4096);
        tree.truncate("f", 0).unwrap();
        assert_eq!(free(&tree), before - 1);
        assert_eq!(tree.attr("f").unwrap().blocks, 0);
        tree.put("f", b"inline").unwrap();
        tree.allocate("f", 0, 8 * MIB, KEEP_SIZE).unwrap();
        // To the size that it has.
        tree.truncate("f", 6).unwrap();
        assert_eq!(free(&tree), before - 2);
        assert_eq!(tree.read("f").unwrap(), b"inline");
        tree.allocate("f", FAR, 8 * MIB, KEEP_SIZE).unwrap();
        tree.unlink("f").unwrap();
        assert_eq!(free(&tree), before);
    }
    judge(device, tree);
}

#[test]
fn what_is_promised_behind_the_end_stays_where_a_file_grows() {
    let device = device(64 * MIB);
    let tree = open_plainly(device.clone());
    tree.put("f", &bytes(1, 10_000)).unwrap();
    tree.allocate("f", 0, 8 * MIB, KEEP_SIZE).unwrap();
    let before = free(&tree);
    tree.truncate("f", 100_000).unwrap();
    assert_eq!(free(&tree), before);
    tree.fsync("f").unwrap();
    drop(tree);
    let tree = open_plainly(device.clone());
    assert_eq!(free(&tree), before);
    tree.truncate("f", 100_000).unwrap();
    assert!(free(&tree) > before + 2000);
    judge(device, tree);
}

/// A log in which so many blocks are free.
fn full_but(blocks: u64) -> (Arc<MemoryDevice>, Tree) {
    let device = device(64 * MIB);
    let tree = open_plainly(device.clone());
    for name in ["f", "many", "few"] {
        tree.create(name).unwrap();
    }
    // A file with nodes takes most of it, one without the rest.
    let most = (free(&tree) - 300) * BLOCK;
    tree.allocate("many", 0, most, 0).unwrap();
    let rest = free(&tree) - blocks;
    tree.allocate("few", 0, rest * BLOCK, 0).unwrap();
    assert_eq!(free(&tree), blocks);
    (device, tree)
}

#[test]
fn a_write_without_room_leaves_no_nodes() {
    // Room for the inode's block and some of the nodes on the way, but never for content.
    for blocks in 0..4 {
        let (device, tree) = full_but(blocks);
        let data = bytes(1, 4 * BLOCK as usize);
        for offset in [FAR, FARTHER, FAR + 7, FARTHER - BLOCK, FARTHER + 5000] {
            let allocated = tree.attr("f").unwrap().blocks;
            let written = tree.write("f", offset, &data);
            match written {
                Err(error) => assert!(is::<()>(Err(error), FsError::NoSpace)),
                Ok(count) => {
                    // As much as there was room for.
                    assert!(count < data.len(), "{blocks}, {offset}");
                    tree.truncate("f", 0).unwrap();
                }
            }
            assert!(is(
                tree.allocate("f", offset, 64 * BLOCK, KEEP_SIZE),
                FsError::NoSpace
            ));
            tree.truncate("f", 0).unwrap();
            assert_eq!(free(&tree), blocks, "{offset}");
            assert_eq!(tree.attr("f").unwrap().blocks, allocated);
        }
        judge(device, tree);
    }
}

#[test]
fn a_write_without_room_leaves_no_nodes_even_without_a_truncation() {
    let (device, tree) = full_but(2);
    for offset in [FAR, FARTHER] {
        // Two nodes lead there, or three.
        assert!(is(
            tree.write("f", FARTHER + offset, &[1; 10]),
            FsError::NoSpace
        ));
        assert_eq!(free(&tree), 2);
    }
    judge(device, tree);
}

#[test]
fn an_atomic_write_that_is_given_up_leaves_no_nodes() {
    let (device, tree) = full_but(5);
    let ino = tree.ino("f").unwrap();
    let handle = tree.0.open(ino, 2).unwrap();
    let file = OpenFile { ino, handle };
    tree.0.write_atomically(file, AtomicStep::Begin).unwrap();
    for at in 0..8 {
        let offset = FAR + at * 508 * BLOCK;
        tree.0.write(file, offset, &[7; 4096], false).unwrap();
    }
    assert!(is(
        tree.0.write_atomically(file, AtomicStep::Commit),
        FsError::NoSpace
    ));
    tree.0.write_atomically(file, AtomicStep::Abort).unwrap();
    tree.0.release(file);
    assert_eq!(free(&tree), 5);
    assert_eq!(tree.attr("f").unwrap().blocks, 0);
    judge(device, tree);
}

#[test]
fn files_that_get_no_name_go_when_they_are_closed() {
    let device = device(64 * MIB);
    let tree = open_plainly(device.clone());
    let before = free(&tree);
    for round in 0..5 {
        let file = tree.create_unnamed(tree.0.root(), 0o600).unwrap();
        tree.0.write(file, FAR, &[1; 5000], false).unwrap();
        let value = [7; 3000];
        tree.0.setxattr(file.ino, b"user.v", &value, 0).unwrap();
        tree.0.allocate(file, 0, MIB, KEEP_SIZE).unwrap();
        if round % 2 == 0 {
            tree.0.fsync(file, false).unwrap();
        }
        tree.0.release(file);
        tree.0.forget(file.ino, 1);
        assert_eq!(free(&tree), before);
    }
    judge(device, tree);
}

/// A log of 300 nodes at most.
fn with_few_numbers() -> (Arc<MemoryDevice>, Tree) {
    let device = Arc::new(MemoryDevice::new(vec![0; 64 << 20]));
    let shape = Shape {
        nids: Some(300),
        ..Shape::default()
    };
    let writable: Arc<dyn anteros_core::WritableDevice> = device.clone();
    mkfs(&writable, &shape, Caller::default(), &options()).unwrap();
    let tree = open_with(device.clone(), plainly());
    (device, tree)
}

#[test]
fn numbers_of_nodes_come_back_and_what_finds_none_leaves_nothing() {
    let (device, tree) = with_few_numbers();
    let before = free(&tree);
    for round in 0..3 {
        let mut made = 0;
        // Each takes two numbers.
        let error = loop {
            let path = format!("{made}");
            let created = tree.create(&path);
            let created = created.and_then(|()| {
                let ino = tree.ino(&path)?;
                tree.0.setxattr(ino, b"user.v", &[7; 3000], 0)
            });
            if let Err(error) = created {
                break error;
            }
            made += 1;
        };
        assert!(matches!(error, FsError::NoSpace), "{error}");
        assert!(made > 140, "{made}");
        for name in tree.list("").unwrap() {
            tree.unlink(&name).unwrap();
        }
        assert_eq!(free(&tree), before, "round {round}");
    }
    judge(device, tree);
}

#[test]
fn numbers_of_what_is_gone_are_had_again_where_there_are_no_others() {
    let (device, tree) = with_few_numbers();
    let is_full = |number: &u32| is(tree.create(&number.to_string()), FsError::NoSpace);
    let full = (0..).find(is_full).unwrap();
    assert!(full > 250, "{full}");
    for number in 0..20 {
        tree.unlink(&number.to_string()).unwrap();
        tree.create(&(full + number).to_string()).unwrap();
    }
    judge(device, tree);
}
