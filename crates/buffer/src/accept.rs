//! Acceptance of content into the buffer.

use std::sync::atomic::Ordering;
use std::sync::{Arc, MutexGuard};
use std::time::Instant;

use anteros_core::{FsResult, OpenFile, Writable};

use crate::inode::{Content, Extent, Inode, Request, State};
use crate::statistics::{Reason, add};
use crate::{Form, Shared, entries, queues};

/// Holds what became of a request that was buffered.
pub(crate) struct Accepted {
    /// Tells whether a region is full.
    full: bool,
    /// Tells whether the inode had nothing buffered.
    newly_dirty: bool,
}

impl<F: Writable> Shared<F> {
    pub(crate) fn write(
        &self,
        file: OpenFile,
        offset: u64,
        content: Content<'_>,
        drops_privileges: bool,
    ) -> FsResult<usize> {
        let len = content.bytes().len();
        let inode = self.inode(file.ino)?;
        let open = inode.open(file.handle)?;
        add(&self.counters.writes_in, 1);
        add(&self.counters.bytes_in, len as u64);
        let mut request = Request {
            open,
            offset,
            len,
            drops_privileges,
            charge: 0,
        };
        let stays_out = !self.may_buffer(&request) || self.is_crowded(&content);
        if stays_out || self.comes_first(&inode) {
            return self.write_through(&inode, file.handle, &request, content.bytes());
        }
        let statfs = || self.inner.statfs();
        let Some(charge) = self.space.reserve(len, Instant::now(), statfs) else {
            return self.write_through(&inode, file.handle, &request, content.bytes());
        };
        request.charge = charge;
        let accepted = match self.options.form {
            Form::Entries => entries::accept(self, &inode, &request, &content),
            Form::Queues => queues::accept(self, &inode, &request, content),
        };
        match accepted {
            Ok(accepted) => self.flush_as_needed(&inode, &accepted),
            Err(error) => {
                self.space.done(charge);
                return Err(error);
            }
        }
        Ok(len)
    }

    fn may_buffer(&self, request: &Request) -> bool {
        let len = request.len;
        let too_large = match self.options.form {
            Form::Entries => entries::exceeds(len, self.options.region_bytes),
            Form::Queues => queues::exceeds(len, self.options.bytes_max),
        };
        // An offset that cannot be is for the file system below to refuse.
        let reaches = request.offset.checked_add(len as u64);
        request.open.buffers
            && len > 0
            && !too_large
            && reaches.is_some_and(|end| i64::try_from(end).is_ok())
            && !self.stopped.load(Ordering::SeqCst)
    }

    /// Returns whether this is the first write since the inode was opened, closed or synced. Where it stays the only
    /// one, it would be waited for at once.
    fn comes_first(&self, inode: &Inode) -> bool {
        let follows = std::mem::replace(&mut inode.lock().follows, true);
        self.options.passes_first && !follows
    }

    /// Returns whether content would be written by whoever answers, and that would win nothing.
    fn is_crowded(&self, content: &Content<'_>) -> bool {
        match content {
            Content::Lent(payload)
                if self.options.form == Form::Queues && self.options.threaded =>
            {
                payload.writer() != 0
                    && queues::stands_alone(payload.bytes().len())
                    && self.crowd.is_joined_by(payload.writer(), Instant::now())
            }
            _ => false,
        }
    }

    /// Writes at once, after what was buffered before.
    fn write_through(
        &self,
        inode: &Inode,
        handle: u64,
        request: &Request,
        bytes: &[u8],
    ) -> FsResult<usize> {
        let _hold = self.hold(inode, Reason::Through);
        let open = inode.open(handle)?;
        add(&self.counters.writes_through, 1);
        add(&self.counters.writes_out, 1);
        let drops = request.drops_privileges;
        let result = self.inner.write(open.below, request.offset, bytes, drops);
        self.space.expire();
        if let Ok(count) = &result {
            add(&self.counters.bytes_out, *count as u64);
        }
        result
    }

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

    /// Sees to it that what was accepted is written in time.
    fn flush_as_needed(&self, inode: &Inode, accepted: &Accepted) {
        if self.stopped.load(Ordering::SeqCst) {
            self.drain(inode, Reason::Shutdown);
            return;
        }
        if accepted.newly_dirty && self.options.threaded {
            self.signal.rouse();
        }
        let queues = self.options.form == Form::Queues;
        let deep = queues && self.pool.used_bytes() >= self.options.bytes_max / 2;
        // Looked at after the request was added: who stands in line saw it, or is seen.
        let waited_for = self.pool.has_waiting();
        match (self.options.threaded, accepted.full) {
            // The thread of the paper goes by time, unless someone waits.
            (true, true) if queues => self.signal.raise(Reason::Full),
            (true, _) if deep => self.signal.raise(Reason::Depth),
            (true, _) if waited_for => self.signal.raise(Reason::Room),
            (true, _) => {}
            (false, _) if deep => self.flush_all(Reason::Depth),
            (false, true) => _ = self.drain(inode, Reason::Full),
            (false, false) if waited_for => _ = self.drain(inode, Reason::Room),
            (false, false) => {}
        }
    }
}
