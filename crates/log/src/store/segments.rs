//! Placement of blocks, and their validity.
//!
//! Blocks are handed out by *heads*: open segments, one for each kind of content, that are filled from front to
//! back. A segment whose last valid block has gone is *emptied*, but it is not used again before the next
//! checkpoint has been written: until then the last one still names its blocks.
//!
//! Where free segments are dear, a head of plain content is *threaded* instead (F2FS, FAST'15, 2.6: threaded logging): it fills the
//! holes of a segment that is in use. A hole is a block that was not valid at the last checkpoint and not since: neither that nor
//! a group behind it names it. The summary of such a segment is written over the one that is there; until that is on the device,
//! a checkpoint has it.

#![deny(clippy::indexing_slicing)]

use std::collections::{BTreeMap, BTreeSet};

use crate::layout::checkpoint::{Head, HeadKind};
use crate::layout::summary::{self, Owner};
use crate::layout::superblock::SEGMENTS_FEW;
use crate::layout::table::SitEntry;
use crate::layout::{Block, Corrupt, SEGMENT_BLOCKS, SEGMENT_CONTENT, Superblock};
use crate::store::by_kind::ByKind;

/// With fewer segments than these, what is compressed in the background has none of its own.
const SEGMENTS_VERY_FEW: u32 = 64;

/// A bit for each block of a segment.
pub(crate) type Bitmap = [u64; 8];

/// Use of a segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Use {
    /// Nothing: it may be opened.
    Free,
    /// A head fills it, or will do so next.
    Open,
    /// Its blocks, or some of them, are valid.
    Full,
    /// No block is valid any more, but the last checkpoint may name some.
    Emptied,
}

/// Time at which content was written. Content that cleaning moves keeps its time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Moment {
    /// Blocks that had been written before; see [`Segments::clock`].
    pub(crate) clock: u64,
    /// The time of day.
    pub(crate) seconds: u64,
}

/// A segment of the main area.
#[derive(Debug, Clone)]
pub(crate) struct Segment {
    pub(crate) state: Use,
    pub(crate) valid: u16,
    pub(crate) kind: u8,
    pub(crate) serial: u32,
    /// Time of the last change of one of its blocks, in seconds.
    pub(crate) seconds: u64,
    /// The same, by the clock of the writes.
    pub(crate) changed: u64,
    /// Average write time of its blocks, by that clock.
    pub(crate) born: u64,
    bits: Bitmap,
}

impl Segment {
    fn new(entry: &SitEntry) -> Self {
        let mut bits = [0; 8];
        for (word, bytes) in bits.iter_mut().zip(entry.bits.chunks_exact(8)) {
            *word = bytes
                .iter()
                .rev()
                .fold(0, |word, &byte| word << 8 | u64::from(byte));
        }
        Self {
            state: if entry.valid == 0 {
                Use::Free
            } else {
                Use::Full
            },
            valid: entry.valid,
            kind: entry.kind,
            serial: entry.serial,
            seconds: entry.seconds,
            changed: 0,
            born: 0,
            bits,
        }
    }

    /// Returns whether a head of this kind filled it.
    pub(crate) fn is_of(&self, kind: HeadKind) -> bool {
        self.kind == kind.to_raw()
    }

    /// Write time, for content that is moved out of it.
    pub(crate) fn moment(&self) -> Moment {
        Moment {
            clock: self.born,
            seconds: self.seconds,
        }
    }

    /// Takes a block that was written at some moment, after `count` others.
    fn mix(&mut self, moment: Moment, count: u16) {
        let mix = |mean: u64, new: u64| {
            let count = u128::from(count);
            ((u128::from(mean) * count + u128::from(new)) / (count + 1)) as u64
        };
        self.born = mix(self.born, moment.clock);
        self.seconds = mix(self.seconds, moment.seconds);
    }

    fn entry(&self) -> SitEntry {
        let mut bits = [0; 64];
        for (bytes, word) in bits.chunks_exact_mut(8).zip(&self.bits) {
            bytes.copy_from_slice(&word.to_le_bytes());
        }
        SitEntry {
            valid: self.valid,
            kind: self.kind,
            serial: self.serial,
            seconds: self.seconds,
            bits,
        }
    }

    /// Returns whether its blocks name their owners themselves.
    pub(crate) fn is_packed(&self) -> bool {
        HeadKind::from_raw(self.kind).is_some_and(HeadKind::is_packed)
    }

    /// Returns whether its blocks hold plain content.
    fn has_plain_data(&self) -> bool {
        HeadKind::from_raw(self.kind).is_some_and(HeadKind::has_plain_data)
    }

    pub(crate) fn is_valid(&self, index: u16) -> bool {
        let word = self.bits.get(usize::from(index / 64));
        word.is_some_and(|word| word >> (index % 64) & 1 == 1)
    }

    /// The blocks that are valid, by their place in the segment.
    pub(crate) fn valid_blocks(&self) -> impl Iterator<Item = u16> + '_ {
        (0..SEGMENT_CONTENT as u16).filter(|&index| self.is_valid(index))
    }

    /// Says whether it was otherwise before.
    fn set_valid(&mut self, index: u16, is_valid: bool) -> bool {
        let Some(word) = self.bits.get_mut(usize::from(index / 64)) else {
            return false;
        };
        let bit = 1 << (index % 64);
        let changed = (*word & bit != 0) != is_valid;
        if changed {
            *word ^= bit;
            self.valid = if is_valid {
                self.valid + 1
            } else {
                self.valid - 1
            };
        }
        changed
    }
}

/// A segment that is being filled.
#[derive(Debug)]
struct Open {
    segment: u32,
    next: u16,
    /// Of the blocks before `next`; of all if it is threaded.
    owners: Vec<Owner>,
    /// Segment in which the packed log continues.
    next_segment: Option<u32>,
    /// Tells whether it fills holes.
    threaded: bool,
}

impl Open {
    /// Takes over what is known of whose the blocks are.
    fn learn(&mut self, owner: impl Fn(u16) -> Option<Owner>) {
        for (index, known) in (0..).zip(&mut self.owners) {
            *known = owner(index).unwrap_or(*known);
        }
    }
}

/// Place of the next packed block.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Place {
    pub(crate) segment: u32,
    pub(crate) index: u16,
    /// The segment behind this one.
    pub(crate) next: Option<u32>,
}

impl Place {
    /// The block, in the segment behind if this one is full.
    pub(crate) fn block(&mut self, superblock: &Superblock) -> Option<u64> {
        if u32::from(self.index) >= SEGMENT_CONTENT {
            self.segment = self.next.take()?;
            self.index = 0;
        }
        Some(superblock.segment_start(self.segment) + u64::from(self.index))
    }
}

/// A block that was handed out.
#[derive(Debug)]
pub(crate) struct Placed {
    pub(crate) block: u64,
    /// The summary of the segment, if this was its last block, and where it belongs.
    pub(crate) summary: Option<(u64, Box<Block>)>,
    /// Segment in which the packed log continues behind this one.
    pub(crate) next_segment: Option<u32>,
    /// Tells whether it was a hole.
    pub(crate) was_hole: bool,
}

/// All segments of the main area.
#[derive(Debug)]
pub(crate) struct Segments {
    main_start: u64,
    per_section: u32,
    /// Segments below this may be opened.
    usable: u32,
    table: Vec<Segment>,
    heads: ByKind<Option<Open>>,
    /// Segment reserved for the packed log, where it could not continue yet.
    promised: Option<u32>,
    /// Segments that may be opened.
    free: BTreeSet<u32>,
    /// Segments that are free as well, but that the device may have no room for: see [`room`](crate::store::room).
    bare: BTreeSet<u32>,
    /// Tells whether the device had no room for one of them when it was asked last.
    is_store_full: bool,
    emptied: BTreeSet<u32>,
    /// Start of the search for a free segment, so that all wear alike.
    cursor: u32,
    serial: u32,
    valid: u64,
    /// Segments whose entries were changed since the last checkpoint, and which of their blocks were valid then or at any time
    /// since.
    changed: BTreeMap<u32, Bitmap>,
    /// Owners of the blocks of threaded segments, until a checkpoint has them.
    rewritten: BTreeMap<u32, Vec<Owner>>,
    /// Largest number of threaded segments, those being filled included, that a checkpoint has room for.
    rewritten_max: u32,
    /// Blocks of content that users have written. The time of day says little of age: a busy log is filled in minutes, an
    /// idle one not in months.
    clock: u64,
    /// Lifetime of hot content until cleaning finds it, by that clock.
    lifetime: u64,
}

impl Segments {
    /// All segments as the table has them; `heads` and their summaries as the checkpoint has them.
    pub(crate) fn new(superblock: &Superblock, entries: &[SitEntry], serial: u32) -> Self {
        let table: Vec<_> = entries.iter().map(Segment::new).collect();
        let mut segments = Self {
            main_start: superblock.main_start,
            per_section: superblock.segments_per_section.into(),
            usable: superblock.segments,
            valid: table.iter().map(|segment| u64::from(segment.valid)).sum(),
            table,
            heads: Default::default(),
            promised: None,
            free: BTreeSet::new(),
            bare: BTreeSet::new(),
            is_store_full: false,
            emptied: BTreeSet::new(),
            cursor: 0,
            serial,
            changed: BTreeMap::new(),
            rewritten: BTreeMap::new(),
            rewritten_max: superblock.summaries_max(),
            clock: 0,
            lifetime: u64::MAX,
        };
        segments.find_free();
        segments.set_clocks();
        segments
    }

    /// Sets the clock as if the segments had been written one after the other, in the order in which they changed last.
    fn set_clocks(&mut self) {
        let mut order: Vec<u32> = (0..self.count()).collect();
        order.sort_by_key(|&segment| {
            let entry = self.segment(segment);
            (entry.seconds, entry.serial)
        });
        for segment in order {
            let clock = self.clock;
            let entry = self.segment_mut(segment);
            if entry.valid > 0 {
                (entry.changed, entry.born) = (clock, clock);
                self.clock += u64::from(SEGMENT_CONTENT);
            }
        }
    }

    fn find_free(&mut self) {
        self.free = (0..self.usable)
            .filter(|&segment| self.segment(segment).state == Use::Free)
            .collect();
    }

    fn section_segments(&self, section: u32) -> std::ops::Range<u32> {
        section * self.per_section..(section + 1) * self.per_section
    }

    fn is_section_free(&self, section: u32) -> bool {
        self.section_segments(section)
            .all(|segment| self.segment(segment).state == Use::Free)
    }

    /// Goes on where a checkpoint left the heads.
    ///
    /// # Errors
    ///
    /// When a head stands in a segment that another one fills, or its valid blocks lie beyond it.
    pub(crate) fn open_heads(
        &mut self,
        heads: &[Head],
        owners: &[Vec<Owner>],
    ) -> Result<(), Corrupt> {
        for (head, owners) in heads.iter().zip(owners) {
            let fault = |rule| Corrupt::Head {
                kind: head.kind as u8,
                segment: head.segment,
                rule,
            };
            let next = head.next_segment;
            if u32::from(head.next) >= SEGMENT_CONTENT {
                return Err(fault("the segment is full"));
            }
            if head.kind == HeadKind::Packed && next.is_none() {
                return Err(fault("the packed log does not say where it goes on"));
            }
            for segment in [Some(head.segment), next].into_iter().flatten() {
                if self.segment(segment).state == Use::Open {
                    return Err(fault("another head fills the segment"));
                }
            }
            let last = self.segment(head.segment).valid_blocks().last();
            if !head.threaded && last.is_some_and(|last| last >= head.next) {
                return Err(fault("a block that was not yet written is valid"));
            }
            if head.threaded && !self.segment(head.segment).has_plain_data() {
                return Err(fault(
                    "holes are filled of a segment that has no plain content",
                ));
            }
            if head.threaded && self.next_hole(head.segment, head.next).is_none() {
                return Err(fault("the segment has no hole left"));
            }
            if next.is_some_and(|next| self.segment(next).valid > 0) {
                return Err(fault("the log goes on in a segment that is in use"));
            }
            self.claim(head.segment);
            next.into_iter().for_each(|next| self.claim(next));
            self.heads[head.kind] = Some(Open {
                segment: head.segment,
                next: head.next,
                owners: owners.clone(),
                next_segment: next,
                threaded: head.threaded,
            });
        }
        Ok(())
    }

    fn claim(&mut self, segment: u32) {
        self.segment_mut(segment).state = Use::Open;
        self.free.remove(&segment);
        self.bare.remove(&segment);
    }

    /// Opens no segment that is free before the device was asked whether it has room for it.
    pub(crate) fn strip(&mut self) {
        self.bare.append(&mut self.free);
    }

    /// The segments that the device was not asked for, in the order in which they would be opened.
    pub(crate) fn bare(&self) -> impl Iterator<Item = u32> + '_ {
        let behind = self.bare.range(self.cursor..);
        behind.chain(self.bare.range(..self.cursor)).copied()
    }

    /// Their number.
    pub(crate) fn bare_count(&self) -> u32 {
        self.bare.len() as u32
    }

    /// The device has room for a segment.
    pub(crate) fn back(&mut self, segment: u32) {
        if self.bare.remove(&segment) {
            self.free.insert(segment);
        }
    }

    /// The room of a segment was given back to the device.
    pub(crate) fn lay_bare(&mut self, segment: u32) {
        if self.free.remove(&segment) {
            self.bare.insert(segment);
        }
    }

    /// Notes whether the device has no room for more segments.
    pub(crate) fn set_store_full(&mut self, is_full: bool) {
        self.is_store_full = is_full;
    }

    /// Segments that may be opened now.
    pub(crate) fn ready_count(&self) -> u32 {
        self.free.len() as u32
    }

    /// The segments that heads fill, and those where they go on.
    pub(crate) fn open_segments(&self) -> Vec<u32> {
        let open = (0..self.count()).filter(|&segment| self.segment(segment).state == Use::Open);
        open.collect()
    }

    /// The segments that are not free.
    pub(crate) fn in_use(&self) -> Vec<u32> {
        let used = (0..self.count()).filter(|&segment| self.segment(segment).state != Use::Free);
        used.collect()
    }

    #[expect(
        clippy::indexing_slicing,
        reason = "the number of a segment is checked where it is read"
    )]
    pub(crate) fn segment(&self, segment: u32) -> &Segment {
        &self.table[segment as usize]
    }

    #[expect(
        clippy::indexing_slicing,
        reason = "the number of a segment is checked where it is read"
    )]
    fn segment_mut(&mut self, segment: u32) -> &mut Segment {
        &mut self.table[segment as usize]
    }

    /// Number of segments.
    pub(crate) fn count(&self) -> u32 {
        self.table.len() as u32
    }

    /// Returns whether heads share segments.
    pub(crate) fn are_few(&self) -> bool {
        self.usable < SEGMENTS_FEW
    }

    /// Valid blocks of all segments.
    pub(crate) fn valid(&self) -> u64 {
        self.valid
    }

    /// Segments that may be opened, those included that the device will have to have room for.
    pub(crate) fn free_count(&self) -> u32 {
        match self.is_store_full {
            true => self.ready_count(),
            false => self.ready_count() + self.bare_count(),
        }
    }

    /// Segments that may be opened as soon as a checkpoint has been written.
    pub(crate) fn emptied_count(&self) -> u32 {
        self.emptied.len() as u32
    }

    /// The serial number that was given last.
    pub(crate) fn serial(&self) -> u32 {
        self.serial
    }

    /// Segment of a block, and its index there.
    pub(crate) fn locate(&self, block: u64) -> (u32, u16) {
        let at = block - self.main_start;
        let per_segment = u64::from(SEGMENT_BLOCKS);
        ((at / per_segment) as u32, (at % per_segment) as u16)
    }

    /// Blocks of content that users have written.
    pub(crate) fn clock(&self) -> u64 {
        self.clock
    }

    /// A user has one more block written.
    pub(crate) fn tick(&mut self) {
        self.clock += 1;
    }

    /// Returns whether the content of a block was written so lately that its replacement will not last long either.
    pub(crate) fn is_hot(&self, block: u64) -> bool {
        let (segment, _) = self.locate(block);
        self.clock - self.segment(segment).born.min(self.clock) < self.lifetime
    }

    /// A segment of hot content is cleaned: what is left in it was not.
    pub(crate) fn note_lifetime(&mut self, segment: u32) {
        let age = self.clock - self.segment(segment).born.min(self.clock);
        self.lifetime = match self.lifetime {
            u64::MAX => age,
            before => before - before / 8 + age / 8,
        };
    }

    /// The most segments that so many blocks may open, whichever heads they go to.
    pub(crate) fn openings(&self, blocks: usize) -> u32 {
        let in_use = HeadKind::ALL
            .into_iter()
            .filter(|&kind| self.is_in_use(kind));
        let left = |kind: HeadKind| match &self.heads[kind] {
            Some(head) if head.threaded => self.holes(head.segment, head.next) as usize,
            Some(head) => (SEGMENT_CONTENT - u32::from(head.next)) as usize,
            None => 0,
        };
        let mut rooms: Vec<usize> = in_use.map(left).collect();
        rooms.sort_unstable();
        // That of the packed log comes with the one where it goes on, and a checkpoint wants it.
        let mut count = match self.heads[HeadKind::Packed] {
            Some(_) => 0,
            None => 2,
        };
        let mut blocks = blocks;
        for room in rooms {
            if blocks <= room {
                return count;
            }
            blocks -= room + 1;
            count += 1;
        }
        count + blocks as u32 / SEGMENT_CONTENT
    }

    /// Returns whether a head may be filled at any time. Background segments are filled only where there is room for more
    /// of them.
    fn is_in_use(&self, kind: HeadKind) -> bool {
        self.share(kind) == kind && (kind != HeadKind::Background || self.heads[kind].is_some())
    }

    /// Number of blocks that a head hands out before it needs another segment.
    pub(crate) fn left(&self, kind: HeadKind) -> usize {
        let head = &self.heads[self.share(kind)];
        let next = head.as_ref().map_or(0, |head| head.next.into());
        (SEGMENT_CONTENT - next) as usize
    }

    /// Leaves the rest of the segment that a head of packed blocks fills, but not of the one with groups: what comes next needs
    /// more blocks behind each other.
    pub(crate) fn close(&mut self, kind: HeadKind) {
        let kind = self.share(kind);
        if let Some(head) = self.heads[kind].take() {
            self.seal(head);
        }
    }

    /// The first block of a segment.
    pub(crate) fn start(&self, segment: u32) -> u64 {
        self.main_start + u64::from(segment) * u64::from(SEGMENT_BLOCKS)
    }

    /// The next block of a head, for this owner; `None` if no segment is free. What is handed out is valid,
    /// but for packed blocks: those are as soon as a slot is.
    pub(crate) fn allocate(
        &mut self,
        kind: HeadKind,
        owner: Owner,
        moment: Moment,
    ) -> Option<Placed> {
        let kind = self.share(kind);
        if kind == HeadKind::Packed {
            self.open_packed()?;
        } else if self.heads[kind].is_none() {
            self.heads[kind] = Some(self.open(kind, None)?);
        }
        let mut head = self.heads[kind].take()?;
        let index = match head.threaded {
            true => self.next_hole(head.segment, head.next)?,
            false => head.next,
        };
        head.next = index + 1;
        match head.owners.get_mut(usize::from(index)) {
            Some(known) => *known = owner,
            None => head.owners.push(owner),
        }
        let block = self.start(head.segment) + u64::from(index);
        let mut placed = Placed {
            block,
            summary: None,
            next_segment: head.next_segment,
            was_hole: head.threaded,
        };
        if !kind.is_packed() {
            let entry = self.segment_mut(head.segment);
            entry.mix(moment, entry.valid);
            self.set_valid(block);
        }
        if self.has_room(&head) {
            self.heads[kind] = Some(head);
            return Some(placed);
        }
        let next_segment = head.next_segment;
        placed.summary = self.seal(head);
        // Where none is free now, one may be when the next block is asked for.
        self.promised = next_segment.or(self.promised);
        self.heads[kind] = next_segment.and_then(|next| self.open(kind, Some(next)));
        Some(placed)
    }

    /// Returns whether a head has a block left.
    fn has_room(&self, head: &Open) -> bool {
        match head.threaded {
            true => self.next_hole(head.segment, head.next).is_some(),
            false => u32::from(head.next) < SEGMENT_CONTENT,
        }
    }

    /// The holes of a segment, from a block of it on.
    fn hole_bits(&self, segment: u32, from: u16) -> Bitmap {
        let taken = self.changed.get(&segment);
        let mut bits = *taken.unwrap_or(&self.segment(segment).bits);
        if let Some(last) = bits.last_mut() {
            *last |= u64::MAX << (SEGMENT_CONTENT % 64);
        }
        let (before, bit) = (usize::from(from / 64), from % 64);
        bits.iter_mut()
            .take(before)
            .for_each(|word| *word = u64::MAX);
        if let Some(word) = bits.get_mut(before) {
            *word |= (1 << bit) - 1;
        }
        bits.map(|word| !word)
    }

    fn holes(&self, segment: u32, from: u16) -> u32 {
        let bits = self.hole_bits(segment, from);
        bits.iter().map(|word| word.count_ones()).sum()
    }

    fn next_hole(&self, segment: u32, from: u16) -> Option<u16> {
        let bits = self.hole_bits(segment, from);
        let (word, bits) = (0..).zip(bits).find(|(_, bits)| *bits != 0)?;
        Some(word * 64 + bits.trailing_zeros() as u16)
    }

    /// Returns whether the next block of a head is the first one of another segment, which may be one with holes.
    pub(crate) fn may_thread(&self, kind: HeadKind) -> bool {
        kind.has_plain_data() && self.heads[self.share(kind)].is_none()
    }

    /// The segment with the most holes of those that `may_be` threaded, if it has that many.
    pub(crate) fn threadable(&self, holes_min: u32, may_be: impl Fn(u32) -> bool) -> Option<u32> {
        let threaded = self.heads.iter().flatten().filter(|head| head.threaded);
        if self.rewritten.len() + threaded.count() >= self.rewritten_max as usize {
            return None;
        }
        let (mut best, mut most) = (None, holes_min - 1);
        for segment in 0..self.usable {
            let entry = self.segment(segment);
            // There are hardly as many holes as blocks that are not valid.
            if SEGMENT_CONTENT - u32::from(entry.valid) <= most
                || entry.state != Use::Full
                || !entry.has_plain_data()
                || !may_be(segment)
            {
                continue;
            }
            let holes = self.holes(segment, 0);
            if holes > most {
                (best, most) = (Some(segment), holes);
            }
        }
        best
    }

    /// Has a head fill the holes of a segment with these owners.
    pub(crate) fn thread(&mut self, kind: HeadKind, segment: u32, owners: Vec<Owner>) {
        self.claim(segment);
        self.rewritten.remove(&segment);
        let kind = self.share(kind);
        self.heads[kind] = Some(Open {
            segment,
            next: 0,
            owners,
            next_segment: None,
            threaded: true,
        });
    }

    /// Owners of the blocks of a segment, where the device does not have them yet.
    pub(crate) fn rewritten(&self, segment: u32) -> Option<&Vec<Owner>> {
        self.rewritten.get(&segment)
    }

    /// Returns whether there are such segments.
    pub(crate) fn has_rewritten(&self) -> bool {
        !self.rewritten.is_empty()
    }

    /// Notes whose the blocks of a segment are whose holes were filled.
    pub(crate) fn rewrite(&mut self, segment: u32, owners: Vec<Owner>) {
        self.rewritten.insert(segment, owners);
    }

    /// The summaries that are to be written over others: whoever takes them sees to that.
    pub(crate) fn take_rewritten(&mut self) -> Vec<(u32, Vec<Owner>)> {
        let mut rewritten = std::mem::take(&mut self.rewritten);
        rewritten.retain(|&segment, _| {
            let entry = self.segment(segment);
            entry.valid > 0 && entry.has_plain_data()
        });
        rewritten.into_iter().collect()
    }

    /// The summary of a segment in use, and where it belongs.
    pub(crate) fn summary(&self, segment: u32, owners: &[Owner]) -> (u64, Box<Block>) {
        let place = self.start(segment) + u64::from(SEGMENT_CONTENT);
        (place, summary::encode(self.segment(segment).serial, owners))
    }

    /// Opens a segment, a given one or one that is free.
    fn open(&mut self, kind: HeadKind, given: Option<u32>) -> Option<Open> {
        let segment = match given {
            Some(segment) => segment,
            None => self.take_free()?,
        };
        let next_segment = match kind {
            HeadKind::Packed => Some(self.take_free()?),
            _ => None,
        };
        if kind == HeadKind::Packed {
            self.promised = None;
        }
        self.renew(segment, kind);
        self.segment_mut(segment).changed = self.clock;
        Some(Open {
            segment,
            next: 0,
            owners: Vec::new(),
            next_segment,
            threaded: false,
        })
    }

    /// The head for a kind of content: where segments are few, there is one for all nodes and one for all data.
    fn share(&self, kind: HeadKind) -> HeadKind {
        match kind {
            _ if !self.are_few() => kind,
            HeadKind::HotNode | HeadKind::ColdNode => HeadKind::WarmNode,
            HeadKind::HotData | HeadKind::ColdData | HeadKind::Executables => HeadKind::WarmData,
            HeadKind::Background if self.usable < SEGMENTS_VERY_FEW => HeadKind::Moved,
            _ => kind,
        }
    }

    /// Opens a segment for the packed log, if none is open: a checkpoint has to say where the log goes on.
    pub(crate) fn open_packed(&mut self) -> Option<()> {
        if self.heads[HeadKind::Packed].is_none() {
            self.heads[HeadKind::Packed] = Some(self.open(HeadKind::Packed, self.promised)?);
        }
        Some(())
    }

    /// A free segment: one that is left of a section that is being filled, or the first of a section that is free, or any.
    fn take_free(&mut self) -> Option<u32> {
        let (mut left, mut section) = (None, None);
        if self.per_section > 1 {
            left = self.take_left();
            section = self.free_from_cursor().find(|&segment| {
                segment % self.per_section == 0 && self.is_section_free(segment / self.per_section)
            });
        }
        let segment = left
            .or(section)
            .or_else(|| self.free_from_cursor().next())?;
        if left.is_none() {
            self.cursor = segment + 1;
        }
        self.claim(segment);
        Some(segment)
    }

    /// The free segments from the cursor on, and then those before it.
    fn free_from_cursor(&self) -> impl Iterator<Item = u32> + '_ {
        let behind = self.free.range(self.cursor..);
        behind.chain(self.free.range(..self.cursor)).copied()
    }

    fn take_left(&self) -> Option<u32> {
        let heads = self.heads.iter().flatten().map(|head| head.segment);
        // The head that was filled last may be none at this moment.
        let latest = self.cursor.checked_sub(1);
        let sections = heads
            .chain(latest)
            .map(|segment| segment / self.per_section);
        sections
            .flat_map(|section| self.section_segments(section))
            .find(|segment| self.free.contains(segment))
    }

    /// Closes a segment: its summary, and where it belongs. Packed blocks say themselves whose they are, and over another summary none
    /// is written before a checkpoint has it.
    fn seal(&mut self, head: Open) -> Option<(u64, Box<Block>)> {
        self.segment_mut(head.segment).state = Use::Full;
        self.note_emptied(head.segment);
        if self.segment(head.segment).is_packed() {
            return None;
        }
        if head.threaded {
            self.rewrite(head.segment, head.owners);
            return None;
        }
        Some(self.summary(head.segment, &head.owners))
    }

    fn note_emptied(&mut self, segment: u32) {
        let entry = self.segment_mut(segment);
        if entry.valid == 0 && entry.state == Use::Full {
            entry.state = Use::Emptied;
            self.emptied.insert(segment);
        }
    }

    /// Makes a block valid that was found to be.
    pub(crate) fn mark(&mut self, block: u64, seconds: u64) -> bool {
        let (segment, _) = self.locate(block);
        let clock = self.clock;
        let entry = self.segment_mut(segment);
        (entry.seconds, entry.changed, entry.born) = (seconds, clock, clock);
        self.set_valid(block)
    }

    fn set_valid(&mut self, block: u64) -> bool {
        let (segment, index) = self.locate(block);
        let taken = self.note_changed(segment);
        if let Some(word) = taken.get_mut(usize::from(index / 64)) {
            *word |= 1 << (index % 64);
        }
        let entry = self.segment_mut(segment);
        let changed = entry.set_valid(index, true);
        if changed {
            if entry.state == Use::Emptied {
                entry.state = Use::Full;
                self.emptied.remove(&segment);
            }
            self.valid += 1;
        }
        changed
    }

    /// A block is not needed any more.
    pub(crate) fn invalidate(&mut self, block: u64, seconds: u64) {
        let (segment, index) = self.locate(block);
        let clock = self.clock;
        self.note_changed(segment);
        let entry = self.segment_mut(segment);
        (entry.seconds, entry.changed) = (seconds, clock);
        if entry.set_valid(index, false) {
            self.valid -= 1;
            self.note_emptied(segment);
        }
    }

    /// Sets a segment aside that a group after the checkpoint lies in, or may lie in.
    pub(crate) fn keep(&mut self, segment: u32) {
        if self.segment(segment).state == Use::Free {
            self.free.remove(&segment);
            self.bare.remove(&segment);
            self.segment_mut(segment).state = Use::Full;
            self.note_emptied(segment);
        }
    }

    /// A checkpoint has been written: what was emptied before is free. Says which segments these are.
    pub(crate) fn release(&mut self) -> Vec<u32> {
        let released: Vec<u32> = std::mem::take(&mut self.emptied).into_iter().collect();
        for &segment in &released {
            self.segment_mut(segment).state = Use::Free;
        }
        let usable = released.iter().filter(|&&segment| segment < self.usable);
        self.free.extend(usable);
        released
    }

    /// Opens no segment from this one on any more. All heads must have been closed.
    pub(crate) fn retire(&mut self, from: u32) {
        self.usable = from;
        self.free.split_off(&from);
        self.bare.split_off(&from);
        if let Some(promised) = self.promised.take_if(|promised| *promised >= from) {
            self.segment_mut(promised).state = Use::Full;
            self.note_emptied(promised);
        }
    }

    /// Opens segments from this one on first.
    pub(crate) fn look_from(&mut self, segment: u32) {
        self.cursor = segment;
    }

    /// The entries that were changed since this was asked last.
    pub(crate) fn take_changed(&mut self) -> impl Iterator<Item = u32> {
        std::mem::take(&mut self.changed).into_keys()
    }

    /// Has the next checkpoint write an entry of which the table has another form. Which of its blocks are no holes.
    pub(crate) fn note_changed(&mut self, segment: u32) -> &mut Bitmap {
        let bits = self.segment(segment).bits;
        self.changed.entry(segment).or_insert(bits)
    }

    /// As it lies in the table.
    pub(crate) fn entry(&self, segment: u32) -> SitEntry {
        self.segment(segment).entry()
    }

    /// The heads, for a checkpoint, and who owns what they have written.
    pub(crate) fn heads(&self) -> (Vec<Head>, Vec<Vec<Owner>>) {
        let open = HeadKind::ALL.iter().zip(self.heads.iter());
        open.filter_map(|(&kind, head)| {
            let head = head.as_ref()?;
            let serial = self.segment(head.segment).serial;
            let as_written = Head {
                segment: head.segment,
                next: head.next,
                kind,
                serial,
                next_segment: head.next_segment,
                threaded: head.threaded,
            };
            Some((as_written, head.owners.clone()))
        })
        .unzip()
    }

    /// Takes over a segment that was opened after the checkpoint, of whose blocks groups know: its summary.
    pub(crate) fn adopt(&mut self, segment: u32, kind: HeadKind, owners: &[Owner]) -> Box<Block> {
        summary::encode(self.renew(segment, kind), owners)
    }

    /// A segment turns out to hold packed blocks, or others, as this kind does: it was opened after the checkpoint.
    pub(crate) fn holds(&mut self, segment: u32, kind: HeadKind) {
        let entry = self.segment_mut(segment);
        if entry.is_packed() != kind.is_packed() {
            entry.kind = kind.to_raw();
            self.note_changed(segment);
        }
    }

    /// The segments that hold packed blocks.
    pub(crate) fn packed(&self) -> impl Iterator<Item = u32> + '_ {
        (0..self.count()).filter(|&segment| {
            let entry = self.segment(segment);
            entry.valid > 0 && entry.is_packed()
        })
    }

    /// Has the heads but that of the packed log go on after a crash, behind the blocks of their segments that groups name:
    /// of each, that many from its beginning are `reached`. `owner` tells whose the blocks are that groups name. The summaries of
    /// the segments that are full, and where they belong.
    pub(crate) fn go_on(
        &mut self,
        reached: impl Fn(u32) -> u16,
        owner: impl Fn(u64) -> Option<Owner>,
    ) -> Vec<(u64, Box<Block>)> {
        let mut summaries = Vec::new();
        for kind in HeadKind::ALL {
            let head = &mut self.heads[kind];
            let Some(mut head) = head.take_if(|_| kind != HeadKind::Packed) else {
                continue;
            };
            let start = self.start(head.segment);
            head.next = head.next.max(reached(head.segment));
            let known = head.owners.len().max(head.next.into());
            head.owners.resize(known, Owner::default());
            head.learn(|index| owner(start + u64::from(index)));
            let is_packed = self.segment(head.segment).is_packed();
            if is_packed == kind.is_packed() && self.has_room(&head) {
                self.heads[kind] = Some(head);
            } else {
                summaries.extend(self.seal(head));
            }
        }
        summaries
    }

    /// Has a head go on after a crash in a segment that was opened behind the checkpoint, of whose first blocks these are the
    /// owners. Says whether it does: it may be open elsewhere, or something stands in the way.
    pub(crate) fn go_on_in(
        &mut self,
        segment: u32,
        kind: HeadKind,
        owners: &[Owner],
        next_segment: Option<u32>,
    ) -> bool {
        let next = owners.len() as u16;
        let goes_on = self.heads[kind].is_none()
            && u32::from(next) < SEGMENT_CONTENT
            && self.is_left(segment, next, kind);
        if goes_on {
            self.reopen(segment, kind);
            self.heads[kind] = Some(Open {
                segment,
                next,
                owners: owners.to_vec(),
                next_segment,
                threaded: false,
            });
        }
        goes_on
    }

    /// Has the packed log go on after a crash, behind its last group. Where something stands in the way, it begins anew.
    pub(crate) fn go_on_packed(&mut self, end: &Place) {
        const KIND: HeadKind = HeadKind::Packed;
        self.close_packed();
        let next = end.next.filter(|&next| self.is_left(next, 0, KIND));
        let Some(next) = next.filter(|_| self.is_left(end.segment, end.index, KIND)) else {
            return;
        };
        self.reopen(next, KIND);
        let owners = vec![Owner::default(); end.index.into()];
        let goes_on = self.go_on_in(end.segment, KIND, &owners, Some(next));
        self.promised = (!goes_on).then_some(next);
    }

    /// Returns whether no head stands in a segment, and this one may fill it from that block on.
    fn is_left(&self, segment: u32, index: u16, kind: HeadKind) -> bool {
        let entry = self.segment(segment);
        let is_same = entry.is_packed() == kind.is_packed();
        let last = entry.valid_blocks().last();
        entry.state != Use::Open && last.is_none_or(|last| last < index && is_same)
    }

    /// Opens a segment in which a head goes on, or will.
    fn reopen(&mut self, segment: u32, kind: HeadKind) {
        self.claim(segment);
        self.emptied.remove(&segment);
        self.renew(segment, kind);
    }

    /// Gives a segment to a head of this kind, with the next serial number, which is returned.
    fn renew(&mut self, segment: u32, kind: HeadKind) -> u32 {
        self.serial = self.serial.wrapping_add(1);
        let serial = self.serial;
        let entry = self.segment_mut(segment);
        entry.kind = kind as u8;
        entry.serial = serial;
        self.note_changed(segment);
        serial
    }

    /// Closes the segment of the packed log, and the one where it would go on: it begins anew elsewhere.
    pub(crate) fn close_packed(&mut self) {
        let Some(head) = self.heads[HeadKind::Packed].take() else {
            return;
        };
        let next = head.next_segment;
        self.seal(head);
        if let Some(next) = next {
            self.segment_mut(next).state = Use::Full;
            self.note_emptied(next);
        }
    }

    /// Closes all heads. The summaries, and where they belong.
    pub(crate) fn close_heads(&mut self) -> Vec<(u64, Box<Block>)> {
        self.close_packed();
        let heads = std::mem::take(&mut self.heads);
        let open = heads.into_values().flatten();
        open.filter_map(|head| self.seal(head)).collect()
    }
}

#[cfg(test)]
mod tests;
