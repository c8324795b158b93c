//! Atomic batch writes: what is written to a file from a beginning to a commit takes effect as a whole or not at all. A
//! database that has them needs no journal.
//!
//! What was written meanwhile waits in memory, over what the file holds, where readers find it. A commit makes it dirty
//! content and writes a group with it, without giving the lock away in between: no checkpoint and no other group can take
//! a part of it.

use std::collections::BTreeMap;
use std::sync::Arc;

use anteros_core::{AtomicStep, FileKind, FsError, FsResult, Ino};
use rustix::io::Errno;

use crate::files::content::{BLOCK, blocks};
use crate::layout::{BLOCK_BYTES, Block};
use crate::mount::log::Log;
use crate::state::State;
use crate::store::medium::zeroed;

/// Content staged by atomic writes to a file, not committed yet.
pub(crate) struct Staged {
    /// The handle of the open file that began.
    by: u64,
    pub(crate) pages: BTreeMap<u32, Arc<Block>>,
    /// Of the file, with what was written.
    size: u64,
}

/// Someone else is writing atomically.
fn busy() -> FsError {
    FsError::Host(Errno::BUSY.into())
}

impl State {
    /// The size that users see.
    pub(crate) fn size(&mut self, ino: u32) -> FsResult<u64> {
        match self.staged.get(&ino) {
            Some(staged) => Ok(staged.size),
            None => Ok(self.live(ino)?.inode().attributes.size),
        }
    }

    /// Refuses to change a file otherwise while it is written to atomically.
    pub(crate) fn refuse_staged(&self, ino: u32) -> FsResult<()> {
        match self.staged.contains_key(&ino) {
            true => Err(busy()),
            false => Ok(()),
        }
    }

    /// Pages that wait, of all files.
    pub(crate) fn staged_pages(&self) -> usize {
        self.staged.values().map(|staged| staged.pages.len()).sum()
    }

    fn begin_atomic(&mut self, ino: u32, by: u64) -> FsResult<()> {
        if self.live(ino)?.kind() != FileKind::Regular {
            return Err(FsError::Invalid);
        }
        match self.staged.get(&ino) {
            Some(staged) if staged.by == by => return Ok(()),
            Some(_) => return Err(busy()),
            None => self.leave_inline(ino)?,
        }
        let size = self.live(ino)?.inode().attributes.size;
        let pages = BTreeMap::new();
        self.staged.insert(ino, Staged { by, pages, size });
        Ok(())
    }

    /// Has content wait that ends within the largest file. There is room for so much: who needs more has a journal.
    pub(crate) fn stage(&mut self, ino: u32, offset: u64, data: &[u8]) -> FsResult<usize> {
        let end = offset + data.len() as u64;
        let room = self.dirty_max() / 2;
        let staged = self.staged.get(&ino).ok_or(FsError::Invalid)?;
        let is_new = |lblk: &u32| !staged.pages.contains_key(lblk);
        let new = blocks(&(offset..end)).filter(is_new).count();
        if self.staged_pages() + new > room {
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
            let staged = self.staged.get_mut(&ino).ok_or(FsError::Invalid)?;
            staged.pages.insert(lblk, page);
            staged.size = staged.size.max(end);
            rest = behind;
        }
        Ok(data.len())
    }

    /// The block at `lblk` as users read it.
    fn staged_content(&mut self, ino: u32, lblk: u32) -> FsResult<Arc<Block>> {
        let staged = self.staged.get(&ino);
        match staged.and_then(|staged| staged.pages.get(&lblk)) {
            Some(page) => Ok(page.clone()),
            None => self.content(ino, lblk),
        }
    }

    /// Makes what waits the content of the file, and writes a group that has it. Returns its number.
    fn commit_atomic(&mut self, ino: u32, by: u64) -> FsResult<u64> {
        if self.is_staged_by(ino, by) {
            self.make_room(self.staged_pages())?;
            self.secure_room(ino)?;
            self.unstage(ino)?;
        }
        self.commit(&[ino])
    }

    /// Has all that can fail for want of room fail now.
    fn secure_room(&mut self, ino: u32) -> FsResult<()> {
        let staged = self.staged.get(&ino).ok_or(FsError::Invalid)?;
        let lblks: Vec<u32> = staged.pages.keys().copied().collect();
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
        self.back(new, 0);
        self.space.check(new)
    }

    fn unstage(&mut self, ino: u32) -> FsResult<()> {
        let staged = self.staged.remove(&ino).ok_or(FsError::Invalid)?;
        let bytes = staged.pages.len() as u64 * BLOCK;
        for (lblk, page) in staged.pages {
            self.put_pages(ino, lblk, &page[..])?;
        }
        self.statistics.user_bytes += bytes;
        self.note_written(ino, staged.size)?;
        self.statistics.atomic_writes += 1;
        Ok(())
    }

    /// Drops what waits, if this open file began; says whether anything did.
    pub(crate) fn abort_atomic(&mut self, ino: u32, by: u64) -> bool {
        let dropped = match self.is_staged_by(ino, by) {
            true => self.staged.remove(&ino),
            false => None,
        };
        dropped.is_some_and(|staged| !staged.pages.is_empty())
    }

    fn is_staged_by(&self, ino: u32, by: u64) -> bool {
        self.staged.get(&ino).is_some_and(|staged| staged.by == by)
    }
}

impl Log {
    /// Sets who hears of files whose content is not any more what was read of it, since what waited was dropped.
    /// Whoever asked for that waits meanwhile. Once for each mount: later calls change nothing.
    pub fn on_abort(&self, forget: impl Fn(Ino) + Send + Sync + 'static) {
        let _ = self.on_abort.set(Box::new(forget));
    }

    pub(crate) fn step_atomically(&self, ino: u32, by: u64, step: AtomicStep) -> FsResult<()> {
        match step {
            AtomicStep::Begin => self.change(|state| state.begin_atomic(ino, by)),
            AtomicStep::Commit => self.sync_with(|state| state.commit_atomic(ino, by)),
            AtomicStep::Abort => {
                let is_dropped = self.lock().abort_atomic(ino, by);
                self.tell_aborted(ino, is_dropped);
                Ok(())
            }
        }
    }

    /// Tells who wants to hear of it that what waited of a file was dropped, if it was.
    pub(crate) fn tell_aborted(&self, ino: u32, is_dropped: bool) {
        if let Some(forget) = self.on_abort.get().filter(|_| is_dropped) {
            forget(Ino(ino.into()));
        }
    }
}
