//! Packed blocks whose segment is cleaned: what is valid in them is packed again, without being decoded.

use anteros_core::FsResult;

use crate::compress::chunks::Chunk;
use crate::compress::policy::Rules;
use crate::layout::packed::{self, Slot, SlotKind};
use crate::layout::pointer::{Pointer, Slotted};
use crate::layout::summary::Owner;
use crate::nodes::place::NodePlace;
use crate::packing::Packer;
use crate::packing::pack::{BEHIND_MAX, Packing};
use crate::packing::unpack::{broken, stored};

impl Packer {
    /// Moves what is valid in a packed block.
    pub(crate) fn relocate_packed(&mut self, block: u64, packing: &mut Packing) -> FsResult<()> {
        let bytes = self.store.fetch(block)?;
        let (_, slots) = packed::parse(&bytes)?;
        for (number, slot) in (0..).zip(&slots) {
            if !self.store.is_occupied(block, number) {
                continue;
            }
            if slot.kind == SlotKind::Node {
                let from = NodePlace::Slot(block, number);
                self.move_inode(slot, from, slot.bytes(&bytes), packing)?;
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
            let (_, slots) = packed::parse(&*self.store.fetch(before)?)?;
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
        let (slot, bytes) = stored(whose, head, |block| self.store.fetch(block))?;
        let chunk = Chunk {
            ino: slot.ino,
            lblk: slot.lblk,
            blocks: slot.blocks,
            codec: slot.codec,
            core: slot.core,
            bytes,
        };
        let rules = Rules {
            slots: self.store.superblock().slots_max,
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
