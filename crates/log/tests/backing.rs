//! A log on a device that takes its room as it is written, as a sparse file does, and has no more at some time.

mod support;

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread;

use anteros_core::{Device, FileSystem, FsError, FsResult, MemoryDevice, WritableDevice};
use anteros_log::layout::ROOT;
use anteros_log::{Log, LogError, Options, Resized, check, repair, resize};
use support::surgeon::Surgeon;
use support::*;

const BLOCK: u64 = 4096;

/// A device of blocks that are there once they were written or reserved, of which there are so many at most.
struct Sparse {
    inner: Arc<MemoryDevice>,
    taken: Mutex<BTreeSet<u64>>,
    most: AtomicUsize,
}

impl Sparse {
    /// A device of so many bytes with an empty log.
    fn with_log(bytes: u64) -> Arc<Self> {
        let device = Arc::new(Self {
            inner: Arc::new(MemoryDevice::new(vec![0; bytes as usize])),
            taken: Mutex::default(),
            most: AtomicUsize::new(usize::MAX),
        });
        make(device.clone());
        device
    }

    /// A device of so many bytes, of which there is what was written, and is no zero.
    fn holding(log: &[u8], bytes: u64) -> Arc<Self> {
        let device = Arc::new(Self {
            inner: Arc::new(MemoryDevice::new(vec![0; bytes as usize])),
            taken: Mutex::default(),
            most: AtomicUsize::new(usize::MAX),
        });
        for (block, bytes) in (0..).zip(log.chunks(BLOCK as usize)) {
            if bytes.iter().any(|&byte| byte != 0) {
                device.write_at(block * BLOCK, bytes).unwrap();
            }
        }
        device
    }

    fn taken(&self) -> MutexGuard<'_, BTreeSet<u64>> {
        self.taken.lock().unwrap()
    }

    /// From here on there are so many bytes besides those that are taken.
    fn leave(&self, bytes: u64) {
        let most = self.taken().len() + (bytes / BLOCK) as usize;
        self.most.store(most, Ordering::Relaxed);
    }

    fn take(&self, offset: u64, len: u64) -> io::Result<()> {
        let wanted = offset / BLOCK..(offset + len).div_ceil(BLOCK);
        let mut taken = self.taken();
        let new = wanted.clone().filter(|block| !taken.contains(block));
        if taken.len() + new.count() > self.most.load(Ordering::Relaxed) {
            return Err(io::Error::from_raw_os_error(28));
        }
        taken.extend(wanted);
        Ok(())
    }
}

impl Device for Sparse {
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        self.inner.read_at(offset, buf)
    }

    fn size(&self) -> u64 {
        self.inner.size()
    }

    fn name(&self) -> String {
        "sparse".into()
    }
}

impl WritableDevice for Sparse {
    fn write_at(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.take(offset, data.len() as u64)?;
        self.inner.write_at(offset, data)
    }

    fn flush(&self) -> io::Result<()> {
        Ok(())
    }

    fn reserve(&self, offset: u64, len: u64) -> io::Result<bool> {
        self.take(offset, len).map(|()| true)
    }

    fn zero(&self, offset: u64, len: u64) -> io::Result<()> {
        self.discard(offset, len)
    }

    fn discard(&self, offset: u64, len: u64) -> io::Result<()> {
        self.inner.discard(offset, len)?;
        let gone = offset.div_ceil(BLOCK)..(offset + len) / BLOCK;
        let mut taken = self.taken();
        taken.retain(|block| !gone.contains(block));
        Ok(())
    }
}

/// With the least memory, and with nothing clean in it as well.
fn ways() -> [Options; 3] {
    let least = options_with(1 << 20);
    let evicting = Options {
        evicts_always: true,
        ..least.clone()
    };
    [plainly(), least, evicting]
}

fn mounted(device: &Arc<Sparse>, options: &Options) -> Tree {
    let tree = open_with(device.clone(), options.clone());
    assert_eq!(tree.0.take_warnings(), Vec::<String>::new());
    tree
}

/// A check finds nothing.
fn whole(device: Arc<Sparse>, options: Options) {
    let faults = check(device, options).unwrap().faults;
    assert!(faults.is_empty(), "{faults:?}");
}

fn put_synced(tree: &Tree, path: &str, data: &[u8]) -> FsResult<()> {
    tree.put(path, data)?;
    tree.fsync(path)
}

/// Writes files until one finds no room, and says which are there.
fn fill(tree: &Tree, first: u64, bytes_each: usize) -> Vec<u64> {
    for file in first.. {
        let path = format!("f{file}");
        if let Err(error) = put_synced(tree, &path, &bytes(file, bytes_each)) {
            assert!(matches!(error, FsError::NoSpace), "{path}: {error}");
            assert_eq!(tree.0.failure(), None);
            let _ = tree.unlink(&path);
            return (first..file).collect();
        }
    }
    unreachable!()
}

fn judge(tree: &Tree, files: &[u64], bytes_each: usize) {
    for &file in files {
        assert!(
            tree.read(&format!("f{file}")).unwrap() == bytes(file, bytes_each),
            "f{file}"
        );
    }
}

#[test]
fn a_full_store_refuses_who_writes_and_nobody_else() {
    const EACH: usize = 300_000;
    for options in ways() {
        let device = Sparse::with_log(160 * MIB);
        let tree = mounted(&device, &options);
        device.leave(20 * MIB);
        let mut files = fill(&tree, 0, EACH);
        assert!(files.len() > 30, "{}", files.len());
        judge(&tree, &files, EACH);
        let left = |tree: &Tree| tree.0.statfs().unwrap().blocks_available * BLOCK;
        assert!(left(&tree) < 2 * MIB, "{} bytes", left(&tree));

        // Small ones find room still, until there is none at all.
        let small = fill(&tree, 1_000_000, 8000);
        judge(&tree, &small, 8000);
        assert!(left(&tree) < 400_000, "{} bytes", left(&tree));
        for file in small {
            tree.unlink(&format!("f{file}")).unwrap();
        }

        // What is there can be written over, and removed.
        for &file in files.iter().take(5) {
            put_synced(&tree, &format!("f{file}"), &bytes(file, EACH)).unwrap();
        }
        for file in files.drain(..10) {
            tree.unlink(&format!("f{file}")).unwrap();
        }
        tree.0.checkpoint().unwrap();
        files.extend(fill(&tree, 1000, EACH));
        judge(&tree, &files, EACH);

        // The next mount finds no more room, and what it needs.
        tree.0.close().unwrap();
        drop(tree);
        device.leave(0);
        let tree = mounted(&device, &options);
        judge(&tree, &files, EACH);
        for file in files.drain(..3) {
            tree.unlink(&format!("f{file}")).unwrap();
        }
        tree.0.checkpoint().unwrap();
        files.extend(fill(&tree, 2000, EACH));

        // Room comes back.
        device.leave(20 * MIB);
        let more = fill(&tree, 3000, EACH);
        assert!(more.len() > 20, "{}", more.len());
        judge(&tree, &more, EACH);
        judge(&tree, &files, EACH);
        tree.0.close().unwrap();
        drop(tree);
        whole(device, options);
    }
}

#[test]
fn what_is_promised_is_there() {
    let device = Sparse::with_log(160 * MIB);
    let tree = mounted(&device, &plainly());
    device.leave(30 * MIB);
    tree.create("f").unwrap();
    let error = tree.allocate("f", 0, 80 * MIB, 0).unwrap_err();
    assert!(matches!(error, FsError::NoSpace), "{error}");
    tree.allocate("f", 0, 12 * MIB, 0).unwrap();
    fill(&tree, 0, 100_000);
    let piece = bytes(5, MIB as usize / 4);
    for at in 0..48 {
        tree.write("f", at * piece.len() as u64, &piece).unwrap();
        tree.fsync("f").unwrap();
    }
    tree.0.close().unwrap();
    drop(tree);
    whole(device, plainly());
}

#[test]
fn a_log_that_cannot_be_written_to_is_mounted_for_reading() {
    let device = Sparse::with_log(64 * MIB);
    let tree = mounted(&device, &plainly());
    put_synced(&tree, "f", &bytes(1, 100_000)).unwrap();
    tree.0.close().unwrap();
    put_synced(&tree, "g", &bytes(2, 100_000)).unwrap();
    drop(tree);
    // As a copy is of which only what is no zero was written.
    let zeros: BTreeSet<u64> = device
        .inner
        .to_vec()
        .chunks(BLOCK as usize)
        .zip(0..)
        .filter(|(block, _)| block.iter().all(|&byte| byte == 0))
        .map(|(_, at)| at)
        .collect();
    device.taken().retain(|block| !zeros.contains(block));
    device.leave(0);
    let before = device.inner.to_vec();
    let error = Log::open(device.clone(), plainly()).map(drop).unwrap_err();
    assert!(matches!(error, LogError::Fs(FsError::NoSpace)), "{error}");
    let tree = Tree(Log::open_as_possible(device.clone(), plainly()).unwrap());
    assert!(tree.0.is_read_only());
    let warnings = tree.0.take_warnings();
    assert!(warnings[0].contains("full"), "{warnings:?}");
    assert!(tree.read("f").unwrap() == bytes(1, 100_000));
    assert!(tree.read("g").unwrap() == bytes(2, 100_000));
    assert!(matches!(tree.create("h"), Err(FsError::ReadOnly)));
    tree.0.close().unwrap();
    drop(tree);
    assert!(device.inner.to_vec() == before, "something was written");
    device.leave(64 * MIB);
    mounted(&device, &plainly()).create("h").unwrap();
}

#[test]
fn a_repair_without_room_changes_nothing() {
    let device = Sparse::with_log(64 * MIB);
    let tree = mounted(&device, &plainly());
    put_synced(&tree, "f", &bytes(1, 100_000)).unwrap();
    tree.0.close().unwrap();
    drop(tree);
    let surgeon = Surgeon::new(device.inner.clone());
    surgeon.change_inode(ROOT, |inode| inode.attributes.nlink = 9);
    surgeon.finish();
    let damaged = device.inner.to_vec();
    let unused: BTreeSet<u64> = damaged
        .chunks(BLOCK as usize)
        .zip(0..)
        .filter(|(block, _)| block.iter().all(|&byte| byte == 0))
        .map(|(_, at)| at)
        .collect();
    device.taken().retain(|block| !unused.contains(block));
    device.leave(0);
    assert!(repair(device.clone(), plainly()).is_err());
    assert!(device.inner.to_vec() == damaged, "something was written");
    device.leave(64 * MIB);
    repair(device.clone(), plainly()).unwrap();
    whole(device, plainly());
}

/// A random writer, while the store has room and has none.
#[test]
fn nothing_is_lost_while_a_store_fills_and_is_emptied() {
    for (seed, options) in (1..).zip(ways()) {
        let device = Sparse::with_log(128 * MIB);
        let mut tree = mounted(&device, &options);
        let mut dice = dice(seed);
        let mut model: BTreeMap<String, Vec<u8>> = BTreeMap::new();
        let mut refused = 0;
        for step in 0..800 {
            if step % 80 == 0 {
                device.leave((step / 80 % 2) * 3 * MIB);
            }
            let path = format!("f{}", dice(12));
            let (at, len) = (dice(4_000_000), dice(400_000) as usize);
            let done = match dice(10) {
                0 => tree.unlink(&path).map(|()| drop(model.remove(&path))),
                1 => tree.truncate(&path, at).map(|()| {
                    model
                        .entry(path.clone())
                        .or_default()
                        .resize(at as usize, 0);
                }),
                2 => tree.fsync(&path),
                3 => tree.allocate(&path, at, len as u64 + 1, 3).map(|()| {
                    let content = model.entry(path.clone()).or_default();
                    let end = (at as usize + len + 1).min(content.len());
                    content
                        .get_mut(at as usize..end)
                        .unwrap_or_default()
                        .fill(0);
                }),
                4 => tree.0.checkpoint(),
                _ => {
                    if !model.contains_key(&path) && tree.create(&path).is_ok() {
                        model.insert(path.clone(), Vec::new());
                    }
                    let data = bytes(step, len);
                    tree.write(&path, at, &data).map(|written| {
                        let content = model.entry(path.clone()).or_default();
                        let end = at as usize + written;
                        if written > 0 {
                            content.resize(content.len().max(end), 0);
                            content[at as usize..end].copy_from_slice(&data[..written]);
                        }
                    })
                }
            };
            match done {
                Err(FsError::NoSpace) => refused += 1,
                Ok(()) | Err(FsError::NotFound) => {}
                Err(error) => panic!("step {step}: {error}, {:?}", tree.0.failure()),
            }
            assert_eq!(tree.0.failure(), None, "step {step}");
            if step % 200 == 199 {
                tree.0.close().unwrap();
                drop(tree);
                tree = mounted(&device, &options);
                for (path, content) in &model {
                    assert!(&tree.read(path).unwrap() == content, "step {step}: {path}");
                }
            }
        }
        assert!(refused > 0);
        tree.0.close().unwrap();
        drop(tree);
        whole(device, options);
    }
}

/// Whatever room there is: a log is resized, or it is said that there is none, and nothing is lost.
#[test]
fn a_log_is_resized_or_refused_where_a_store_is_nearly_full() {
    let all: Vec<u64> = (0..10).collect();
    let small = device(40 * MIB);
    let tree = open_plainly(small.clone());
    for file in &all {
        put_synced(&tree, &format!("f{file}"), &bytes(*file, 300_000)).unwrap();
    }
    tree.0.close().unwrap();
    drop(tree);
    let log = small.to_vec();
    // What moves the tables, and what does not; what needs other segments, and what has enough.
    for (size, left) in [
        (36, [0, 400, 10_000]),
        (48, [0, 7100, 10_000]),
        (400, [0, 7700, 10_000]),
    ] {
        let mut outcomes = BTreeSet::new();
        for left in left {
            let place = format!("{size} MiB, {left} blocks left");
            let device = Sparse::holding(&log, 400 * MIB);
            device.leave(left * BLOCK);
            let to = |device: &Arc<Sparse>| {
                let device: Arc<dyn WritableDevice> = device.clone();
                resize(&device, size * MIB, &plainly())
            };
            let resized = to(&device);
            match &resized {
                Ok(resized) => assert_eq!(resized.new.blocks * BLOCK, size * MIB, "{place}"),
                Err(LogError::Fs(FsError::NoSpace)) => {}
                Err(error) => panic!("{place}: {error}"),
            }
            if let Ok(Resized { old, new, .. }) = &resized {
                let taken = device.taken();
                let is_taken = new.tables().all(|block| taken.contains(&block));
                assert!(
                    is_taken || new.tables() == old.tables(),
                    "{place}: no room for tables"
                );
            }
            outcomes.insert(resized.is_ok());
            let tree = Tree(Log::open_as_possible(device.clone(), plainly()).unwrap());
            judge(&tree, &all, 300_000);
            let _ = tree.0.close();
            drop(tree);
            whole(device.clone(), plainly());
            device.leave(400 * MIB);
            to(&device).unwrap_or_else(|error| panic!("{place}: {error}"));
            let tree = mounted(&device, &plainly());
            judge(&tree, &all, 300_000);
            tree.0.close().unwrap();
            whole(device, plainly());
        }
        assert_eq!(outcomes.len(), 2, "{size} MiB");
    }
}

/// Blocks are set aside in pieces, and what was reserved for them may be taken by others in between.
#[test]
fn blocks_are_set_aside_while_others_write() {
    let device = Sparse::with_log(256 * MIB);
    let tree = mounted(&device, &options_with(1 << 20));
    let is_done = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            for number in 0..48 {
                if is_done.load(Ordering::Relaxed) {
                    break;
                }
                let path = format!("written{number}");
                tree.put(&path, &bytes(number, 1 << 20)).unwrap();
            }
        });
        for number in 0..12 {
            let path = format!("aside{number}");
            tree.create(&path).unwrap();
            let set_aside = tree.allocate(&path, 0, 10 * MIB, 0);
            set_aside.unwrap_or_else(|error| panic!("{path}: {error}"));
        }
        is_done.store(true, Ordering::Relaxed);
    });
    tree.0.close().unwrap();
    assert_sound(device);
}
