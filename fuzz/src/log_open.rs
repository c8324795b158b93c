//! The target `log_open`.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, HashSet};
use std::io;
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock};

use anteros_core::{
    Caller, Device, FileKind, FileSystem, Ino, New, OpenFile, Rdev, Timestamp, Writable,
    WritableDevice,
};
use anteros_log::layout::superblock::{SUPERBLOCK_BYTES, SUPERBLOCK_OFFSET, Superblock};
use anteros_log::{Codec, Log, Options, Policy, Shape, check, mkfs};

/// Bytes of the device: the least that a log takes, nearly all of them zero.
const DEVICE_BYTES: u64 = 32 << 20;
const BLOCK: usize = 4096;
/// Reads that a check or a mount of it may do, with all that follows.
const READS_MAX: u64 = 300_000;
/// Inodes that are visited, each once.
const INODES_MAX: usize = 200;
/// Entries that are taken from a directory.
const ENTRIES_MAX: usize = 300;
/// Changes of the log that an input can ask for.
const PATCHES_MAX: usize = 64;
/// Memory of the log.
pub(crate) const MEMORY_BYTES: usize = 2 << 20;

type Block = [u8; BLOCK];
pub(crate) type Blocks = HashMap<u64, Arc<Block>>;

/// Changes a log of one of everything, checks it, mounts it, walks through it and writes to it.
///
/// The input is a row of patches: flags (1: the checksum of the block is made right, 2: of the log that was not
/// unmounted), the number of a block that is not empty (u16), a place in it (u16), a length (u8), and the bytes.
pub fn log_open(input: &[u8]) {
    let [clean, crashed] = bases();
    let base = if input.first().is_some_and(|flags| flags & 2 != 0) {
        crashed
    } else {
        clean
    };
    let blocks = base.patched(input, false);
    let device = || Arc::new(Overlay::new(blocks.clone()));
    let options = Options {
        memory_bytes: MEMORY_BYTES,
        ..Options::new(clock)
    };
    let checked = device();
    let report = check(
        checked.clone(),
        Options {
            read_only: true,
            ..options.clone()
        },
    );
    assert!(!checked.is_exhausted(), "a check reads without end");
    if let Ok(report) = report {
        assert!(report.faults.len() as u64 <= report.fault_count);
    }
    let mounted = device();
    if let Ok(log) = Log::open(mounted.clone(), options) {
        walk(&log);
        write(&log);
    }
    assert!(!mounted.is_exhausted(), "a mount reads without end");
}

pub(crate) fn clock() -> Timestamp {
    Timestamp {
        secs: 1_700_000_000,
        nanos: 0,
    }
}

/// A log, and which of its blocks are not empty.
pub(crate) struct Base {
    blocks: Blocks,
    filled: Vec<u64>,
    superblock: Superblock,
}

/// One that was unmounted, and one that was not; made once.
pub(crate) fn bases() -> &'static [Base; 2] {
    static BASES: OnceLock<[Base; 2]> = OnceLock::new();
    BASES.get_or_init(|| [Base::new(true), Base::new(false)])
}

impl Base {
    fn new(is_clean: bool) -> Self {
        let device = Arc::new(Overlay::new(Blocks::new()));
        let writable: Arc<dyn WritableDevice> = device.clone();
        let shape = Shape {
            uuid: [7; 16],
            hash_seed: [9; 16],
            ..Shape::default()
        };
        let options = Options::new(clock);
        mkfs(&writable, &shape, Caller::default(), &options).expect("a log");
        fill_packed(&device, &options);
        let log = Log::open(device.clone(), options).expect("what was just made");
        fill(&log, is_clean);
        drop(log);
        let blocks = device.blocks.lock().expect("nobody panics").clone();
        let mut filled: Vec<u64> = blocks.keys().copied().collect();
        filled.sort_unstable();
        let copy = &blocks[&0][SUPERBLOCK_OFFSET..][..SUPERBLOCK_BYTES];
        let superblock =
            Superblock::parse(copy.try_into().expect("as many bytes")).expect("a superblock");
        Self {
            blocks,
            filled,
            superblock,
        }
    }

    /// The blocks with what the input changes; all checksums are made right, or those that it says.
    pub(crate) fn patched(&self, mut input: &[u8], seals_all: bool) -> Blocks {
        let mut blocks = self.blocks.clone();
        for _ in 0..PATCHES_MAX {
            let Some((&[flags, low, high, at_low, at_high, len], rest)) =
                input.split_first_chunk::<6>()
            else {
                break;
            };
            let (bytes, rest) = rest.split_at(rest.len().min(len.into()));
            input = rest;
            let number = usize::from(u16::from_le_bytes([low, high])) % self.filled.len();
            let place = self.filled[number];
            let at = usize::from(u16::from_le_bytes([at_low, at_high])) % BLOCK;
            let bytes = &bytes[..bytes.len().min(BLOCK - at)];
            let block = Arc::make_mut(blocks.get_mut(&place).expect("a filled block"));
            block[at..at + bytes.len()].copy_from_slice(bytes);
            if seals_all || flags & 1 != 0 {
                self.seal(&mut blocks, place);
            }
        }
        blocks
    }

    /// Makes the checksum of a block right, whatever structure it is of.
    fn seal(&self, blocks: &mut Blocks, place: u64) {
        let is_summary =
            place >= self.superblock.main_start && self.superblock.locate(place).is_none();
        let is_pack =
            (self.superblock.checkpoint_start..self.superblock.sit_start).contains(&place);
        let first = if is_pack { self.pack_of(place) } else { place };
        // As it was: a pack that claims to be larger is refused, whatever its checksum.
        let count = if is_pack {
            u32_at(&*self.blocks[&first], 0x10)
        } else {
            1
        };
        let zeros = [0; BLOCK];
        let mut bytes: Vec<u8> = Vec::new();
        for block in first..first + u64::from(count) {
            bytes.extend_from_slice(blocks.get(&block).map_or(&zeros, |block| &**block));
        }
        let (range, at) = match place {
            0 | 1 => (SUPERBLOCK_OFFSET..SUPERBLOCK_OFFSET + SUPERBLOCK_BYTES, 8),
            _ if is_summary => (0..BLOCK, 0),
            _ if is_pack || [&b"NODE"[..], b"DIRB", b"PACK"].contains(&&bytes[..4]) => {
                (0..bytes.len(), 4)
            }
            _ => return,
        };
        let covered = &mut bytes[range.clone()];
        covered[at..at + 4].fill(0);
        let crc = crc32c::crc32c(covered).to_le_bytes();
        let block = Arc::make_mut(blocks.get_mut(&first).expect("a filled block"));
        block[range.start + at..][..4].copy_from_slice(&crc);
    }

    fn pack_of(&self, place: u64) -> u64 {
        let pack = u64::from(self.superblock.checkpoint_blocks);
        let start = self.superblock.checkpoint_start;
        start + (place - start) / pack * pack
    }
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"))
}

/// Makes a file in chunks of each codec.
fn fill_packed(device: &Arc<Overlay>, options: &Options) {
    for (name, codec) in Codec::ALL {
        let options = Options {
            policy: Policy::Force,
            codec,
            ..options.clone()
        };
        let log = Log::open(device.clone(), options).expect("what was just made");
        let ino = make(&log, log.root(), name.as_bytes(), FileKind::Regular).expect("room");
        put(&log, ino, 0, &name.as_bytes().repeat(10_000));
        log.close().expect("a device that works");
    }
}

/// Makes a few of everything.
fn fill(log: &Log, is_clean: bool) {
    let root = log.root();
    let dir = make(log, root, b"d", FileKind::Directory).expect("room");
    for n in 0..60 {
        make(
            log,
            dir,
            format!("{n}-{}", "x".repeat(120)).as_bytes(),
            FileKind::Regular,
        )
        .expect("room");
    }
    let small = make(log, root, b"small", FileKind::Regular).expect("room");
    put(log, small, 0, b"small");
    let large = make(log, root, b"large", FileKind::Regular).expect("room");
    put(log, large, 1000, &[1; 50_000]);
    put(log, large, 3 << 20, &[2; 5000]);
    put(log, large, 3 << 30, &[3; 5000]);
    log.setxattr(large, b"user.long", &[4; 1000], 0)
        .expect("room");
    log.setxattr(small, b"user.short", b"value", 0)
        .expect("room");
    log.symlink(&named(root, b"link"), b"small").expect("room");
    log.checkpoint().expect("a device that works");
    if is_clean {
        return log.close().expect("a device that works");
    }
    put(log, large, 4096, &[5; 20_000]);
    log.fsync(
        OpenFile {
            ino: large,
            handle: 0,
        },
        false,
    )
    .expect("a device that works");
    log.rename((root, b"small"), (dir, b"moved"), 0)
        .expect("room");
    log.unlink(dir, format!("7-{}", "x".repeat(120)).as_bytes())
        .expect("a name");
    let new = make(log, root, b"new", FileKind::Regular).expect("room");
    put(log, new, 0, b"new");
    log.fsync(
        OpenFile {
            ino: new,
            handle: 0,
        },
        false,
    )
    .expect("a device that works");
}

fn named(parent: Ino, name: &[u8]) -> New<'_> {
    New {
        parent,
        name,
        mode: 0o644,
        umask: 0,
        caller: Caller::default(),
    }
}

fn make(log: &Log, parent: Ino, name: &[u8], kind: FileKind) -> Option<Ino> {
    let new = New {
        mode: kind.mode_bits() | 0o700,
        ..named(parent, name)
    };
    let ino = Writable::make(log, &new, Rdev::default()).ok()?.ino;
    log.forget(ino, 1);
    Some(ino)
}

fn put(log: &Log, ino: Ino, offset: u64, data: &[u8]) {
    // Of a hostile log, it may fail.
    let _ = Writable::write(log, OpenFile { ino, handle: 0 }, offset, data, false);
}

/// Looks at everything, as far as there is time for it.
fn walk(log: &Log) {
    let (mut seen, mut pending) = (HashSet::new(), vec![log.root()]);
    let mut buf = vec![0; 20_000];
    while let Some(ino) = pending.pop().filter(|_| seen.len() < INODES_MAX) {
        let Some(attr) = log.getattr(ino).ok().filter(|_| seen.insert(ino)) else {
            continue;
        };
        assert!(attr.mtime.nanos < 1_000_000_000);
        for name in log.listxattr(ino).unwrap_or_default() {
            log.getxattr(ino, &name)
                .expect("an attribute that is listed");
        }
        let _ = log.readlink(ino);
        for offset in [0, attr.size / 2, attr.size.saturating_sub(5)] {
            if let Ok(len) = log.read(ino, offset, &mut buf) {
                assert!(len as u64 <= attr.size - offset);
            }
        }
        let mut left = ENTRIES_MAX;
        let _ = log.readdir(ino, 0, &mut |entry| {
            assert!((1..=255).contains(&entry.name.len()) && !entry.name.contains(&b'/'));
            pending.push(entry.ino);
            left -= 1;
            if left > 0 {
                ControlFlow::Continue(())
            } else {
                ControlFlow::Break(())
            }
        });
    }
}

/// Writes to it; all of it may fail.
fn write(log: &Log) {
    let root = log.root();
    for name in [&b"large"[..], b"new"] {
        if let Ok(attr) = log.lookup(root, name) {
            put(log, attr.ino, 2000, &[9; 9000]);
        }
    }
    if let Some(ino) = make(log, root, b"made", FileKind::Regular) {
        put(log, ino, 0, &[8; 9000]);
        let _ = log.fsync(OpenFile { ino, handle: 0 }, false);
    }
    let _ = log.rename((root, b"large"), (root, b"renamed"), 0);
    let _ = log.unlink(root, b"renamed");
    let _ = log.clean();
    let _ = log.close();
}

/// A device whose blocks are shared until they are changed. It takes so many reads and no more.
pub(crate) struct Overlay {
    blocks: Mutex<Blocks>,
    reads: AtomicU64,
}

impl Overlay {
    pub(crate) fn new(blocks: Blocks) -> Self {
        Self {
            blocks: Mutex::new(blocks),
            reads: AtomicU64::new(0),
        }
    }

    pub(crate) fn is_exhausted(&self) -> bool {
        self.reads.load(Ordering::Relaxed) > READS_MAX
    }

    /// Calls `visit` with each block of a range, where in it, and which part of the range.
    fn visit(
        &self,
        offset: u64,
        len: usize,
        mut visit: impl FnMut(&mut Blocks, u64, usize, std::ops::Range<usize>),
    ) -> io::Result<()> {
        let end = offset
            .checked_add(len as u64)
            .filter(|&end| end <= DEVICE_BYTES);
        end.ok_or(io::ErrorKind::UnexpectedEof)?;
        let mut blocks = self.blocks.lock().expect("nobody panics");
        let mut done = 0;
        while done < len {
            let at = offset + done as u64;
            let within = (at % BLOCK as u64) as usize;
            let part = done..len.min(done + BLOCK - within);
            done = part.end;
            visit(&mut blocks, at / BLOCK as u64, within, part);
        }
        Ok(())
    }
}

impl Device for Overlay {
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        if self.reads.fetch_add(1, Ordering::Relaxed) >= READS_MAX {
            return Err(io::Error::other("too many reads"));
        }
        self.visit(offset, buf.len(), |blocks, block, within, part| {
            let len = part.len();
            match blocks.get(&block) {
                Some(bytes) => buf[part].copy_from_slice(&bytes[within..within + len]),
                None => buf[part].fill(0),
            }
        })
    }

    fn size(&self) -> u64 {
        DEVICE_BYTES
    }

    fn name(&self) -> String {
        "overlay".into()
    }
}

impl WritableDevice for Overlay {
    fn write_at(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.visit(offset, data.len(), |blocks, block, within, part| {
            let bytes = blocks.entry(block).or_insert_with(|| Arc::new([0; BLOCK]));
            Arc::make_mut(bytes)[within..within + part.len()].copy_from_slice(&data[part]);
        })
    }

    fn zero(&self, offset: u64, len: u64) -> io::Result<()> {
        self.visit(
            offset,
            len as usize,
            |blocks, block, within, part| match blocks.entry(block) {
                Entry::Occupied(whole) if part.len() == BLOCK => drop(whole.remove()),
                Entry::Occupied(mut bytes) => {
                    Arc::make_mut(bytes.get_mut())[within..within + part.len()].fill(0);
                }
                Entry::Vacant(_) => {}
            },
        )
    }

    fn flush(&self) -> io::Result<()> {
        Ok(())
    }
}
