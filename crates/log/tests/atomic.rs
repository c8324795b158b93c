//! Atomic batch writes: seen at once, there as a whole after any crash, or not at all.

mod support;

use std::sync::Arc;
use std::sync::Mutex;

use anteros_core::{AtomicStep, Changes, FsError, FsResult, Ino, OpenFile, Writable};
use anteros_log::{Options, Policy};
use anteros_tests::crash::{Plan, Recorder};
use rustix::io::Errno;
use support::*;

const PAGE: usize = 4096;

/// A log with a file of so many pages, open for writing.
fn begin(pages: u64) -> (Tree, OpenFile) {
    let tree = open(device(32 * MIB));
    tree.create("f").unwrap();
    let before = bytes(1, pages as usize * PAGE);
    tree.write("f", 0, &before).unwrap();
    let file = reopen(&tree);
    (tree, file)
}

fn reopen(tree: &Tree) -> OpenFile {
    let ino = tree.ino("f").unwrap();
    OpenFile {
        ino,
        handle: tree.0.open(ino, 2).unwrap(),
    }
}

fn step(tree: &Tree, file: OpenFile, step: AtomicStep) {
    tree.0.write_atomically(file, step).unwrap();
}

fn write(tree: &Tree, file: OpenFile, offset: u64, data: &[u8]) -> FsResult<usize> {
    tree.0.write(file, offset, data, false)
}

fn said<T: std::fmt::Debug>(result: FsResult<T>) -> Errno {
    match result.unwrap_err() {
        FsError::Host(error) => Errno::from_io_error(&error).unwrap(),
        other => panic!("{other}"),
    }
}

#[test]
fn what_waits_is_read_and_dropped_by_an_abort() {
    let (tree, file) = begin(6);
    let before = tree.read("f").unwrap();
    let hears: Arc<Mutex<Vec<Ino>>> = Arc::default();
    let heard = hears.clone();
    tree.0.on_abort(move |ino| heard.lock().unwrap().push(ino));
    step(&tree, file, AtomicStep::Begin);
    step(&tree, file, AtomicStep::Begin);
    assert_eq!(write(&tree, file, 5000, &[7; 9000]).unwrap(), 9000);
    assert_eq!(write(&tree, file, 30_000, &[8; 100]).unwrap(), 100);
    let mut after = before.clone();
    after[5000..14_000].fill(7);
    after.resize(30_000, 0);
    after.extend([8; 100]);
    assert_eq!(tree.read("f").unwrap(), after);
    assert_eq!(tree.attr("f").unwrap().size, 30_100);
    // Neither a sync nor a checkpoint has any of it.
    tree.0.sync().unwrap();
    tree.0.checkpoint().unwrap();
    step(&tree, file, AtomicStep::Abort);
    assert_eq!(tree.read("f").unwrap(), before);
    assert_eq!(*hears.lock().unwrap(), [file.ino]);
    // Nothing waits any more.
    step(&tree, file, AtomicStep::Abort);
    write(&tree, file, 0, b"at once").unwrap();
    assert_eq!(tree.read("f").unwrap()[..7], *b"at once");
    assert_eq!(hears.lock().unwrap().len(), 1);
}

#[test]
fn closing_the_file_that_began_is_an_abort_and_closing_another_is_not() {
    let (tree, file) = begin(3);
    let before = tree.read("f").unwrap();
    let other = reopen(&tree);
    step(&tree, file, AtomicStep::Begin);
    assert_eq!(
        said(tree.0.write_atomically(other, AtomicStep::Begin)),
        Errno::BUSY
    );
    // What others write meanwhile goes with it.
    write(&tree, other, 0, &[1; 10]).unwrap();
    step(&tree, other, AtomicStep::Abort);
    tree.0.release(other);
    assert_eq!(tree.read("f").unwrap()[..10], [1; 10]);
    tree.0.release(file);
    assert_eq!(tree.read("f").unwrap(), before);
}

#[test]
fn what_else_would_change_the_file_is_refused_meanwhile() {
    let (tree, file) = begin(3);
    step(&tree, file, AtomicStep::Begin);
    let shorter = Changes {
        size: Some(5),
        ..Changes::default()
    };
    assert_eq!(
        said(Writable::change(&tree.0, file.ino, Some(file), &shorter)),
        Errno::BUSY
    );
    assert_eq!(said(tree.0.allocate(file, 0, 5, 3)), Errno::BUSY);
    assert_eq!(tree.attr("f").unwrap().size, 3 * PAGE as u64);
    step(&tree, file, AtomicStep::Commit);
    Writable::change(&tree.0, file.ino, Some(file), &shorter).unwrap();
    // To read alone, to begin nothing.
    let reader = OpenFile {
        handle: tree.0.open(file.ino, 0).unwrap(),
        ..file
    };
    let begun = tree.0.write_atomically(reader, AtomicStep::Begin);
    assert!(matches!(begun, Err(FsError::Invalid)), "{begun:?}");
}

#[test]
fn there_is_a_most_that_waits_and_more_is_refused_at_once() {
    let device = device(64 * MIB);
    let tree = open_with(device, options_with(4 << 20));
    tree.create("f").unwrap();
    let file = reopen(&tree);
    step(&tree, file, AtomicStep::Begin);
    let mut written = 0;
    let refused = loop {
        match write(&tree, file, written, &[9; 64 << 10]) {
            Ok(len) => written += len as u64,
            Err(error) => break error,
        }
        assert!(written < 4 << 20);
    };
    assert!(matches!(refused, FsError::TooLarge), "{refused}");
    assert!(written > 100 << 10);
    step(&tree, file, AtomicStep::Commit);
    assert_eq!(tree.read("f").unwrap(), vec![9; written as usize]);
}

#[test]
fn a_commit_without_room_changes_nothing_and_can_be_done_again() {
    let tree = open(device(32 * MIB));
    tree.create("f").unwrap();
    tree.create("rest").unwrap();
    let file = reopen(&tree);
    write(&tree, file, 0, &bytes(3, PAGE)).unwrap();
    tree.fsync("f").unwrap();
    step(&tree, file, AtomicStep::Begin);
    // What cannot be compressed, wherever it is.
    write(&tree, file, 0, &bytes(4, 40 * PAGE)).unwrap();
    let mut filled = 0;
    while let Ok(len) = tree.write("rest", filled, &bytes(filled, 64 << 10)) {
        filled += len as u64;
    }
    let refused = tree.0.write_atomically(file, AtomicStep::Commit);
    assert!(matches!(refused, Err(FsError::NoSpace)), "{refused:?}");
    assert_eq!(tree.read("f").unwrap(), bytes(4, 40 * PAGE));
    assert_eq!(tree.0.failure(), None);
    tree.truncate("rest", 0).unwrap();
    step(&tree, file, AtomicStep::Commit);
    assert_eq!(tree.read("f").unwrap(), bytes(4, 40 * PAGE));
}

/// Returns what the file holds after so many batches.
fn content(batches: u64) -> Vec<u8> {
    let mut content = bytes(0, 40 * PAGE);
    for batch in 1..=batches {
        let pages = content.len() / PAGE;
        for n in 0..11 {
            let page = (batch as usize * 7 + n * 5) % (pages + 1);
            content.resize(content.len().max((page + 1) * PAGE), 0);
            content[page * PAGE..][..PAGE].copy_from_slice(&page_of(batch, page));
        }
    }
    content
}

/// Half of it can be compressed.
fn page_of(batch: u64, page: usize) -> Vec<u8> {
    match page % 2 {
        0 => format!("batch {batch} page {page} ").into_bytes(),
        _ => bytes(batch << 8 | page as u64, PAGE),
    }
    .into_iter()
    .cycle()
    .take(PAGE)
    .collect()
}

/// Invariant L9 of `docs/design/log.md`.
#[test]
fn after_a_crash_each_batch_is_there_as_a_whole_or_not_at_all() {
    const BATCHES: u64 = 12;
    let contents: Vec<Vec<u8>> = (0..=BATCHES).map(content).collect();
    for (seed, policy) in (0..).zip([Policy::None, Policy::Paper, Policy::Record]) {
        let recorder = Arc::new(Recorder::new(&device(32 * MIB).to_vec()));
        // So little memory that other content leaves before it is synced.
        let options = Options {
            policy,
            ..options_with(512 << 10)
        };
        let tree = open_with(recorder.clone(), options);
        tree.create("f").unwrap();
        // To be compressed, it has to be a database.
        tree.create("f-journal").unwrap();
        tree.write("f", 0, &contents[0]).unwrap();
        tree.0.sync().unwrap();
        recorder.mark("0");
        let file = reopen(&tree);
        for batch in 1..=BATCHES {
            step(&tree, file, AtomicStep::Begin);
            let (old, new) = (&contents[batch as usize - 1], &contents[batch as usize]);
            for (n, page) in new.chunks(PAGE).enumerate() {
                if old.get(n * PAGE..).and_then(|old| old.get(..PAGE)) != Some(page) {
                    write(&tree, file, (n * PAGE) as u64, page).unwrap();
                }
                if n == 17 {
                    // Others go on between.
                    tree.write("f-journal", batch * 9000, &bytes(batch, 9000))
                        .unwrap();
                    tree.fsync("f-journal").unwrap();
                    if batch % 4 == 2 {
                        tree.0.checkpoint().unwrap();
                    }
                }
            }
            step(&tree, file, AtomicStep::Commit);
            recorder.mark(batch.to_string());
            if batch % 4 == 0 {
                tree.0.checkpoint().unwrap();
            }
        }
        let recording = recorder.recording();
        let plan = Plan {
            subsets_max: 32,
            samples: 4,
            tears: 2,
            seed,
        };
        let mut looked_at = 0;
        for state in recording.states(&plan) {
            let Some(done) = state.marks().last() else {
                continue;
            };
            let done: usize = done.label.parse().unwrap();
            let found = open(Arc::new(state.device())).read("f").unwrap();
            let which = contents.iter().position(|content| *content == found);
            let place = format!("{policy:?}, `{}`: {which:?} of {done}", state.id());
            assert!(which.is_some_and(|which| which >= done), "{place}");
            looked_at += 1;
        }
        assert!(looked_at > 300, "{looked_at}");
    }
}
