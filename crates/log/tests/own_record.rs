//! The log's own record: what it keeps from mount to mount, and shows to nobody.

mod support;

use std::sync::Arc;
use std::time::Duration;

use anteros_core::{FileSystem, FsError, Ino, MemoryDevice, WritableDevice};
use anteros_log::layout::ROOT;
use anteros_log::layout::superblock::{RO_COMPAT_OWN_RECORD, SUPERBLOCK_OFFSET};
use anteros_log::layout::{BLOCK_BYTES, Superblock};
use anteros_log::{Log, Options, Policy, ScrubPosition, Sweep, check, repair, resize};
use anteros_tests::crash::{Plan, Recorder, State};
use support::surgeon::Surgeon;
use support::*;

/// A log that was unmounted, with files and a record.
fn kept(record: &[u8]) -> Arc<MemoryDevice> {
    let device = device(32 * MIB);
    let tree = open(device.clone());
    tree.put("small", b"small").unwrap();
    tree.put("large", &bytes(1, 300_000)).unwrap();
    tree.mkdir("directory").unwrap();
    tree.0.keep_record(record).unwrap();
    tree.0.close().unwrap();
    device
}

fn record(tree: &Tree) -> Option<Vec<u8>> {
    tree.0.kept_record().unwrap()
}

#[test]
fn a_record_is_kept_from_mount_to_mount_until_another_takes_its_place() {
    let device = device(32 * MIB);
    let tree = open(device.clone());
    assert_eq!(record(&tree), None);
    drop(tree);
    let sizes = [5, 3000, 5000, 300_000, 3_000_000, 0, 100_000, 1];
    for (seed, size) in (0..).zip(sizes) {
        let tree = open(device.clone());
        tree.0.keep_record(&bytes(seed, size)).unwrap();
        assert_eq!(record(&tree), Some(bytes(seed, size)));
        tree.0.close().unwrap();
        drop(tree);
        assert_sound(device.clone());
        let tree = open_to_read(device.clone());
        assert_eq!(record(&tree), Some(bytes(seed, size)), "{size}");
        assert_eq!(tree.list("").unwrap(), [""; 0]);
    }
    let tree = open(device.clone());
    assert_eq!(tree.0.condition().inodes, 2);
    let used = tree.0.condition().used_blocks;
    tree.0.keep_record(&bytes(9, 500_000)).unwrap();
    tree.0.keep_record(b"").unwrap();
    tree.0.checkpoint().unwrap();
    assert!(tree.0.condition().used_blocks <= used + 1);
}

/// A record that no checkpoint has is gone with a crash, whatever else was made durable since.
#[test]
fn a_record_is_durable_with_the_next_checkpoint_and_with_nothing_else() {
    let device = kept(b"old");
    let tree = open(device.clone());
    tree.0.keep_record(&bytes(2, 100_000)).unwrap();
    tree.put("synced", &bytes(3, 10_000)).unwrap();
    tree.fsync("synced").unwrap();
    tree.0.sync().unwrap();
    drop(tree);
    let report = assert_sound(device.clone());
    assert!(report.recovery.groups > 0);
    let tree = open(device.clone());
    assert_eq!(record(&tree), Some(b"old".to_vec()));
    assert_eq!(tree.read("synced").unwrap(), bytes(3, 10_000));
    tree.0.keep_record(&bytes(4, 100_000)).unwrap();
    tree.0.checkpoint().unwrap();
    drop(tree);
    assert_eq!(record(&open(device.clone())), Some(bytes(4, 100_000)));
    assert_sound(device);
}

#[test]
fn a_log_says_that_it_has_a_record_before_it_has_one() {
    let device = device(32 * MIB);
    let tree = open(device.clone());
    tree.0.checkpoint().unwrap();
    assert_eq!(Surgeon::new(device.clone()).superblock.ro_compat, 0);
    tree.0.keep_record(b"record").unwrap();
    let surgeon = Surgeon::new(device.clone());
    assert_eq!(surgeon.superblock.ro_compat, RO_COMPAT_OWN_RECORD);
    assert_eq!(surgeon.checkpoint.record_ino, 0);
    tree.0.checkpoint().unwrap();
    assert_ne!(Surgeon::new(device).checkpoint.record_ino, 0);
}

#[test]
fn a_full_log_refuses_a_record_and_keeps_the_old_one() {
    let device = device(32 * MIB);
    let tree = open(device.clone());
    tree.0.keep_record(&bytes(1, 50_000)).unwrap();
    tree.fill("file", 4096);
    let refused = tree.0.keep_record(&bytes(2, 500_000)).unwrap_err();
    assert!(matches!(refused, FsError::NoSpace), "{refused}");
    assert_eq!(record(&tree), Some(bytes(1, 50_000)));
    let refused = tree.0.keep_record(&vec![0; (16 << 20) + 1]).unwrap_err();
    assert!(matches!(refused, FsError::TooLarge), "{refused}");
    tree.0.close().unwrap();
    drop(tree);
    assert_sound(device.clone());
    let tree = open(device);
    assert_eq!(record(&tree), Some(bytes(1, 50_000)));
    tree.unlink("file").unwrap();
    tree.0.checkpoint().unwrap();
    tree.0.keep_record(&bytes(3, 500_000)).unwrap();
}

/// Nobody comes to it by its number either, as who has a handle of a file would.
#[test]
fn nobody_finds_the_inode_of_the_record() {
    let device = kept(b"record");
    let ino = Surgeon::new(device.clone()).checkpoint.record_ino;
    let tree = open(device);
    let found = tree.0.lookup(Ino(ino.into()), b".");
    assert!(matches!(found, Err(FsError::Corrupt(_))), "{found:?}");
    assert_eq!(tree.0.path_of(Ino(ino.into())), None);
    assert_eq!(tree.list("").unwrap(), ["directory", "large", "small"]);
}

#[test]
fn the_record_is_compressed_moved_and_scrubbed_as_a_file_is() {
    let device = device(32 * MIB);
    let text = b"what programs read when they start ".repeat(20_000);
    for options in [with(Policy::Record), with(Policy::Force)] {
        let tree = open_with(device.clone(), options);
        tree.0.keep_record(&text).unwrap();
        tree.0.checkpoint().unwrap();
        let used = tree.0.condition().used_blocks;
        tree.sweep(&mut Sweep::default(), Duration::ZERO).unwrap();
        while tree.0.clean().unwrap() {}
        tree.0.sync().unwrap();
        tree.0.checkpoint().unwrap();
        assert!(tree.0.condition().used_blocks <= used);
        let mut at = ScrubPosition::default();
        loop {
            let step = tree.0.scrub(&mut at);
            assert_eq!(step.faults, [""; 0]);
            if step.is_round {
                break;
            }
        }
        assert_eq!(record(&tree), Some(text.clone()));
        tree.0.close().unwrap();
        drop(tree);
        assert_sound(device.clone());
    }
}

#[test]
fn a_log_of_another_size_keeps_its_record() {
    let large = Arc::new(MemoryDevice::new(vec![0; 64 << 20]));
    let content = kept(&bytes(5, 200_000)).to_vec();
    large.write_at(0, &content).unwrap();
    let device: Arc<dyn WritableDevice> = large;
    for size in [64 * MIB, 40 * MIB] {
        resize(&device, size, &options()).unwrap();
        assert_sound(device.clone());
        assert_eq!(record(&open(device.clone())), Some(bytes(5, 200_000)));
    }
}

/// Damages a log with a record, and says what its inode was.
fn damaged(damage: impl FnOnce(&mut Surgeon, u32)) -> Arc<MemoryDevice> {
    let device = kept(&bytes(6, 5000));
    let mut surgeon = Surgeon::new(device.clone());
    let ino = surgeon.checkpoint.record_ino;
    damage(&mut surgeon, ino);
    surgeon.finish();
    device
}

/// A header that names what cannot be the record: a mount goes on, and writes to none of that.
fn is_left_out(device: &Arc<MemoryDevice>, word: &str) {
    let copy = Arc::new(MemoryDevice::new(device.to_vec()));
    let tree = open(copy.clone());
    let warnings = tree.0.take_warnings();
    assert!(
        matches!(&warnings[..], [text] if text.contains(word) && text.contains("--repair")),
        "{word}: {warnings:?}"
    );
    assert!(matches!(tree.0.kept_record(), Err(FsError::Corrupt(text)) if text.contains(word)));
    tree.0.remember_launches().unwrap();
    assert_eq!(tree.read("small").unwrap(), b"small");
    assert_eq!(tree.read("large").unwrap(), bytes(1, 300_000));
    tree.0.keep_record(b"new").unwrap();
    assert_eq!(record(&tree), Some(b"new".to_vec()));
    assert_eq!(tree.read("small").unwrap(), b"small");
    assert_eq!(tree.read("large").unwrap(), bytes(1, 300_000));
    assert_eq!(tree.list("directory").unwrap(), [""; 0]);
    tree.0.close().unwrap();
    drop(tree);
    let tree = open(copy);
    assert_eq!(tree.0.take_warnings(), [""; 0]);
    assert_eq!(record(&tree), Some(b"new".to_vec()));
}

/// A log that a check finds fault with, and a repair sets right: the files are there, and there is no record.
fn is_mended(device: &Arc<MemoryDevice>, word: &str, files: &[&str]) {
    let report = check(device.clone(), options()).unwrap();
    let is_told = |fault: &String| fault.contains(word);
    assert!(
        report.faults.iter().any(is_told),
        "{word}: {:?}",
        report.faults
    );
    let told = repair(device.clone(), options()).unwrap();
    assert_eq!(told.left, [""; 0], "{word}");
    assert_sound(device.clone());
    let tree = open(device.clone());
    assert_eq!(tree.0.take_warnings(), [""; 0]);
    assert_eq!(tree.list("").unwrap(), files, "{word}: {told:?}");
    assert_eq!(tree.read("large").unwrap(), bytes(1, 300_000));
    assert_eq!(tree.read("small").unwrap(), b"small");
    assert_eq!(record(&tree), None);
    assert_eq!(tree.0.condition().inodes as usize, 1 + files.len());
    tree.0.keep_record(b"again").unwrap();
    tree.0.close().unwrap();
    drop(tree);
    assert_sound(device.clone());
}

const FILES: [&str; 3] = ["directory", "large", "small"];

#[test]
fn a_header_that_names_what_is_no_record_hinders_nothing() {
    let numbers = open(kept(b""));
    let of = |path: &str| numbers.ino(path).unwrap().0 as u32;
    let is_free = "there is no such inode";
    let is_other = "does not belong to the log itself";
    let named = [
        (ROOT, is_other),
        (of("directory"), is_other),
        (of("small"), is_other),
        (of("large"), is_other),
        (1000, is_free),
        (u32::MAX, is_free),
    ];
    for (ino, word) in named {
        let device = damaged(|surgeon, _| surgeon.checkpoint.record_ino = ino);
        is_left_out(&device, word);
        is_mended(&device, word, &FILES);
    }
}

#[test]
fn an_inode_that_cannot_be_the_record_hinders_nothing() {
    let long = damaged(|surgeon, ino| {
        surgeon.change_inode(ino, |inode| inode.attributes.size = (16 << 20) + 1);
    });
    let linked = damaged(|surgeon, ino| {
        surgeon.change_inode(ino, |inode| inode.attributes.nlink = 7);
    });
    for (device, word) in [(long, "more than 16 MiB"), (linked, "other links")] {
        is_left_out(&device, word);
        is_mended(&device, word, &FILES);
    }
}

/// It is a file that has lost its name.
#[test]
fn what_does_not_belong_to_the_log_is_kept_by_a_repair() {
    let device = damaged(|surgeon, ino| {
        surgeon.change_inode(ino, |inode| inode.attributes.is_own = false);
    });
    is_left_out(&device, "does not belong");
    repair(device.clone(), options()).unwrap();
    assert_sound(device.clone());
    let tree = open(device);
    assert_eq!(record(&tree), None);
    let lost = tree.list("lost+found").unwrap();
    let lost = tree.read(&format!("lost+found/{}", lost[0])).unwrap();
    assert_eq!(lost, bytes(6, 5000));
}

#[test]
fn what_belongs_to_the_log_and_is_not_its_record_goes() {
    let device = damaged(|surgeon, _| surgeon.checkpoint.record_ino = 0);
    assert_eq!(record(&open_to_read(device.clone())), None);
    is_mended(&device, "is not the log's own record", &FILES);
}

/// An older program may have changed what it knows nothing of.
#[test]
fn a_record_that_the_superblock_knows_nothing_of_is_left_out() {
    let device = kept(b"record");
    let superblock = Superblock {
        ro_compat: 0,
        generation: 99,
        ..Surgeon::new(device.clone()).superblock
    };
    for block in [0, BLOCK_BYTES] {
        let at = (block + SUPERBLOCK_OFFSET) as u64;
        device.write_at(at, &superblock.encode()).unwrap();
    }
    is_left_out(&device, "there is none");
    is_mended(&device, "there is none", &FILES);
}

/// It is a file of somebody, then.
#[test]
fn what_belongs_to_the_log_and_has_a_name_loses_the_mark() {
    let device = damaged(|surgeon, ino| surgeon.add_name(ROOT, b"name", ino, 8));
    let tree = open_to_read(device.clone());
    assert!(matches!(tree.ino("name"), Err(FsError::Corrupt(_))));
    drop(tree);
    let files = ["directory", "large", "name", "small"];
    is_mended(&device, "a name leads to it", &files);
    assert_eq!(open(device).read("name").unwrap(), bytes(6, 5000));
}

#[test]
fn a_file_that_is_said_to_belong_to_the_log_stays_one() {
    let ino = open(kept(b"")).ino("small").unwrap().0 as u32;
    let device = damaged(|surgeon, _| {
        surgeon.change_inode(ino, |inode| inode.attributes.is_own = true);
    });
    let report = check(device.clone(), options()).unwrap();
    assert_eq!(report.fault_count, 1, "{:?}", report.faults);
    repair(device.clone(), options()).unwrap();
    assert_sound(device.clone());
    let tree = open(device);
    assert_eq!(record(&tree), Some(bytes(6, 5000)));
    assert_eq!(tree.read("small").unwrap(), b"small");
}

/// Bytes of a record, which say how many times one was kept before.
fn numbered(number: usize) -> Vec<u8> {
    bytes(number as u64, [10, 5000, 40_000, 0][number % 4])
}

/// A program that keeps records while it writes and syncs files, and what it kept by when: operations of the device before
/// each was kept, and before each checkpoint.
fn recorded_program(options: Options) -> (Arc<Recorder>, Vec<usize>, Vec<(usize, usize)>) {
    let recorder = Arc::new(Recorder::new(&device(32 * MIB).to_vec()));
    let tree = open_with(recorder.clone(), options);
    let (mut kept, mut durable) = (Vec::new(), Vec::new());
    for number in 0..14 {
        kept.push(seen(&recorder));
        tree.0.keep_record(&numbered(number)).unwrap();
        let path = format!("{}", number % 3);
        tree.put(&path, &bytes(number as u64, 9000)).unwrap();
        match number % 5 {
            1 => tree.fsync(&path).unwrap(),
            2 => drop(tree.sweep_all().unwrap()),
            3 => tree.0.sync().unwrap(),
            4 => {
                tree.0.checkpoint().unwrap();
                durable.push((seen(&recorder), number));
            }
            _ => drop(tree.0.clean().unwrap()),
        }
    }
    (recorder, kept, durable)
}

/// The record that a mount finds after a crash, in a log in which nothing is wrong.
fn record_after(state: &State) -> Result<Option<Vec<u8>>, String> {
    let device = Arc::new(state.device());
    let report = check(device.clone(), options()).map_err(|error| error.to_string())?;
    if let Some(fault) = report.faults.first() {
        return Err(fault.clone());
    }
    let log = Log::open(device, options()).map_err(|error| error.to_string())?;
    log.kept_record().map_err(|error| error.to_string())
}

/// Invariant L13 of `docs/design/log.md`.
#[test]
fn after_each_crash_the_record_is_one_that_was_kept_since_the_last_checkpoint() {
    let plans = [
        (160 << 10, Policy::Record),
        (64 << 20, Policy::Force),
        (160 << 10, Policy::Force),
    ];
    for (seed, (memory_bytes, policy)) in (0..).zip(plans) {
        let options = Options {
            memory_bytes,
            ..with(policy)
        };
        let (recorder, kept, durable) = recorded_program(options);
        let recording = recorder.recording();
        let plan = Plan {
            subsets_max: 16,
            samples: 4,
            tears: 1,
            seed,
        };
        let explored = recording.explore(&plan, |state| {
            let asked = state.id().prefix;
            let least = durable.iter().rev().find(|(at, _)| *at <= asked);
            let least = least.map(|(_, number)| *number);
            let most = kept.iter().filter(|at| **at <= asked).count();
            let mut allowed = (least.unwrap_or(0)..most).map(numbered);
            match record_after(state)? {
                None if least.is_none() => Ok(()),
                Some(found) if allowed.any(|bytes| bytes == found) => Ok(()),
                found => {
                    let len = found.map(|bytes| bytes.len());
                    Err(format!("found {len:?} bytes, of {least:?} to {most}"))
                }
            }
        });
        explored.expect_none_failed();
        println!("{} states", explored.states);
    }
}
