//! One finding of a walk: the place, and what is wrong there.

use std::fmt::{self, Display, Formatter};

use anteros_core::FsError;

use crate::files::dir::kind_of;
use crate::layout::Corrupt;
use crate::layout::summary::Owner;

/// Tells where something is wrong.
pub(in crate::offline) enum Place {
    /// The node address table.
    Table,
    /// The header of the checkpoint.
    Checkpoint,
    Node(u32),
    Inode(u32),
    /// A name in this directory.
    Name(u32, Vec<u8>),
    /// The name at this position of this directory.
    Position(u32, u64),
}

/// One who claims a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::offline) struct Claim {
    pub(in crate::offline) owner: Owner,
    pub(in crate::offline) is_node: bool,
}

impl Claim {
    pub(super) fn of_content(ino: u32, lblk: u32) -> Self {
        let owner = Owner { ino, lblk };
        Self {
            owner,
            is_node: false,
        }
    }

    pub(super) fn of_node(ino: u32, nid: u32) -> Self {
        Self {
            is_node: true,
            ..Self::of_content(ino, nid)
        }
    }
}

/// Part of an inode that a node is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::offline) enum Part {
    Inode,
    Attributes,
    /// A direct or indirect node.
    Tree,
}

/// A logical block or an inode in a packed block.
#[derive(Debug, Clone, Copy)]
pub(in crate::offline) struct InSlot {
    pub(in crate::offline) claim: Claim,
    pub(in crate::offline) slot: u8,
    pub(in crate::offline) block: u64,
}

/// Something that is wrong.
pub(in crate::offline) enum Fault {
    /// A block of the node address table cannot be read.
    Table(FsError),
    /// A number is in use, but this inode does not lead to it.
    Stray {
        ino: u32,
    },
    /// A node cannot be read, or is not the one that is named.
    Node {
        part: Part,
        /// The block that it lies in; 0: none, or not known.
        block: u64,
        error: FsError,
    },
    /// A node belongs to something else as well.
    SharedNode {
        nid: u32,
    },
    /// Extended attributes are damaged.
    Attributes(Corrupt),
    /// A pointer cannot be.
    Pointer {
        lblk: u32,
        fault: Corrupt,
    },
    /// The blocks of content that has no place yet cannot be counted.
    Unplaced(FsError),
    /// A block lies behind the end of a file.
    Beyond {
        lblk: u32,
        size: u64,
        block: u64,
    },
    /// Content cannot be read, or is not what was written.
    Content(FsError),
    /// Names of a directory cannot be read.
    Unlisted {
        /// The block that they lie in; 0: none, or not known.
        block: u64,
        error: FsError,
    },
    /// A name does not lie where its hash leads.
    Misplaced,
    /// A name leads to no inode.
    Dangling {
        ino: u32,
    },
    /// A name has another kind than its inode.
    Misnamed {
        ino: u32,
        named: u8,
        is: u8,
    },
    /// The checkpoint names an inode for the log's own record that cannot be it.
    OwnRecord(FsError),
    /// The inode of the log's own record has a name.
    NamedRecord {
        ino: u32,
    },
    /// An inode belongs to the log itself, and the checkpoint does not name it, or a name does.
    Own {
        names: u64,
    },
    /// No way leads to an inode from the root.
    Unreached {
        names: u64,
    },
    /// A directory has several names.
    Names(u64),
    Links {
        stated: u32,
        counted: u64,
        is_directory: bool,
    },
    /// A directory says that it lies in this one.
    Parent(u32),
    Entries {
        stated: u32,
        counted: u64,
    },
    Blocks {
        stated: u64,
        counted: u64,
    },
    /// A block belongs to something else as well.
    Shared {
        block: u64,
        claim: Claim,
        other: Claim,
    },
    /// The segment table does not count a block as valid.
    Invalid {
        block: u64,
        claim: Claim,
        segment: u32,
    },
    /// A chunk cannot be read.
    Chunk {
        at: InSlot,
        error: FsError,
    },
    /// A slot belongs to something else as well.
    SharedSlot(InSlot),
    /// A packed block belongs to something else as well.
    SharedPacked {
        at: InSlot,
        block: u64,
        other: Claim,
    },
    /// The block state table does not count a slot as valid.
    InvalidSlot(InSlot),
}

impl Display for Claim {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let what = match self.is_node {
            true => "node",
            false => "logical block",
        };
        write!(f, "{what} {}", self.owner.lblk)
    }
}

impl Display for InSlot {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let Self { claim, slot, block } = self;
        write!(f, "{claim} in slot {slot} of block {block}")
    }
}

/// The words of `check`.
impl Display for Fault {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::Node {
                block,
                error: FsError::Corrupt(fault),
                ..
            }
            | Self::Unlisted {
                block,
                error: FsError::Corrupt(fault),
            } if *block != 0 => {
                write!(f, "block {block}: {fault}")
            }
            Self::Table(error)
            | Self::Content(error)
            | Self::Node { error, .. }
            | Self::Unlisted { error, .. }
            | Self::OwnRecord(error)
            | Self::Unplaced(error) => error.fmt(f),
            Self::NamedRecord { ino } => {
                write!(f, "the log's own record, inode {ino}: a name leads to it")
            }
            Self::Own { names: 0 } => {
                f.write_str("belongs to the log itself, but is not the log's own record")
            }
            Self::Own { .. } => f.write_str("belongs to the log itself, but a name leads to it"),
            Self::Stray { ino } => write!(f, "is in use, but inode {ino} does not lead to it"),
            Self::SharedNode { nid } => write!(f, "node {nid} belongs to something else as well"),
            Self::Attributes(fault) => write!(f, "extended attributes: {fault}"),
            Self::Pointer { lblk, fault } => write!(f, "logical block {lblk}: {fault}"),
            Self::Beyond { lblk, size, block } => {
                write!(
                    f,
                    "has a block {lblk} behind its end at {size}, in block {block}"
                )
            }
            Self::Misplaced => f.write_str("lies where its hash does not lead"),
            Self::Dangling { ino } => write!(f, "names inode {ino}, which is not there"),
            Self::Misnamed { ino, named, is } => {
                let (named, is) = (kind_of(*named).name(), kind_of(*is).name());
                write!(f, "inode {ino} is named as a {named}, but is a {is}")
            }
            Self::Unreached { names: 0 } => f.write_str("no name leads to it"),
            Self::Unreached { .. } => f.write_str("only names that nothing leads to lead to it"),
            Self::Names(names) => write!(f, "is a directory with {names} names"),
            Self::Links {
                stated, counted, ..
            } => {
                write!(f, "says that it has {stated} links, but has {counted}")
            }
            Self::Parent(parent) => {
                write!(f, "says that it lies in directory {parent}, but does not")
            }
            Self::Entries { stated, counted } => {
                write!(f, "says that it has {stated} names, but has {counted}")
            }
            Self::Blocks { stated, counted } => {
                write!(f, "says that it takes {stated} blocks, but takes {counted}")
            }
            Self::Shared {
                block,
                claim,
                other,
            } => {
                let other = other.owner.ino;
                write!(
                    f,
                    "{claim} in block {block}: belongs to something else as well, inode {other}"
                )
            }
            Self::Invalid {
                block,
                claim,
                segment,
            } => {
                write!(
                    f,
                    "{claim} in block {block}: segment {segment} does not count it as valid"
                )
            }
            Self::Chunk { at, error } => write!(f, "{at}: {error}"),
            Self::SharedSlot(at) => write!(f, "{at}: the slot belongs to something else as well"),
            Self::SharedPacked { at, other, .. } => {
                write!(
                    f,
                    "{at}: the block belongs to inode {} as well",
                    other.owner.ino
                )
            }
            Self::InvalidSlot(at) => {
                write!(f, "{at}: the block state table does not count it as valid")
            }
        }
    }
}
