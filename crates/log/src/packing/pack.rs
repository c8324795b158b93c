//! Chunks into packed blocks, wherever they come from (FPC, 3.2.1), and out of them again.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anteros_core::{FileKind as Type, FsError, FsResult};

use crate::compress::kind::FileKind;
use crate::compress::policy::{Policy, Rules};
use crate::compress::squeeze::{self, CHUNK_BYTES_MAX, Chunk};
use crate::layout::checkpoint::HeadKind;
use crate::layout::packed::{self, PackedBlock, PackedHeader, Slot, SlotKind};
use crate::layout::pointer::{Pointer, Slotted};
use crate::layout::summary::Owner;
use crate::layout::{BLOCK_BYTES, Block, Corrupt, SEGMENT_CONTENT};
use crate::state::State;
use crate::statistics::{Cause, Class, Packed};

/// The most bytes of a chunk of a group: so many find room in a block, or in the rest of one and the next.
const CHUNK_MAX: usize = packed::ROOM_MAX;

/// Less than this is not worth beginning a chunk in.
const PIECE_MIN: usize = 64;

/// Packed blocks that are being filled, one after the other.
pub(crate) struct Packing {
    head: HeadKind,
    /// Of the group that they belong to.
    sequence: u64,
    open: Option<Filling>,
    /// Tells whether there was a block before.
    begun: bool,
    /// Tells whether a block is full and has left.
    sent: bool,
    /// Tells whether metadata may share a block with the data.
    mixed: bool,
    /// Tells where the chunk before ends: inode and logical block.
    end: Option<(u32, u32)>,
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
            open: None,
            begun: false,
            sent: false,
            mixed: true,
            end: None,
            left: 0,
        }
    }

    /// Blocks of a group.
    pub(crate) fn of_group(sequence: u64) -> Self {
        Self::new(HeadKind::Packed, sequence)
    }

    /// Blocks of no group: pointers to them are recorded like those to any other block.
    pub(crate) fn apart(head: HeadKind) -> Self {
        Self::new(head, 0)
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

impl State {
    /// Returns how the content of an inode is compressed when it is written, if it is.
    pub(crate) fn rules(&mut self, ino: u32) -> FsResult<Option<Rules>> {
        let policy = self.options.policy;
        if policy == Policy::None || self.live(ino)?.kind() != Type::Regular {
            return Ok(None);
        }
        let kind = match self.file_kind(ino)? {
            FileKind::Other if self.options.learns => self.live(ino)?.habits.kind(),
            kind => kind,
        };
        let slots_max = self.superblock.slots_max;
        Ok(policy.rules(kind).map(|rules| Rules {
            slots: rules.slots.min(slots_max),
            ..rules
        }))
    }

    /// Returns what kind of file it is: by the name that it was found or made by, or else by its content. It is a
    /// guess: of what cannot be read, nothing is said.
    pub(crate) fn file_kind(&mut self, ino: u32) -> FsResult<FileKind> {
        let live = self.live(ino)?;
        let named = live.named;
        if let Some(kind) = live.recognized {
            return Ok(kind);
        }
        if named != FileKind::Other {
            return Ok(named);
        }
        match self.content(ino, 0) {
            Ok(start) => Ok(self.live(ino)?.recognize(&start)),
            Err(_) => Ok(FileKind::Other),
        }
    }

    /// Returns what the content of a file counts as: as far as is known, for nothing is read for it.
    pub(crate) fn class(&mut self, ino: u32) -> FsResult<Class> {
        let live = self.live(ino)?;
        let start = live.pages.get(&0).map(|page| page.data.clone());
        let is_unknown = live.recognized.is_none() && live.named == FileKind::Other;
        let kind = match start {
            Some(start) if is_unknown => live.recognize(&start),
            _ => live.recognized.unwrap_or(live.named),
        };
        Ok(kind.into())
    }

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
        let codec = self.options.codec;
        let begun = Instant::now();
        let chunks = self.squeezer.squeeze(ino, &pages, rules, codec, CHUNK_MAX);
        let compressing = begun.elapsed();
        let mut packed = Vec::with_capacity(chunks.len());
        for chunk in &chunks {
            let at = self.pack(packing, chunk, rules)?;
            self.point(packing, chunk, at)?;
            packed.push(Packed {
                pages: chunk.blocks.into(),
                bytes: chunk.bytes.len() as u64,
                blocks: at.blocks(),
            });
        }
        let statistics = self.statistics.class_mut(class);
        statistics.add_write(pages.len(), &packed);
        statistics.compressing += compressing;
        if packing.is_begun() {
            packing.mixed &= rules.mixed;
        }
        Ok(())
    }

    /// The pages of a chunk that was packed are where it is now.
    fn point(&mut self, packing: &Packing, chunk: &Chunk, at: Slotted) -> FsResult<()> {
        let pointers = chunk.pointers(at);
        let range = chunk.lblk..chunk.lblk + u32::from(chunk.blocks);
        // What a group has in slots needs no record.
        match packing.is_of_group() {
            true => self.swap_all(chunk.ino, chunk.lblk, &pointers, |_| ())?,
            false => self.set_pointers(chunk.ino, chunk.lblk, &pointers, |_| ())?,
        }
        let live = self.live(chunk.ino)?;
        let placed = range.filter_map(|lblk| live.placed(lblk)).count();
        self.dirty_pages -= placed;
        self.space.give(placed as u64);
        Ok(())
    }

    /// The pages of a chunk, none of them dirty, are where it is now.
    pub(crate) fn settle(&mut self, chunk: &Chunk, at: Slotted) -> FsResult<()> {
        let pointers = chunk.pointers(at);
        let mut had_blocks = 0;
        self.set_pointers(chunk.ino, chunk.lblk, &pointers, |was| {
            had_blocks += u64::from(was.has_block());
        })?;
        self.space.give(had_blocks);
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
            if self.segments.left(packing.head) <= behind(packed::ROOM_MAX) {
                self.segments.close(packing.head);
            }
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

    /// Returns how many blocks of its segment lie behind a block.
    fn blocks_behind(&self, block: u64) -> usize {
        let (_, index) = self.segments.locate(block);
        SEGMENT_CONTENT as usize - 1 - usize::from(index)
    }

    /// Opens the next block.
    fn begin(&mut self, packing: &mut Packing, cause: Cause) -> FsResult<()> {
        let placed = self.place(packing.head, Owner::default(), cause, self.moment())?;
        let lag = packing.sequence - self.durable.min(packing.sequence);
        let header = PackedHeader {
            sequence: packing.sequence,
            checkpoint: self.version as u32,
            next_segment: placed.next_segment.unwrap_or(u32::MAX),
            lag: match packing.is_of_group() {
                true => u16::try_from(lag).unwrap_or(u16::MAX),
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
            self.occupy(place, number);
        }
        Ok((place, number))
    }

    /// Sends the open block.
    pub(crate) fn seal(&mut self, packing: &mut Packing, last: bool) {
        if let Some(mut filling) = packing.open.take() {
            filling.block.header_mut().last = last;
            packing.sent = true;
            self.push(filling.place, filling.block.finish());
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

    /// A slot of a packed block is valid from now on.
    pub(crate) fn occupy(&mut self, block: u64, slot: u8) {
        let valid = self.slots.valid(block);
        if valid == 0 {
            let seconds = self.seconds();
            self.segments.mark(block, seconds);
            self.space.charge(1);
        }
        self.slots.set(block, valid | 1 << slot);
    }

    /// A slot is not valid any more.
    fn vacate(&mut self, block: u64, slot: u8) {
        let before = self.slots.valid(block);
        let valid = before & !(1 << slot);
        if valid == before {
            return;
        }
        self.slots.set(block, valid);
        if valid == 0 {
            let seconds = self.seconds();
            self.segments.invalidate(block, seconds);
            self.space.give(1);
        }
    }

    /// A logical block is not where a pointer said any more: its chunk may be of no use to anything.
    pub(crate) fn leave_chunk(&mut self, ino: u32, lblk: u32, at: Slotted) -> FsResult<()> {
        let first = lblk.saturating_sub(at.sequence.into());
        let mut is_used = false;
        self.for_pointers(ino, first..first + CHUNK_BLOCKS_MAX, |_, pointer| {
            is_used |= is_same_chunk(pointer, at);
        })?;
        if !is_used {
            at.places()
                .for_each(|(block, slot)| self.vacate(block, slot));
        }
        Ok(())
    }

    /// Returns whether a slot is valid.
    pub(crate) fn is_occupied(&self, block: u64, slot: u8) -> bool {
        self.slots.valid(block) >> slot & 1 == 1
    }

    /// The logical blocks that the chunk holds of which this one is.
    pub(crate) fn read_chunk(&mut self, ino: u32, lblk: u32, at: Slotted) -> FsResult<Vec<u8>> {
        let whose = Owner { ino, lblk };
        let (pages, took) = chunk(whose, at, |block| Ok(self.fetch(block)?.into()))?;
        let class = self.class(ino)?;
        self.statistics.class_mut(class).decompressing += took;
        Ok(pages)
    }

    /// Moves what is valid in a packed block.
    pub(crate) fn relocate_packed(&mut self, block: u64, packing: &mut Packing) -> FsResult<()> {
        let bytes = self.fetch(block)?;
        let (_, slots) = packed::parse(&bytes)?;
        for (number, slot) in (0..).zip(&slots) {
            if slot.kind != SlotKind::Data || !self.is_occupied(block, number) {
                continue;
            }
            // The rest of a chunk moves with its beginning.
            let (block, number) = match slot.continued {
                true => self.beginning(block)?,
                false => (block, number),
            };
            self.move_chunk(slot, block, number, packing)?;
        }
        Ok(())
    }

    /// The slot in which the chunk begins that goes on in a block.
    fn beginning(&mut self, block: u64) -> FsResult<(u64, u8)> {
        for before in (block.saturating_sub(BEHIND_MAX as u64)..block).rev() {
            let (_, slots) = packed::parse(&*self.fetch(before)?)?;
            match slots.last() {
                Some(last) if !last.continues => break,
                Some(last) if !last.continued => return Ok((before, slots.len() as u8 - 1)),
                Some(_) => {}
                None => break,
            }
        }
        Err(broken("it goes on from no slot", block))
    }

    fn move_chunk(
        &mut self,
        slot: &Slot,
        block: u64,
        number: u8,
        packing: &mut Packing,
    ) -> FsResult<()> {
        let (mut at, mut lblks) = (None, Vec::new());
        let range = slot.lblk..slot.lblk.saturating_add(slot.blocks.into());
        self.for_pointers(slot.ino, range, |lblk, pointer| {
            if let Pointer::Packed(found) = pointer {
                if (found.block, found.slot) == (block, number) {
                    at = Some(found);
                    lblks.push(lblk);
                }
            }
        })?;
        let Some(at) = at else { return Ok(()) };
        let whose = Owner {
            ino: slot.ino,
            lblk: slot.lblk,
        };
        let head = Slotted { sequence: 0, ..at };
        let (slot, bytes) = stored(whose, head, |block| Ok(self.fetch(block)?.into()))?;
        let chunk = Chunk {
            ino: slot.ino,
            lblk: slot.lblk,
            blocks: slot.blocks,
            codec: slot.codec,
            core: slot.core,
            bytes,
        };
        let rules = Rules {
            slots: self.superblock.slots_max,
            ..Rules::MOVED
        };
        let moved = self.pack(packing, &chunk, &rules)?;
        for lblk in lblks {
            let sequence = (lblk - chunk.lblk) as u8;
            self.set_pointer(
                chunk.ino,
                lblk,
                Pointer::Packed(Slotted { sequence, ..moved }),
            )?;
        }
        self.left_early(chunk.ino)
    }
}

/// The most logical blocks of a chunk.
pub(crate) const CHUNK_BLOCKS_MAX: u32 = 32;

/// The most blocks in which one goes on.
const BEHIND_MAX: usize = 32;

// A chunk of the most blocks, stored as it is, goes on in no more from a block that it has for itself.
const _: () = assert!(CHUNK_BYTES_MAX <= (1 + BEHIND_MAX) * packed::ROOM_MAX);

fn is_same_chunk(pointer: Pointer, at: Slotted) -> bool {
    matches!(pointer, Pointer::Packed(found) if (found.block, found.slot) == (at.block, at.slot))
}

fn broken(rule: &'static str, found: u64) -> FsError {
    Corrupt::Packed { rule, found }.into()
}

/// The chunk that a logical block is said to lie in: its slot, and its bytes as they are stored.
fn stored(
    whose: Owner,
    at: Slotted,
    mut read: impl FnMut(u64) -> FsResult<Arc<Block>>,
) -> FsResult<(Slot, Vec<u8>)> {
    let block = read(at.block)?;
    let (_, slots) = packed::parse(&block)?;
    let slot = slots.get(usize::from(at.slot)).copied();
    let lblk = whose.lblk.checked_sub(at.sequence.into());
    let slot = slot.filter(|slot| {
        slot.kind == SlotKind::Data
            && slot.ino == whose.ino
            && Some(slot.lblk) == lblk
            && slot.blocks > at.sequence
            && slot.continues == (at.behind > 0)
            && !slot.continued
    });
    let slot =
        slot.ok_or_else(|| broken("the slot does not hold what a pointer says", at.block))?;
    let mut bytes = slot.bytes(&block).to_vec();
    for place in at.blocks().skip(1) {
        let block = read(place)?;
        let (_, slots) = packed::parse(&block)?;
        let whole = Slot {
            continued: true,
            continues: place < *at.blocks().end(),
            ..slot
        };
        let rest = slots.first().filter(|rest| {
            let Slot { start, len, .. } = **rest;
            **rest
                == Slot {
                    start,
                    len,
                    ..whole
                }
        });
        let rest = rest.ok_or_else(|| broken("it does not go on with the chunk before", place))?;
        bytes.extend_from_slice(rest.bytes(&block));
    }
    Ok((slot, bytes))
}

/// All pages of the chunk that a logical block lies in, and for how long they were decompressed.
pub(crate) fn chunk(
    whose: Owner,
    at: Slotted,
    read: impl FnMut(u64) -> FsResult<Arc<Block>>,
) -> FsResult<(Vec<u8>, Duration)> {
    let (slot, bytes) = stored(whose, at, read)?;
    let begun = Instant::now();
    let pages = squeeze::expand(&slot, &bytes);
    let pages = pages.ok_or_else(|| broken("a chunk cannot be decoded", at.block))?;
    Ok((pages, begun.elapsed()))
}

/// Returns how many compressed pages are in a block, valid or not; those of a chunk are where it begins.
pub(crate) fn pages_in(block: &Block) -> u64 {
    let slots = packed::parse(block).map_or_else(|_| Vec::new(), |(_, slots)| slots);
    let chunks = slots
        .iter()
        .filter(|slot| slot.kind == SlotKind::Data && !slot.continued);
    chunks.map(|slot| u64::from(slot.blocks)).sum()
}

/// A page of a chunk.
pub(crate) fn page(chunk: &[u8], sequence: u8) -> &[u8] {
    let start = usize::from(sequence) * BLOCK_BYTES;
    &chunk[start..start + BLOCK_BYTES]
}
