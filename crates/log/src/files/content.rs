//! Content of files: written to memory, from there to the device, and read from both.

use std::ops::Range;
use std::sync::Arc;

use anteros_core::{FileKind, FsError, FsResult, Seek};

use crate::files::Files;
use crate::layout::node::{FILE_BLOCKS, INLINE_BYTES};
use crate::layout::pointer::Pointer;
use crate::layout::{BLOCK_BYTES, Block};
use crate::nodes::loaded::Page;
use crate::store::medium::{BLOCK, vanished, zeroed};

/// The size of the largest file.
pub(crate) const SIZE_MAX: u64 = FILE_BLOCKS as u64 * BLOCK;

/// `fallocate(2)`: the size stays.
const KEEP_SIZE: u32 = 1;
pub(crate) const PUNCH_HOLE: u32 = 2;
const ZERO_RANGE: u32 = 16;

/// The logical blocks that a range of bytes touches; it ends within the largest file.
pub(crate) fn blocks(range: &Range<u64>) -> Range<u32> {
    (range.start / BLOCK) as u32..range.end.div_ceil(BLOCK) as u32
}

impl Files {
    /// A block of content that may be changed: what it held is there, or zeros if all of it will be overwritten.
    pub(crate) fn page_mut(
        &mut self,
        ino: u32,
        lblk: u32,
        is_overwritten: bool,
    ) -> FsResult<&mut Block> {
        let live = self.live(ino)?;
        let is_dirty = live.is_dirty(lblk);
        if !is_dirty {
            let data = if is_overwritten {
                zeroed().into()
            } else {
                self.content(ino, lblk)?
            };
            self.put_dirty_page(ino, lblk, data)?;
        }
        let page = self.live(ino)?.pages.get_mut(&lblk).ok_or_else(vanished)?;
        Ok(Arc::make_mut(&mut page.data))
    }

    /// Makes whole blocks the content from a block on, as many as there is room for, and says how many bytes these are.
    pub(crate) fn put_pages(&mut self, ino: u32, first: u32, data: &[u8]) -> FsResult<usize> {
        let range = first..first + (data.len() / BLOCK_BYTES) as u32;
        self.prepare(ino, range.clone())?;
        let mut pointers = vec![Pointer::Hole; range.len()];
        self.for_pointers(ino, range.clone(), |lblk, pointer| {
            pointers[(lblk - first) as usize] = pointer
        })?;
        let live = self.live(ino)?;
        let new = range
            .clone()
            .zip(&pointers)
            .filter(|(lblk, pointer)| !pointer.has_block() && !live.is_dirty(*lblk));
        let needed = new.clone().count();
        let holes = new
            .filter(|(_, pointer)| **pointer == Pointer::Hole)
            .count();
        if let Err(error) = self.store.space_mut().take(needed as u64) {
            self.prune(ino, range)?;
            // Half of it may fit.
            let half = data.len() / 2 / BLOCK_BYTES * BLOCK_BYTES;
            return if half == 0 {
                Err(error)
            } else {
                self.put_pages(ino, first, &data[..half])
            };
        }
        let live = self.live(ino)?;
        live.attributes().blocks += holes as u64;
        let blocks = data.chunks_exact(BLOCK_BYTES).flat_map(<&Block>::try_from);
        let before = live.dirty_pages;
        for (lblk, block) in range.zip(blocks) {
            let old = live.pages.insert(
                lblk,
                Page {
                    data: Arc::new(*block),
                    dirty: true,
                },
            );
            live.dirty_pages += usize::from(!old.is_some_and(|page| page.dirty));
        }
        let added = live.dirty_pages - before;
        self.store.add_dirty_pages(added);
        Ok(data.len())
    }

    /// Makes `data` the content of a block that was not dirty.
    fn put_dirty_page(&mut self, ino: u32, lblk: u32, data: Arc<Block>) -> FsResult<()> {
        self.prepare(ino, lblk..lblk + 1)?;
        let pointer = self.pointer(ino, lblk)?;
        if !pointer.has_block() {
            let taken = self.store.space_mut().take(1);
            self.prune_unless(taken, ino, lblk..lblk + 1)?;
        }
        if pointer == Pointer::Hole {
            self.live(ino)?.attributes().blocks += 1;
        }
        let live = self.live(ino)?;
        live.pages.insert(lblk, Page { data, dirty: true });
        live.dirty_pages += 1;
        self.store.add_dirty_pages(1);
        Ok(())
    }

    /// Has the inode say that its content has changed, and reaches so far.
    pub(crate) fn note_written(&mut self, ino: u32, end: u64) -> FsResult<()> {
        let now = self.store.now();
        let live = self.live(ino)?;
        let attributes = live.change_content(now);
        attributes.size = attributes.size.max(end);
        Ok(())
    }

    pub(super) fn write_blocks(&mut self, ino: u32, offset: u64, data: &[u8]) -> FsResult<usize> {
        let mut done = 0;
        while done < data.len() {
            let at = offset + done as u64;
            let within = (at % BLOCK) as usize;
            let lblk = (at / BLOCK) as u32;
            let whole = (data.len() - done) / BLOCK_BYTES * BLOCK_BYTES;
            let written = if within == 0 && whole > 0 {
                self.put_pages(ino, lblk, &data[done..done + whole])
            } else {
                let len = (BLOCK_BYTES - within).min(data.len() - done);
                let piece = &data[done..done + len];
                self.page_mut(ino, lblk, false).map(|page| {
                    page[within..within + len].copy_from_slice(piece);
                    len
                })
            };
            match written {
                Ok(len) => done += len,
                Err(_) if done > 0 => break,
                Err(error) => return Err(error),
            }
        }
        Ok(done)
    }

    /// Moves content out of the inode, into a block.
    pub(crate) fn leave_inline(&mut self, ino: u32) -> FsResult<()> {
        let live = self.live(ino)?;
        if !live.inode().attributes.is_inline {
            return Ok(());
        }
        if !live.inode().inline.is_empty() {
            // Before anything is changed: there may be no room.
            self.store.space().check(1)?;
        }
        let live = self.live(ino)?;
        live.attributes().is_inline = false;
        let inline = std::mem::take(&mut live.inode_mut().inline);
        live.pointers_mut().fill(0);
        if !inline.is_empty() {
            self.page_mut(ino, 0, true)?[..inline.len()].copy_from_slice(&inline);
        }
        Ok(())
    }

    /// Changes the size of a file.
    pub(crate) fn truncate(&mut self, ino: u32, size: u64) -> FsResult<()> {
        if size > SIZE_MAX {
            return Err(FsError::TooLarge);
        }
        if self.stays_inline(ino, size)? {
            self.live(ino)?.inode_mut().inline.resize(size as usize, 0);
        } else {
            self.leave_inline(ino)?;
            let old = self.live(ino)?.inode().attributes.size;
            // Blocks may be preallocated behind the end: they go even if the size stays.
            if size <= old {
                self.punch(ino, size..SIZE_MAX)?;
            }
        }
        let now = self.store.now();
        let live = self.live(ino)?;
        let attributes = live.change_content(now);
        attributes.size = size;
        if size == 0 {
            // What was there has gone to a block, or was cut off where it is.
            attributes.is_inline = true;
        }
        Ok(())
    }

    /// Makes bytes zero and gives their blocks back.
    fn punch(&mut self, ino: u32, range: Range<u64>) -> FsResult<()> {
        let size = self.live(ino)?.inode().attributes.size;
        let whole = range.start.div_ceil(BLOCK)..range.end / BLOCK;
        if whole.start > whole.end {
            return self.zero(ino, range);
        }
        self.zero(ino, range.start..(whole.start * BLOCK).min(size))?;
        self.zero(ino, whole.end * BLOCK..range.end.min(size))?;
        let whole = whole.start as u32..whole.end as u32;
        self.drop_pages(ino, whole.clone())?;
        self.clear_pointers(ino, whole)
    }

    /// Makes bytes of one block zero, if there is anything else.
    fn zero(&mut self, ino: u32, range: Range<u64>) -> FsResult<()> {
        if range.is_empty() {
            return Ok(());
        }
        let lblk = (range.start / BLOCK) as u32;
        let is_page = self.live(ino)?.pages.contains_key(&lblk);
        if is_page || self.pointer(ino, lblk)?.block().is_some() {
            let start = (range.start % BLOCK) as usize;
            let len = (range.end - range.start) as usize;
            self.page_mut(ino, lblk, false)?[start..start + len].fill(0);
        }
        Ok(())
    }

    /// Lets go of content in memory.
    pub(crate) fn drop_pages(&mut self, ino: u32, range: Range<u32>) -> FsResult<()> {
        let lblks: Vec<u32> = self
            .live(ino)?
            .pages
            .range(range)
            .map(|(&lblk, _)| lblk)
            .collect();
        for lblk in lblks {
            let pointer = self.pointer(ino, lblk)?;
            let live = self.live(ino)?;
            if live.pages.remove(&lblk).is_some_and(|page| page.dirty) {
                live.dirty_pages -= 1;
                if pointer == Pointer::Hole {
                    let blocks = &mut live.attributes().blocks;
                    *blocks = blocks.saturating_sub(1);
                }
                if !pointer.has_block() {
                    self.store.space_mut().give(1);
                }
                self.store.drop_dirty_pages(1);
            }
        }
        Ok(())
    }

    /// Returns how many blocks of an inode have no place yet.
    pub(crate) fn unplaced(&mut self, ino: u32) -> FsResult<u64> {
        let dirty = self.live(ino)?.pages.iter().filter(|(_, page)| page.dirty);
        let lblks: Vec<u32> = dirty.map(|(&lblk, _)| lblk).collect();
        let mut count = 0;
        for lblk in lblks {
            count += u64::from(self.pointer(ino, lblk)? == Pointer::Hole);
        }
        Ok(count)
    }

    /// Gives back all content of an inode.
    pub(crate) fn drop_content(&mut self, ino: u32) -> FsResult<()> {
        self.drop_pages(ino, 0..u32::MAX)?;
        self.clear_pointers(ino, 0..FILE_BLOCKS)
    }

    /// As `fallocate(2)`.
    pub(crate) fn allocate(&mut self, ino: u32, offset: u64, len: u64, mode: u32) -> FsResult<()> {
        if self.live(ino)?.kind() != FileKind::Regular {
            return Err(FsError::Invalid);
        }
        if mode & !(KEEP_SIZE | PUNCH_HOLE | ZERO_RANGE) != 0
            || mode & (PUNCH_HOLE | ZERO_RANGE) == PUNCH_HOLE | ZERO_RANGE
        {
            return Err(FsError::Unsupported);
        }
        if len == 0 {
            return Err(FsError::Invalid);
        }
        let end = offset
            .checked_add(len)
            .filter(|&end| end <= SIZE_MAX)
            .ok_or(FsError::TooLarge)?;
        self.leave_inline(ino)?;
        if mode & (PUNCH_HOLE | ZERO_RANGE) != 0 {
            self.punch(ino, offset..end)?;
        }
        if mode & PUNCH_HOLE == 0 {
            self.preallocate(ino, blocks(&(offset..end)))?;
        }
        let now = self.store.now();
        let live = self.live(ino)?;
        let attributes = live.change_content(now);
        if mode & KEEP_SIZE == 0 {
            attributes.size = attributes.size.max(end);
        }
        Ok(())
    }

    /// Sets blocks aside for holes.
    fn preallocate(&mut self, ino: u32, range: Range<u32>) -> FsResult<()> {
        if self.store.space().free() == 0 {
            return Err(FsError::NoSpace);
        }
        // What was reserved for all pieces may have been taken by others meanwhile.
        self.store.back(range.len() as u64, 0);
        for lblk in range {
            let is_dirty = self.live(ino)?.pages.contains_key(&lblk);
            if is_dirty || self.pointer(ino, lblk)? != Pointer::Hole {
                continue;
            }
            self.prepare(ino, lblk..lblk + 1)?;
            let taken = self.store.space_mut().take(1);
            self.prune_unless(taken, ino, lblk..lblk + 1)?;
            self.store.space_mut().preallocate(1);
            self.live(ino)?.attributes().blocks += 1;
            self.set_pointer(ino, lblk, Pointer::Preallocated)?;
        }
        Ok(())
    }

    /// As `lseek(2)` for data and holes.
    pub(crate) fn seek(&mut self, ino: u32, offset: u64, what: Seek) -> FsResult<u64> {
        let live = self.live(ino)?;
        let size = live.inode().attributes.size;
        if offset >= size {
            return Err(FsError::BeyondEnd);
        }
        if live.inode().attributes.is_inline {
            return Ok(if what == Seek::Data { offset } else { size });
        }
        let range = blocks(&(offset..size));
        let first = range.start;
        let mut data = Vec::new();
        let mut at = range.start;
        // In portions, so that what is found early is told early.
        while at < range.end {
            let part = at..range.end.min(at.saturating_add(1 << 16));
            at = part.end;
            data.clear();
            self.for_pointers(ino, part.clone(), |lblk, pointer| {
                if pointer.block().is_some() {
                    data.push(lblk);
                }
            })?;
            data.extend(
                self.live(ino)?
                    .pages
                    .range(part.clone())
                    .map(|(&lblk, _)| lblk),
            );
            data.sort_unstable();
            data.dedup();
            let found = match what {
                Seek::Data => data.first().copied(),
                Seek::Hole => first_gap(&part, &data),
            };
            if let Some(lblk) = found {
                let there = if lblk == first {
                    offset
                } else {
                    u64::from(lblk) * BLOCK
                };
                return Ok(there.min(size));
            }
        }
        match what {
            Seek::Data => Err(FsError::BeyondEnd),
            Seek::Hole => Ok(size),
        }
    }

    pub(super) fn stays_inline(&mut self, ino: u32, size: u64) -> FsResult<bool> {
        Ok(self.live(ino)?.inode().attributes.is_inline && size <= INLINE_BYTES as u64)
    }
}

/// The first number of a range that a sorted list lacks.
fn first_gap(range: &Range<u32>, list: &[u32]) -> Option<u32> {
    let mut at = range.start;
    for &found in list {
        if found != at {
            break;
        }
        at += 1;
    }
    range.contains(&at).then_some(at)
}
