//! Content of an atomic write: it lies over what the file holds, where readers find it, until it is
//! committed or dropped.
//!
//! Invariant L9 of `docs/design/log.md`: an atomic write is there as a whole, or not at all.

use std::collections::BTreeMap;
use std::sync::Arc;

use anteros_core::{FileKind, FsError, FsResult};
use rustix::io::Errno;

use crate::files::content::blocks;
use crate::files::{AtomicWrite, Files};
use crate::layout::{BLOCK_BYTES, Block};
use crate::store::medium::{BLOCK, zeroed};

/// Someone else is writing atomically.
fn busy() -> FsError {
    FsError::Host(Errno::BUSY.into())
}

impl Files {
    /// The size that users see.
    pub(crate) fn size(&mut self, ino: u32) -> FsResult<u64> {
        match self.atomic_writes.get(&ino) {
            Some(write) => Ok(write.size),
            None => Ok(self.live(ino)?.inode().attributes.size),
        }
    }

    /// Refuses to change a file otherwise while it is written to atomically.
    pub(crate) fn refuse_atomic(&self, ino: u32) -> FsResult<()> {
        match self.atomic_writes.contains_key(&ino) {
            true => Err(busy()),
            false => Ok(()),
        }
    }

    /// Pages that wait, of all files.
    pub(crate) fn atomic_pages(&self) -> usize {
        self.atomic_writes
            .values()
            .map(|write| write.pages.len())
            .sum()
    }

    pub(crate) fn begin_atomic(&mut self, ino: u32, by: u64) -> FsResult<()> {
        if self.live(ino)?.kind() != FileKind::Regular {
            return Err(FsError::Invalid);
        }
        match self.atomic_writes.get(&ino) {
            Some(write) if write.by == by => return Ok(()),
            Some(_) => return Err(busy()),
            None => self.leave_inline(ino)?,
        }
        let size = self.live(ino)?.inode().attributes.size;
        let pages = BTreeMap::new();
        self.atomic_writes
            .insert(ino, AtomicWrite { by, pages, size });
        Ok(())
    }

    /// Has content wait that ends within the largest file. There is room for so much: who needs more has a journal.
    pub(crate) fn write_atomic(&mut self, ino: u32, offset: u64, data: &[u8]) -> FsResult<usize> {
        let end = offset + data.len() as u64;
        let room = self.store.dirty_max() / 2;
        let write = self.atomic_writes.get(&ino).ok_or(FsError::Invalid)?;
        let is_new = |lblk: &u32| !write.pages.contains_key(lblk);
        let new = blocks(&(offset..end)).filter(is_new).count();
        if self.atomic_pages() + new > room {
            return Err(FsError::TooLarge);
        }
        let mut rest = data;
        for lblk in blocks(&(offset..end)) {
            let within = (offset.max(u64::from(lblk) * BLOCK) % BLOCK) as usize;
            let (piece, behind) = rest.split_at(rest.len().min(BLOCK_BYTES - within));
            let mut page = match piece.len() == BLOCK_BYTES {
                true => zeroed().into(),
                false => self.staged_content(ino, lblk)?,
            };
            Arc::make_mut(&mut page)[within..within + piece.len()].copy_from_slice(piece);
            let write = self.atomic_writes.get_mut(&ino).ok_or(FsError::Invalid)?;
            write.pages.insert(lblk, page);
            write.size = write.size.max(end);
            rest = behind;
        }
        Ok(data.len())
    }

    /// The block at `lblk` as users read it.
    fn staged_content(&mut self, ino: u32, lblk: u32) -> FsResult<Arc<Block>> {
        let write = self.atomic_writes.get(&ino);
        match write.and_then(|write| write.pages.get(&lblk)) {
            Some(page) => Ok(page.clone()),
            None => self.content(ino, lblk),
        }
    }

    /// Has all that can fail for want of room fail now.
    pub(crate) fn secure_room(&mut self, ino: u32) -> FsResult<()> {
        let write = self.atomic_writes.get(&ino).ok_or(FsError::Invalid)?;
        let lblks: Vec<u32> = write.pages.keys().copied().collect();
        let (first, last) = (lblks.first().copied(), lblks.last().copied());
        let secured = self.secure_blocks(ino, &lblks);
        match first.zip(last) {
            Some((first, last)) => self.prune_unless(secured, ino, first..last + 1),
            None => secured,
        }
    }

    fn secure_blocks(&mut self, ino: u32, lblks: &[u32]) -> FsResult<()> {
        let mut new = 0;
        for &lblk in lblks {
            self.prepare(ino, lblk..lblk + 1)?;
            let has_room = self.pointer(ino, lblk)?.has_block() || self.live(ino)?.is_dirty(lblk);
            new += u64::from(!has_room);
        }
        self.store.back(new, 0);
        self.store.space().check(new)
    }

    pub(crate) fn take_atomic(&mut self, ino: u32) -> FsResult<()> {
        let write = self.atomic_writes.remove(&ino).ok_or(FsError::Invalid)?;
        let bytes = write.pages.len() as u64 * BLOCK;
        for (lblk, page) in write.pages {
            self.put_pages(ino, lblk, &page[..])?;
        }
        self.store.statistics_mut().user_bytes += bytes;
        self.note_written(ino, write.size)?;
        self.store.statistics_mut().atomic_writes += 1;
        Ok(())
    }

    /// Drops what waits, if this open file began; says whether anything did.
    pub(crate) fn abort_atomic(&mut self, ino: u32, by: u64) -> bool {
        let dropped = match self.is_atomic_by(ino, by) {
            true => self.atomic_writes.remove(&ino),
            false => None,
        };
        dropped.is_some_and(|write| !write.pages.is_empty())
    }

    pub(crate) fn is_atomic_by(&self, ino: u32, by: u64) -> bool {
        self.atomic_writes
            .get(&ino)
            .is_some_and(|write| write.by == by)
    }
}
