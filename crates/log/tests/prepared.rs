//! Ordinary files, compressed before they leave for the device.

mod support;

use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use anteros_core::{MemoryDevice, OpenFile, Writable};
use anteros_log::{Class, Options, Policy};
use support::*;

const PAGE: usize = 4096;

fn mounted(device: &Arc<MemoryDevice>) -> Tree {
    open_with(device.clone(), with(Policy::Record))
}

/// Blocks that a file takes after a sync.
fn taken(tree: &Tree, name: &str, content: &[u8]) -> u64 {
    let before = tree.0.condition().used_blocks;
    tree.put(name, content).unwrap();
    tree.fsync(name).unwrap();
    tree.0.condition().used_blocks - before
}

#[test]
fn what_is_synced_takes_less_room_and_is_there_after_a_crash() {
    let device = device(64 * MIB);
    let tree = mounted(&device);
    let content = text(1, 512);
    let blocks = taken(&tree, "text", &content);
    assert!((128..180).contains(&blocks), "{blocks}");
    let written = *tree.0.condition().statistics.class(Class::Other);
    assert_eq!((written.compressed_pages, written.left_pages), (512, 0));
    assert!(tree.read("text").unwrap() == content);
    // Not unmounted.
    let again = open_with(
        Arc::new(MemoryDevice::new(device.to_vec())),
        with(Policy::Record),
    );
    assert!(again.read("text").unwrap() == content);
    again.0.close().unwrap();
    tree.0.close().unwrap();
    assert_sound(device.clone());
    tree.unlink("text").unwrap();
    tree.0.close().unwrap();
    assert_eq!(tree.0.condition().used_blocks, 1);
}

/// A sync of few pages waits for the device, and not for an encoder.
#[test]
fn a_checkpoint_compresses_what_a_small_sync_leaves() {
    let device = device(64 * MIB);
    let tree = mounted(&device);
    assert!(taken(&tree, "synced", &text(1, 3)) >= 3);
    let before = tree.0.condition().used_blocks;
    for number in 0..40 {
        tree.put(&format!("{number}"), &text(number, 2)).unwrap();
    }
    tree.0.checkpoint().unwrap();
    let blocks = tree.0.condition().used_blocks - before;
    assert!((20..40).contains(&blocks), "{blocks} blocks for 80 pages");
    tree.0.close().unwrap();
    assert_sound(device);
}

#[test]
fn what_gains_nothing_leaves_as_it_is() {
    let device = device(64 * MIB);
    let tree = mounted(&device);
    let noise = bytes(3, 200 * PAGE);
    let blocks = taken(&tree, "noise", &noise);
    assert!((200..210).contains(&blocks), "{blocks}");
    assert!(tree.read("noise").unwrap() == noise);
    // Behind it, not all is left alone.
    let mut mixed = bytes(4, 64 * PAGE);
    mixed.extend(text(5, 1000));
    let blocks = taken(&tree, "mixed", &mixed);
    assert!((64 + 250..64 + 500).contains(&blocks), "{blocks}");
    assert!(tree.read("mixed").unwrap() == mixed);
    let film = [b"\x1a\x45\xdf\xa3".to_vec(), text(6, 64)].concat();
    assert!(
        taken(&tree, "film", &film) >= 64,
        "it says that it is compressed"
    );
    tree.0.close().unwrap();
    assert_sound(device);
}

/// Of a chunk that is written over in part, all stays. And who set blocks aside was promised that they suffice.
#[test]
fn what_has_a_place_is_not_compressed_when_it_is_written_over() {
    let device = device(64 * MIB);
    let tree = open_with(device.clone(), plainly());
    tree.put("old", &text(1, 64)).unwrap();
    tree.create("kept").unwrap();
    tree.allocate("kept", 0, 64 * PAGE as u64, 0).unwrap();
    tree.0.close().unwrap();
    drop(tree);
    let tree = mounted(&device);
    let before = tree.0.condition().used_blocks;
    for name in ["old", "kept"] {
        tree.write(name, 0, &text(7, 64)).unwrap();
        tree.fsync(name).unwrap();
        assert!(tree.read(name).unwrap() == text(7, 64));
    }
    assert!(tree.0.condition().used_blocks >= before);
    let written = *tree.0.condition().statistics.class(Class::Other);
    assert_eq!(written.compressed_pages, 0);
    tree.0.close().unwrap();
    assert_sound(device);
}

/// A log that compresses by a thread, as a mount does.
fn behind(options: Options, work: impl FnOnce(&Tree)) {
    let device = device(256 * MIB);
    let tree = open_with(device.clone(), options);
    thread::scope(|scope| {
        scope.spawn(|| tree.0.compress_behind());
        work(&tree);
        tree.0.end_compressing();
    });
    tree.0.close().unwrap();
    assert_sound(device);
}

fn opened(tree: &Tree, name: &str) -> OpenFile {
    tree.create(name).unwrap();
    let ino = tree.ino(name).unwrap();
    let handle = tree.0.open(ino, 2).unwrap();
    OpenFile { ino, handle }
}

#[test]
fn a_thread_compresses_while_others_write() {
    let options = Options {
        writes_behind: true,
        ..with(Policy::Record)
    };
    behind(options, |tree| {
        let content = text(1, 64);
        let file = opened(tree, "text");
        let begun = Instant::now();
        let mut end = 0;
        // What is written faster than it is compressed leaves as it is.
        while tree
            .0
            .condition()
            .statistics
            .class(Class::Other)
            .compressed_pages
            < 64
        {
            assert!(begun.elapsed() < Duration::from_secs(60));
            end += tree.0.write(file, end, &content, false).unwrap() as u64;
            thread::sleep(Duration::from_millis(1));
            tree.0.tend().unwrap();
            if end > 100 * MIB {
                tree.truncate("text", 0).unwrap();
                end = 0;
            }
        }
        tree.0.release(file);
        let read = tree.read("text").unwrap();
        assert!(read.chunks(content.len()).all(|chunk| chunk == content));
    });
}

/// Pages that are written to while they are compressed, by three who write, cut off, sync and read.
#[test]
fn who_writes_while_it_is_compressed_is_not_lost() {
    let options = Options {
        writes_behind: true,
        memory_bytes: 2 << 20,
        ..with(Policy::Record)
    };
    behind(options, |tree| {
        thread::scope(|scope| {
            for who in 0..3_u64 {
                scope.spawn(move || rewrite(tree, who));
            }
        });
    });
}

fn rewrite(tree: &Tree, who: u64) {
    let name = format!("file{who}");
    let file = opened(tree, &name);
    let mut dice = dice(who + 1);
    let mut expected = Vec::new();
    for round in 0..600 {
        let (offset, len) = (dice(1 << 20), 1 + dice(200_000));
        let data = text(round, len as usize / PAGE + 1);
        let (offset, len) = (offset as usize, len as usize);
        let mut done = 0;
        while done < len {
            let at = (offset + done) as u64;
            done += tree.0.write(file, at, &data[done..len], false).unwrap();
        }
        expected.resize(expected.len().max(offset + len), 0);
        expected[offset..offset + len].copy_from_slice(&data[..len]);
        match dice(12) {
            0 => tree.0.fsync(file, false).unwrap(),
            1 => {
                let size = dice(expected.len() as u64);
                tree.truncate(&name, size).unwrap();
                expected.truncate(size as usize);
            }
            2 => tree.0.checkpoint().unwrap(),
            3 => assert!(tree.read(&name).unwrap() == expected, "{name}, {round}"),
            _ => {}
        }
    }
    assert!(tree.read(&name).unwrap() == expected, "{name}");
    tree.0.release(file);
}
