//! Free segments: which are, which of them have room on the device, and which is opened next.
//!
//! Invariant L11 of `docs/design/log.md`: a segment is not given back while somebody reads there.

use crate::layout::SEGMENT_CONTENT;
use crate::layout::checkpoint::HeadKind;
use crate::store::segments::{Segments, Use};

impl Segments {
    pub(super) fn find_free(&mut self) {
        self.free = (0..self.usable)
            .filter(|&segment| self.segment(segment).state == Use::Free)
            .collect();
    }

    pub(super) fn section_segments(&self, section: u32) -> std::ops::Range<u32> {
        section * self.per_section..(section + 1) * self.per_section
    }

    pub(super) fn is_section_free(&self, section: u32) -> bool {
        self.section_segments(section)
            .all(|segment| self.segment(segment).state == Use::Free)
    }

    pub(super) fn claim(&mut self, segment: u32) {
        self.segment_mut(segment).state = Use::Open;
        self.free.remove(&segment);
        self.bare.remove(&segment);
    }

    /// Opens no segment that is free before the device was asked whether it has room for it.
    pub(in crate::store) fn strip(&mut self) {
        self.bare.append(&mut self.free);
    }

    /// The segments that the device was not asked for, in the order in which they would be opened.
    pub(in crate::store) fn bare(&self) -> impl Iterator<Item = u32> + '_ {
        let behind = self.bare.range(self.cursor..);
        behind.chain(self.bare.range(..self.cursor)).copied()
    }

    /// Their number.
    pub(in crate::store) fn bare_count(&self) -> u32 {
        self.bare.len() as u32
    }

    /// The device has room for a segment.
    pub(in crate::store) fn back(&mut self, segment: u32) {
        if self.bare.remove(&segment) {
            self.free.insert(segment);
        }
    }

    /// The room of a segment was given back to the device.
    pub(in crate::store) fn lay_bare(&mut self, segment: u32) {
        if self.free.remove(&segment) {
            self.bare.insert(segment);
        }
    }

    /// Notes whether the device has no room for more segments.
    pub(in crate::store) fn set_store_full(&mut self, is_full: bool) {
        self.is_store_full = is_full;
    }

    /// Segments that may be opened now.
    pub(in crate::store) fn ready_count(&self) -> u32 {
        self.free.len() as u32
    }

    /// Segments that may be opened, those included that the device will have to have room for.
    pub(crate) fn free_count(&self) -> u32 {
        match self.is_store_full {
            true => self.ready_count(),
            false => self.ready_count() + self.bare_count(),
        }
    }

    /// Segments that may be opened as soon as a checkpoint has been written.
    pub(crate) fn prefree_count(&self) -> u32 {
        self.prefree.len() as u32
    }

    /// The most segments that so many blocks may open, whichever heads they go to.
    pub(crate) fn openings(&self, blocks: usize) -> u32 {
        let in_use = HeadKind::ALL
            .into_iter()
            .filter(|&kind| self.is_in_use(kind));
        let left = |kind: HeadKind| match &self.heads[kind] {
            Some(head) if head.threaded => self.holes(head.segment, head.next) as usize,
            Some(head) => (SEGMENT_CONTENT - u32::from(head.next)) as usize,
            None => 0,
        };
        let mut rooms: Vec<usize> = in_use.map(left).collect();
        rooms.sort_unstable();
        // That of the packed log comes with the one where it goes on, and a checkpoint wants it.
        let mut count = match self.heads[HeadKind::Packed] {
            Some(_) => 0,
            None => 2,
        };
        let mut blocks = blocks;
        for room in rooms {
            if blocks <= room {
                return count;
            }
            blocks -= room + 1;
            count += 1;
        }
        count + blocks as u32 / SEGMENT_CONTENT
    }

    /// Returns whether a head may be filled at any time. Background segments are filled only where there is room for more
    /// of them.
    pub(super) fn is_in_use(&self, kind: HeadKind) -> bool {
        self.share(kind) == kind && (kind != HeadKind::Background || self.heads[kind].is_some())
    }

    /// A free segment: one that is left of a section that is being filled, or the first of a section that is free, or any.
    pub(super) fn take_free(&mut self) -> Option<u32> {
        let (mut left, mut section) = (None, None);
        if self.per_section > 1 {
            left = self.take_left();
            section = self.free_from_cursor().find(|&segment| {
                segment % self.per_section == 0 && self.is_section_free(segment / self.per_section)
            });
        }
        let segment = left
            .or(section)
            .or_else(|| self.free_from_cursor().next())?;
        if left.is_none() {
            self.cursor = segment + 1;
        }
        self.claim(segment);
        Some(segment)
    }

    /// The free segments from the cursor on, and then those before it.
    pub(super) fn free_from_cursor(&self) -> impl Iterator<Item = u32> + '_ {
        let behind = self.free.range(self.cursor..);
        behind.chain(self.free.range(..self.cursor)).copied()
    }

    pub(super) fn take_left(&self) -> Option<u32> {
        let heads = self.heads.iter().flatten().map(|head| head.segment);
        // The head that was filled last may be none at this moment.
        let latest = self.cursor.checked_sub(1);
        let sections = heads
            .chain(latest)
            .map(|segment| segment / self.per_section);
        sections
            .flat_map(|section| self.section_segments(section))
            .find(|segment| self.free.contains(segment))
    }

    /// Sets a segment aside that a group after the checkpoint lies in, or may lie in.
    pub(crate) fn keep(&mut self, segment: u32) {
        if self.segment(segment).state == Use::Free {
            self.free.remove(&segment);
            self.bare.remove(&segment);
            self.segment_mut(segment).state = Use::Full;
            self.note_prefree(segment);
        }
    }

    /// A checkpoint has been written: what was emptied before is free. Says which segments these are.
    pub(in crate::store) fn release(&mut self) -> Vec<u32> {
        let released: Vec<u32> = std::mem::take(&mut self.prefree).into_iter().collect();
        for &segment in &released {
            self.segment_mut(segment).state = Use::Free;
        }
        let usable = released.iter().filter(|&&segment| segment < self.usable);
        self.free.extend(usable);
        released
    }

    /// Opens no segment from this one on any more. All heads must have been closed.
    pub(crate) fn retire(&mut self, from: u32) {
        self.usable = from;
        self.free.split_off(&from);
        self.bare.split_off(&from);
        if let Some(next_packed) = self.next_packed.take_if(|next_packed| *next_packed >= from) {
            self.segment_mut(next_packed).state = Use::Full;
            self.note_prefree(next_packed);
        }
    }

    /// Opens segments from this one on first.
    pub(crate) fn look_from(&mut self, segment: u32) {
        self.cursor = segment;
    }

    pub(super) fn note_prefree(&mut self, segment: u32) {
        let entry = self.segment_mut(segment);
        if entry.valid == 0 && entry.state == Use::Full {
            entry.state = Use::Prefree;
            self.prefree.insert(segment);
        }
    }
}
