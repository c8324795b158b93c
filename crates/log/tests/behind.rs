//! A log whose content leaves behind the back of those who wrote it.

mod support;

use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

use anteros_core::{Device, MemoryDevice, WritableDevice};
use anteros_log::Options;
use support::*;

const MEMORY: usize = 8 << 20;

fn behind() -> Options {
    Options {
        writes_behind: true,
        ..options_with(MEMORY)
    }
}

/// A device on which writes may stand still, or fail.
struct Slow {
    inner: MemoryDevice,
    stands_still: Mutex<bool>,
    changed: Condvar,
    /// Writes that have come so far.
    begun: AtomicUsize,
    /// Tells how many more are taken.
    taken: AtomicUsize,
}

impl Slow {
    fn new(inner: Vec<u8>) -> Arc<Self> {
        Arc::new(Self {
            inner: MemoryDevice::new(inner),
            stands_still: Mutex::new(false),
            changed: Condvar::new(),
            begun: AtomicUsize::new(0),
            taken: AtomicUsize::new(usize::MAX),
        })
    }

    fn stand_still(&self, is_so: bool) {
        *self.stands_still.lock().unwrap() = is_so;
        self.changed.notify_all();
    }

    fn wait_for_write(&self) {
        let begun = Instant::now();
        while self.begun.load(Ordering::SeqCst) == 0 {
            assert!(
                begun.elapsed() < Duration::from_secs(60),
                "nothing is written"
            );
            std::thread::yield_now();
        }
    }
}

impl Device for Slow {
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

impl WritableDevice for Slow {
    fn write_at(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.begun.fetch_add(1, Ordering::SeqCst);
        let mut stands_still = self.stands_still.lock().unwrap();
        while *stands_still {
            stands_still = self.changed.wait(stands_still).unwrap();
        }
        let left = self.taken.load(Ordering::SeqCst);
        if left == 0 {
            return Err(io::Error::other("worn out"));
        }
        self.taken.store(left - 1, Ordering::SeqCst);
        self.inner.write_at(offset, data)
    }

    fn flush(&self) -> io::Result<()> {
        Ok(())
    }
}

fn mounted() -> (Arc<Slow>, Tree) {
    let device = Slow::new(device(64 * MIB).to_vec());
    let tree = open_with(device.clone(), behind());
    (device, tree)
}

/// Writes more than may wait, in pieces.
fn fill(tree: &Tree, path: &str, data: &[u8]) {
    tree.create(path).unwrap();
    for (number, piece) in data.chunks(256 << 10).enumerate() {
        tree.write(path, number as u64 * (256 << 10), piece)
            .unwrap();
    }
}

#[test]
fn others_go_on_and_find_everything_while_the_device_stands_still() {
    let (device, tree) = mounted();
    tree.put("small", b"small").unwrap();
    device.begun.store(0, Ordering::SeqCst);
    device.stand_still(true);
    let data = bytes(1, 3 << 20);
    fill(&tree, "f", &data);
    device.wait_for_write();
    // Nobody could wait for the device without staying here.
    assert!(tree.read("f").unwrap() == data);
    assert_eq!(tree.read("small").unwrap(), b"small");
    tree.write("f", 4096 * 100 + 7, b"in between").unwrap();
    tree.rename("small", "renamed", 0).unwrap();
    let mut found = data.clone();
    found[4096 * 100 + 7..][..10].copy_from_slice(b"in between");
    assert!(tree.read("f").unwrap() == found);
    device.stand_still(false);
    tree.fsync("f").unwrap();
    drop(tree);
    let device: Arc<dyn WritableDevice> = device;
    assert_sound(device.clone());
    let tree = open(device);
    assert!(tree.read("f").unwrap() == found);
    assert_eq!(tree.list("").unwrap(), ["f", "renamed"]);
}

#[test]
fn an_fsync_waits_for_what_is_on_its_way() {
    let (device, tree) = mounted();
    let data = bytes(1, 3 << 20);
    device.stand_still(true);
    fill(&tree, "f", &data);
    device.wait_for_write();
    std::thread::scope(|scope| {
        let synced = scope.spawn(|| tree.fsync("f"));
        std::thread::sleep(Duration::from_millis(50));
        assert!(!synced.is_finished());
        device.stand_still(false);
        synced.join().unwrap().unwrap();
    });
}

#[test]
fn whoever_writes_more_than_there_is_memory_waits() {
    let (device, tree) = mounted();
    let data = bytes(1, 24 << 20);
    device.stand_still(true);
    std::thread::scope(|scope| {
        let filled = scope.spawn(|| fill(&tree, "f", &data));
        std::thread::sleep(Duration::from_millis(300));
        assert!(!filled.is_finished());
        device.stand_still(false);
        filled.join().unwrap();
    });
    assert!(tree.read("f").unwrap() == data);
}

#[test]
fn what_the_device_did_not_take_is_told_and_never_read_as_something_else() {
    for taken in 0..6 {
        let (device, tree) = mounted();
        let old = bytes(9, 100_000);
        tree.put("old", &old).unwrap();
        tree.fsync("old").unwrap();
        device.taken.store(taken, Ordering::SeqCst);
        let data = bytes(1, 3 << 20);
        tree.create("f").unwrap();
        for (number, piece) in data.chunks(256 << 10).enumerate() {
            // Some time it says that it is read-only.
            if tree.write("f", number as u64 * (256 << 10), piece).is_err() {
                break;
            }
        }
        assert!(tree.fsync("f").is_err(), "{taken}");
        let why = tree.0.failure().unwrap();
        assert!(why.contains("worn out"), "{why}");
        assert!(tree.create("late").is_err());
        match tree.read("f") {
            Ok(found) => assert!(data.starts_with(&found), "{taken}"),
            Err(error) => assert!(
                error.to_string().contains("could not be written"),
                "{error}"
            ),
        }
        assert!(tree.0.close().is_err());
        drop(tree);
        device.taken.store(usize::MAX, Ordering::SeqCst);
        let device: Arc<dyn WritableDevice> = device;
        assert_sound(device.clone());
        assert!(open(device).read("old").unwrap() == old);
    }
}
