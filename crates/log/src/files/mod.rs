//! Files: content, names and attributes, as a user of the file system knows them.
//!
//! This floor owns the dirty pages of files: they are written to in memory ([`write`](mod@write) to [`content`];
//! those of large files go in [`pieces`], for which [`large`] says which are), read from there and from the device
//! ([`read`]), and leave for it ([`write_back`]). Content of an atomic write waits beside them ([`atomic`]), and what
//! memory has no room for goes ([`evict`]). Above that lie directories ([`dir`]), the operations that change names
//! ([`names`]), extended attributes ([`xattr`], some of overlayfs in [`layers`]) and access control lists ([`acl`]).
//! An inode without a name has what the log keeps for itself ([`own_record`]).
//! It keeps the changes that no group has ([`unrecorded`]), and counts the lookups of inodes ([`lookups`]) and what
//! content takes ([`usage`]). All of it happens in memory; `durable` says when it is written. It uses `packing` and what
//! lies below.

pub(crate) mod acl;
pub(crate) mod atomic;
pub(crate) mod content;
pub(crate) mod dir;
mod evict;
mod large;
pub(crate) mod layers;
mod lookups;
pub(crate) mod names;
pub(crate) mod own_record;
pub(crate) mod pieces;
pub(crate) mod read;
mod unrecorded;
pub(crate) mod usage;
mod write;
mod write_back;
pub(crate) mod xattr;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use anteros_core::FsResult;

use crate::files::unrecorded::Unrecorded;
use crate::layout::Block;
use crate::packing::Packer;
use crate::store::by_number::NumberMap;

/// Atomic write to a file, not committed yet.
pub(crate) struct AtomicWrite {
    /// The handle of the open file that began.
    by: u64,
    pub(crate) pages: BTreeMap<u32, Arc<Block>>,
    /// Of the file, with what was written.
    size: u64,
}

/// Files of a mounted log, beyond what their nodes say, and what packs their content.
pub(crate) struct Files {
    pub(crate) packer: Packer,
    unrecorded: Unrecorded,
    /// Lookup count of each inode: by name or open.
    lookups: NumberMap<u64>,
    /// Number of open handles of each inode that can write.
    writers: NumberMap<u64>,
    /// Files whose content is given to whoever caches it: nobody changes it meanwhile.
    given: BTreeSet<u32>,
    /// Number of files that were opened for writing.
    opened: u64,
    /// Inodes without a name that a lookup still keeps.
    orphans: BTreeSet<u32>,
    /// Those of them that are given back in pieces, and up to which block they still have content.
    evicting: BTreeMap<u32, u32>,
    /// The inode that the checkpoint names for the log's own record; 0: none.
    record_ino: u32,
    /// Atomic writes that are not committed.
    atomic_writes: BTreeMap<u32, AtomicWrite>,
}

stands_on!(Files { packer: Packer });

impl Files {
    /// Files of which nothing is in memory yet.
    pub(crate) fn new(packer: Packer) -> Self {
        Self {
            packer,
            unrecorded: Unrecorded::default(),
            lookups: NumberMap::default(),
            writers: NumberMap::default(),
            given: BTreeSet::new(),
            opened: 0,
            orphans: BTreeSet::new(),
            evicting: BTreeMap::new(),
            record_ino: 0,
            atomic_writes: BTreeMap::new(),
        }
    }

    pub(crate) fn unrecorded(&self) -> &Unrecorded {
        &self.unrecorded
    }

    /// Notes that the attributes of an inode have changed.
    pub(crate) fn note_attributes(&mut self, ino: u32) {
        self.unrecorded.touch(ino);
    }

    /// Notes that a group has all changes of names and attributes, and the content of some inodes as a whole.
    pub(crate) fn note_recorded(&mut self, whole: &BTreeSet<u32>) -> FsResult<()> {
        for ino in self.unrecorded.take_touched() {
            self.live(ino)?.xattrs_changed = false;
        }
        for &ino in whole {
            let live = self.live(ino)?;
            live.unrecorded.clear();
            live.content_changed = false;
        }
        self.unrecorded.clear();
        Ok(())
    }

    /// Notes that a checkpoint has everything.
    pub(crate) fn note_checkpoint(&mut self) {
        self.packer.nodes.note_checkpoint();
        self.unrecorded.clear();
    }
}
