//! Flushing of the buffer: extents of an inode that continue each other are written in order, without a lock held.
//!
//! Invariant W2 of `docs/design/bfuse.md`: extents of one inode are written in order; what was written later stays
//! later.
//!
//! Invariant W5 of `docs/design/bfuse.md`: content is written within the interval, a crash loses no more than the
//! buffer.
//!
//! Invariant W7 of `docs/design/bfuse.md`: each open file is told of an error once, and what lies behind it is still
//! tried.
//!
//! Invariant W10 of `docs/design/bfuse.md`: a panic below is an error to those whose data it was, and nobody waits
//! for ever.

use std::io::{self, IoSlice};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use anteros_core::{FsError, FsResult, Ino, OpenFile, Writable};
use rustix::io::Errno;

use crate::error::Unreported;
use crate::inode::{Extent, Hold, Inode};
use crate::lock::lock;
use crate::options::Form;
use crate::shared::Shared;
use crate::signal::Call;
use crate::statistics::{Reason, add};

/// Intervals without anything to flush after which the thread gives up kept memory and sleeps until
/// it is called: far apart enough that a writer who pauses does not pay for waking it.
const IDLE_INTERVALS: u32 = 100;

/// Bytes of one write; see [`Shared::batch_bytes`].
const BATCH_BYTES: usize = 1 << 20;

/// Number of answering threads that may write. Others must be left to answer.
const HELPERS_MAX: usize = 2;

/// Number of unreported errors that are kept. Others are counted.
const UNREPORTED_MAX: usize = 64;

impl<F: Writable> Shared<F> {
    /// Writes all that is buffered of an inode by now, or waits until others did. Says whether there
    /// was anything. Errors are remembered, not returned.
    pub(crate) fn drain(&self, inode: &Inode, reason: Reason) -> bool {
        let mut state = inode.lock();
        let target = state.queued;
        if state.done >= target {
            return false;
        }
        self.counters.flushed(reason);
        loop {
            state = inode.wait_while(state, |state| state.in_flight && state.done < target);
            if state.done >= target {
                return true;
            }
            let batch = state.take_batch(self.batch_bytes());
            if batch.is_empty() {
                return true;
            }
            state.in_flight = true;
            state.in_flight_drops = batch.iter().any(|extent| extent.drops_privileges);
            drop(state);
            let errors = self.write_out(&batch);
            self.landed.fetch_add(1, Ordering::SeqCst);
            state = inode.lock();
            state.in_flight = false;
            state.done += batch.len() as u64;
            for error in errors {
                add(&self.counters.errors, 1);
                state.errors.record(error);
                // What was to follow may now end elsewhere.
                state.end = None;
            }
            inode.notify();
            for extent in batch {
                self.counters.unbuffer(extent.bytes().len());
                self.space.done(extent.charge);
                self.pool.give(extent.data);
            }
        }
    }

    /// Bytes of one write: at most half of the buffer, as the other half is for writers meanwhile. Of a queue, so few
    /// that the buffers are still in the processor's cache when they are written, and when they are filled again.
    fn batch_bytes(&self) -> usize {
        let half = self.options.bytes_max / 2;
        match self.options.form {
            Form::Entries => half,
            Form::Queues => BATCH_BYTES.min(half),
        }
    }

    /// Drains an inode to which something was written that nothing joins, by whoever answered that: its content is still in the
    /// cache of this processor. Few do so at a time, and one for an inode; else the thread is called.
    pub(crate) fn hand_on(&self, ino: Ino) {
        let Some(inode) = self.table.get(ino).filter(|_| self.is_managed()) else {
            return;
        };
        let state = inode.lock();
        let is_alone = state.queue.back().is_some_and(|last| !last.gathers);
        let in_flight = state.in_flight;
        drop(state);
        if !is_alone {
            return;
        }
        if in_flight {
            return self.signal.raise(Reason::Full);
        }
        let others = self.helpers.fetch_add(1, Ordering::SeqCst);
        match others < HELPERS_MAX {
            true => _ = self.drain(&inode, Reason::Full),
            false => self.signal.raise(Reason::Full),
        }
        self.helpers.fetch_sub(1, Ordering::SeqCst);
    }

    /// Drains the inode with this number, if anything is known of it.
    pub(crate) fn drain_ino(&self, ino: Ino, reason: Reason) -> bool {
        self.table
            .get(ino)
            .is_some_and(|inode| self.drain(&inode, reason))
    }

    /// Drains an inode of which no more is expected for now.
    pub(crate) fn finish(&self, ino: Ino, reason: Reason) {
        if let Some(inode) = self.table.get(ino) {
            inode.lock().follows = false;
            self.drain(&inode, reason);
        }
    }

    /// Has an inode to itself, with nothing buffered.
    pub(crate) fn hold<'a>(&self, inode: &'a Inode, reason: Reason) -> Hold<'a> {
        let hold = inode.hold();
        self.drain(inode, reason);
        hold
    }

    /// Drains every inode that has something buffered.
    pub(crate) fn flush_all(&self, reason: Reason) {
        for inode in self.dirty.take_all().into_values() {
            self.flush_listed(&inode, reason);
        }
    }

    /// Drains one inode that has something buffered, if there is one.
    pub(crate) fn flush_one(&self, reason: Reason) -> bool {
        match self.dirty.take_first() {
            Some(inode) => {
                self.flush_listed(&inode, reason);
                true
            }
            None => false,
        }
    }

    fn flush_listed(&self, inode: &Inode, reason: Reason) {
        inode.lock().listed = false;
        self.drain(inode, reason);
    }

    /// Writes extents that continue each other, all together if that goes well. The rest of one that
    /// fails is given up, and those behind it are tried.
    fn write_out(&self, batch: &[Extent]) -> Vec<FsError> {
        let mut errors = Vec::new();
        let mut left = batch.iter();
        let mut written = 0;
        while let Some(first) = left.as_slice().first() {
            match self.write_some(left.as_slice(), written) {
                Ok(count) => written += count,
                Err(error) => {
                    errors.push(error);
                    let lost = first.bytes().len() - written;
                    add(&self.counters.bytes_lost, lost as u64);
                    left.next();
                    written = 0;
                }
            }
            while let Some(first) = left.as_slice().first() {
                if written < first.bytes().len() {
                    break;
                }
                written -= first.bytes().len();
                left.next();
            }
        }
        errors
    }

    /// Writes something of extents of whose first so much is written, and says how much. A panic below is
    /// an error like any other: there are others who wait.
    fn write_some(&self, extents: &[Extent], written: usize) -> FsResult<usize> {
        let first = &extents[0];
        let rest = std::iter::once(&first.bytes()[written..]);
        let rest = rest.chain(extents[1..].iter().map(Extent::bytes));
        let pieces: Vec<IoSlice<'_>> = rest.map(IoSlice::new).collect();
        add(&self.counters.writes_out, 1);
        let offset = first.offset + written as u64;
        let drops = first.drops_privileges;
        let write = || self.inner.write_pieces(first.file, offset, &pieces, drops);
        let count = catch_unwind(AssertUnwindSafe(write))
            .unwrap_or_else(|_| Err(FsError::Io(io::Error::other("the file system panicked"))))?;
        if count == 0 {
            return Err(FsError::Host(Errno::NOSPC.into()));
        }
        let count = count.min(pieces.iter().map(|piece| piece.len()).sum());
        add(&self.counters.bytes_out, count as u64);
        Ok(count)
    }

    /// Flushes what is due at this time.
    pub(crate) fn tick(&self, now: Instant) {
        let mut last = lock(&self.last_tick);
        if now.saturating_duration_since(*last) < self.options.interval {
            return;
        }
        *last = now;
        drop(last);
        self.flush_all(Reason::Interval);
    }

    /// Runs the management thread.
    pub(crate) fn manage(&self) {
        // Never busy, whatever the interval.
        let interval = self.options.interval.max(Duration::from_micros(100));
        let mut idle = 0;
        loop {
            let call = if idle < IDLE_INTERVALS {
                self.signal.wait(interval)
            } else {
                self.pool.trim();
                self.signal.sleep(|| self.dirty.is_empty())
            };
            idle = if self.dirty.is_empty() { idle + 1 } else { 0 };
            match call {
                // The call may be older than the memory that came back since.
                Call::Flush(Reason::Room) if !self.pool.is_short() => {}
                Call::Flush(reason) => self.flush_all(reason),
                Call::Time => self.tick(Instant::now()),
                Call::Stop => return,
            }
        }
    }

    /// Closes an open file of an inode that was drained; below it is open still. Errors that nobody was
    /// told of are kept when it is the last one. Whoever asks for these meanwhile waits.
    pub(crate) fn close(&self, file: OpenFile, below: OpenFile) {
        let mut unreported = lock(&self.unreported);
        if let Some(inode) = self.table.close(file) {
            self.dirty.remove(&inode);
            self.keep_untold(&inode, Some(below), &mut unreported);
        }
    }

    fn keep_untold(&self, inode: &Inode, open: Option<OpenFile>, kept: &mut Vec<Unreported>) {
        let Some(error) = inode.lock().errors.take_untold() else {
            return;
        };
        let path = open.and_then(|open| (self.name.get()?)(&self.inner, open));
        add(&self.counters.errors_unreported, 1);
        if kept.len() < UNREPORTED_MAX {
            kept.push(Unreported {
                ino: inode.ino,
                path,
                error,
            });
        }
    }

    /// Writes all that is buffered, and keeps the errors that nobody was told of.
    pub(crate) fn drain_all(&self, reason: Reason) {
        for inode in self.table.all() {
            self.drain(&inode, reason);
            // Nobody closes it meanwhile.
            let mut unreported = lock(&self.unreported);
            let open = inode.lock().opens.values().next().map(|open| open.below);
            self.keep_untold(&inode, open, &mut unreported);
        }
    }

    /// Buffers nothing any more, and writes all that was.
    pub(crate) fn stop(&self) {
        self.stopped.store(true, Ordering::SeqCst);
        self.drain_all(Reason::Shutdown);
        self.dirty.take_all();
        self.pool.trim();
    }
}
