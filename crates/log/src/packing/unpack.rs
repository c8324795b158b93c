//! Chunks out of packed blocks, and logical blocks out of chunks.

use std::borrow::Borrow;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anteros_core::{FsError, FsResult};

use crate::compress::chunks;
use crate::layout::packed::{self, Slot, SlotKind};
use crate::layout::pointer::{Pointer, Slotted};
use crate::layout::summary::Owner;
use crate::layout::{BLOCK_BYTES, Block, Corrupt};
use crate::packing::Packer;
use crate::store::medium::zeroed;

impl Packer {
    /// The block at `lblk` as it would be read.
    pub(crate) fn content(&mut self, ino: u32, lblk: u32) -> FsResult<Arc<Block>> {
        if let Some(page) = self.live(ino)?.pages.get(&lblk) {
            return Ok(page.data.clone());
        }
        match self.pointer(ino, lblk)? {
            Pointer::Hole | Pointer::Preallocated => Ok(zeroed().into()),
            Pointer::Plain(block, checksum) => {
                let owner = Owner { ino, lblk };
                Ok(self.store.fetch_content(block, checksum, owner)?.into())
            }
            Pointer::Packed(at) => {
                let chunk = self.read_chunk(ino, lblk, at)?;
                let mut block = zeroed();
                block.copy_from_slice(page(&chunk, at.sequence));
                Ok(block.into())
            }
        }
    }

    /// The logical blocks that the chunk holds of which this one is.
    pub(crate) fn read_chunk(&mut self, ino: u32, lblk: u32, at: Slotted) -> FsResult<Vec<u8>> {
        let whose = Owner { ino, lblk };
        let (pages, took) = chunk(whose, at, |block| self.store.fetch(block))?;
        let class = self.class(ino)?;
        self.store.statistics_mut().class_mut(class).decompressing += took;
        Ok(pages)
    }
}

/// The chunk that a logical block is said to lie in: its slot, and its bytes as they are stored.
pub(super) fn stored<B: Borrow<Block>>(
    whose: Owner,
    at: Slotted,
    mut read: impl FnMut(u64) -> FsResult<B>,
) -> FsResult<(Slot, Vec<u8>)> {
    let block = read(at.block)?;
    let (_, slots) = packed::parse(block.borrow())?;
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
    let mut bytes = Vec::with_capacity(at.blocks().count() * BLOCK_BYTES);
    bytes.extend_from_slice(slot.bytes(block.borrow()));
    for place in at.blocks().skip(1) {
        let block = read(place)?;
        let (_, slots) = packed::parse(block.borrow())?;
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
        bytes.extend_from_slice(rest.bytes(block.borrow()));
    }
    Ok((slot, bytes))
}

/// All pages of the chunk that a logical block lies in, and for how long they were decompressed.
pub(crate) fn chunk<B: Borrow<Block>>(
    whose: Owner,
    at: Slotted,
    read: impl FnMut(u64) -> FsResult<B>,
) -> FsResult<(Vec<u8>, Duration)> {
    let (slot, bytes) = stored(whose, at, read)?;
    let begun = Instant::now();
    let pages = chunks::expand(&slot, &bytes);
    let pages = pages.ok_or_else(|| broken("a chunk cannot be decoded", at.block))?;
    Ok((pages, begun.elapsed()))
}

/// A page of a chunk.
pub(crate) fn page(chunk: &[u8], sequence: u8) -> &[u8] {
    let start = usize::from(sequence) * BLOCK_BYTES;
    &chunk[start..start + BLOCK_BYTES]
}

pub(super) fn broken(rule: &'static str, found: u64) -> FsError {
    Corrupt::Packed { rule, found }.into()
}
