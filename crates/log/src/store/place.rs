//! Places: each block gets the next one of its head, in a segment that has room on the device.

use anteros_core::{FsError, FsResult, Timestamp};

use crate::layout::checkpoint::HeadKind;
use crate::layout::summary::Owner;
use crate::statistics::Cause;
use crate::store::blocks::Store;
use crate::store::segments::{Moment, Placed};
use crate::store::writeback::BATCH_MAX;

impl Store {
    /// A block from a head, and the summary of its segment if that is full now.
    pub(crate) fn place(
        &mut self,
        kind: HeadKind,
        owner: Owner,
        cause: Cause,
        moment: Moment,
    ) -> FsResult<Placed> {
        self.thread(kind)?;
        self.back_heads();
        let mut placed = self
            .segments
            .allocate(kind, owner, moment)
            .ok_or(FsError::NoSpace)?;
        if let Some((at, summary)) = placed.summary.take() {
            self.push(at, summary);
            self.statistics.wrote(Cause::Summary);
        }
        if placed.was_hole {
            self.ahead.forget_block(placed.block);
        }
        self.statistics.wrote(cause);
        if self.batch.len() >= BATCH_MAX {
            self.hand_over();
            self.writer.wake();
            self.writer.relieve(self.leaving_max() + BATCH_MAX);
        }
        Ok(placed)
    }

    /// A block for content that a user has written, which the age of other content is told by.
    pub(crate) fn place_written(&mut self, kind: HeadKind, owner: Owner) -> FsResult<Placed> {
        self.segments.tick();
        let moment = self.moment();
        self.place(kind, owner, Cause::Data, moment)
    }

    /// Has so many blocks of a head of packed blocks follow each other: where its segment has no more than these, the rest of
    /// it stays empty.
    pub(crate) fn keep_together(&mut self, kind: HeadKind, blocks: usize) {
        if self.segments.left(kind) <= blocks {
            self.segments.close(kind);
        }
    }

    /// Opens a segment for the packed log, if none is open: a checkpoint has to say where the log goes on.
    pub(crate) fn open_packed(&mut self) -> FsResult<()> {
        self.back_heads();
        self.segments.open_packed().ok_or(FsError::NoSpace)
    }

    /// The time of day.
    pub(crate) fn now(&self) -> Timestamp {
        (self.options.clock)()
    }

    pub(crate) fn seconds(&self) -> u64 {
        u64::try_from(self.now().secs).unwrap_or(0)
    }

    /// Moment at which a block is written now.
    pub(crate) fn moment(&self) -> Moment {
        Moment {
            clock: self.segments.clock(),
            seconds: self.seconds(),
        }
    }

    /// Marks a block as one that holds something; says whether it did not.
    pub(crate) fn mark(&mut self, block: u64) -> bool {
        let seconds = self.seconds();
        self.segments.mark(block, seconds)
    }

    /// Marks a block as one that holds nothing any more.
    pub(crate) fn invalidate(&mut self, block: u64) {
        let seconds = self.seconds();
        self.segments.invalidate(block, seconds);
    }
}
