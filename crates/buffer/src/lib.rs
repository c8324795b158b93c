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
mod dirty;
mod entries;
mod error;
mod flush;
mod gather;
mod inode;
mod layer;
mod lock;
mod options;
mod pool;
mod queues;
mod shared;
mod signal;
mod space;
mod statistics;
mod table;

use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize};
use std::sync::{Arc, Mutex, OnceLock};
use std::thread::{Builder, JoinHandle};
use std::time::Instant;

use anteros_core::{OpenFile, Writable};

use crowd::Crowd;
use dirty::Dirty;
pub use error::Unreported;
use lock::lock;
pub use options::{BUFFER_BYTES_MIN, Form, Options};
use pool::Pool;
pub use pool::ROOM_BYTES_MIN;
use shared::Shared;
use signal::Signal;
use space::Space;
use statistics::Counters;
pub use statistics::{Flushes, Statistics};
use table::Table;

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
