//! Holes of segments in use, which content goes to where free segments are dear.

use crate::layout::SEGMENT_CONTENT;
use crate::layout::checkpoint::HeadKind;
use crate::layout::summary::Owner;
use crate::store::segments::{Bitmap, OpenHead, Segments, Use};

impl Segments {
    /// The holes of a segment, from a block of it on.
    pub(super) fn hole_bits(&self, segment: u32, from: u16) -> Bitmap {
        let taken = self.changed.get(&segment);
        let mut bits = *taken.unwrap_or(&self.segment(segment).bits);
        if let Some(last) = bits.last_mut() {
            *last |= u64::MAX << (SEGMENT_CONTENT % 64);
        }
        let (before, bit) = (usize::from(from / 64), from % 64);
        bits.iter_mut()
            .take(before)
            .for_each(|word| *word = u64::MAX);
        if let Some(word) = bits.get_mut(before) {
            *word |= (1 << bit) - 1;
        }
        bits.map(|word| !word)
    }

    pub(super) fn holes(&self, segment: u32, from: u16) -> u32 {
        let bits = self.hole_bits(segment, from);
        bits.iter().map(|word| word.count_ones()).sum()
    }

    pub(super) fn next_hole(&self, segment: u32, from: u16) -> Option<u16> {
        let bits = self.hole_bits(segment, from);
        let (word, bits) = (0..).zip(bits).find(|(_, bits)| *bits != 0)?;
        Some(word * 64 + bits.trailing_zeros() as u16)
    }

    /// Returns whether the next block of a head is the first one of another segment, which may be one with holes.
    pub(in crate::store) fn may_thread(&self, kind: HeadKind) -> bool {
        kind.has_plain_data() && self.heads[self.share(kind)].is_none()
    }

    /// The segment with the most holes of those that `may_be` threaded, if it has that many.
    pub(in crate::store) fn threadable(
        &self,
        holes_min: u32,
        may_be: impl Fn(u32) -> bool,
    ) -> Option<u32> {
        let threaded = self.heads.iter().flatten().filter(|head| head.threaded);
        if self.rewritten.len() + threaded.count() >= self.rewritten_max as usize {
            return None;
        }
        let (mut best, mut most) = (None, holes_min - 1);
        for segment in 0..self.usable {
            let entry = self.segment(segment);
            // There are hardly as many holes as blocks that are not valid.
            if SEGMENT_CONTENT - u32::from(entry.valid) <= most
                || entry.state != Use::Full
                || !entry.has_plain_data()
                || !may_be(segment)
            {
                continue;
            }
            let holes = self.holes(segment, 0);
            if holes > most {
                (best, most) = (Some(segment), holes);
            }
        }
        best
    }

    /// Has a head fill the holes of a segment with these owners.
    pub(in crate::store) fn thread(&mut self, kind: HeadKind, segment: u32, owners: Vec<Owner>) {
        self.claim(segment);
        self.rewritten.remove(&segment);
        let kind = self.share(kind);
        self.heads[kind] = Some(OpenHead {
            segment,
            next: 0,
            owners,
            next_segment: None,
            threaded: true,
        });
    }

    /// Owners of the blocks of a segment, where the device does not have them yet.
    pub(crate) fn rewritten(&self, segment: u32) -> Option<&Vec<Owner>> {
        self.rewritten.get(&segment)
    }

    /// Returns whether there are such segments.
    pub(crate) fn has_rewritten(&self) -> bool {
        !self.rewritten.is_empty()
    }

    /// Notes whose the blocks of a segment are whose holes were filled.
    pub(crate) fn rewrite(&mut self, segment: u32, owners: Vec<Owner>) {
        self.rewritten.insert(segment, owners);
    }

    /// The summaries that are to be written over others: whoever takes them sees to that.
    pub(in crate::store) fn take_rewritten(&mut self) -> Vec<(u32, Vec<Owner>)> {
        let mut rewritten = std::mem::take(&mut self.rewritten);
        rewritten.retain(|&segment, _| {
            let entry = self.segment(segment);
            entry.valid > 0 && entry.has_plain_data()
        });
        rewritten.into_iter().collect()
    }
}
