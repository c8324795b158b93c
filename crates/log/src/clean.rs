//! Cleaning: segments of which little is valid are emptied, so that they can be filled anew.

use anteros_core::{FsError, FsResult};

use crate::layout::checkpoint::HeadKind;
use crate::layout::pointer::Pointer;
use crate::layout::summary::{self, Owner};
use crate::layout::{Corrupt, SEGMENT_CONTENT};
use crate::pack::Packing;
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
        // Each round cleans a segment or sets some free: a log that is not full needs no more of them.
        for _ in 0..2 * self.segments.count() {
            let least = self.segments_for(self.dirty_blocks());
            let wanted = self.segments_for(self.dirty_blocks() + blocks) + self.spare();
            let (free, emptied) = (self.segments.free_count(), self.segments.emptied_count());
            if free >= wanted {
                return Ok(());
            }
            // More than is wanted, to make the checkpoint worth its flushes; but it must find room itself.
            let is_worth_it = free + emptied < wanted + self.spare();
            let may_clean = free > least + 1 || emptied == 0;
            if is_worth_it && may_clean && self.clean_one(Choice::Greedy)? {
                continue;
            }
            if self.segments.emptied_count() == 0 {
                break;
            }
            self.checkpoint(false)?;
        }
        match self.segments.free_count() >= self.segments_for(self.dirty_blocks() + blocks) {
            true => Ok(()),
            false => Err(FsError::NoSpace),
        }
    }

    /// Segments beyond what is needed, in which cleaning begins.
    fn spare(&self) -> u32 {
        if self.segments.are_few() { 2 } else { 4 }
    }

    /// Segments that so many blocks may need: heads that are nearly full need one more each.
    fn segments_for(&self, blocks: usize) -> u32 {
        let heads = if self.segments.are_few() { 2 } else { 7 };
        (blocks as u32).div_ceil(SEGMENT_CONTENT) + heads
    }

    /// Cleans a segment, if there is one worth it and room to do so.
    pub(crate) fn clean_one(&mut self, choice: Choice) -> FsResult<bool> {
        if self.segments.free_count() < 3 {
            return Ok(false);
        }
        let Some(victim) = self.victim(choice) else {
            return Ok(false);
        };
        self.clean_segment(victim)?;
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
        // Of 32; who waits takes what there is.
        let most = if choice == Choice::Greedy { 31 } else { 30 };
        let full = (0..self.segments.count()).filter(|&segment| {
            let entry = self.segments.segment(segment);
            entry.state == Use::Full && u32::from(entry.valid) < SEGMENT_CONTENT * most / 32
        });
        full.max_by(|&left, &right| worth(left).total_cmp(&worth(right)))
    }

    pub(crate) fn clean_segment(&mut self, segment: u32) -> FsResult<()> {
        let start = self.segments.start(segment);
        let entry = self.segments.segment(segment).clone();
        if HeadKind::from_raw(entry.kind).is_some_and(HeadKind::is_packed) {
            return self.clean_packed(segment);
        }
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

    fn clean_packed(&mut self, segment: u32) -> FsResult<()> {
        let start = self.segments.start(segment);
        let blocks: Vec<u16> = self.segments.segment(segment).valid_blocks().collect();
        let before = self.statistics;
        let mut packing = Packing::apart(HeadKind::Moved);
        for index in blocks {
            let block = start + u64::from(index);
            self.relocate_packed(block, &mut packing)?;
            if self.segments.segment(segment).is_valid(index) {
                let rule = "a slot counts as valid that nothing points to";
                return Err(Corrupt::Packed { rule, found: block }.into());
            }
        }
        self.seal(&mut packing, true);
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
        self.push(placed.block, data);
        self.left_early(owner.ino)
    }
}
