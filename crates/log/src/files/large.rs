//! Large files, whose content is given back in pieces.

use anteros_core::FsResult;

use crate::files::Files;
use crate::layout::BLOCK_BYTES;

/// The most blocks that are given back before others have a turn, and the least.
const PIECE_MAX: usize = 1 << 16;
const PIECE_MIN: usize = 256;

impl Files {
    /// Number of blocks of a file that are freed at once. Their nodes are in memory meanwhile.
    pub(crate) fn piece(&self) -> u32 {
        let in_memory = self.store.options().memory_bytes / BLOCK_BYTES;
        (in_memory * 8).clamp(PIECE_MIN, PIECE_MAX) as u32
    }

    /// Returns whether the content of an inode is freed in pieces.
    pub(crate) fn is_large(&mut self, ino: u32) -> FsResult<bool> {
        let piece = self.piece();
        Ok(self.live(ino)?.inode().attributes.blocks > u64::from(piece))
    }
}
