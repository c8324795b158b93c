//! Place of a node: a block of its own, or for an inode a slot of a packed block (FPC, 4.2: literal node slots).
//!
//! Source: `docs/format/log.md`, sections 6 and 12.

#![deny(clippy::indexing_slicing)]

use anteros_core::FsResult;

use crate::compress::chunks;
use crate::layout::packed::{self, SlotKind};
use crate::layout::pointer::{Pointer, Slotted};
use crate::layout::table::NatEntry;
use crate::layout::{Block, Corrupt, Superblock};
use crate::store::Store;
use crate::store::medium::zeroed;

/// Tells where the node address table says that a node lies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NodePlace {
    /// Nowhere yet: it was made since the last checkpoint.
    None,
    /// In this block.
    Block(u64),
    /// In a slot of this packed block.
    Slot(u64, u8),
}

/// Fault of a node that the table has no place for, but this pointer.
pub(crate) fn nowhere(nid: u32, pointer: u64) -> Corrupt {
    Corrupt::Node {
        nid,
        rule: "the node address table has no block for it",
        found: pointer,
    }
}

impl NodePlace {
    /// Decodes the pointer of an entry.
    ///
    /// # Errors
    ///
    /// When it has a form that no node has, or names a slot for a node that is no inode.
    pub(crate) fn of(entry: NatEntry, superblock: &Superblock, nid: u32) -> Result<Self, Corrupt> {
        match Pointer::decode(entry.pointer, superblock, nid, 0)? {
            Pointer::Hole => Ok(Self::None),
            pointer @ Pointer::Plain(block, _) if pointer == Pointer::unchecked(block) => {
                Ok(Self::Block(block))
            }
            Pointer::Packed(at) if at.sequence == 0 && at.behind == 0 && entry.ino == nid => {
                Ok(Self::Slot(at.block, at.slot))
            }
            _ => Err(nowhere(nid, entry.pointer)),
        }
    }

    /// The pointer of an entry.
    pub(crate) fn encode(self) -> u64 {
        let pointer = match self {
            Self::None => Pointer::Hole,
            Self::Block(block) => Pointer::unchecked(block),
            Self::Slot(block, slot) => Pointer::Packed(Slotted {
                block,
                slot,
                sequence: 0,
                behind: 0,
            }),
        };
        pointer.encode()
    }

    /// Returns whether the node has a block for itself, or will have one.
    pub(super) fn has_block(self) -> bool {
        !matches!(self, Self::Slot(..))
    }

    /// The block that it names.
    pub(crate) fn block(self) -> Option<u64> {
        match self {
            Self::None => None,
            Self::Block(block) | Self::Slot(block, _) => Some(block),
        }
    }

    /// The node in the block that a place names.
    ///
    /// # Errors
    ///
    /// When that is a packed block of which the slot does not hold the node, or is broken.
    pub(crate) fn node_in(self, nid: u32, block: &Block) -> Result<Box<Block>, Corrupt> {
        let mut node = zeroed();
        match self {
            Self::Slot(place, slot) => {
                let (_, slots) = packed::parse(block)?;
                let slot = slots.get(usize::from(slot)).filter(|slot| {
                    (slot.kind, slot.ino, slot.lblk, slot.blocks) == (SlotKind::Node, nid, nid, 1)
                        && !slot.continues
                        && !slot.continued
                });
                let expanded = slot.and_then(|slot| chunks::expand(slot, slot.bytes(block)));
                let rule = "the slot does not hold the node that the table says";
                node.copy_from_slice(&expanded.ok_or(Corrupt::Packed { rule, found: place })?);
            }
            _ => *node = *block,
        }
        Ok(node)
    }

    /// Notes that the node does not lie there any more.
    pub(super) fn leave(self, store: &mut Store) {
        match self {
            Self::None => {}
            Self::Block(block) => store.invalidate(block),
            Self::Slot(block, slot) => store.vacate(block, slot),
        }
    }

    /// Reads the node, with what was written near it.
    pub(super) fn read(self, nid: u32, store: &mut Store) -> FsResult<Box<Block>> {
        match self {
            Self::None => Err(nowhere(nid, 0).into()),
            Self::Block(place) => store.fetch_near(place),
            Self::Slot(place, _) => Ok(self.node_in(nid, &*store.fetch_near(place)?)?),
        }
    }
}
