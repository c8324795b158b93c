//! Blocks of the node address table that cannot be read, or not be written.

mod support;

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::sync::Mutex;

use anteros_core::{Device, MemoryDevice, WritableDevice};
use anteros_log::{Area, Content, Inspector, Log, Options, check, repair};
use anteros_tests::faulty::{Call, Faulty, When};
use rustix::io::Errno;
use support::*;

const BLOCK: u64 = 4096;

/// Tells how a block is broken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Defect {
    /// It cannot be read until it is written.
    UntilWritten,
    /// It cannot be read, whatever is written.
    Unreadable,
    /// It can be neither read nor written.
    Gone,
}

/// A device of which some blocks are broken.
struct Broken {
    inner: MemoryDevice,
    blocks: Mutex<BTreeMap<u64, Defect>>,
}

impl Broken {
    fn new(bytes: &[u8]) -> Arc<Self> {
        Arc::new(Self {
            inner: MemoryDevice::new(bytes.to_vec()),
            blocks: Mutex::default(),
        })
    }

    fn with(bytes: &[u8], blocks: &[u64], defect: Defect) -> Arc<Self> {
        let device = Self::new(bytes);
        device.damage(blocks, defect);
        device
    }

    fn damage(&self, blocks: &[u64], defect: Defect) {
        let mut broken = self.blocks.lock().unwrap();
        broken.extend(blocks.iter().map(|&block| (block, defect)));
    }

    fn check(&self, offset: u64, len: u64, is_hit: impl Fn(Defect) -> bool) -> io::Result<()> {
        let range = offset / BLOCK..(offset + len).div_ceil(BLOCK);
        let broken = self.blocks.lock().unwrap();
        let hit = broken.range(range).any(|(_, &defect)| is_hit(defect));
        match hit {
            true => Err(io::Error::from_raw_os_error(5)),
            false => Ok(()),
        }
    }
}

impl Device for Broken {
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        self.check(offset, buf.len() as u64, |_| true)?;
        self.inner.read_at(offset, buf)
    }

    fn size(&self) -> u64 {
        self.inner.size()
    }

    fn name(&self) -> String {
        "broken".into()
    }
}

impl WritableDevice for Broken {
    fn write_at(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.check(offset, data.len() as u64, |defect| defect == Defect::Gone)?;
        self.inner.write_at(offset, data)?;
        let whole = offset.div_ceil(BLOCK)..(offset + data.len() as u64) / BLOCK;
        self.blocks
            .lock()
            .unwrap()
            .retain(|block, defect| *defect != Defect::UntilWritten || !whole.contains(block));
        Ok(())
    }

    fn flush(&self) -> io::Result<()> {
        Ok(())
    }
}

const FILES: u32 = 900;

/// A log with so many files that the table has their inodes.
fn log() -> Vec<u8> {
    let device = device(32 * MIB);
    let tree = open(device.clone());
    for n in 0..FILES {
        tree.put(&format!("old{n}"), &bytes(n.into(), 100)).unwrap();
    }
    tree.0.close().unwrap();
    drop(tree);
    device.to_vec()
}

/// Returns the places of the copies of the table's blocks, the valid ones first.
fn table(bytes: &[u8]) -> Vec<[u64; 2]> {
    let mut inspector = Inspector::open(Broken::new(bytes), &options()).unwrap();
    let mut found: BTreeMap<u32, [u64; 2]> = BTreeMap::new();
    for block in 0..32 * MIB / BLOCK {
        let area = inspector.block(block).unwrap().area;
        if let Area::Table {
            name: "node address table",
            index,
            counts,
            ..
        } = area
        {
            let copies = found.entry(index).or_default();
            copies[usize::from(counts != Some(true))] = block;
        }
    }
    found.into_values().collect()
}

/// The summaries of segments that are full.
fn summaries(bytes: &[u8]) -> Vec<u64> {
    let mut inspector = Inspector::open(Broken::new(bytes), &options()).unwrap();
    let mut is_summary = |&block: &u64| {
        let content = inspector.block(block).unwrap().content;
        matches!(content, Content::Summary { .. })
    };
    (0..32 * MIB / BLOCK)
        .filter(|block| is_summary(block))
        .collect()
}

fn read_only() -> Options {
    Options {
        read_only: true,
        ..options()
    }
}

/// Sees that the files of before can be read, and so many that came later.
fn judge(log: Log, new: u32, place: &str) {
    let tree = Tree(log);
    for n in 0..FILES {
        let found = tree.read(&format!("old{n}"));
        let found = found.unwrap_or_else(|error| panic!("{place}: old{n}: {error}"));
        assert!(found == bytes(n.into(), 100), "{place}: old{n}");
    }
    for n in 0..new {
        let found = tree.read(&format!("new{n}"));
        let found = found.unwrap_or_else(|error| panic!("{place}: new{n}: {error}"));
        assert!(found == bytes(n.into(), 50), "{place}: new{n}");
    }
}

/// Syncs new files until one is refused, or there are so many.
fn sync_files(tree: &Tree, from: u32, count: u32) -> u32 {
    for n in from..from + count {
        let path = format!("new{n}");
        let put = tree.put(&path, &bytes(n.into(), 50));
        if put.and_then(|()| tree.fsync(&path)).is_err() {
            return n;
        }
    }
    from + count
}

/// 300 files are synced, and all is there behind an unmount, without one and read-only; then it is repaired.
fn go_on(bytes: &[u8], broken: &[u64], defect: Defect) {
    let place = format!("blocks {broken:?}, {defect:?}");
    let device = Broken::with(bytes, broken, defect);
    judge(Log::open(device.clone(), read_only()).unwrap(), 0, &place);
    let tree = open(device.clone());
    assert_eq!(sync_files(&tree, 0, 150), 150, "{place}");
    // The power fails.
    drop(tree);
    judge(Log::open(device.clone(), read_only()).unwrap(), 150, &place);
    let tree = open(device.clone());
    assert_eq!(sync_files(&tree, 150, 150), 300, "{place}");
    tree.0
        .close()
        .unwrap_or_else(|error| panic!("{place}: {error}"));
    judge(tree.0, 300, &place);
    judge(Log::open(device.clone(), options()).unwrap(), 300, &place);
    repair(device.clone(), options()).unwrap_or_else(|error| panic!("{place}: {error}"));
    judge(Log::open(device.clone(), options()).unwrap(), 300, &place);
    let report = check(device, options()).unwrap();
    let is_of_table = |fault: &String| fault.contains("node address table: block");
    assert!(
        report.faults.iter().all(is_of_table),
        "{place}: {:?}",
        report.faults
    );
}

#[test]
fn a_block_that_cannot_be_read_takes_nothing_away() {
    let bytes = log();
    let table = table(&bytes);
    // Of the root, of the last files that were there, of the first ones that come, and of nobody.
    for (index, defect) in [
        (0, Defect::UntilWritten),
        (0, Defect::Gone),
        (3, Defect::Unreadable),
        (4, Defect::UntilWritten),
        (20, Defect::Unreadable),
    ] {
        go_on(&bytes, &table[index][..1], defect);
    }
}

#[test]
fn nodes_are_found_without_summaries() {
    let bytes = log();
    let table = table(&bytes);
    let mut broken = summaries(&bytes);
    assert!(packs_inodes() || !broken.is_empty());
    broken.push(table[1][0]);
    let device = Broken::with(&bytes, &broken, Defect::Unreadable);
    judge(Log::open(device, read_only()).unwrap(), 0, "no summaries");
}

#[test]
fn a_block_that_can_be_neither_read_nor_written_takes_nothing_away() {
    let bytes = log();
    let table = table(&bytes);
    go_on(&bytes, &table[0], Defect::Gone);
    go_on(&bytes, &table[2..5].concat(), Defect::Gone);
}

#[test]
fn what_is_broken_is_said_once_and_mended_by_the_next_checkpoint() {
    let bytes = log();
    let [broken, _] = table(&bytes)[1];
    let device = Broken::with(&bytes, &[broken], Defect::Gone);
    let report = check(device.clone(), options()).unwrap();
    assert_eq!(report.fault_count, 1, "{:?}", report.faults);
    assert!(report.faults[0].contains(&format!("block {broken}")));

    let repaired = repair(device.clone(), options()).unwrap();
    assert_eq!((repaired.repairs.len(), repaired.left.len()), (1, 0));
    assert!(repaired.repairs[0].contains(&format!("block {broken}")));
    let report = check(device.clone(), options()).unwrap();
    assert_eq!(report.fault_count, 0, "{:?}", report.faults);

    let device = Broken::with(&bytes, &[broken], Defect::UntilWritten);
    let tree = open(device.clone());
    tree.read("old300").unwrap();
    tree.0.checkpoint().unwrap();
    let warnings = tree.0.take_warnings();
    assert_eq!(warnings.len(), 1, "{warnings:?}");
    tree.0.close().unwrap();
    assert!(tree.0.take_warnings().is_empty());
    assert_eq!(check(device, options()).unwrap().fault_count, 0);
}

/// Damages more blocks than a checkpoint has room for: that is told before something is lost.
#[test]
fn many_blocks_that_are_gone_are_refused_before_anything_is_lost() {
    let bytes = log();
    let table = table(&bytes);
    let broken: Vec<u64> = table[..6].concat();
    for count in [4, 5, 6] {
        let device = Broken::with(&bytes, &broken[..2 * count], Defect::Gone);
        let place = format!("{count} blocks");
        let (mut synced, mut told) = (0, Vec::new());
        for _ in 0..3 {
            let Ok(log) = Log::open_as_possible(device.clone(), options()) else {
                panic!("{place}: refused");
            };
            let tree = Tree(log);
            synced = sync_files(&tree, synced, 300);
            let _ = tree.0.close();
            told.extend(tree.0.take_warnings());
            told.extend(tree.0.failure());
        }
        assert!(told.iter().any(|text| text.contains("block ")), "{place}");
        judge(
            Log::open(device.clone(), read_only()).unwrap(),
            synced,
            &place,
        );
        if let Err(error) = repair(device.clone(), options()) {
            assert!(error.to_string().contains("block "), "{place}: {error}");
        }
        judge(Log::open(device, read_only()).unwrap(), synced, &place);
    }
}

/// One more, and a checkpoint would have no room for what the table lacks: the one that has it is the last.
#[test]
fn too_many_blocks_that_cannot_be_written_end_all_changes() {
    let bytes = log();
    let table = table(&bytes).concat();
    let device = Broken::new(&bytes);
    let tree = open_plainly(device.clone());
    for _ in 0..900 {
        tree.create("new").unwrap();
        tree.unlink("new").unwrap();
    }
    device.damage(&table, Defect::Gone);
    tree.0.checkpoint().unwrap();
    let why = tree.0.failure().unwrap();
    assert!(why.contains("too many blocks"), "{why}");
    assert!(tree.create("after").is_err());
    drop(tree);
    judge(Log::open(device, read_only()).unwrap(), 0, "too many");
}

/// The copy that could not be written does not count, neither now nor for the next mount.
#[test]
fn a_block_that_cannot_be_written_leaves_the_other_copy_as_it_is() {
    let bytes = log();
    let [_, other] = table(&bytes)[3];
    let device = Arc::new(Faulty::new(MemoryDevice::new(bytes)));
    let tree = open_plainly(device.clone());
    for _ in 0..900 {
        tree.create("new").unwrap();
        tree.unlink("new").unwrap();
    }
    let broken = When::Touching(other * BLOCK..(other + 1) * BLOCK);
    device.inject(Call::Write, broken, Errno::IO);
    tree.0.checkpoint().unwrap();
    let told = tree.0.take_warnings();
    assert!(
        told.len() == 1 && told[0].contains(&format!("block {other}")),
        "{told:?}"
    );
    tree.0.close().unwrap();
    drop(tree);
    device.heal();
    judge(Log::open(device, read_only()).unwrap(), 0, "one copy");
}
