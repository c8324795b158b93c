//! Blocks under writeback: each has its place, and is written to the device together with others.

use std::ops::Range;
use std::sync::Arc;

use anteros_core::{FsError, FsResult};

use crate::layout::checksum::Checksum;
use crate::layout::summary::Owner;
use crate::layout::{BLOCK_BYTES, Block};
use crate::store::blocks::Store;
use crate::store::medium::read_block;

/// Blocks of a large request.
const REQUEST_BLOCKS: usize = 256;

/// The most blocks that are handed over at once.
pub(super) const BATCH_MAX: usize = 512;

impl Store {
    /// A block of the main area, as it was written last.
    pub(crate) fn fetch(&mut self, place: u64) -> FsResult<Box<Block>> {
        let mut found = None;
        self.visit_writeback(place..place + 1, |_, block| found = Some(Box::new(**block)))?;
        match found {
            Some(block) => Ok(block),
            None => read_block(&*self.device, place),
        }
    }

    /// A block of content of the main area, if it is the one that was written there.
    pub(crate) fn fetch_content(
        &mut self,
        place: u64,
        checksum: Checksum,
        owner: Owner,
    ) -> FsResult<Box<Block>> {
        let block = self.fetch(place)?;
        checksum.check(&block, owner, place)?;
        Ok(block)
    }

    /// Calls `visit` for each block of these places that is under writeback.
    ///
    /// # Errors
    ///
    /// When it did not take one of them.
    pub(crate) fn visit_writeback(
        &self,
        places: Range<u64>,
        mut visit: impl FnMut(u64, &Arc<Block>),
    ) -> FsResult<()> {
        self.writer.visit(places.clone(), &mut visit)?;
        for (place, block) in self.batch.range(places) {
            visit(*place, block);
        }
        Ok(())
    }

    /// Sends a block to its place. Whoever changes something hands that over in the end.
    pub(crate) fn push(&mut self, place: u64, block: impl Into<Arc<Block>>) {
        self.batch.insert(place, block.into());
    }

    /// Has all that was pushed written by whoever comes to that; says below which number these jobs, and all before,
    /// are.
    pub(crate) fn hand_over(&mut self) -> u64 {
        self.writer.hand_over(&mut self.batch, self.is_in_group)
    }

    /// Begins a group: whoever syncs waits for the blocks that are pushed from here on, and for none that came before.
    pub(crate) fn begin_group(&mut self) {
        self.hand_over();
        self.is_in_group = true;
    }

    /// Ends what [`begin_group`](Self::begin_group) has begun.
    pub(crate) fn end_group(&mut self) {
        self.hand_over();
        self.is_in_group = false;
    }

    /// The most blocks that may be on their way while more are made: what is dirty at once, with the request that made it too
    /// much. Those who hold the lock have some more.
    pub(crate) fn leaving_max(&self) -> usize {
        (self.options.memory_bytes / 4 / BLOCK_BYTES + REQUEST_BLOCKS).max(BATCH_MAX)
    }

    /// Returns when the device has got all that was sent to it.
    pub(crate) fn submit(&mut self) -> FsResult<()> {
        let end = self.hand_over();
        self.writer.finish(end)
    }

    /// A flush begins, of all that was submitted. To be told to [`flushed`](Self::flushed) when it has returned.
    pub(crate) fn flushing(&mut self) -> u64 {
        self.epoch += 1;
        self.epoch - 1
    }

    /// A flush has returned.
    pub(crate) fn flushed(&mut self, epoch: u64) {
        self.flushed = self.flushed.max(epoch);
    }

    /// Waits until all that was written is on the device.
    pub(crate) fn flush(&mut self) -> FsResult<()> {
        self.submit()?;
        let epoch = self.flushing();
        let flushed = self.device.flush().map_err(FsError::Io);
        match &flushed {
            Ok(()) => self.flushed(epoch),
            Err(error) => self.fail("the device could not be flushed", error),
        }
        flushed
    }

    /// Number of the next flush.
    pub(crate) fn epoch(&self) -> u64 {
        self.epoch
    }

    /// Returns whether what was written in an epoch may not be on the device yet.
    pub(crate) fn is_unflushed(&self, epoch: u64) -> bool {
        epoch > self.flushed
    }
}
