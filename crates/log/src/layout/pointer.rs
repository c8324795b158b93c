//! Place of a logical block: 64 bits that can name a block, a slot in it, and a chunk that goes on in those behind.
//!
//! Source: `docs/format/log.md`, section 7.

use super::checksum::{CHECKSUM_BITS, Checksum};
use super::{Corrupt, Superblock};

const BLOCK_BITS: u32 = 40;
const SLOT_BITS: u32 = 5;
const SEQUENCE_BITS: u32 = 5;
const KIND_SHIFT: u32 = BLOCK_BITS + SLOT_BITS + SEQUENCE_BITS;
const KIND_BITS: u32 = 3;
const BEHIND_SHIFT: u32 = KIND_SHIFT + KIND_BITS;
/// Bits of a checksum that lie where other pointers have slot and sequence; the others lie above the kind.
const CHECKSUM_LOW_BITS: u32 = SLOT_BITS + SEQUENCE_BITS;

const CHECKSUM_LOW: u64 = (1 << CHECKSUM_LOW_BITS) - 1;

const _: () = assert!(CHECKSUM_BITS - CHECKSUM_LOW_BITS == u64::BITS - BEHIND_SHIFT);

const PLAIN: u64 = 1;
const PACKED: u64 = 2;
const PACKED_ON: u64 = 3;
const PREALLOCATED: u64 = 4;

/// Tells where a logical block lies.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Pointer {
    /// Nowhere: it reads as zeros.
    #[default]
    Hole,
    /// In this block, as it is, with the checksum of that.
    Plain(u64, Checksum),
    /// Compressed, in a slot of a packed block.
    Packed(Slotted),
    /// Nowhere yet, but space for a block is kept; it reads as zeros.
    Preallocated,
}

/// A place in a packed block.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Slotted {
    /// The block.
    pub block: u64,
    /// The slot, below 32.
    pub slot: u8,
    /// Tells how many logical blocks of the chunk come before, below 32.
    pub sequence: u8,
    /// In how many of the blocks behind the chunk goes on, in slot 0 of each: up to 32.
    pub behind: u8,
}

impl Slotted {
    /// The blocks that the chunk lies in.
    pub fn blocks(self) -> std::ops::RangeInclusive<u64> {
        self.block..=self.block + u64::from(self.behind)
    }

    /// The slots that the chunk lies in, with their blocks.
    pub fn places(self) -> impl Iterator<Item = (u64, u8)> {
        let behind = self.blocks().skip(1).map(|block| (block, 0));
        std::iter::once((self.block, self.slot)).chain(behind)
    }
}

impl Pointer {
    /// Returns what a pointer of node `nid` says, at its position `index` there.
    ///
    /// # Errors
    ///
    /// When bits are set that must not be, or the blocks do not lie within the content of a segment.
    pub fn decode(
        raw: u64,
        superblock: &Superblock,
        nid: u32,
        index: u16,
    ) -> Result<Self, Corrupt> {
        let pointer = Self::from_bits(raw)
            .filter(|pointer| pointer.encode() == raw && pointer.lies_in(superblock));
        pointer.ok_or(Corrupt::Pointer {
            nid,
            index,
            value: raw,
        })
    }

    /// A pointer to a block without its checksum: one to a node, which has its own.
    pub const fn unchecked(block: u64) -> Self {
        Self::Plain(block, Checksum::UNKNOWN)
    }

    /// Returns what bits say that lie nowhere in particular: whether there is such a block is not known.
    pub fn from_raw(raw: u64) -> Option<Self> {
        Self::from_bits(raw).filter(|pointer| pointer.encode() == raw)
    }

    fn from_bits(raw: u64) -> Option<Self> {
        let block = raw & ((1 << BLOCK_BITS) - 1);
        let field = |shift: u32| u8::try_from(raw >> shift & 0x1f).ok();
        let behind = field(BEHIND_SHIFT)?;
        Some(match raw >> KIND_SHIFT & ((1 << KIND_BITS) - 1) {
            0 => Self::Hole,
            PLAIN => Self::Plain(block, checksum(raw)),
            kind @ (PACKED | PACKED_ON) => Self::Packed(Slotted {
                block,
                slot: field(BLOCK_BITS)?,
                sequence: field(BLOCK_BITS + SLOT_BITS)?,
                behind: if kind == PACKED { 0 } else { behind + 1 },
            }),
            PREALLOCATED => Self::Preallocated,
            _ => return None,
        })
    }

    /// As it lies in a node.
    pub fn encode(self) -> u64 {
        match self {
            Self::Hole => 0,
            Self::Plain(block, checksum) => {
                let bits = u64::from(checksum.bits());
                let (low, high) = (bits & CHECKSUM_LOW, bits >> CHECKSUM_LOW_BITS);
                high << BEHIND_SHIFT | PLAIN << KIND_SHIFT | low << BLOCK_BITS | block
            }
            Self::Packed(at) => {
                let kind = if at.behind > 0 { PACKED_ON } else { PACKED };
                u64::from(at.behind.saturating_sub(1)) << BEHIND_SHIFT
                    | kind << KIND_SHIFT
                    | u64::from(at.sequence) << (BLOCK_BITS + SLOT_BITS)
                    | u64::from(at.slot) << BLOCK_BITS
                    | at.block
            }
            Self::Preallocated => PREALLOCATED << KIND_SHIFT,
        }
    }

    /// Returns whether all that it names is content of one segment.
    fn lies_in(self, superblock: &Superblock) -> bool {
        let segment = |block| superblock.locate(block).map(|(segment, _)| segment);
        match self {
            Self::Hole | Self::Preallocated => true,
            Self::Plain(block, _) => segment(block).is_some(),
            Self::Packed(at) => {
                let first = segment(at.block);
                first.is_some() && first == segment(*at.blocks().end())
            }
        }
    }

    /// Returns whether a block is set aside for it alone.
    pub fn has_block(self) -> bool {
        matches!(self, Self::Plain(..) | Self::Preallocated)
    }

    /// The block and the slot in which its chunk begins, if it is compressed.
    pub fn chunk(self) -> Option<(u64, u8)> {
        match self {
            Self::Packed(at) => Some((at.block, at.slot)),
            _ => None,
        }
    }

    /// The block that it names.
    pub fn block(self) -> Option<u64> {
        match self {
            Self::Plain(block, _) | Self::Packed(Slotted { block, .. }) => Some(block),
            Self::Hole | Self::Preallocated => None,
        }
    }
}

/// The checksum in the bits of a pointer to a plain block.
fn checksum(raw: u64) -> Checksum {
    let (low, high) = (raw >> BLOCK_BITS & CHECKSUM_LOW, raw >> BEHIND_SHIFT);
    Checksum::from_bits((high << CHECKSUM_LOW_BITS | low) as u32)
}

#[cfg(test)]
mod tests {
    use super::super::superblock::Shape;
    use super::*;

    #[test]
    fn every_form_comes_back_and_nothing_else_is_taken() {
        let superblock = Superblock::plan(40 << 8, &Shape::default()).unwrap();
        let block = superblock.main_start + 5;
        let slotted = Slotted {
            block,
            slot: 31,
            sequence: 17,
            behind: 32,
        };
        let forms = [
            Pointer::Hole,
            Pointer::unchecked(block),
            Pointer::Plain(block, Checksum::from_bits(0x0a_5a5a)),
            Pointer::Plain(block, Checksum::from_bits(u32::MAX)),
            Pointer::Packed(slotted),
            Pointer::Packed(Slotted {
                behind: 0,
                ..slotted
            }),
            Pointer::Packed(Slotted {
                behind: 1,
                ..slotted
            }),
            Pointer::Preallocated,
        ];
        for form in forms {
            assert_eq!(
                Pointer::decode(form.encode(), &superblock, 7, 3).unwrap(),
                form
            );
        }
        let summary = superblock.main_start + 511;
        let refused = [
            1,
            5 << KIND_SHIFT,
            1 << 53 | Pointer::Preallocated.encode(),
            Pointer::Preallocated.encode() | 1,
            Pointer::unchecked(summary).encode(),
            Pointer::unchecked(0).encode(),
            Pointer::unchecked(superblock.blocks).encode(),
            Pointer::Packed(Slotted {
                block: summary - 32,
                ..slotted
            })
            .encode(),
            1 << 58 | Pointer::Packed(slotted).encode(),
        ];
        for raw in refused {
            let fault = Pointer::decode(raw, &superblock, 7, 3).unwrap_err();
            assert!(fault.to_string().contains("node 7"), "{fault}");
        }
    }
}
