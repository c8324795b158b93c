//! Estimates of what a compression in the background would gain, and counts of what content takes.

mod support;

use std::fs;
use std::path::Path;
use std::sync::Arc;

use anteros_core::{Ino, MemoryDevice};
use anteros_log::{Class, ClassUse, Compacted, Estimate, Options, Plain, Policy};
use support::*;

const PAGE: usize = 4096;
const BLOCK: u64 = PAGE as u64;

fn estimate(tree: &Tree, files: &[Ino], stride: u64) -> Estimate {
    tree.0.estimate(files, |_| None, stride, |_| true).unwrap()
}

/// Bytes that all classes take, and would take.
fn sums(estimate: &Estimate) -> (u64, u64) {
    let now = Class::ALL.map(|class| estimate.usage.class(class).stored_bytes);
    let then = Class::ALL.map(|class| estimate.stored_bytes_after(class));
    (now.iter().sum(), then.iter().sum())
}

/// Copies what a directory of the host holds, up to so many bytes, and returns the inodes.
fn copy(tree: &Tree, from: &Path, to: &str, left: &mut u64) -> Vec<Ino> {
    let mut inos = Vec::new();
    let mut entries: Vec<_> = fs::read_dir(from).unwrap().map(Result::unwrap).collect();
    entries.sort_by_key(fs::DirEntry::file_name);
    for entry in entries {
        let path = format!("{to}/{}", entry.file_name().to_string_lossy());
        let kind = entry.file_type().unwrap();
        if kind.is_dir() {
            tree.mkdir(&path).unwrap();
            inos.extend(copy(tree, &entry.path(), &path, left));
        } else if kind.is_file() && *left > 0 {
            let content = fs::read(entry.path()).unwrap();
            *left = left.saturating_sub(content.len() as u64);
            tree.put(&path, &content).unwrap();
            inos.push(tree.ino(&path).unwrap());
        }
    }
    inos
}

/// The sources of this crate and its tests, and a program, in a log that was filled by a policy.
fn filled(policy: Policy) -> (Arc<MemoryDevice>, Tree, Vec<Ino>) {
    let device = device(256 * MIB);
    let tree = open_with(device.clone(), with(policy));
    let mut inos = Vec::new();
    for directory in ["src", "tests"] {
        tree.mkdir(directory).unwrap();
        let from = Path::new(env!("CARGO_MANIFEST_DIR")).join(directory);
        inos.extend(copy(&tree, &from, directory, &mut (4 * MIB)));
    }
    let mut program = fs::read(std::env::current_exe().unwrap()).unwrap();
    program.truncate(4 * MIB as usize);
    tree.put("program", &program).unwrap();
    inos.push(tree.ino("program").unwrap());
    tree.0.close().unwrap();
    drop(tree);
    let tree = open_with(device.clone(), with(Policy::Record));
    (device, tree, inos)
}

/// Compresses, and returns what was expected to be gained, what was, and what was taken before.
fn expected_and_gained(policy: Policy, stride: u64) -> [u64; 3] {
    let (_device, tree, inos) = filled(policy);
    let (now, then) = sums(&estimate(&tree, &inos, stride));
    let before = tree.0.condition().used_blocks;
    tree.0.compact(&inos, |_| None, |_| true).unwrap();
    tree.0.checkpoint().unwrap();
    let gained = before - tree.0.condition().used_blocks;
    // And that is all that can be gained.
    let (found, after) = sums(&estimate(&tree, &inos, stride));
    assert_eq!(found, after);
    let told = format!("{then} expected, {found} found");
    assert!(found.abs_diff(then) * 20 <= then, "{told}");
    [now - then, gained * BLOCK, before * BLOCK]
}

#[test]
fn an_estimate_is_what_is_gained() {
    let [expected, gained, _] = expected_and_gained(Policy::None, 1);
    let told = format!("{expected} expected, {gained} gained");
    assert!(expected.abs_diff(gained) * 10 <= gained, "{told}");
}

/// Some blocks are shared with inodes of directories, and not free until these have moved.
#[test]
fn an_estimate_of_what_was_compressed_as_it_was_written_is_right_as_well() {
    let [expected, gained, before] = expected_and_gained(Policy::Record, 1);
    let told = format!("{expected} expected, {gained} gained of {before}");
    assert!(
        gained > 0 && expected.abs_diff(gained) * 25 <= before,
        "{told}"
    );
}

#[test]
fn a_sample_tells_nearly_as_much() {
    let [expected, gained, _] = expected_and_gained(Policy::None, 3);
    let told = format!("{expected} expected, {gained} gained");
    assert!(expected.abs_diff(gained) * 10 <= gained, "{told}");
}

#[test]
fn an_estimate_changes_nothing() {
    let device = device(64 * MIB);
    let tree = open_with(device.clone(), with(Policy::None));
    for number in 0..20 {
        let content = text(number, 40 + number as usize);
        tree.put(&format!("{number}"), &content).unwrap();
    }
    tree.0.close().unwrap();
    drop(tree);
    let tree = open_with(device.clone(), with(Policy::Record));
    tree.0.checkpoint().unwrap();
    let before = device.to_vec();
    let inos: Vec<Ino> = (0..20)
        .map(|n| tree.ino(&format!("{n}")).unwrap())
        .collect();
    let found = tree.0.estimate(&inos, |ino| Some(reads(ino)), 1, |_| true);
    let (now, then) = sums(&found.unwrap());
    assert!(then < now / 2, "{now} bytes would be {then}");
    tree.0.usage(|| true).unwrap();
    assert_eq!(tree.0.condition().statistics.user_bytes, 0);
    tree.0.checkpoint().unwrap();
    assert!(device.to_vec() == before);
    // No file is taken for one that was looked at.
    let done = tree.0.compact(&inos, |_| None, |_| true).unwrap();
    assert_eq!((done.files, done.seen), (20, (40..60).sum()));
    assert_eq!((done.total, done.passed), (done.seen, done.seen));
}

#[test]
fn an_estimate_can_be_stopped() {
    let device = device(64 * MIB);
    let tree = open_with(device.clone(), with(Policy::None));
    tree.put("text", &text(1, 2000)).unwrap();
    tree.0.close().unwrap();
    drop(tree);
    let tree = open_with(device, with(Policy::Record));
    let ino = tree.ino("text").unwrap();
    let mut turns = 0;
    let goes_on = |_: &Compacted| {
        turns += 1;
        turns < 3
    };
    let found = tree.0.estimate(&[ino], |_| None, 1, goes_on).unwrap();
    let gain = found.gain(Class::Other);
    assert_eq!(gain.bytes, 2000 * BLOCK);
    assert_eq!(gain.tried_bytes, 512 * BLOCK);
}

/// Tests files of every class, some of which are compressed, and one that has two names.
#[test]
fn content_is_counted_by_class() {
    let device = device(64 * MIB);
    let tree = open_with(device.clone(), with(Policy::None));
    tree.mkdir("d").unwrap();
    let noise = bytes(3, 10 * PAGE);
    tree.put("d/a.db", &text(1, 20)).unwrap();
    tree.put("d/a.db-journal", &text(2, 5)).unwrap();
    tree.put("d/lib.so", &text(3, 64)).unwrap();
    tree.put("d/film.mp4", &noise).unwrap();
    tree.put("d/notes", &text(4, 32)).unwrap();
    tree.put("short", b"short").unwrap();
    tree.link("d/notes", "again").unwrap();
    tree.create("hole").unwrap();
    tree.truncate("hole", 100 * BLOCK).unwrap();
    tree.write("hole", 50 * BLOCK, &noise[..PAGE]).unwrap();
    tree.0.close().unwrap();
    drop(tree);
    let tree = open_with(device.clone(), with(Policy::Record));
    let pages = |count: u64| count * BLOCK;
    let plain = |files, count, why| {
        let mut plain_bytes = [0; 3];
        plain_bytes[why as usize] = pages(count);
        ClassUse {
            files,
            bytes: pages(count),
            // With the inode.
            stored_bytes: pages(count + 1),
            plain_bytes,
        }
    };
    let usage = tree.0.usage(|| true).unwrap();
    assert_eq!(*usage.class(Class::Database), plain(1, 20, Plain::Left));
    assert_eq!(*usage.class(Class::Journal), plain(1, 5, Plain::Left));
    assert_eq!(*usage.class(Class::Executable), plain(1, 64, Plain::New));
    assert_eq!(*usage.class(Class::Media), plain(1, 10, Plain::New));
    let other = usage.class(Class::Other);
    assert_eq!((other.files, other.bytes), (3, pages(33) + 5));
    assert_eq!(other.plain(Plain::New), pages(33));
    tree.compact_everything().unwrap();
    tree.0.checkpoint().unwrap();
    let usage = tree.0.usage(|| true).unwrap();
    let media = usage.class(Class::Media);
    assert_eq!(media.plain_bytes, plain(1, 10, Plain::Futile).plain_bytes);
    let program = usage.class(Class::Executable);
    assert_eq!((program.files, program.bytes), (1, pages(64)));
    assert!(program.ratio().unwrap() < 0.5, "{program:?}");
    assert_eq!(program.plain_bytes, [0; 3]);
    assert_eq!(usage.class(Class::Other).plain(Plain::Futile), pages(1));
    assert_eq!(usage.warnings, [""; 0]);
    tree.0.close().unwrap();
    // As one that cannot be written to tells it.
    let options = Options {
        read_only: true,
        ..with(Policy::Record)
    };
    let told = open_with(device, options).0.usage(|| true).unwrap();
    assert_eq!(told, usage);
}

/// Tests that what a class takes is what the log says that is used, but for the blocks of nodes.
#[test]
fn all_that_is_taken_is_counted() {
    let (_device, tree, inos) = filled(Policy::Record);
    let usage = tree.0.usage(|| true).unwrap();
    let taken = Class::ALL.map(|class| usage.class(class).stored_bytes);
    let taken: u64 = taken.iter().sum();
    let used = tree.0.condition().used_blocks * BLOCK;
    assert!(
        taken <= used && used - taken < used / 20,
        "{taken} of {used}"
    );
    let files = Class::ALL.map(|class| usage.class(class).files);
    assert_eq!(files.iter().sum::<u64>(), inos.len() as u64);
}
