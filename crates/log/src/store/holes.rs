//! Content goes to the holes of segments where free ones are dear (F2FS, FAST'15, 2.6: threaded logging).

use anteros_core::{FsError, FsResult};

use crate::layout::SEGMENT_CONTENT;
use crate::layout::checkpoint::HeadKind;
use crate::layout::summary::{self, Owner};
use crate::options::Mode;
use crate::store::blocks::Store;
use crate::store::need::MARGIN;
use crate::store::victim::VictimPolicy;

/// With fewer holes than these, a segment is not worth its summary.
const HOLES_MIN: u32 = 16;

/// Of 32 parts, how many of a segment may be valid for cleaning to be better than filling its holes: what is moved is written
/// again, but what follows goes to one place.
const WORTH_CLEANING: u32 = 12;

impl Store {
    /// Owners of the blocks of a segment.
    pub(crate) fn owners(&mut self, segment: u32) -> FsResult<Vec<Owner>> {
        let filling = self.segments.filling(segment);
        if let Some(owners) = filling.or_else(|| self.segments.rewritten(segment)) {
            return Ok(owners.clone());
        }
        let place = self.segments.start(segment) + u64::from(SEGMENT_CONTENT);
        let block = self.fetch(place)?;
        Ok(summary::parse(
            &block,
            self.segments.segment(segment).serial,
        )?)
    }

    /// Takes the summaries of segments whose holes were filled: the next checkpoint brings them along.
    pub(crate) fn take_rewritten(&mut self) -> Vec<(u32, Vec<Owner>)> {
        self.segments.take_rewritten()
    }

    /// Returns whether content goes into holes of used segments: few are free, and cleaning would move much to gain
    /// little.
    pub(crate) fn is_threading(&self) -> bool {
        let is_dear = || {
            // Before cleaning begins.
            if self.segments.free_count() > self.room_to_clean(MARGIN) + 2 * self.spare() {
                return false;
            }
            let valid = |victim| u32::from(self.segments.segment(victim).valid);
            let victim = self.victim(VictimPolicy::Greedy);
            victim.is_none_or(|victim| valid(victim) > SEGMENT_CONTENT * WORTH_CLEANING / 32)
        };
        match self.options.mode {
            Mode::Lfs => false,
            Mode::Adaptive => is_dear(),
            Mode::Threaded => true,
        }
    }

    /// A segment that content may go to the holes of.
    pub(crate) fn threadable(&self) -> Option<u32> {
        let holes_min = match self.options.mode {
            Mode::Threaded => 1,
            _ => HOLES_MIN,
        };
        let may_be = |segment| self.victim != Some(segment) && !self.quarantined.contains(&segment);
        self.segments.threadable(holes_min, may_be)
    }

    /// Has the next block of a head go to the first hole of a segment, if it would have to be a free one else, and these are dear.
    pub(crate) fn thread(&mut self, kind: HeadKind) -> FsResult<()> {
        if !self.segments.may_thread(kind) || !self.is_threading() {
            return Ok(());
        }
        while let Some(segment) = self.threadable() {
            match self.owners(segment) {
                Ok(_) if !self.is_backed(segment) => return Ok(()),
                Ok(owners) => {
                    self.segments.thread(kind, segment, owners);
                    self.statistics.threaded += 1;
                    return Ok(());
                }
                Err(error @ FsError::Corrupt(_)) => self.quarantine(segment, &error),
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}
