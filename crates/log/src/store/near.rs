//! Blocks that are read together with one that is wanted: they were written near it, and are often wanted next.

use std::ops::Range;

use anteros_core::FsResult;

use crate::layout::checkpoint::HeadKind;
use crate::layout::{BLOCK_BYTES, Block, SEGMENT_CONTENT};
use crate::store::blocks::Store;
use crate::store::medium::{BLOCK, zeroed};

/// Nodes that were gathered for launches and are read at once.
const GATHERED: u16 = 64;

impl Store {
    /// A block of a node or directory, and with it those that were written near it, for they are often wanted next.
    pub(crate) fn fetch_near(&mut self, place: u64) -> FsResult<Box<Block>> {
        if let Some(block) = self.ahead.get(place) {
            return Ok(Box::new(*block));
        }
        if self.options.prefetch_bytes == 0 {
            return self.fetch(place);
        }
        let near = self.written_near(place)?;
        if !near.contains(&place) || near.end - near.start == 1 {
            return self.fetch(place);
        }
        let mut bytes = vec![0; (near.end - near.start) as usize * BLOCK_BYTES];
        match self.device.read_at(near.start * BLOCK, &mut bytes) {
            Ok(()) => self.ahead.keep(near.start, &bytes),
            // It may be one of the others.
            Err(_) => return self.fetch(place),
        }
        let at = (place - near.start) as usize * BLOCK_BYTES;
        let mut block = zeroed();
        block.copy_from_slice(&bytes[at..at + BLOCK_BYTES]);
        Ok(block)
    }

    /// The blocks to be read with one of a node or directory: those around it where nodes were gathered for launches, else those
    /// behind it. They were written, and are on the device.
    fn written_near(&mut self, place: u64) -> FsResult<Range<u64>> {
        let (segment, index) = self.segments.locate(place);
        let start = self.segments.start(segment);
        let entry = self.segments.segment(segment);
        let gathered = index - index % GATHERED;
        let (first, until) = match entry.is_of(HeadKind::ColdNode) {
            true => (gathered, u64::from(gathered + GATHERED)),
            false => (index, self.ahead.nodes_until(place) - start),
        };
        let until = until.min(SEGMENT_CONTENT.into()) as u16;
        let last = (index + 1..until)
            .rev()
            .find(|&index| entry.is_valid(index));
        let mut near = start + u64::from(first)..start + u64::from(last.unwrap_or(index)) + 1;
        self.visit_writeback(near.clone(), |dirty, _| match dirty < place {
            true => near.start = place,
            false => near.end = near.end.min(dirty),
        })?;
        Ok(near)
    }

    /// The front of a range of blocks that lies in one segment that was compressed in the background, all of it on the device.
    pub(crate) fn packed_range(&mut self, range: Range<u64>) -> FsResult<Range<u64>> {
        let near = self.packed_near(range.start)?;
        Ok(range.start..range.end.min(near.end).max(range.start))
    }

    /// Returns what may be read with a block of a segment that was compressed in the background, in it and the next
    /// one; nothing if it was not, or not all of it is on the device.
    pub(crate) fn packed_near(&mut self, block: u64) -> FsResult<Range<u64>> {
        let (segment, _) = self.segments.locate(block);
        let mut near = self.packed_in(segment)?;
        if !near.is_empty() {
            let next = self.packed_in(segment + 1)?;
            near.end = near.end.max(next.end);
        }
        Ok(near)
    }

    /// The blocks of a segment up to the last one that holds something, if it was compressed in the background, and all of it is on
    /// the device.
    fn packed_in(&mut self, segment: u32) -> FsResult<Range<u64>> {
        if segment >= self.superblock.segments
            || !self.segments.segment(segment).is_of(HeadKind::Background)
        {
            return Ok(0..0);
        }
        let start = self.segments.start(segment);
        let range = start..start + u64::from(SEGMENT_CONTENT);
        let mut is_under_writeback = false;
        self.visit_writeback(range.clone(), |_, _| is_under_writeback = true)?;
        let last = range.rev().find(|&block| self.bst.valid(block) != 0);
        Ok(match last {
            Some(last) if !is_under_writeback => start..last + 1,
            _ => 0..0,
        })
    }
}
