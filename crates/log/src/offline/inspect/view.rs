//! Views of inodes, groups and blocks.

use crate::layout::checkpoint::HeadKind;
use crate::layout::node::{Attributes, NodeHeader, NodeKind};
use crate::layout::packed::{PackedHeader, Slot};
use crate::layout::pointer::Pointer;
use crate::layout::summary::Owner;
use crate::store::segments::Use;

/// An inode, and what belongs to it.
#[derive(Debug, Clone)]
pub struct InodeView {
    /// Its number.
    pub ino: u32,
    /// Its attributes.
    pub attributes: Attributes,
    /// Of a directory: how many names it says that it has.
    pub entries: u32,
    /// The names of its extended attributes, and how long their values are.
    pub xattrs: Vec<(Vec<u8>, usize)>,
    /// Its nodes, itself first.
    pub nodes: Vec<NodeView>,
    /// Tells where its content lies, but for holes.
    pub runs: Vec<Run>,
    /// Holds what could not be read, and why.
    pub faults: Vec<String>,
}

/// A node of an inode.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NodeView {
    /// Its number.
    pub nid: u32,
    /// The block that it lies in; `None`: it was made by a group behind the checkpoint.
    pub block: Option<u64>,
    /// The slot of that, if it is a packed one.
    pub slot: Option<u8>,
    /// Holds what it is for, and its place in the tree, as its block says.
    pub place: Option<(NodeKind, u32)>,
}

/// Logical blocks that lie one behind the other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Run {
    /// The first one.
    pub lblk: u32,
    /// Tells how many there are.
    pub count: u32,
    /// Tells where the first one lies.
    pub pointer: Pointer,
}

/// A group behind the checkpoint.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Group {
    /// Its number.
    pub sequence: u64,
    /// Groups below this number were on the device when it was written.
    pub durable: u64,
    /// Its records, as [`records`](crate::layout::record::records) reads them.
    pub stream: Vec<u8>,
}

/// A part of a device. Blocks count from the beginning of the part, or of its copy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Area {
    /// A copy of the superblock.
    Superblock(u8),
    /// A checkpoint pack.
    Checkpoint {
        /// Tells which of the two.
        pack: u8,
        /// Tells which block of it.
        index: u32,
    },
    /// A copy of a table.
    Table {
        /// Its name.
        name: &'static str,
        /// Tells which of the two.
        copy: u8,
        /// Tells which block of it.
        index: u32,
        /// Tells whether this copy of the block counts; `None` without a checkpoint.
        counts: Option<bool>,
    },
    /// The main area.
    Main {
        /// The segment.
        segment: u32,
        /// Tells which block of it; 511 is its summary.
        index: u16,
    },
    /// None of these.
    Unused,
}

/// A block, and what is known of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    /// Tells where it lies.
    pub area: Area,
    /// Of the main area: what its segment holds, and for what that is used.
    pub segment: Option<(HeadKind, Use)>,
    /// Of the main area: whether it counts.
    pub is_valid: Option<bool>,
    /// Tells whose it is, as the summary of its segment says.
    pub owner: Option<Owner>,
    /// Tells whether the owner says that it lies here.
    pub is_owned: Option<bool>,
    /// Holds what it holds, as far as it says so itself.
    pub content: Content,
}

/// Tells what a block says of itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Content {
    /// Nothing but zeros.
    Zeros,
    /// It is a node.
    Node(NodeHeader),
    /// It is a packed block: its head, its slots, and their bytes.
    Packed(PackedHeader, Vec<(Slot, Vec<u8>)>),
    /// It is a block of a directory, so many levels above the leaves; of a leaf its names.
    Directory(u16, Vec<(Vec<u8>, u32)>),
    /// It is the summary of its segment: whose the blocks are.
    Summary(Vec<Owner>),
    /// Nothing: the first bytes of it.
    Bytes([u8; 32]),
}
