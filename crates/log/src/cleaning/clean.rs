//! Cleaning: segments of which little is valid are emptied, so that they can be filled anew.

use anteros_core::{FsError, FsResult};

use crate::cleaning::Cleaning;
use crate::layout::checkpoint::HeadKind;
use crate::layout::checksum::Checksum;
use crate::layout::pointer::Pointer;
use crate::layout::summary::Owner;
use crate::layout::{Corrupt, SEGMENT_CONTENT};
use crate::packing::pack::Packing;
use crate::statistics::Cause;
use crate::store::segments::Moment;
use crate::store::victim::VictimPolicy;

/// With fewer free segments than these nothing can be moved.
const FREE_MIN: u32 = 2;

/// Blocks that have to find a place when a segment is cleaned: what is moved, and a node for each of that.
pub(crate) const MOVED_MAX: usize = 2 * SEGMENT_CONTENT as usize;

impl Cleaning {
    /// Makes sure that all that is dirty, and so many blocks besides, will find their places.
    pub(crate) fn make_room(&mut self, blocks: usize) -> FsResult<()> {
        // Each round cleans a segment or sets some free: a log that is not full needs no more of them.
        for _ in 0..2 * self.store.segments().count() {
            let dirty = self.store.dirty_blocks();
            // More than is needed: some are cleaned at once, which makes the checkpoint worth its flushes.
            let spare = self.store.spare();
            let wanted = self.store.room_to_clean(blocks) + spare;
            self.store.back(blocks as u64, wanted);
            let (free, prefree) = (
                self.store.segments().free_count(),
                self.store.segments().prefree_count(),
            );
            if free >= wanted {
                return Ok(());
            }
            let has_enough =
                prefree == 0 && free >= self.store.segments().openings(dirty + blocks) + 2;
            let found = (free, prefree, self.store.version());
            if has_enough && self.futile == Some(found) {
                break;
            }
            let is_threading = self.store.is_threading();
            let threadable = is_threading.then(|| self.store.threadable()).flatten();
            if threadable.is_some() && self.store.dirty_pages() > 0 {
                self.write_content()?;
                if self.store.dirty_blocks() < dirty {
                    continue;
                }
            }
            // As long as there are holes, and with the next checkpoint there may be more.
            let may_wait = is_threading
                && (self.store.segments().has_rewritten() || has_enough && threadable.is_some());
            let is_worth_it = free + prefree < wanted + spare && !may_wait;
            let has_room = free >= self.store.room_to_clean(0);
            let policy = match free > self.store.room_to_clean(0) + 1 {
                true => VictimPolicy::CostBenefit,
                false => VictimPolicy::Greedy,
            };
            // But the checkpoint must find room itself.
            if is_worth_it && (has_room || prefree == 0) && self.clean_one(policy)? {
                continue;
            }
            if prefree == 0 && dirty == 0 {
                break;
            }
            let has_some = prefree == 0 && free >= self.store.segments().openings(dirty) + 2;
            if has_enough || has_some && !may_wait {
                // There is nothing to win, and room enough for now.
                self.futile = Some(found);
                break;
            }
            self.checkpoint(false)?;
        }
        match self.store.segments().free_count()
            >= self
                .store
                .segments()
                .openings(self.store.dirty_blocks() + blocks)
        {
            true => Ok(()),
            false => Err(FsError::NoSpace),
        }
    }

    /// Cleans a segment, if there is one worth it and room to do so.
    pub(crate) fn clean_one(&mut self, policy: VictimPolicy) -> FsResult<bool> {
        while self.store.segments().free_count() >= FREE_MIN {
            let Some(victim) = self.store.victim(policy) else {
                return Ok(false);
            };
            match self.clean_segment(victim) {
                Ok(()) => {
                    self.store.statistics_mut().cleaned += 1;
                    return Ok(true);
                }
                Err(error @ (FsError::Corrupt(_) | FsError::Io(_)))
                    if self.store.failed().is_none() =>
                {
                    self.store.quarantine(victim, &error);
                }
                Err(error) => return Err(error),
            }
        }
        Ok(false)
    }

    /// Moves all that is valid out of a segment.
    pub(crate) fn clean_segment(&mut self, segment: u32) -> FsResult<()> {
        self.store.set_victim(Some(segment));
        let cleaned = match self.store.segments().segment(segment).is_packed() {
            true => self.clean_packed(segment),
            false => self.clean_plain(segment),
        };
        self.store.set_victim(None);
        cleaned
    }

    fn clean_plain(&mut self, segment: u32) -> FsResult<()> {
        let start = self.store.segments().start(segment);
        let entry = self.store.segments().segment(segment).clone();
        let owners = self.store.owners(segment)?;
        let before = *self.store.statistics();
        let moment = entry.moment();
        let is_hot = entry.kind == HeadKind::HotData as u8;
        if is_hot {
            self.store.note_lifetime(segment);
        }
        let to = match is_hot {
            true => HeadKind::WarmData,
            false => HeadKind::ColdData,
        };
        for index in entry.valid_blocks() {
            let owner = owners.get(usize::from(index)).copied().unwrap_or_default();
            let block = start + u64::from(index);
            if entry.kind <= HeadKind::ColdNode as u8 {
                self.relocate_node(owner.lblk, block, None, moment)?;
            } else {
                self.relocate_data(owner, block, to, moment)?;
            }
            if self.store.segments().segment(segment).is_valid(index) {
                let rule = "the summary names an owner that does not know the block";
                return Err(Corrupt::Node {
                    nid: owner.ino,
                    rule,
                    found: block,
                }
                .into());
            }
        }
        self.store
            .statistics_mut()
            .count_as(Cause::Cleaning, &before);
        Ok(())
    }

    fn clean_packed(&mut self, segment: u32) -> FsResult<()> {
        let start = self.store.segments().start(segment);
        let blocks: Vec<u16> = self
            .store
            .segments()
            .segment(segment)
            .valid_blocks()
            .collect();
        let before = *self.store.statistics();
        // What was compressed in the background stays apart, in its order.
        let to = match self
            .store
            .segments()
            .segment(segment)
            .is_of(HeadKind::Background)
        {
            true => HeadKind::Background,
            false => HeadKind::Moved,
        };
        let mut packing = Packing::apart(to);
        let moved = blocks.into_iter().try_for_each(|index| {
            self.move_packed(segment, start + u64::from(index), &mut packing)
        });
        self.seal(&mut packing, true);
        self.store
            .statistics_mut()
            .count_as(Cause::Cleaning, &before);
        moved
    }

    fn move_packed(&mut self, segment: u32, block: u64, packing: &mut Packing) -> FsResult<()> {
        self.relocate_packed(block, packing)?;
        let (_, index) = self.store.segments().locate(block);
        match self.store.segments().segment(segment).is_valid(index) {
            true => {
                let rule = "a slot counts as valid that nothing points to";
                Err(Corrupt::Packed { rule, found: block }.into())
            }
            false => Ok(()),
        }
    }

    pub(crate) fn relocate_data(
        &mut self,
        owner: Owner,
        block: u64,
        to: HeadKind,
        moment: Moment,
    ) -> FsResult<()> {
        let checksum = match self.pointer(owner.ino, owner.lblk)? {
            Pointer::Plain(found, checksum) if found == block => checksum,
            _ => return Ok(()),
        };
        let data = self.store.fetch_content(block, checksum, owner)?;
        let placed = self.store.place(to, owner, Cause::Data, moment)?;
        let checksum = match checksum {
            Checksum::UNKNOWN => Checksum::of(&data),
            known => known,
        };
        let pointer = Pointer::Plain(placed.block, checksum);
        self.set_pointer(owner.ino, owner.lblk, pointer)?;
        self.store.push(placed.block, data);
        self.left_early(owner.ino)
    }

    /// Cleans the segment that is most worth it, if a checkpoint will have room for what that changes.
    pub(crate) fn clean_safely(&mut self, policy: VictimPolicy) -> FsResult<()> {
        if self.store.victim(policy).is_none() {
            return Ok(());
        }
        if self.store.dirty_blocks() > 2 * self.store.dirty_max() {
            self.checkpoint(false)?;
        }
        match self.make_room(MOVED_MAX) {
            Ok(()) => self.clean_one(policy).map(drop),
            Err(FsError::NoSpace) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Cleans the segment of packed blocks of which most is won, if there is no room for so many blocks; says whether any was
    /// cleaned. Whoever asks again costs nothing until more slots were given up.
    pub(crate) fn win_blocks(&mut self, blocks: u64) -> FsResult<bool> {
        if self.store.space().check(blocks).is_ok() || self.dense == Some(self.looseness()) {
            return Ok(false);
        }
        let before = self.store.statistics().cleaned;
        self.clean_safely(VictimPolicy::Loose)?;
        let has_cleaned = self.store.statistics().cleaned > before;
        self.dense = (!has_cleaned).then(|| self.looseness());
        Ok(has_cleaned)
    }

    fn looseness(&self) -> (u64, u64) {
        (self.store.bst().given_up(), self.store.version())
    }
}
