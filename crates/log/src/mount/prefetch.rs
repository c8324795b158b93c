//! Pages that come along with those that were asked for, out of the same packed blocks and those behind (FPC, 4.3), and go to
//! whoever caches them.
//!
//! What is given to a cache must be what the file holds at that moment. Nobody can write to a file without having opened it for
//! that, or changing its size; both are [refused](anteros_core::FsError::Later) while some of it is being given, to be tried
//! again, and files that are open for writing get nothing. Whoever gives waits for readers of the same pages, and those for a
//! thread that serves requests: so no such thread may wait for whoever gives.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread;

use anteros_core::{FsResult, Ino, unpoisoned};

use crate::layout::BLOCK_BYTES;
use crate::layout::packed::Slot;
use crate::layout::pointer::{Pointer, Slotted};
use crate::layout::summary::Owner;
use crate::mount::log::Log;
use crate::mount::state::State;
use crate::packing::unpack;
use crate::store::ahead::Job;
use crate::store::medium::{BLOCK, vanished};

impl Log {
    /// Gives `store` pages that were not asked for but will be: inode, offset, content, which it may drop. A thread of its own
    /// calls it, and holds nothing that any other call of the log waits for. To open that file for writing, or to change its
    /// size, is refused meanwhile, by [`Later`](anteros_core::FsError::Later).
    ///
    /// # Errors
    ///
    /// When no thread can be begun.
    pub fn prefetch(
        self: &Arc<Self>,
        store: impl Fn(Ino, u64, &[u8]) -> bool + Send + 'static,
    ) -> std::io::Result<()> {
        let (log, ahead) = (Arc::downgrade(self), self.ahead.clone());
        let serve = move || {
            while let Some(job) = ahead.wait() {
                let Some(log) = log.upgrade() else { return };
                // What cannot be read now is read, and told of, when it is asked for.
                match job {
                    Job::Read(all, rest) => drop(log.prefetch_blocks(all, rest, &store)),
                    Job::Opened(ino) => drop(log.push_here(0..u64::MAX, Some(ino), &store)),
                    Job::Files(files) => log.push_files(&files, &store),
                }
            }
        };
        thread::Builder::new()
            .name("log-ahead".into())
            .spawn(serve)
            .map(|_| self.prefetches.store(true, Ordering::Relaxed))
    }

    /// Reads some blocks, and gives what is here of all; and goes on, if most of what was read was of use.
    fn prefetch_blocks(
        &self,
        all: Range<u64>,
        rest: Range<u64>,
        store: &impl Fn(Ino, u64, &[u8]) -> bool,
    ) -> FsResult<()> {
        let rest = self.read_ahead(rest)?;
        let (given, not) = self.push_here(all.start..rest.end.max(all.start), None, store)?;
        if given > not && !rest.is_empty() {
            self.ahead.go_on(&rest);
        }
        Ok(())
    }

    /// Gives what is here of these blocks to the cache, of all files or one. Says how many pages it took, and how many not.
    fn push_here(
        &self,
        range: Range<u64>,
        of: Option<u32>,
        store: &impl Fn(Ino, u64, &[u8]) -> bool,
    ) -> FsResult<(u64, u64)> {
        let (mut given, mut not) = (0, 0);
        for (place, kept) in self.ahead.range(range) {
            for (number, slot) in kept.unpushed() {
                if of.is_none_or(|ino| ino == slot.ino) {
                    match self.push((place, number), slot, store)? {
                        true => given += u64::from(slot.blocks),
                        false => not += u64::from(slot.blocks),
                    }
                }
            }
        }
        Ok((given, not))
    }

    /// Reads what is not here yet of a range, as far as that is compressed content of the background, and says how far that is.
    fn read_ahead(&self, range: Range<u64>) -> FsResult<Range<u64>> {
        let mut state = self.lock();
        let range = state.store.packed_range(range)?;
        let _reading = unpoisoned(self.reading.read());
        drop(state);
        let read = |first, bytes: &mut [u8]| self.device.read_alone_at(first * BLOCK, bytes);
        self.ahead.read_due(range.clone(), read)?;
        Ok(range)
    }

    /// Pushes the pages of a chunk that nobody has read to the page cache, if they are what the file holds, and all of it is here.
    fn push(
        &self,
        place: (u64, u8),
        slot: &Slot,
        store: &impl Fn(Ino, u64, &[u8]) -> bool,
    ) -> FsResult<bool> {
        let push = || self.push_chunk(place, slot, store);
        self.while_unchanged(slot.ino, push).unwrap_or(Ok(false))
    }

    fn push_chunk(
        &self,
        (block, number): (u64, u8),
        slot: &Slot,
        store: &impl Fn(Ino, u64, &[u8]) -> bool,
    ) -> FsResult<bool> {
        let Some((at, size)) = self.lock().as_cached(slot, block, number)? else {
            return Ok(false);
        };
        let pages = self.ahead.not_read(slot);
        if pages.is_empty() {
            self.ahead.note_pushed(at.blocks(), number, 0);
            return Ok(true);
        }
        let blocks: Option<Vec<_>> = at.blocks().map(|block| self.ahead.get(block)).collect();
        let Some(blocks) = blocks else {
            return Ok(false);
        };
        let whose = Owner {
            ino: slot.ino,
            lblk: slot.lblk,
        };
        let mut blocks = blocks.into_iter();
        let read = |_| blocks.next().ok_or_else(vanished);
        let (content, _) = unpack::chunk(whose, at, read)?;
        let offset = u64::from(slot.lblk) * BLOCK;
        let end = size.saturating_sub(offset).min(content.len() as u64) as usize;
        let mut bytes = 0;
        for lblks in pages {
            let [from, until] = [lblks.start, lblks.end]
                .map(|lblk| end.min((lblk - slot.lblk) as usize * BLOCK_BYTES));
            let part = &content[from..until];
            if !part.is_empty() && !store(Ino(slot.ino.into()), offset + from as u64, part) {
                return Ok(false);
            }
            bytes += part.len();
        }
        self.ahead.note_pushed(at.blocks(), number, bytes);
        Ok(true)
    }

    /// Gives content of a file away, which nobody changes meanwhile; `None` if nobody knows the file, or somebody writes to it.
    /// No other inode gets its number until that is done.
    pub(super) fn while_unchanged<T>(&self, ino: u32, give: impl FnOnce() -> T) -> Option<T> {
        let may = self.lock().files.begin_giving(ino);
        may.then(|| {
            let _giving = Giving { log: self, ino };
            give()
        })
    }
}

/// Keeps a file from being changed.
struct Giving<'a> {
    log: &'a Log,
    ino: u32,
}

impl Drop for Giving<'_> {
    fn drop(&mut self) {
        let mut state = self.log.lock();
        state.files.end_giving(self.ino);
        self.log.forget_with(state, self.ino, 1);
    }
}

impl State {
    /// The place of a chunk and the size of its file, if all of it is what the file holds.
    fn as_cached(
        &mut self,
        slot: &Slot,
        block: u64,
        number: u8,
    ) -> FsResult<Option<(Slotted, u64)>> {
        if !self.store.is_occupied(block, number) {
            return Ok(None);
        }
        let range = slot.lblk..slot.lblk.saturating_add(slot.blocks.into());
        let (mut first, mut count) = (None, 0);
        self.for_pointers(slot.ino, range.clone(), |_, pointer| {
            if let Pointer::Packed(at) = pointer {
                if (at.block, at.slot) == (block, number) {
                    first.get_or_insert(at);
                    count += 1;
                }
            }
        })?;
        let live = self.live(slot.ino)?;
        let is_whole = count == slot.blocks && live.pages.range(range).next().is_none();
        let size = live.inode().attributes.size;
        Ok(first.filter(|_| is_whole).map(|at| (at, size)))
    }
}
