//! The extents of an earlier part of the tree, as another part can have them.

use std::ops::Range;

use crate::Options;
use crate::body::Body;
use crate::extent::{Extent, Share};
use crate::parts::Shared;

/// The part of a file that shares extents.
pub(super) struct Target {
    end: u64,
    /// Bytes of the file.
    size: u64,
    block_bits: u8,
    /// Extents that begin in the same logical cluster need no entry of their own each.
    anywhere: bool,
}

impl Target {
    pub fn new(shared: &Shared, size: u64, options: &Options) -> Self {
        Self {
            end: shared.end,
            size,
            block_bits: options.block_bits,
            anywhere: options.has_encoded_extents(),
        }
    }

    /// The front of some extents that lie behind each other, each with the byte at which it lies, from byte `at` of the file on:
    /// as far as the part is long and the index of the file has room for them.
    pub fn compressed(&self, mut at: u64, extents: &[(Extent, u64)]) -> Body {
        let mut taken = Vec::new();
        for (extent, _) in extents {
            let end = self.end.min(at + u64::from(extent.len));
            if at == end || !self.has_room(extent, at, end) {
                break;
            }
            let len = (end - at) as u32; // no more than the extent has
            let is_whole = extent.plain || len == extent.len && extent.share != Share::Front;
            let share = match (is_whole, extent.share) {
                (true, Share::Kept) => Share::Kept,
                (true, _) => Share::Whole,
                (false, _) => Share::Front,
            };
            taken.push(Extent {
                len,
                share,
                ..*extent
            });
            at = end;
        }
        let place = extents.first().map(|(_, place)| *place);
        place.map_or_else(Body::default, |place| Body::new(place, taken))
    }

    /// Returns whether an extent from one byte to another has entries of its own in the index: one for where it begins,
    /// and a further one for the blocks of its pcluster, if these are several.
    fn has_room(&self, extent: &Extent, at: u64, end: u64) -> bool {
        if self.anywhere {
            return extent.stored > 0;
        }
        let needed = match extent.stored >> self.block_bits {
            0 => return false,
            1 if end == self.size => 0,
            1 => 1,
            _ => 2,
        };
        (end >> self.block_bits) - (at >> self.block_bits) >= needed
    }
}

/// Bytes of a flat file that begins in a block, up to its end, as extents. What lies in front of the next block has no room
/// anywhere, as an extent begins with a block. All that share from the same byte on get the same extents, however much of the last
/// one they use: Linux knows an extent by its place alone.
pub(super) fn flat(
    first_block: u32,
    bytes: Range<u64>,
    options: &Options,
) -> impl Iterator<Item = (Extent, u64)> + use<> {
    let start = u64::from(first_block) << options.block_bits;
    let (block_bytes, anywhere) = (options.block_bytes(), options.has_encoded_extents());
    let block = bytes.start.next_multiple_of(block_bytes.into());
    let front = (bytes.start < block).then(|| {
        let extent = Extent::plain(block - bytes.start, block_bytes, false);
        (
            Extent {
                stored: 0,
                ..extent
            },
            start + bytes.start,
        )
    });
    let mut next = block;
    let blocks = std::iter::from_fn(move || {
        let at = next;
        let left = bytes.end.checked_sub(at).filter(|left| *left > 0)?;
        let extent = Extent::plain(left, block_bytes, anywhere);
        next += u64::from(extent.len);
        Some((extent, start + at))
    });
    front.into_iter().chain(blocks)
}

/// As many of some extents as hold the first `bytes` of their content.
pub(super) fn front(
    extents: impl Iterator<Item = (Extent, u64)>,
    bytes: u64,
) -> Vec<(Extent, u64)> {
    let mut at = 0;
    let front = extents.take_while(|(extent, _)| {
        let begin = at;
        at += u64::from(extent.len);
        begin < bytes
    });
    front.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn target(end: u64) -> Target {
        Target {
            end,
            size: 1_000_000,
            block_bits: 12,
            anywhere: false,
        }
    }

    fn extent(len: u32, blocks: u32) -> Extent {
        Extent {
            len,
            stored: blocks << 12,
            plain: false,
            quick: false,
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
            (extent(20_000, 2), 7 << 12),
            (extent(30_000, 3), 9 << 12),
            (extent(500, 0), 12 << 12),
        ];
        let share = |start, end| target(end).compressed(start, &source);
        let whole = (20_000, Share::Whole);
        assert_eq!(lens(&share(100, 50_100)), [whole, (30_000, Share::Whole)]);
        assert_eq!(lens(&share(100, 40_960)), [whole, (20_860, Share::Front)]);
        assert_eq!(lens(&share(100, 53_248)), [whole, (30_000, Share::Whole)]);
        // The entry behind that of the head would be the head of the next extent.
        assert_eq!(lens(&share(100, 20_480)), [whole]);
        assert_eq!(lens(&share(100, 28_672)), [whole, (8572, Share::Front)]);
        assert_eq!(share(100, 28_672).runs()[0].0, 7 << 12);
    }

    #[test]
    fn blocks_of_flat_files_are_shared_as_they_are() {
        let list = |bytes| flat(3, bytes, &Options::default()).collect::<Vec<_>>();
        let body = target(20_480).compressed(5000, &list(8192..50_000));
        let plain: Vec<_> = lens(&body).into_iter().map(|(len, _)| len).collect();
        assert_eq!(
            (plain, body.runs()[0].0),
            (vec![4096, 4096, 4096, 3192], 5 << 12)
        );
        assert!(
            body.extents()
                .iter()
                .all(|extent| extent.plain && extent.share == Share::Whole)
        );
        assert!(list(8192..8192).is_empty());
        // A part of a file may begin at any byte, an extent of another one at a block alone.
        let front = list(8190..12_289);
        let places: Vec<_> = front.iter().map(|(e, at)| (e.len, e.stored, *at)).collect();
        assert_eq!(
            places,
            [
                (2, 0, 12_288 + 8190),
                (4096, 4096, 20_480),
                (1, 4096, 24_576)
            ]
        );
        assert!(lens(&target(20_480).compressed(5000, &front)).is_empty());
    }
}
