//! State that all requests and the management thread share.

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Instant;

use anteros_core::{FsError, FsResult, Ino, OpenFile};

use crate::crowd::Crowd;
use crate::dirty::Dirty;
use crate::error::Unreported;
use crate::inode::Inode;
use crate::options::Options;
use crate::pool::Pool;
use crate::signal::Signal;
use crate::space::Space;
use crate::statistics::Counters;
use crate::table::Table;

/// A function by which a file system says what it calls an open file.
pub(crate) type Naming<F> = fn(&F, OpenFile) -> Option<Vec<u8>>;

/// State that the callers and the management thread share.
pub(crate) struct Shared<F> {
    pub(crate) inner: F,
    pub(crate) options: Options,
    pub(crate) table: Table,
    pub(crate) dirty: Dirty,
    pub(crate) pool: Pool,
    pub(crate) space: Space,
    pub(crate) signal: Signal,
    pub(crate) counters: Counters,
    /// Extents that were written or given up, counted before anyone can take them for done.
    pub(crate) landed: AtomicU64,
    pub(crate) last_tick: Mutex<Instant>,
    pub(crate) unreported: Mutex<Vec<Unreported>>,
    pub(crate) name: OnceLock<Naming<F>>,
    /// Number of answering threads that write.
    pub(crate) helpers: AtomicUsize,
    pub(crate) crowd: Crowd,
    pub(crate) stopped: AtomicBool,
}

impl<F> Shared<F> {
    pub(crate) fn inode(&self, ino: Ino) -> FsResult<Arc<Inode>> {
        self.table.get(ino).ok_or(FsError::Invalid)
    }

    /// An open file as the file system below calls it.
    pub(crate) fn below(&self, file: OpenFile) -> OpenFile {
        self.table
            .get(file.ino)
            .and_then(|inode| inode.lock().opens.get(&file.handle).copied())
            .map_or(file, |open| open.below)
    }
}
