//! Slots that become valid or are given up, and with the first and the last one of a block, the block itself.

use anteros_core::FsResult;

use crate::statistics::Cause;
use crate::store::blocks::Store;
use crate::store::table::Stated;

impl Store {
    /// A slot of a packed block is valid from now on.
    pub(crate) fn occupy(&mut self, block: u64, slot: u8) {
        let valid = self.bst.valid(block);
        if valid == 0 {
            self.mark(block);
            self.space.charge(1);
        }
        self.bst.set(block, valid | 1 << slot);
    }

    /// A slot is not valid any more.
    pub(crate) fn vacate(&mut self, block: u64, slot: u8) {
        let before = self.bst.valid(block);
        let valid = before & !(1 << slot);
        if valid == before {
            return;
        }
        self.bst.set(block, valid);
        if valid == 0 {
            self.invalidate(block);
            self.space.give(1);
        }
    }

    /// Journal of valid slots for a checkpoint; if it is too long for that, the table is written.
    pub(crate) fn bst_journal(&mut self) -> FsResult<Stated<(u64, u32)>> {
        let stated = self.bst.checkpoint()?;
        self.statistics
            .wrote_blocks(Cause::Checkpoint, stated.written);
        Ok(stated)
    }

    /// Says which slots of a block are valid, whatever was said before: a repair knows better.
    pub(crate) fn correct_slots(&mut self, block: u64, valid: u32) {
        self.bst.set(block, valid);
    }

    /// Returns whether a slot is valid.
    pub(crate) fn is_occupied(&self, block: u64, slot: u8) -> bool {
        self.bst.valid(block) >> slot & 1 == 1
    }
}
