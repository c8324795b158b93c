//! Changes of names and attributes that no group has.

use std::collections::BTreeSet;

use crate::layout::node::Attributes;

/// Bytes that an inode takes that is gone, in memory.
const DROPPED_BYTES: usize = 160;

/// Changes that the next group, or a checkpoint, takes.
#[derive(Default)]
pub(crate) struct Unrecorded {
    /// Records of changes of names, in the order in which they were made.
    names: Vec<u8>,
    /// Bytes of extended attributes.
    xattrs: usize,
    /// Inodes whose attributes have changed.
    touched: BTreeSet<u32>,
    /// Inodes whose content has to be in the next group with names.
    wanted: BTreeSet<u32>,
    /// Inodes that are gone.
    dropped: Vec<(u32, Attributes)>,
}

impl Unrecorded {
    pub(crate) fn names(&self) -> &Vec<u8> {
        &self.names
    }

    /// Records of names, to which others are appended.
    pub(super) fn names_mut(&mut self) -> &mut Vec<u8> {
        &mut self.names
    }

    pub(crate) fn touched(&self) -> &BTreeSet<u32> {
        &self.touched
    }

    pub(crate) fn wanted(&self) -> &BTreeSet<u32> {
        &self.wanted
    }

    pub(crate) fn dropped(&self) -> &[(u32, Attributes)] {
        &self.dropped
    }

    /// Notes that the attributes of an inode have changed.
    pub(super) fn touch(&mut self, ino: u32) {
        self.touched.insert(ino);
    }

    /// Notes that the content of an inode has to be in the next group with names.
    pub(super) fn want(&mut self, ino: u32) {
        self.wanted.insert(ino);
    }

    /// Notes that an inode is gone.
    pub(super) fn drop_inode(&mut self, ino: u32, attributes: Attributes) {
        self.touched.remove(&ino);
        self.dropped.push((ino, attributes));
    }

    /// Forgets an inode that is gone, which no record has ever named.
    pub(super) fn forget_inode(&mut self, ino: u32) {
        self.dropped.retain(|(dropped, _)| *dropped != ino);
    }

    /// Counts the extended attributes of an inode anew.
    pub(super) fn recount_xattrs(&mut self, before: usize, after: usize) {
        self.xattrs = self.xattrs.saturating_sub(before) + after;
    }

    /// Number of changes: 0 if there is none.
    pub(crate) fn count(&self) -> usize {
        self.names.len() + self.touched.len() + self.dropped.len()
    }

    /// Bytes that they take.
    pub(crate) fn bytes(&self) -> usize {
        self.names.len() + self.dropped.len() * DROPPED_BYTES + self.xattrs
    }

    /// Takes the inodes whose attributes have changed: a group has them.
    pub(super) fn take_touched(&mut self) -> BTreeSet<u32> {
        std::mem::take(&mut self.touched)
    }

    /// Notes that a group, or a checkpoint, has all of them.
    pub(super) fn clear(&mut self) {
        self.names.clear();
        self.xattrs = 0;
        self.touched.clear();
        self.wanted.clear();
        self.dropped.clear();
    }
}
