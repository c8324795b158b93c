//! The inodes that someone has open.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use anteros_core::{Ino, OpenFile};

use crate::inode::{Inode, Open};
use crate::lock::lock;

const SHARD_COUNT: usize = 16;

type Shard = Mutex<HashMap<Ino, Arc<Inode>>>;

/// Inodes by number. Open files get numbers of this layer, each of its own: those of the file system
/// below need not be, and errors are told to each open file.
pub(crate) struct Table {
    shards: [Shard; SHARD_COUNT],
    next_handle: AtomicU64,
}

impl Table {
    pub(crate) fn new() -> Self {
        Self {
            shards: Default::default(),
            next_handle: AtomicU64::new(1),
        }
    }

    fn shard(&self, ino: Ino) -> &Shard {
        &self.shards[(ino.0 % SHARD_COUNT as u64) as usize]
    }

    pub(crate) fn get(&self, ino: Ino) -> Option<Arc<Inode>> {
        lock(self.shard(ino)).get(&ino).cloned()
    }

    /// Adds an open file and returns its handle.
    pub(crate) fn open(&self, mut open: Open) -> u64 {
        let ino = open.below.ino;
        let handle = self.next_handle.fetch_add(1, Ordering::Relaxed);
        let mut shard = lock(self.shard(ino));
        let inode = shard
            .entry(ino)
            .or_insert_with(|| Arc::new(Inode::new(ino)));
        let mut state = inode.lock();
        open.seen = state.errors.number();
        state.opens.insert(handle, open);
        handle
    }

    /// Removes an open file. If it was the last one of its inode, that goes as well and is returned.
    pub(crate) fn close(&self, file: OpenFile) -> Option<Arc<Inode>> {
        let mut shard = lock(self.shard(file.ino));
        let mut state = shard.get(&file.ino)?.lock();
        state.opens.remove(&file.handle);
        let is_last = state.opens.is_empty();
        drop(state);
        if is_last {
            shard.remove(&file.ino)
        } else {
            None
        }
    }

    pub(crate) fn all(&self) -> Vec<Arc<Inode>> {
        let mut inodes = Vec::new();
        for shard in &self.shards {
            inodes.extend(lock(shard).values().cloned());
        }
        inodes
    }
}
