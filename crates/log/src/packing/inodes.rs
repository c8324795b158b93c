//! Inodes in slots of packed blocks: one alone is mostly zeros.

use anteros_core::FsResult;

use crate::compress::codec::Codec;
use crate::layout::checkpoint::HeadKind;
use crate::layout::packed::{Slot, SlotKind};
use crate::layout::{BLOCK_BYTES, ROOT};
use crate::nodes::place::NodePlace;
use crate::packing::Packer;
use crate::packing::pack::Packing;
use crate::statistics::Cause;

/// The most bytes of an inode in a slot: a larger one has a block for itself.
const INODE_MAX: usize = BLOCK_BYTES / 4 * 3;

/// Bytes that attributes may add to an inode that was in a slot: no block is counted for it.
const ATTRIBUTES_MAX: usize = 256;

impl Packer {
    /// Writes the inodes that are dirty and may share blocks to packed ones, but for those that shrink too little. The
    /// others stay dirty.
    pub(crate) fn pack_inodes(&mut self) -> FsResult<()> {
        let mut packing = Packing::apart(HeadKind::Moved);
        let inos = self.inodes_to_write();
        let mut inos = inos.into_iter();
        let packed = inos.try_for_each(|ino| self.pack_inode(ino, &mut packing).map(drop));
        self.seal(&mut packing, true);
        packed
    }

    /// Returns whether an inode is written to a slot, if it shrinks. The root has a block for itself: no other one that is
    /// damaged takes it along.
    pub(crate) fn may_share_block(&mut self, ino: u32) -> FsResult<bool> {
        let kind = self.known_kind(ino)?;
        Ok(ino != ROOT && self.packs_inodes(kind))
    }

    /// Writes an inode to the next slot. Says whether it may lie there, and shrinks enough for that.
    pub(crate) fn pack_inode(&mut self, ino: u32, packing: &mut Packing) -> FsResult<bool> {
        if !self.may_share_block(ino)? {
            return Ok(false);
        }
        let version = self.store.version() + 1;
        let live = self.live(ino)?;
        let most = match live.has_block {
            true => INODE_MAX,
            false => INODE_MAX + ATTRIBUTES_MAX,
        };
        let (_, block) = live.sealed(ino, version);
        let Some(bytes) = self.compressor.block(Codec::Lz4, &block, most) else {
            return Ok(false);
        };
        let (place, slot) = self.push_node(packing, ino, Codec::Lz4 as u8, &bytes)?;
        self.note_packed(ino, place, slot)?;
        Ok(true)
    }

    /// Moves an inode that lies in a slot, as it is.
    pub(super) fn move_inode(
        &mut self,
        slot: &Slot,
        from: NodePlace,
        bytes: &[u8],
        packing: &mut Packing,
    ) -> FsResult<()> {
        if self.place_of(slot.lblk)? != from {
            return Ok(());
        }
        let (place, number) = self.push_node(packing, slot.lblk, slot.codec, bytes)?;
        self.settle_node(slot.lblk, slot.ino, NodePlace::Slot(place, number))
    }

    fn push_node(
        &mut self,
        packing: &mut Packing,
        ino: u32,
        codec: u8,
        bytes: &[u8],
    ) -> FsResult<(u64, u8)> {
        let slot = Slot {
            codec,
            blocks: 1,
            ino,
            lblk: ino,
            ..Slot::new(SlotKind::Node)
        };
        self.push_whole(packing, slot, bytes, Cause::Node)
    }
}
