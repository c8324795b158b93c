//! The room of an older image in which a new one lies: what stays where it is, and what is free.

use std::collections::HashMap;
use std::ops::Range;

use anteros_format::SLOT_BYTES;

use crate::ranges::Ranges;
use crate::tree::NodeId;

/// An inode that a node had in the older image.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Former {
    /// The byte at which it begins.
    pub address: u64,
    /// Its serial number.
    pub serial: u32,
    /// The first block that it tells of.
    pub block: u32,
}

/// The places of a new image that lies in the room of an older one.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Renewed {
    /// Blocks that are free for content.
    pub data: Ranges,
    /// Bytes that are free for inodes.
    pub inodes: Ranges,
    /// All bytes that nothing lies at any more, to be cleared.
    pub cleared: Ranges,
    /// The first block, as their inodes tell, of directories that take as many blocks as before.
    pub blocks: HashMap<NodeId, u32>,
    /// The inodes of nodes that are not new.
    pub former: HashMap<NodeId, Former>,
    /// The end of all that stays, where a block begins.
    pub end: u64,
    /// Bytes of the packed inode, as stored, that no file refers to any more.
    pub packed_waste: u64,
}

/// Finds slots for inodes.
pub(crate) struct Slots<'a> {
    renewed: &'a Renewed,
    free: Ranges,
    block_bytes: u64,
}

impl<'a> Slots<'a> {
    pub fn new(renewed: &'a Renewed, block_bytes: u64) -> Self {
        Self {
            renewed,
            free: renewed.inodes.clone(),
            block_bytes,
        }
    }

    /// The byte at which the inode of a node goes: where it was, or else in the first room for it within a block; `None` if
    /// there is none. `may_lie_at` tells whether it may begin at a byte.
    pub fn take(
        &mut self,
        id: NodeId,
        bytes: u64,
        whole: bool,
        may_lie_at: impl Fn(u64) -> bool,
    ) -> Option<u64> {
        let bytes = bytes.next_multiple_of(SLOT_BYTES);
        let is_there = |at: u64| may_lie_at(at) && (!whole || self.is_in_block(at, bytes));
        let former = self.renewed.former.get(&id).map(|former| former.address);
        let former = former.filter(|&at| is_there(at) && self.free.covers(&(at..at + bytes)));
        let at = former.or_else(|| {
            let starts = self
                .free
                .iter()
                .filter_map(|free| self.first_in(free, bytes));
            starts.filter(|&at| may_lie_at(at)).min()
        })?;
        self.free.remove(at..at + bytes);
        Some(at)
    }

    /// The first byte of a free range from which on so many bytes lie in one block.
    fn first_in(&self, free: Range<u64>, bytes: u64) -> Option<u64> {
        let start = free.start.next_multiple_of(SLOT_BYTES);
        let starts = [start, start.next_multiple_of(self.block_bytes)];
        let fits = |at: &u64| at + bytes <= free.end && self.is_in_block(*at, bytes);
        starts.into_iter().find(fits)
    }

    fn is_in_block(&self, at: u64, bytes: u64) -> bool {
        at % self.block_bytes + bytes <= self.block_bytes
    }

    /// Bytes that are still free.
    pub fn free_bytes(&self) -> u64 {
        self.free.bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_inode_goes_where_it_was_or_where_there_is_room_in_a_block() {
        let former = |address| Former {
            address,
            serial: 1,
            block: 0,
        };
        let renewed = Renewed {
            inodes: [4096..4192, 8000..8320, 12_288..16_384]
                .into_iter()
                .collect(),
            former: [(1, former(8000)), (2, former(4096))].into(),
            ..Renewed::default()
        };
        let mut slots = Slots::new(&renewed, 4096);
        let anywhere = |_| true;
        assert_eq!(slots.take(1, 300, false, anywhere), Some(8000));
        assert_eq!(slots.take(2, 97, true, anywhere), Some(12_288));
        assert_eq!(slots.take(2, 70, true, anywhere), Some(4096));
        assert_eq!(slots.take(3, 64, true, |at| at > 13_000), None);
        assert_eq!(slots.take(4, 3969, true, anywhere), None);
        assert_eq!(slots.take(4, 3968, true, anywhere), Some(12_416));
        assert_eq!(slots.free_bytes(), 0);
        let mut slots = Slots::new(&renewed, 4096);
        // It would cross a block.
        assert_eq!(slots.take(1, 300, true, anywhere), Some(12_288));
    }
}
