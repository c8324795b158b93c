//! Tests what a review found, each with the fault that it was.

mod support;

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use anteros_core::{Device, FileSystem, MemoryDevice, WritableDevice};
use anteros_log::{Log, LogError, Options, Policy, check, repair, repair_going_back};
use anteros_tests::crash::{Plan, Recorder};
use anteros_tests::faulty::{Call, Faulty, When};
use rustix::io::Errno;
use support::*;

/// A node that recovery made took the number of an inode that a later record brought.
#[test]
fn a_node_made_by_recovery_takes_no_number_that_a_record_names() {
    let device = device(64 * MIB);
    let tree = open(device.clone());
    tree.create("large").unwrap();
    tree.create("other").unwrap();
    tree.put("large", &bytes(1, 3 << 20)).unwrap();
    tree.fsync("large").unwrap();
    tree.put("third", b"third").unwrap();
    tree.fsync("third").unwrap();
    drop(tree);
    assert_sound(device.clone());
    let tree = open(device);
    assert_eq!(tree.list("").unwrap(), ["large", "other", "third"]);
    assert_eq!(tree.read("large").unwrap(), bytes(1, 3 << 20));
    assert_eq!(tree.read("third").unwrap(), b"third");
}

/// Guards against a fault: what is deleted in the groups was given back only behind all of them.
#[test]
fn a_full_log_that_was_emptied_and_filled_again_can_be_mounted() {
    let device = device(40 * MIB);
    let tree = open(device.clone());
    let free = |tree: &Tree| {
        let condition = tree.0.condition();
        condition.capacity_blocks - condition.used_blocks
    };
    tree.put("old", &bytes(1, 8 << 20)).unwrap();
    tree.create("rest").unwrap();
    while free(&tree) > 40 {
        let size = tree.attr("rest").unwrap().size;
        tree.write("rest", size, &[7; 64 << 10]).unwrap();
    }
    tree.0.checkpoint().unwrap();
    tree.unlink("old").unwrap();
    tree.fsync("").unwrap();
    let checkpoints = tree.0.condition().statistics.checkpoints;
    tree.put("new", &bytes(2, 3 << 20)).unwrap();
    tree.fsync("new").unwrap();
    assert_eq!(
        tree.0.condition().statistics.checkpoints,
        checkpoints,
        "it would hide what is looked for"
    );
    drop(tree);
    assert_sound(device.clone());
    let tree = open(device);
    assert_eq!(tree.read("new").unwrap(), bytes(2, 3 << 20));
}

/// Content that had just left memory was read from the device before it was there.
#[test]
fn pieces_of_a_block_survive_when_memory_is_short() {
    let device = device(64 * MIB);
    let small = Options {
        memory_bytes: 2 << 20,
        ..options()
    };
    let tree = open_with(device.clone(), small);
    let data = bytes(1, 4 << 20);
    tree.create("f").unwrap();
    for (number, piece) in data.chunks(1000).enumerate() {
        tree.write("f", number as u64 * 1000, piece).unwrap();
    }
    assert!(tree.read("f").unwrap() == data);
    tree.fsync("f").unwrap();
    drop(tree);
    assert_sound(device.clone());
    assert!(open(device).read("f").unwrap() == data);
}

/// A device whose flushes wait until they are let through.
struct Gate {
    inner: MemoryDevice,
    is_open: Mutex<bool>,
    opened: Condvar,
    waiting: AtomicBool,
    fails: AtomicBool,
}

impl Gate {
    fn new(inner: MemoryDevice) -> Self {
        let (is_open, opened) = (Mutex::new(true), Condvar::new());
        Self {
            inner,
            is_open,
            opened,
            waiting: AtomicBool::new(false),
            fails: AtomicBool::new(false),
        }
    }

    fn set(&self, is_open: bool) {
        *self.is_open.lock().unwrap() = is_open;
        self.opened.notify_all();
    }

    fn wait_for_flush(&self) {
        while !self.waiting.load(Ordering::SeqCst) {
            std::thread::yield_now();
        }
    }
}

impl Device for Gate {
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
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
        let mut is_open = self.is_open.lock().unwrap();
        while !*is_open {
            self.waiting.store(true, Ordering::SeqCst);
            is_open = self.opened.wait(is_open).unwrap();
        }
        match self.fails.swap(false, Ordering::SeqCst) {
            true => Err(Errno::IO.into()),
            false => Ok(()),
        }
    }
}

fn gated() -> (Arc<Gate>, Arc<Tree>) {
    let gate = Arc::new(Gate::new(MemoryDevice::new(device(32 * MIB).to_vec())));
    let tree = Arc::new(open(gate.clone()));
    (gate, tree)
}

/// A file without content of its own was synced at once, though its name was in a group that never arrived.
#[test]
fn a_sync_needs_the_group_that_has_the_name() {
    let (gate, tree) = gated();
    tree.create("a").unwrap();
    tree.put("b", b"b").unwrap();
    let begun = AtomicBool::new(false);
    gate.set(false);
    std::thread::scope(|scope| {
        let first = scope.spawn(|| tree.fsync("b"));
        gate.wait_for_flush();
        let second = scope.spawn(|| {
            begun.store(true, Ordering::SeqCst);
            tree.fsync("a")
        });
        while !begun.load(Ordering::SeqCst) {
            std::thread::yield_now();
        }
        // Whether it comes to wait for the flush or not, it must not succeed.
        std::thread::sleep(Duration::from_millis(50));
        gate.fails.store(true, Ordering::SeqCst);
        gate.set(true);
        assert!(first.join().unwrap().is_err());
        assert!(second.join().unwrap().is_err());
    });
}

/// Whoever waited for a flush that failed made another one, which succeeded and said nothing of what was lost.
///
/// Invariant L8 of `docs/design/log.md`.
#[test]
fn a_flush_that_failed_is_not_made_good_by_the_next() {
    let (gate, tree) = gated();
    tree.put("a", b"a").unwrap();
    tree.put("b", b"b").unwrap();
    gate.set(false);
    std::thread::scope(|scope| {
        let first = scope.spawn(|| tree.fsync("a"));
        gate.wait_for_flush();
        let groups = tree.0.condition().statistics.groups;
        let second = scope.spawn(|| tree.fsync("b"));
        while tree.0.condition().statistics.groups == groups {
            std::thread::yield_now();
        }
        gate.fails.store(true, Ordering::SeqCst);
        gate.set(true);
        assert!(first.join().unwrap().is_err());
        assert!(second.join().unwrap().is_err());
    });
    assert!(tree.0.failure().is_some());
}

/// Content that left memory before the fsync had no checksum in the group, and no flush before it.
///
/// Invariant L7 of `docs/design/log.md`.
#[test]
fn content_that_left_early_is_part_of_the_group_or_on_the_device() {
    let base = device(32 * MIB).to_vec();
    let old = Options {
        memory_bytes: 2 << 20,
        ..options()
    };
    let recorder = Arc::new(Recorder::new(&base));
    let tree = open_with(recorder.clone(), old);
    let data = bytes(1, 2 << 20);
    tree.create("f").unwrap();
    tree.fsync("f").unwrap();
    for (number, piece) in data.chunks(64 << 10).enumerate() {
        tree.write("f", number as u64 * (64 << 10), piece).unwrap();
    }
    tree.fsync("f").unwrap();
    let plan = Plan {
        subsets_max: 64,
        samples: 300,
        tears: 0,
        seed: 1,
    };
    let explored = recorder.recording().explore(&plan, |state| {
        let tree = open(Arc::new(state.device()));
        let Ok(found) = tree.read("f") else {
            return Ok(());
        };
        match found.is_empty() || found == data {
            true => Ok(()),
            false => Err(format!("{} bytes of no moment", found.len())),
        }
    });
    explored.expect_none_failed();
}

/// The same of content that the cleaner moved while the log was idle.
#[test]
fn content_that_the_cleaner_moved_is_part_of_the_group_or_on_the_device() {
    let base = device(32 * MIB);
    let tree = open(base.clone());
    let data = bytes(1, 3 << 20);
    tree.put("f", &data).unwrap();
    tree.put("holes", &bytes(2, 2 << 20)).unwrap();
    tree.fsync("f").unwrap();
    tree.unlink("holes").unwrap();
    tree.0.close().unwrap();
    drop(tree);
    let recorder = Arc::new(Recorder::new(&base.to_vec()));
    let tree = open(recorder.clone());
    recorder.mark("begun");
    while tree.0.clean().unwrap() {}
    tree.write("f", 0, &data[..10]).unwrap();
    tree.fsync("f").unwrap();
    let plan = Plan {
        subsets_max: 64,
        samples: 300,
        tears: 0,
        seed: 1,
    };
    let explored = recorder.recording().explore(&plan, |state| {
        match open(Arc::new(state.device())).read("f") {
            Ok(found) if found == data => Ok(()),
            Ok(_) => Err("what was durable is lost".to_owned()),
            Err(error) => Err(error.to_string()),
        }
    });
    explored.expect_none_failed();
}

/// Guards against a fault: what could not be written was gone from memory, and read as whatever lay there before.
#[test]
fn what_could_not_be_written_is_not_read_as_something_else() {
    let faulty = Arc::new(Faulty::new(MemoryDevice::new(device(32 * MIB).to_vec())));
    let tree = open(faulty.clone());
    let data = bytes(1, 100_000);
    tree.put("f", &data).unwrap();
    faulty.inject(Call::Write, When::From(0), Errno::IO);
    assert!(tree.fsync("f").is_err());
    assert!(tree.0.failure().is_some());
    match tree.read("f") {
        Ok(found) => assert!(found == data),
        Err(error) => assert!(error.to_string().contains("block"), "{error}"),
    }
}

/// Whoever only looked never let go of anything.
#[test]
fn looking_takes_no_more_memory_than_there_is() {
    let device = device(96 * MIB);
    let tree = open(device.clone());
    for n in 0..6000 {
        if n % 100 == 0 {
            tree.mkdir(&format!("d{}", n / 100)).unwrap();
        }
        tree.create(&format!("d{}/f{n}", n / 100)).unwrap();
    }
    tree.0.close().unwrap();
    drop(tree);
    for read_only in [false, true] {
        let options = Options {
            memory_bytes: 2 << 20,
            read_only,
            ..options()
        };
        let tree = open_with(device.clone(), options);
        for n in 0..6000 {
            let path = format!("d{}/f{n}", n / 100);
            assert_eq!(tree.read(&path).unwrap(), b"");
        }
        let bytes = tree.0.condition().memory_bytes;
        assert!(bytes < 10 << 20, "{bytes} bytes");
    }
}

/// A directory's tree that cannot be read is no reason to refuse the mount: its inode stays an orphan.
#[test]
fn an_orphan_that_is_damaged_does_not_stand_in_the_way() {
    let device = device(32 * MIB);
    let tree = open(device.clone());
    tree.put("f", &bytes(1, 3 << 20)).unwrap();
    tree.0.checkpoint().unwrap();
    let ino = tree.0.lookup(tree.0.root(), b"f").unwrap().ino;
    // The direct nodes: blocks that begin with the magic number and have kind 2.
    let whole = device.to_vec();
    for block in 0..whole.len() / 4096 {
        let bytes = &whole[block * 4096..][..4096];
        if bytes.starts_with(b"NODE") && bytes[0x18] == 2 {
            device.write_at(block as u64 * 4096, &[0; 4096]).unwrap();
        }
    }
    drop(tree);
    let tree = open(device.clone());
    assert_eq!(tree.0.lookup(tree.0.root(), b"f").unwrap().ino, ino);
    tree.unlink("f").unwrap();
    tree.fsync("").unwrap();
    assert_eq!(tree.0.failure(), None);
    drop(tree);
    let tree = open(device.clone());
    tree.put("g", b"g").unwrap();
    tree.0.close().unwrap();
    drop(tree);
    assert_eq!(open(device).list("").unwrap(), ["g"]);
}

/// A log that is full and crashes over and over: each mount took segments for new heads, until there was none left.
#[test]
fn a_full_log_can_be_mounted_after_each_of_many_crashes() {
    for policy in [Policy::None, Policy::Comp, Policy::Record, Policy::Force] {
        crash_when_full(policy);
    }
}

fn crash_when_full(policy: Policy) {
    let device = device(32 * MIB);
    let open = |round| {
        let options = Options {
            policy,
            ..options()
        };
        let log = Log::open(device.clone(), options);
        Tree(log.unwrap_or_else(|error| panic!("{policy:?}, round {round}: {error}")))
    };
    let mut tree = open(0);
    let mut count = 0;
    while tree
        .put(&format!("f{count}"), &bytes(count, 100_000))
        .is_ok()
    {
        count += 1;
    }
    for round in 0..40u64 {
        for n in 0..30 {
            let file = bytes(round * 31 + n, 1)[0] as u64 % count;
            let _ = tree.write(
                &format!("f{file}"),
                (n * 4096) % 90_000,
                &bytes(round, 9000),
            );
            if n % 3 == 0 {
                let _ = tree.fsync(&format!("f{file}"));
            }
        }
        assert_eq!(tree.0.failure(), None, "{policy:?}, round {round}");
        drop(tree);
        tree = open(round);
    }
    tree.unlink("f0").unwrap();
    tree.put("f0", b"new").unwrap();
    tree.fsync("f0").unwrap();
    drop(tree);
    assert_sound(device);
}

/// Each crash left the segments that were open as they were, nearly empty.
#[test]
fn segments_are_filled_further_after_a_crash() {
    // Segments of nodes, of data, and of groups; and of packed blocks of no group, where inodes share blocks.
    for (policy, most) in [(Policy::None, 3), (Policy::Force, 4)] {
        let device = device(64 * MIB);
        let open = || {
            let options = Options {
                policy,
                ..options()
            };
            open_with(device.clone(), options)
        };
        for round in 0..20 {
            let tree = open();
            assert_eq!(tree.0.recovery().groups, u64::from(round > 0));
            let name = format!("f{round}");
            tree.put(&name, &[&bytes(round, 20_000), &[7; 30_000][..]].concat())
                .unwrap();
            tree.fsync(&name).unwrap();
        }
        drop(open());
        let tree = open();
        assert_eq!(tree.0.recovery().groups, 0);
        let segments = tree.0.layout().segments;
        let held = segments.iter().filter(|segment| segment.valid > 0);
        assert!(held.count() <= most, "{policy:?}: {segments:?}");
        drop(tree);
        assert_sound(device);
    }
}

/// The bytes of the newest pack, and where they lie.
fn newest_pack(device: &Arc<MemoryDevice>) -> std::ops::Range<usize> {
    let surgeon = surgeon::Surgeon::new(device.clone());
    let room = u64::from(surgeon.superblock.checkpoint_blocks);
    let block = surgeon.superblock.checkpoint_start + surgeon.checkpoint.version % 2 * room;
    let start = block as usize * 4096;
    start..start + surgeon.checkpoint.encode().len()
}

/// A checkpoint that was durable once and is damaged now must not give way to the one before.
#[test]
fn a_damaged_checkpoint_does_not_make_an_older_one_count() {
    let device = device(64 * MIB);
    let tree = open(device.clone());
    for n in 0..8 {
        tree.put(&format!("old{n}"), &bytes(n, 1_000_000)).unwrap();
    }
    tree.0.checkpoint().unwrap();
    for n in 0..8 {
        tree.unlink(&format!("old{n}")).unwrap();
    }
    tree.mkdir("kept").unwrap();
    tree.0.close().unwrap();
    drop(tree);
    let range = newest_pack(&device);
    for at in [0, 8, 0x300, range.len() - 4000] {
        let damaged = Arc::new(MemoryDevice::new(device.to_vec()));
        let at = (range.start + at) as u64;
        let mut byte = [0];
        damaged.read_at(at, &mut byte).unwrap();
        damaged.write_at(at, &[byte[0] ^ 0x10]).unwrap();
        let before = damaged.to_vec();
        for refused in [
            Log::open(damaged.clone(), options()).err(),
            check(damaged.clone(), options()).err(),
            repair(damaged.clone(), options()).err(),
        ] {
            let error = refused.unwrap();
            assert!(matches!(error, LogError::OutOfDate { .. }), "{error}");
            assert!(error.hint().unwrap().contains("--go-back"));
        }
        assert!(damaged.to_vec() == before);
        let repaired = repair_going_back(damaged.clone(), options()).unwrap();
        assert!(repaired.repairs[0].contains("counts again"), "{repaired:?}");
        assert_sound(damaged.clone());
        // What was said behind the older one is there all the same, or it is not; but it can be used.
        let tree = open(damaged.clone());
        tree.put("new", &bytes(5, 100_000)).unwrap();
        tree.fsync("new").unwrap();
        drop(tree);
        let tree = open(damaged);
        assert_eq!(tree.read("new").unwrap(), bytes(5, 100_000));
    }
    // Where nothing is damaged, there is no way back.
    assert_eq!(
        repair_going_back(device.clone(), options())
            .unwrap()
            .repairs,
        [""; 0]
    );
    assert_eq!(open(device).list("").unwrap(), ["kept"]);
}
