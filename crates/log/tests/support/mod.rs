//! A log in memory, and a way to use it by paths.

#![allow(dead_code, unreachable_pub)] // each test takes what it needs

pub mod history;
pub mod hooked;
pub mod overlay;
pub mod surgeon;

use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use anteros_core::{
    Attr, Caller, Changes, FileKind, FileSystem, FsError, FsResult, Ino, MemoryDevice, New,
    OpenFile, Rdev, Timestamp, Writable, WritableDevice,
};
use anteros_log::layout::BLOCK_BYTES;
use anteros_log::layout::pointer::Pointer;
use anteros_log::{
    BlockReads, Cause, Codec, Compacted, FileReads, Inspector, Log, Mark, Mode, Options, Policy,
    Report, Run, Shape, Sweep, check, mkfs,
};
use anteros_tests::crash::{Operation, Recorder};

/// A clock that is the same in each run: every look moves it on.
pub fn clock() -> Timestamp {
    static NOW: AtomicI64 = AtomicI64::new(1_000_000_000);
    Timestamp {
        secs: NOW.fetch_add(1, Ordering::Relaxed),
        nanos: 7,
    }
}

/// `ANTEROS_LOG_POLICY=paper cargo test -p anteros-log` tests all with files compressed in this way; `ANTEROS_LOG_CODEC=lzo`
/// says by what, and `ANTEROS_LOG_MODE=threaded` has content go to the holes of segments wherever there are any. With
/// `ANTEROS_LOG_EVICTS=always` nothing that is clean stays in memory beyond an operation.
pub fn options() -> Options {
    let policy = std::env::var("ANTEROS_LOG_POLICY");
    let policy = policy.map(|name| Policy::named(&name).expect("the name of a policy"));
    let codec = std::env::var("ANTEROS_LOG_CODEC");
    let codec = codec.map(|name| Codec::named(&name).expect("the name of a codec"));
    let mode = std::env::var("ANTEROS_LOG_MODE");
    let mode = mode.map(|name| Mode::named(&name).expect("the name of a mode"));
    let evicts = std::env::var("ANTEROS_LOG_EVICTS").ok();
    assert!(
        evicts.as_deref().is_none_or(|when| when == "always"),
        "ANTEROS_LOG_EVICTS is `always` or not set"
    );
    Options {
        evicts_always: evicts.is_some(),
        mode: mode.unwrap_or_default(),
        policy: policy.unwrap_or_default(),
        codec: codec.unwrap_or_default(),
        ..Options::new(clock)
    }
}

/// Options with a policy.
pub fn with(policy: Policy) -> Options {
    Options {
        policy,
        ..options()
    }
}

/// Tells whether inodes share blocks, so that there are fewer blocks than nodes.
pub fn packs_inodes() -> bool {
    matches!(options().policy, Policy::Record | Policy::Force)
}

/// Options without compression, where a test is about blocks as they are.
pub fn plainly() -> Options {
    Options {
        policy: Policy::None,
        ..options()
    }
}

/// Numbers below what it is asked for, in any order, and in the same each time.
pub fn dice(seed: u64) -> impl FnMut(u64) -> u64 {
    let mut random = seed;
    move |limit| {
        random = random
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        (random >> 33) % limit
    }
}

/// With so much memory.
pub fn options_with(memory_bytes: usize) -> Options {
    Options {
        memory_bytes,
        ..options()
    }
}

pub const MIB: u64 = 1 << 20;

/// A device of so many bytes with an empty log.
pub fn device(bytes: u64) -> Arc<MemoryDevice> {
    let device = Arc::new(MemoryDevice::new(vec![0; bytes as usize]));
    make(device.clone());
    device
}

/// Makes an empty log.
pub fn make(device: Arc<dyn WritableDevice>) {
    let shape = Shape {
        uuid: [7; 16],
        hash_seed: [9; 16],
        ..Shape::default()
    };
    mkfs(&device, &shape, Caller::default(), &options()).unwrap();
}

pub fn open(device: Arc<dyn WritableDevice>) -> Tree {
    open_with(device, options())
}

/// Opens a log without compression, where a test is about blocks as they are.
pub fn open_plainly(device: Arc<dyn WritableDevice>) -> Tree {
    open_with(device, plainly())
}

pub fn open_with(device: Arc<dyn WritableDevice>, options: Options) -> Tree {
    Tree(Log::open(device, options).unwrap())
}

/// Checks a log in which nothing may be wrong, and returns what else is said of it.
#[track_caller]
pub fn assert_sound(device: Arc<dyn WritableDevice>) -> Report {
    let report = check(device, options()).unwrap();
    assert_eq!(report.faults, [""; 0]);
    report
}

/// A log on a device that records what it is asked for, after a first checkpoint.
pub fn recorded(bytes: u64, options: Options) -> (Arc<Recorder>, Tree) {
    let recorder = Arc::new(Recorder::new(&device(bytes).to_vec()));
    let tree = open_with(recorder.clone(), options);
    tree.0.checkpoint().unwrap();
    (recorder, tree)
}

/// Operations that a device has seen.
pub fn seen(recorder: &Recorder) -> usize {
    recorder.recording().operations().len()
}

/// Blocks that a device was given, and how often it was flushed, since it had seen so many operations.
pub fn given_since(recorder: &Recorder, seen: usize) -> (u64, u64) {
    let recording = recorder.recording();
    let (mut blocks, mut flushes) = (0, 0);
    for done in &recording.operations()[seen..] {
        match done {
            Operation::Write { data, .. } => blocks += data.len().div_ceil(BLOCK_BYTES) as u64,
            Operation::Flush => flushes += 1,
            Operation::Discard { .. } => {}
        }
    }
    (blocks, flushes)
}

/// Without a write.
pub fn open_to_read(device: Arc<dyn WritableDevice>) -> Tree {
    let options = Options {
        read_only: true,
        ..options()
    };
    open_with(device, options)
}

/// Returns what launches read of a file: something that is not in order, something that only some did.
pub fn reads(ino: Ino) -> FileReads {
    let core = [70, 3, 4, 5, 40, 0, 41, 9, 33].into_iter().zip(0..);
    FileReads {
        core: read_by(3, core.map(|(lblk, at)| (ino.0 + 5 * at, lblk))),
        other: read_by(1, [6, 7, 20, 50].map(|lblk| (ino.0 + 99, lblk))),
        ..FileReads::default()
    }
}

/// Logical blocks that so many launches have read, each behind a number for the order.
pub fn read_by(launches: u8, all: impl IntoIterator<Item = (u64, u32)>) -> Vec<BlockReads> {
    let read = |(order, lblk)| BlockReads {
        mark: Mark { order, launches },
        lblk,
    };
    all.into_iter().map(read).collect()
}

/// A mounted log that takes paths; the empty path is the root.
pub struct Tree(pub Log);

impl Tree {
    pub fn ino(&self, path: &str) -> FsResult<Ino> {
        let mut ino = self.0.root();
        for name in path.split('/').filter(|name| !name.is_empty()) {
            let found = self.0.lookup(ino, name.as_bytes())?.ino;
            self.0.forget(found, 1);
            ino = found;
        }
        Ok(ino)
    }

    pub fn attr(&self, path: &str) -> FsResult<Attr> {
        self.0.getattr(self.ino(path)?)
    }

    fn place<'a>(&self, path: &'a str) -> FsResult<(Ino, &'a [u8])> {
        let (parent, name) = path.rsplit_once('/').unwrap_or(("", path));
        Ok((self.ino(parent)?, name.as_bytes()))
    }

    fn with<T>(&self, path: &str, work: impl FnOnce(OpenFile) -> FsResult<T>) -> FsResult<T> {
        let ino = self.ino(path)?;
        let file = OpenFile {
            ino,
            handle: self.0.open(ino, 2)?,
        };
        let done = work(file);
        self.0.release(file);
        done
    }

    pub fn create(&self, path: &str) -> FsResult<()> {
        self.make(path, FileKind::Regular, 0o644)
    }

    /// Makes a file without a name, and opens it to read and write.
    pub fn create_unnamed(&self, parent: Ino, perm: u32) -> FsResult<OpenFile> {
        let new = New {
            parent,
            name: b"",
            mode: FileKind::Regular.mode_bits() | perm,
            umask: 0,
            caller: Caller::default(),
        };
        let (attr, handle) = self.0.create_unnamed(&new, 2)?;
        Ok(OpenFile {
            ino: attr.ino,
            handle,
        })
    }

    pub fn mkdir(&self, path: &str) -> FsResult<()> {
        self.make(path, FileKind::Directory, 0o755)
    }

    pub fn make(&self, path: &str, kind: FileKind, perm: u32) -> FsResult<()> {
        let (parent, name) = self.place(path)?;
        let new = New {
            parent,
            name,
            mode: kind.mode_bits() | perm,
            umask: 0,
            caller: Caller::default(),
        };
        let attr = self.0.make(&new, Rdev::default())?;
        self.0.forget(attr.ino, 1);
        Ok(())
    }

    pub fn symlink(&self, path: &str, target: &[u8]) -> FsResult<()> {
        let (parent, name) = self.place(path)?;
        let new = New {
            parent,
            name,
            mode: 0,
            umask: 0,
            caller: Caller::default(),
        };
        let attr = self.0.symlink(&new, target)?;
        self.0.forget(attr.ino, 1);
        Ok(())
    }

    pub fn write(&self, path: &str, offset: u64, data: &[u8]) -> FsResult<usize> {
        self.with(path, |file| self.0.write(file, offset, data, false))
    }

    pub fn put(&self, path: &str, data: &[u8]) -> FsResult<()> {
        if self.ino(path).is_err() {
            self.create(path)?;
        }
        let mut done = 0;
        while done < data.len() {
            done += self.write(path, done as u64, &data[done..])?;
        }
        Ok(())
    }

    pub fn read(&self, path: &str) -> FsResult<Vec<u8>> {
        let attr = self.attr(path)?;
        if attr.kind == FileKind::Symlink {
            return self.0.readlink(attr.ino);
        }
        let mut data = vec![0xee; attr.size as usize + 10];
        let mut done = 0;
        loop {
            let end = data.len().min(done + 100_000);
            let count = self.0.read(attr.ino, done as u64, &mut data[done..end])?;
            done += count;
            if count == 0 {
                break;
            }
        }
        data.truncate(done);
        Ok(data)
    }

    /// Blocks that the log says it has written, for whatever cause.
    pub fn blocks_written(&self) -> u64 {
        let statistics = self.0.condition().statistics;
        let causes = Cause::ALL.into_iter();
        causes.map(|cause| statistics.blocks(cause)).sum()
    }

    /// Compresses all files in the background, if that may be.
    pub fn compact_everything(&self) -> FsResult<Compacted> {
        let inos: Vec<Ino> = (1..200).map(Ino).collect();
        let inos: Vec<Ino> = inos
            .into_iter()
            .filter(|&ino| {
                self.0
                    .getattr(ino)
                    .is_ok_and(|attr| attr.kind == FileKind::Regular)
            })
            .collect();
        self.0.compact(&inos, |ino| Some(reads(ino)), |_| true)
    }

    /// Compresses what may be compressed of files in the background, some of which was read by each launch.
    pub fn compact(&self, paths: &[&str]) -> FsResult<Compacted> {
        let inos: FsResult<Vec<Ino>> = paths.iter().map(|path| self.ino(path)).collect();
        self.0.compact(&inos?, |ino| Some(reads(ino)), |_| true)
    }

    /// Compresses by itself what is `cold`, in one round, and says what was done.
    pub fn sweep(&self, sweep: &mut Sweep, cold: Duration) -> FsResult<Compacted> {
        let mut all = Compacted::default();
        while let Some(done) = self.0.sweep(sweep, cold, |_| true, &|| false)? {
            all.files += done.files;
            all.seen += done.seen;
            all.blocks += done.blocks;
            all.bytes += done.bytes;
            all.processor += done.processor;
            all.warnings.extend(done.warnings);
        }
        Ok(all)
    }

    /// Compresses by itself whatever it may.
    pub fn sweep_all(&self) -> FsResult<Compacted> {
        self.sweep(&mut Sweep::default(), Duration::ZERO)
    }

    /// Makes a file that takes all room that is left, written in pieces of so many bytes, and says how large it is.
    pub fn fill(&self, path: &str, piece: usize) -> u64 {
        self.create(path).unwrap();
        let mut end = 0;
        while let Ok(written) = self.write(path, end, &bytes(end, piece)) {
            end += written as u64;
        }
        end
    }

    pub fn truncate(&self, path: &str, size: u64) -> FsResult<()> {
        let changes = Changes {
            size: Some(size),
            ..Changes::default()
        };
        self.0.change(self.ino(path)?, None, &changes).map(drop)
    }

    pub fn allocate(&self, path: &str, offset: u64, len: u64, mode: u32) -> FsResult<()> {
        self.with(path, |file| self.0.allocate(file, offset, len, mode))
    }

    pub fn fsync(&self, path: &str) -> FsResult<()> {
        if self.attr(path)?.kind == FileKind::Directory {
            let ino = self.ino(path)?;
            return self.0.fsync_dir(OpenFile { ino, handle: 0 });
        }
        self.with(path, |file| self.0.fsync(file, false))
    }

    pub fn unlink(&self, path: &str) -> FsResult<()> {
        let (parent, name) = self.place(path)?;
        self.0.unlink(parent, name)
    }

    pub fn rmdir(&self, path: &str) -> FsResult<()> {
        let (parent, name) = self.place(path)?;
        self.0.rmdir(parent, name)
    }

    pub fn rename(&self, from: &str, to: &str, flags: u32) -> FsResult<()> {
        self.0.rename(self.place(from)?, self.place(to)?, flags)
    }

    /// As [`rename`](Self::rename), by the user 7 of group 8.
    pub fn rename_as(&self, from: &str, to: &str, flags: u32) -> FsResult<()> {
        let caller = Caller {
            uid: 7,
            gid: 8,
            ..Caller::default()
        };
        let (from, to) = (self.place(from)?, self.place(to)?);
        self.0.rename_as(from, to, flags, caller)
    }

    pub fn link(&self, from: &str, to: &str) -> FsResult<()> {
        let (parent, name) = self.place(to)?;
        let attr = self.0.link(self.ino(from)?, parent, name)?;
        self.0.forget(attr.ino, 1);
        Ok(())
    }

    pub fn list(&self, path: &str) -> FsResult<Vec<String>> {
        let mut names = Vec::new();
        self.0.readdir(self.ino(path)?, 0, &mut |entry| {
            names.push(String::from_utf8_lossy(entry.name).into_owned());
            ControlFlow::Continue(())
        })?;
        names.retain(|name| name != "." && name != "..");
        names.sort();
        Ok(names)
    }
}

/// Returns where the logical blocks of a file lie.
pub fn places(device: &Arc<MemoryDevice>, ino: Ino) -> Vec<u64> {
    let mut inspector = Inspector::open(device.clone(), &with(Policy::Record)).unwrap();
    let runs = inspector.inode(ino.0 as u32).unwrap().runs;
    let place = |run: Run| {
        let first = run.pointer.block().unwrap();
        let step = u64::from(matches!(run.pointer, Pointer::Plain(..)));
        (0..u64::from(run.count)).map(move |at| first + step * at)
    };
    runs.into_iter().flat_map(place).collect()
}

/// Opens a file for writing as soon as nobody keeps it from that.
pub fn open_at_last(log: &Log, ino: Ino) -> OpenFile {
    loop {
        match log.open(ino, 1) {
            Err(FsError::Later) => std::thread::yield_now(),
            opened => {
                let handle = opened.unwrap();
                return OpenFile { ino, handle };
            }
        }
    }
}

/// Returns whether an answer is this error.
pub fn is<T>(answer: FsResult<T>, error: FsError) -> bool {
    matches!(answer, Err(found) if std::mem::discriminant(&found) == std::mem::discriminant(&error))
}

/// Pages that shrink to a quarter.
pub fn text(seed: u64, pages: usize) -> Vec<u8> {
    let page = |number: usize| {
        let mut page = bytes(seed + number as u64, BLOCK_BYTES / 4);
        page.resize(BLOCK_BYTES, number as u8);
        page
    };
    (0..pages).flat_map(page).collect()
}

/// Bytes that are not the same anywhere.
pub fn bytes(seed: u64, len: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    (0..len)
        .map(|_| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            (state >> 24) as u8
        })
        .collect()
}
