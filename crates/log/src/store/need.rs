//! Free segments that are needed: for what is dirty, for one operation more, and for cleaning itself.

use crate::layout::SEGMENT_CONTENT;
use crate::state::State;

/// Blocks that one operation writes at most, and the content of a request.
pub(crate) const MARGIN: usize = 64 + 256;

impl State {
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
}
