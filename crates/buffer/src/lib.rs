//! A write buffer in front of any file system that can be written to.
//!
//! [`Buffered`] answers a write as soon as the data is copied, and hands it to the file system below
//! later, in fewer and larger pieces and from another thread. It comes in two [forms](Form): that of
//! the bFUSE paper, and one for requests that are large already.
//!
//! # What is seen
//!
//! What was written is there for all who ask through this layer:
//!
//! - An inode is drained before it is read, copied, searched for holes, changed otherwise, before it is
//!   synced or closed, and before its attributes are told. They could be patched instead, but for the
//!   time of modification that would not hold: it would be one thing now and another after the
//!   data is written, and whoever compares times (`make`, an editor, the page cache of the kernel) would
//!   see a change where there was none. The kernel keeps attributes, so this is asked for seldom.
//! - Writes through open files with `O_APPEND` go to the end as the file system below knows it when they
//!   are written, in the order in which they were accepted.
//! - Writes through open files with `O_SYNC`, `O_DSYNC` or `O_DIRECT` are not buffered.
//! - A write that is to drop privileges takes them along with its data. Until then the content is what it
//!   was, and so are they; attributes are drained for.
//! - No [`backing`](anteros_core::Writable::backing) file is offered: data has to come through here.
//!
//! `statfs` may lag by what is buffered.
//!
//! # What is lost
//!
//! A crash loses what was buffered, at most [`Options::bytes_max`], unless it was synced or the file was
//! closed. When data cannot be written, it is given up, and what was buffered behind it is still
//! tried. Each open file of the inode is told once, at its next write or `fsync`, with the error as it
//! was, and at each `flush` until then; one opened later is not. If the last open file goes before anyone
//! was told, the error is counted, and [`shutdown`](Buffered::shutdown) has it.
//!
//! No more is accepted than there is space for, as `statfs` says, with a margin; when that runs short,
//! writes are not buffered, so that the one that does not fit fails itself.
//!
//! # Who waits for whom
//!
//! An inode has a queue of extents. Whoever drains it takes the first one out under the inode's lock, with
//! those that continue it, and writes them without; others who drain it wait until that is done and go on
//! with the next. So the extents of an inode are written in order, those of several inodes side by side.
//! Who changes an inode otherwise *holds* it: writers wait meanwhile, so that there is an end to draining.
//! A writer who finds no memory stands in line for it with no lock held.
//!
//! Locks are taken in this order, and none is held while the file system below is called, but for that
//! of the known space while `statfs` is asked:
//!
//! 1. a shard of the table of inodes
//! 2. the state of one inode
//! 3. the set of dirty inodes, the pool of memory, the known space, who writes of late or the signal: one of them, except
//!    that the signal's may be held to look at the set
//!
//! A panic below is an error to those whose data was being written, and passes through whoever
//! called; nobody is left waiting.

mod accept;
mod crowd;
mod entries;
mod error;
mod flush;
mod inode;
mod layer;
mod pool;
mod queues;
mod signal;
mod space;
mod statistics;
mod table;

use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};
use std::thread::{Builder, JoinHandle};
use std::time::{Duration, Instant};

use anteros_core::{
    FsError, FsResult, Ino, OpenFile, PAGE_BYTES, Writable, begin_on_page, unpoisoned,
};

use accept::Accepted;
use crowd::Crowd;
pub use error::Unreported;
use flush::Dirty;
use inode::Inode;
use pool::Pool;
pub use pool::ROOM_BYTES_MIN;
use signal::Signal;
use space::Space;
use statistics::Counters;
pub use statistics::{Flushes, Statistics};
use table::Table;

/// The least memory for data.
pub const BUFFER_BYTES_MIN: usize = ROOM_BYTES_MIN + PAGE_BYTES;

/// Organisation of the buffer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Form {
    /// That of the paper: fixed entries of [`Options::region_bytes`], flushed all together at each
    /// [`Options::interval`], or when a writer finds none free.
    Entries,
    /// A queue of extents for each inode. Small requests are gathered up to [`Options::region_bytes`],
    /// larger ones stay as they are, and whoever answered such a request writes it then
    /// ([`hand_on`](Writable::hand_on)), or before the answer where there are as many writers as processors; what is gathered or copied begins on a page of memory. The thread is called when half of
    /// [`Options::bytes_max`] is taken, or someone else is already at it; the interval is for what is left.
    #[default]
    Queues,
}

impl Form {
    /// Bytes of a buffer beyond its room, so that content can begin on a page wherever the buffer lies.
    const fn front_bytes(self) -> usize {
        match self {
            Self::Entries => 0,
            Self::Queues => PAGE_BYTES,
        }
    }

    /// The size of a buffer with this room.
    const fn buffer_bytes(self, room: usize) -> usize {
        room + self.front_bytes()
    }

    /// Start of content in an empty buffer.
    fn begin(self, data: &mut Vec<u8>) -> usize {
        match self {
            Self::Entries => 0,
            Self::Queues => begin_on_page(data, 0),
        }
    }
}

/// Limits of a [`Buffered`], and the time at which it writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Options {
    /// Organisation of the buffer.
    pub form: Form,
    /// Memory for data in all; at least [`BUFFER_BYTES_MIN`].
    pub bytes_max: usize,
    /// Up to how much is gathered for one write; rounded down to what buffers have room for (a power of two up
    /// to 64 KiB, multiples of 64 KiB beyond).
    pub region_bytes: usize,
    /// The longest that data stays buffered while the management thread is there and can keep up.
    pub interval: Duration,
    /// Tells whether a thread flushes. Else writers flush when a region is full or memory runs short, and time has no
    /// effect but through [`Buffered::tick`].
    pub threaded: bool,
    /// Tells whether the first write after an inode was opened, closed or synced is passed through. If it stays the only
    /// one, the next call would wait for it at once.
    pub passes_first: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            form: Form::default(),
            bytes_max: 8 << 20,
            region_bytes: 2 << 20,
            interval: Duration::from_millis(10),
            threaded: true,
            passes_first: true,
        }
    }
}

impl Options {
    fn normalized(mut self) -> Self {
        self.bytes_max = self.bytes_max.max(BUFFER_BYTES_MIN);
        let room = self.bytes_max - self.form.front_bytes();
        self.region_bytes = Pool::room_within(self.region_bytes.min(room));
        self
    }
}

/// Locks, whoever panicked before: no state here is left half changed by calls that can panic.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    unpoisoned(mutex.lock())
}

/// A function by which a file system says what it calls an open file.
type Naming<F> = fn(&F, OpenFile) -> Option<Vec<u8>>;

/// State that the callers and the management thread share.
struct Shared<F> {
    inner: F,
    options: Options,
    table: Table,
    dirty: Dirty,
    pool: Pool,
    space: Space,
    signal: Signal,
    counters: Counters,
    /// Extents that were written or given up, counted before anyone can take them for done.
    landed: AtomicU64,
    last_tick: Mutex<Instant>,
    unreported: Mutex<Vec<Unreported>>,
    name: OnceLock<Naming<F>>,
    /// Number of answering threads that write.
    helpers: AtomicUsize,
    crowd: Crowd,
    stopped: AtomicBool,
}

impl<F> Shared<F> {
    fn inode(&self, ino: Ino) -> FsResult<Arc<Inode>> {
        self.table.get(ino).ok_or(FsError::Invalid)
    }

    /// An open file as the file system below calls it.
    fn below(&self, file: OpenFile) -> OpenFile {
        self.table
            .get(file.ino)
            .and_then(|inode| inode.lock().opens.get(&file.handle).copied())
            .map_or(file, |open| open.below)
    }
}

/// A file system whose writes are buffered. The [crate] says how.
pub struct Buffered<F: Writable + 'static> {
    shared: Arc<Shared<F>>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl<F: Writable + 'static> Buffered<F> {
    /// Puts a buffer in front of a file system. Fails if the management thread cannot be started.
    pub fn new(inner: F, options: Options) -> io::Result<Self> {
        let options = options.normalized();
        let shared = Arc::new(Shared {
            inner,
            options,
            table: Table::new(),
            dirty: Dirty::default(),
            pool: Pool::new(options.bytes_max),
            space: Space::new(options.bytes_max as u64),
            signal: Signal::default(),
            counters: Counters::default(),
            landed: AtomicU64::new(0),
            last_tick: Mutex::new(Instant::now()),
            unreported: Mutex::default(),
            name: OnceLock::new(),
            helpers: AtomicUsize::new(0),
            crowd: Crowd::new(),
            stopped: AtomicBool::new(false),
        });
        let thread = if options.threaded {
            let shared = Arc::clone(&shared);
            let builder = Builder::new().name("anteros-buffer".to_owned());
            Some(builder.spawn(move || shared.manage())?)
        } else {
            None
        };
        Ok(Self {
            shared,
            thread: Mutex::new(thread),
        })
    }

    /// The file system below. What is buffered is not there yet.
    pub fn inner(&self) -> &F {
        &self.shared.inner
    }

    /// Has files named whose errors nobody is told of, as they are closed: by the time that somebody
    /// asks for these errors, the file system below may not know the inodes any more.
    pub fn name_by(&self, name: fn(&F, OpenFile) -> Option<Vec<u8>>) {
        // The first one stays.
        _ = self.shared.name.set(name);
    }

    /// Statistics so far.
    pub fn statistics(&self) -> Statistics {
        self.shared.counters.snapshot(self.shared.pool.memory())
    }

    /// Flushes everything if an interval has gone by since the last time. The management thread does so
    /// by itself.
    pub fn tick(&self, now: Instant) {
        self.shared.tick(now);
    }

    /// Writes all that is buffered, and goes on. Returns the errors that no open file was told of, as
    /// [`shutdown`](Self::shutdown) does, which does not return them again.
    pub fn write_all(&self) -> Vec<Unreported> {
        self.shared.drain_all(statistics::Reason::Sync);
        std::mem::take(&mut *lock(&self.shared.unreported))
    }

    /// Writes all that is buffered and ends the management thread; from then on writes are not buffered.
    /// Returns the errors that no open file was told of, the first 64 of them:
    /// [`Statistics::errors_unreported`] counts all.
    pub fn shutdown(&self) -> Vec<Unreported> {
        self.shared.stop();
        self.shared.signal.stop();
        let thread = lock(&self.thread).take();
        if let Some(thread) = thread {
            // It catches what panics below, and has nothing to tell.
            _ = thread.join();
        }
        std::mem::take(&mut *lock(&self.shared.unreported))
    }
}

impl<F: Writable + 'static> Drop for Buffered<F> {
    fn drop(&mut self) {
        self.shutdown();
    }
}
