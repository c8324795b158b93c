//! Buffered content of one inode, and who has it open.
//!
//! Invariant W2 of `docs/design/bfuse.md`: extents of one inode are written in order; what was written later stays
//! later.

use std::collections::{HashMap, VecDeque};
use std::sync::{Condvar, Mutex, MutexGuard};

use anteros_core::{FsError, Ino, OpenFile, Payload, unpoisoned};

use crate::error::Errors;
use crate::lock::lock;

/// States how many extents a request looks at, from the last one back, for one that it continues.
const SEARCHED_MAX: usize = 8;

/// States how many extents are written together at the most.
const BATCHED_MAX: usize = 256;

/// Data that waits to be written, in one piece.
pub(crate) struct Extent {
    /// One of the open files whose data this is, as the file system below calls it. It stays open: whoever
    /// releases it drains the inode first.
    pub(crate) file: OpenFile,
    pub(crate) offset: u64,
    pub(crate) data: Vec<u8>,
    /// Tells where in `data` the content begins: on a page, where the form has it so.
    pub(crate) start: usize,
    /// Tells whether requests that continue it may join it.
    pub(crate) gathers: bool,
    /// Written at the end by the file system below, wherever that is by then.
    pub(crate) append: bool,
    pub(crate) drops_privileges: bool,
    /// Holds what to give back to [`Space`](crate::space::Space).
    pub(crate) charge: u64,
}

impl Extent {
    /// The content.
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.data[self.start..]
    }

    fn end(&self) -> u64 {
        self.offset + self.bytes().len() as u64
    }

    /// Returns whether another one can be written together with this one.
    fn is_followed_by(&self, next: &Self) -> bool {
        next.offset == self.end()
            && (next.append, next.drops_privileges) == (self.append, self.drops_privileges)
    }

    fn overlaps(&self, offset: u64, len: usize) -> bool {
        self.offset < offset + len as u64 && offset < self.end()
    }
}

/// An open file.
#[derive(Clone, Copy)]
pub(crate) struct Open {
    /// Open file, as the file system below calls it.
    pub(crate) below: OpenFile,
    pub(crate) append: bool,
    /// Tells whether its writes may be buffered.
    pub(crate) buffers: bool,
    /// The last [error](Errors) it knows of.
    pub(crate) seen: u64,
}

/// A write that is to be buffered.
pub(crate) struct Request {
    pub(crate) open: Open,
    pub(crate) offset: u64,
    pub(crate) len: usize,
    pub(crate) drops_privileges: bool,
    pub(crate) charge: u64,
}

/// Tells what a write brings.
pub(crate) enum Content<'a> {
    Plain(&'a [u8]),
    /// In a buffer that may be kept.
    Lent(Payload<'a>),
}

impl Content<'_> {
    pub(crate) fn bytes(&self) -> &[u8] {
        match self {
            Self::Plain(bytes) => bytes,
            Self::Lent(payload) => payload.bytes(),
        }
    }
}

#[derive(Default)]
pub(crate) struct State {
    pub(crate) opens: HashMap<u64, Open>,
    pub(crate) queue: VecDeque<Extent>,
    /// Extents that were ever queued, and those of them that are done with, in the same order.
    pub(crate) queued: u64,
    pub(crate) done: u64,
    /// Tells whether an extent is being written: it is counted by `queued`, but neither in the queue nor done.
    pub(crate) in_flight: bool,
    /// Tells whether that one drops privileges.
    pub(crate) in_flight_drops: bool,
    /// Tells whether someone [holds](Hold) the inode.
    pub(crate) held: bool,
    /// Tells whether the set of dirty inodes has it.
    pub(crate) listed: bool,
    /// Tells whether the next write follows another one, with no sync or close between.
    pub(crate) follows: bool,
    /// Tells where the file ends, with all that is buffered; `None` if that is not known.
    pub(crate) end: Option<u64>,
    pub(crate) errors: Errors,
}

impl State {
    /// Returns where a request goes; `None` if it goes to an end that is not known.
    pub(crate) fn place(&self, request: &Request) -> Option<u64> {
        if request.open.append {
            self.end
        } else {
            Some(request.offset)
        }
    }

    /// The extent that a request at `offset` continues, if it may join it: data that was written to the
    /// same place later must stay later.
    pub(crate) fn continued(
        &mut self,
        request: &Request,
        offset: u64,
        bytes_max: usize,
    ) -> Option<&mut Extent> {
        let len = request.len;
        for extent in self.queue.iter_mut().rev().take(SEARCHED_MAX) {
            if extent.end() == offset
                && extent.gathers
                && extent.append == request.open.append
                && extent.bytes().len() + len <= bytes_max
            {
                return Some(extent);
            }
            if extent.overlaps(offset, len) {
                return None;
            }
        }
        None
    }

    /// Queues a request as an extent of its own: a buffer and where in it the content begins.
    pub(crate) fn push(
        &mut self,
        request: &Request,
        offset: u64,
        (data, start): (Vec<u8>, usize),
        gathers: bool,
    ) {
        self.queue.push_back(Extent {
            file: request.open.below,
            offset,
            data,
            start,
            gathers,
            append: request.open.append,
            drops_privileges: request.drops_privileges,
            charge: request.charge,
        });
        self.queued += 1;
    }

    /// Takes out what is to be written next: extents that continue each other, until they have so many bytes
    /// of memory.
    pub(crate) fn take_batch(&mut self, bytes_wanted: usize) -> Vec<Extent> {
        let mut batch: Vec<Extent> = self.queue.pop_front().into_iter().collect();
        let mut bytes = batch.first().map_or(0, |first| first.data.capacity());
        while batch.len() < BATCHED_MAX && bytes < bytes_wanted {
            let follows = self.queue.front().zip(batch.last());
            let Some((next, _)) = follows.filter(|(next, last)| last.is_followed_by(next)) else {
                break;
            };
            bytes += next.data.capacity();
            batch.extend(self.queue.pop_front());
        }
        batch
    }

    /// Returns whether data that is not written yet drops privileges.
    pub(crate) fn drops_privileges(&self) -> bool {
        self.in_flight && self.in_flight_drops
            || self.queue.iter().any(|extent| extent.drops_privileges)
    }

    /// The file reaches at least to here.
    pub(crate) fn reaches(&mut self, end: u64) {
        self.end = self.end.map(|known| known.max(end));
    }
}

pub(crate) struct Inode {
    pub(crate) ino: Ino,
    state: Mutex<State>,
    /// An extent is done with, or a hold has ended.
    changed: Condvar,
}

impl Inode {
    pub(crate) fn new(ino: Ino) -> Self {
        Self {
            ino,
            state: Mutex::default(),
            changed: Condvar::new(),
        }
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }

    /// The state, when nobody holds the inode: only then may anything be queued.
    pub(crate) fn lock_unheld(&self) -> MutexGuard<'_, State> {
        self.wait_while(self.lock(), |state| state.held)
    }

    pub(crate) fn wait_while<'a>(
        &'a self,
        state: MutexGuard<'a, State>,
        mut condition: impl FnMut(&State) -> bool,
    ) -> MutexGuard<'a, State> {
        unpoisoned(self.changed.wait_while(state, |state| condition(state)))
    }

    pub(crate) fn notify(&self) {
        self.changed.notify_all();
    }

    /// The open file, unless there is an error to tell it of first.
    pub(crate) fn open(&self, handle: u64) -> Result<Open, FsError> {
        let mut state = self.lock();
        let State { opens, errors, .. } = &mut *state;
        let open = opens.get_mut(&handle).ok_or(FsError::Invalid)?;
        match errors.tell(&mut open.seen) {
            Some(error) => Err(error),
            None => Ok(*open),
        }
    }

    /// Tells an open file of an error when one of its descriptors is closed.
    pub(crate) fn tell_closing(&self, handle: u64) -> Result<(), FsError> {
        let mut state = self.lock();
        let open = state.opens.get(&handle).ok_or(FsError::Invalid)?;
        let seen = open.seen;
        state.errors.tell_closing(seen).map_or(Ok(()), Err)
    }

    /// Has the inode to itself once those before are through: nothing is queued until this ends. What
    /// was queued before is still there.
    pub(crate) fn hold(&self) -> Hold<'_> {
        self.lock_unheld().held = true;
        Hold {
            inode: self,
            end: None,
        }
    }
}

/// Keeps writers waiting while the inode is changed otherwise; also if that panics, they go on.
pub(crate) struct Hold<'a> {
    inode: &'a Inode,
    /// Tells where the file ends now, if that is known.
    pub(crate) end: Option<u64>,
}

impl Drop for Hold<'_> {
    fn drop(&mut self) {
        let mut state = self.inode.lock();
        state.held = false;
        state.end = self.end;
        drop(state);
        self.inode.notify();
    }
}
