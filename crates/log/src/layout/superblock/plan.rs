//! Plan of a log: how many segments a device has room for, and where the tables lie; and the same for another size.

use super::{
    FIRST_AREA, INCOMPAT_CHECKSUMS, INCOMPAT_THREADED, RESERVED, RESERVED_OF_FEW, SEGMENTS_FEW,
    SEGMENTS_PER_SUMMARY, SLACK, SLOTS_MAX, SUMMARIES_MAX, Shape, Superblock, TooSmall,
    every_block,
};
use crate::layout::table::{BST_SEGMENTS_PER_BLOCK, NAT_PER_BLOCK, SIT_PER_BLOCK};
use crate::layout::{BLOCKS_MAX, SEGMENT_BLOCKS};

/// Fewer segments than these hold nothing.
const SEGMENTS_MIN: u64 = 15;

/// The smallest device, in blocks: 32 MiB.
const BLOCKS_MIN: u64 = 8192;

/// From so many segments on, segments begin at multiples of their size on the device: less than one is lost.
const ALIGNED_FROM: u64 = 64;

impl Superblock {
    /// Lays out a log on a device of so many blocks, of which at most 2^40 are used.
    ///
    /// # Errors
    ///
    /// When there is no room for two sections and what describes them.
    pub fn plan(blocks: u64, shape: &Shape) -> Result<Self, TooSmall> {
        let per_section = u64::from(shape.segments_per_section.max(1));
        let sections_min = SEGMENTS_MIN.div_ceil(per_section).max(2);
        let blocks_min = Self::blocks_min(shape, sections_min);
        if blocks < blocks_min {
            return Err(TooSmall { blocks, blocks_min });
        }
        let blocks = blocks.min(BLOCKS_MAX);
        let is_aligned = is_aligned(blocks);
        // More segments never take less room: the most that fit lie between these two.
        let mut fits = sections_min;
        let mut too_many = blocks / u64::from(SEGMENT_BLOCKS) / per_section + 1;
        while too_many - fits > 1 {
            let middle = fits + (too_many - fits) / 2;
            if Self::lay_out(shape, middle, is_aligned).main_end() <= blocks {
                fits = middle;
            } else {
                too_many = middle;
            }
        }
        let laid_out = Self::lay_out(shape, fits, is_aligned);
        Ok(Self { blocks, ..laid_out })
    }

    fn blocks_min(shape: &Shape, sections_min: u64) -> u64 {
        let end = Self::lay_out(shape, sections_min, false).main_end();
        match is_aligned(end) {
            true => Self::lay_out(shape, sections_min, true).main_end(),
            false => end.max(BLOCKS_MIN),
        }
    }

    /// All areas one behind the other, for so many sections.
    fn lay_out(shape: &Shape, sections: u64, is_aligned: bool) -> Self {
        let segments_per_section = shape.segments_per_section.max(1);
        // At most 2^40 blocks have 2^31 segments, and the smallest shape few.
        let segments = (sections * u64::from(segments_per_section)) as u32;
        let mut planned = Self {
            generation: 1,
            incompat: INCOMPAT_THREADED | INCOMPAT_CHECKSUMS,
            ro_compat: 0,
            compat: 0,
            uuid: shape.uuid,
            hash_seed: shape.hash_seed,
            label: shape.label.clone(),
            blocks: 0,
            checkpoint_start: 0,
            checkpoint_blocks: 0,
            sit_start: 0,
            sit_blocks: 0,
            bst_start: 0,
            bst_blocks: 0,
            nat_start: 0,
            nat_blocks: 0,
            main_start: 0,
            segments,
            nids: shape.nids.unwrap_or(every_block(segments)).max(16),
            segments_per_section,
            sections_per_zone: shape.sections_per_zone.max(1),
            slots_max: shape.slots_max.clamp(1, SLOTS_MAX),
            reserved_segments: reserved(segments, segments_per_section),
        };
        let next = planned.lay_tables(FIRST_AREA);
        planned.main_start = match is_aligned {
            true => next.next_multiple_of(SEGMENT_BLOCKS.into()),
            false => next,
        };
        planned
    }

    /// Gives the tables their sizes and lays them one behind the other; returns the block behind them.
    fn lay_tables(&mut self, start: u64) -> u64 {
        self.sit_blocks = self.segments.div_ceil(SIT_PER_BLOCK);
        self.bst_blocks = self.segments.div_ceil(BST_SEGMENTS_PER_BLOCK);
        self.nat_blocks = self.nids.div_ceil(NAT_PER_BLOCK);
        let summaries = match self.is_threaded() {
            true => (self.segments / SEGMENTS_PER_SUMMARY).min(SUMMARIES_MAX),
            false => 0,
        };
        self.checkpoint_blocks = self.pack_blocks() + summaries;
        self.checkpoint_start = start;
        self.sit_start = start + 2 * u64::from(self.checkpoint_blocks);
        self.bst_start = self.sit_start + 2 * u64::from(self.sit_blocks);
        self.nat_start = self.bst_start + 2 * u64::from(self.bst_blocks);
        self.nat_start + 2 * u64::from(self.nat_blocks)
    }

    /// Plans this log on another number of blocks; `None` if there is no way to lay it out. The main area begins where it
    /// did. Its tables overlap neither those that there are nor a segment that it keeps. `nids_min` are the
    /// node numbers that it must have.
    ///
    /// More blocks have the tables behind the main area. Fewer have them where they were, if that was in front of it.
    pub fn resized(&self, blocks: u64, nids_min: u32) -> Option<Self> {
        let grows = blocks > self.blocks;
        let resized = if !grows && self.has_tables_in_front() {
            self.with_sections(self.sections_up_to(blocks), self.nids)
        } else {
            self.with_tables_in_front(blocks, nids_min)
                .or_else(|| self.with_tables_behind(blocks, nids_min))?
        };
        let is_other = match grows {
            true => resized.segments > self.segments,
            false => resized.segments <= self.segments,
        };
        let is_enough = u64::from(resized.segments) >= SEGMENTS_MIN
            && resized.segments >= 2 * u32::from(self.segments_per_section)
            && resized.reserved_segments < resized.segments
            && (BLOCKS_MIN..=BLOCKS_MAX).contains(&blocks);
        (is_other && is_enough).then_some(Self { blocks, ..resized })
    }

    fn with_tables_in_front(&self, blocks: u64, nids_min: u32) -> Option<Self> {
        let mut resized = self.with_sections(self.sections_up_to(blocks), nids_min);
        let end = resized.lay_tables(FIRST_AREA);
        (!self.has_tables_in_front() && end <= self.main_start).then_some(resized)
    }

    fn with_tables_behind(&self, blocks: u64, nids_min: u32) -> Option<Self> {
        let until = |end: u64| {
            let (mut fits, mut too_many) = (0, self.sections_up_to(end) + 1);
            let lay_out = |sections| {
                let mut resized = self.with_sections(sections, nids_min);
                let tables = resized.lay_tables(0);
                (tables <= end).then(|| resized.lay_tables(end - tables));
                (tables <= end && resized.main_end() <= end - tables).then_some(resized)
            };
            while too_many - fits > 1 {
                let middle = fits + (too_many - fits) / 2;
                match lay_out(middle) {
                    Some(_) => fits = middle,
                    None => too_many = middle,
                }
            }
            lay_out(fits)
        };
        let old = self.tables();
        let is_apart = |resized: &Self| {
            let new = resized.tables();
            new.start >= old.end || new.end <= old.start
        };
        until(blocks)
            .filter(is_apart)
            .or_else(|| until(blocks.min(old.start)).filter(is_apart))
    }

    /// With so many sections; the tables are those that there were.
    fn with_sections(&self, sections: u64, nids_min: u32) -> Self {
        let segments = (sections * u64::from(self.segments_per_section)) as u32;
        // One for each block, unless someone wanted fewer.
        let nids = match self.nids >= every_block(self.segments) {
            true => every_block(segments).max(nids_min),
            false => self.nids,
        };
        Self {
            segments,
            nids,
            reserved_segments: reserved(segments, self.segments_per_section),
            ..self.clone()
        }
    }

    /// Sections that have room between the beginning of the main area and a block.
    fn sections_up_to(&self, end: u64) -> u64 {
        let room = end.min(BLOCKS_MAX).saturating_sub(self.main_start);
        room / u64::from(SEGMENT_BLOCKS) / u64::from(self.segments_per_section)
    }
}

/// Of so many segments, those that users may not fill.
fn reserved(segments: u32, segments_per_section: u16) -> u32 {
    let reserved = match segments < SEGMENTS_FEW {
        true => RESERVED_OF_FEW + segments / SLACK,
        false => RESERVED + segments / SLACK,
    };
    reserved.next_multiple_of(segments_per_section.into())
}

fn is_aligned(blocks: u64) -> bool {
    blocks > ALIGNED_FROM * u64::from(SEGMENT_BLOCKS)
}
