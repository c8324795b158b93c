//! Extents of an image that hold the ranges of a profile.

use anteros_format::inode::Inode;
use anteros_image::{Encoding, Extent, Image, Location, Map, Source};
use anteros_trace::profile::Range;

/// A part of a range in an image.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Part {
    /// Tells where its extent lies; of what is not encoded, where the part does.
    pub location: Location,
    /// Bytes that are stored there.
    pub stored: u64,
    /// Bytes that they decode to.
    pub decoded: u64,
    /// Bytes that the range has of these.
    pub wanted: u64,
    /// Tells whether they are compressed.
    pub is_compressed: bool,
}

/// Finds extents of an image.
pub struct Extents<'a> {
    image: &'a Image,
    packed: Option<(Inode, Map)>,
    /// The file that was looked for last.
    last: Option<(Vec<u8>, Inode, Map)>,
}

/// Sorts ranges by where they lie in an image; those that lie nowhere come last.
pub fn by_image(image: &Image, ranges: &mut [Range]) -> Result<()> {
    let mut extents = Extents::new(image)?;
    ranges.sort_by_cached_key(|range| place(&mut extents, range));
    Ok(())
}

/// The place of a range in the image; behind all others if it has none.
fn place(extents: &mut Extents<'_>, range: &Range) -> (bool, Option<Location>) {
    let first = Range {
        len: 1,
        ..range.clone()
    };
    let mut found = None;
    let _ = extents.visit(&first, &mut |part| found = Some(part.location));
    (found.is_none(), found)
}

type Result<T> = std::result::Result<T, anteros_image::Error>;

impl<'a> Extents<'a> {
    /// Nothing is known yet of this image.
    pub fn new(image: &'a Image) -> Result<Self> {
        let packed = match image.superblock().packed {
            Some(nid) => {
                let inode = image.inode(nid)?;
                let map = image.map(&inode)?;
                Some((inode, map))
            }
            None => None,
        };
        Ok(Self {
            image,
            packed,
            last: None,
        })
    }

    /// Shows the parts of a range, in the order of the file. Holes have none.
    pub fn visit(&mut self, range: &Range, show: &mut dyn FnMut(Part)) -> Result<()> {
        if self
            .last
            .as_ref()
            .is_none_or(|(path, ..)| *path != range.path)
        {
            let inode = self.image.find(&range.path)?;
            let map = self.image.map(&inode)?;
            self.last = Some((range.path.clone(), inode, map));
        }
        let Some((_, inode, map)) = &self.last else {
            return Ok(());
        };
        let end = range.end().min(inode.size);
        self.parts(inode, map, range.offset, end, &mut |extent, from, to| {
            let Source::Fragment { offset } = extent.source else {
                part(extent, from, to).into_iter().for_each(&mut *show);
                return Ok(());
            };
            let Some((packed, map)) = &self.packed else {
                return Ok(());
            };
            let at = |byte: u64| offset.saturating_add(byte - extent.offset).min(packed.size);
            self.parts(packed, map, at(from), at(to), &mut |extent, from, to| {
                part(extent, from, to).into_iter().for_each(&mut *show);
                Ok(())
            })
        })
    }

    /// Shows the extents of an inode from one byte to another, with the bytes of each that lie there.
    fn parts(
        &self,
        inode: &Inode,
        map: &Map,
        start: u64,
        end: u64,
        show: &mut dyn FnMut(&Extent, u64, u64) -> Result<()>,
    ) -> Result<()> {
        if start >= end {
            return Ok(());
        }
        for extent in self.image.extents_from(inode, map, start) {
            let extent = extent?;
            if extent.offset >= end {
                break;
            }
            show(&extent, extent.offset.max(start), extent.end().min(end))?;
        }
        Ok(())
    }
}

/// A part from one byte of the file to another, if it is stored anywhere.
fn part(extent: &Extent, from: u64, to: u64) -> Option<Part> {
    let wanted = to - from;
    match extent.source {
        Source::Raw(location) => Some(Part {
            location: location.plus(from - extent.offset)?,
            stored: wanted,
            decoded: wanted,
            wanted,
            is_compressed: false,
        }),
        Source::Pcluster(pcluster) => Some(Part {
            location: pcluster.location,
            stored: pcluster.bytes.into(),
            decoded: extent.len,
            wanted,
            is_compressed: matches!(pcluster.encoding, Encoding::Compressed(_)),
        }),
        Source::Hole | Source::Fragment { .. } => None,
    }
}
