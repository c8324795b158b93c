//! Files of which a little is read here and there, though they were compressed in large windows: decompression amplification
//! (DAR of FPC, 2.2), as reads show it.

use std::ops::Range;

use anteros_core::FsResult;

use crate::cleaning::Cleaning;
use crate::compress::chunks::CHUNK_BLOCKS_MAX;
use crate::compress::kind::ContentKind;
use crate::store::medium::BLOCK;

/// Files below this size are soon known to the kernel as a whole: 4 MiB.
const SIZE_LEAST: u64 = 4 << 20;

/// Files that are known at most.
const FILES_MAX: usize = 1 << 12;

/// Logical blocks of a chunk, at most, that do not matter to who reads one of them: 16 KiB.
pub(crate) const SMALL_BLOCKS: usize = 4;

impl Cleaning {
    /// Notes that so many pages of a file were decoded because somebody wanted some of them. A file of which far more is
    /// decoded than wanted is to be compressed again, in small windows.
    pub(crate) fn note_decoded(&mut self, ino: u32, wanted: u64, decoded: u64) -> FsResult<()> {
        let live = self.live(ino)?;
        live.habits.note_decoded(wanted, decoded);
        let attributes = live.inode().attributes;
        let pages = attributes.size / BLOCK;
        let is_sparse = attributes.size >= SIZE_LEAST && live.habits.is_decoded_in_vain(pages);
        if !is_sparse || !self.may_shrink_windows(ino)? {
            return Ok(());
        }
        self.sparse.insert(ino, attributes.generation);
        let live = self.live(ino)?;
        live.habits.forget_decoded();
        live.attributes().is_settled = false;
        Ok(())
    }

    /// Tells whether windows of a file may be made smaller: not those of programs, of which launches have their own.
    fn may_shrink_windows(&mut self, ino: u32) -> FsResult<bool> {
        let is_kept = self.live(ino)?.inode().attributes.is_launched
            || self.content_kind(ino)? == ContentKind::Executable;
        Ok(!is_kept
            && self.sparse.len() < FILES_MAX
            && self.store.options().policy.compacts_all()
            && self.store.check_writable().is_ok())
    }

    /// Tells whether a little is read of a file here and there.
    pub(crate) fn is_read_sparsely(&mut self, ino: u32) -> FsResult<bool> {
        let generation = self.live(ino)?.inode().attributes.generation;
        Ok(self.sparse.get(&ino) == Some(&generation))
    }

    /// The logical blocks of a range, and some around it, that lie in large chunks.
    pub(crate) fn in_large_chunks(&mut self, ino: u32, range: &Range<u32>) -> FsResult<Vec<u32>> {
        // A chunk may begin before the range, and end behind it.
        let around = range.start.saturating_sub(CHUNK_BLOCKS_MAX)..range.end + CHUNK_BLOCKS_MAX;
        let mut packed = Vec::new();
        self.for_pointers(ino, around, |lblk, pointer| {
            packed.extend(pointer.chunk().map(|chunk| (lblk, chunk)));
        })?;
        let chunks = packed.chunk_by(|(_, left), (_, right)| left == right);
        let large = chunks.filter(|chunk| chunk.len() > SMALL_BLOCKS);
        Ok(large.flatten().map(|(lblk, _)| *lblk).collect())
    }
}
