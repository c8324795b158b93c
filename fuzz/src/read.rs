//! The target `read`.

use anteros_format::EXTENT_BYTES_MAX;
use anteros_format::inode::Inode;
use anteros_image::{Error, Extent, Image, Location, Map, Reader, Result, Source};

use super::image::{Budget, inodes, open_image};

/// Extents that are taken from a file.
const EXTENTS_MAX: usize = 64;
/// Bytes that are read at a time, at odd offsets.
const PIECE_BYTES: usize = 3000;
/// States what a lookup counts as, in bytes.
const LOOKUP_BYTES: u64 = 4096;
/// Bytes that are decoded or copied in all.
const WORK_BYTES: u64 = 48 << 20;

/// Maps and reads every file of the tree, at offsets that are odd or beyond the end.
///
/// Extents stand side by side; a read says how much it read; three ways to read an extent agree: at once, by a
/// [`Reader`], and a piece of it through the cache.
pub fn read(input: &[u8]) {
    let Ok(image) = open_image(input) else { return };
    let mut budget = Budget(WORK_BYTES);
    for inode in inodes(&image) {
        let Ok(map) = image.map(&inode) else { continue };
        let file = File {
            image: &image,
            inode: &inode,
            map: &map,
        };
        file.read_extents(&mut budget);
        file.read_offsets(&mut budget);
    }
}

/// Returns whether its bytes lie on a device. Else they are content of another inode, whose index may be hostile in its
/// turn: then pieces of it need not fit together.
fn is_direct(extent: &Extent) -> bool {
    let location = match extent.source {
        Source::Raw(location) => location,
        Source::Pcluster(pcluster) => pcluster.location,
        Source::Hole | Source::Fragment { .. } => return false,
    };
    matches!(location, Location::Device { .. })
}

struct File<'a> {
    image: &'a Image,
    inode: &'a Inode,
    map: &'a Map,
}

impl File<'_> {
    fn read_extents(&self, budget: &mut Budget) {
        let mut end = 0;
        let extents = self.image.extents(self.inode, self.map);
        for extent in extents.take(EXTENTS_MAX) {
            let Ok(extent) = extent else { return };
            assert_eq!(extent.offset, end, "{extent:?}");
            assert!(extent.len > 0, "{extent:?}");
            end = extent.end();
            assert!(end <= self.inode.size, "{extent:?}");
            let is_long = extent.len > EXTENT_BYTES_MAX;
            if extent.source == Source::Hole || is_long {
                continue;
            }
            if !budget.spend(3 * extent.len + LOOKUP_BYTES) {
                return;
            }
            match is_direct(&extent) {
                true => self.compare_ways(&extent),
                false => drop(self.stream(&extent)),
            }
        }
    }

    /// Reads an extent in three ways.
    fn compare_ways(&self, extent: &Extent) {
        let mut at_once = vec![0; extent.len as usize];
        let read = self.read(extent.offset, &mut at_once);
        let streamed = self.stream(extent);
        match (&read, &streamed) {
            (Ok(_), Ok(streamed)) => assert!(*streamed == at_once, "{extent:?}"),
            (Err(_), Err(_)) => return,
            _ => panic!("{extent:?}: {read:?}, but by a reader {streamed:?}"),
        }
        let (skip, len) = (extent.len / 2, extent.len.div_ceil(3));
        let middle = extent.offset + skip;
        let found = self.image.extent_at(self.inode, self.map, middle);
        // A hostile index may have another extent there.
        if found.is_ok_and(|found| found == *extent) {
            let mut piece = vec![0; len.min(extent.len - skip) as usize];
            let read = self.read(middle, &mut piece);
            assert_eq!(read.expect("a piece of what could be read"), piece.len());
            let is_same = at_once[skip as usize..].starts_with(&piece);
            assert!(is_same, "{extent:?}");
        }
    }

    fn stream(&self, extent: &Extent) -> Result<Vec<u8>> {
        let mut content = Vec::new();
        let mut reader = Reader::new(self.image);
        reader.read_extent(self.inode, extent, |offset, piece| {
            assert_eq!(offset, extent.offset + content.len() as u64);
            content.extend_from_slice(piece);
            Ok::<_, Error>(())
        })?;
        Ok(content)
    }

    fn read_offsets(&self, budget: &mut Budget) {
        let size = self.inode.size;
        let block = u64::from(self.image.superblock().block_bytes());
        let near = [0, 1, block - 1, block, 3 * block + 1];
        let far = [
            size / 2,
            size.saturating_sub(1),
            size,
            size.saturating_add(1),
        ];
        let mut piece = [0; PIECE_BYTES];
        for offset in near.into_iter().chain(far).chain([1 << 40, u64::MAX]) {
            if !budget.spend(self.cost(offset)) {
                return;
            }
            // May fail where the index or the data is broken.
            let _ = self.read(offset, &mut piece);
        }
    }

    /// Returns what reading a piece costs, about, in bytes.
    fn cost(&self, offset: u64) -> u64 {
        let is_inside = offset < self.inode.size;
        let extent = is_inside.then(|| self.image.extent_at(self.inode, self.map, offset));
        match extent {
            Some(Ok(extent)) => LOOKUP_BYTES + extent.len.min(EXTENT_BYTES_MAX),
            _ => LOOKUP_BYTES,
        }
    }

    /// Reads, and checks the number of bytes.
    fn read(&self, offset: u64, buf: &mut [u8]) -> Result<usize> {
        let count = self.image.read(self.inode, self.map, offset, buf)?;
        let left = self.inode.size.saturating_sub(offset);
        assert_eq!(count as u64, left.min(buf.len() as u64), "at {offset}");
        Ok(count)
    }
}
