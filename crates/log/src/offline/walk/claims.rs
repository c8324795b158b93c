//! Blocks and who claims them: segment by segment, in the order of the device.

use std::collections::HashSet;
use std::iter::Peekable;
use std::sync::Arc;

use anteros_core::FsResult;

use super::finding::{Claim, Fault, InSlot};
use super::records::{Chunk, Extent};
use super::{Sink, Walk};
use crate::layout::pointer::Slotted;
use crate::layout::summary::Owner;
use crate::layout::{BLOCK_BYTES, Block, SEGMENT_BLOCKS, SEGMENT_CONTENT};
use crate::packing::unpack;
use crate::store::medium::vanished;

/// Owners that claim the blocks of a segment.
pub(in crate::offline) struct Claims {
    pub(in crate::offline) segment: u32,
    /// The first block.
    pub(in crate::offline) start: u64,
    plain: Vec<Option<Claim>>,
    /// Blocks that more than one claims.
    shared: HashSet<u16>,
    /// Slots that belong to something.
    pub(in crate::offline) slots: Vec<u32>,
}

impl Claims {
    fn new(segment: u32, start: u64) -> Self {
        Self {
            segment,
            start,
            plain: vec![None; SEGMENT_BLOCKS as usize],
            shared: HashSet::new(),
            slots: vec![0; SEGMENT_BLOCKS as usize],
        }
    }

    /// The one who claims a block that is not packed.
    pub(in crate::offline) fn claim(&self, index: u16) -> Option<Claim> {
        self.plain.get(usize::from(index)).copied().flatten()
    }

    pub(in crate::offline) fn slots(&self, index: u16) -> u32 {
        self.slots.get(usize::from(index)).copied().unwrap_or(0)
    }

    pub(in crate::offline) fn is_owned(&self, index: u16) -> bool {
        self.slots(index) != 0 || self.claim(index).is_some()
    }

    /// Returns whether the block is owned as a summary says.
    pub(in crate::offline) fn agrees(&self, index: u16, owner: Owner, has_nodes: bool) -> bool {
        let claim = self.claim(index);
        self.shared.contains(&index)
            || claim.is_some_and(|claim| claim.owner == owner && claim.is_node == has_nodes)
    }
}

/// Blocks that were read at once.
#[derive(Default)]
struct Ahead {
    first: u64,
    bytes: Vec<u8>,
}

impl Ahead {
    fn read<S: Sink>(&mut self, walk: &Walk<'_, S>, place: u64, end: u64) -> FsResult<Arc<Block>> {
        if self.get(place).is_none() {
            self.bytes = Vec::new();
            self.bytes = walk.read_ahead(place, end)?;
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

impl<S: Sink> Walk<'_, S> {
    /// Calls `visit` for each segment, in the order of the device, with the owners of its blocks.
    ///
    /// # Errors
    ///
    /// Errors of the temporary file, and of `visit`.
    pub(in crate::offline) fn visit_segments(
        &mut self,
        visit: &mut dyn FnMut(&mut Self, &Claims) -> FsResult<()>,
    ) -> FsResult<()> {
        let extents = self.sorted(|walk| &mut walk.extents)?;
        let chunks = self.sorted(|walk| &mut walk.chunks)?;
        let (mut extents, mut chunks) = (extents.iter().peekable(), chunks.iter().peekable());
        for segment in 0..self.state.store.segments().count() {
            let claims = self.claims(segment, &mut extents, &mut chunks)?;
            visit(self, &claims)?;
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
        let mut claims = Claims::new(segment, start);
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
        let (ino, is_node) = (extent.ino, extent.is_node != 0);
        if is_node && self.disowned.has(extent.lblk) {
            return;
        }
        let first = (extent.block - claims.start) as u16;
        let blocks = (first..).zip(extent.block..).zip(extent.lblk..);
        for ((index, block), lblk) in blocks.take(extent.blocks as usize) {
            let owner = Owner { ino, lblk };
            let claim = Claim { owner, is_node };
            match claims.plain.get_mut(usize::from(index)) {
                Some(Some(other)) => {
                    let other = *other;
                    claims.shared.insert(index);
                    let fault = Fault::Shared {
                        block,
                        claim,
                        other,
                    };
                    self.find_in(ino, fault);
                }
                Some(free) => *free = Some(claim),
                None => continue,
            }
            let segment = claims.segment;
            let entry = self.state.store.segments().segment(segment);
            if !entry.is_valid(index) {
                let fault = Fault::Invalid {
                    block,
                    claim,
                    segment,
                };
                self.find_in(ino, fault);
            }
        }
    }

    /// A chunk belongs to logical blocks, and so do the slots that it lies in.
    fn claim_chunk(&mut self, claims: &mut Claims, ahead: &mut Ahead, chunk: Chunk) {
        let Chunk {
            ino, block, slot, ..
        } = chunk;
        let Some(sequence) = chunk.sequences.checked_ilog2() else {
            return self.claim_slot(claims, chunk);
        };
        let sequence = sequence as u8;
        let slotted = Slotted {
            block,
            slot,
            sequence,
            behind: chunk.behind,
        };
        let lblk = chunk.first.wrapping_add(sequence.into());
        let end = claims.start + u64::from(SEGMENT_CONTENT);
        let read = unpack::chunk(Owner { ino, lblk }, slotted, |block| {
            ahead.read(self, block, end)
        });
        let at = InSlot {
            claim: Claim::of_content(ino, lblk),
            slot,
            block,
        };
        if let Err(error) = read {
            self.find_in(ino, Fault::Chunk { at, error });
        }
        self.claim_slots(claims, at, slotted.places());
    }

    /// A slot belongs to an inode, which has been read already.
    fn claim_slot(&mut self, claims: &mut Claims, chunk: Chunk) {
        let Chunk {
            ino, block, slot, ..
        } = chunk;
        if !self.disowned.has(ino) {
            let at = InSlot {
                claim: Claim::of_node(ino, ino),
                slot,
                block,
            };
            self.claim_slots(claims, at, std::iter::once((block, slot)));
        }
    }

    fn claim_slots(
        &mut self,
        claims: &mut Claims,
        at: InSlot,
        places: impl Iterator<Item = (u64, u8)>,
    ) {
        let ino = at.claim.owner.ino;
        for (block, slot) in places {
            let index = (block - claims.start) as usize;
            let Some(claimed) = claims.slots.get_mut(index) else {
                continue;
            };
            self.counts.data_blocks += u64::from(*claimed == 0);
            let was_claimed = *claimed >> slot & 1 == 1;
            *claimed |= 1 << slot;
            if was_claimed {
                self.find_in(ino, Fault::SharedSlot(at));
            }
            if let Some(other) = claims.claim(index as u16) {
                self.find_in(ino, Fault::SharedPacked { at, block, other });
            }
            if !self.state.store.is_occupied(block, slot) {
                self.find_in(ino, Fault::InvalidSlot(at));
            }
        }
    }
}
