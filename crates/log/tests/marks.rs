//! Marks of what has changed, and what follows from them: what was written is written once, what is counted is what the
//! device was given, and what could not be written keeps everything from being changed.

mod support;

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::panic::{self, AssertUnwindSafe};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use anteros_core::{
    Attr, Changes, Device, FileKind, FileSystem, FsResult, MemoryDevice, OpenFile, Timestamp,
    Writable, WritableDevice,
};
use anteros_log::{Mode, Options, Policy, check};
use anteros_tests::crash::{Operation, Recorder};
use anteros_tests::faulty::{Call, Faulty, When};
use rustix::io::Errno;
use support::*;

type Step = (&'static str, fn(&Tree) -> FsResult<()>);

/// Changes of every kind.
const STEPS: &[Step] = &[
    ("a directory", |tree| tree.mkdir("d")),
    ("a file", |tree| tree.create("d/f")),
    ("a little content", |tree| {
        tree.write("d/f", 0, b"little").map(drop)
    }),
    ("more", |tree| {
        tree.write("d/f", 3, &bytes(1, 200_000)).map(drop)
    }),
    ("a page again", |tree| {
        tree.write("d/f", 8192, &bytes(2, 4096)).map(drop)
    }),
    ("part of a page", |tree| {
        tree.write("d/f", 20_001, &bytes(3, 77)).map(drop)
    }),
    ("content that is not synced", |tree| {
        tree.put("other", &bytes(4, 2_500_000))
    }),
    ("a hole", |tree| tree.allocate("d/f", 4096, 40_000, 3)),
    ("a promise", |tree| {
        tree.allocate("d/f", 300_000, 100_000, 0)
    }),
    ("part of a promise", |tree| {
        tree.write("d/f", 310_000, &bytes(5, 5000)).map(drop)
    }),
    ("a shorter file", |tree| tree.truncate("d/f", 150_001)),
    ("a longer file", |tree| tree.truncate("d/f", 170_000)),
    ("small attributes", |tree| {
        tree.0.setxattr(tree.ino("d/f")?, b"user.a", &[1; 30], 0)
    }),
    ("large attributes", |tree| {
        tree.0.setxattr(tree.ino("d/f")?, b"user.b", &[2; 2000], 0)
    }),
    ("no attributes", |tree| {
        tree.0.removexattr(tree.ino("d/f")?, b"user.b")?;
        tree.0.removexattr(tree.ino("d/f")?, b"user.a")
    }),
    ("an owner", |tree| {
        let changes = Changes {
            uid: Some(5),
            perm: Some(0o600),
            ..Changes::default()
        };
        tree.0.change(tree.ino("d/f")?, None, &changes).map(drop)
    }),
    ("a link", |tree| tree.link("d/f", "hard")),
    ("a symbolic link", |tree| tree.symlink("d/s", &[b'x'; 300])),
    ("many names", |tree| {
        (0..150).try_for_each(|n| tree.create(&format!("d/name that is rather long {n}")))
    }),
    ("another name", |tree| tree.rename("d/s", "s", 0)),
    ("a name instead of another", |tree| {
        tree.create("new")?;
        tree.rename("new", "s", 0)
    }),
    ("two names exchanged", |tree| tree.rename("s", "d/f", 2)),
    ("names that go", |tree| {
        (0..145).try_for_each(|n| tree.unlink(&format!("d/name that is rather long {n}")))
    }),
    ("a file that is gone while it is open", |tree| {
        let ino = tree.ino("other")?;
        let handle = tree.0.open(ino, 2)?;
        tree.unlink("other")?;
        tree.0.release(OpenFile { ino, handle });
        Ok(())
    }),
    ("an empty file", |tree| tree.truncate("hard", 0)),
];

/// More of them, of names and attributes and of files that have nodes.
const MORE_STEPS: &[Step] = &[
    ("a directory elsewhere", |tree| tree.mkdir("e")),
    ("a directory that moves", |tree| {
        tree.mkdir("d/inner")?;
        tree.rename("d/inner", "e/inner", 0)
    }),
    ("a directory that goes", |tree| tree.rmdir("e/inner")),
    ("a file that moves", |tree| {
        tree.put("d/moves", b"it moves")?;
        tree.rename("d/moves", "e/moves", 0)
    }),
    ("another that takes its name", |tree| {
        tree.put("d/moves", &bytes(1, 9000))?;
        tree.rename("d/moves", "e/moves", 0)
    }),
    ("two that change places", |tree| {
        tree.mkdir("d/swapped")?;
        tree.rename("d/swapped", "e/moves", 2)
    }),
    ("a link elsewhere", |tree| tree.link("d/swapped", "e/link")),
    ("one name less", |tree| tree.unlink("d/swapped")),
    ("a file without a name that gets one", |tree| {
        let file = tree.create_unnamed(tree.ino("e")?, 0o640)?;
        tree.0.write(file, 0, &bytes(2, 30_000), false)?;
        tree.0.fsync(file, false)?;
        let linked = tree.0.link(file.ino, tree.ino("e")?, b"named")?;
        tree.0.forget(linked.ino, 1);
        tree.0.release(file);
        Ok(())
    }),
    ("set-id bits", |tree| {
        let changes = Changes {
            perm: Some(0o6755),
            ..Changes::default()
        };
        tree.0
            .change(tree.ino("e/named")?, None, &changes)
            .map(drop)
    }),
    ("set-id bits that go", |tree| {
        let changes = Changes {
            drops_privileges: true,
            gid: Some(9),
            ..Changes::default()
        };
        tree.0
            .change(tree.ino("e/named")?, None, &changes)
            .map(drop)
    }),
    ("permissions by a list", |tree| {
        // Version 2; the owner, the group, others.
        let list = [
            &[2, 0, 0, 0][..],
            &[1, 0, 6, 0, 255, 255, 255, 255],
            &[4, 0, 4, 0, 255, 255, 255, 255],
            &[0x20, 0, 0, 0, 255, 255, 255, 255],
        ]
        .concat();
        let ino = tree.ino("e/named")?;
        tree.0.setxattr(ino, b"system.posix_acl_access", &list, 0)
    }),
    ("content far behind", |tree| {
        tree.create("far")?;
        (0..5).try_for_each(|n| {
            let at = n * 3_000_000_000 + 5_000_000;
            tree.write("far", at, &bytes(n, 9000)).map(drop)
        })
    }),
    ("holes far behind", |tree| {
        tree.allocate("far", 3_005_000_000, 6_000_000_000, 3)
    }),
    ("a shorter one", |tree| tree.truncate("far", 5_004_097)),
    ("content at its front", |tree| {
        tree.write("far", 0, &bytes(7, 20_000)).map(drop)
    }),
    ("nothing, and something else", |tree| {
        tree.truncate("far", 0)?;
        tree.write("far", 0, b"else").map(drop)
    }),
    ("little, and nothing", |tree| {
        tree.put("small", b"some bytes")?;
        tree.truncate("small", 0)?;
        tree.truncate("small", 20)
    }),
    ("a longer name for a symbolic link", |tree| {
        tree.symlink("e/s", &[b'y'; 3000])
    }),
];

/// All that is known of what is here.
fn picture(tree: &Tree) -> Vec<String> {
    let mut picture = Vec::new();
    let mut pending = vec![String::new()];
    while let Some(path) = pending.pop() {
        let mut attr = tree.attr(&path).unwrap();
        // To look at the content is to change it.
        attr.atime = attr.mtime;
        let xattrs = tree.0.listxattr(attr.ino).unwrap();
        let xattrs: Vec<_> = xattrs
            .into_iter()
            .map(|name| (tree.0.getxattr(attr.ino, &name).unwrap(), name))
            .collect();
        let mut content = String::new();
        if attr.kind == FileKind::Directory {
            let names = tree.list(&path).unwrap();
            pending.extend(names.iter().map(|name| format!("{path}/{name}")));
        } else if attr.size < 1 << 24 {
            content = format!("{:08x}", crc32c::crc32c(&tree.read(&path).unwrap()));
        }
        picture.push(format!("{path}: {attr:?} {xattrs:?} {content}"));
    }
    picture
}

/// All inodes with their attributes and with the names that they have and that they hold.
fn inodes(tree: &Tree) -> BTreeMap<u64, (Attr, BTreeSet<String>, Vec<String>)> {
    let mut inodes: BTreeMap<u64, (Attr, BTreeSet<String>, Vec<String>)> = BTreeMap::new();
    let mut pending = vec![String::new()];
    while let Some(path) = pending.pop() {
        let attr = tree.attr(&path).unwrap();
        let mut held = Vec::new();
        if attr.kind == FileKind::Directory {
            held = tree.list(&path).unwrap();
            pending.extend(held.iter().map(|name| format!("{path}/{name}")));
        }
        let known = inodes
            .entry(attr.ino.0)
            .or_insert((attr, BTreeSet::new(), held));
        known.1.insert(path);
    }
    inodes
}

/// Whoever gets or loses a name has another time of change, and a directory whose names change one of content as well.
#[test]
fn names_that_change_change_times() {
    let tree = open(device(32 * MIB));
    let mut before = inodes(&tree);
    for (what, step) in STEPS.iter().chain(MORE_STEPS) {
        step(&tree).unwrap();
        let after = inodes(&tree);
        for (ino, (attr, names, held)) in &after {
            let Some((was, had_names, had_held)) = before.get(ino) else {
                continue;
            };
            if held != had_held {
                assert_ne!(attr.mtime, was.mtime, "{what}: what {names:?} holds");
            }
            if held != had_held || names != had_names {
                assert_ne!(attr.ctime, was.ctime, "{what}: {names:?}");
            }
        }
        before = after;
    }
}

/// Whatever is changed is there after the next mount, whether it comes by records or by a checkpoint.
#[test]
fn what_was_changed_is_there_as_it_was_when_it_is_mounted_again() {
    for (evicts_always, checkpoints) in [(false, false), (true, false), (false, true), (true, true)]
    {
        let device = device(32 * MIB);
        let options = Options {
            evicts_always,
            ..options()
        };
        let tree = open_with(device.clone(), options);
        for (number, (what, step)) in STEPS.iter().chain(MORE_STEPS).enumerate() {
            step(&tree).unwrap_or_else(|error| panic!("{what}: {error}"));
            match checkpoints {
                true => tree.0.checkpoint().unwrap(),
                false => tree.0.sync().unwrap(),
            }
            let copy = Arc::new(MemoryDevice::new(device.to_vec()));
            let again = open(copy.clone());
            let place = format!("{what}, {evicts_always}, {checkpoints}");
            for (found, was) in picture(&again).iter().zip(&picture(&tree)) {
                assert_eq!(found, was, "{place}");
            }
            let (found, was) = (again.0.condition(), tree.0.condition());
            assert_eq!(found.inodes, was.inodes, "{place}");
            // The mount has written a checkpoint, which packs them.
            if !packs_inodes() {
                assert_eq!(found.used_blocks, was.used_blocks, "{place}");
            }
            if number % 4 > 0 {
                continue;
            }
            again.0.close().unwrap();
            drop(again);
            let report = check(copy, support::options()).unwrap();
            assert_eq!(report.faults, [""; 0], "{place}");
        }
    }
}

fn names(tree: &Tree) -> Vec<String> {
    let of = |path: &str| tree.list(path).unwrap();
    let below = of("d").into_iter().map(|name| format!("d/{name}"));
    of("").into_iter().chain(below).collect()
}

#[test]
fn what_is_durable_is_not_written_again() {
    for policy in [Policy::None, Policy::Paper] {
        let recorder = Arc::new(Recorder::new(&device(64 * MIB).to_vec()));
        let options = Options {
            policy,
            ..options_with(64 << 20)
        };
        let tree = open_with(recorder.clone(), options);
        tree.0.checkpoint().unwrap();
        for (number, (what, step)) in STEPS.iter().enumerate() {
            step(&tree).unwrap_or_else(|error| panic!("{what}: {error}"));
            // All at once, or one of them alone.
            match number % 2 {
                0 => tree.0.sync().unwrap(),
                _ => {
                    for name in names(&tree) {
                        tree.fsync(&name).unwrap();
                    }
                }
            }
            let (before, groups) = (seen(&recorder), tree.0.condition().statistics.groups);
            for name in names(&tree) {
                tree.fsync(&name).unwrap();
            }
            tree.0.sync().unwrap();
            assert_eq!(seen(&recorder), before, "{policy:?}: {what}, synced again");
            assert_eq!(tree.0.condition().statistics.groups, groups, "{what}");
            if number % 3 > 0 {
                continue;
            }
            tree.0.checkpoint().unwrap();
            let before = seen(&recorder);
            for name in names(&tree) {
                tree.fsync(&name).unwrap();
            }
            tree.0.sync().unwrap();
            // Segments that the first one has emptied are free with the second one.
            tree.0.checkpoint().unwrap();
            let settled = seen(&recorder);
            tree.0.checkpoint().unwrap();
            assert_eq!(seen(&recorder), settled, "{what}: settled");
            let writes = |from| blocks_since(&recorder, from);
            assert!(writes(before) <= 4, "{what}: {}", writes(before));
        }
        tree.0.close().unwrap();
    }
}

/// Tells how many blocks the device was given since it had seen so many operations.
fn blocks_since(recorder: &Recorder, seen: usize) -> u64 {
    let recording = recorder.recording();
    let written = recording.operations()[seen..]
        .iter()
        .map(|done| match done {
            Operation::Write { data, .. } => data.len().div_ceil(4096) as u64,
            _ => 0,
        });
    written.sum()
}

/// Each block that is written is counted, once, and nothing else.
#[test]
fn what_is_counted_is_what_the_device_is_given() {
    for (mode, policy) in [
        (Mode::default(), Policy::None),
        (Mode::Threaded, Policy::None),
        (Mode::default(), Policy::Paper),
    ] {
        let recorder = Arc::new(Recorder::new(&device(32 * MIB).to_vec()));
        let options = Options {
            mode,
            policy,
            ..options()
        };
        let tree = open_with(recorder.clone(), options);
        let mut given = (seen(&recorder), tree.blocks_written());
        let mut compare = |tree: &Tree, what: &str| {
            tree.0.checkpoint().unwrap();
            let now = (seen(&recorder), tree.blocks_written());
            let written = blocks_since(&recorder, given.0);
            assert_eq!(now.1 - given.1, written, "{mode:?}, {policy:?}: {what}");
            given = now;
        };
        for (what, step) in STEPS {
            step(&tree).unwrap();
            compare(&tree, what);
        }
        // Segments fill, are emptied in part, and are cleaned or filled again; the tables have more than a journal takes.
        for round in 0..7_u64 {
            tree.put(&format!("old{}", round % 3), &bytes(round, 1_600_000))
                .unwrap();
            for block in (round % 5..390).step_by(5) {
                let name = format!("old{}", (round + 1) % 3);
                if tree.ino(&name).is_ok() {
                    tree.write(&name, block * 4096, &bytes(block, 4096))
                        .unwrap();
                }
            }
            tree.0.clean().unwrap();
            compare(&tree, "content again and again");
        }
        tree.0.close().unwrap();
        drop(tree);
        let report = check(
            Arc::new(MemoryDevice::new(content(&*recorder))),
            support::options(),
        );
        assert_eq!(report.unwrap().faults, [""; 0]);
    }
}

fn content(device: &dyn Device) -> Vec<u8> {
    let mut bytes = vec![0; device.size() as usize];
    device.read_at(0, &mut bytes).unwrap();
    bytes
}

/// Nothing comes behind what is written last that would bring it to the device.
#[test]
fn the_last_thing_that_a_log_does_is_a_flush() {
    let recorder = Arc::new(Recorder::new(&device(32 * MIB).to_vec()));
    let tree = open_plainly(recorder.clone());
    tree.put("file", &bytes(1, 3_000_000)).unwrap();
    tree.0.close().unwrap();
    let recording = recorder.recording();
    let written = |done: &Operation| !matches!(done, Operation::Discard { .. });
    let last = recording
        .operations()
        .iter()
        .rev()
        .find(|done| written(done));
    assert!(matches!(last, Some(Operation::Flush)), "{last:?}");
}

/// Whatever could not be written or flushed: a device that works again does not make good what is missing.
#[test]
fn whoever_could_not_write_changes_nothing_any_more() {
    let base = device(32 * MIB).to_vec();
    let program = |tree: &Tree| -> FsResult<()> {
        tree.put("file", &bytes(1, 60_000))?;
        tree.fsync("file")?;
        tree.write("file", 4096, &bytes(2, 9000))?;
        tree.mkdir("d")?;
        tree.0.checkpoint()?;
        tree.put("d/more", &bytes(3, 100_000))?;
        tree.0.checkpoint()
    };
    for call in [Call::Write, Call::Flush] {
        let mut failed = 0;
        for nth in 0..200 {
            let device = Arc::new(Faulty::new(MemoryDevice::new(base.clone())));
            let tree = open_plainly(device.clone());
            device.inject(call, When::Nth(nth), Errno::IO);
            if program(&tree).is_ok() {
                break;
            }
            failed += 1;
            device.heal();
            assert!(tree.0.failure().is_some(), "{call:?} {nth}");
            assert!(tree.create("after").is_err(), "{call:?} {nth}");
            assert!(tree.0.checkpoint().is_err(), "{call:?} {nth}");
            assert!(tree.0.close().is_err(), "{call:?} {nth}");
        }
        assert!((3..200).contains(&failed), "{call:?}: {failed}");
    }
}

/// A panic in the middle of a change leaves what nobody knows.
#[test]
fn nothing_is_changed_after_a_panic() {
    static PANICS: AtomicBool = AtomicBool::new(false);
    fn now() -> Timestamp {
        assert!(!PANICS.load(Ordering::SeqCst), "a clock that panics");
        clock()
    }
    let device = device(32 * MIB);
    let options = Options {
        clock: now,
        ..options()
    };
    let tree = open_with(device.clone(), options);
    tree.create("before").unwrap();
    tree.fsync("before").unwrap();
    PANICS.store(true, Ordering::SeqCst);
    let panicked = panic::catch_unwind(AssertUnwindSafe(|| tree.create("between")));
    PANICS.store(false, Ordering::SeqCst);
    assert!(panicked.is_err());
    assert!(tree.create("after").is_err());
    assert!(tree.0.close().is_err());
    let why = tree.0.failure().unwrap();
    assert!(why.contains("panicked"), "{why}");
    drop(tree);
    assert_eq!(open(device).list("").unwrap(), ["before"]);
}

/// Without a thread that writes, those do it who have more written than there is memory for.
#[test]
fn content_that_memory_has_no_room_for_is_on_the_device_when_the_write_returns() {
    let recorder = Arc::new(Recorder::new(&device(32 * MIB).to_vec()));
    let options = Options {
        policy: Policy::None,
        ..options_with(160 << 10)
    };
    let tree = open_with(recorder.clone(), options);
    let before = seen(&recorder);
    for n in 0..6 {
        tree.put(&format!("file{n}"), &bytes(n, 50 * 4096)).unwrap();
        let written = blocks_since(&recorder, before);
        let asked = 50 * (n + 1);
        assert!(written + 60 > asked, "{written} of {asked}");
    }
}

/// A device on which the reads of content wait, and that tells of them and of what is discarded.
struct Gate {
    inner: MemoryDevice,
    is_shut: Mutex<bool>,
    opened: Mutex<Receiver<()>>,
    told: Sender<&'static str>,
}

impl Device for Gate {
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        if std::mem::take(&mut *self.is_shut.lock().unwrap()) {
            self.told.send("read").unwrap();
            let _ = self
                .opened
                .lock()
                .unwrap()
                .recv_timeout(Duration::from_secs(60));
            self.told.send("has read").unwrap();
        }
        self.inner.read_at(offset, buf)
    }

    fn size(&self) -> u64 {
        self.inner.size()
    }

    fn name(&self) -> String {
        self.inner.name()
    }
}

impl WritableDevice for Gate {
    fn write_at(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.inner.write_at(offset, data)
    }

    fn flush(&self) -> io::Result<()> {
        self.inner.flush()
    }

    fn discard(&self, offset: u64, len: u64) -> io::Result<()> {
        self.told.send("discard").unwrap();
        self.inner.discard(offset, len)
    }
}

/// Whoever found out where content lies reads it there without the lock of the state.
///
/// Invariant L11 of `docs/design/log.md`.
#[test]
fn a_segment_is_not_given_back_while_somebody_reads_there() {
    let (told, tells) = channel();
    let (open, opened) = channel();
    let device = Arc::new(Gate {
        inner: MemoryDevice::new(device(32 * MIB).to_vec()),
        is_shut: Mutex::new(false),
        opened: Mutex::new(opened),
        told,
    });
    let options = Options {
        prefetch_bytes: 0,
        ..plainly()
    };
    let tree = open_with(device.clone(), options);
    let data = bytes(1, 4_000_000);
    tree.put("file", &data).unwrap();
    tree.0.checkpoint().unwrap();
    while tells.try_recv().is_ok() {}
    let ino = tree.ino("file").unwrap();
    *device.is_shut.lock().unwrap() = true;
    let wait = || tells.recv_timeout(Duration::from_secs(60));
    thread::scope(|scope| {
        let tree = &tree;
        scope.spawn(move || {
            let mut found = vec![0; 4096];
            tree.0.read(ino, 0, &mut found).unwrap();
            assert!(found == data[..4096]);
        });
        assert_eq!(wait(), Ok("read"));
        scope.spawn(move || {
            tree.truncate("file", 0).unwrap();
            tree.0.checkpoint().unwrap();
            tree.0.checkpoint().unwrap();
        });
        let early = tells.recv_timeout(Duration::from_millis(150));
        open.send(()).unwrap();
        assert!(early.is_err(), "{early:?}");
        assert_eq!(wait(), Ok("has read"));
        assert_eq!(wait(), Ok("discard"));
    });
}
