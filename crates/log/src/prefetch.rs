//! Pages that come along with those that were asked for, out of the same packed blocks and those behind (FPC, 4.3), and go to
//! whoever caches them.
//!
//! What is given to a cache must be what the file holds at that moment. Nobody can write to a file without having opened it for
//! that, or changing its size; both wait for what is being given. So files that are open for writing get nothing.

use std::ops::Range;
use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};
use std::thread;

use anteros_core::{FsResult, Ino};

use crate::ahead::Job;
use crate::file::BLOCK;
use crate::layout::checkpoint::HeadKind;
use crate::layout::packed::Slot;
use crate::layout::pointer::{Pointer, Slotted};
use crate::layout::summary::Owner;
use crate::layout::{BLOCK_BYTES, Block, SEGMENT_CONTENT};
use crate::log::Log;
use crate::medium::{vanished, zeroed};
use crate::pack;
use crate::state::State;

impl Log {
    /// Gives `store` pages that were not asked for but will be: inode, offset, content, which it may drop. A thread of its own
    /// calls it, and holds nothing that any other call of the log waits for, but for those that open a file for writing or
    /// change its size.
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
                let _ = match job {
                    Job::Read(all, rest) => log.prefetch_blocks(all, rest, &store),
                    Job::Opened(ino) => log.give_here(0..u64::MAX, Some(ino), &store).map(drop),
                };
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
        let (given, not) = self.give_here(all.start..rest.end.max(all.start), None, store)?;
        if given > not && !rest.is_empty() {
            self.ahead.go_on(&rest);
        }
        Ok(())
    }

    /// Gives what is here of these blocks to the cache, of all files or one. Says how many chunks it took, and how many not.
    fn give_here(
        &self,
        range: Range<u64>,
        of: Option<u32>,
        store: &impl Fn(Ino, u64, &[u8]) -> bool,
    ) -> FsResult<(usize, usize)> {
        let (mut given, mut not) = (0, 0);
        for (place, kept) in self.ahead.range(range) {
            for (number, slot) in kept.untold() {
                if of.is_none_or(|ino| ino == slot.ino) {
                    match self.give((place, number), slot, store)? {
                        true => given += 1,
                        false => not += 1,
                    }
                }
            }
        }
        Ok((given, not))
    }

    /// Reads what is not here yet of a range, as far as that is compressed content of the background, and says how far that is.
    fn read_ahead(&self, range: Range<u64>) -> FsResult<Range<u64>> {
        let mut state = self.lock();
        let range = state.packed_range(range)?;
        let _reading = self.reading.read().unwrap_or_else(PoisonError::into_inner);
        drop(state);
        let here = self.ahead.range(range.clone());
        let is_missing = |block: &u64| !here.contains_key(block);
        let first = range.clone().find(is_missing);
        let last = range.clone().rev().find(is_missing);
        if let Some((first, last)) = first.zip(last) {
            let read = |bytes: &mut [u8]| self.device.read_at(first * BLOCK, bytes);
            self.ahead.fetch(first..last + 1, read)?;
        }
        Ok(range)
    }

    /// Gives the pages of a chunk to the cache, if they are what the file holds, and all of it is here.
    fn give(
        &self,
        (block, number): (u64, u8),
        slot: &Slot,
        store: &impl Fn(Ino, u64, &[u8]) -> bool,
    ) -> FsResult<bool> {
        let _giving = self.giving.lock().unwrap_or_else(PoisonError::into_inner);
        let Some((at, size)) = self.lock().as_cached(slot, block, number)? else {
            return Ok(false);
        };
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
        let (content, _) = pack::chunk(whose, at, read)?;
        let offset = u64::from(slot.lblk) * BLOCK;
        let len = size.saturating_sub(offset).min(content.len() as u64) as usize;
        let is_taken = store(Ino(slot.ino.into()), offset, &content[..len]);
        if is_taken {
            self.ahead.tell(block, number, len);
        }
        Ok(is_taken)
    }

    /// Waits for content of files that is being given away: what is given from here on is what they hold now.
    pub(crate) fn settle_given(&self) {
        drop(self.giving.lock().unwrap_or_else(PoisonError::into_inner));
    }
}

impl State {
    /// A block of a node or directory, and with it those that were written behind it, for they are often wanted next.
    pub(crate) fn fetch_near(&mut self, place: u64) -> FsResult<Box<Block>> {
        if let Some(block) = self.ahead.get(place) {
            return Ok(Box::new(*block));
        }
        if self.options.prefetch_bytes == 0 {
            return self.fetch(place);
        }
        let end = self.written_until(place, self.ahead.nodes_until(place))?;
        if end <= place + 1 {
            return self.fetch(place);
        }
        let mut bytes = vec![0; (end - place) as usize * BLOCK_BYTES];
        match self.device.read_at(place * BLOCK, &mut bytes) {
            Ok(()) => self.ahead.keep(place, &bytes),
            // It may be one of the others.
            Err(_) => return self.fetch(place),
        }
        let mut block = zeroed();
        block.copy_from_slice(&bytes[..BLOCK_BYTES]);
        Ok(block)
    }

    /// How far the blocks behind this one, up to another, are valid or were, lie in the same segment and are on the device.
    fn written_until(&self, place: u64, until: u64) -> FsResult<u64> {
        let (segment, index) = self.segments.locate(place);
        let start = self.segments.start(segment);
        let until = (until - start).min(SEGMENT_CONTENT.into()) as u16;
        let entry = self.segments.segment(segment);
        let last = (index + 1..until)
            .rev()
            .find(|&index| entry.is_valid(index));
        let mut end = start + u64::from(last.unwrap_or(index)) + 1;
        self.visit_leaving(place..end, |leaving, _| end = end.min(leaving))?;
        Ok(end)
    }

    /// The front of a range of blocks that lies in one segment that was compressed in the background, all of it on the device.
    fn packed_range(&mut self, range: Range<u64>) -> FsResult<Range<u64>> {
        let nothing = range.start..range.start;
        let Some((segment, _)) = self.superblock.locate(range.start) else {
            return Ok(nothing);
        };
        let end = self.segments.start(segment) + u64::from(SEGMENT_CONTENT);
        let mut is_leaving = !self.segments.segment(segment).is_of(HeadKind::Background);
        self.visit_leaving(range.start..range.end.min(end), |_, _| is_leaving = true)?;
        if is_leaving {
            return Ok(nothing);
        }
        let valid = (range.start..range.end.min(end))
            .rev()
            .find(|&block| self.slots.valid(block) != 0);
        Ok(range.start..valid.map_or(range.start, |last| last + 1))
    }

    /// The place of a chunk and the size of its file, if all of it is what a file holds that somebody knows and nobody writes to.
    fn as_cached(
        &mut self,
        slot: &Slot,
        block: u64,
        number: u8,
    ) -> FsResult<Option<(Slotted, u64)>> {
        let is_used = self.known.contains_key(&slot.ino) && !self.writers.contains_key(&slot.ino);
        if !is_used || !self.is_occupied(block, number) {
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
        let size = live.inode.attributes.size;
        Ok(first.filter(|_| is_whole).map(|at| (at, size)))
    }
}
