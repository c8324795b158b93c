//! An archive as the source of an image: a file that holds the content of all regular files, each
//! in extents. It is the archive itself, or what was kept of a stream.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use rustix::fs::AtFlags;

use super::directory::{fingerprint, stat};
use crate::early::{ContentPlace, Segment, Segments};
use crate::tree::{Fingerprint, NodeId};

/// A part of a file that holds data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Extent {
    /// Byte of the file at which it begins.
    pub start: u64,
    pub bytes: u64,
    /// Tells where it lies in the file of content.
    pub place: ContentPlace,
}

impl Extent {
    const fn end(&self) -> u64 {
        self.start + self.bytes
    }
}

/// The content of an archive.
#[derive(Debug)]
pub(crate) struct Contents {
    path: PathBuf,
    file: File,
    /// Tells whether the file is the archive, to which others may write.
    is_archive: bool,
    extents: Vec<Extent>,
    /// For each node its extents, ascending and apart.
    nodes: Vec<Range<u32>>,
    /// Segments of files that are compressed already.
    segments: Option<Segments>,
}

impl Contents {
    pub fn new(path: PathBuf, file: File, is_archive: bool) -> Self {
        Self {
            path,
            file,
            is_archive,
            extents: Vec::new(),
            nodes: Vec::new(),
            segments: None,
        }
    }

    /// Adds the segments of files that are compressed already.
    pub fn with_segments(self, segments: Option<Segments>) -> Self {
        Self { segments, ..self }
    }

    /// Adds the extents of all nodes.
    pub fn with(self, extents: Vec<Extent>, nodes: Vec<Range<u32>>) -> Self {
        Self {
            extents,
            nodes,
            ..self
        }
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns whether the content lies in the archive itself.
    pub fn is_in_place(&self) -> bool {
        self.is_archive
    }

    /// Bytes of the file that the content lies in.
    pub fn bytes(&self) -> io::Result<u64> {
        Ok(self.file.metadata()?.len())
    }

    /// The parts of a regular file, ascending and apart.
    pub fn extents(&self, id: NodeId) -> &[Extent] {
        let Range { start, end } = self.nodes[id as usize];
        &self.extents[start as usize..end as usize]
    }

    /// Returns whether files may be compressed already.
    pub fn has_segments(&self) -> bool {
        self.segments.is_some()
    }

    /// The first block of a file that is in the image already.
    pub fn stored_block(&self, id: NodeId) -> Option<u32> {
        match self.extents(id) {
            [
                Extent {
                    place: ContentPlace::Stored(block),
                    ..
                },
            ] => Some(*block),
            _ => None,
        }
    }

    /// Fills `buf` from a byte of an extent on.
    fn read(&self, place: ContentPlace, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        match (place, &self.segments) {
            (ContentPlace::Segments(run), Some(segments)) => {
                segments.read(&self.file, run, offset, buf)
            }
            (ContentPlace::Segments(_), None) => unreachable!("nothing was compressed"),
            (ContentPlace::Stored(_), _) => Err(io::Error::other("it is in the image already")),
            (ContentPlace::Bytes(place), _) => self.file.read_exact_at(buf, place + offset),
        }
    }

    pub fn file(&self, id: NodeId) -> PackedFile<'_> {
        PackedFile {
            contents: self,
            extents: self.extents(id),
        }
    }

    /// Returns what tells the file from itself at other times; nothing changes one without a name.
    pub fn fingerprint(&self) -> io::Result<Fingerprint> {
        match self.is_archive {
            true => Ok(fingerprint(&stat(&self.file, b"", AtFlags::EMPTY_PATH)?)),
            false => Ok(Fingerprint::default()),
        }
    }
}

/// A regular file of an archive.
pub(crate) struct PackedFile<'a> {
    contents: &'a Contents,
    extents: &'a [Extent],
}

impl PackedFile<'_> {
    pub fn read_exact_at(&self, mut buf: &mut [u8], offset: u64) -> io::Result<()> {
        let mut at = offset;
        let first = self.extents.partition_point(|e| e.end() <= offset);
        for extent in &self.extents[first..] {
            let hole = extent.start.saturating_sub(at).min(buf.len() as u64);
            let (zeros, rest) = buf.split_at_mut(hole as usize);
            zeros.fill(0);
            at += hole;
            let data = (extent.end() - at).min(rest.len() as u64);
            let (data, rest) = rest.split_at_mut(data as usize);
            if !data.is_empty() {
                self.contents.read(extent.place, at - extent.start, data)?;
            }
            at += data.len() as u64;
            buf = rest;
            if buf.is_empty() {
                break;
            }
        }
        buf.fill(0);
        Ok(())
    }

    /// The part of the file that is compressed already, if there is one from `offset` on that has so many bytes.
    pub fn segment(&self, offset: u64, len: u64) -> Option<Segment<'_>> {
        match self.extents {
            [
                Extent {
                    place: ContentPlace::Segments(run),
                    bytes,
                    ..
                },
            ] => {
                let number = run.segment(*bytes, offset, len)?;
                self.contents
                    .segments
                    .as_ref()?
                    .get(&self.contents.file, number)
            }
            _ => None,
        }
    }

    /// Returns the parts that are not holes, as bytes from and to.
    pub fn data_ranges(&self) -> Vec<(u64, u64)> {
        let range = |extent: &Extent| (extent.start, extent.end());
        self.extents.iter().map(range).collect()
    }

    pub fn fingerprint(&self) -> io::Result<Fingerprint> {
        self.contents.fingerprint()
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    #[test]
    fn holes_are_zeros_between_extents() {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(b"..abc..defgh").unwrap();
        let extent = |start, bytes, place| Extent {
            start,
            bytes,
            place: ContentPlace::Bytes(place),
        };
        let extents = vec![extent(0, 9, 0), extent(2, 3, 2), extent(7, 5, 7)];
        let contents = Contents::new("x".into(), file, false).with(extents, vec![0..1, 1..3]);
        let whole = b"\0\0abc\0\0defgh\0\0\0";
        for start in 0..whole.len() {
            for end in start..whole.len() {
                let mut buf = vec![1; end - start];
                let file = contents.file(1);
                file.read_exact_at(&mut buf, start as u64).unwrap();
                assert_eq!(buf, whole[start..end], "{start}..{end}");
            }
        }
        assert_eq!(contents.file(1).data_ranges(), [(2, 5), (7, 12)]);
    }
}
