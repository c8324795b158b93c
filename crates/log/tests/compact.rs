//! Files that are compressed in the background, and read ahead.

mod support;

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use anteros_core::{
    Device, FileSystem, FsError, Ino, MemoryDevice, OpenFile, Writable, WritableDevice,
};
use anteros_log::layout::checkpoint::HeadKind;
use anteros_log::{Cause, Codec, Compacted, FileReads, Inspector, Log, Mark, Options, Policy};
use anteros_tests::crash::Recorder;
use support::hooked::{Asked, Hooked};
use support::*;

const PAGE: usize = 4096;

fn mounted(device: &Arc<MemoryDevice>) -> Tree {
    open_with(device.clone(), with(Policy::Record))
}

/// As a program: most of it shrinks to a half, some of it not at all.
fn program(pages: usize) -> Vec<u8> {
    let mut content = Vec::with_capacity(pages * PAGE);
    for page in 0..pages as u64 {
        let noise = bytes(page, if page % 37 == 20 { PAGE } else { PAGE / 2 });
        content.extend_from_slice(&noise);
        content.resize((page as usize + 1) * PAGE, page as u8);
    }
    content.truncate(pages * PAGE - 1000);
    content
}

/// A log with a program, and something else, neither compressed.
fn installed(pages: usize) -> (Arc<MemoryDevice>, Tree, Vec<u8>) {
    let device = device(256 * MIB);
    let tree = open_with(device.clone(), with(Policy::None));
    let content = program(pages);
    tree.put("lib.so", &content).unwrap();
    tree.put("text", &content).unwrap();
    tree.0.close().unwrap();
    drop(tree);
    let tree = mounted(&device);
    (device, tree, content)
}

#[test]
fn programs_take_less_room_and_read_as_they_did() {
    let (device, tree, content) = installed(2000);
    let before = tree.0.condition().used_blocks;
    let compacted = tree.compact(&["lib.so", "text"]).unwrap();
    assert_eq!((compacted.files, compacted.others), (2, 0));
    assert_eq!(compacted.seen, 4000);
    assert!(compacted.warnings.is_empty());
    tree.0.checkpoint().unwrap();
    let won = before - tree.0.condition().used_blocks;
    assert!((1700..2000).contains(&won), "{won} blocks of 4000");
    for name in ["lib.so", "text"] {
        assert!(tree.read(name).unwrap() == content);
    }
    assert_sound(device.clone());
    let written = tree.0.condition().statistics.blocks(Cause::Background);
    assert!(written < 2400, "{written} blocks written");
    // All is done already, but for what launches read.
    let again = tree.compact(&["lib.so", "text"]).unwrap();
    assert_eq!((again.files, again.seen), (2, 13));
    tree.0.close().unwrap();
    drop(tree);
    let tree = mounted(&device);
    assert!(tree.read("lib.so").unwrap() == content);
    // What lies in a chunk may be written over.
    tree.write("lib.so", 100 * PAGE as u64, &[7; 3 * PAGE])
        .unwrap();
    tree.fsync("lib.so").unwrap();
    let mut changed = content;
    changed[100 * PAGE..103 * PAGE].fill(7);
    assert!(tree.read("lib.so").unwrap() == changed);
    tree.0.close().unwrap();
    assert_sound(device.clone());
    tree.unlink("lib.so").unwrap();
    tree.unlink("text").unwrap();
    tree.0.close().unwrap();
    assert_eq!(tree.0.condition().used_blocks, 1);
    assert_sound(device.clone());
}

#[test]
fn every_codec_compresses_in_the_background() {
    let (device, tree, content) = installed(300);
    tree.0.close().unwrap();
    drop(tree);
    for (name, codec) in Codec::ALL {
        let options = Options {
            background_codec: codec,
            ..with(Policy::Record)
        };
        let tree = open_with(device.clone(), options);
        let copy = format!("{name}.so");
        tree.put(&copy, &content).unwrap();
        tree.0.checkpoint().unwrap();
        let compacted = tree.compact(&[&copy]).unwrap();
        let bytes = compacted.bytes as usize;
        assert!(bytes < content.len() * 6 / 10, "{name}: {compacted:?}");
        tree.0.close().unwrap();
    }
    let tree = mounted(&device);
    for (name, _) in Codec::ALL {
        let found = tree.read(&format!("{name}.so")).unwrap();
        assert!(found == content, "{name}");
    }
    assert_sound(device.clone());
}

#[test]
fn what_launches_read_lies_in_the_order_in_which_they_did() {
    let (device, tree, _) = installed(400);
    let ino = tree.ino("lib.so").unwrap();
    let core: Vec<u32> = vec![300, 301, 17, 220, 20, 399, 5];
    let reads = FileReads {
        core: read_by(2, (0..).zip(core.clone())),
        other: read_by(1, [(7, 9), (8, 10)]),
        ..FileReads::default()
    };
    let done = tree.0.compact(&[ino], |_| Some(reads.clone()), |_| true);
    assert_eq!(done.unwrap().seen, 400);
    tree.0.close().unwrap();
    let places = places(&device, ino);
    let order: Vec<u64> = core.iter().map(|&lblk| places[lblk as usize]).collect();
    assert!(order.is_sorted(), "{order:?}");
    let last = order[order.len() - 1];
    assert!(last - order[0] <= 6, "{order:?}");
    let lies_behind = |(lblk, place): (usize, &u64)| {
        core.contains(&(lblk as u32)) || *place >= last || lblk % 37 == 20
    };
    assert!(places.iter().enumerate().all(lies_behind), "{places:?}");
}

/// Of other files, nothing else is touched where only executables are compressed.
#[test]
fn what_launches_read_of_other_files_comes_along() {
    let (device, tree, content) = installed(100);
    tree.0.close().unwrap();
    drop(tree);
    let tree = open_with(device.clone(), with(Policy::Paper));
    tree.put("read-once", &content).unwrap();
    tree.0.checkpoint().unwrap();
    let [lib, text, once] = ["lib.so", "text", "read-once"].map(|path| tree.ino(path).unwrap());
    let before = places(&device, text);
    let untouched = places(&device, once);
    let reads = |ino| {
        Some(FileReads {
            rounds: if ino == once { 1 } else { 2 },
            core: read_by(2, [(if ino == text { 5 } else { 0 }, 30), (9, 31)]),
            other: read_by(1, [(7, 50)]),
            ..FileReads::default()
        })
    };
    let done = tree.0.compact(&[lib, text, once], reads, |_| true).unwrap();
    assert_eq!((done.files, done.others, done.seen), (1, 2, 103));
    tree.0.close().unwrap();
    assert_eq!(places(&device, once), untouched);
    let after = places(&device, text);
    let moved: Vec<usize> = (0..100)
        .filter(|&lblk| before[lblk] != after[lblk])
        .collect();
    assert_eq!(moved, [30, 31, 50]);
    let program = places(&device, lib);
    assert!(
        program[30] <= after[30] && after[30] < program[0],
        "{program:?}"
    );
    assert_sound(device.clone());
    let tree = mounted(&device);
    for path in ["lib.so", "text", "read-once"] {
        assert!(tree.read(path).unwrap() == content, "{path}");
    }
}

/// With what leads to them, in the order in which they were.
#[test]
fn inodes_that_launches_look_up_lie_together() {
    let device = device(256 * MIB);
    let tree = mounted(&device);
    tree.mkdir("a").unwrap();
    tree.mkdir("b").unwrap();
    let paths: Vec<String> = (0..300)
        .map(|n| format!("{}/{n}", ["a", "b"][n % 2]))
        .collect();
    for path in &paths {
        tree.put(path, &bytes(1, 5000)).unwrap();
    }
    tree.0.checkpoint().unwrap();
    let inos: Vec<Ino> = paths.iter().map(|path| tree.ino(path).unwrap()).collect();
    let sought: Vec<usize> = vec![299, 7, 150, 8, 20, 21, 200];
    let looked_up = |ino| {
        let at = sought.iter().position(|&n| inos[n] == ino)?;
        Some(FileReads {
            looked_up: Some(Mark {
                order: at as u64,
                launches: 2,
            }),
            ..FileReads::default()
        })
    };
    let done = tree.0.compact(&inos, looked_up, |_| true).unwrap();
    assert_eq!((done.files, done.others, done.seen), (300, 0, 600));
    tree.0.close().unwrap();
    let mut inspector = Inspector::open(device.clone(), &with(Policy::Record)).unwrap();
    let mut place = |n: usize| {
        let node = inspector.inode(inos[n].0 as u32).unwrap().nodes[0];
        (node.block.unwrap(), node.slot.unwrap())
    };
    let places: Vec<(u64, u8)> = sought.iter().map(|&n| place(n)).collect();
    assert!(places.is_sorted(), "{places:?}");
    // With the root, and the directories, which have many names.
    assert!(places[6].0 - places[0].0 <= 1, "{places:?}");
    assert_sound(device.clone());
}

/// Tests that what gains nothing takes a little more than it did, wherever it begins in a block.
#[test]
fn content_that_does_not_shrink_comes_along_as_it_is() {
    let device = device(256 * MIB);
    let tree = mounted(&device);
    let mut content = program(400);
    content[50 * PAGE..350 * PAGE].copy_from_slice(&bytes(1, 300 * PAGE));
    tree.put("lib.so", &content).unwrap();
    tree.0.checkpoint().unwrap();
    let ino = tree.ino("lib.so").unwrap();
    for lead in 0..12 {
        // Other content in front each time, so that the first block has other room left.
        let core = (20..20 + lead).chain(100..300);
        let reads = FileReads {
            core: read_by(2, (0..).zip(core)),
            ..FileReads::default()
        };
        tree.0
            .compact(&[ino], |_| Some(reads.clone()), |_| true)
            .unwrap();
        tree.0.checkpoint().unwrap();
        assert!(tree.read("lib.so").unwrap() == content, "{lead}");
    }
    tree.0.close().unwrap();
    assert_sound(device.clone());
}

/// Words of a small language: they are found again far away.
fn prose(pages: usize) -> Vec<u8> {
    let mut roll = dice(5);
    let letters = |word: Vec<u8>| word.iter().map(|byte| b'a' + byte % 26).collect();
    let words = (0..4000).map(|n| letters(bytes(n, 3 + n as usize % 9)));
    let words: Vec<Vec<u8>> = words.collect();
    let mut prose = Vec::new();
    while prose.len() < pages * PAGE {
        prose.extend_from_slice(&words[roll(4000) as usize]);
    }
    prose.truncate(pages * PAGE);
    prose
}

/// Blocks that a file takes which was compressed as it was written, and those that it takes afterwards.
fn taken_twice(device: &Arc<MemoryDevice>, name: &str, content: &[u8]) -> (u64, u64) {
    let tree = mounted(device);
    let empty = tree.0.condition().used_blocks;
    tree.put(name, content).unwrap();
    tree.0.checkpoint().unwrap();
    let before = tree.0.condition().used_blocks - empty;
    let ino = tree.ino(name).unwrap();
    tree.0.compact(&[ino], |_| None, |_| true).unwrap();
    tree.0.checkpoint().unwrap();
    assert!(tree.read(name).unwrap() == content);
    let after = tree.0.condition().used_blocks - empty;
    tree.0.close().unwrap();
    assert_sound(device.clone());
    (before, after)
}

/// Larger windows and a slower encoder take less of what was compressed as it was written.
#[test]
fn content_that_is_compressed_already_shrinks_further() {
    let (before, after) = taken_twice(&device(64 * MIB), "prose", &prose(512));
    assert!(before < 512, "{before} blocks");
    assert!(after < before * 19 / 20, "{before} blocks became {after}");
    let (before, after) = taken_twice(&device(64 * MIB), "lib.so", &program(512));
    assert!(before < 400, "{before} blocks");
    assert!(after <= before, "{before} blocks became {after}");
}

/// A page that gains nothing is in the same chunk as others that move: it does not keep all of it.
#[test]
fn a_page_that_gains_nothing_keeps_no_chunk() {
    let content: Vec<u8> = (0..512)
        .flat_map(|page| match page % 8 {
            0 => bytes(page, PAGE),
            _ => [bytes(page, PAGE / 4), vec![7; PAGE / 4 * 3]].concat(),
        })
        .collect();
    let (before, after) = taken_twice(&device(64 * MIB), "mixed", &content);
    assert!(before < 240, "{before} blocks");
    assert!(after <= before, "{before} blocks became {after}");
}

#[test]
fn it_may_be_stopped_at_any_time() {
    let (device, tree, content) = installed(1000);
    let mut turns = 0;
    let goes_on = |_: &Compacted| {
        turns += 1;
        turns < 4
    };
    let ino = tree.ino("lib.so").unwrap();
    let stopped = tree.0.compact(&[ino], |_| None, goes_on).unwrap();
    assert!((700..800).contains(&stopped.seen), "{stopped:?}");
    assert!(tree.read("lib.so").unwrap() == content);
    tree.0.close().unwrap();
    assert_sound(device.clone());
    // And, once more, some that gained nothing.
    let rest = tree.compact(&["lib.so"]).unwrap().seen;
    let left = 1000 - stopped.seen + 13;
    assert!((left..left + 20).contains(&rest), "{rest} of {left}");
    assert!(tree.read("lib.so").unwrap() == content);
}

#[test]
fn a_file_that_goes_away_meanwhile_stops_nothing() {
    let (device, tree, content) = installed(300);
    tree.put("other.so", &content).unwrap();
    tree.0.checkpoint().unwrap();
    let inos = ["lib.so", "other.so"].map(|name| tree.ino(name).unwrap());
    let mut turns = 0;
    let goes_on = |_: &Compacted| {
        turns += 1;
        if turns == 2 {
            tree.unlink("lib.so").unwrap();
        }
        true
    };
    let done = tree.0.compact(&inos, |_| None, goes_on).unwrap();
    assert!(done.seen > 300 && done.warnings.is_empty(), "{done:?}");
    assert!(tree.read("other.so").unwrap() == content);
    assert_eq!(tree.0.compact(&inos, |_| None, |_| true).unwrap().others, 1);
    tree.0.close().unwrap();
    assert_sound(device.clone());
}

/// Files change while their windows are compressed without the lock.
#[test]
fn what_is_written_meanwhile_stays() {
    let (device, tree, mut content) = installed(1500);
    let has_ended = AtomicBool::new(false);
    let compressed = thread::scope(|scope| {
        let writer = scope.spawn(|| {
            let mut random = dice(7);
            let mut turn = 0;
            while !has_ended.load(Ordering::SeqCst) {
                turn += 1;
                let at = random(1400) as usize * PAGE;
                let page = bytes(turn, PAGE / 2);
                tree.write("lib.so", at as u64, &page).unwrap();
                content[at..at + PAGE / 2].copy_from_slice(&page);
                match turn % 64 {
                    0 => tree.0.checkpoint().unwrap(),
                    32 => tree.fsync("lib.so").unwrap(),
                    _ => thread::yield_now(),
                }
            }
            turn
        });
        let rounds = (0..8).map(|_| tree.compact(&["lib.so", "text"]).unwrap().blocks);
        let compressed: u64 = rounds.sum();
        has_ended.store(true, Ordering::SeqCst);
        assert!(writer.join().unwrap() > 8);
        compressed
    });
    assert!(compressed > 2000, "{compressed} blocks");
    assert!(tree.read("lib.so").unwrap() == content);
    tree.0.close().unwrap();
    assert_sound(device.clone());
    assert!(mounted(&device).read("lib.so").unwrap() == content);
}

#[test]
fn others_read_and_write_while_content_is_read_to_be_compressed() {
    let (inner, tree, content) = installed(600);
    tree.0.close().unwrap();
    drop(tree);
    let [is_there, may_go, has_waited] = [const { AtomicBool::new(false) }; 3].map(Arc::new);
    let (there, go, waited) = (is_there.clone(), may_go.clone(), has_waited.clone());
    let device = Hooked::around(inner.clone(), move |asked| {
        let is_content = matches!(asked, Asked::Read(_, len) if len > 16 * PAGE);
        if is_content && thread::current().name() == Some("compactor") {
            there.store(true, Ordering::SeqCst);
            waited.fetch_or(!wait_for(&go), Ordering::SeqCst);
        }
    });
    let tree = open_with(Arc::new(device), with(Policy::Record));
    thread::scope(|scope| {
        let compact = || tree.compact(&["lib.so"]).unwrap();
        let compactor = thread::Builder::new().name("compactor".into());
        let compacted = compactor.spawn_scoped(scope, compact).unwrap();
        assert!(wait_for(&is_there));
        assert!(tree.read("text").unwrap() == content);
        tree.put("new", &content).unwrap();
        tree.fsync("new").unwrap();
        may_go.store(true, Ordering::SeqCst);
        assert!(compacted.join().unwrap().blocks > 500);
    });
    assert!(!has_waited.load(Ordering::SeqCst));
    for name in ["lib.so", "text", "new"] {
        assert!(tree.read(name).unwrap() == content);
    }
    tree.0.close().unwrap();
    assert_sound(inner);
}

/// A file is settled until its content changes, also where nothing of it gains.
#[test]
fn what_has_not_changed_is_not_read_again() {
    let device = device(256 * MIB);
    let tree = mounted(&device);
    tree.put("noise", &bytes(1, 200 * PAGE)).unwrap();
    tree.put("text", &program(100)).unwrap();
    tree.0.checkpoint().unwrap();
    let inos = ["noise", "text"].map(|path| tree.ino(path).unwrap());
    let compact = |tree: &Tree| tree.0.compact(&inos, |_| None, |_| true).unwrap();
    assert_eq!(compact(&tree).seen, 300);
    assert_eq!(compact(&tree).seen, 0);
    tree.0.close().unwrap();
    drop(tree);
    let tree = mounted(&device);
    assert_eq!(compact(&tree).seen, 0);
    tree.write("noise", 0, b"a change").unwrap();
    tree.0.checkpoint().unwrap();
    let again = compact(&tree);
    assert_eq!((again.seen, again.blocks), (200, 0));
    // What is not on the device yet is left for the next time.
    tree.write("text", 0, b"a change").unwrap();
    compact(&tree);
    tree.0.checkpoint().unwrap();
    assert!(compact(&tree).seen > 0);
    assert_eq!(compact(&tree).seen, 0);
}

#[test]
fn nothing_is_compressed_where_nothing_may_be() {
    let device = device(256 * MIB);
    let tree = open_with(device, with(Policy::None));
    tree.put("lib.so", &program(10)).unwrap();
    assert!(matches!(
        tree.compact(&["lib.so"]),
        Err(FsError::Unsupported)
    ));
}

#[test]
fn a_full_log_stays_as_it_is() {
    let device = device(256 * MIB);
    let tree = mounted(&device);
    let content = program(2000);
    tree.put("lib.so", &content).unwrap();
    tree.fill("rest", 1 << 20);
    match tree.compact(&["lib.so"]) {
        Ok(compacted) => assert_eq!(compacted.seen, 2000),
        Err(error) => assert!(matches!(error, FsError::NoSpace), "{error}"),
    }
    assert!(tree.read("lib.so").unwrap() == content);
    tree.0.close().unwrap();
    assert_eq!(tree.0.failure(), None);
    assert_sound(device.clone());
}

/// Compression needs no more room than it gives back; what launches read needs some, and waits for that.
#[test]
fn a_log_that_is_full_or_almost_gets_room_again() {
    for reads in [0, 200] {
        for left in [0, 40_000] {
            gets_room_again(reads, left);
        }
    }
}

/// Compacts a log with so many bytes left, with launches that read so many blocks of a program.
fn gets_room_again(reads: u32, left: u64) {
    let launched = |_| {
        (reads > 0).then(|| FileReads {
            rounds: 2,
            core: read_by(2, (0..).zip(100..100 + reads)),
            ..FileReads::default()
        })
    };
    let device = device(128 * MIB);
    let tree = mounted(&device);
    let content = program(4000);
    tree.put("lib.so", &content).unwrap();
    let end = tree.fill("rest", 1 << 16);
    tree.truncate("rest", end - left).unwrap();
    tree.0.checkpoint().unwrap();
    let free = |tree: &Tree| tree.0.statfs().unwrap().blocks_free;
    assert!(free(&tree) <= left / 2000, "{}", free(&tree));
    let inos = ["lib.so", "rest"].map(|path| tree.ino(path).unwrap());
    tree.0.compact(&inos[..1], launched, |_| true).unwrap();
    tree.0.compact(&inos[1..], |_| None, |_| true).unwrap();
    assert!(free(&tree) > 1500, "{}", free(&tree));
    assert!(tree.read("lib.so").unwrap() == content);
    tree.0.close().unwrap();
    assert_eq!(tree.0.failure(), None);
    assert_sound(device);
}

#[test]
fn what_cannot_be_read_is_told_and_left_alone() {
    let (device, tree, content) = installed(300);
    tree.compact(&["lib.so"]).unwrap();
    tree.0.close().unwrap();
    let ino = tree.ino("lib.so").unwrap();
    let at = places(&device, ino)[200] * PAGE as u64;
    let mut block = vec![0; PAGE];
    device.read_at(at, &mut block).unwrap();
    block[3000] ^= 1;
    device.write_at(at, &block).unwrap();
    drop(tree);
    let tree = mounted(&device);
    let reads = FileReads {
        core: read_by(2, [(0, 200), (1, 7)]),
        ..FileReads::default()
    };
    let done = tree.0.compact(&[ino], |_| Some(reads.clone()), |_| true);
    let done = done.unwrap();
    assert_eq!(done.warnings.len(), 1, "{done:?}");
    assert!(done.warnings[0].contains("checksum is wrong"), "{done:?}");
    assert_eq!(tree.0.failure(), None);
    let mut page = vec![0; PAGE];
    tree.0.read(ino, 7 * PAGE as u64, &mut page).unwrap();
    assert!(page == content[7 * PAGE..8 * PAGE]);
}

/// A log with a program whose launches read some of it, unmounted and mounted again.
fn launched() -> (Arc<Log>, Ino, Vec<u8>) {
    let (device, tree, content) = installed(600);
    let ino = tree.ino("lib.so").unwrap();
    let core = read_by(2, (0..40).map(|at| (at, 599 - 13 * at as u32)));
    let reads = FileReads {
        core,
        ..FileReads::default()
    };
    let done = tree.0.compact(&[ino], |_| Some(reads.clone()), |_| true);
    done.unwrap();
    tree.0.close().unwrap();
    drop(tree);
    let tree = mounted(&device);
    // It is known from here on.
    tree.0.lookup(tree.0.root(), b"lib.so").unwrap();
    (Arc::new(tree.0), ino, content)
}

/// Holds what a cache is given: inode, offset, content.
type Given = Receiver<(Ino, u64, Vec<u8>)>;

fn cache(log: &Arc<Log>) -> Given {
    let (sender, receiver) = channel();
    log.prefetch(move |ino, offset, data| sender.send((ino, offset, data.to_vec())).is_ok())
        .unwrap();
    receiver
}

/// Returns what was given until nothing has come for a while, which is long where some are awaited yet.
fn pages(given: &Given, ino: Ino, content: &[u8], awaited: &BTreeSet<u64>) -> BTreeSet<u64> {
    let mut pages = BTreeSet::new();
    let patience = |pages: &BTreeSet<u64>| match pages.is_superset(awaited) {
        true => Duration::from_millis(300),
        false => Duration::from_secs(60),
    };
    while let Ok((whose, offset, data)) = given.recv_timeout(patience(&pages)) {
        let at = offset as usize;
        assert_eq!(whose, ino);
        assert!(at + data.len() <= content.len(), "{at}, {}", data.len());
        assert!(data == content[at..at + data.len()], "at {at}");
        pages.extend((at / PAGE..(at + data.len()).div_ceil(PAGE)).map(|page| page as u64));
    }
    pages
}

#[test]
fn who_reads_what_launches_do_is_given_what_they_read_next() {
    let (log, ino, content) = launched();
    let given = cache(&log);
    let mut page = vec![0; PAGE];
    for at in 0..3 {
        log.read(ino, (599 - 13 * at) * PAGE as u64, &mut page)
            .unwrap();
    }
    // Who has asked for a page has it.
    let expected: BTreeSet<u64> = (3..40).map(|at| 599 - 13 * at).collect();
    let pages = pages(&given, ino, &content, &expected);
    assert!(pages.is_superset(&expected), "{pages:?}");
}

#[test]
fn what_lies_in_the_order_of_launches_is_read_in_jumps() {
    let (log, ino, _) = launched();
    assert!(!log.is_read_in_jumps(ino), "nothing comes along");
    let _given = cache(&log);
    let text = log.lookup(log.root(), b"text").unwrap().ino;
    assert!(log.is_read_in_jumps(ino) && !log.is_read_in_jumps(text));
    let writer = OpenFile {
        ino,
        handle: log.open(ino, 2).unwrap(),
    };
    log.write(writer, 0, b"other content", false).unwrap();
    assert!(!log.is_read_in_jumps(ino));
    log.release(writer);
}

/// A device that counts the requests to read.
struct Counting {
    inner: Arc<MemoryDevice>,
    reads: AtomicUsize,
}

impl Device for Counting {
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        self.reads.fetch_add(1, Ordering::SeqCst);
        self.inner.read_at(offset, buf)
    }

    fn size(&self) -> u64 {
        self.inner.size()
    }

    fn name(&self) -> String {
        self.inner.name()
    }
}

impl WritableDevice for Counting {
    fn write_at(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.inner.write_at(offset, data)
    }

    fn flush(&self) -> io::Result<()> {
        self.inner.flush()
    }
}

/// Also where it goes on in another segment.
#[test]
fn a_launch_takes_few_requests() {
    let (inner, tree, content) = installed(2400);
    let ino = tree.ino("lib.so").unwrap();
    let lblks: Vec<u32> = (0..1200).map(|at| 2399 - 2 * at).collect();
    let core = FileReads {
        core: read_by(3, (0..).zip(lblks.iter().copied())),
        ..FileReads::default()
    };
    let done = tree.0.compact(&[ino], |_| Some(core.clone()), |_| true);
    done.unwrap();
    tree.0.close().unwrap();
    drop(tree);
    let device = Arc::new(Counting {
        inner,
        reads: AtomicUsize::new(0),
    });
    let log = Arc::new(Log::open(device.clone(), with(Policy::Record)).unwrap());
    log.lookup(log.root(), b"lib.so").unwrap();
    log.prefetch(|_, _, _| true).unwrap();
    let before = device.reads.load(Ordering::SeqCst);
    let mut page = vec![0; PAGE];
    for lblk in lblks {
        let at = lblk as usize * PAGE;
        let len = log.read(ino, at as u64, &mut page).unwrap();
        assert!(page[..len] == content[at..at + len], "{lblk}");
    }
    let requests = device.reads.load(Ordering::SeqCst) - before;
    // Of some 650 blocks that hold them, and three nodes.
    assert!(requests < 16, "{requests}");
}

#[test]
fn a_file_that_somebody_may_write_to_is_not_given_to_caches() {
    let (log, ino, content) = launched();
    let given = cache(&log);
    let writer = OpenFile {
        ino,
        handle: log.open(ino, 1).unwrap(),
    };
    let mut page = vec![0; PAGE];
    let mut read = |awaited: BTreeSet<u64>| {
        log.read(ino, 599 * PAGE as u64, &mut page).unwrap();
        pages(&given, ino, &content, &awaited)
    };
    assert_eq!(read([].into()), BTreeSet::new());
    log.release(writer);
    let reader = OpenFile {
        ino,
        handle: log.open(ino, 0).unwrap(),
    };
    assert!(read([586].into()).contains(&586));
    log.release(reader);
}

/// Whatever is written, cut off and cleaned between, and however much is read: a cache that lets go of what is written never
/// holds anything else than the file does.
#[test]
fn what_is_given_is_what_the_file_holds() {
    let (log, ino, content) = launched();
    let held = Arc::new(Mutex::new(BTreeMap::new()));
    let cache = held.clone();
    let keep = move |ino: Ino, offset: u64, data: &[u8]| {
        let pages = data.chunks(PAGE).map(<[u8]>::to_vec);
        let pages = (offset / PAGE as u64..).zip(pages);
        cache
            .lock()
            .unwrap()
            .extend(pages.map(|(at, page)| ((ino, at), page)));
        true
    };
    log.prefetch(keep).unwrap();
    let mut content = content;
    let mut page = vec![0; PAGE];
    for round in 0..60_u64 {
        for at in 0..4 {
            let lblk = 599 - 13 * ((round + at) % 40);
            let count = log.read(ino, lblk * PAGE as u64, &mut page).unwrap();
            let start = lblk as usize * PAGE;
            assert!(page[..count] == content[start..start + count], "{round}");
        }
        let lblk = 13 * (round % 46);
        let file = open_at_last(&log, ino);
        held.lock().unwrap().remove(&(ino, lblk));
        let data = bytes(round, PAGE);
        log.write(file, lblk * PAGE as u64, &data, false).unwrap();
        let start = lblk as usize * PAGE;
        content[start..start + PAGE].copy_from_slice(&data);
        if round % 7 == 3 {
            log.fsync(file, false).unwrap();
            log.clean().unwrap();
            log.checkpoint().unwrap();
        }
        log.release(file);
        if round % 20 == 9 {
            let reads = reads(ino);
            log.compact(&[ino], |_| Some(reads.clone()), |_| true)
                .unwrap();
        }
        for ((_, at), page) in held.lock().unwrap().iter() {
            let start = *at as usize * PAGE;
            assert!(
                content[start..start + page.len()] == **page,
                "{round}: {at}"
            );
        }
    }
}

/// The thread that gives content to a cache comes to its end with the log.
#[test]
fn nobody_reads_ahead_for_a_log_that_is_gone() {
    let log = Arc::new(Log::open(device(32 * MIB), with(Policy::Record)).unwrap());
    let given = cache(&log);
    drop(log);
    let end = given.recv_timeout(Duration::from_secs(60));
    assert_eq!(end, Err(RecvTimeoutError::Disconnected));
}

/// Waits until something is so, for as long as anything may take.
fn wait_for(is_so: &AtomicBool) -> bool {
    let begun = Instant::now();
    while !is_so.load(Ordering::SeqCst) && begun.elapsed() < Duration::from_secs(60) {
        thread::sleep(Duration::from_millis(1));
    }
    is_so.load(Ordering::SeqCst)
}

/// Runs something that has to wait while somebody is at a place, and says whether it did.
fn waits_for(is_there: &AtomicBool, may_go: &AtomicBool, work: impl FnOnce() + Send) -> bool {
    assert!(wait_for(is_there));
    thread::scope(|scope| {
        let work = scope.spawn(work);
        thread::sleep(Duration::from_millis(150));
        let is_early = work.is_finished();
        may_go.store(true, Ordering::SeqCst);
        !is_early
    })
}

fn read_some(log: &Log, ino: Ino) {
    let mut page = vec![0; PAGE];
    for at in 0..3 {
        log.read(ino, (599 - 13 * at) * PAGE as u64, &mut page)
            .unwrap();
    }
}

/// Content that is given away while a file is written to would be old when it arrives. Nobody waits for whoever gives.
#[test]
fn whoever_opens_a_file_to_write_is_refused_while_content_is_being_given_away() {
    let (log, ino, _) = launched();
    let (is_there, may_go) = (
        Arc::new(AtomicBool::new(false)),
        Arc::new(AtomicBool::new(false)),
    );
    let (there, go) = (is_there.clone(), may_go.clone());
    log.prefetch(move |_, _, _| {
        there.store(true, Ordering::SeqCst);
        wait_for(&go)
    })
    .unwrap();
    read_some(&log, ino);
    assert!(wait_for(&is_there));
    assert!(is(log.open(ino, 1), FsError::Later));
    may_go.store(true, Ordering::SeqCst);
    log.release(open_at_last(&log, ino));
}

/// Compacts a program of 600 blocks by two launches, which read some of them from the last to the first, and unmounts.
fn compact_backwards(tree: Tree, ino: Ino) {
    let reads = FileReads {
        core: read_by(2, (0..40).map(|at| (at, 599 - 13 * at as u32))),
        ..FileReads::default()
    };
    let done = tree.0.compact(&[ino], |_| Some(reads.clone()), |_| true);
    done.unwrap();
    tree.0.close().unwrap();
    drop(tree);
}

/// No segment is given back while somebody reads there what nobody has asked for.
#[test]
fn a_checkpoint_waits_for_what_is_being_read_ahead() {
    let (inner, tree, _) = installed(600);
    let ino = tree.ino("lib.so").unwrap();
    compact_backwards(tree, ino);
    let (is_there, may_go) = (
        Arc::new(AtomicBool::new(false)),
        Arc::new(AtomicBool::new(false)),
    );
    let (there, go) = (is_there.clone(), may_go.clone());
    let device = Hooked::around(inner, move |asked| {
        let is_ahead = thread::current().name() == Some("log-ahead");
        if is_ahead && matches!(asked, Asked::ReadAlone(..)) {
            there.store(true, Ordering::SeqCst);
            wait_for(&go);
        }
    });
    let log = Arc::new(Log::open(Arc::new(device), with(Policy::Record)).unwrap());
    log.lookup(log.root(), b"lib.so").unwrap();
    log.prefetch(|_, _, _| true).unwrap();
    read_some(&log, ino);
    let checkpoint = || {
        log.setxattr(ino, b"user.a", b"a change", 0).unwrap();
        log.checkpoint().unwrap();
    };
    assert!(waits_for(&is_there, &may_go, checkpoint));
}

fn installed_and_recorded(pages: usize) -> (Arc<Recorder>, Tree) {
    let (device, tree, _) = installed(pages);
    tree.0.close().unwrap();
    drop(tree);
    let recorder = Arc::new(Recorder::new(&device.to_vec()));
    let tree = open_with(recorder.clone(), with(Policy::Record));
    tree.0.checkpoint().unwrap();
    (recorder, tree)
}

/// What compaction has moved is in no group with its checksum: it has to be on the device before records say where it is.
#[test]
fn what_was_moved_is_flushed_before_a_sync_says_where_it_is() {
    let (recorder, tree) = installed_and_recorded(300);
    let compacted = tree.compact(&["lib.so"]).unwrap();
    assert_eq!(compacted.seen, 300);
    let already = seen(&recorder);
    tree.fsync("lib.so").unwrap();
    assert_eq!(given_since(&recorder, already).1, 2);
}

/// Nothing waits in memory for somebody else to write it.
#[test]
fn each_step_of_compaction_brings_what_it_moves_to_the_device() {
    let (recorder, tree) = installed_and_recorded(3000);
    let (before, already) = (tree.blocks_written(), seen(&recorder));
    let given = || tree.blocks_written() - before == given_since(&recorder, already).0;
    let ino = tree.ino("lib.so").unwrap();
    let (mut steps, mut behind) = (0, 0);
    let goes_on = |_: &Compacted| {
        steps += 1;
        behind += u32::from(!given());
        true
    };
    let reads = FileReads {
        looked_up: Some(Mark {
            order: ino.0,
            launches: 3,
        }),
        ..reads(ino)
    };
    let done = tree.0.compact(&[ino], |_| Some(reads.clone()), goes_on);
    done.unwrap();
    assert!(steps > 5 && behind == 0, "{behind} of {steps}");
    assert!(given());
    assert!(tree.blocks_written() > before + 1000);
}

/// Nodes that lead to what launches read lie together, with the inodes.
#[test]
fn what_leads_to_the_content_of_a_launch_lies_with_its_inode() {
    // So large that nodes that hardly change have segments of their own.
    let device = device(700 * MIB);
    let tree = mounted(&device);
    tree.put("lib.so", &program(600)).unwrap();
    tree.0.checkpoint().unwrap();
    let ino = tree.ino("lib.so").unwrap();
    compact_backwards(tree, ino);
    let mut inspector = Inspector::open(device, &with(Policy::Record)).unwrap();
    let nodes = inspector.inode(ino.0 as u32).unwrap().nodes;
    assert!(nodes.len() > 1);
    for node in nodes {
        let place = inspector.block(node.block.unwrap()).unwrap();
        let kind = place.segment.map(|(kind, _)| kind);
        let expected = match node.slot {
            Some(_) => HeadKind::Moved,
            None => HeadKind::ColdNode,
        };
        assert_eq!(kind, Some(expected), "{node:?}");
    }
}

/// So many files that shrink, all of them on the device.
fn small_files(tree: &Tree, count: usize) -> Vec<Ino> {
    let made = (0..count).map(|n| {
        let name = n.to_string();
        tree.put(&name, &[b'a'; 5000]).unwrap();
        tree.ino(&name).unwrap()
    });
    let inos = made.collect();
    tree.0.checkpoint().unwrap();
    inos
}

/// Encoders take memory that inodes and nodes had.
#[test]
fn caches_make_room_for_encoders() {
    let device = device(256 * MIB);
    let options = Options {
        memory_bytes: 8 << 20,
        ..with(Policy::Record)
    };
    let tree = open_with(device, options);
    let inos = small_files(&tree, 4000);
    let held = || tree.0.condition().memory_bytes >> 20;
    assert!(held() >= 4, "{} MiB", held());
    let mut most = 0;
    let goes_on = |_: &Compacted| {
        most = most.max(held());
        true
    };
    let done = tree.0.compact(&inos, |_| None, goes_on).unwrap();
    assert_eq!(done.files, 4000);
    assert!((1..4).contains(&most), "{most} MiB");
}

/// A file of which nothing is left to do takes no memory from then on.
#[test]
fn settled_files_do_not_stay_in_memory() {
    let options = Options {
        memory_bytes: 2 << 20,
        ..with(Policy::Record)
    };
    let tree = open_with(device(256 * MIB), options);
    let inos = small_files(&tree, 3000);
    let held = || tree.0.condition().memory_bytes;
    let compact = || tree.0.compact(&inos, |_| None, |_| true).unwrap().seen;
    assert!(compact() > 0);
    assert_eq!(compact(), 0);
    assert!(held() < 3 << 20, "{}", held());
    tree.0.estimate(&inos, |_| None, 1, |_| true).unwrap();
    assert!(held() < 3 << 20, "{}", held());
}
