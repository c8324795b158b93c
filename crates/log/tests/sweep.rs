//! Files that are compressed in the background though nobody has asked for it.

mod support;

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use anteros_core::{FileSystem, Ino, MemoryDevice, Timestamp};
use anteros_log::{Class, Compacted, Launches, Options, Policy, Sweep};
use support::hooked::{Asked, Hooked};
use support::surgeon::Surgeon;
use support::*;

const PAGE: usize = 4096;
const AT_ONCE: Duration = Duration::ZERO;

fn mounted(device: &Arc<MemoryDevice>) -> Tree {
    open_with(device.clone(), with(Policy::Record))
}

/// Content that shrinks to a half.
fn text(seed: u64, pages: usize) -> Vec<u8> {
    let page = |at| [bytes(seed + at, PAGE / 2), vec![at as u8; PAGE / 2]].concat();
    (0..pages as u64).flat_map(page).collect()
}

type Files = Vec<(&'static str, Vec<u8>)>;

/// A log with some files, and their content.
fn filled() -> (Arc<MemoryDevice>, Tree, Files) {
    let device = device(256 * MIB);
    let tree = mounted(&device);
    let files = vec![
        ("text", text(1, 300)),
        ("lib.so", text(2, 300)),
        ("noise", bytes(3, 300 * PAGE)),
        ("data.db", text(4, 300)),
    ];
    for (name, content) in &files {
        tree.put(name, content).unwrap();
    }
    tree.mkdir("directory").unwrap();
    tree.0.checkpoint().unwrap();
    (device, tree, files)
}

fn assert_whole(tree: &Tree, files: &[(&str, Vec<u8>)]) {
    for (name, content) in files {
        assert!(tree.read(name).unwrap() == *content, "{name}");
    }
}

#[test]
fn all_files_but_databases_are_compressed_once() {
    let (device, tree, mut files) = filled();
    let before = tree.0.condition().used_blocks;
    let mut sweep = Sweep::default();
    let done = tree.sweep(&mut sweep, AT_ONCE).unwrap();
    assert_eq!((done.files, done.seen, done.warnings.len()), (3, 900, 0));
    assert_eq!(done.blocks, 600);
    assert!(done.processor > Duration::ZERO);
    tree.0.checkpoint().unwrap();
    assert!(tree.0.condition().used_blocks < before - 250);
    assert_whole(&tree, &files);
    // What the round itself has changed is looked at once more, and is settled.
    for _ in 0..2 {
        assert_eq!(tree.sweep(&mut sweep, AT_ONCE).unwrap().files, 0);
    }
    tree.write("noise", 0, b"a change").unwrap();
    files[2].1[..8].copy_from_slice(b"a change");
    tree.0.checkpoint().unwrap();
    let done = tree.sweep(&mut sweep, AT_ONCE).unwrap();
    assert_eq!((done.files, done.seen, done.blocks), (1, 300, 0));
    tree.0.close().unwrap();
    drop(tree);
    assert_sound(device.clone());
    // The next mount knows how far the last one came.
    let tree = mounted(&device);
    assert_whole(&tree, &files);
    assert_eq!(tree.sweep_all().unwrap().files, 0);
}

/// Whoever starts a program reads a little of it here and there.
#[test]
fn programs_of_which_no_launch_is_known_lie_in_small_pieces() {
    let (_, tree, _) = filled();
    tree.sweep_all().unwrap();
    tree.0.checkpoint().unwrap();
    let decoded = |name: &str| {
        let ino = tree.ino(name).unwrap();
        let classes = || {
            let of = |class| tree.0.condition().statistics.class(class).read_stored_pages;
            Class::ALL.into_iter().map(of).sum::<u64>()
        };
        let before = classes();
        let mut page = vec![0; PAGE];
        tree.0.read(ino, 40 * PAGE as u64, &mut page).unwrap();
        classes() - before
    };
    let (program, other) = (decoded("lib.so"), decoded("text"));
    assert!(program <= 16 && other >= 32, "{program}, {other} pages");
}

/// A round costs no request where nothing has changed since the last one.
#[test]
fn a_round_passes_what_has_not_changed() {
    let (inner, tree, _) = filled();
    tree.sweep_all().unwrap();
    tree.0.close().unwrap();
    drop(tree);
    let reads = Arc::new(AtomicUsize::new(0));
    let counted = reads.clone();
    let device = Hooked::around(inner, move |asked| {
        let is_read = matches!(asked, Asked::Read(..) | Asked::ReadAlone(..));
        counted.fetch_add(usize::from(is_read), Ordering::SeqCst);
    });
    let tree = open_with(Arc::new(device), with(Policy::Record));
    let mut sweep = Sweep::default();
    tree.sweep(&mut sweep, AT_ONCE).unwrap();
    let before = reads.load(Ordering::SeqCst);
    for _ in 0..3 {
        assert_eq!(
            tree.sweep(&mut sweep, AT_ONCE).unwrap(),
            Compacted::default()
        );
    }
    assert_eq!(reads.load(Ordering::SeqCst), before);
    tree.put("new", &text(9, 64)).unwrap();
    tree.0.checkpoint().unwrap();
    assert_eq!(tree.sweep(&mut sweep, AT_ONCE).unwrap().files, 1);
}

static NOW: AtomicI64 = AtomicI64::new(1_000_000);

fn set_clock() -> Timestamp {
    Timestamp {
        secs: NOW.load(Ordering::SeqCst),
        nanos: 0,
    }
}

#[test]
fn what_was_changed_a_while_ago_is_left_for_later() {
    const COLD: Duration = Duration::from_secs(300);
    let options = Options {
        policy: Policy::Record,
        ..Options::new(set_clock)
    };
    let tree = open_with(device(256 * MIB), options);
    let mut sweep = Sweep::default();
    tree.put("old", &text(1, 64)).unwrap();
    NOW.fetch_add(200, Ordering::SeqCst);
    tree.put("young", &text(2, 64)).unwrap();
    tree.0.checkpoint().unwrap();
    assert_eq!(tree.sweep(&mut sweep, COLD).unwrap().files, 0);
    NOW.fetch_add(100, Ordering::SeqCst);
    assert_eq!(tree.sweep(&mut sweep, COLD).unwrap().files, 1);
    NOW.fetch_add(200, Ordering::SeqCst);
    assert_eq!(tree.sweep(&mut sweep, COLD).unwrap().files, 1);
    // A file of the future is as old as any.
    tree.put("strange", &text(3, 64)).unwrap();
    tree.0.checkpoint().unwrap();
    NOW.fetch_sub(100_000, Ordering::SeqCst);
    assert_eq!(tree.sweep(&mut sweep, COLD).unwrap().files, 1);
}

/// Each time, somebody comes after a step or two.
#[test]
fn who_is_interrupted_goes_on_there() {
    let device = device(256 * MIB);
    let tree = mounted(&device);
    // 64 MiB of which nothing shrinks: nothing that lies on the device tells what was looked at.
    let pages = 16 << 10;
    let content = bytes(5, pages * PAGE);
    tree.put("noise", &content).unwrap();
    tree.0.checkpoint().unwrap();
    let (mut sweep, mut seen, mut calls) = (Sweep::default(), 0, 0);
    loop {
        let mut turns = 0;
        let goes_on = |_: &Compacted| {
            turns += 1;
            turns <= 20
        };
        let done = tree.0.sweep(&mut sweep, AT_ONCE, goes_on, &|| false);
        let Some(done) = done.unwrap() else { break };
        seen += done.seen;
        calls += usize::from(done.seen > 0);
        assert!(calls < 10, "it does not end");
    }
    assert!(calls > 3, "{calls}");
    assert!(seen < 2 * pages as u64, "{seen} of {pages}");
    assert_eq!(tree.sweep_all().unwrap().files, 0);
    assert!(tree.read("noise").unwrap() == content);
}

/// A request that comes does not wait until a step of 1 MiB is compressed.
#[test]
fn it_ends_between_two_windows() {
    let (device, tree, files) = filled();
    let asked = AtomicUsize::new(0);
    let interrupted = || asked.fetch_add(1, Ordering::SeqCst) > 7;
    let mut sweep = Sweep::default();
    let done = tree.0.sweep(&mut sweep, AT_ONCE, |_| true, &interrupted);
    let done = done.unwrap().unwrap();
    // Some windows were compressed, and none is written now: who came may be about to want more.
    assert_eq!((done.seen, done.blocks), (256, 0));
    assert!(done.processor > Duration::ZERO);
    assert_whole(&tree, &files);
    let rest = tree.sweep(&mut sweep, AT_ONCE).unwrap();
    assert_eq!(rest.blocks, 600);
    assert_whole(&tree, &files);
    tree.0.close().unwrap();
    assert_sound(device);
}

#[test]
fn programs_wait_while_launches_are_recorded() {
    let (_, tree, files) = filled();
    let log = &tree.0;
    log.record_launches(Launches::new(log.uuid(), 3));
    let done = tree.sweep_all().unwrap();
    assert_eq!((done.files, done.seen), (2, 600));
    assert_whole(&tree, &files);
}

#[test]
fn what_cannot_be_read_is_told_and_passed() {
    let (device, tree, files) = filled();
    let Ino(ino) = tree.ino("text").unwrap();
    tree.0.close().unwrap();
    drop(tree);
    let surgeon = Surgeon::new(device.clone());
    let place = surgeon.pointer(ino as u32, 7);
    surgeon.write(place, &[9; PAGE]);
    surgeon.finish();
    let tree = mounted(&device);
    let mut sweep = Sweep::default();
    let done = tree.sweep(&mut sweep, AT_ONCE).unwrap();
    assert_eq!(done.warnings.len(), 1, "{:?}", done.warnings);
    assert_eq!(done.blocks, 600 - 32);
    // Nobody hears of it in each round.
    tree.0.checkpoint().unwrap();
    for _ in 0..3 {
        tree.sweep(&mut sweep, AT_ONCE).unwrap();
    }
    let again = tree.sweep(&mut sweep, AT_ONCE).unwrap();
    assert_eq!(again, Compacted::default());
    assert_whole(&tree, &files[1..]);
}

#[test]
fn inodes_that_cannot_be_read_are_told_and_passed() {
    let (device, tree, _) = filled();
    let Ino(ino) = tree.ino("text").unwrap();
    tree.0.close().unwrap();
    drop(tree);
    let surgeon = Surgeon::new(device.clone());
    surgeon.write(surgeon.place(ino as u32), &[9; PAGE]);
    surgeon.finish();
    let done = mounted(&device).sweep_all().unwrap();
    assert!(
        done.warnings[0].starts_with(&format!("inode {ino}: ")),
        "{:?}",
        done.warnings
    );
}

#[test]
fn a_full_log_gets_room_again() {
    let device = device(64 * MIB);
    let tree = open_plainly(device.clone());
    tree.put("text", &text(1, 300)).unwrap();
    tree.fill("noise", 1 << 20);
    tree.0.close().unwrap();
    drop(tree);
    let tree = mounted(&device);
    let free = || tree.0.statfs().unwrap().blocks_free;
    assert_eq!(free(), 0);
    assert_eq!(tree.sweep_all().unwrap().blocks, 300);
    assert!(free() > 100, "{}", free());
    assert!(tree.read("text").unwrap() == text(1, 300));
    tree.0.close().unwrap();
    assert_sound(device);
}

/// Files change, grow, shrink and go away while rounds go over them.
#[test]
fn what_is_written_meanwhile_stays() {
    let (device, tree, mut files) = filled();
    thread::scope(|scope| {
        let sweeper = scope.spawn(|| {
            let mut sweep = Sweep::default();
            let (mut rounds, mut blocks) = (0, 0);
            while rounds < 300 || blocks < 600 {
                blocks += tree.sweep(&mut sweep, AT_ONCE).unwrap().blocks;
                rounds += 1;
                assert!(rounds < 1_000_000, "{blocks} blocks");
            }
        });
        let mut random = dice(11);
        let mut turn = 0;
        while !sweeper.is_finished() {
            turn += 1;
            let (name, content) = &mut files[random(4) as usize];
            let at = random(300) as usize * PAGE;
            match random(20) {
                0 => {
                    content.resize(at, 0);
                    tree.truncate(name, at as u64).unwrap();
                }
                1 => tree.fsync(name).unwrap(),
                2..5 => tree.0.checkpoint().unwrap(),
                5 => {
                    tree.unlink(name).unwrap();
                    *content = text(turn, 100);
                    tree.put(name, content).unwrap();
                }
                _ => {
                    let page = bytes(turn, PAGE / 2);
                    tree.write(name, at as u64, &page).unwrap();
                    content.resize(content.len().max(at + page.len()), 0);
                    content[at..at + page.len()].copy_from_slice(&page);
                }
            }
        }
        sweeper.join().unwrap();
    });
    assert_whole(&tree, &files);
    tree.0.close().unwrap();
    drop(tree);
    assert_sound(device.clone());
    assert_whole(&mounted(&device), &files);
}
