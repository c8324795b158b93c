//! The places of content in an image, as those need them who build another image from it.

use std::ops::Range;

use anteros_core::{FsError, FsResult, Ino, StoredPlace, StoredRun};
use anteros_format::inode::{DataLayout, Inode};

use crate::error::Result;
use crate::map::{Encoding, Extent, Location, Map, Pcluster, Source};
use crate::vfs::ImageFs;

impl ImageFs {
    /// Tells where bytes of a file lie, or of the packed inode where there is no number: all runs that have some of them, in
    /// order.
    ///
    /// # Errors
    ///
    /// If the index breaks a rule there.
    pub fn stored(&self, ino: Option<Ino>, bytes: Range<u64>) -> FsResult<Vec<StoredRun>> {
        let image = self.image();
        let inode = match (ino, image.superblock().packed) {
            (Some(ino), _) => self.inode(ino)?,
            (None, Some(nid)) => image.inode(nid)?,
            (None, None) => return Ok(Vec::new()),
        };
        let map = image.map(&inode)?;
        Ok(self.runs(&inode, &map, bytes)?)
    }

    /// Bytes of the content of the packed inode, 0 if there is none.
    pub fn packed_bytes(&self) -> u64 {
        self.image().packed_bytes()
    }

    /// Reads content of the packed inode.
    ///
    /// # Errors
    ///
    /// If there is none, it is shorter, or cannot be decoded.
    pub fn read_packed(&self, offset: u64, buf: &mut [u8]) -> FsResult<()> {
        let image = self.image();
        let nid = image.superblock().packed.ok_or(FsError::NotFound)?;
        let inode = image.inode(nid)?;
        let map = image.map(&inode)?;
        match image.read(&inode, &map, offset, buf)? == buf.len() {
            true => Ok(()),
            false => Err(FsError::Corrupt("the packed inode is too short".into())),
        }
    }

    fn runs(&self, inode: &Inode, map: &Map, bytes: Range<u64>) -> Result<Vec<StoredRun>> {
        let mut runs: Vec<StoredRun> = Vec::new();
        let mut at = bytes.start;
        while at < bytes.end.min(inode.size) {
            // Side by side: one that begins elsewhere is left to whoever decodes it.
            let extent = self.image().extent_at(inode, map, at)?;
            let offset = match runs.is_empty() {
                true => extent.offset,
                false => at,
            };
            let place = match extent.offset == offset {
                true => place(inode, self.image().superblock().block_bytes(), &extent),
                false => StoredPlace::Elsewhere,
            };
            let run = StoredRun {
                offset,
                len: extent.end() - offset,
                place,
            };
            match runs.last_mut().filter(|last| goes_on(last, &run)) {
                Some(last) => last.len += run.len,
                None => runs.push(run),
            }
            at = extent.end();
        }
        Ok(runs)
    }
}

/// Returns whether two runs, side by side, are one.
fn goes_on(last: &StoredRun, next: &StoredRun) -> bool {
    match (last.place, next.place) {
        (StoredPlace::Hole, StoredPlace::Hole) => true,
        (StoredPlace::Blocks(at), StoredPlace::Blocks(behind)) => at + last.len == behind,
        _ => false,
    }
}

fn place(inode: &Inode, block_bytes: u32, extent: &Extent) -> StoredPlace {
    let tail = match inode.layout {
        DataLayout::FlatInline => (inode.size - 1) % u64::from(block_bytes) + 1,
        _ => 0,
    };
    match extent.source {
        Source::Hole => StoredPlace::Hole,
        Source::Raw(Location::Device { device: 0, address })
            if extent.end() <= inode.size - tail =>
        {
            StoredPlace::Blocks(address)
        }
        Source::Fragment { offset } => StoredPlace::Packed(offset),
        Source::Pcluster(Pcluster {
            location: Location::Device { device: 0, address },
            bytes,
            encoding: encoding @ (Encoding::Plain | Encoding::Compressed(_)),
            partial,
            inline: false,
        }) => StoredPlace::Stream {
            address,
            bytes,
            algorithm: match encoding {
                Encoding::Compressed(algorithm) => Some(algorithm),
                _ => None,
            },
            partial,
        },
        _ => StoredPlace::Elsewhere,
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use anteros_core::{FileDevice, FileKind, FileSystem};

    use super::*;
    use crate::{Image, OpenOptions, Place};

    /// Tests that runs lie side by side, and that bytes are where they are said to be if they lie there as they are.
    #[test]
    fn all_bytes_of_a_file_lie_somewhere() {
        let mut kinds = [0; 4];
        for name in [
            "chunks",
            "plain",
            "lz4hc-64k",
            "fragments-dedupe",
            "48bit-fixed",
        ] {
            let dir = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/fixtures/");
            let device = FileDevice::open(format!("{dir}{name}.erofs")).unwrap();
            let options = OpenOptions::default();
            let image = Arc::new(Image::open(Arc::new(device), vec![], options).unwrap());
            let fs = ImageFs::new(image.clone());
            let data = image.find(b"data").unwrap();
            for entry in image.read_dir(&data).unwrap() {
                let inode = image.inode(entry.nid).unwrap();
                if inode.kind != FileKind::Regular {
                    continue;
                }
                let ino = Ino(entry.nid.0);
                let runs = fs.stored(Some(ino), 0..inode.size).unwrap();
                let mut at = 0;
                for run in &runs {
                    assert_eq!(run.offset, at, "{name}: {runs:?}");
                    at = run.end();
                    kinds[match run.place {
                        StoredPlace::Blocks(_) => 0,
                        StoredPlace::Stream { .. } => 1,
                        StoredPlace::Packed(_) => 2,
                        StoredPlace::Hole | StoredPlace::Elsewhere => 3,
                    }] += 1;
                    let StoredPlace::Blocks(address) = run.place else {
                        continue;
                    };
                    let [mut found, mut told] = [(); 2].map(|()| vec![0; run.len as usize]);
                    let read = image.read_primary(Place::Image, address, &mut found);
                    read.unwrap();
                    assert_eq!(fs.read(ino, run.offset, &mut told).unwrap(), told.len());
                    assert!(found == told, "{name}: {run:?}");
                }
                assert_eq!(at, inode.size);
                // Those that have a byte in the middle are among them.
                let middle = inode.size / 2;
                let some = fs.stored(Some(ino), middle..inode.size.min(middle + 1));
                assert!(some.unwrap().iter().all(|run| run.end() > middle));
            }
        }
        assert!(kinds[..3].iter().all(|count| *count > 0), "{kinds:?}");
    }
}
