//! Acceptance of content into the buffer.

use std::sync::atomic::Ordering;
use std::time::Instant;

use anteros_core::{FsResult, OpenFile, Writable};

use crate::gather::Accepted;
use crate::inode::{Content, Inode, Request};
use crate::options::Form;
use crate::shared::Shared;
use crate::statistics::{Reason, add};
use crate::{entries, queues};

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
