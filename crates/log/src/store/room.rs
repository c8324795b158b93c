//! Room on a device that takes it only as it is written: a sparse file.
//!
//! Should the file system be full on which such a file lies, a write to a place that was never written to fails, and nothing can
//! be said then to whoever wrote what is being written. So room is *reserved* before anything changes, in memory or on the device
//! ([`WritableDevice::reserve`](anteros_core::WritableDevice::reserve)): for the checkpoints and the tables that name segments when
//! the log is opened, for a part of the node address table before a number of it is given away, and for a segment before it may be
//! opened. Free segments for which it was not are *bare*.
//!
//! A log of which some segments are bare behaves as one that has fewer: what users may fill is what one with so many
//! segments would let them, the segments in reserve included. So what holds of a log that is full holds where the device is:
//! `ENOSPC` comes before anything has changed, files can be removed, cleaning finds its room. When the device has room again,
//! that is noticed by the next change.

use anteros_core::{FsError, FsResult};

use crate::layout::SEGMENT_BLOCKS;
use crate::layout::table::{BST_SEGMENTS_PER_BLOCK, SIT_PER_BLOCK};
use crate::store::need::MARGIN;
use crate::store::{Store, medium};

/// Segments that are asked for when a log is opened and the device is full: some were reserved before.
const ASKED_MAX: usize = 1024;

impl Store {
    /// Reserves what every checkpoint needs, and has nothing opened from here on that is not reserved. `back_nat` reserves the
    /// node address table.
    pub(crate) fn take_room(&mut self, back_nat: impl FnOnce() -> FsResult<()>) -> FsResult<()> {
        let packs = 2 * u64::from(self.superblock.checkpoint_blocks);
        self.room.is_active =
            self.reserve(0, 2)? && self.reserve(self.superblock.checkpoint_start, packs)?;
        if !self.room.is_active {
            return Ok(());
        }
        self.segments.strip();
        back_nat()?;
        for segment in self.segments.in_use() {
            self.back_tables(segment)?;
        }
        // Before free segments take the rest: XFS wants as many blocks free again for room that was reserved.
        self.back_open()?;
        self.back_up_to(MARGIN as u64, self.spare() + 2, ASKED_MAX);
        let wanted = self.room_to_clean(0);
        self.back_up_to(0, wanted, ASKED_MAX);
        Ok(())
    }

    /// Reserves what a repair may write.
    pub(crate) fn take_room_to_repair(
        &mut self,
        back_nat: impl FnOnce() -> FsResult<()>,
    ) -> FsResult<()> {
        self.take_room(back_nat)?;
        if !self.room.is_active {
            return Ok(());
        }
        for segment in self.segments.in_use() {
            self.back_segment(segment)?;
        }
        let all = self.segments.ready_count() + self.segments.bare_count();
        let wanted =
            self.superblock.reserved_segments + self.segments.openings(self.dirty_blocks());
        self.back_up_to(0, wanted.min(all), ASKED_MAX);
        match self.segments.ready_count() >= wanted.min(all) {
            true => Ok(()),
            false => Err(FsError::NoSpace),
        }
    }

    /// Reserves the segments that heads fill, but for those that were when the log was opened.
    pub(crate) fn back_open(&mut self) -> FsResult<()> {
        if self.room.is_active {
            for segment in self.segments.open_segments() {
                if !self.room.heads.contains(&segment) {
                    self.back_segment(segment)?;
                    self.room.heads.insert(segment);
                }
            }
        }
        Ok(())
    }

    /// Reserves as far as possible what lets users take so many blocks more, and has so many segments ready to be opened.
    pub(crate) fn back(&mut self, blocks: u64, ready: u32) {
        self.back_up_to(blocks, ready, 1);
    }

    fn back_up_to(&mut self, blocks: u64, ready: u32, mut tries: usize) {
        if !self.room.is_active {
            return;
        }
        let wanted = self.space.used().saturating_add(blocks);
        let mut asked = Vec::new();
        let mut is_full = None;
        if !self.is_backed_for(wanted, ready) {
            asked = self.segments.bare().collect();
        }
        for segment in asked {
            if self.is_backed_for(wanted, ready) {
                break;
            }
            match self.back_segment(segment) {
                Ok(()) => {
                    self.segments.back(segment);
                    is_full = is_full.or(Some(false));
                }
                // Whatever hinders it, nothing can be written there.
                Err(_) => {
                    is_full = Some(true);
                    tries -= 1;
                    if tries == 0 {
                        break;
                    }
                }
            }
        }
        self.note_room(is_full);
    }

    fn is_backed_for(&self, used: u64, ready: u32) -> bool {
        self.segments.ready_count() >= ready && self.backed_blocks() >= used
    }

    /// Blocks that users may fill of the segments that are reserved or in use.
    fn backed_blocks(&self) -> u64 {
        let segments = self.segments.count() - self.segments.bare_count();
        self.superblock.capacity_of(segments)
    }

    fn note_room(&mut self, is_full: Option<bool>) {
        let is_full = match self.segments.bare_count() {
            0 => Some(false),
            _ => is_full,
        };
        if let Some(is_full) = is_full {
            self.segments.set_store_full(is_full);
            self.room.is_full = is_full;
        }
        let backed = match self.segments.bare_count() {
            0 => u64::MAX,
            _ => self.backed_blocks(),
        };
        self.space.set_backed(backed, self.room.is_full);
    }

    /// Looks whether a device that was full has room again.
    pub(crate) fn look_for_room(&mut self) {
        if self.room.is_full && self.check_writable().is_ok() {
            let ready = self.segments.ready_count() + 1;
            self.back(0, ready);
        }
    }

    /// Has segments ready for a head to go on in: where all went as it was counted, they are.
    pub(crate) fn back_heads(&mut self) {
        if self.room.is_active && self.segments.ready_count() < 2 && self.segments.bare_count() > 0
        {
            self.back(0, 2);
        }
    }

    /// Tells whether there is room for what goes to the holes of a segment in use.
    pub(crate) fn is_backed(&mut self, segment: u32) -> bool {
        !self.room.is_active || self.back_segment(segment).is_ok()
    }

    /// Tells whether the room of a segment that was emptied may go back to the device, which it then does.
    pub(crate) fn gives_back(&mut self, segment: u32) -> bool {
        if !self.room.is_active {
            return true;
        }
        let ready = self.room_to_clean(MARGIN) + 2 * self.spare();
        self.segments.lay_bare(segment);
        let used = self.space.used() + MARGIN as u64;
        if !self.is_backed_for(used, ready) {
            self.segments.back(segment);
            return false;
        }
        self.note_room(None);
        true
    }

    /// Reserves a segment, and then what the tables say of it, which takes no room in vain where there is none for the segment.
    fn back_segment(&mut self, segment: u32) -> FsResult<()> {
        let start = self.segments.start(segment);
        self.reserve(start, SEGMENT_BLOCKS.into())?;
        self.back_tables(segment)
    }

    fn back_tables(&mut self, segment: u32) -> FsResult<()> {
        let superblock = &self.superblock;
        let sit = (
            superblock.sit_start,
            superblock.sit_blocks,
            segment / SIT_PER_BLOCK,
        );
        let slots = (
            superblock.bst_start,
            superblock.bst_blocks,
            segment / BST_SEGMENTS_PER_BLOCK,
        );
        if !self.room.segment_table.contains(&sit.2) {
            self.back_table(sit)?;
            self.room.segment_table.insert(sit.2);
        }
        if !self.room.slot_table.contains(&slots.2) {
            self.back_table(slots)?;
            self.room.slot_table.insert(slots.2);
        }
        Ok(())
    }

    /// Reserves both copies of a block of a table.
    fn back_table(&self, (start, blocks, index): (u64, u32, u32)) -> FsResult<()> {
        if index < blocks {
            self.reserve(start + u64::from(index), 1)?;
            self.reserve(start + u64::from(blocks) + u64::from(index), 1)?;
        }
        Ok(())
    }

    fn reserve(&self, block: u64, blocks: u64) -> FsResult<bool> {
        medium::reserve(&*self.device, block, blocks)
    }
}
