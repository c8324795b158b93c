//! Tests what takes long with large files is done in pieces.

mod support;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use anteros_core::{FileDevice, FileSystem, FsError, MemoryDevice, Writable, WritableDevice};
use anteros_log::{Log, Options, check};
use anteros_tests::crash::{Plan, Recorder};
use anteros_tests::faulty::{Call, Faulty, When};
use rustix::io::Errno;
use support::history::Snapshot;
use support::*;

const GIB: u64 = 1 << 30;

/// Returns how many blocks are in use while something is done: what someone sees who asks all the time.
fn watched(tree: &Tree, work: impl FnOnce()) -> BTreeSet<u64> {
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let watcher = scope.spawn(|| {
            let mut seen = BTreeSet::new();
            while !done.load(Ordering::Relaxed) {
                seen.insert(tree.0.condition().used_blocks);
            }
            seen
        });
        work();
        done.store(true, Ordering::Relaxed);
        watcher.join().unwrap()
    })
}

#[test]
fn others_have_a_turn_while_a_large_file_comes_and_goes() {
    let file = tempfile::NamedTempFile::new().unwrap();
    file.as_file().set_len(4 * GIB).unwrap();
    let device: Arc<dyn WritableDevice> = Arc::new(FileDevice::open_writable(file.path()).unwrap());
    make(device.clone());
    let tree = open(device.clone());
    tree.create("large").unwrap();
    let empty = tree.0.condition().used_blocks;
    let used = || tree.0.condition().used_blocks;

    // More than there is: refused before anything is taken.
    for mode in [0, 1, 16] {
        let all = tree.allocate("large", 0, (1 << 41) - (256 << 30), mode);
        assert!(is(all, FsError::NoSpace));
    }
    assert_eq!(used(), empty);
    assert_eq!(tree.attr("large").unwrap().size, 0);

    let seen = watched(&tree, || tree.allocate("large", 5, 3 * GIB, 0).unwrap());
    assert!(seen.len() > 2, "{seen:?}");
    assert_eq!(tree.attr("large").unwrap().size, 3 * GIB + 5);
    assert!(used() > empty + ((3 * GIB) >> 12));
    // All of it is there already.
    tree.allocate("large", 0, 3 * GIB, 0).unwrap();
    tree.write("large", 3 * GIB - 10, &[7; 20]).unwrap();
    tree.write("large", 100, &[8; 20]).unwrap();

    let full = used();
    let seen = watched(&tree, || {
        tree.allocate("large", 4096 * 3 + 1, 2 * GIB, 3).unwrap()
    });
    assert!(seen.len() > 2, "{seen:?}");
    assert!(used() < full - ((2 * GIB) >> 12), "nodes go as well");
    tree.allocate("large", 4096, 2 * GIB, 1).unwrap();
    assert!(used() >= full - 2, "{} of {full}", used());

    let seen = watched(&tree, || tree.truncate("large", 50 << 20).unwrap());
    assert!(seen.len() > 2, "{seen:?}");
    assert_eq!(tree.attr("large").unwrap().size, 50 << 20);
    assert!(used() < empty + (51 << 8), "{}", used());
    tree.allocate("large", 0, 3 * GIB, 0).unwrap();

    // Held by someone, as by a program that has it open.
    let ino = tree.0.lookup(tree.0.root(), b"large").unwrap().ino;
    tree.unlink("large").unwrap();
    assert!(used() > empty + ((3 * GIB) >> 12));
    let seen = watched(&tree, || tree.0.forget(ino, 1));
    assert!(seen.len() > 2, "{seen:?}");
    // The inode has gone too.
    assert_eq!(used(), empty - 1);
    tree.create("large").unwrap();
    tree.allocate("large", 0, 3 * GIB, 0).unwrap();
    tree.create("small").unwrap();
    tree.rename("small", "large", 0).unwrap();
    assert_eq!(used(), empty);
    tree.0.close().unwrap();
    assert_sound(device);
}

#[test]
fn a_crash_between_the_pieces_loses_no_space() {
    let base = {
        let device = device(48 * MIB);
        let tree = open(device.clone());
        for name in ["cut", "gone", "held"] {
            tree.put(name, &bytes(1, 3_000_000)).unwrap();
        }
        tree.0.close().unwrap();
        device.to_vec()
    };
    let recorder = Arc::new(Recorder::new(&base));
    // A piece is a mebibyte then.
    let tree = open_with(recorder.clone(), options_with(128 << 10));
    let held = tree.0.lookup(tree.0.root(), b"held").unwrap().ino;
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            // After each piece that is seen.
            let mut seen = 0;
            while !done.load(Ordering::Relaxed) {
                let used = tree.0.condition().used_blocks;
                if used != seen {
                    tree.0.checkpoint().unwrap();
                }
                seen = used;
            }
        });
        tree.truncate("cut", 10_000).unwrap();
        tree.unlink("held").unwrap();
        tree.unlink("gone").unwrap();
        tree.0.forget(held, 1);
        done.store(true, Ordering::Relaxed);
    });
    tree.0.sync().unwrap();
    drop(tree);
    let plan = Plan {
        subsets_max: 8,
        samples: 2,
        tears: 1,
        seed: 3,
    };
    let sizes = std::sync::Mutex::new(BTreeSet::new());
    let explored = recorder.recording().explore(&plan, |state| {
        let device: Arc<dyn WritableDevice> = Arc::new(state.device());
        let report = check(device.clone(), options()).map_err(|error| error.to_string())?;
        if report.fault_count > 0 {
            return Err(format!("{:?}", report.faults));
        }
        let tree = Tree(Log::open(device, options()).map_err(|error| error.to_string())?);
        let found = Snapshot::of(&tree)?;
        let used = tree.0.condition().used_blocks;
        if used > found.blocks || used < found.blocks && !packs_inodes() {
            return Err(format!(
                "{used} blocks are in use, files have {}",
                found.blocks
            ));
        }
        let cut = tree.read("cut").map_err(|error| error.to_string())?;
        sizes.lock().unwrap().insert(cut.len());
        match bytes(1, 3_000_000).starts_with(&cut) && cut.len() >= 10_000 {
            true => Ok(()),
            false => Err(format!("{} bytes that are something else", cut.len())),
        }
    });
    assert!(explored.failures.is_empty(), "{explored}");
    let sizes = sizes.into_inner().unwrap();
    assert!(sizes.len() >= 2, "{sizes:?}");
    println!("{} states; sizes {sizes:?}", explored.states);
}

/// It stays an orphan, for the next mount or a repair to see; nobody tries again and again.
#[test]
fn a_large_file_that_cannot_be_given_back_is_left_alone() {
    let base = device(64 * MIB);
    let tree = open_plainly(base.clone());
    tree.put("file", &bytes(1, 9_000_000)).unwrap();
    tree.0.close().unwrap();
    drop(tree);
    let device = Arc::new(Faulty::new(MemoryDevice::new(base.to_vec())));
    let options = Options {
        memory_bytes: 1 << 20,
        ..plainly()
    };
    let tree = open_with(device.clone(), options);
    tree.ino("file").unwrap();
    let before = tree.0.condition().used_blocks;
    device.inject(Call::Read, When::From(0), Errno::IO);
    tree.unlink("file").unwrap();
    tree.0.tend().unwrap();
    device.heal();
    tree.0.tend().unwrap();
    assert_eq!(tree.0.failure(), None);
    assert!(before - tree.0.condition().used_blocks < 5);
    tree.0.close().unwrap();
    drop(tree);
    let tree = open(Arc::new(MemoryDevice::new(device.inner().to_vec())));
    assert!(tree.0.condition().used_blocks + 2000 < before);
}

#[test]
fn a_large_file_that_is_gone_gives_its_room_back_at_once() {
    let options = Options {
        memory_bytes: 1 << 20,
        ..plainly()
    };
    let tree = open_with(device(64 * MIB), options);
    tree.put("file", &bytes(1, 9_000_000)).unwrap();
    let before = tree.0.condition().used_blocks;
    tree.unlink("file").unwrap();
    assert!(tree.0.condition().used_blocks + 2000 < before);
    tree.0.tend().unwrap();
}

/// A large file that is gone by its name takes room for a while yet.
#[test]
fn who_writes_waits_for_the_room_of_what_was_removed() {
    let device = device(48 * MIB);
    // A piece is a mebibyte then.
    let tree = open_with(device.clone(), options_with(128 << 10));
    tree.create("large").unwrap();
    let free = tree.0.statfs().unwrap().blocks_free;
    tree.allocate("large", 0, (free - 20) * 4096, 0).unwrap();
    let content = bytes(1, 8 << 20);
    for number in 0..3 {
        let name = format!("new{number}");
        std::thread::scope(|scope| {
            scope.spawn(|| tree.unlink("large").unwrap());
            while tree.attr("large").is_ok() {}
            match number {
                0 => tree.put(&name, &content).unwrap(),
                1 => tree.mkdir(&name).unwrap(),
                _ => {
                    tree.create(&name).unwrap();
                    tree.allocate(&name, 0, content.len() as u64, 0).unwrap();
                }
            }
        });
        tree.create("large").unwrap();
        let free = tree.0.statfs().unwrap().blocks_free;
        tree.allocate("large", 0, (free - 20) * 4096, 0).unwrap();
    }
    tree.0.close().unwrap();
    assert_sound(device);
}
