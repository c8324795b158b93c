//! Chunks into packed blocks, wherever they come from (FPC, 3.2.1), and out of them again.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Instant;

use anteros_core::FsResult;

use crate::compress::chunks::{CHUNK_BYTES_MAX, Chunk};
use crate::compress::policy::Rules;
use crate::layout::checkpoint::HeadKind;
use crate::layout::packed::{self, PackedBlock, PackedHeader, Slot, SlotKind};
use crate::layout::pointer::Slotted;
use crate::layout::summary::Owner;
use crate::layout::{Block, SEGMENT_CONTENT, crc};
use crate::packing::Packer;
use crate::statistics::{Cause, Class, Packed};

/// The most bytes of a chunk that finds room in a block, or in the rest of one and the next.
const SHORT_MAX: usize = packed::ROOM_MAX;

/// Less than this is not worth beginning a chunk in.
const PIECE_MIN: usize = 64;

/// Packed blocks that are being filled, one after the other.
pub(crate) struct Packing {
    head: HeadKind,
    /// Of the group that they belong to.
    sequence: u64,
    /// Groups before it that may not be on the device yet.
    lag: u64,
    open: Option<Filling>,
    /// Tells whether there was a block before.
    begun: bool,
    /// Tells whether a block is full and has left.
    sent: bool,
    /// Tells whether metadata may share a block with the data.
    mixed: bool,
    /// Tells where the chunk before ends: inode and logical block.
    end: Option<(u32, u32)>,
    /// The blocks that have left, with their CRC-32C, if somebody wants to know.
    sums: Option<Vec<(u64, u32)>>,
    /// Logical blocks that belong together, from the next chunk on; 0 if that is not known.
    pub(crate) left: u32,
}

struct Filling {
    place: u64,
    block: PackedBlock,
}

impl Packing {
    fn new(head: HeadKind, sequence: u64) -> Self {
        Self {
            head,
            sequence,
            lag: 0,
            open: None,
            begun: false,
            sent: false,
            mixed: true,
            end: None,
            sums: None,
            left: 0,
        }
    }

    /// Blocks of a group; `lag` groups before it may not be on the device yet.
    pub(crate) fn of_group(sequence: u64, lag: u64) -> Self {
        Self {
            lag,
            ..Self::new(HeadKind::Packed, sequence)
        }
    }

    /// Blocks of no group: pointers to them are recorded like those to any other block.
    pub(crate) fn apart(head: HeadKind) -> Self {
        Self::new(head, 0)
    }

    /// Blocks of no group in which a group has content, and of which it has the checksums.
    pub(crate) fn beside_group() -> Self {
        Self {
            sums: Some(Vec::new()),
            ..Self::apart(HeadKind::Moved)
        }
    }

    /// Takes the checksums of the blocks that have left.
    pub(crate) fn take_sums(&mut self) -> Vec<(u64, u32)> {
        self.sums.take().unwrap_or_default()
    }

    fn is_of_group(&self) -> bool {
        self.head == HeadKind::Packed
    }

    /// Returns whether anything was packed.
    pub(crate) fn is_begun(&self) -> bool {
        self.begun
    }

    /// Returns whether blocks are full and have left.
    pub(crate) fn is_sent(&self) -> bool {
        self.sent
    }

    fn room(&self) -> usize {
        self.open.as_ref().map_or(0, |filling| filling.block.room())
    }

    fn slots(&self) -> usize {
        self.open
            .as_ref()
            .map_or(0, |filling| filling.block.slots())
    }
}

impl Packer {
    /// Compresses what is dirty of an inode and gains, and gives it its places. The pages that are left stay dirty.
    pub(crate) fn pack_pages(
        &mut self,
        ino: u32,
        class: Class,
        rules: &Rules,
        packing: &mut Packing,
    ) -> FsResult<()> {
        let pages: Vec<(u32, Arc<Block>)> = self
            .live(ino)?
            .pages
            .iter()
            .filter(|(_, page)| page.dirty)
            .map(|(&lblk, page)| (lblk, page.data.clone()))
            .collect();
        let codec = self.store.options().codec;
        let begun = Instant::now();
        let room = self.chunk_room(rules);
        let mut chunks = VecDeque::from(self.compressor.compress(ino, &pages, rules, codec, room));
        let compressing = begun.elapsed();
        let mut packed = Vec::with_capacity(chunks.len());
        while let Some(chunk) = chunks.pop_front() {
            if !self.stays_in_segment(packing, &chunk) {
                // Once at the end of each segment.
                let pages = chunk.pages_of(&pages);
                let compressor = &mut self.compressor;
                let shorter = compressor.compress(ino, pages, rules, codec, SHORT_MAX);
                chunks = shorter.into_iter().chain(chunks).collect();
                continue;
            }
            let at = self.pack(packing, &chunk, rules)?;
            self.point(packing, &chunk, at)?;
            packed.push(Packed {
                pages: chunk.blocks.into(),
                bytes: chunk.bytes.len() as u64,
                blocks: at.blocks(),
            });
        }
        let statistics = self.store.statistics_mut().class_mut(class);
        statistics.add_write(pages.len(), &packed);
        statistics.compressing += compressing;
        if packing.is_begun() {
            packing.mixed &= rules.mixed;
        }
        Ok(())
    }

    /// Returns how many bytes a chunk may have.
    fn chunk_room(&self, rules: &Rules) -> usize {
        match rules.straddles && self.store.superblock().has_long_chunks() {
            true => CHUNK_BYTES_MAX,
            false => SHORT_MAX,
        }
    }

    /// Returns whether a chunk finds room in the segment that is filled, or in a new one. The log of groups is followed
    /// block by block, so its segments are filled to their ends.
    fn stays_in_segment(&self, packing: &Packing, chunk: &Chunk) -> bool {
        let left = self.store.segments().left(packing.head);
        let blocks = chunk.bytes.len().div_ceil(packed::ROOM_MAX);
        !packing.is_of_group() || left == 0 || blocks <= left
    }

    /// The pages of a chunk that was packed are where it is now.
    pub(super) fn point(&mut self, packing: &Packing, chunk: &Chunk, at: Slotted) -> FsResult<()> {
        let pointers = chunk.pointers(at);
        let range = chunk.lblk..chunk.lblk + u32::from(chunk.blocks);
        // What a group has in slots needs no record.
        match packing.is_of_group() {
            true => self.swap_all(chunk.ino, chunk.lblk, &pointers, |_| ())?,
            false => self.set_pointers(chunk.ino, chunk.lblk, &pointers, |_| ())?,
        }
        let live = self.live(chunk.ino)?;
        let placed = range.filter_map(|lblk| live.placed(lblk)).count();
        self.store.drop_dirty_pages(placed);
        self.store.space_mut().give(placed as u64);
        Ok(())
    }

    /// The pages of a chunk, none of them dirty, are where it is now.
    pub(crate) fn settle(&mut self, chunk: &Chunk, at: Slotted) -> FsResult<()> {
        let pointers = chunk.pointers(at);
        let mut had_blocks = 0;
        self.set_pointers(chunk.ino, chunk.lblk, &pointers, |was| {
            had_blocks += u64::from(was.has_block());
        })?;
        self.store.space_mut().give(had_blocks);
        Ok(())
    }

    /// Puts a chunk into the next slot, and what finds no room there into the blocks behind.
    pub(crate) fn pack(
        &mut self,
        packing: &mut Packing,
        chunk: &Chunk,
        rules: &Rules,
    ) -> FsResult<Slotted> {
        let begins = rules.sequential && packing.end != Some((chunk.ino, chunk.lblk));
        packing.end = Some((chunk.ino, chunk.lblk + u32::from(chunk.blocks)));
        let is_full = packing.slots() >= usize::from(rules.slots);
        if begins || is_full {
            self.seal(packing, false);
        }
        let behind = |room: usize| {
            chunk
                .bytes
                .len()
                .saturating_sub(room)
                .div_ceil(packed::ROOM_MAX)
        };
        let fits = behind(packing.room()) == 0;
        let goes_on = |filling: &Filling| {
            let most = self.blocks_behind(filling.place).min(BEHIND_MAX);
            behind(filling.block.room()) <= most
        };
        let may_begin = rules.straddles
            && packing.room() >= PIECE_MIN
            && packing.open.as_ref().is_some_and(goes_on);
        if !fits && !may_begin {
            self.seal(packing, false);
        }
        if packing.open.is_none() {
            self.store
                .keep_together(packing.head, behind(packed::ROOM_MAX));
            self.begin(packing, Cause::Data)?;
        }
        let behind = behind(packing.room());
        let (front, rest) = chunk.bytes.split_at(chunk.bytes.len().min(packing.room()));
        let slot = |at: usize| Slot {
            continues: at < behind,
            continued: at > 0,
            ..chunk.slot()
        };
        let (block, number) = self.fill(packing, slot(0), front)?;
        for (at, part) in (1..).zip(rest.chunks(packed::ROOM_MAX)) {
            self.seal(packing, false);
            self.begin(packing, Cause::Data)?;
            self.fill(packing, slot(at), part)?;
        }
        Ok(Slotted {
            block,
            slot: number,
            sequence: 0,
            behind: behind as u8,
        })
    }

    /// Puts something that does not go on in another block into the next slot.
    pub(super) fn push_whole(
        &mut self,
        packing: &mut Packing,
        slot: Slot,
        bytes: &[u8],
        cause: Cause,
    ) -> FsResult<(u64, u8)> {
        let is_full = packing.slots() >= usize::from(self.store.superblock().slots_max);
        if is_full || packing.room() < bytes.len() {
            self.seal(packing, false);
        }
        if packing.open.is_none() {
            self.begin(packing, cause)?;
        }
        self.fill(packing, slot, bytes)
    }

    /// Returns how many blocks of its segment lie behind a block.
    fn blocks_behind(&self, block: u64) -> usize {
        let (_, index) = self.store.segments().locate(block);
        SEGMENT_CONTENT as usize - 1 - usize::from(index)
    }

    /// Opens the next block.
    fn begin(&mut self, packing: &mut Packing, cause: Cause) -> FsResult<()> {
        let moment = self.store.moment();
        let placed = self
            .store
            .place(packing.head, Owner::default(), cause, moment)?;
        let header = PackedHeader {
            sequence: packing.sequence,
            checkpoint: self.store.version() as u32,
            next_segment: placed.next_segment.unwrap_or(u32::MAX),
            lag: match packing.is_of_group() {
                true => u16::try_from(packing.lag).unwrap_or(u16::MAX),
                false => 0,
            },
            first: !packing.begun,
            last: false,
            left: u16::try_from(packing.left).unwrap_or(u16::MAX),
        };
        packing.begun = true;
        packing.open = Some(Filling {
            place: placed.block,
            block: PackedBlock::new(header),
        });
        Ok(())
    }

    /// Fills the next slot of the open block.
    fn fill(&mut self, packing: &mut Packing, slot: Slot, bytes: &[u8]) -> FsResult<(u64, u8)> {
        let filled = packing.open.as_mut().and_then(|filling| {
            let number = filling.block.push(slot, bytes)?;
            Some((filling.place, number))
        });
        let (place, number) = filled.ok_or_else(crate::store::medium::vanished)?;
        if slot.kind != SlotKind::Records {
            self.store.occupy(place, number);
        }
        Ok((place, number))
    }

    /// Sends the open block.
    pub(crate) fn seal(&mut self, packing: &mut Packing, last: bool) {
        if let Some(mut filling) = packing.open.take() {
            filling.block.header_mut().last = last;
            packing.sent = true;
            let block = filling.block.finish();
            if let Some(sums) = &mut packing.sums {
                sums.push((filling.place, crc(&*block)));
            }
            self.store.push(filling.place, block);
        }
    }

    /// Sends the open block, if metadata has no place there.
    pub(crate) fn seal_unmixed(&mut self, packing: &mut Packing) {
        if !packing.mixed {
            self.seal(packing, false);
        }
    }

    /// Ends a group with its records.
    pub(crate) fn finish_group(
        &mut self,
        packing: &mut Packing,
        mut stream: &[u8],
    ) -> FsResult<()> {
        self.seal_unmixed(packing);
        while !stream.is_empty() {
            if packing.room() == 0 {
                self.seal(packing, false);
                self.begin(packing, Cause::Record)?;
            }
            let (part, rest) = stream.split_at(stream.len().min(packing.room()));
            self.fill(packing, Slot::new(SlotKind::Records), part)?;
            stream = rest;
        }
        self.seal(packing, true);
        Ok(())
    }
}

/// The most blocks in which one goes on.
pub(super) const BEHIND_MAX: usize = 32;

// A chunk of the most blocks, stored as it is, goes on in no more from a block that it has for itself.
const _: () = assert!(CHUNK_BYTES_MAX <= (1 + BEHIND_MAX) * packed::ROOM_MAX);
