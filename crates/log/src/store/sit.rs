//! The segment table: what a checkpoint says of it, and its blocks on the device.

use std::collections::BTreeSet;

use anteros_core::FsResult;

use crate::layout::bits::Bits;
use crate::layout::table::{SIT_PER_BLOCK, SitEntry};
use crate::statistics::Cause;
use crate::store::blocks::Store;
use crate::store::medium::zeroed;

impl Store {
    /// Entries that are newer than the table; where they are too many, they go there.
    pub(crate) fn sit_journal(&mut self) -> FsResult<Vec<(u32, SitEntry)>> {
        self.sit.newer.extend(self.segments.take_changed());
        if self.sit.newer.len() > self.sit.journal_max {
            let blocks: BTreeSet<u32> = std::mem::take(&mut self.sit.newer)
                .iter()
                .map(|segment| segment / SIT_PER_BLOCK)
                .collect();
            for index in blocks {
                self.write_sit_block(index)?;
            }
        }
        Ok(self
            .sit
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
        self.statistics.wrote(Cause::Checkpoint);
        let written = self.sit.table.write(&*self.device, index, &block);
        written.map_err(|(_, error)| error.into())
    }

    /// Copies of the blocks of the segment table that count.
    pub(crate) fn sit_bits(&self) -> Bits {
        self.sit.table.bits()
    }

    /// Has each checkpoint write what is new to the segment table itself.
    pub(crate) fn keep_no_journal(&mut self) {
        self.sit.journal_max = 0;
    }
}
