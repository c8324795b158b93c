//! Packed blocks that were read before anyone asked, and are here.

use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ops::Range;
use std::sync::Arc;

use crate::layout::Block;
use crate::layout::packed::{self, Slot, SlotKind};

/// A block that was read.
#[derive(Debug, Clone)]
pub(crate) struct Kept {
    pub(super) block: Arc<Block>,
    /// Its slots, if it is a packed one.
    slots: Arc<[Slot]>,
    /// Logical blocks that launches want from here on, if that is known.
    pub(super) left: Option<u64>,
    /// Those whose pages the users have been given.
    pub(super) pushed: u32,
}

impl Kept {
    pub(super) fn new(block: &Block) -> Self {
        let (header, slots) = packed::parse(block).unwrap_or_default();
        Self {
            block: Arc::new(*block),
            slots: slots.into(),
            left: Some(header.left.into()).filter(|&left| left > 0),
            pushed: 0,
        }
    }

    /// The chunks that begin here and that no user has been given, with the numbers of their slots.
    pub(crate) fn unpushed(&self) -> impl Iterator<Item = (u8, &Slot)> {
        let slots = (0..).zip(self.slots.iter());
        slots.filter(|(number, slot)| {
            slot.kind == SlotKind::Data && !slot.continued && self.pushed >> number & 1 == 0
        })
    }

    pub(super) fn is_spent(&self) -> bool {
        self.unpushed().next().is_none()
    }

    /// Returns whether launches read anything of it again and again.
    pub(super) fn has_core(&self) -> bool {
        self.slots.iter().any(|slot| slot.core)
    }

    /// Returns the inodes of its slots, each once.
    fn inodes(&self) -> BTreeSet<u32> {
        self.slots.iter().map(|slot| slot.ino).collect()
    }
}

/// Blocks by their places, and how many of them have something of an inode.
#[derive(Default)]
pub(super) struct KeptBlocks {
    blocks: BTreeMap<u64, Kept>,
    inodes: HashMap<u32, u32>,
}

impl KeptBlocks {
    pub(super) fn len(&self) -> usize {
        self.blocks.len()
    }

    pub(super) fn get(&self, place: u64) -> Option<&Kept> {
        self.blocks.get(&place)
    }

    pub(super) fn range(&self, range: Range<u64>) -> impl Iterator<Item = (&u64, &Kept)> {
        self.blocks.range(range)
    }

    pub(super) fn insert(&mut self, place: u64, kept: Kept) {
        self.remove(place);
        for ino in kept.inodes() {
            *self.inodes.entry(ino).or_default() += 1;
        }
        self.blocks.insert(place, kept);
    }

    pub(super) fn remove(&mut self, place: u64) {
        let removed = self.blocks.remove(&place);
        for ino in removed.iter().flat_map(Kept::inodes) {
            if let Entry::Occupied(mut count) = self.inodes.entry(ino) {
                *count.get_mut() -= 1;
                if *count.get() == 0 {
                    count.remove();
                }
            }
        }
    }

    pub(super) fn remove_all(&mut self, range: Range<u64>) {
        let places: Vec<u64> = self.blocks.range(range).map(|(&place, _)| place).collect();
        places.into_iter().for_each(|place| self.remove(place));
    }

    /// Notes that the users have been given a chunk.
    pub(super) fn note_pushed(&mut self, place: u64, slot: u8) {
        if let Some(kept) = self.blocks.get_mut(&place) {
            kept.pushed |= 1 << slot;
        }
    }

    /// Returns whether there is anything of an inode that the users have not been given.
    pub(super) fn has_unpushed(&self, ino: u32) -> bool {
        let has = |kept: &Kept| kept.unpushed().any(|(_, slot)| slot.ino == ino);
        self.inodes.contains_key(&ino) && self.blocks.values().any(has)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layout::packed::{PackedBlock, PackedHeader};

    fn block(inodes: &[u32]) -> Kept {
        let mut block = PackedBlock::new(PackedHeader::default());
        for &ino in inodes {
            let slot = Slot {
                ino,
                blocks: 1,
                ..Slot::new(SlotKind::Data)
            };
            block.push(slot, b"content");
        }
        Kept::new(&block.finish())
    }

    #[test]
    fn inodes_are_known_as_long_as_a_block_has_something_of_them() {
        let mut kept = KeptBlocks::default();
        kept.insert(7, block(&[1, 2, 1]));
        kept.insert(8, block(&[2, 3]));
        kept.insert(8, block(&[2, 3]));
        let known = |kept: &KeptBlocks| [1, 2, 3].map(|ino| kept.has_unpushed(ino));
        assert_eq!(known(&kept), [true, true, true]);
        kept.note_pushed(8, 1);
        assert_eq!(known(&kept), [true, true, false]);
        kept.remove(7);
        kept.remove(7);
        assert_eq!(known(&kept), [false, true, false]);
        kept.remove_all(0..9);
        assert_eq!((kept.len(), kept.inodes.len()), (0, 0));
    }
}
