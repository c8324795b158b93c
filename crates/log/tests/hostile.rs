//! Logs that someone has tampered with: whatever lies on the device, nothing panics, hangs or takes memory without
//! bound, and an error says where the fault lies.
//!
//! `ANTEROS_HOSTILE_CASES=100000 cargo test --release -p anteros-log --test hostile` tries so many; a case that failed is
//! tried again with `ANTEROS_HOSTILE_SEED`.

mod support;

use std::collections::{BTreeMap, HashSet};
use std::ops::{ControlFlow, Range};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use anteros_core::{Attr, FileKind, FileSystem, FsError, FsResult, Ino, OpenFile, Seek, Writable};
use anteros_log::layout::superblock::{SUPERBLOCK_BYTES, SUPERBLOCK_OFFSET, Superblock};
use anteros_log::{Log, LogError, Options, Repaired, check, repair};
use support::overlay::{BLOCK, Base, Overlay};
use support::*;

/// Reads of a device of 8,192 blocks by all that a case does to one copy of it.
const READS_MAX: u64 = 400_000;
/// Inodes that are visited, each once.
const INODES_MAX: usize = 1000;
/// Memory that all cases together may take, in KiB.
const MEMORY_KIB_MAX: u64 = 1 << 20;

/// Sections 2, 3 and 8 of the page.
const SUPERBLOCK_FIELDS: [(usize, usize); 22] = [
    (0x10, 8),
    (0x18, 8),
    (0x20, 8),
    (0x90, 8),
    (0x98, 8),
    (0xa0, 4),
    (0xa4, 4),
    (0xa8, 8),
    (0xb0, 8),
    (0xb8, 4),
    (0xbc, 4),
    (0xc0, 8),
    (0xc8, 8),
    (0xd0, 4),
    (0xd4, 4),
    (0xd8, 2),
    (0xda, 2),
    (0xdc, 1),
    (0xdd, 1),
    (0xde, 1),
    (0xe0, 4),
    (0x50, 1),
];
const PACK_FIELDS: [(usize, usize); 30] = [
    (0x08, 8),
    (0x10, 4),
    (0x14, 4),
    (0x20, 4),
    (0x24, 4),
    (0x28, 8),
    (0x30, 8),
    (0x38, 4),
    (0x3c, 4),
    (0x40, 4),
    (0x44, 4),
    (0x48, 4),
    (0x4c, 4),
    (0x50, 8),
    (0x58, 4),
    (0x90, 4),
    (0x94, 2),
    (0x96, 1),
    (0x98, 4),
    (0xc0, 4),
    (0xc4, 2),
    (0xc6, 1),
    (0xc8, 4),
    (0xe0, 4),
    (0xe4, 2),
    (0xe6, 1),
    (0xe8, 4),
    (0xec, 4),
    (0x58, 4),
    (0x40, 4),
];
const INODE_FIELDS: [(usize, usize); 31] = [
    (0x08, 4),
    (0x0c, 4),
    (0x10, 8),
    (0x18, 2),
    (0x1c, 4),
    (0x20, 2),
    (0x22, 2),
    (0x24, 4),
    (0x30, 8),
    (0x38, 8),
    (0x40, 8),
    (0x48, 8),
    (0x50, 8),
    (0x58, 8),
    (0x60, 4),
    (0x70, 4),
    (0x74, 4),
    (0x78, 4),
    (0x80, 4),
    (0x84, 2),
    (0x86, 2),
    (0x88, 4),
    (0x8c, 4),
    (0x90, 4),
    (0x94, 4),
    (0x98, 4),
    (0x9c, 4),
    (0x1a0, 8),
    (0x1a8, 8),
    (0x1a4, 4),
    (0x30, 8),
];

/// Numbers that are the same for the same seed.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ mixed >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ mixed >> 31
    }

    fn below(&mut self, end: usize) -> usize {
        (self.next() % end as u64) as usize
    }

    fn of<'a, T>(&mut self, items: &'a [T]) -> &'a T {
        &items[self.below(items.len())]
    }
}

/// A log with one of everything; if `is_clean`, unmounted, else with groups behind its checkpoint.
fn log(is_clean: bool) -> Base {
    let device = device(32 * MIB);
    let tree = open(device.clone());
    for path in ["d", "d/e", "many", "gone"] {
        tree.mkdir(path).unwrap();
    }
    for n in 0..120 {
        tree.create(&format!("many/{n}-{}", "x".repeat(180)))
            .unwrap();
    }
    // So many that the table of the nodes is written.
    for n in 0..700 {
        tree.create(&format!("d/e/{n}")).unwrap();
    }
    tree.0.checkpoint().unwrap();
    for n in 40..700 {
        tree.unlink(&format!("d/e/{n}")).unwrap();
    }
    tree.put("d/inline", b"inline").unwrap();
    tree.put("d/small", &bytes(1, 20_000)).unwrap();
    tree.put("d/large", &bytes(2, 2 << 20)).unwrap();
    tree.create("d/far").unwrap();
    for offset in [3 << 20, 1 << 30, 6 << 30] {
        tree.write("d/far", offset, b"far").unwrap();
    }
    tree.create("preallocated").unwrap();
    tree.allocate("preallocated", 4096, 300_000, 0).unwrap();
    tree.symlink("short", b"d/small").unwrap();
    tree.symlink("long", &[b'x'; 4000]).unwrap();
    tree.make("fifo", FileKind::Fifo, 0o644).unwrap();
    tree.link("d/small", "d/e/again").unwrap();
    let ino = tree.ino("d/small").unwrap();
    tree.0.setxattr(ino, b"user.short", b"value", 0).unwrap();
    tree.0
        .setxattr(tree.ino("d/large").unwrap(), b"user.long", &[7; 3000], 0)
        .unwrap();
    tree.put("orphan", &bytes(3, 10_000)).unwrap();
    tree.0.lookup(tree.0.root(), b"orphan").unwrap();
    tree.unlink("orphan").unwrap();
    tree.put("gone/f", &bytes(4, 10_000)).unwrap();
    tree.0.checkpoint().unwrap();
    if is_clean {
        tree.0.close().unwrap();
        return Base::new(&device.to_vec());
    }
    tree.write("d/large", 500_000, &bytes(5, 30_000)).unwrap();
    tree.fsync("d/large").unwrap();
    tree.put("new", &bytes(6, 2 << 20)).unwrap();
    tree.rename("new", "d/inline", 0).unwrap();
    tree.0.setxattr(ino, b"user.short", b"other", 0).unwrap();
    tree.unlink("gone/f").unwrap();
    tree.rmdir("gone").unwrap();
    tree.put("d/e/tiny", b"tiny").unwrap();
    tree.allocate("preallocated", 400_000, 100_000, 0).unwrap();
    tree.fsync("preallocated").unwrap();
    tree.fsync("d/e/tiny").unwrap();
    for n in 0..100 {
        tree.create(&format!("many/new-{n}-{}", "y".repeat(180)))
            .unwrap();
    }
    tree.fsync("many").unwrap();
    Base::new(&device.to_vec())
}

/// Tells what a block of the log is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Kind {
    Superblock,
    Pack,
    SegmentTable,
    NodeTable,
    Summary,
    Inode,
    Node,
    Directory,
    Packed,
    Data,
}

/// A log, and where what lies in it.
struct Target {
    base: Base,
    kinds: BTreeMap<Kind, Vec<u64>>,
}

impl Target {
    fn new(base: Base) -> Self {
        let copy = |block| {
            base.bytes(block, 1)[SUPERBLOCK_OFFSET..][..SUPERBLOCK_BYTES]
                .try_into()
                .unwrap()
        };
        let superblock = Superblock::choose(&copy(0), &copy(1)).unwrap();
        let mut kinds: BTreeMap<Kind, Vec<u64>> = BTreeMap::new();
        for (&block, bytes) in &base.blocks {
            kinds
                .entry(kind_of(block, &**bytes, &superblock))
                .or_default()
                .push(block);
        }
        for blocks in kinds.values_mut() {
            blocks.sort_unstable();
        }
        Self { base, kinds }
    }

    /// Tampers with it in one to three places.
    fn tampered(&self, random: &mut Random) -> Base {
        let mut base = self.base.clone();
        for _ in 0..1 + random.below(3) {
            self.tamper(&mut base, random);
        }
        base
    }

    fn tamper(&self, base: &mut Base, random: &mut Random) {
        let kinds: Vec<Kind> = self.kinds.keys().copied().collect();
        let kind = *random.of(&kinds);
        let blocks = &self.kinds[&kind];
        let block = *random.of(blocks);
        let first = if kind == Kind::Pack {
            self.pack_of(block)
        } else {
            block
        };
        let count = if kind == Kind::Pack {
            u32_at(&self.base.bytes(first, 1), 0x10)
        } else {
            1
        };
        let mut bytes = base.bytes(first, count.into());
        if random.below(10) == 0 {
            // Something of the same kind from elsewhere.
            let other = base.bytes(*random.of(blocks), 1);
            bytes[..BLOCK].copy_from_slice(&other);
        }
        let body = kind.body(bytes.len());
        for _ in 0..1 + random.below(4) {
            change(&mut bytes, &body, kind.fields(), random);
        }
        // Some faults are those of the medium.
        if random.below(10) > 0 {
            kind.seal(&mut bytes);
        }
        base.put(first, &bytes);
        if kind == Kind::Superblock {
            base.put(1 - first, &bytes);
        }
    }

    /// The first block of the pack that a block lies in.
    fn pack_of(&self, block: u64) -> u64 {
        let is_first = |&block: &u64| {
            let bytes = self.base.bytes(block, 1);
            bytes.starts_with(b"CKPT") || bytes.starts_with(b"CKPO")
        };
        (0..=block).rev().find(is_first).unwrap_or(block)
    }
}

fn kind_of(block: u64, bytes: &[u8], superblock: &Superblock) -> Kind {
    match block {
        0 | 1 => Kind::Superblock,
        _ if block < superblock.sit_start => Kind::Pack,
        _ if block < superblock.bst_start => Kind::SegmentTable,
        _ if block < superblock.main_start => Kind::NodeTable,
        _ if superblock.locate(block).is_none() => Kind::Summary,
        _ => match &bytes[..4] {
            b"NODE" if bytes[0x18] == 1 => Kind::Inode,
            b"NODE" => Kind::Node,
            b"DIRB" => Kind::Directory,
            b"PACK" => Kind::Packed,
            _ => Kind::Data,
        },
    }
}

impl Kind {
    /// Returns where to tamper.
    fn body(self, len: usize) -> Range<usize> {
        match self {
            Self::Superblock => SUPERBLOCK_OFFSET..SUPERBLOCK_OFFSET + SUPERBLOCK_BYTES,
            // The numbers of an inode are a small part of it.
            Self::Inode => 0..0x220,
            Self::Pack => 0..len.min(3 * BLOCK),
            Self::Packed => 0..0x400,
            _ => 0..len,
        }
    }

    /// Numbers at fixed places of the body, and their bytes.
    fn fields(self) -> &'static [(usize, usize)] {
        match self {
            Self::Superblock => &SUPERBLOCK_FIELDS,
            Self::Pack => &PACK_FIELDS,
            Self::Inode => &INODE_FIELDS,
            Self::Packed => &[
                (8, 8),
                (0x10, 4),
                (0x14, 4),
                (0x18, 2),
                (0x1a, 1),
                (0x1b, 1),
                (0x1c, 2),
                (0x22, 2),
                (0x24, 2),
            ],
            Self::Directory => &[(8, 2), (10, 2), (12, 2), (16, 8), (24, 4), (29, 1)],
            Self::Node => &[
                (0x10, 8),
                (0x18, 2),
                (0x1c, 4),
                (0x20, 2),
                (0x20, 4),
                (0x20, 8),
                (0x28, 8),
            ],
            _ => &[(0, 0)],
        }
    }

    /// Writes the checksum, where there is one.
    fn seal(self, bytes: &mut [u8]) {
        let (range, at) = match self {
            Self::Superblock => (SUPERBLOCK_OFFSET..SUPERBLOCK_OFFSET + SUPERBLOCK_BYTES, 8),
            Self::Summary => (0..BLOCK, 0),
            Self::Pack | Self::Inode | Self::Node | Self::Directory | Self::Packed => {
                (0..bytes.len(), 4)
            }
            Self::SegmentTable | Self::NodeTable | Self::Data => return,
        };
        let bytes = &mut bytes[range];
        bytes[at..at + 4].fill(0);
        let crc = crc32c::crc32c(bytes);
        bytes[at..at + 4].copy_from_slice(&crc.to_le_bytes());
    }
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap())
}

/// Changes a number somewhere.
fn change(bytes: &mut [u8], body: &Range<usize>, fields: &[(usize, usize)], random: &mut Random) {
    let (field, of_field) = *random.of(fields);
    // Half of the time a number that the format has, else anything.
    let is_field = of_field > 0 && random.below(2) == 0;
    let width = if is_field {
        of_field
    } else {
        1 << random.below(4)
    };
    let place = |random: &mut Random| {
        let at = body.start + random.below(body.len());
        // Most numbers lie at multiples of their size; names and records do not.
        let at = if random.below(4) > 0 {
            at / width * width
        } else {
            at
        };
        at.clamp(body.start, body.end - width)
    };
    let at = if is_field {
        body.start + field
    } else {
        place(random)
    };
    let mut old = [0; 8];
    old[..width].copy_from_slice(&bytes[at..at + width]);
    let old = u64::from_le_bytes(old);
    let new = match random.below(10) {
        0 => 0,
        1 => u64::MAX,
        2 => old.wrapping_add(1),
        3 => old.wrapping_sub(1),
        4 => old ^ 1 << random.below(8 * width),
        5 => random.next(),
        6 => random.below(600) as u64,
        7 => 1 << random.below(8 * width),
        8 => u64::MAX >> 1,
        _ => {
            let from = place(random);
            bytes.copy_within(from..from + width, at);
            return;
        }
    };
    bytes[at..at + width].copy_from_slice(&new.to_le_bytes()[..width]);
}

/// Checks that an error says where.
fn judge(error: &LogError) {
    let is_operation = match error {
        LogError::Fs(error) => !matches!(
            error,
            FsError::Corrupt(_) | FsError::Io(_) | FsError::Unsupported
        ),
        _ => false,
    };
    assert!(!is_operation, "an error that is no help: {error:?}");
    assert!(error.to_string().len() > 10, "{error:?}");
}

/// Visits everything, as far as there is time for it, and returns the names with their directories.
fn walk(log: &Log) -> Vec<(Ino, Vec<u8>, Ino)> {
    let (mut seen, mut pending, mut names) = (HashSet::new(), vec![log.root()], Vec::new());
    while let Some(ino) = pending.pop() {
        if seen.len() >= INODES_MAX || !seen.insert(ino) {
            continue;
        }
        let Ok(attr) = log.getattr(ino) else {
            continue;
        };
        look(log, &attr);
        let mut count = 0;
        let _ = log.readdir(ino, 0, &mut |entry| {
            if entry.name != b"." && entry.name != b".." {
                names.push((ino, entry.name.to_vec(), entry.ino));
                pending.push(entry.ino);
            }
            count += 1;
            if count < INODES_MAX {
                ControlFlow::Continue(())
            } else {
                ControlFlow::Break(())
            }
        });
    }
    names
}

fn look(log: &Log, attr: &Attr) {
    let ino = attr.ino;
    for name in log.listxattr(ino).unwrap_or_default() {
        let _ = log.getxattr(ino, &name);
    }
    let _ = log.readlink(ino);
    let mut buf = vec![0; 30_000];
    for offset in [
        0,
        attr.size / 2 + 1,
        attr.size.saturating_sub(100),
        1 << 40,
        u64::MAX - 100,
    ] {
        let _ = log.read(ino, offset, &mut buf);
    }
    for what in [Seek::Data, Seek::Hole] {
        let _ = log.seek(ino, attr.size / 3, what);
    }
}

/// Changes this and that; every step may fail. Says whether the log could be unmounted.
fn meddle(tree: &Tree, names: &[(Ino, Vec<u8>, Ino)], random: &mut Random) -> bool {
    let _ = tree.put("meddled", &bytes(1, 30_000));
    let _ = tree.mkdir("meddled-d");
    for _ in 0..6 {
        let Some((parent, name, ino)) = (!names.is_empty()).then(|| random.of(names)) else {
            break;
        };
        let (ino, parent) = (*ino, *parent);
        let _ = try_one(tree, (parent, name, ino), random.below(8));
        if random.below(4) == 0 {
            let _ = tree.fsync("");
        }
    }
    for n in 0..30 {
        let _ = tree.create(&format!("many/meddled-{n}-{}", "z".repeat(200)));
    }
    let _ = tree.fsync("meddled");
    let _ = tree.0.clean();
    let _ = tree.0.checkpoint();
    let _ = tree.0.statfs();
    tree.0.close().is_ok()
}

fn try_one(tree: &Tree, (parent, name, ino): (Ino, &[u8], Ino), which: usize) -> FsResult<()> {
    let log = &tree.0;
    let file = || {
        Ok::<_, FsError>(OpenFile {
            ino,
            handle: log.open(ino, 2)?,
        })
    };
    match which {
        0 => log.unlink(parent, name),
        1 => log.rename((parent, name), (log.root(), b"renamed"), 0),
        2 => {
            let file = file()?;
            log.write(file, 5000, &[1; 20_000], true)?;
            log.fsync(file, false)
        }
        3 => {
            let changes = anteros_core::Changes {
                size: Some(100),
                ..Default::default()
            };
            log.change(ino, None, &changes).map(drop)
        }
        4 => log.setxattr(ino, b"user.meddled", &[3; 1000], 0),
        5 => log.rmdir(parent, name),
        6 => log.allocate(file()?, 10_000, 200_000, 0),
        _ => log.link(ino, log.root(), b"linked").map(drop),
    }
}

/// Checks that a repair which says that nothing is left has left nothing.
fn assert_sound_after(device: Arc<Overlay>, repaired: &Repaired) {
    let report = check(device, options()).unwrap_or_else(|error| panic!("repaired: {error}"));
    assert_eq!(report.faults, [""; 0], "{repaired:?}");
}

/// Does all that can be done to a log, on copies.
fn use_log(base: &Base, random: &mut Random) {
    let device = Arc::new(Overlay::new(base, READS_MAX));
    match check(device.clone(), options()) {
        Ok(report) => assert!(report.faults.iter().all(|fault| !fault.is_empty())),
        Err(error) => judge(&error),
    }
    assert!(!device.is_exhausted(), "a check reads without end");
    let device = Arc::new(Overlay::new(base, READS_MAX));
    match repair(device.clone(), options()) {
        Ok(repaired) if repaired.left.is_empty() => assert_sound_after(device.clone(), &repaired),
        Ok(_) => {}
        Err(error) => judge(&error),
    }
    assert!(!device.is_exhausted(), "a repair reads without end");
    for read_only in [true, false] {
        let device = Arc::new(Overlay::new(base, READS_MAX));
        let options = Options {
            memory_bytes: 4 << 20,
            read_only,
            ..options()
        };
        match Log::open(device.clone(), options.clone()) {
            Ok(log) => {
                let names = walk(&log);
                // What we have written ourselves can be mounted.
                if !read_only && meddle(&Tree(log), &names, random) {
                    let again = Log::open(device.clone(), options.clone())
                        .unwrap_or_else(|error| panic!("again: {error}"));
                    assert!(
                        again.recovery().was_clean,
                        "the last checkpoint does not count"
                    );
                }
            }
            Err(error) => judge(&error),
        }
        assert!(!device.is_exhausted(), "a mount reads without end");
    }
}

fn message(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().cloned();
    text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()))
        .unwrap_or_default()
}

fn hunt(is_clean: bool) {
    let target = Target::new(log(is_clean));
    for kind in [
        Kind::Superblock,
        Kind::Pack,
        Kind::Summary,
        Kind::Inode,
        Kind::Node,
        Kind::Directory,
        Kind::NodeTable,
    ] {
        assert!(
            target.kinds.contains_key(&kind),
            "{kind:?} is not tampered with"
        );
    }
    // What was not tampered with is without fault, or nothing is found here.
    let report = assert_sound(Arc::new(Overlay::new(&target.base, READS_MAX)));
    assert_eq!(report.recovery.groups > 0, !is_clean);
    let number = |name| {
        std::env::var(name)
            .ok()
            .map(|text| text.parse::<u64>().unwrap())
    };
    let seeds = match number("ANTEROS_HOSTILE_SEED") {
        Some(seed) => seed..seed + 1,
        None => 0..number("ANTEROS_HOSTILE_CASES").unwrap_or(2000) / 2,
    };
    for seed in seeds {
        let random = &mut Random(seed << 1 | u64::from(is_clean));
        let base = target.tampered(random);
        let outcome = catch_unwind(AssertUnwindSafe(|| use_log(&base, random)));
        if let Err(panic) = outcome {
            panic!("ANTEROS_HOSTILE_SEED={seed}: {}", message(&*panic));
        }
    }
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let peak = status
        .lines()
        .find_map(|line| line.strip_prefix("VmHWM:"))
        .unwrap();
    let peak: u64 = peak.trim().trim_end_matches(" kB").parse().unwrap();
    assert!(peak < MEMORY_KIB_MAX, "{peak} KiB of memory");
}

#[test]
fn a_log_that_was_unmounted_may_be_tampered_with() {
    hunt(true);
}

#[test]
fn a_log_that_has_to_be_recovered_may_be_tampered_with() {
    hunt(false);
}
