//! Groups behind a checkpoint, as the packed log has them: block by block, up to where it ends.

#![deny(clippy::indexing_slicing)]

use std::collections::BTreeSet;

use anteros_core::WritableDevice;

use crate::error::LogError;
use crate::layout::checkpoint::{Checkpoint, HeadKind};
use crate::layout::packed::{self, PackedHeader, Slot, SlotKind};
use crate::layout::{Corrupt, SEGMENT_CONTENT, Superblock};
use crate::store::medium::read_block;
use crate::store::segments::Place;

/// A group as it was found.
pub(crate) struct Group {
    pub(crate) sequence: u64,
    /// All groups below were on the device when this one was written.
    pub(crate) durable: u64,
    pub(crate) stream: Vec<u8>,
    /// The chunks that it brings.
    pub(super) data: Vec<Begun>,
    /// Place at which the packed log continues.
    pub(super) end: Place,
}

/// The groups behind a checkpoint, and whether there is a beginning of one more.
pub(crate) fn groups(
    device: &dyn WritableDevice,
    superblock: &Superblock,
    checkpoint: &Checkpoint,
) -> Result<(Vec<Group>, bool), LogError> {
    let chain = Chain::read(device, superblock, checkpoint)?;
    Ok((chain.groups, chain.is_broken))
}

/// The packed log behind a checkpoint.
#[derive(Default)]
pub(super) struct Chain {
    pub(super) groups: Vec<Group>,
    /// Segments that it lies in, and the one where it would go on.
    pub(super) segments: BTreeSet<u32>,
    /// Tells whether it ends within a group.
    pub(super) is_broken: bool,
    /// Why it ends at a block that cannot be read.
    pub(super) unreadable: Option<LogError>,
    /// Tells whether there are groups behind that block.
    pub(super) is_torn: bool,
}

impl Chain {
    pub(super) fn read(
        device: &dyn WritableDevice,
        superblock: &Superblock,
        checkpoint: &Checkpoint,
    ) -> Result<Self, LogError> {
        let mut chain = Self::default();
        let Some(head) = checkpoint
            .heads
            .iter()
            .find(|head| head.kind == HeadKind::Packed)
        else {
            return Ok(chain);
        };
        let mut open: Option<Group> = None;
        let mut entered = BTreeSet::new();
        let mut sequence = checkpoint.next_sequence;
        let mut place = Place {
            segment: head.segment,
            index: head.next,
            next: head.next_segment,
        };
        while let Some(block) = place.block(superblock) {
            if place.index == 0 && !entered.insert(place.segment) {
                // A group that is as long as a segment must not go round in circles.
                break;
            }
            // Some errors pass.
            let read = read_packed(device, block).or_else(|_| read_packed(device, block));
            let (header, stream, data, goes_on) = match read {
                Ok(Ok(found)) => found,
                Ok(Err(_)) => break,
                // As if it had never been written, unless something follows that came later.
                Err(error) => {
                    let behind =
                        block + 1..block + u64::from(SEGMENT_CONTENT - u32::from(place.index));
                    chain.is_torn = behind.into_iter().any(|block| {
                        let found = read_packed(device, block);
                        found.is_ok_and(|found| {
                            found.is_ok_and(|(header, ..)| {
                                header.checkpoint == checkpoint.version as u32
                                    && header.sequence >= sequence
                            })
                        })
                    });
                    chain.unreadable = Some(error);
                    break;
                }
            };
            let is_next =
                header.checkpoint == checkpoint.version as u32 && header.sequence == sequence;
            if !is_next
                || header.first != open.is_none()
                || header.next_segment >= superblock.segments
            {
                break;
            }
            chain.segments.extend([place.segment, header.next_segment]);
            place.next = Some(header.next_segment);
            let durable = header.sequence - u64::from(header.lag).min(header.sequence);
            let group = open.get_or_insert_with(|| Group {
                sequence,
                durable,
                stream: Vec::new(),
                data: Vec::new(),
                end: place,
            });
            group.stream.extend_from_slice(&stream);
            if let Some(last) = group.data.last_mut().filter(|_| goes_on) {
                last.behind = last.behind.saturating_add(1);
            }
            group.data.extend(data);
            place.index += 1;
            group.end = place;
            if header.last {
                chain.groups.extend(open.take());
                sequence += 1;
            }
        }
        chain.is_broken = open.is_some();
        Ok(chain)
    }
}

/// A chunk of a group.
pub(super) struct Begun {
    /// The block and the slot in which it begins.
    pub(super) block: u64,
    pub(super) number: u8,
    pub(super) slot: Slot,
    /// Blocks behind that one in which it goes on.
    pub(super) behind: u8,
}

/// Records of a packed block of a group, the chunks that begin there, and whether the last one before goes on there.
type Packed = (PackedHeader, Vec<u8>, Vec<Begun>, bool);

/// A packed block, if it is one.
fn read_packed(
    device: &dyn WritableDevice,
    block: u64,
) -> Result<Result<Packed, Corrupt>, LogError> {
    let bytes = read_block(device, block)?;
    Ok(packed::parse(&bytes).map(|(header, slots)| {
        let records = slots.iter().filter(|slot| slot.kind == SlotKind::Records);
        let stream = records.flat_map(|slot| {
            let start = usize::from(slot.start);
            bytes
                .get(start..start + usize::from(slot.len))
                .unwrap_or_default()
        });
        let data = (0..).zip(&slots).filter(|(_, slot)| is_data(slot));
        let begun = data.map(|(number, &slot)| Begun {
            block,
            number,
            slot,
            behind: 0,
        });
        let first = slots.first();
        let goes_on = first.is_some_and(|slot| slot.kind == SlotKind::Data && slot.continued);
        (header, stream.copied().collect(), begun.collect(), goes_on)
    }))
}

fn is_data(slot: &Slot) -> bool {
    slot.kind == SlotKind::Data && !slot.continued
}
