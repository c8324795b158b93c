//! What is buffered of one inode, and who has it open.

use std::collections::{HashMap, VecDeque};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use anteros_core::{FsError, Ino, OpenFile};

use crate::error::Errors;
use crate::lock;

/// How many extents a request looks at, from the last one back, for one that it continues.
const SEARCHED_MAX: usize = 8;

/// Data that waits to be written, in one piece.
pub(crate) struct Extent {
    /// One of the open files whose data this is, as the file system below calls it. It stays open: whoever
    /// releases it drains the inode first.
    pub(crate) file: OpenFile,
    pub(crate) offset: u64,
    pub(crate) data: Vec<u8>,
    /// Whether requests that continue it may join it.
    pub(crate) gathers: bool,
    /// Written at the end by the file system below, wherever that is by then.
    pub(crate) append: bool,
    pub(crate) drops_privileges: bool,
    /// What to give back to [`Space`](crate::space::Space).
    pub(crate) charge: u64,
}

impl Extent {
    fn end(&self) -> u64 {
        self.offset + self.data.len() as u64
    }

    fn overlaps(&self, offset: u64, len: usize) -> bool {
        self.offset < offset + len as u64 && offset < self.end()
    }
}

/// An open file.
#[derive(Clone, Copy)]
pub(crate) struct Open {
    /// The same, as the file system below calls it.
    pub(crate) below: OpenFile,
    pub(crate) append: bool,
    /// Whether its writes may be buffered.
    pub(crate) buffers: bool,
    /// The last [error](Errors) it knows of.
    pub(crate) seen: u64,
}

/// A write that is to be buffered.
pub(crate) struct Request<'a> {
    pub(crate) open: Open,
    pub(crate) offset: u64,
    pub(crate) data: &'a [u8],
    pub(crate) drops_privileges: bool,
    pub(crate) charge: u64,
}

#[derive(Default)]
pub(crate) struct State {
    pub(crate) opens: HashMap<u64, Open>,
    pub(crate) queue: VecDeque<Extent>,
    /// Extents that were ever queued, and those of them that are done with, in the same order.
    pub(crate) queued: u64,
    pub(crate) done: u64,
    /// Whether an extent is being written: it is counted by `queued`, but neither in the queue nor done.
    pub(crate) in_flight: bool,
    /// Whether that one drops privileges.
    pub(crate) in_flight_drops: bool,
    /// Whether someone [holds](Hold) the inode.
    pub(crate) held: bool,
    /// Whether the set of dirty inodes has it.
    pub(crate) listed: bool,
    /// Where the file ends, with all that is buffered; `None` if that is not known.
    pub(crate) end: Option<u64>,
    pub(crate) errors: Errors,
}

impl State {
    /// Where a request goes; `None` if it goes to an end that is not known.
    pub(crate) fn place(&self, request: &Request<'_>) -> Option<u64> {
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
        request: &Request<'_>,
        offset: u64,
        bytes_max: usize,
    ) -> Option<&mut Extent> {
        let len = request.data.len();
        for extent in self.queue.iter_mut().rev().take(SEARCHED_MAX) {
            if extent.end() == offset
                && extent.gathers
                && extent.append == request.open.append
                && extent.data.len() + len <= bytes_max
            {
                return Some(extent);
            }
            if extent.overlaps(offset, len) {
                return None;
            }
        }
        None
    }

    /// Queues a request as an extent of its own, in a buffer that its data may already be in.
    pub(crate) fn push(
        &mut self,
        request: &Request<'_>,
        offset: u64,
        data: Vec<u8>,
        gathers: bool,
    ) {
        self.queue.push_back(Extent {
            file: request.open.below,
            offset,
            data,
            gathers,
            append: request.open.append,
            drops_privileges: request.drops_privileges,
            charge: request.charge,
        });
        self.queued += 1;
    }

    /// Whether data that is not written yet drops privileges.
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
        self.changed
            .wait_while(state, |state| condition(state))
            .unwrap_or_else(PoisonError::into_inner)
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
    /// Where the file ends now, if that is known.
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
