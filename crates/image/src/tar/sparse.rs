//! Files with holes, in the form 1.0 of GNU tar.
//!
//! ```text
//! COUNT\n OFFSET\n LENGTH\n OFFSET\n LENGTH\n … zeros up to a block | the segments, one behind the other
//! ```
//!
//! The numbers are decimal. A file that ends with a hole has an empty segment at its end. Segments begin and end with blocks of
//! the archive, but for the last one, as readers copy them block by block.

use std::ops::Range;

use anteros_format::inode::Inode;

use super::record::BLOCK_BYTES;
use crate::{Image, Map, Result, Source};

/// Shorter holes are stored as zeros: they would take more room in the list.
const HOLE_BYTES_MIN: u64 = 4096;

/// Sizes of a file with holes, as the archive has it.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Shape {
    segments: u64,
    /// Bytes of the segments.
    data: u64,
    /// Bytes of the list, but for the count.
    list: u64,
}

impl Shape {
    /// The shape of a file; `None` if it has no holes that are worth it.
    pub(super) fn of(image: &Image, inode: &Inode, map: &Map) -> Result<Option<Self>> {
        let mut shape = Self::default();
        segments(image, inode, map, |segment| {
            shape.add(&segment);
            Ok::<_, crate::Error>(())
        })?;
        Ok((shape.data < inode.size).then_some(shape))
    }

    fn add(&mut self, segment: &Range<u64>) {
        self.segments += 1;
        self.data += segment.end - segment.start;
        self.list += line(segment).len() as u64;
    }

    /// The first line of the list.
    pub(super) fn head(&self) -> String {
        format!("{}\n", self.segments)
    }

    /// Zeros behind the list.
    pub(super) fn padding(&self) -> u64 {
        let list = self.head().len() as u64 + self.list;
        list.next_multiple_of(BLOCK_BYTES as u64) - list
    }

    /// Bytes behind the header: the list, and the segments.
    pub(super) fn bytes(&self) -> u64 {
        self.head().len() as u64 + self.list + self.padding() + self.data
    }
}

/// Lines of the list for a segment.
pub(super) fn line(segment: &Range<u64>) -> String {
    format!("{}\n{}\n", segment.start, segment.end - segment.start)
}

/// Hands over the segments of a file in order: all that is no long hole.
pub(super) fn segments<E: From<crate::Error>>(
    image: &Image,
    inode: &Inode,
    map: &Map,
    mut visit: impl FnMut(Range<u64>) -> Result<(), E>,
) -> Result<(), E> {
    let mut start = 0;
    for extent in image.extents(inode, map) {
        let extent = extent?;
        let hole = whole_blocks(extent.offset, extent.end(), inode.size);
        if extent.source != Source::Hole || hole.end.saturating_sub(hole.start) < HOLE_BYTES_MIN {
            continue;
        }
        if start < hole.start {
            visit(start..hole.start)?;
        }
        start = hole.end;
    }
    visit(start..inode.size)
}

/// The blocks of the archive that lie within a hole of a file.
fn whole_blocks(start: u64, end: u64, size: u64) -> Range<u64> {
    let block = BLOCK_BYTES as u64;
    let end = match end == size {
        true => end,
        false => end - end % block,
    };
    start.next_multiple_of(block)..end
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hole_gives_whole_blocks_alone() {
        assert_eq!(whole_blocks(0, 1000, 5000), 0..512);
        assert_eq!(whole_blocks(1, 1025, 5000), 512..1024);
        assert!(whole_blocks(513, 1000, 1000).is_empty());
        assert_eq!(whole_blocks(512, 1000, 1000), 512..1000);
    }

    #[test]
    fn a_shape_counts_its_list() {
        let mut shape = Shape::default();
        shape.add(&(0..512));
        shape.add(&(8192..8192));
        assert_eq!(
            shape.head() + &line(&(0..512)) + &line(&(8192..8192)),
            "2\n0\n512\n8192\n0\n"
        );
        assert_eq!((shape.padding(), shape.bytes()), (512 - 15, 1024));
    }
}
