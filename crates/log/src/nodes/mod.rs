//! Nodes: inodes, the pointers of files, and the table that says where each node lies.
//!
//! This floor owns the node address table ([`nat`], asked through [`numbers`]) and the nodes in memory ([`cache`])
//! with their marks ([`loaded`]). A node lies in a block, or in a slot of one ([`place`]). The floor is asked for an
//! inode by its number, for the pointer of a logical block, and to change either ([`tree`]); dirty nodes are written
//! at a checkpoint ([`write`](mod@write)). A block of the table that cannot be read is made again from the nodes
//! ([`rebuild`]). It uses `store` and what lies below.

mod cache;
pub(crate) mod evict;
pub(crate) mod loaded;
pub(crate) mod nat;
mod numbers;
pub(crate) mod place;
mod ranges;
pub(crate) mod rebuild;
pub(crate) mod tree;
mod write;

use anteros_core::FsResult;

use crate::nodes::loaded::{CachedInode, Node};
use crate::nodes::nat::Nat;
use crate::store::Store;
use crate::store::by_number::NumberMap;

/// Nodes of a mounted log, and the store in which they lie.
pub(crate) struct Nodes {
    pub(crate) store: Store,
    nat: Nat,
    /// Direct, indirect and attribute nodes in memory.
    others: NumberMap<Node>,
    /// Inodes in memory, each for itself: a table of them would be copied when it grows.
    inodes: NumberMap<Box<CachedInode>>,
    /// Inodes that there are, in memory or not.
    inode_count: u32,
    /// Grows with each use of a node.
    clock: u64,
    /// Time of the last look at memory use, and the number of nodes and inodes at that time.
    shrunk_at: u64,
    loaded_then: usize,
}

impl Nodes {
    pub(crate) fn new(store: Store, nat: Nat, inode_count: u32) -> Self {
        Self {
            store,
            nat,
            others: NumberMap::default(),
            inodes: NumberMap::default(),
            inode_count,
            clock: 0,
            shrunk_at: 0,
            loaded_then: 0,
        }
    }

    pub(crate) fn nat(&self) -> &Nat {
        &self.nat
    }

    pub(crate) fn inode_count(&self) -> u32 {
        self.inode_count
    }

    /// Counts anew: the nodes that the table has, and the inodes among them.
    pub(crate) fn recount(&mut self, nodes: u32, inodes: u32) {
        self.nat.recount(nodes);
        self.inode_count = inodes;
    }

    /// Reserves what every checkpoint needs, parts of the table among it; see [`Store::take_room`].
    pub(crate) fn take_room(&mut self) -> FsResult<()> {
        let Self { store, nat, .. } = self;
        store.take_room(|| nat.begin_backing())
    }

    /// Reserves what a repair may write.
    pub(crate) fn take_room_to_repair(&mut self) -> FsResult<()> {
        let Self { store, nat, .. } = self;
        store.take_room_to_repair(|| nat.begin_backing())
    }

    /// Takes the faults that were found since this was called last, and what there was to note.
    pub(crate) fn take_warnings(&mut self) -> Vec<String> {
        let mut warnings = self.store.take_warnings();
        warnings.append(&mut self.nat.take_warnings());
        warnings
    }

    fn tick(&mut self) -> u64 {
        self.clock += 1;
        self.clock
    }
}
