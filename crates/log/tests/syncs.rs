//! Changes that a group or a checkpoint has, and those that it has not: what a sync brings, and what it does not write again.

mod support;

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

use anteros_core::{
    Changes, Counted, FileSystem, MemoryDevice, OpenFile, Timestamp, Writable, WritableDevice,
};
use anteros_log::{Options, Order, Policy};
use anteros_tests::crash::{Operation, Recorder};
use anteros_tests::faulty::{Call, Faulty, When};
use rustix::io::Errno;
use support::hooked::{Asked, Hooked};
use support::*;

/// A log as a cut of the power leaves it that loses nothing.
fn cut(device: &MemoryDevice) -> Tree {
    open(Arc::new(MemoryDevice::new(device.to_vec())))
}

fn perm(tree: &Tree, path: &str, perm: u16) {
    let changes = Changes {
        perm: Some(perm),
        ..Changes::default()
    };
    tree.0
        .change(tree.ino(path).unwrap(), None, &changes)
        .unwrap();
}

/// Names come with every sync; and with some of them content, without which they would say what is not there.
#[test]
fn names_bring_the_content_that_they_need() {
    let device = device(32 * MIB);
    let tree = open(device.clone());
    let (short, long) = ([b'x'; 60], [b'y'; 3900]);
    tree.symlink("short", &short).unwrap();
    tree.symlink("long", &long).unwrap();
    tree.put("replaced", b"old").unwrap();
    tree.fsync("replaced").unwrap();
    tree.put("new", &bytes(1, 9000)).unwrap();
    tree.rename("new", "replaced", 0).unwrap();
    let file = tree.create_unnamed(tree.0.root(), 0o640).unwrap();
    tree.0.write(file, 0, &bytes(2, 9000), false).unwrap();
    tree.0.link(file.ino, tree.0.root(), b"linked").unwrap();
    tree.fsync("").unwrap();
    let found = cut(&device);
    assert_eq!(found.read("short").unwrap(), short);
    assert_eq!(found.read("long").unwrap(), long);
    assert!(found.read("replaced").unwrap() == bytes(1, 9000));
    assert!(found.read("linked").unwrap() == bytes(2, 9000));
    // It goes no more when nobody holds it.
    tree.0.release(file);
    tree.0.forget(file.ino, 9);
    assert!(tree.read("linked").unwrap() == bytes(2, 9000));
}

/// Each of the two directories has lost something and got something else.
#[test]
fn two_names_that_are_exchanged_change_both_directories() {
    let tree = open(device(32 * MIB));
    for path in ["d", "e"] {
        tree.mkdir(path).unwrap();
    }
    for path in ["d/a", "e/b"] {
        tree.create(path).unwrap();
    }
    let paths = ["d", "e", "d/a", "e/b"];
    let before = paths.map(|path| tree.attr(path).unwrap());
    tree.rename("d/a", "e/b", 2).unwrap();
    let after = paths.map(|path| tree.attr(path).unwrap());
    for (before, after) in before.iter().zip(&after).take(2) {
        assert!(after.mtime > before.mtime && after.ctime > before.ctime);
    }
    assert_eq!((after[2].ino, after[3].ino), (before[3].ino, before[2].ino));
    assert!(after[2].ctime > before[3].ctime && after[3].ctime > before[2].ctime);
}

/// What came along with a name once does not do so again.
#[test]
fn content_that_came_with_a_name_comes_with_no_other() {
    for checkpoints in [false, true] {
        let device = device(32 * MIB);
        let tree = open(device.clone());
        tree.put("file", b"old").unwrap();
        tree.put("new", &bytes(1, 9000)).unwrap();
        tree.rename("new", "file", 0).unwrap();
        match checkpoints {
            true => tree.0.checkpoint().unwrap(),
            false => tree.fsync("").unwrap(),
        }
        tree.write("file", 0, &bytes(2, 9000)).unwrap();
        tree.create("other").unwrap();
        tree.fsync("").unwrap();
        let found = cut(&device);
        assert_eq!(found.list("").unwrap(), ["file", "other"]);
        assert!(
            found.read("file").unwrap() == bytes(1, 9000),
            "{checkpoints}"
        );
    }
}

/// Attributes are those of the moment of the last group, whatever it was for.
#[test]
fn privileges_that_a_write_took_are_gone_after_whatever_sync() {
    let device = device(32 * MIB);
    let tree = open(device.clone());
    tree.put("file", b"content").unwrap();
    perm(&tree, "file", 0o6755);
    tree.0.checkpoint().unwrap();
    let ino = tree.ino("file").unwrap();
    let file = OpenFile {
        ino,
        handle: tree.0.open(ino, 2).unwrap(),
    };
    tree.0.write(file, 0, b"other", true).unwrap();
    tree.0.release(file);
    tree.create("other").unwrap();
    tree.fsync("").unwrap();
    assert_eq!(cut(&device).attr("file").unwrap().perm, 0o755);
}

/// The operations of a device since it had seen so many: the blocks of each write, 0 for a flush.
fn since(recorder: &Recorder, seen: usize) -> Vec<usize> {
    let recording = recorder.recording();
    let operations = recording.operations()[seen..].iter();
    operations
        .filter_map(|done| match done {
            Operation::Write { data, .. } => Some(data.len() / 4096),
            Operation::Flush => Some(0),
            Operation::Discard { .. } => None,
        })
        .collect()
}

fn flushes(recorder: &Recorder, from: usize) -> usize {
    let operations = since(recorder, from);
    operations.iter().filter(|&&blocks| blocks == 0).count()
}

/// Neither a group nor another checkpoint has anything to say.
#[test]
fn nothing_is_said_again_that_a_checkpoint_has() {
    let (recorder, tree) = recorded(64 * MIB, plainly());
    let changes = |tree: &Tree| {
        tree.put("file", &bytes(1, 60_000)).unwrap();
        tree.put("gone", &bytes(2, 60_000)).unwrap();
        tree.0.sync().unwrap();
        tree.0
            .setxattr(tree.ino("file").unwrap(), b"user.a", &[1; 900], 0)
            .unwrap();
        tree.write("file", 4096, &bytes(3, 9000)).unwrap();
        tree.write("file", 5_000_000, &bytes(3, 9000)).unwrap();
        tree.allocate("file", 40_000, 9000, 3).unwrap();
        perm(tree, "file", 0o600);
        tree.unlink("gone").unwrap();
        tree.put("new", b"some bytes").unwrap();
    };
    changes(&tree);
    // Segments that the first one empties are free with the second one.
    tree.0.checkpoint().unwrap();
    let before = seen(&recorder);
    tree.fsync("file").unwrap();
    tree.fsync("new").unwrap();
    tree.fsync("").unwrap();
    tree.0.sync().unwrap();
    assert_eq!(since(&recorder, before), [0; 0]);
    tree.0.checkpoint().unwrap();
    let before = seen(&recorder);
    tree.0.checkpoint().unwrap();
    assert_eq!(since(&recorder, before), [0; 0]);
}

/// Attributes are said as a whole when one of them has changed, and else not at all.
#[test]
fn large_attributes_are_said_once() {
    for checkpoints in [false, true] {
        let (recorder, tree) = recorded(32 * MIB, plainly());
        tree.create("file").unwrap();
        tree.0
            .setxattr(tree.ino("file").unwrap(), b"user.a", &[1; 30_000], 0)
            .unwrap();
        match checkpoints {
            true => tree.0.checkpoint().unwrap(),
            false => tree.fsync("file").unwrap(),
        }
        perm(&tree, "file", 0o600);
        let before = seen(&recorder);
        tree.fsync("file").unwrap();
        assert_eq!(since(&recorder, before), [1, 0], "{checkpoints}");
    }
}

/// Content that is dropped before it has its place leaves nothing to be written.
#[test]
fn a_log_comes_to_rest_whatever_became_of_its_content() {
    for policy in [Policy::None, Policy::Force] {
        let options = Options {
            policy,
            ..options()
        };
        let (recorder, tree) = recorded(32 * MIB, options);
        tree.put("cut", &[b'a'; 30_000]).unwrap();
        tree.truncate("cut", 5000).unwrap();
        tree.put("punched", &[b'b'; 30_000]).unwrap();
        tree.allocate("punched", 4096, 16_384, 3).unwrap();
        tree.put("gone", &[b'c'; 30_000]).unwrap();
        tree.unlink("gone").unwrap();
        tree.put("synced", &[b'd'; 30_000]).unwrap();
        tree.fsync("synced").unwrap();
        tree.0.checkpoint().unwrap();
        tree.0.checkpoint().unwrap();
        let before = seen(&recorder);
        tree.0.checkpoint().unwrap();
        assert_eq!(since(&recorder, before), [0; 0], "{policy:?}");
    }
}

/// Content that left before its group is flushed before that, unless a flush has come between.
#[test]
fn content_that_has_left_is_flushed_once() {
    // Of ten blocks.
    let options = Options {
        memory_bytes: 160 << 10,
        ..plainly()
    };
    let flushes_of_sync = |between: &dyn Fn(&Tree)| {
        let (recorder, tree) = recorded(32 * MIB, options.clone());
        tree.put("large", &bytes(1, 40 * 4096)).unwrap();
        // Makes no room for anything, but what is too much leaves.
        tree.create("small").unwrap();
        assert!(since(&recorder, 0).iter().sum::<usize>() > 20);
        between(&tree);
        let before = seen(&recorder);
        tree.fsync("large").unwrap();
        flushes(&recorder, before)
    };
    assert_eq!(flushes_of_sync(&|_| {}), 2);
    assert_eq!(flushes_of_sync(&|tree| tree.fsync("").unwrap()), 1);
    let by_checkpoint = |tree: &Tree| {
        tree.0.checkpoint().unwrap();
        tree.write("large", 0, b"again").unwrap();
    };
    assert_eq!(flushes_of_sync(&by_checkpoint), 1);
}

/// Metadata lies behind data in the same block only where that is asked for; and where data is to go first, it is flushed first.
#[test]
fn data_and_records_have_blocks_of_their_own_and_an_order_where_that_is_wanted() {
    let synced = |policy, order| {
        let options = Options {
            policy,
            order,
            ..options()
        };
        let (recorder, tree) = recorded(32 * MIB, options);
        let mut page = vec![b'x'; 4096];
        page[..16].copy_from_slice(b"SQLite format 3\0");
        tree.put("base.db", &page).unwrap();
        let before = seen(&recorder);
        tree.fsync("base.db").unwrap();
        since(&recorder, before)
    };
    assert_eq!(synced(Policy::Record, Order::Together), [1, 0]);
    assert_eq!(synced(Policy::Paper, Order::Together), [2, 0]);
    assert_eq!(synced(Policy::Paper, Order::DataFirst), [1, 0, 1, 0]);
    assert_eq!(synced(Policy::None, Order::DataFirst), [1, 0, 1, 0]);
}

/// What was accepted is synced without a look at the device, whatever has left memory.
#[test]
fn nothing_has_to_be_read_to_write_what_was_accepted() {
    let device = Arc::new(Faulty::new(MemoryDevice::new(device(32 * MIB).to_vec())));
    let options = Options {
        evicts_always: true,
        prefetch_bytes: 0,
        ..plainly()
    };
    let tree = open_with(device.clone(), options);
    tree.put("file", &bytes(1, 6_000_000)).unwrap();
    tree.0.checkpoint().unwrap();
    let ino = tree.ino("file").unwrap();
    let file = OpenFile {
        ino,
        handle: tree.0.open(ino, 2).unwrap(),
    };
    tree.0
        .write(file, 5_000_000 / 4096 * 4096, &bytes(2, 4096), false)
        .unwrap();
    device.inject(Call::Read, When::From(0), Errno::IO);
    tree.0.fsync(file, false).unwrap();
    device.heal();
    tree.0.release(file);
    drop(tree);
    let found = cut(device.inner());
    let at = 5_000_000 / 4096 * 4096;
    assert!(found.read("file").unwrap()[at..at + 4096] == bytes(2, 4096));
}

/// Half of a change must never become durable.
#[test]
fn a_change_that_was_made_by_half_is_the_last_one() {
    let device = Arc::new(Faulty::new(MemoryDevice::new(device(32 * MIB).to_vec())));
    // The nodes stay in memory.
    let options = Options {
        evicts_always: false,
        ..plainly()
    };
    let tree = open_with(device.clone(), options);
    tree.put("file", &bytes(1, 5 * 4096)).unwrap();
    tree.0.checkpoint().unwrap();
    // The page where a hole begins is read, and then the one where it ends.
    device.inject(Call::Read, When::Nth(1), Errno::IO);
    assert!(tree.allocate("file", 100, 3 * 4096, 3).is_err());
    device.heal();
    let why = tree.0.failure().unwrap();
    assert!(why.contains("could not be completed"), "{why}");
    assert!(tree.create("after").is_err());
}

/// Where pointers lie, small content did before.
#[test]
fn content_that_has_left_its_inode_leaves_nothing_there() {
    let device = device(32 * MIB);
    let tree = open(device.clone());
    let mut content = vec![0xff; 300];
    tree.put("file", &content).unwrap();
    tree.0.checkpoint().unwrap();
    tree.write("file", 100_000, &[0xee; 5000]).unwrap();
    tree.fsync("file").unwrap();
    content.resize(100_000, 0);
    content.resize(105_000, 0xee);
    assert!(cut(&device).read("file").unwrap() == content);
}

static NOW: AtomicI64 = AtomicI64::new(1_000_000_000);

fn set_clock() -> Timestamp {
    Timestamp {
        secs: NOW.load(Ordering::SeqCst),
        nanos: 0,
    }
}

/// A checkpoint comes when the last one is old, if there is anything for it to say.
#[test]
fn whoever_tends_a_log_has_its_changes_in_a_checkpoint_after_a_while() {
    let options = Options {
        clock: set_clock,
        ..plainly()
    };
    let tree = open_with(device(32 * MIB), options);
    tree.0.checkpoint().unwrap();
    let checkpoints_after = |seconds: i64| {
        let before = tree.0.condition().statistics.checkpoints;
        NOW.fetch_add(seconds, Ordering::SeqCst);
        tree.0.tend().unwrap();
        tree.0.condition().statistics.checkpoints - before
    };
    assert_eq!(checkpoints_after(100), 0);
    tree.0.checkpoint().unwrap();
    tree.create("file").unwrap();
    tree.0.checkpoint().unwrap();
    tree.create("other").unwrap();
    assert_eq!(checkpoints_after(59), 0);
    assert_eq!(checkpoints_after(1), 1);
    assert_eq!(checkpoints_after(100), 0);
}

/// Long runs begin to leave what caches them at once.
#[test]
fn the_device_is_told_of_long_runs() {
    let told = Arc::new(AtomicU64::new(0));
    let hears = told.clone();
    let hook = move |asked| {
        if let Asked::BeginWriting(_, len) = asked {
            hears.fetch_add(len, Ordering::SeqCst);
        }
    };
    let device = Arc::new(Hooked::new(device(32 * MIB).to_vec(), hook));
    let tree = open_plainly(device);
    tree.put("short", &bytes(1, 20 * 4096)).unwrap();
    tree.fsync("short").unwrap();
    assert_eq!(told.load(Ordering::SeqCst), 0);
    tree.put("long", &bytes(1, 200 * 4096)).unwrap();
    tree.fsync("long").unwrap();
    assert!(told.load(Ordering::SeqCst) >= 190 * 4096);
}

/// Numbers of groups go on after a crash, and are not given again.
#[test]
fn no_group_has_the_number_of_another_after_a_crash() {
    let device = device(32 * MIB);
    let last = |device: &MemoryDevice| {
        let copy = Arc::new(MemoryDevice::new(device.to_vec()));
        let inspector = anteros_log::Inspector::open(copy, &options()).unwrap();
        let (groups, _) = inspector.groups().unwrap();
        groups.iter().map(|group| group.sequence).max().unwrap()
    };
    let mut before = 0;
    for round in 0..3 {
        let tree = open(device.clone());
        for n in 0..3 {
            tree.create(&format!("{round} {n}")).unwrap();
            tree.fsync("").unwrap();
        }
        let now = last(&device);
        assert!(now >= before + 3, "{now}, {before}");
        before = now;
    }
    let device: Arc<dyn WritableDevice> = device;
    assert_sound(device);
}

/// Memory is short for want of what is written to the large file: the other stays where it is, and needs no flush of its own
/// before its group. Nor does whoever syncs write for the others.
#[test]
fn a_small_file_is_synced_beside_a_large_one_as_if_it_was_alone() {
    let device = Arc::new(Counted::new(MemoryDevice::new(device(64 * MIB).to_vec())));
    let options = Options {
        memory_bytes: 8 << 20,
        ..plainly()
    };
    let tree = open_with(device.clone(), options);
    tree.put("small", &bytes(1, 4096)).unwrap();
    tree.fsync("small").unwrap();
    tree.create("large").unwrap();
    let piece = |number: u64| {
        let content = bytes(number, 128 << 10);
        tree.write("large", number * (128 << 10), &content).unwrap();
    };
    for number in 0..32 {
        tree.write("small", 0, &bytes(number, 4096)).unwrap();
        piece(2 * number);
        piece(2 * number + 1);
        let before = device.counts();
        tree.fsync("small").unwrap();
        let after = device.counts();
        assert_eq!(after.flushes - before.flushes, 1, "{number}");
        let written = after.written_bytes - before.written_bytes;
        assert!(written <= 8 * 4096, "{number}: {written}");
    }
}
