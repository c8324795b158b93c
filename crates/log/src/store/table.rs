//! Tables on the device of which there are two copies.
//!
//! A block of such a table is never written over: the new one goes to its other copy, and the next checkpoint says by a
//! bit which copy counts. Entries that changed lately are in a journal of the checkpoint, until that is too long.
//!
//! Invariant L5 of `docs/design/log.md`: of a block of the NAT, SIT and BST, the copy that counts is never written
//! over.

use std::collections::BTreeSet;
use std::io;

use anteros_core::WritableDevice;

use crate::layout::bits::Bits;
use crate::layout::{BLOCK_BYTES, Block};

/// Changed segments that a pack has in its journal; with more, they go to the table.
pub(crate) const SIT_JOURNAL_MAX: usize = 96;

/// A table, and which copy of each of its blocks counts.
pub(crate) struct CopiedTable {
    start: u64,
    /// Blocks of a copy.
    blocks: u32,
    /// Set for the blocks whose second copy counts.
    bits: Bits,
}

impl CopiedTable {
    pub(crate) fn new(start: u64, blocks: u32, bits: Bits) -> Self {
        Self {
            start,
            blocks,
            bits,
        }
    }

    /// A table of which the first copies count.
    pub(crate) fn first(start: u64, blocks: u32) -> Self {
        Self::new(start, blocks, Bits::new(blocks as usize))
    }

    /// Blocks of a copy.
    pub(crate) fn blocks(&self) -> u32 {
        self.blocks
    }

    /// Places where both copies begin.
    pub(crate) fn copies(&self) -> [u64; 2] {
        [self.start, self.start + u64::from(self.blocks)]
    }

    /// Copies that count.
    pub(crate) fn bits(&self) -> Bits {
        self.bits.clone()
    }

    /// Returns whether the second copy of a block counts.
    pub(crate) fn is_second(&self, index: u32) -> bool {
        self.bits.get(index as usize)
    }

    /// Place of the copy of a block that counts.
    pub(crate) fn place(&self, index: u32) -> u64 {
        self.bits.place(self.start, self.blocks, index)
    }

    /// Writes a block to its other copy, which counts from now on if that succeeds. Gives the place with the error.
    pub(crate) fn write(
        &mut self,
        device: &dyn WritableDevice,
        index: u32,
        block: &Block,
    ) -> Result<(), (u64, io::Error)> {
        self.bits.flip(index as usize);
        let place = self.place(index);
        device
            .write_at(place * BLOCK_BYTES as u64, block)
            .map_err(|error| {
                self.bits.flip(index as usize);
                (place, error)
            })
    }
}

/// State of a table as a checkpoint records it.
pub(crate) struct Stated<Newer> {
    /// Valid copy of each block of the table.
    pub(crate) bits: Bits,
    /// Entries that are newer.
    pub(crate) journal: Vec<Newer>,
    /// Blocks of it that were written.
    pub(crate) written: u64,
}

/// The segment table on the device.
pub(crate) struct SegmentTable {
    pub(crate) table: CopiedTable,
    /// Segments whose entries the table does not have.
    pub(crate) newer: BTreeSet<u32>,
    /// With more of them than this, they go there.
    pub(crate) journal_max: usize,
}
