//! Tables on the device of which there are two copies.
//!
//! A block of such a table is never written over: the new one goes to its other copy, and the next checkpoint says by a
//! bit which copy counts. Entries that changed lately are in a journal of the checkpoint, until that is too long.

use std::collections::BTreeSet;

use anteros_core::FsResult;

use crate::layout::BLOCK_BYTES;
use crate::layout::bits::Bits;
use crate::layout::table::{SIT_PER_BLOCK, SitEntry};
use crate::statistics::Cause;
use crate::store::Store;
use crate::store::medium::zeroed;

/// The same of the segment table.
pub(crate) const SIT_JOURNAL_MAX: usize = 96;

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
pub(crate) struct Tables {
    pub(crate) sit_bits: Bits,
    /// Segments whose entries the table does not have.
    pub(crate) newer: BTreeSet<u32>,
    /// With more of them than this, they go there.
    pub(crate) journal_max: usize,
}

impl Store {
    /// Entries that are newer than the table; where they are too many, they go there.
    pub(crate) fn sit_journal(&mut self) -> FsResult<Vec<(u32, SitEntry)>> {
        self.tables.newer.extend(self.segments.take_changed());
        if self.tables.newer.len() > self.tables.journal_max {
            let blocks: BTreeSet<u32> = std::mem::take(&mut self.tables.newer)
                .iter()
                .map(|segment| segment / SIT_PER_BLOCK)
                .collect();
            for index in blocks {
                self.write_sit_block(index)?;
            }
        }
        Ok(self
            .tables
            .newer
            .iter()
            .map(|&segment| (segment, self.segments.entry(segment)))
            .collect())
    }

    fn write_sit_block(&mut self, index: u32) -> FsResult<()> {
        let mut block = zeroed();
        let first = index * SIT_PER_BLOCK;
        for segment in first..(first + SIT_PER_BLOCK).min(self.segments.count()) {
            self.segments
                .entry(segment)
                .write(&mut block, segment - first);
        }
        self.tables.sit_bits.flip(index as usize);
        let (start, blocks) = (self.superblock.sit_start, self.superblock.sit_blocks);
        let place = self.tables.sit_bits.place(start, blocks, index);
        self.statistics.wrote(Cause::Checkpoint);
        Ok(self.device.write_at(place * BLOCK_BYTES as u64, &*block)?)
    }

    /// Copies of the blocks of the segment table that count.
    pub(crate) fn sit_bits(&self) -> Bits {
        self.tables.sit_bits.clone()
    }

    /// Has each checkpoint write what is new to the segment table itself.
    pub(crate) fn keep_no_journal(&mut self) {
        self.tables.journal_max = 0;
    }
}
