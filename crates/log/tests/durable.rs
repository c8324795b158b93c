//! Syncs, flushes and checkpoints of several threads: who waits for what, and who need not.

mod support;

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use anteros_core::MemoryDevice;
use anteros_log::Options;
use support::hooked::{Asked, Hooked};
use support::*;

/// As long as anything may take before it counts as what never happens.
const PATIENCE: Duration = Duration::from_secs(60);

/// A gate that stands open unless it is shut.
#[derive(Default)]
struct Gate {
    is_shut: Mutex<bool>,
    changed: Condvar,
}

impl Gate {
    fn set(&self, is_shut: bool) {
        *self.is_shut.lock().unwrap() = is_shut;
        self.changed.notify_all();
    }

    fn pass(&self) {
        let is_shut = self.is_shut.lock().unwrap();
        let _ = self
            .changed
            .wait_timeout_while(is_shut, PATIENCE, |is_shut| *is_shut)
            .unwrap();
    }
}

/// Waits until something is so, which is told.
fn wait_until(is_so: impl Fn() -> bool) -> bool {
    let begun = Instant::now();
    while !is_so() {
        if begun.elapsed() > PATIENCE {
            return false;
        }
        thread::sleep(Duration::from_millis(1));
    }
    true
}

/// Counts what has begun, and has the first flush, and a write by its number, pass a gate.
#[derive(Default)]
struct Seen {
    is_armed: AtomicBool,
    writes: AtomicUsize,
    flushes: AtomicUsize,
    gated_write: AtomicUsize,
    first_flush: Gate,
    write: Gate,
}

impl Seen {
    fn hear(&self, asked: Asked) {
        if !self.is_armed.load(Ordering::SeqCst) {
            return;
        }
        match asked {
            Asked::Write(..) => {
                let number = 1 + self.writes.fetch_add(1, Ordering::SeqCst);
                if number == self.gated_write.load(Ordering::SeqCst) {
                    self.write.pass();
                }
            }
            Asked::Flush => {
                let number = self.flushes.fetch_add(1, Ordering::SeqCst);
                if number == 0 {
                    self.first_flush.pass();
                }
            }
            _ => {}
        }
    }

    fn has_begun(&self, writes: usize, flushes: usize) -> bool {
        wait_until(|| {
            self.writes.load(Ordering::SeqCst) >= writes
                && self.flushes.load(Ordering::SeqCst) >= flushes
        })
    }
}

/// A log, and what its device sees from here on.
fn mounted(options: Options) -> (Arc<Seen>, Arc<Hooked>, Tree) {
    let seen = Arc::new(Seen::default());
    let hears = seen.clone();
    let device = Hooked::new(device(32 * MIB).to_vec(), move |asked| hears.hear(asked));
    let device = Arc::new(device);
    let tree = open_with(device.clone(), options);
    tree.0.checkpoint().unwrap();
    (seen, device, tree)
}

/// Makes a name, and has it durable: one block, and a flush.
fn name(tree: &Tree, name: &str) {
    tree.create(name).unwrap();
    tree.fsync("").unwrap();
}

/// One flush serves all who had written before it began; it waits for what others have not written yet, and who comes while
/// it is under way writes meanwhile.
#[test]
fn whoever_syncs_while_another_flushes_writes_then_and_waits() {
    let (seen, device, tree) = mounted(plainly());
    seen.first_flush.set(true);
    seen.write.set(true);
    seen.gated_write.store(3, Ordering::SeqCst);
    seen.is_armed.store(true, Ordering::SeqCst);
    thread::scope(|scope| {
        let first = scope.spawn(|| name(&tree, "first"));
        assert!(seen.has_begun(1, 1));
        let second = scope.spawn(|| name(&tree, "second"));
        let writes_meanwhile = seen.has_begun(2, 1);
        let third = scope.spawn(|| name(&tree, "third"));
        let begins_meanwhile = seen.has_begun(3, 1);
        seen.first_flush.set(false);
        first.join().unwrap();
        // The flush of the second one would be for a group of the third that is not there.
        thread::sleep(Duration::from_millis(150));
        let early = seen.flushes.load(Ordering::SeqCst);
        seen.write.set(false);
        second.join().unwrap();
        third.join().unwrap();
        assert!(writes_meanwhile && begins_meanwhile);
        assert_eq!(early, 1);
    });
    assert_eq!(seen.flushes.load(Ordering::SeqCst), 2);
    let copy = Arc::new(MemoryDevice::new(device.to_vec()));
    assert_eq!(open(copy).list("").unwrap(), ["first", "second", "third"]);
}

/// What a checkpoint has, or another's flush has brought, needs no flush; and a checkpoint waits for writes of others.
#[test]
fn a_checkpoint_that_comes_before_a_flush_makes_it_needless() {
    let (seen, device, tree) = mounted(plainly());
    seen.write.set(true);
    seen.gated_write.store(1, Ordering::SeqCst);
    let before = tree.0.condition();
    seen.is_armed.store(true, Ordering::SeqCst);
    thread::scope(|scope| {
        scope.spawn(|| name(&tree, "synced"));
        assert!(seen.has_begun(1, 0));
        scope.spawn(|| tree.0.checkpoint().unwrap());
        // The state is locked from here on until the checkpoint is done.
        let has_begun = seen.has_begun(2, 0);
        seen.write.set(false);
        assert!(has_begun);
    });
    let after = tree.0.condition();
    assert_eq!(
        after.statistics.checkpoints,
        before.statistics.checkpoints + 1
    );
    assert_eq!(
        (after.syncs - before.syncs, after.flushes),
        (1, before.flushes)
    );
    let copy = Arc::new(MemoryDevice::new(device.to_vec()));
    assert_eq!(open(copy).list("").unwrap(), ["synced"]);
}

/// With a thread that writes, nodes are on their way while the tables follow.
#[test]
fn a_checkpoint_has_its_nodes_written_while_it_writes_the_tables() {
    let is_armed = Arc::new(AtomicBool::new(false));
    let (nodes, waited) = (Arc::new(AtomicUsize::new(0)), Arc::new(Mutex::new(None)));
    let main = open(device(32 * MIB)).0.layout().superblock.main_start * 4096;
    let (arm, count, tell) = (is_armed.clone(), nodes.clone(), waited.clone());
    // The first write to a table waits for one of a node.
    let hook = move |asked| match asked {
        Asked::Write(offset, _) if arm.load(Ordering::SeqCst) => {
            if offset >= main {
                count.fetch_add(1, Ordering::SeqCst);
            } else if tell.lock().unwrap().is_none() {
                let has_come = wait_until(|| count.load(Ordering::SeqCst) > 0);
                *tell.lock().unwrap() = Some(has_come);
            }
        }
        _ => {}
    };
    let options = Options {
        writes_behind: true,
        ..plainly()
    };
    let device = Arc::new(Hooked::new(device(32 * MIB).to_vec(), hook));
    let tree = open_with(device, options);
    is_armed.store(true, Ordering::SeqCst);
    // Of so many numbers a journal has no room to tell, and there are few nodes.
    for number in 0..850 {
        tree.create(&format!("{number}")).unwrap();
    }
    for number in 0..850 {
        tree.unlink(&format!("{number}")).unwrap();
    }
    assert_eq!(nodes.load(Ordering::SeqCst), 0);
    tree.0.checkpoint().unwrap();
    assert_eq!(*waited.lock().unwrap(), Some(true));
}

/// Content of others that is on its way is none of a group: only the thread waits for the device here.
#[test]
fn a_sync_does_not_wait_for_what_others_have_sent() {
    let gate = Arc::new(Gate::default());
    let (begun, passed) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let (at_gate, begin, pass) = (gate.clone(), begun.clone(), passed.clone());
    let hook = move |asked| {
        if matches!(asked, Asked::Write(..)) && thread::current().name() == Some("log-writer") {
            begin.fetch_add(1, Ordering::SeqCst);
            at_gate.pass();
            pass.fetch_add(1, Ordering::SeqCst);
        }
    };
    let options = Options {
        writes_behind: true,
        memory_bytes: 8 << 20,
        ..plainly()
    };
    let device = Arc::new(Hooked::new(device(64 * MIB).to_vec(), hook));
    let tree = open_with(device.clone(), options);
    tree.put("small", b"old").unwrap();
    gate.set(true);
    tree.create("large").unwrap();
    let large = bytes(1, 3 << 20);
    for (number, piece) in large.chunks(256 << 10).enumerate() {
        let offset = number as u64 * (256 << 10);
        tree.write("large", offset, piece).unwrap();
    }
    assert!(wait_until(|| begun.load(Ordering::SeqCst) > 0));
    tree.write("small", 0, b"new").unwrap();
    tree.fsync("small").unwrap();
    assert_eq!(passed.load(Ordering::SeqCst), 0);
    let cut = open(Arc::new(MemoryDevice::new(device.to_vec())));
    assert_eq!(cut.read("small").unwrap(), b"new");
    gate.set(false);
    // What is on its way is part of this one.
    tree.fsync("large").unwrap();
    let cut = open(Arc::new(MemoryDevice::new(device.to_vec())));
    assert!(cut.read("large").unwrap() == large);
}
