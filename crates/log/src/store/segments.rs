//! Placement of blocks, and their validity.
//!
//! Blocks are handed out by *heads*: open segments, one for each kind of content, that are filled from front to
//! back. A segment whose last valid block has gone is *prefree*, but it is not used again before the next
//! checkpoint has been written: until then the last one still names its blocks.
//!
//! A head of plain content is *threaded* where free segments are dear (F2FS, FAST'15, 2.6: threaded logging): it fills
//! the holes of a segment that is in use. A hole is a block that was not valid at the last checkpoint and not since: neither that nor
//! a group behind it names it. The summary of such a segment is written over the one that is there; until that is on the device,
//! a checkpoint has it.
//!
//! Invariant L2 of `docs/design/log.md`: a block that the last checkpoint names, or a group behind it, is not written
//! over before the next one.

#![deny(clippy::indexing_slicing)]

use std::collections::{BTreeMap, BTreeSet};

use crate::layout::checkpoint::{Head, HeadKind};
use crate::layout::summary::{self, Owner};
use crate::layout::superblock::SEGMENTS_FEW;
use crate::layout::table::SitEntry;
use crate::layout::{Block, SEGMENT_BLOCKS, SEGMENT_CONTENT, Superblock};
use crate::store::by_kind::ByKind;

mod free;
mod holes;
mod resume;
mod segment;

use segment::Bitmap;
pub use segment::Use;
pub(crate) use segment::{Moment, Segment};

/// With fewer segments than these, what is compressed in the background has none of its own.
const SEGMENTS_VERY_FEW: u32 = 64;

/// Head of the log: a segment that is being filled.
#[derive(Debug)]
struct OpenHead {
    segment: u32,
    next: u16,
    /// Of the blocks before `next`; of all if it is threaded.
    owners: Vec<Owner>,
    /// Segment in which the packed log continues.
    next_segment: Option<u32>,
    /// Tells whether it fills holes.
    threaded: bool,
}

impl OpenHead {
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
    heads: ByKind<Option<OpenHead>>,
    /// Segment reserved for the packed log, where it could not continue yet.
    next_packed: Option<u32>,
    /// Segments that may be opened.
    free: BTreeSet<u32>,
    /// Segments that are free as well, but that the device may have no room for: see [`room`](crate::store::room).
    bare: BTreeSet<u32>,
    /// Tells whether the device had no room for one of them when it was asked last.
    is_store_full: bool,
    prefree: BTreeSet<u32>,
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
            next_packed: None,
            free: BTreeSet::new(),
            bare: BTreeSet::new(),
            is_store_full: false,
            prefree: BTreeSet::new(),
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

    /// The segments that heads fill, and those where they go on.
    pub(super) fn open_segments(&self) -> Vec<u32> {
        let open = (0..self.count()).filter(|&segment| self.segment(segment).state == Use::Open);
        open.collect()
    }

    /// The segments that are not free.
    pub(super) fn in_use(&self) -> Vec<u32> {
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
    pub(super) fn are_few(&self) -> bool {
        self.usable < SEGMENTS_FEW
    }

    /// Valid blocks of all segments.
    pub(crate) fn valid(&self) -> u64 {
        self.valid
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
    pub(super) fn clock(&self) -> u64 {
        self.clock
    }

    /// A user has one more block written.
    pub(super) fn tick(&mut self) {
        self.clock += 1;
    }

    /// Returns whether the content of a block was written so lately that its replacement will not last long either.
    pub(crate) fn is_hot(&self, block: u64) -> bool {
        let (segment, _) = self.locate(block);
        self.clock - self.segment(segment).born.min(self.clock) < self.lifetime
    }

    /// A segment of hot content is cleaned: what is left in it was not.
    pub(super) fn note_lifetime(&mut self, segment: u32) {
        let age = self.clock - self.segment(segment).born.min(self.clock);
        self.lifetime = match self.lifetime {
            u64::MAX => age,
            before => before - before / 8 + age / 8,
        };
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
    pub(super) fn allocate(
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
        self.next_packed = next_segment.or(self.next_packed);
        self.heads[kind] = next_segment.and_then(|next| self.open(kind, Some(next)));
        Some(placed)
    }

    /// Returns whether a head has a block left.
    fn has_room(&self, head: &OpenHead) -> bool {
        match head.threaded {
            true => self.next_hole(head.segment, head.next).is_some(),
            false => u32::from(head.next) < SEGMENT_CONTENT,
        }
    }

    /// The summary of a segment in use, and where it belongs.
    pub(crate) fn summary(&self, segment: u32, owners: &[Owner]) -> (u64, Box<Block>) {
        let place = self.start(segment) + u64::from(SEGMENT_CONTENT);
        (place, summary::encode(self.segment(segment).serial, owners))
    }

    /// Opens a segment, a given one or one that is free.
    fn open(&mut self, kind: HeadKind, given: Option<u32>) -> Option<OpenHead> {
        let segment = match given {
            Some(segment) => segment,
            None => self.take_free()?,
        };
        let next_segment = match kind {
            HeadKind::Packed => Some(self.take_free()?),
            _ => None,
        };
        if kind == HeadKind::Packed {
            self.next_packed = None;
        }
        self.renew(segment, kind);
        self.segment_mut(segment).changed = self.clock;
        Some(OpenHead {
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
    pub(super) fn open_packed(&mut self) -> Option<()> {
        if self.heads[HeadKind::Packed].is_none() {
            self.heads[HeadKind::Packed] = Some(self.open(HeadKind::Packed, self.next_packed)?);
        }
        Some(())
    }

    /// Closes a segment: its summary, and where it belongs. Packed blocks say themselves whose they are, and over another summary none
    /// is written before a checkpoint has it.
    fn seal(&mut self, head: OpenHead) -> Option<(u64, Box<Block>)> {
        self.segment_mut(head.segment).state = Use::Full;
        self.note_prefree(head.segment);
        if self.segment(head.segment).is_packed() {
            return None;
        }
        if head.threaded {
            self.rewrite(head.segment, head.owners);
            return None;
        }
        Some(self.summary(head.segment, &head.owners))
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
            if entry.state == Use::Prefree {
                entry.state = Use::Full;
                self.prefree.remove(&segment);
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
            self.note_prefree(segment);
        }
    }

    /// The entries that were changed since this was asked last.
    pub(super) fn take_changed(&mut self) -> impl Iterator<Item = u32> {
        std::mem::take(&mut self.changed).into_keys()
    }

    /// Has the next checkpoint write an entry of which the table has another form. Which of its blocks are no holes.
    pub(crate) fn note_changed(&mut self, segment: u32) -> &mut Bitmap {
        let bits = self.segment(segment).bits;
        self.changed.entry(segment).or_insert(bits)
    }

    /// As it lies in the table.
    pub(super) fn entry(&self, segment: u32) -> SitEntry {
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

    /// Owners of the blocks of a segment that is being filled.
    pub(crate) fn filling(&self, segment: u32) -> Option<&Vec<Owner>> {
        let mut open = self.heads.iter().flatten();
        let head = open.find(|head| head.segment == segment)?;
        Some(&head.owners)
    }

    /// The segments that hold packed blocks.
    pub(crate) fn packed(&self) -> impl Iterator<Item = u32> + '_ {
        (0..self.count()).filter(|&segment| {
            let entry = self.segment(segment);
            entry.valid > 0 && entry.is_packed()
        })
    }
}

#[cfg(test)]
mod tests;
