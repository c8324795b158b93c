//! Files of a stream, compressed while more of it comes.
//!
//! The order of files in an image is known when all of a stream has been read. The extents of a file depend on its content
//! alone, so it is compressed before that, by all cores. Its segments are kept in the file of content:
//!
//! ```text
//! stream ─► tar ─► records ─► file of content ─► data, when it is their turn
//! ```
//!
//! They are those that a file of another source is cut into, so the image is the same. Content that is wanted as it
//! was, because compression did not save enough, is decoded.
//!
//! Invariant B9 of `docs/design/building.md`: an archive, a stream of one and a list give the image of the directory.

mod record;

use std::fs::File;
use std::io;

use crate::extent::Extent;
use crate::options::Compression;
use crate::{Options, Order};

pub(crate) use record::{Coding, Record};

/// Tells where content lies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ContentPlace {
    /// As it is, from this byte of the file of content on.
    Bytes(u64),
    /// In these segments.
    Segments(Run),
    /// In the image, from this block on.
    Stored(u32),
}

impl ContentPlace {
    /// The place of what lies so many bytes behind.
    pub fn behind(self, bytes: u64) -> Self {
        match self {
            Self::Bytes(place) => Self::Bytes(place + bytes),
            whole => whole,
        }
    }

    /// The byte of an archive that is read in place.
    pub fn in_archive(self) -> u64 {
        match self {
            Self::Bytes(place) => place,
            Self::Segments(_) | Self::Stored(_) => {
                unreachable!("only content of streams is taken while they are read")
            }
        }
    }
}

/// Segments of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Run {
    /// Number of the first.
    pub first: u64,
    /// Bytes of content in each but the last.
    pub segment_bytes: u32,
}

impl Run {
    /// The number of the segment that holds so many bytes of a file from `offset` on, and no others.
    pub fn segment(&self, file_bytes: u64, offset: u64, len: u64) -> Option<u64> {
        let each = u64::from(self.segment_bytes);
        let is_one = offset % each == 0 && len == each.min(file_bytes - offset);
        is_one.then(|| self.first + offset / each)
    }
}

/// A segment that is compressed.
pub(crate) struct Segment<'a> {
    segments: &'a Segments,
    file: &'a File,
    record: Record,
}

impl Segment<'_> {
    /// Appends its blocks, and tells of its extents.
    pub fn append(&self, out: &mut Vec<u8>) -> io::Result<Vec<Extent>> {
        let start = out.len();
        out.resize(start + self.record.stored as usize, 0);
        self.record.read_blocks(self.file, 0, &mut out[start..])?;
        self.record.extents(self.file)
    }

    /// The content of its last extent, which is one of `extents`.
    pub fn last(&self, extents: &[Extent], out: &[u8]) -> io::Result<Vec<u8>> {
        let Some(last) = extents.last() else {
            return Ok(Vec::new());
        };
        let blocks = &out[out.len() - last.stored as usize..];
        self.segments.coding.content(last, blocks)
    }
}

/// Segments of files in the file of content.
#[derive(Debug)]
pub(crate) struct Segments {
    records: Vec<Record>,
    coding: Coding,
}

impl Segments {
    pub fn new(records: Vec<Record>, coding: Coding) -> Self {
        Self { records, coding }
    }

    /// A segment by its number.
    pub fn get<'a>(&'a self, file: &'a File, number: u64) -> Option<Segment<'a>> {
        let record = *self.records.get(usize::try_from(number).ok()?)?;
        Some(Segment {
            segments: self,
            file,
            record,
        })
    }

    /// Fills `buf` with the content of a file from `offset` on.
    pub fn read(&self, file: &File, run: Run, offset: u64, mut buf: &mut [u8]) -> io::Result<()> {
        let each = u64::from(run.segment_bytes);
        let mut at = offset;
        while !buf.is_empty() {
            let (number, inside) = (run.first + at / each, at % each);
            let len = (each - inside).min(buf.len() as u64);
            let (part, rest) = buf.split_at_mut(len as usize);
            self.read_segment(file, number, inside, part)?;
            at += len;
            buf = rest;
        }
        Ok(())
    }

    /// Fills `buf` with the content of a segment from `offset` on.
    fn read_segment(
        &self,
        file: &File,
        number: u64,
        offset: u64,
        buf: &mut [u8],
    ) -> io::Result<()> {
        let record = self.records[number as usize];
        let wanted = offset..offset + buf.len() as u64;
        let (mut start, mut place) = (0, 0);
        for extent in record.extents(file)? {
            let end = start + u64::from(extent.len);
            let (from, to) = (start.max(wanted.start), end.min(wanted.end));
            if from < to {
                let mut blocks = vec![0; extent.stored as usize];
                record.read_blocks(file, place, &mut blocks)?;
                let content = self.coding.content(&extent, &blocks)?;
                let part = &content[(from - start) as usize..(to - start) as usize];
                buf[(from - offset) as usize..(to - offset) as usize].copy_from_slice(part);
            }
            (start, place) = (end, place + u64::from(extent.stored));
        }
        Ok(())
    }
}

/// The compression of files, if it depends on nothing but their content, and that is not looked at before.
pub(crate) fn compression(options: &Options) -> Option<Compression> {
    let looks = options.dedupe
        || options.fragments.is_some()
        || options.digest_xattr.is_some()
        || options.order == Order::Kind;
    let depends = !options.hints.is_empty() || options.chunk_bytes.is_some();
    options.compression.filter(|_| !looks && !depends)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_whole_segment_is_one() {
        let run = Run {
            first: 7,
            segment_bytes: 100,
        };
        assert_eq!(run.segment(250, 0, 100), Some(7));
        assert_eq!(run.segment(250, 200, 50), Some(9));
        assert_eq!(run.segment(250, 200, 49), None);
        assert_eq!(run.segment(250, 50, 100), None);
        assert_eq!(run.segment(250, 0, 250), None);
    }
}
