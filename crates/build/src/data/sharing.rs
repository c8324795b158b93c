//! The extents of an earlier part of the tree, as another part can have them.

use crate::body::Body;
use crate::compress::{Extent, Share};
use crate::parts::Shared;

/// The part of a file that shares extents.
pub(super) struct Target {
    start: u64,
    end: u64,
    /// Bytes of the file.
    size: u64,
    block_bits: u8,
}

impl Target {
    pub fn new(shared: &Shared, size: u64, block_bits: u8) -> Self {
        Self {
            start: shared.start,
            end: shared.end,
            size,
            block_bits,
        }
    }

    /// The front of some extents that follow each other, each with its first block, as far as the part is long and the index of
    /// the file has room for them.
    pub fn compressed(&self, extents: impl Iterator<Item = (Extent, u32)>) -> Body {
        let mut at = self.start;
        let mut first = None;
        let mut taken = Vec::new();
        for (extent, block) in extents {
            let end = self.end.min(at + u64::from(extent.len));
            if at == end || !self.has_room(&extent, at, end) {
                break;
            }
            let len = (end - at) as u32; // no more than the extent has
            let is_whole = extent.plain || len == extent.len && extent.share != Share::Front;
            let share = if is_whole { Share::Whole } else { Share::Front };
            taken.push(Extent {
                len,
                share,
                ..extent
            });
            first.get_or_insert(block);
            at = end;
        }
        first.map_or_else(Body::default, |block| Body::new(block, taken))
    }

    /// Blocks of a flat file from byte `from` to byte `end` of it.
    pub fn flat(&self, first_block: u32, from: u64, end: u64) -> Body {
        let block_bytes = 1u64 << self.block_bits;
        let blocks = (from..end).step_by(1 << self.block_bits).map(|at| {
            let extent = Extent {
                len: block_bytes.min(end - at) as u32,
                blocks: 1,
                plain: true,
                share: Share::None,
            };
            (extent, first_block + (at / block_bytes) as u32)
        });
        self.compressed(blocks)
    }

    /// Returns whether an extent from one byte to another has entries of its own in the index: one for where it begins,
    /// and a further one for the blocks of its pcluster, if these are several.
    fn has_room(&self, extent: &Extent, at: u64, end: u64) -> bool {
        let needed = match extent.blocks {
            0 => return false,
            1 if end == self.size => 0,
            1 => 1,
            _ => 2,
        };
        (end >> self.block_bits) - (at >> self.block_bits) >= needed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn target(start: u64, end: u64) -> Target {
        Target {
            start,
            end,
            size: 1_000_000,
            block_bits: 12,
        }
    }

    fn extent(len: u32, blocks: u16) -> Extent {
        Extent {
            len,
            blocks,
            plain: false,
            share: Share::None,
        }
    }

    fn lens(body: &Body) -> Vec<(u32, Share)> {
        let extents = body.extents().iter();
        extents.map(|extent| (extent.len, extent.share)).collect()
    }

    #[test]
    fn the_last_extent_is_cut_and_what_has_no_room_is_left_out() {
        let source = [
            (extent(20_000, 2), 7),
            (extent(30_000, 3), 9),
            (extent(500, 0), 12),
        ];
        let share = |start, end| target(start, end).compressed(source.into_iter());
        let whole = (20_000, Share::Whole);
        assert_eq!(lens(&share(100, 50_100)), [whole, (30_000, Share::Whole)]);
        assert_eq!(lens(&share(100, 40_960)), [whole, (20_860, Share::Front)]);
        assert_eq!(lens(&share(100, 53_248)), [whole, (30_000, Share::Whole)]);
        // The entry behind that of the head would be the head of the next extent.
        assert_eq!(lens(&share(100, 20_480)), [whole]);
        assert_eq!(lens(&share(100, 28_672)), [whole, (8572, Share::Front)]);
        assert_eq!(share(100, 28_672).runs()[0].0, 7);
    }

    #[test]
    fn blocks_of_flat_files_are_shared_as_they_are() {
        let body = target(5000, 20_480).flat(3, 8192, 50_000);
        let plain: Vec<_> = lens(&body).into_iter().map(|(len, _)| len).collect();
        assert_eq!((plain, body.runs()[0].0), (vec![4096, 4096, 4096, 3192], 5));
        assert!(
            body.extents()
                .iter()
                .all(|extent| extent.plain && extent.share == Share::Whole)
        );
        assert!(lens(&target(0, 4096).flat(3, 8192, 8192)).is_empty());
    }
}
