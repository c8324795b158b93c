//! Free segments that are needed, for what is dirty, for one operation more, and for cleaning itself; and the memory that
//! there is.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::layout::{BLOCK_BYTES, SEGMENT_CONTENT};
use crate::store::blocks::Store;
use crate::store::loan::Loan;

/// Blocks that one operation writes at most, and the content of a request.
pub(crate) const MARGIN: usize = 64 + 256;

impl Store {
    /// Free segments with which one can be cleaned while so many blocks besides are still to come: what is moved may open one, and
    /// for each block of it a node becomes dirty.
    pub(crate) fn room_to_clean(&self, blocks: usize) -> u32 {
        let moved = SEGMENT_CONTENT as usize;
        1 + self.segments.openings(self.dirty_blocks() + blocks + moved)
    }

    /// Segments beyond what is needed, in which cleaning begins.
    pub(crate) fn spare(&self) -> u32 {
        if self.segments.are_few() { 1 } else { 3 }
    }

    /// Lends memory to somebody who gives it back by dropping the loan.
    pub(crate) fn lend(&self, bytes: usize) -> Loan {
        self.lent.lend(bytes)
    }

    /// Bytes of memory that are left: half of all at least, whatever is lent.
    pub(crate) fn memory_bytes(&self) -> usize {
        let all = self.options.memory_bytes;
        all - self.lent.bytes().min(all / 2)
    }

    /// Dirty blocks above which they are written, of content and of nodes each: what memory allows, and what
    /// the segments in reserve have room for.
    pub(crate) fn dirty_max(&self) -> usize {
        let reserved = self.superblock.reserved_segments as usize;
        let room = if self.segments.are_few() {
            SEGMENT_CONTENT as usize
        } else {
            reserved.saturating_sub(30).max(2) * 256
        };
        room.min(self.memory_bytes() / 4 / BLOCK_BYTES)
    }

    /// Blocks that a checkpoint would write.
    pub(crate) fn dirty_blocks(&self) -> usize {
        let nodes = self.dirty_nodes.load(Ordering::Relaxed);
        self.dirty_pages + nodes + self.dirty_inodes.load(Ordering::Relaxed)
    }

    /// Blocks of content that have no place yet.
    pub(crate) fn dirty_pages(&self) -> usize {
        self.dirty_pages
    }

    /// Notes that so many more blocks of content will need places.
    pub(crate) fn add_dirty_pages(&mut self, pages: usize) {
        self.dirty_pages += pages;
    }

    /// Notes that so many blocks of content have got their places, or need none any more.
    pub(crate) fn drop_dirty_pages(&mut self, pages: usize) {
        self.dirty_pages -= pages;
    }

    /// Count of dirty nodes, which they keep themselves.
    pub(crate) fn dirty_nodes(&self) -> &Arc<AtomicUsize> {
        &self.dirty_nodes
    }

    /// Count of dirty inodes, likewise.
    pub(crate) fn dirty_inodes(&self) -> &Arc<AtomicUsize> {
        &self.dirty_inodes
    }
}
