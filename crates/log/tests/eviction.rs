//! Nodes that have left memory between a change and its way to the device.
//!
//! The other tests of this crate do the same with `ANTEROS_LOG_EVICTS=always`.

mod support;

use std::collections::BTreeMap;
use std::sync::Arc;

use anteros_core::MemoryDevice;
use anteros_log::Options;
use support::*;

const BLOCK: u64 = 4096;
/// Pointers in an inode and in a direct node, for a file without anything else.
const FIRST_BOUNDARY: u64 = 460;
const DIRECT_POINTERS: u64 = 508;

fn evicting() -> Options {
    Options {
        evicts_always: true,
        ..options()
    }
}

fn mount(device: &Arc<MemoryDevice>, options: Options) -> Tree {
    open_with(device.clone(), options)
}

/// Two pages at the end of one node with pointers and the beginning of the next.
fn pair(number: u64) -> u64 {
    (FIRST_BOUNDARY + DIRECT_POINTERS * number - 1) * BLOCK
}

#[test]
fn pages_behind_the_boundary_of_a_node_are_there_after_the_next_mount() {
    const PAIRS: u64 = 20;
    const LEAVES: u64 = 300;
    // The least that memory may be, and all gone after each operation.
    for options_of in [options_with(64 << 10), evicting()] {
        let device = device(64 * MIB);
        let (old, new) = (bytes(1, 2 * BLOCK as usize), bytes(2, 2 * BLOCK as usize));
        let leaf = |number: u64| (100 + number) * DIRECT_POINTERS * BLOCK;
        let tree = mount(&device, options_of.clone());
        tree.create("file").unwrap();
        for number in 0..PAIRS {
            tree.write("file", pair(number), &old).unwrap();
        }
        for number in 0..LEAVES {
            tree.write("file", leaf(number), &old[..100]).unwrap();
        }
        tree.0.close().unwrap();
        drop(tree);

        let tree = mount(&device, options_of.clone());
        let ino = tree.ino("file").unwrap();
        let mut buf = vec![0; 2 * BLOCK as usize];
        let read = |tree: &Tree, offset: u64, buf: &mut [u8]| {
            assert_eq!(
                anteros_core::FileSystem::read(&tree.0, ino, offset, buf).unwrap(),
                buf.len()
            );
        };
        for number in (0..PAIRS).step_by(2) {
            tree.write("file", pair(number), &new).unwrap();
        }
        // So that nodes leave before the content is written, and again behind it.
        (0..LEAVES).for_each(|number| read(&tree, leaf(number), &mut buf[..100]));
        tree.fsync("file").unwrap();
        (0..LEAVES).for_each(|number| read(&tree, leaf(number), &mut buf[..100]));
        tree.0.close().unwrap();
        drop(tree);

        assert_sound(device.clone());
        let tree = mount(&device, options());
        for number in 0..PAIRS {
            read(&tree, pair(number), &mut buf);
            let wanted = if number % 2 == 0 { &new } else { &old };
            assert!(&buf == wanted, "pair {number}");
        }
    }
}

/// Steps that nobody planned, and the same done to vectors.
struct Twin {
    tree: Tree,
    files: BTreeMap<String, Vec<u8>>,
    xattrs: BTreeMap<String, Vec<u8>>,
}

impl Twin {
    fn step(&mut self, seed: u64, roll: &mut impl FnMut(u64) -> u64) {
        let path = format!("d{}/{}", roll(2), roll(12));
        let ino = self.tree.ino(&path);
        let known = self.files.get(&path).map(Vec::len);
        assert_eq!(ino.is_ok(), known.is_some(), "{path}");
        let what = roll(12);
        let (Some(len), Ok(ino)) = (known, ino) else {
            self.tree.create(&path).unwrap();
            self.files.insert(path, Vec::new());
            return;
        };
        let content = self.files.entry(path.clone()).or_default();
        match what {
            0..=4 => {
                // Across boundaries of nodes often; sparse in between.
                let near = [0, 3 << 12, pair(0), pair(1), pair(2)][roll(5) as usize];
                let (offset, data) = (near + roll(9000), bytes(seed, roll(9000) as usize + 1));
                self.tree.write(&path, offset, &data).unwrap();
                let end = offset as usize + data.len();
                content.resize(content.len().max(end), 0);
                content[offset as usize..end].copy_from_slice(&data);
            }
            5 => {
                let size = roll(len as u64 + 5000);
                self.tree.truncate(&path, size).unwrap();
                content.resize(size as usize, 0);
            }
            6 => {
                let (offset, size) = (roll(len as u64 + 1), roll(20_000) + 1);
                self.tree.allocate(&path, offset, size, 3).unwrap();
                let end = content.len().min((offset + size) as usize);
                content[offset as usize..end].fill(0);
            }
            7 => {
                let value = bytes(seed, roll(3000) as usize + 1);
                anteros_core::Writable::setxattr(&self.tree.0, ino, b"user.v", &value, 0).unwrap();
                self.xattrs.insert(path, value);
            }
            8 => {
                self.tree.unlink(&path).unwrap();
                self.files.remove(&path);
                self.xattrs.remove(&path);
            }
            9 => {
                let to = format!("d{}/{}", roll(2), roll(12));
                self.tree.rename(&path, &to, 0).unwrap();
                if to != path {
                    let content = self.files.remove(&path).unwrap_or_default();
                    self.files.insert(to.clone(), content);
                    match self.xattrs.remove(&path) {
                        Some(value) => self.xattrs.insert(to, value),
                        None => self.xattrs.remove(&to),
                    };
                }
            }
            10 => self.tree.fsync(&path).unwrap(),
            _ => self.tree.0.checkpoint().unwrap(),
        }
    }

    fn compare(&self) {
        for (path, content) in &self.files {
            assert!(
                &self.tree.read(path).unwrap() == content,
                "{path} has other content"
            );
            let ino = self.tree.ino(path).unwrap();
            let value = anteros_core::FileSystem::getxattr(&self.tree.0, ino, b"user.v").ok();
            assert_eq!(value.as_ref(), self.xattrs.get(path), "{path}");
        }
        let count = ["d0", "d1"].map(|dir| self.tree.list(dir).unwrap().len());
        assert_eq!(count[0] + count[1], self.files.len());
    }
}

#[test]
fn steps_that_nobody_planned_lose_nothing_where_memory_holds_nothing() {
    let device = device(64 * MIB);
    let mut twin = Twin {
        tree: mount(&device, evicting()),
        files: BTreeMap::new(),
        xattrs: BTreeMap::new(),
    };
    // Enough for a directory that is a tree of blocks.
    for dir in ["d0", "d1"] {
        twin.tree.mkdir(dir).unwrap();
    }
    let mut roll = dice(3);
    for round in 0..10 {
        for n in 0..150 {
            twin.step(round * 1000 + n, &mut roll);
        }
        twin.compare();
        if round % 2 == 0 {
            twin.tree.0.close().unwrap();
        } else {
            // As after a crash that loses nothing which was synced.
            twin.tree.0.sync().unwrap();
        }
        twin.tree = mount(&device, evicting());
        twin.compare();
    }
    twin.tree.0.close().unwrap();
    drop(twin);
    assert_sound(device.clone());
}

#[test]
fn names_in_many_blocks_lose_nothing_where_memory_holds_nothing() {
    let device = device(64 * MIB);
    let tree = mount(&device, evicting());
    tree.mkdir("d").unwrap();
    let name = |n: usize| format!("d/{n}-{}", "x".repeat(n % 200));
    for n in 0..600 {
        tree.create(&name(n)).unwrap();
    }
    tree.0.checkpoint().unwrap();
    for n in (0..600).step_by(2) {
        tree.unlink(&name(n)).unwrap();
    }
    tree.0.close().unwrap();
    drop(tree);
    assert_sound(device.clone());
    let tree = mount(&device, evicting());
    assert_eq!(tree.list("d").unwrap().len(), 300);
    for n in 0..600 {
        assert_eq!(tree.attr(&name(n)).is_ok(), n % 2 == 1);
    }
}
