//! The place of inodes in an image that is patched, the root among them.
//!
//! Without 48-bit addresses the node id of the root has 16 bits: it must lie within 2 MiB behind the byte from which node ids
//! count. It goes to a free slot there, if it finds one. Else the new bytes begin with slots for this root and those of later
//! patches, and node ids count from at most 2 MiB in front of them: they are in directories alone, all of which are new.
//! Inodes in front of that byte are copied.

use anteros_format::SLOT_BYTES;
use anteros_format::patch::{ROOT_SLOTS, Slots};

use super::renewed::Renewed;

/// Bytes of slots for roots, at least.
const ROOTS_BYTES: u64 = 4096;

/// The place of inodes.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Patched {
    /// The byte from which node ids count, where a block begins.
    pub origin: u64,
    /// The byte at which the root inode begins; `None` if it is one of the others.
    pub root: Option<u64>,
    /// The byte behind slots for roots, where all else that is new begins.
    pub start: u64,
    /// Slots that are still free.
    pub free: Vec<Slots>,
    /// The room of an older image, if a new one is to lie there.
    pub renewed: Option<Renewed>,
}

impl Patched {
    /// The inodes of an image with 48-bit addresses: the root may lie anywhere.
    pub fn anywhere(origin: u64, end: u64) -> Self {
        Self {
            origin,
            root: None,
            start: end,
            free: Vec::new(),
            renewed: None,
        }
    }

    /// Finds a place for a root of so many bytes in an image that ends at the byte `end`, where a block begins, and has these
    /// free slots.
    pub fn with_root(origin: u64, end: u64, free: &[Slots], bytes: u64, block_bytes: u64) -> Self {
        if let Some(slot) = snuggest(free, bytes) {
            return Self {
                origin,
                root: Some(origin + slot * SLOT_BYTES),
                start: end,
                free: without(free, slot, bytes),
                renewed: None,
            };
        }
        let room = ROOTS_BYTES.max(bytes).next_multiple_of(block_bytes);
        let start = end + room;
        let near = start.saturating_sub(ROOT_SLOTS * SLOT_BYTES);
        let moved = origin.max(near.next_multiple_of(block_bytes));
        let first = (end - moved) / SLOT_BYTES;
        let new = Slots {
            first: first as u16,
            count: (room / SLOT_BYTES).min(u16::MAX.into()) as u16,
        };
        let kept = if moved == origin { free } else { &[] };
        let all: Vec<_> = kept.iter().copied().chain([new]).collect();
        Self {
            origin: moved,
            root: Some(end),
            start,
            free: without(&all, first, bytes),
            renewed: None,
        }
    }

    /// Returns whether an inode at a byte of the image has a node id. None has 0.
    pub fn stays(&self, at: u64) -> bool {
        at > self.origin
    }
}

/// The first slot of the smallest range that has room for so many bytes.
fn snuggest(free: &[Slots], bytes: u64) -> Option<u64> {
    let has_room = |slots: &&Slots| u64::from(slots.count) * SLOT_BYTES >= bytes;
    let best = free
        .iter()
        .filter(has_room)
        .min_by_key(|slots| slots.count)?;
    Some(best.first.into())
}

/// Ranges of slots without some at the beginning of one of them.
fn without(free: &[Slots], first: u64, bytes: u64) -> Vec<Slots> {
    let taken = bytes.div_ceil(SLOT_BYTES) as u16; // no more than the range has
    let left = free
        .iter()
        .map(|slots| match u64::from(slots.first) == first {
            true => Slots {
                first: slots.first.wrapping_add(taken),
                count: slots.count - taken,
            },
            false => *slots,
        });
    left.filter(|slots| slots.count > 0).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn slots(first: u16, count: u16) -> Slots {
        Slots { first, count }
    }

    #[test]
    fn the_smallest_range_with_room_is_taken_from_its_beginning() {
        let free = [slots(5, 9), slots(100, 3), slots(200, 1)];
        let found = [32, 64, 97].map(|bytes| {
            let home = Patched::with_root(8192, 1 << 20, &free, bytes, 4096);
            assert_eq!((home.origin, home.start), (8192, 1 << 20));
            ((home.root.unwrap() - 8192) / 32, home.free.len())
        });
        assert_eq!(found, [(200, 2), (100, 3), (5, 3)]);
        let left = [slots(5, 9), slots(102, 1), slots(200, 1)];
        assert_eq!(without(&free, 100, 60), left);
    }

    /// Tests that the node id of the root has 16 bits wherever the image ends, and that slots for later ones have as well.
    #[test]
    fn a_root_without_a_slot_lies_near_the_origin() {
        for block_bytes in [512, 4096, 65_536] {
            for end in [2, 30, 300, 5000, 1 << 30].map(|blocks| blocks * block_bytes) {
                for bytes in [32, 64, 5000, 64 << 10] {
                    let home =
                        Patched::with_root(block_bytes, end, &[slots(9, 0)], bytes, block_bytes);
                    assert_eq!((home.origin % block_bytes, home.root), (0, Some(end)));
                    assert!(home.start >= end + bytes && home.start % block_bytes == 0);
                    assert!((end - home.origin) / 32 < 1 << 16);
                    assert!(home.origin == block_bytes || home.start - home.origin <= 2 << 20);
                    assert!(home.free.iter().all(|free| free.end() <= 1 << 16));
                }
            }
        }
        let far = Patched::with_root(0, 1 << 30, &[], 32, 4096);
        assert_eq!(far.origin, (1 << 30) + 4096 - (2 << 20));
        assert_eq!(far.free, [slots(65_409, 127)]);
        assert!(far.stays(far.origin + 32) && !far.stays(far.origin));
    }
}
