//! Devices of which one block cannot be read.

mod support;

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use anteros_core::{Device, FileKind, WritableDevice};
use anteros_log::{
    Area, Content, Inspector, Log, LogError, Options, check, describe, repair, repair_going_back,
    resize,
};
use support::overlay::{Base, Overlay};
use support::*;

const BLOCK: u64 = 4096;

/// A device with a block that cannot be read until it is written as a whole.
struct Scratched {
    inner: Overlay,
    block: u64,
    /// Tells whether a repair helps.
    is_mended: bool,
    is_broken: AtomicBool,
}

impl Scratched {
    fn new(base: &Base, block: u64) -> Arc<Self> {
        Arc::new(Self {
            inner: Overlay::new(base, u64::MAX),
            block,
            is_mended: true,
            is_broken: AtomicBool::new(true),
        })
    }

    /// A device with a block that cannot be read ever.
    fn for_good(base: &Base, block: u64) -> Arc<Self> {
        let mut device = Arc::into_inner(Self::new(base, block)).unwrap();
        device.is_mended = false;
        Arc::new(device)
    }
}

impl Device for Scratched {
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        let (start, end) = (self.block * BLOCK, (self.block + 1) * BLOCK);
        let touches = offset < end && offset + buf.len() as u64 > start;
        if touches && self.is_broken.load(Ordering::Relaxed) {
            return Err(io::Error::from_raw_os_error(5));
        }
        self.inner.read_at(offset, buf)
    }

    fn size(&self) -> u64 {
        self.inner.size()
    }

    fn name(&self) -> String {
        "scratched".into()
    }
}

impl WritableDevice for Scratched {
    fn write_at(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.inner.write_at(offset, data)?;
        let end = offset + data.len() as u64;
        let is_whole = offset <= self.block * BLOCK && end >= (self.block + 1) * BLOCK;
        if is_whole && self.is_mended {
            self.is_broken.store(false, Ordering::Relaxed);
        }
        Ok(())
    }

    fn flush(&self) -> io::Result<()> {
        Ok(())
    }
}

type Contents = BTreeMap<String, Vec<u8>>;

/// A log with some of everything, groups behind its checkpoint included, and what is in it.
fn log() -> (Base, Contents) {
    let device = device(32 * MIB);
    let tree = open(device.clone());
    let mut contents = Contents::new();
    let mut put = |tree: &Tree, path: &str, data: Vec<u8>| {
        tree.put(path, &data).unwrap();
        contents.insert(path.into(), data);
    };
    tree.mkdir("d").unwrap();
    for n in 0..40 {
        put(&tree, &format!("d/{n}-{}", "x".repeat(100)), bytes(n, 100));
    }
    put(&tree, "large", bytes(100, 2_500_000));
    put(&tree, "a.db", b"a page of a database ".repeat(8000));
    tree.fsync("a.db").unwrap();
    let ino = tree.ino("large").unwrap();
    anteros_core::Writable::setxattr(&tree.0, ino, b"user.v", &[7; 3000], 0).unwrap();
    tree.0.checkpoint().unwrap();
    put(&tree, "early", bytes(101, 9000));
    tree.0.checkpoint().unwrap();
    put(&tree, "late", bytes(102, 9000));
    tree.fsync("late").unwrap();
    drop(tree);
    (Base::new(&device.to_vec()), contents)
}

/// Returns what of a log can be read is right; says how many files cannot be.
fn judge(tree: &Tree, contents: &Contents, place: &str) -> usize {
    let mut lost = 0;
    for (path, content) in contents {
        match tree.read(path) {
            Ok(found) => assert!(&found == content, "{place}: {path} has other content"),
            Err(_) => lost += 1,
        }
    }
    lost
}

/// The place of the block, in words.
fn place(inspector: &Inspector, area: Area, block: u64) -> String {
    let newest = inspector.newest().unwrap().version;
    format!("block {block}, {area:?}, checkpoint {newest}")
}

/// An error names the block.
fn names(error: &LogError, block: u64, place: &str) {
    let text = error.to_string();
    assert!(
        text.contains(&format!("block {block}"))
            || text.contains(&format!("found {block}"))
            || text.contains(&format!("{block:#x}")),
        "{place}: {text}"
    );
}

/// Returns whether there is another copy of a block, or nobody needs it.
fn has_another(area: Area, newest: u64) -> bool {
    match area {
        Area::Superblock(_) => true,
        Area::Checkpoint { pack, .. } => u64::from(pack) != newest % 2,
        Area::Table { counts, .. } => counts == Some(false),
        Area::Main { .. } | Area::Unused => false,
    }
}

fn sweep(blocks: impl IntoIterator<Item = u64>) {
    let (base, contents) = log();
    let whole = Scratched::new(&base, u64::MAX / BLOCK - 1);
    let mut inspector = Inspector::open(whole, &options()).unwrap();
    let newest = inspector.newest().unwrap().version;
    let read_only = Options {
        read_only: true,
        ..options()
    };
    for block in blocks {
        let area = inspector.block(block).unwrap().area;
        let place = place(&inspector, area, block);
        let is_newest =
            matches!(area, Area::Checkpoint { pack, .. } if u64::from(pack) == newest % 2);
        let fresh = || Scratched::new(&base, block);

        let (device, other) = (fresh(), has_another(area, newest));
        match Log::open(device.clone(), options()) {
            Ok(log) => {
                let tree = Tree(log);
                let lost = judge(&tree, &contents, &place);
                assert!(!other || lost == 0, "{place}: {lost} files are lost");
                if other {
                    tree.put("after", b"all of this").unwrap();
                    tree.0.close().unwrap();
                    drop(tree);
                    let report = check(device, options()).unwrap();
                    // A pack or a copy of a table is written over by one of the next checkpoints.
                    let is_mended = report.faults.is_empty();
                    let is_superblock = matches!(area, Area::Superblock(_));
                    assert!(is_mended || !is_superblock, "{place}: {:?}", report.faults);
                }
            }
            Err(error) => {
                assert!(!other, "{place}: {error}");
                names(&error, block, &place);
            }
        }
        if let Ok(log) = Log::open(fresh(), read_only.clone()) {
            judge(&Tree(log), &contents, &place);
        }
        match check(fresh(), options()) {
            Ok(report) => {
                let is_superblock = matches!(area, Area::Superblock(_));
                assert!(!is_superblock || report.fault_count > 0, "{place}");
            }
            Err(error) => names(&error, block, &place),
        }
        if let Err(error) = describe(fresh(), options()) {
            names(&error, block, &place);
        }
        let mut seen =
            Inspector::open(fresh(), &options()).unwrap_or_else(|error| panic!("{place}: {error}"));
        let _ = seen.groups();
        (0..60).for_each(|ino| drop(seen.inode(ino)));

        let device = fresh();
        let repaired = match repair(device.clone(), options()) {
            Err(LogError::OutOfDate { .. }) if is_newest => {
                repair_going_back(device.clone(), options())
            }
            repaired => repaired,
        };
        match repaired {
            Ok(_) if !is_newest => {
                let log = Log::open(device.clone(), read_only.clone())
                    .unwrap_or_else(|error| panic!("{place}, repaired: {error}"));
                judge(&Tree(log), &contents, &place);
            }
            Ok(_) => drop(Log::open(device, read_only.clone())),
            Err(error) => names(&error, block, &place),
        }
        let device: Arc<dyn WritableDevice> = fresh();
        let _ = resize(&device, 30 * MIB, &options());
    }
}

/// Blocks that hold something, and those behind.
fn filled() -> BTreeSet<u64> {
    let (base, _) = log();
    let filled = base.blocks.keys();
    filled.flat_map(|&at| [at, at + 1]).collect()
}

#[test]
fn a_block_that_cannot_be_read_takes_no_more_away_than_it_held() {
    let (base, _) = log();
    let mut inspector =
        Inspector::open(Scratched::new(&base, u64::MAX / BLOCK - 1), &options()).unwrap();
    let mut seen: BTreeMap<String, u32> = BTreeMap::new();
    // Some of each kind.
    let chosen = filled().into_iter().filter(|&block| {
        let Ok(found) = inspector.block(block) else {
            return false;
        };
        let kind = match found.area {
            Area::Main { segment, .. } => {
                let content = format!("{:?}", found.content);
                let content = content
                    .split(['(', ' '])
                    .next()
                    .unwrap_or_default()
                    .to_owned();
                format!("{content} {:?} of {}", found.segment, segment / 4)
            }
            Area::Checkpoint { pack, index } => format!("pack {pack} {}", index.min(2)),
            Area::Table { name, copy, .. } => format!("{name} {copy}"),
            area => format!("{area:?}"),
        };
        let count = seen.entry(kind).or_default();
        *count += 1;
        *count == 1
    });
    let chosen: Vec<u64> = chosen.collect();
    assert!((12..60).contains(&chosen.len()), "{}", chosen.len());
    sweep(chosen);
}

#[test]
#[ignore = "a sweep over all blocks, some 15 seconds"]
fn no_block_that_cannot_be_read_takes_more_away_than_it_held() {
    let end = 32 * MIB / BLOCK;
    sweep(filled().into_iter().filter(|&block| block < end));
}

#[test]
fn the_block_behind_the_last_group_need_not_be_readable() {
    let (base, contents) = log();
    // Whichever it is: with each block of the main area that holds nothing, all that was synced is there.
    let mut inspector =
        Inspector::open(Scratched::new(&base, u64::MAX / BLOCK - 1), &options()).unwrap();
    let mut empty = Vec::new();
    for block in filled() {
        if let Ok(found) = inspector.block(block) {
            let is_zero = matches!(found.content, Content::Zeros);
            if is_zero && matches!(found.area, Area::Main { .. }) {
                empty.push(block);
            }
        }
    }
    assert!(!empty.is_empty());
    for &block in &empty {
        let tree = open_with(Scratched::new(&base, block), options());
        assert_eq!(judge(&tree, &contents, &format!("block {block}")), 0);
        tree.make("more", FileKind::Regular, 0o600).unwrap();
        tree.fsync("more").unwrap();
        tree.0.close().unwrap();
    }
}

/// Whatever is written to a block that can never be read, nothing is taken to it that a mount would have to find.
#[test]
fn the_log_does_not_go_on_in_a_block_that_could_not_be_read() {
    let (base, contents) = log();
    let whole = Scratched::new(&base, u64::MAX / BLOCK - 1);
    let mut inspector = Inspector::open(whole, &options()).unwrap();
    let mut sequence = |block| match inspector.block(block).ok()?.content {
        Content::Packed(header, _) => Some((header.sequence, block)),
        _ => None,
    };
    let groups = filled().into_iter().filter_map(&mut sequence);
    let (_, last) = groups.max().unwrap();
    let device = Scratched::for_good(&base, last + 1);
    for round in 0..3 {
        let log = Log::open(device.clone(), options());
        let tree = Tree(log.unwrap_or_else(|error| panic!("round {round}: {error}")));
        assert_eq!(judge(&tree, &contents, &format!("round {round}")), 0);
        for n in 0..round * 5 {
            let path = format!("more{n}");
            assert_eq!(tree.read(&path).unwrap(), bytes(n, 5000), "{path}");
        }
        for n in round * 5..round * 5 + 5 {
            let path = format!("more{n}");
            tree.put(&path, &bytes(n, 5000)).unwrap();
            tree.fsync(&path).unwrap();
        }
        // The power fails.
    }
}

/// A log that was made anew where a block stays unreadable. Nothing refers to such a block: it may be told, and is no
/// fault.
#[test]
fn a_block_that_stays_unreadable_under_a_new_log_is_no_fault_of_it() {
    let (base, _) = log();
    let mut noted = 0;
    for block in filled() {
        let device = Scratched::new(&base, block);
        make(device.clone());
        let report = check(device.clone(), options()).unwrap();
        assert_eq!(report.faults, [""; 0], "block {block}");
        let named = report
            .notes
            .iter()
            .all(|note| note.contains(&format!("block {block}")));
        assert!(
            named && report.notes.len() <= 1,
            "{block}: {:?}",
            report.notes
        );
        noted += report.notes.len();
        if !report.notes.is_empty() {
            // The log goes on elsewhere, and is as good as any.
            let tree = open(device.clone());
            tree.put("a", &bytes(1, 9000)).unwrap();
            tree.fsync("a").unwrap();
            drop(tree);
            let tree = open(device.clone());
            assert_eq!(tree.read("a").unwrap(), bytes(1, 9000));
            tree.0.close().unwrap();
            assert_sound(device);
        }
    }
    assert!(noted > 0);
}

/// Behind a checkpoint of a log that was not unmounted, a block that cannot be read may have held what was synced.
#[test]
fn a_block_that_cannot_be_read_is_a_fault_where_a_group_may_have_been() {
    let device = device(32 * MIB);
    let tree = open(device.clone());
    tree.put("a", &bytes(1, 9000)).unwrap();
    tree.fsync("a").unwrap();
    drop(tree);
    let base = Base::new(&device.to_vec());
    let whole = check(Scratched::new(&base, u64::MAX / BLOCK - 1), options()).unwrap();
    assert_eq!((whole.fault_count, whole.recovery.groups), (0, 1));
    let is_of_a_group = |block: &u64| {
        let device = Scratched::new(&base, *block);
        check(device, options()).is_ok_and(|report| report.recovery.groups == 0)
    };
    let first = base.blocks.keys().copied().filter(is_of_a_group).min();
    let report = check(Scratched::new(&base, first.unwrap()), options()).unwrap();
    assert!(report.fault_count > 0 && report.notes.is_empty());
}
