//! Launches that a log records for itself, and what is put together for them.

mod support;

use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use anteros_core::{FileSystem, Ino, MemoryDevice, Timestamp};
use anteros_log::{Compacted, Launches, Options, Policy};
use anteros_tests::ace::Step;
use anteros_tests::crash::Plan;
use support::history::History;
use support::*;

const PAGE: usize = 4096;
const AT_ONCE: Duration = Duration::ZERO;

/// Blocks of `lib.so` that its launches read, in their order.
const READ: [u32; 7] = [300, 301, 17, 220, 20, 390, 5];

thread_local! {
    static NOW: Cell<i64> = const { Cell::new(1_000_000_000) };
}

/// A clock that stands still while a test does not move it on.
fn now() -> Timestamp {
    Timestamp {
        secs: NOW.get(),
        nanos: 0,
    }
}

fn mounted(device: &Arc<MemoryDevice>) -> Tree {
    let options = Options {
        clock: now,
        ..with(Policy::Record)
    };
    let tree = open_with(device.clone(), options);
    tree.0.remember_launches().unwrap();
    tree
}

/// Content that shrinks to a half.
fn content(pages: usize) -> Vec<u8> {
    let page = |at| [bytes(at, PAGE / 2), vec![at as u8; PAGE / 2]].concat();
    (0..pages as u64).flat_map(page).collect()
}

fn installed() -> (Arc<MemoryDevice>, Tree, Vec<u8>) {
    let device = device(256 * MIB);
    let tree = mounted(&device);
    let content = content(400);
    for name in ["lib.so", "text", "data.db"] {
        tree.put(name, &content).unwrap();
    }
    tree.0.checkpoint().unwrap();
    (device, tree, content)
}

/// Reads blocks as a program that starts does.
fn launch(tree: &Tree, path: &str, blocks: &[u32]) {
    NOW.set(NOW.get() + 5);
    let ino = tree.ino(path).unwrap();
    let mut page = [0; PAGE];
    for &lblk in blocks {
        let len = tree.0.read(ino, u64::from(lblk) * PAGE as u64, &mut page);
        assert_eq!(len.unwrap(), PAGE);
    }
}

fn launch_twice(tree: &Tree) {
    launch(tree, "lib.so", &READ);
    launch(tree, "lib.so", &READ);
}

fn gather(tree: &Tree) -> Option<Compacted> {
    let done = tree.0.sweep_launched(AT_ONCE, |_| true, &|| false);
    done.unwrap()
}

/// Returns the files, blocks, and blocks that were put together, of which the log knows.
fn counts(tree: &Tree) -> [u64; 3] {
    tree.0.with_launches(Launches::counts).unwrap()
}

fn assert_gathered(device: &Arc<MemoryDevice>, ino: Ino) {
    let places = places(device, ino);
    let order: Vec<u64> = READ.map(|lblk| places[lblk as usize]).to_vec();
    assert!(order.is_sorted(), "{order:?}");
    assert!(order[READ.len() - 1] - order[0] <= 6, "{order:?}");
}

#[test]
fn executables_alone_are_remembered_and_from_the_second_launch_on() {
    let (_, tree, _) = installed();
    let known = |path| tree.0.launch_reads(tree.ino(path).unwrap());
    for path in ["lib.so", "text", "data.db"] {
        launch(&tree, path, &READ[..1]);
    }
    assert_eq!((counts(&tree), known("lib.so")), ([1, 1, 0], None));
    assert_eq!(gather(&tree), None);
    for path in ["lib.so", "text", "data.db"] {
        launch(&tree, path, &READ[..1]);
    }
    let reads = known("lib.so").unwrap();
    assert_eq!((reads.rounds, reads.core.len()), (2, 1));
    assert!(reads.is_unasked);
    assert_eq!((known("text"), known("data.db")), (None, None));
}

#[test]
fn what_several_launches_read_is_put_together_once() {
    let (device, tree, content) = installed();
    launch_twice(&tree);
    let done = gather(&tree).unwrap();
    assert_eq!((done.files, done.seen, done.blocks), (1, 7, 7));
    assert_eq!((gather(&tree), counts(&tree)), (None, [1, 7, 7]));
    // A little more is not worth it; a few more are.
    for (more, files) in [([100], 0), ([102], 1)] {
        launch(&tree, "lib.so", &more);
        launch(&tree, "lib.so", &more);
        assert_eq!(gather(&tree).map_or(0, |done| done.files), files);
    }
    assert_eq!(counts(&tree), [1, 9, 9]);
    let done = tree.sweep_all().unwrap();
    assert_eq!((done.files, done.seen), (2, 400 - 9 + 400));
    assert!(tree.read("lib.so").unwrap() == content);
    let ino = tree.ino("lib.so").unwrap();
    tree.0.close().unwrap();
    drop(tree);
    assert_gathered(&device, ino);
    assert_sound(device);
}

/// A record that is damaged, or none at all, keeps no mount from its work.
#[test]
fn a_record_that_is_none_is_begun_anew() {
    let (device, tree, _) = installed();
    launch_twice(&tree);
    tree.0.keep_launches().unwrap();
    let kept = tree.0.kept_record().unwrap().unwrap();
    tree.0.close().unwrap();
    drop(tree);
    let mut flipped = kept.clone();
    flipped[70] ^= 1;
    for (record, files) in [
        (&kept[..], 1),
        (&flipped, 0),
        (&kept[..kept.len() - 1], 0),
        (b"anything", 0),
        (b"", 0),
    ] {
        let tree = open_with(device.clone(), with(Policy::Record));
        tree.0.keep_record(record).unwrap();
        tree.0.remember_launches().unwrap();
        assert_eq!(counts(&tree)[0], files);
    }
}

#[test]
fn a_full_log_forgets_as_well() {
    let (device, tree, _) = installed();
    launch_twice(&tree);
    tree.0.keep_launches().unwrap();
    tree.fill("rest", 1 << 16);
    assert!(tree.0.kept_record().unwrap().is_some());
    tree.0.forget_launches().unwrap();
    assert_eq!(tree.0.kept_record().unwrap(), None);
    tree.0.close().unwrap();
    drop(tree);
    assert_sound(device.clone());
    assert_eq!(mounted(&device).0.kept_record().unwrap(), None);
}

/// A file that changes begins anew, and one that has just changed waits.
#[test]
fn what_has_changed_is_left() {
    let (device, tree, _) = installed();
    launch_twice(&tree);
    let cold = Duration::from_secs(1 << 30);
    let done = tree.0.sweep_launched(cold, |_| true, &|| false);
    assert_eq!(done.unwrap(), None);
    tree.write("lib.so", 0, b"x").unwrap();
    tree.0.checkpoint().unwrap();
    assert_eq!(gather(&tree), None);
    launch_twice(&tree);
    tree.unlink("lib.so").unwrap();
    assert_eq!(gather(&tree), None);
    tree.0.close().unwrap();
    assert_sound(device);
}

#[test]
fn what_is_interrupted_begins_anew() {
    let (device, tree, content) = installed();
    launch_twice(&tree);
    let asked = AtomicUsize::new(0);
    let interrupted = || asked.fetch_add(1, Ordering::SeqCst) > 1;
    let done = tree.0.sweep_launched(AT_ONCE, |_| true, &interrupted);
    assert_eq!(done.unwrap().unwrap().blocks, 0);
    assert_eq!(counts(&tree), [1, 7, 0]);
    assert_eq!(gather(&tree).unwrap().blocks, 7);
    assert!(tree.read("lib.so").unwrap() == content);
    tree.0.close().unwrap();
    assert_sound(device);
}

/// All else of a file whose launches are known is compressed as what nobody starts is.
#[test]
fn a_compaction_that_somebody_asks_for_knows_it_too() {
    let (device, tree, content) = installed();
    launch_twice(&tree);
    let ino = tree.ino("lib.so").unwrap();
    let done = tree
        .0
        .compact(&[ino], |ino| tree.0.launch_reads(ino), |_| true);
    assert_eq!(done.unwrap().seen, 400);
    assert_eq!((gather(&tree), counts(&tree)), (None, [1, 7, 7]));
    assert!(tree.read("lib.so").unwrap() == content);
    tree.0.close().unwrap();
    drop(tree);
    assert_gathered(&device, ino);
    assert_sound(device);
}

/// Nothing of it is promised, and nothing that was promised is lost to it.
#[test]
fn what_is_put_together_survives_every_crash() {
    let write = |path: &str, page: u64, pages: u64, fill| Step::Write {
        path: path.into(),
        offset: page * PAGE as u64,
        len: pages * PAGE as u64,
        fill,
    };
    let fsync = |path: &str| Step::Fsync { path: path.into() };
    let program = [
        write("a.so", 0, 60, 1),
        write("b.so", 0, 40, 2),
        Step::Sync,
        write("a.so", 9, 3, 3),
        fsync("a.so"),
        write("b.so", 30, 20, 4),
        fsync("b.so"),
        Step::Unlink {
            path: "a.so".into(),
        },
        Step::Sync,
    ];
    let creat = |path: &str| Step::Creat { path: path.into() };
    let program: Vec<Step> = [creat("a.so"), creat("b.so")]
        .into_iter()
        .chain(program)
        .collect();
    let base = device(32 * MIB).to_vec();
    let mut states = 0;
    for (seed, policy) in (0..).zip([Policy::Record, Policy::Force, Policy::Paper]) {
        let options = Options {
            policy,
            clock: now,
            ..options_with(160 << 10)
        };
        let mut gathered = 0;
        let history = History::run(&base, options, &program, |tree, number| {
            tree.0.remember_launches().unwrap();
            for path in ["a.so", "b.so"] {
                let Ok(attr) = tree.attr(path) else { continue };
                let blocks: Vec<u32> = (0..(attr.size / PAGE as u64) as u32).rev().collect();
                launch(tree, path, &blocks[..blocks.len() / 2]);
                launch(tree, path, &blocks[..blocks.len() / 2]);
            }
            gathered += gather(tree).map_or(0, |done| done.blocks);
            if number % 2 == 0 {
                tree.0.checkpoint().unwrap();
            }
        });
        assert!(gathered > 100, "{gathered}");
        let plan = Plan {
            subsets_max: 32,
            samples: 4,
            tears: 2,
            seed,
        };
        states += history
            .explore(&plan)
            .expect_none_failed_in(format!("{policy:?}"));
    }
    println!("{states} states");
}

/// Whoever is told what the next launches read can make small what they may read: it will be put right.
#[test]
fn programs_that_nobody_has_started_are_small_where_launches_are_recorded() {
    // Zstandard makes less than half of digits, and LZ4 nothing.
    let digits: Vec<u8> = bytes(1, 64 * PAGE)
        .iter()
        .map(|byte| b'0' + byte % 8)
        .collect();
    let half = digits.len() as u64 / 2;
    for is_recorded in [true, false] {
        let device = device(64 * MIB);
        let tree = match is_recorded {
            true => mounted(&device),
            false => open_with(device.clone(), with(Policy::Record)),
        };
        tree.put("lib.so", &digits).unwrap();
        tree.0.checkpoint().unwrap();
        let done = tree.sweep_all().unwrap();
        let is_small = done.blocks == 64 && done.bytes < half;
        assert_eq!((done.seen, is_small), (64, is_recorded), "{done:?}");
        if is_recorded {
            launch(&tree, "lib.so", &[9, 40]);
            launch(&tree, "lib.so", &[9, 40]);
            assert_eq!(gather(&tree).unwrap().seen, 2);
        }
        assert!(tree.read("lib.so").unwrap() == digits);
        tree.0.close().unwrap();
        drop(tree);
        assert_sound(device);
    }
}
