//! The inodes that may have something buffered.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use anteros_core::Ino;

use crate::inode::Inode;
use crate::lock::lock;

/// Inodes that may have something buffered.
#[derive(Default)]
pub(crate) struct Dirty(Mutex<BTreeMap<Ino, Arc<Inode>>>);

impl Dirty {
    pub(crate) fn add(&self, inode: &Arc<Inode>) {
        lock(&self.0).insert(inode.ino, Arc::clone(inode));
    }

    pub(crate) fn remove(&self, inode: &Arc<Inode>) {
        let mut dirty = lock(&self.0);
        if dirty
            .get(&inode.ino)
            .is_some_and(|listed| Arc::ptr_eq(listed, inode))
        {
            dirty.remove(&inode.ino);
        }
    }

    pub(crate) fn take_all(&self) -> BTreeMap<Ino, Arc<Inode>> {
        std::mem::take(&mut *lock(&self.0))
    }

    pub(crate) fn take_first(&self) -> Option<Arc<Inode>> {
        lock(&self.0).pop_first().map(|(_, inode)| inode)
    }

    pub(crate) fn is_empty(&self) -> bool {
        lock(&self.0).is_empty()
    }
}
