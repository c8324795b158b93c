//! Long operations on large files are done in pieces. Between pieces, other users of the log have a turn.
//!
//! Each piece leaves the log whole. Content goes from its end on, so that a file which is cut off is the beginning of what it
//! was at any moment, and nodes go as soon as nothing below them is left. An inode without a name stays an orphan until
//! the last piece of it has gone: after a crash the rest goes with the mount.

use std::ops::Range;

use anteros_core::FsResult;

use crate::files::Files;
use crate::layout::node::FILE_BLOCKS;
use crate::layout::pointer::Pointer;
use crate::store::medium::BLOCK;

impl Files {
    /// Gives back what lies behind a block. The size is at most that of what stays.
    pub(crate) fn cut_off(&mut self, ino: u32, from: u32) -> FsResult<()> {
        let size = u64::from(from) * BLOCK;
        if self.live(ino)?.inode().attributes.size > size {
            return self.truncate(ino, size);
        }
        self.drop_pages(ino, from..u32::MAX)?;
        self.clear_pointers(ino, from..FILE_BLOCKS)
    }

    /// Gives back a piece of an inode that is gone, and the inode with the last one.
    pub(crate) fn reclaim(&mut self, ino: u32, end: u32) -> FsResult<()> {
        let from = end.saturating_sub(self.piece());
        if from == 0 || !self.is_large(ino)? {
            self.evicting.remove(&ino);
            return self.evict_orphan_now(ino);
        }
        self.drop_pages(ino, from..u32::MAX)?;
        self.clear_pointers(ino, from..FILE_BLOCKS)?;
        self.evicting.insert(ino, from);
        Ok(())
    }

    pub(crate) fn holes(&mut self, ino: u32, range: Range<u32>) -> FsResult<u64> {
        let mut holes = u64::from(range.end - range.start);
        self.for_pointers(ino, range, |_, pointer| {
            holes -= u64::from(pointer != Pointer::Hole);
        })?;
        Ok(holes)
    }
}
