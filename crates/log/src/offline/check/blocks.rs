//! Blocks and whose they are, held against what the segment table, the block state table and the summaries say:
//! segment by segment, in the order of the device.

use std::iter::Peekable;
use std::sync::Arc;

use anteros_core::FsResult;

use super::Checker;
use super::finding::Place;
use super::records::{Chunk, Extent};
use crate::durable::owners;
use crate::error::LogError;
use crate::layout::checkpoint::{Checkpoint, HeadKind};
use crate::layout::pointer::Slotted;
use crate::layout::summary::Owner;
use crate::layout::{BLOCK_BYTES, Block, SEGMENT_BLOCKS, SEGMENT_CONTENT};
use crate::packing::unpack;
use crate::store::medium::vanished;
use crate::store::packs;
use crate::store::segments::Segments;

/// Owner of a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Claim {
    owner: Owner,
    is_node: bool,
    /// Tells whether there is somebody else who says so.
    is_shared: bool,
}

/// Owners that claim the blocks of a segment.
struct Claims {
    segment: u32,
    start: u64,
    plain: Vec<Option<Claim>>,
    /// Slots that belong to something.
    slots: Vec<u32>,
}

impl Claims {
    fn is_owned(&self, index: u16) -> bool {
        let index = usize::from(index);
        let has_slots = self.slots.get(index).is_some_and(|&slots| slots != 0);
        has_slots || self.plain.get(index).is_some_and(Option::is_some)
    }
}

/// Blocks that were read at once.
#[derive(Default)]
struct Ahead {
    first: u64,
    bytes: Vec<u8>,
}

impl Ahead {
    fn read(&mut self, checker: &Checker, place: u64, end: u64) -> FsResult<Arc<Block>> {
        if self.get(place).is_none() {
            self.bytes = Vec::new();
            self.bytes = checker.read_ahead(place, end)?;
            self.first = place;
        }
        self.get(place).ok_or_else(vanished)
    }

    fn get(&self, place: u64) -> Option<Arc<Block>> {
        let at = usize::try_from(place.checked_sub(self.first)?).ok()?;
        let block = self.bytes.chunks_exact(BLOCK_BYTES).nth(at)?;
        Some(Arc::new(block.try_into().ok()?))
    }
}

impl Checker {
    /// Looks at all segments.
    ///
    /// # Errors
    ///
    /// Those of the temporary file, and when the checkpoint cannot be read.
    pub(super) fn compare_blocks(&mut self) -> Result<(), LogError> {
        let extents = self.sorter();
        let extents = std::mem::replace(&mut self.extents, extents).finish()?;
        let chunks = self.sorter();
        let chunks = std::mem::replace(&mut self.chunks, chunks).finish()?;
        let (mut extents, mut chunks) = (extents.iter().peekable(), chunks.iter().peekable());
        let (device, superblock) = (self.state.store.device(), self.state.store.superblock());
        let checkpoint = packs::newest_checkpoint(device, superblock)?;
        let entries = packs::segment_table(device, superblock, &checkpoint)?;
        let summarized = Segments::new(superblock, &entries, checkpoint.serial);
        drop(entries);
        for segment in 0..self.state.store.segments().count() {
            let claims = self.claims(segment, &mut extents, &mut chunks)?;
            self.compare_slots(&claims);
            self.compare_valid(&claims);
            if segment < summarized.count() {
                self.compare_summary(&claims, &summarized, &checkpoint);
            }
        }
        Ok(())
    }

    fn claims(
        &mut self,
        segment: u32,
        extents: &mut Peekable<impl Iterator<Item = std::io::Result<Extent>>>,
        chunks: &mut Peekable<impl Iterator<Item = std::io::Result<Chunk>>>,
    ) -> FsResult<Claims> {
        let start = self.state.store.segments().start(segment);
        let end = start + u64::from(SEGMENT_BLOCKS);
        let mut claims = Claims {
            segment,
            start,
            plain: vec![None; SEGMENT_BLOCKS as usize],
            slots: vec![0; SEGMENT_BLOCKS as usize],
        };
        let is_here = |extent: &Extent| extent.block < end;
        while let Some(extent) = extents.next_if(|next| next.as_ref().map_or(true, is_here)) {
            self.claim_extent(&mut claims, extent?);
        }
        let mut ahead = Ahead::default();
        let is_here = |chunk: &Chunk| chunk.block < end;
        while let Some(chunk) = chunks.next_if(|next| next.as_ref().map_or(true, is_here)) {
            self.claim_chunk(&mut claims, &mut ahead, chunk?);
        }
        Ok(claims)
    }

    fn claim_extent(&mut self, claims: &mut Claims, extent: Extent) {
        let first = (extent.block - claims.start) as usize;
        let (ino, segment) = (extent.ino, claims.segment);
        let plain = claims.plain.iter_mut().skip(first);
        for ((at, claim), lblk) in (first..)
            .zip(plain)
            .take(extent.blocks as usize)
            .zip(extent.lblk..)
        {
            let block = claims.start + at as u64;
            let is_node = extent.is_node != 0;
            let what = match is_node {
                true => format!("node {lblk} in block {block}"),
                false => format!("logical block {lblk} in block {block}"),
            };
            match claim {
                Some(other) => {
                    other.is_shared = true;
                    let owner = other.owner.ino;
                    let text = format!("{what}: belongs to something else as well, inode {owner}");
                    self.note_at(Place::Inode(ino), text);
                }
                None => {
                    *claim = Some(Claim {
                        owner: Owner { ino, lblk },
                        is_node,
                        is_shared: false,
                    });
                }
            }
            if !self
                .state
                .store
                .segments()
                .segment(segment)
                .is_valid(at as u16)
            {
                let text = format!("{what}: segment {segment} does not count it as valid");
                self.note_at(Place::Inode(ino), text);
            }
        }
    }

    /// A chunk belongs to logical blocks, and so do the slots that it lies in.
    fn claim_chunk(&mut self, claims: &mut Claims, ahead: &mut Ahead, chunk: Chunk) {
        let ino = chunk.ino;
        let sequence = chunk.sequences.checked_ilog2().unwrap_or(0) as u8;
        let at = Slotted {
            block: chunk.block,
            slot: chunk.slot,
            sequence,
            behind: chunk.behind,
        };
        let lblk = chunk.first.wrapping_add(sequence.into());
        let end = claims.start + u64::from(SEGMENT_CONTENT);
        let read = unpack::chunk(Owner { ino, lblk }, at, |block| {
            ahead.read(self, block, end)
        });
        let what = format!(
            "logical block {lblk} in slot {} of block {}",
            chunk.slot, chunk.block
        );
        if let Err(error) = read {
            self.note_at(Place::Inode(ino), format_args!("{what}: {error}"));
        }
        for (block, slot) in at.places() {
            let index = (block - claims.start) as usize;
            let Some(claimed) = claims.slots.get_mut(index) else {
                continue;
            };
            self.report.data_blocks += u64::from(*claimed == 0);
            if *claimed >> slot & 1 == 1 {
                let text = format!("{what}: the slot belongs to something else as well");
                self.note_at(Place::Inode(ino), text);
            }
            *claimed |= 1 << slot;
            if let Some(Some(other)) = claims.plain.get(index) {
                let owner = other.owner.ino;
                let text = format!("{what}: the block belongs to inode {owner} as well");
                self.note_at(Place::Inode(ino), text);
            }
            if !self.state.store.is_occupied(block, slot) {
                let text = format!("{what}: the block state table does not count it as valid");
                self.note_at(Place::Inode(ino), text);
            }
        }
    }

    /// Slots that count as valid and belong to nothing, and blocks that are valid without a slot that is.
    fn compare_slots(&mut self, claims: &Claims) {
        let segment = claims.segment;
        let entry = self.state.store.segments().segment(segment).clone();
        if !entry.is_packed() && !self.state.store.slots().has(segment) {
            return;
        }
        let blocks = (0..SEGMENT_CONTENT as u16).zip(&claims.slots);
        for ((index, claimed), block) in blocks.zip(claims.start..) {
            let valid = self.state.store.slots().valid(block);
            let lost = (valid & !claimed).count_ones();
            let is_valid = entry.is_packed() && entry.is_valid(index);
            let place = format!("block {block}");
            if lost > 0 {
                self.note(&place, format_args!("{lost} valid slots belong to nothing"));
            }
            if (valid != 0) != is_valid {
                let (kind, counts) = (entry.kind, entry.is_valid(index));
                let text = format!(
                    "slots {valid:#x} count as valid, but in segment {segment}, kind {kind}, it is so: {counts}"
                );
                self.note(&place, text);
            }
        }
    }

    /// Valid blocks that belong to nothing.
    fn compare_valid(&mut self, claims: &Claims) {
        let valid = self
            .state
            .store
            .segments()
            .segment(claims.segment)
            .valid_blocks();
        let mut lost = valid.filter(|&index| !claims.is_owned(index));
        let Some(first) = lost.next() else { return };
        let block = claims.start + u64::from(first);
        let text = match lost.count() {
            0 => format!("1 valid block belongs to nothing: block {block}"),
            more => {
                let lost = more + 1;
                format!("{lost} valid blocks belong to nothing, the first of them block {block}")
            }
        };
        self.note(format_args!("segment {}", claims.segment), text);
    }

    /// A summary that names another owner than the one whose block it is. Those of blocks that only a group names are
    /// written by the next mount.
    fn compare_summary(&mut self, claims: &Claims, summarized: &Segments, checkpoint: &Checkpoint) {
        let segment = claims.segment;
        let now = self.state.store.segments().segment(segment);
        let has_nodes = HeadKind::from_raw(now.kind).is_some_and(HeadKind::has_nodes);
        let valid = summarized.segment(segment).valid_blocks();
        let kept: Vec<u16> = valid
            .filter(|&index| now.is_valid(index) && claims.is_owned(index))
            .collect();
        if kept.is_empty() || now.is_packed() {
            return;
        }
        let named = match owners::named(&self.state, Some(checkpoint), segment) {
            Ok(named) => named,
            Err(error) => return self.note(format_args!("segment {segment}"), error),
        };
        for index in kept {
            let owner = named.get(usize::from(index)).copied().unwrap_or_default();
            let claim = claims.plain.get(usize::from(index)).copied().flatten();
            let agrees = claim.is_some_and(|claim| {
                claim.is_shared || claim.owner == owner && claim.is_node == has_nodes
            });
            if !agrees {
                let (Owner { ino, lblk }, block) = (owner, claims.start + u64::from(index));
                let text = format!(
                    "its summary says that block {block} is inode {ino}'s, number {lblk}, which it is not"
                );
                self.note(format_args!("segment {segment}"), text);
            }
        }
    }
}
