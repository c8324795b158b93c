//! Ways into the queue of an inode: to the end of an extent, or as a new one.
//!
//! Invariant W4 of `docs/design/bfuse.md`: a request is never split over two entries, so none is torn by another.

use std::sync::atomic::Ordering;
use std::sync::{Arc, MutexGuard};

use anteros_core::{FsResult, Writable};

use crate::inode::{Extent, Inode, Request, State};
use crate::shared::Shared;
use crate::statistics::{Reason, add};

/// Holds what became of a request that was buffered.
pub(crate) struct Accepted {
    /// Tells whether a region is full.
    pub(crate) full: bool,
    /// Tells whether the inode had nothing buffered.
    pub(crate) newly_dirty: bool,
}

impl<F: Writable> Shared<F> {
    /// An empty buffer of this size; waits for memory if it must.
    pub(crate) fn take_buffer(&self, bytes: usize) -> Vec<u8> {
        if let Some(buffer) = self.pool.try_take(bytes) {
            return buffer;
        }
        add(&self.counters.waits, 1);
        self.pool.take(bytes, || {
            if self.is_managed() {
                self.signal.raise(Reason::Room);
                return false;
            }
            self.flush_one(Reason::Room)
        })
    }

    /// Returns whether the management thread is there to flush.
    pub(crate) fn is_managed(&self) -> bool {
        self.options.threaded && !self.stopped.load(Ordering::SeqCst)
    }

    /// Copies a request to the end of the extent it continues, if it may and `has_room` makes sure that
    /// the buffer is large enough, or else into a new one with room for `first_room` bytes.
    pub(crate) fn gather(
        &self,
        inode: &Arc<Inode>,
        request: &Request,
        bytes: &[u8],
        first_room: usize,
        mut has_room: impl FnMut(&mut Extent) -> bool,
    ) -> FsResult<Accepted> {
        let region_bytes = self.options.region_bytes;
        let len = request.len;
        let first_bytes = self.options.form.buffer_bytes(first_room);
        // Another request like this one would not fit.
        let is_full = |extent_len: usize| extent_len + len > region_bytes;
        let mut spare: Option<Vec<u8>> = None;
        let accepted = loop {
            let (mut state, offset) = self.lock_placed(inode, request, &mut spare)?;
            if let Some(extent) = state.continued(request, offset, region_bytes) {
                if has_room(extent) {
                    extent.data.extend_from_slice(bytes);
                    extent.drops_privileges |= request.drops_privileges;
                    extent.charge += request.charge;
                    let full = is_full(extent.bytes().len());
                    break self.admit(inode, state, request, offset, full);
                }
                extent.gathers = false;
            }
            // Whoever waited for a buffer has it already.
            if let Some(mut data) = spare.take().or_else(|| self.pool.try_take(first_bytes)) {
                let start = self.options.form.begin(&mut data);
                data.extend_from_slice(bytes);
                state.push(request, offset, (data, start), true);
                let full = is_full(len);
                break self.admit(inode, state, request, offset, full);
            }
            // Not with the lock: memory comes back only when extents are taken out.
            drop(state);
            spare = Some(self.take_buffer(first_bytes));
        };
        if let Some(buffer) = spare {
            self.pool.give(buffer);
        }
        Ok(accepted)
    }

    /// Queues a request whose content is in a buffer already, from some place on.
    pub(crate) fn enqueue(
        &self,
        inode: &Arc<Inode>,
        request: &Request,
        (data, start): (Vec<u8>, usize),
    ) -> FsResult<Accepted> {
        let mut buffer = Some(data);
        let (mut state, offset) = self.lock_placed(inode, request, &mut buffer)?;
        state.push(request, offset, (buffer.unwrap_or_default(), start), false);
        Ok(self.admit(inode, state, request, offset, false))
    }

    /// The state of an inode to which a request may be added, and where it goes. If that cannot be
    /// found out, a buffer that was taken for it goes back.
    fn lock_placed<'a>(
        &self,
        inode: &'a Inode,
        request: &Request,
        buffer: &mut Option<Vec<u8>>,
    ) -> FsResult<(MutexGuard<'a, State>, u64)> {
        loop {
            let state = inode.lock_unheld();
            if let Some(offset) = state.place(request) {
                return Ok((state, offset));
            }
            drop(state);
            if let Err(error) = self.learn_end(inode) {
                if let Some(buffer) = buffer.take() {
                    self.pool.give(buffer);
                }
                return Err(error);
            }
        }
    }

    /// Asks where a file ends. It is kept track of from then on, until something else than a buffered
    /// write changes the file.
    fn learn_end(&self, inode: &Inode) -> FsResult<()> {
        let mut hold = self.hold(inode, Reason::Attributes);
        hold.end = Some(self.inner.getattr(inode.ino)?.size);
        Ok(())
    }

    /// Keeps the books of a request that was added, and lets go of the state.
    fn admit(
        &self,
        inode: &Arc<Inode>,
        mut state: MutexGuard<'_, State>,
        request: &Request,
        offset: u64,
        full: bool,
    ) -> Accepted {
        let len = request.len;
        state.reaches(offset.saturating_add(len as u64));
        self.counters.buffer(len);
        let newly_dirty = !state.listed;
        if newly_dirty {
            state.listed = true;
            self.dirty.add(inode);
        }
        Accepted { full, newly_dirty }
    }
}
