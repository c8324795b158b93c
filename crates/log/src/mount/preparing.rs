//! Files that were written to, for the thread that compresses them before they leave.

#![deny(clippy::indexing_slicing)]

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard};

use anteros_core::unpoisoned;

use crate::compress::chunks::Compressor;
use crate::files::content::blocks;

/// Bytes that are written before the thread begins.
const WAKES_AT: u64 = 256 << 10;

/// The most files that wait. What is written to others leaves as it is.
const FILES_MAX: usize = 4096;

/// Files that were written to, for the thread that compresses.
#[derive(Default)]
pub(crate) struct Preparing {
    queue: Mutex<Queue>,
    changed: Condvar,
    /// Tells whether there is a thread.
    pub(super) is_on: AtomicBool,
    /// Tells whether the device is known to be slow, or not.
    pub(super) is_known: AtomicBool,
    pub(super) is_slow: AtomicBool,
    /// Encoders that nobody uses now.
    pub(super) compressors: Mutex<Vec<Compressor>>,
}

#[derive(Default)]
struct Queue {
    files: BTreeMap<u32, Written>,
    /// Bytes that were written to them.
    bytes: u64,
    is_ending: bool,
}

/// Use of a file since the thread looked at it.
pub(super) struct Written {
    /// The logical blocks from the first one that was written to the last one.
    pub(super) range: Range<u32>,
    /// Nobody has it open for writing any more.
    pub(super) is_closed: bool,
}

impl Queue {
    fn note_written(&mut self, ino: u32, range: Range<u32>) {
        if let Some(written) = self.files.get_mut(&ino) {
            written.range.start = written.range.start.min(range.start);
            written.range.end = written.range.end.max(range.end);
            written.is_closed = false;
        } else if self.files.len() < FILES_MAX {
            let is_closed = false;
            self.files.insert(ino, Written { range, is_closed });
        }
    }

    fn take(&mut self) -> BTreeMap<u32, Written> {
        self.bytes = 0;
        std::mem::take(&mut self.files)
    }
}

impl Preparing {
    fn lock(&self) -> MutexGuard<'_, Queue> {
        unpoisoned(self.queue.lock())
    }

    /// Notes whether the device is slow, if that is known.
    pub(crate) fn note_speed(&self, is_slow: Option<bool>) {
        if let Some(is_slow) = is_slow {
            self.is_slow.store(is_slow, Ordering::Relaxed);
            self.is_known.store(true, Ordering::Relaxed);
        }
    }

    /// Notes that so many bytes were written to a file, and says how many wait for the thread.
    pub(super) fn note_written(&self, ino: u32, offset: u64, bytes: usize) -> u64 {
        if !self.is_on.load(Ordering::Relaxed) {
            return 0;
        }
        let mut queue = self.lock();
        queue.note_written(ino, blocks(&(offset..offset + bytes as u64)));
        queue.bytes += bytes as u64;
        if queue.bytes >= WAKES_AT {
            self.changed.notify_one();
        }
        queue.bytes
    }

    /// Notes that nobody has a file open for writing any more.
    pub(crate) fn note_closed(&self, ino: u32) {
        if let Some(written) = self.lock().files.get_mut(&ino) {
            written.is_closed = true;
        }
    }

    /// Takes the files that wait.
    pub(super) fn take(&self) -> BTreeMap<u32, Written> {
        self.lock().take()
    }

    /// Has the thread end.
    pub(super) fn end(&self) {
        self.is_on.store(false, Ordering::Relaxed);
        self.lock().is_ending = true;
        self.changed.notify_all();
    }

    /// Waits for files; `None` says that it is time to end.
    pub(super) fn wait(&self) -> Option<BTreeMap<u32, Written>> {
        let mut queue = self.lock();
        while queue.bytes < WAKES_AT && !queue.is_ending {
            queue = unpoisoned(self.changed.wait(queue));
        }
        (!queue.is_ending).then(|| queue.take())
    }
}
