//! Files of which a little is read here and there, after they were compressed in large windows.

mod support;

use std::sync::Arc;
use std::time::Duration;

use anteros_core::{FileSystem, MemoryDevice};
use anteros_log::{Inspector, Policy, Sweep};
use support::*;

const PAGE: usize = 4096;
const PAGES: usize = 1600;

/// Content that shrinks to a half.
fn content() -> Vec<u8> {
    let page = |at| [bytes(at, PAGE / 2), vec![at as u8; PAGE / 2]].concat();
    (0..PAGES as u64).flat_map(page).collect()
}

fn mounted(device: &Arc<MemoryDevice>) -> Tree {
    open_with(device.clone(), with(Policy::Record))
}

/// A log with a file that was compressed in large windows, and that nobody has read since.
fn compacted(name: &str, pages: usize) -> (Arc<MemoryDevice>, Tree, Vec<u8>) {
    let device = device(128 * MIB);
    let tree = mounted(&device);
    let content = content()[..pages * PAGE].to_vec();
    tree.put(name, &content).unwrap();
    tree.0.checkpoint().unwrap();
    tree.sweep_all().unwrap();
    tree.0.close().unwrap();
    drop(tree);
    let tree = mounted(&device);
    (device, tree, content)
}

/// Reads so many pages at a time, as often, all over a file.
fn read(tree: &Tree, name: &str, pages: usize, times: usize) {
    let ino = tree.ino(name).unwrap();
    let size = tree.attr(name).unwrap().size as usize / PAGE;
    let mut buf = vec![0; pages * PAGE];
    for time in 0..times {
        let page = time * 37 % (size - pages);
        let len = tree.0.read(ino, (page * PAGE) as u64, &mut buf).unwrap();
        assert_eq!(len, buf.len());
    }
}

/// Compresses what is to be compressed again, and returns how many pages were looked at.
fn sweep(tree: &Tree) -> u64 {
    tree.0.checkpoint().unwrap();
    let done = tree.sweep(&mut Sweep::default(), Duration::ZERO);
    done.unwrap().seen
}

/// The most pages of a chunk of a file.
fn largest_chunk(device: &Arc<MemoryDevice>, tree: &Tree, name: &str) -> usize {
    let ino = tree.ino(name).unwrap().0 as u32;
    tree.0.checkpoint().unwrap();
    let mut inspector = Inspector::open(device.clone(), &with(Policy::Record)).unwrap();
    let runs = inspector.inode(ino).unwrap().runs;
    let chunks = runs.chunk_by(|left, right| left.pointer.chunk() == right.pointer.chunk());
    let packed = chunks.filter(|runs| runs[0].pointer.chunk().is_some());
    let pages = packed.map(|runs| runs.iter().map(|run| run.count as usize).sum());
    pages.max().unwrap_or(0)
}

#[test]
fn what_is_decoded_in_vain_gets_smaller_windows() {
    let (device, tree, content) = compacted("notes", PAGES);
    assert_eq!(largest_chunk(&device, &tree, "notes"), 32);
    read(&tree, "notes", 1, 100);
    assert_eq!(sweep(&tree), 0);
    read(&tree, "notes", 1, 100);
    assert_eq!(sweep(&tree), PAGES as u64);
    assert_eq!(largest_chunk(&device, &tree, "notes"), 4);
    assert!(tree.read("notes").unwrap() == content);
    read(&tree, "notes", 1, 2000);
    assert_eq!(sweep(&tree), 0);
    tree.0.close().unwrap();
    drop(tree);
    assert_sound(device.clone());
    // The next mount leaves it as it is.
    let tree = mounted(&device);
    assert_eq!(sweep(&tree), 0);
    assert!(tree.read("notes").unwrap() == content);
}

/// Whoever reads in order wants what is decoded, programs have their launches, and what is small is soon known.
#[test]
fn all_else_stays_in_large_windows() {
    for (name, size, pages, times) in [
        ("notes", PAGES, 32, 2000),
        ("notes", PAGES, 8, 2000),
        ("notes", 1000, 1, 2000),
        ("lib.so", PAGES, 1, 2000),
    ] {
        let (device, tree, _) = compacted(name, size);
        let before = largest_chunk(&device, &tree, name);
        read(&tree, name, pages, times);
        assert_eq!(sweep(&tree), 0, "{name}, {size} pages by {pages}");
        assert_eq!(largest_chunk(&device, &tree, name), before);
    }
}

#[test]
fn a_file_that_changes_meanwhile_stays_whole() {
    let (device, tree, mut content) = compacted("notes", PAGES);
    read(&tree, "notes", 1, 200);
    for page in (0..PAGES).step_by(70) {
        tree.write("notes", (page * PAGE) as u64, &[7; 5000])
            .unwrap();
        content[page * PAGE..][..5000].fill(7);
    }
    tree.truncate("notes", 1500 * PAGE as u64).unwrap();
    content.truncate(1500 * PAGE);
    assert!(sweep(&tree) >= 1400);
    assert!(tree.read("notes").unwrap() == content);
    assert!(largest_chunk(&device, &tree, "notes") <= 4);
    // Another file with its number begins anew.
    tree.unlink("notes").unwrap();
    tree.put("other", &content).unwrap();
    sweep(&tree);
    assert_eq!(largest_chunk(&device, &tree, "other"), 32);
    tree.0.close().unwrap();
    drop(tree);
    assert_sound(device);
}
