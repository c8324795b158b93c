//! Places for inodes, among blocks that have room.
//!
//! Invariant B8 of `docs/design/building.md`: inodes neither overlap nor cross a block where they must not.

use std::collections::BTreeSet;

use anteros_format::SLOT_BYTES;

use crate::base::Record;
use crate::data::Stored;
use crate::plan::{Intent, Plan, WHOLE_FRAGMENT_BYTES};
use crate::tree::{NodeId, Tree};

/// An inode is small if it takes less than this part of a block, with all that lies behind it.
const SMALL_SHARE: u64 = 64;

/// Blocks that are open for inodes of any size, and for those that are not small.
const NEAR_BLOCKS_MAX: usize = 32;
const FAR_BLOCKS_MAX: usize = 1024;

/// Bytes of an inode and all that lies behind it, and whether these must not cross a block.
pub(crate) fn record_bytes(tree: &Tree, plan: &Plan, id: NodeId, stored: &Stored) -> (u64, bool) {
    let node = tree.node(id);
    let head = plan.head_bytes(id);
    match (stored, &plan.node(id).intent) {
        (Stored::Flat { inline, .. }, _) => (head + inline, *inline > 0),
        (Stored::Compressed { body, tail }, _) => {
            let inline = tail.inline_bytes();
            let index = plan.index_with(id, node, body, *tail);
            let index = index.bytes(head, &body.runs(), *tail, node.size);
            (head + index + inline, inline > 0)
        }
        (Stored::Packed { .. }, _) => (head.next_multiple_of(8) + WHOLE_FRAGMENT_BYTES, false),
        (Stored::Elsewhere, Intent::Elsewhere(file)) => (head + file.bytes_behind(head), false),
        (Stored::Chunked { .. }, Intent::Chunks(chunked)) => {
            (head + chunked.bytes_behind(head, node.size), false)
        }
        _ => (head, false),
    }
}

/// Finds places for inodes.
///
/// A small inode goes to one of the blocks that were opened last, so that those of a directory are
/// read together. One that brings much inline data with it takes a read of its own in any case, and
/// may fill a gap farther back.
#[derive(Debug, Clone)]
pub(crate) struct Packer {
    pub block_bytes: u64,
    /// Blocks with room: those that were opened last, and those before.
    near: OpenBlocks,
    far: OpenBlocks,
    /// Tells where the last block that is in use begins; behind it everything is free.
    pub frontier: u64,
}

impl Packer {
    /// A packer that begins behind `prefix` bytes at the block-aligned `start`.
    pub(crate) fn new(start: u64, prefix: u64, block_bytes: u64) -> Self {
        let used = start + prefix.next_multiple_of(SLOT_BYTES);
        let frontier = used / block_bytes * block_bytes;
        let mut packer = Self {
            block_bytes,
            near: OpenBlocks::default(),
            far: OpenBlocks::default(),
            frontier,
        };
        packer.open(frontier, block_bytes - (used - frontier));
        packer
    }

    /// Returns where a record of so many bytes goes.
    pub(crate) fn place(&mut self, bytes: u64, whole: bool) -> u64 {
        let bytes = bytes.next_multiple_of(SLOT_BYTES);
        let far = match bytes < self.block_bytes / SMALL_SHARE {
            true => None,
            false => self.far.snuggest(bytes),
        };
        let near = self.near.snuggest(bytes);
        match (near, far) {
            (Some(near), far) if far.is_none_or(|far| near <= far) => {
                self.near.take(near, bytes);
                near.1 + self.block_bytes - near.0
            }
            (_, Some(far)) => {
                self.far.take(far, bytes);
                far.1 + self.block_bytes - far.0
            }
            (_, None) => self.place_at_end(bytes, whole),
        }
    }

    /// Returns where the inode of a node goes, with all that lies behind it.
    pub(crate) fn place_node(
        &mut self,
        tree: &Tree,
        plan: &Plan,
        id: NodeId,
        stored: &Stored,
    ) -> u64 {
        match &plan.node(id).intent {
            Intent::Kept(record) => self.place_kept(record),
            Intent::Copied(copied) => {
                let head = plan.head_bytes(id);
                let bytes = head + copied.rest_bytes();
                match copied.place_in_block(head, self.block_bytes) {
                    Some(at) => {
                        let start = self.frontier + self.block_bytes + at;
                        self.end_at(start, bytes);
                        start
                    }
                    None => self.place(bytes, copied.record.is_inline),
                }
            }
            _ => {
                let (bytes, whole) = record_bytes(tree, plan, id, stored);
                self.place(bytes, whole)
            }
        }
    }

    /// Returns where the copy of an inode goes that is in the image already.
    fn place_kept(&mut self, record: &Record) -> u64 {
        match record.is_inline && record.bytes > self.block_bytes {
            false => self.place(record.bytes, record.is_inline),
            true => self.place_kept_at_end(record),
        }
    }

    /// Returns where such a copy goes that is the last one.
    pub(crate) fn place_kept_at_end(&mut self, record: &Record) -> u64 {
        if !record.is_inline || record.bytes <= self.block_bytes {
            return self.place_at_end(record.bytes, record.is_inline);
        }
        let start = self.frontier + self.block_bytes + record.address % self.block_bytes;
        self.end_at(start, record.bytes);
        start
    }

    pub(crate) fn place_at_end(&mut self, bytes: u64, whole: bool) -> u64 {
        let behind = self.frontier + self.block_bytes;
        let room = self.near.room_in(self.frontier).filter(|_| !whole);
        let start = behind - room.unwrap_or(0);
        if let Some(room) = room {
            self.near.take((room, self.frontier), room);
        }
        self.end_at(start, bytes);
        start
    }

    /// Takes a record as the last one.
    fn end_at(&mut self, start: u64, bytes: u64) {
        let end = start + bytes.next_multiple_of(SLOT_BYTES);
        self.frontier = (end - 1) / self.block_bytes * self.block_bytes;
        self.open(self.frontier, self.frontier + self.block_bytes - end);
    }

    fn open(&mut self, block: u64, free: u64) {
        self.near.insert((free, block));
        if self.near.0.len() > NEAR_BLOCKS_MAX {
            let oldest = self.near.0.iter().min_by_key(|(_, block)| *block);
            let oldest = *oldest.expect("there are some");
            self.near.0.remove(&oldest);
            self.far.insert(oldest);
        }
        if self.far.0.len() > FAR_BLOCKS_MAX {
            self.far.0.pop_first();
        }
    }

    /// The end of the last block in use.
    pub(crate) fn end(&self) -> u64 {
        self.frontier + self.block_bytes
    }
}

/// The free bytes at the end of a block, and where it begins.
type Room = (u64, u64);

/// Blocks that have room, by how much.
#[derive(Debug, Default, Clone)]
struct OpenBlocks(BTreeSet<Room>);

impl OpenBlocks {
    fn snuggest(&self, bytes: u64) -> Option<Room> {
        self.0.range((bytes, 0)..).next().copied()
    }

    fn room_in(&self, block: u64) -> Option<u64> {
        let mut blocks = self.0.iter();
        blocks.find(|room| room.1 == block).map(|room| room.0)
    }

    fn take(&mut self, room: Room, bytes: u64) {
        self.0.remove(&room);
        self.insert((room.0 - bytes, room.1));
    }

    fn insert(&mut self, room: Room) {
        if room.0 > 0 {
            self.0.insert(room);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Invariant B8 of `docs/design/building.md`.
    #[test]
    fn records_neither_overlap_nor_cross_blocks_if_they_must_not() {
        let mut packer = Packer::new(8192, 100, 4096);
        let mut state = 1u64;
        let mut places = Vec::new();
        for _ in 0..5000 {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            let whole = state >> 40 & 1 == 0;
            let bytes = 32 + (state >> 33) % if whole { 4065 } else { 20_000 };
            let start = packer.place(bytes, whole);
            assert_eq!(start % 32, 0);
            assert!(!whole || start / 4096 == (start + bytes - 1) / 4096);
            places.push((start, start + bytes));
        }
        places.sort_unstable();
        assert!(places[0].0 >= 8192 + 100);
        assert!(places.windows(2).all(|pair| pair[0].1 <= pair[1].0));
        assert!(places[places.len() - 1].1 <= packer.end());
        assert_eq!(packer.end() % 4096, 0);
    }

    #[test]
    fn a_gap_is_filled_by_what_fits_best() {
        let mut packer = Packer::new(4096, 0, 4096);
        assert_eq!(packer.place(3000, true), 4096);
        assert_eq!(packer.place(3500, true), 8192);
        assert_eq!(packer.place(512, true), 8192 + 3520);
        assert_eq!(packer.place(1000, true), 4096 + 3008);
        assert_eq!(packer.place(10_000, false), 8192 + 4032);
        let ends = [0, 0].map(|_| packer.place_at_end(33, false));
        assert_eq!(ends, [22_240, 22_304]);
    }
}
