//! Cleaning: segments of which little is valid are emptied, so that they can be filled anew.

use anteros_core::{FsError, FsResult};

use crate::layout::checkpoint::HeadKind;
use crate::layout::pointer::Pointer;
use crate::layout::summary::{self, Owner};
use crate::layout::superblock::SEGMENTS_FEW;
use crate::layout::{Corrupt, SEGMENT_CONTENT};
use crate::segments::Use;
use crate::state::State;
use crate::statistics::Cause;

/// Which segment is cleaned next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Choice {
    /// The one with the fewest valid blocks: someone waits.
    Greedy,
    /// The one where most is won for the work, as `(1 - u) * age / (1 + u)` with its share of valid blocks `u`.
    CostBenefit,
}

impl State {
    /// Makes sure that all that is dirty, and so many blocks besides, will find their places.
    pub(crate) fn make_room(&mut self, blocks: usize) -> FsResult<()> {
        loop {
            let needed = self.segments_for(self.dirty_blocks() + blocks);
            let before = self.segments.free_count();
            if before >= needed {
                return Ok(());
            }
            // Enough to make the checkpoint worth its flushes.
            while self.segments.free_count() + self.segments.emptied_count() < needed + 2 {
                if !self.clean_one(Choice::Greedy)? {
                    break;
                }
            }
            self.checkpoint(false)?;
            if self.segments.free_count() <= before {
                let needed = self.segments_for(self.dirty_blocks() + blocks);
                return if self.segments.free_count() >= needed {
                    Ok(())
                } else {
                    Err(FsError::NoSpace)
                };
            }
        }
    }

    /// Segments that so many blocks may need: heads that are nearly full need one more each.
    fn segments_for(&self, blocks: usize) -> u32 {
        let heads = if self.segments.count() < SEGMENTS_FEW {
            2
        } else {
            7
        };
        (blocks as u32).div_ceil(SEGMENT_CONTENT) + heads
    }

    /// Cleans a segment, if there is one worth it and room to do so.
    pub(crate) fn clean_one(&mut self, choice: Choice) -> FsResult<bool> {
        if self.segments.free_count() < 2 {
            return Ok(false);
        }
        let Some(victim) = self.victim(choice) else {
            return Ok(false);
        };
        self.clean_segment(victim)?;
        self.submit()?;
        self.statistics.cleaned += 1;
        Ok(true)
    }

    fn victim(&self, choice: Choice) -> Option<u32> {
        let now = self.seconds();
        let worth = |segment: u32| {
            let entry = self.segments.segment(segment);
            let used = f64::from(entry.valid) / f64::from(SEGMENT_CONTENT);
            match choice {
                Choice::Greedy => 1.0 - used,
                Choice::CostBenefit => {
                    (1.0 - used) / (1.0 + used) * (1 + now.saturating_sub(entry.seconds)) as f64
                }
            }
        };
        let full = (0..self.segments.count()).filter(|&segment| {
            let entry = self.segments.segment(segment);
            entry.state == Use::Full && u32::from(entry.valid) < SEGMENT_CONTENT * 19 / 20
        });
        full.max_by(|&left, &right| worth(left).total_cmp(&worth(right)))
    }

    fn clean_segment(&mut self, segment: u32) -> FsResult<()> {
        let start = self.segments.start(segment);
        let entry = self.segments.segment(segment).clone();
        let block = self.fetch(start + u64::from(SEGMENT_CONTENT))?;
        let owners = summary::parse(&block, entry.serial)?;
        let before = self.statistics;
        for index in entry.valid_blocks() {
            let owner = owners.get(usize::from(index)).copied().unwrap_or_default();
            let block = start + u64::from(index);
            if entry.kind <= HeadKind::ColdNode as u8 {
                self.relocate_node(owner.lblk, block)?;
            } else {
                self.relocate_data(owner, block)?;
            }
            if self.segments.segment(segment).is_valid(index) {
                let rule = "the summary names an owner that does not know the block";
                return Err(Corrupt::Node {
                    nid: owner.ino,
                    rule,
                    found: block,
                }
                .into());
            }
        }
        self.statistics.as_cleaning(&before);
        Ok(())
    }

    fn relocate_data(&mut self, owner: Owner, block: u64) -> FsResult<()> {
        if self.pointer(owner.ino, owner.lblk)? != Pointer::Plain(block) {
            return Ok(());
        }
        let data = self.fetch(block)?;
        let placed = self.place(HeadKind::ColdData, owner, Cause::Data)?;
        self.set_pointer(owner.ino, owner.lblk, Pointer::Plain(placed.block))?;
        self.batch.push(placed.block, data);
        self.left_early(owner.ino)
    }
}
