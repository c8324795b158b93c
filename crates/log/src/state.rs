//! State of a mounted log: what the floors own, in one place.
//!
//! All of it lies behind one lock. Every operation leaves it whole: what an operation cannot do it refuses
//! before it has changed anything.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use anteros_core::Timestamp;

use crate::compress::squeeze::Squeezer;
use crate::files::staged::Staged;
use crate::layout::node::Attributes;
use crate::nodes::Nodes;
use crate::store::Store;

/// A mounted log.
pub(crate) struct State {
    pub(crate) store: Store,
    pub(crate) squeezer: Squeezer,
    pub(crate) nodes: Nodes,
    /// Lookup count of each inode: by name or open.
    pub(crate) known: HashMap<u32, u64>,
    /// Number of open handles of each inode that can write.
    pub(crate) writers: HashMap<u32, u64>,
    /// Inodes without a name that are still held.
    pub(crate) orphans: BTreeSet<u32>,
    /// Those of them that are given back in pieces, and up to which block they still have content.
    pub(crate) doomed: BTreeMap<u32, u32>,
    /// Atomic writes that are staged, not committed.
    pub(crate) staged: BTreeMap<u32, Staged>,
    /// Number of files that were opened for writing.
    pub(crate) opened: u64,
    /// Changes of names that no group has.
    pub(crate) names: Vec<u8>,
    /// Bytes of extended attributes that no group has.
    pub(crate) unrecorded_xattrs: usize,
    /// Inodes whose attributes no group has.
    pub(crate) touched: BTreeSet<u32>,
    /// Inodes whose content has to be in the next group with names.
    pub(crate) wanted: BTreeSet<u32>,
    /// Inodes that are gone, which no group has said.
    pub(crate) dropped: Vec<(u32, Attributes)>,
    /// The next group.
    pub(crate) sequence: u64,
    /// All groups below are on the device for sure.
    pub(crate) durable: u64,
    /// The first group behind the checkpoint.
    pub(crate) checkpointed: u64,
    /// Time of the checkpoint.
    pub(crate) checkpoint_time: Timestamp,
    /// Free and emptied segments and the last checkpoint when there was nothing to win by cleaning.
    pub(crate) futile: Option<(u32, u32, u64)>,
}

/// See [`State::footprint`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Footprint {
    pub(crate) names: usize,
    touched: usize,
    dirty: usize,
    blocks: [u64; 4],
}

/// Parts of a [`State::new`].
pub(crate) struct Parts {
    pub(crate) store: Store,
    pub(crate) nodes: Nodes,
    pub(crate) sequence: u64,
}

impl State {
    pub(crate) fn new(parts: Parts) -> Self {
        Self {
            store: parts.store,
            squeezer: Squeezer::default(),
            nodes: parts.nodes,
            known: HashMap::new(),
            writers: HashMap::new(),
            orphans: BTreeSet::new(),
            doomed: BTreeMap::new(),
            staged: BTreeMap::new(),
            opened: 0,
            names: Vec::new(),
            unrecorded_xattrs: 0,
            touched: BTreeSet::new(),
            wanted: BTreeSet::new(),
            dropped: Vec::new(),
            sequence: parts.sequence,
            durable: parts.sequence,
            checkpointed: parts.sequence,
            checkpoint_time: Timestamp::default(),
            futile: None,
        }
    }

    /// Returns whether the last checkpoint has everything.
    pub(crate) fn is_settled(&self) -> bool {
        let unrecorded =
            self.names.len() + self.touched.len() + self.dropped.len() + self.store.dirty_blocks();
        unrecorded == 0
            && self.sequence == self.checkpointed
            && self.store.segments().emptied_count() == 0
    }

    /// Bytes of changes of names that wait for a group, above which a checkpoint takes them.
    pub(crate) fn records_max(&self) -> usize {
        self.store.options().memory_bytes / 16
    }

    /// Summary of the state by which changes are recognised.
    pub(crate) fn footprint(&self) -> Footprint {
        let blocks = [
            self.store.space().used(),
            self.store.space().promised(),
            self.store.segments().valid(),
            self.nodes.nat().used().into(),
        ];
        Footprint {
            names: self.names.len(),
            touched: self.touched.len(),
            dirty: self.store.dirty_blocks(),
            blocks,
        }
    }

    /// A checkpoint has everything.
    pub(crate) fn forget_unrecorded(&mut self) {
        self.nodes.forget_unrecorded();
        self.names.clear();
        self.unrecorded_xattrs = 0;
        self.touched.clear();
        self.wanted.clear();
        self.dropped.clear();
    }

    /// Takes the faults that were found since this was called last, and what there was to note.
    pub(crate) fn take_complaints(&mut self) -> Vec<String> {
        let mut complaints = self.store.take_complaints();
        complaints.append(&mut self.nodes.nat_mut().take_complaints());
        complaints
    }
}
