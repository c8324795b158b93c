//! Maps of sparse files: which parts of them the archive holds.

use super::fault::{Fault, broken};
use super::feed::Feed;
use super::header::{BLOCK_BYTES, Block, Header, size};
use super::pax::{self, SparseRecords};

/// Most parts of one file: of 4 KiB each with as many holes between them, 32 GiB.
const PARTS_MAX: usize = 4 << 20;
/// Digits of a number in a map, and the line feed behind it.
const LINE_BYTES_MAX: usize = 21;
/// Bytes of a part's start and length in GNU tar's own format.
const PAIR_BYTES: usize = 24;

/// A part of a file that holds data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Part {
    pub start: u64,
    pub bytes: u64,
}

/// A file with its holes.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct SparseMap {
    /// Bytes with the holes.
    pub file_bytes: u64,
    /// Parts, ascending and apart, none of them empty.
    pub parts: Vec<Part>,
    /// Byte at which the last part ends, also an empty one.
    end: u64,
    /// Bytes of all parts.
    stored: u64,
}

impl SparseMap {
    const fn new(file_bytes: u64) -> Self {
        Self {
            file_bytes,
            parts: Vec::new(),
            end: 0,
            stored: 0,
        }
    }

    /// Adds a part, which must come behind the others.
    fn add(&mut self, start: u64, bytes: u64) -> Result<(), Fault> {
        let Self {
            file_bytes, end, ..
        } = *self;
        if start < end {
            return broken(format!(
                "in its map of holes, data from byte {start} on comes behind data up to byte {end}"
            ));
        }
        let end = start.saturating_add(bytes); // sizes of files are less than that
        if end > file_bytes {
            return broken(format!(
                "in its map of holes, data ends at byte {end} of a file of {file_bytes} bytes"
            ));
        }
        self.end = end;
        self.stored += bytes; // within the file
        let count = self.parts.len();
        match self.parts.last_mut() {
            _ if bytes == 0 => {}
            Some(last) if last.start + last.bytes == start => last.bytes += bytes,
            _ if count == PARTS_MAX => {
                return broken(format!("its map of holes has more than {PARTS_MAX} parts"));
            }
            _ => self.parts.push(Part { start, bytes }),
        }
        Ok(())
    }

    /// Checks that the archive holds what the parts tell of, one after the other.
    fn of(self, stored: u64) -> Result<Self, Fault> {
        match self.stored == stored {
            true => Ok(self),
            false => broken(format!(
                "its map of holes tells of {} bytes of data, but the archive has {stored}",
                self.stored
            )),
        }
    }

    /// Reads the map of GNU tar's own format: in the header, and as many blocks behind it as say that another follows.
    pub fn gnu(block: &Block, stored: u64, feed: &mut Feed<'_>) -> Result<Self, Fault> {
        if !Header::parse(block)?.is_gnu() {
            return broken(
                "a sparse file, but not in a format of GNU tar; that one can make it again".into(),
            );
        }
        let file_bytes = size(&block[483..495], "size with holes")?;
        let mut map = Self::new(file_bytes);
        let in_header = &block[386..386 + 4 * PAIR_BYTES];
        let mut is_extended = map.add_pairs(in_header)? && block[482] != 0;
        while is_extended {
            let block = feed.block()?.ok_or(Fault::Truncated)?;
            is_extended = map.add_pairs(&block[..21 * PAIR_BYTES])? && block[504] != 0;
        }
        map.of(stored)
    }

    /// Reads the map that PAX records hold, or announce in front of the content.
    ///
    /// Bytes of the archive that are left for the content are `stored` less those of the map.
    pub fn pax(records: &SparseRecords, stored: u64, feed: &mut Feed<'_>) -> Result<Self, Fault> {
        let version = (records.major.unwrap_or(0), records.minor.unwrap_or(0));
        let mut map = Self::new(records.size.ok_or_else(|| missing("the size"))?);
        match version {
            (0, _) => {
                if records.map.len() % 2 != 0 {
                    return Err(missing("the length of a part"));
                }
                for pair in records.map.chunks_exact(2) {
                    map.add(pair[0], pair[1])?;
                }
                map.of(stored)
            }
            (1, 0) => {
                let mut lines = Lines::new(feed, stored);
                for _ in 0..lines.number()? {
                    map.add(lines.number()?, lines.number()?)?;
                }
                map.of(lines.left)
            }
            (major, minor) => broken(format!(
                "a sparse file of format {major}.{minor}; 0.0, 0.1 and 1.0 are known"
            )),
        }
    }

    /// Adds pairs up to an empty field; answers whether there was none.
    fn add_pairs(&mut self, fields: &[u8]) -> Result<bool, Fault> {
        for field in fields.chunks_exact(PAIR_BYTES) {
            let (start, bytes) = field.split_at(PAIR_BYTES / 2);
            if bytes[0] == 0 {
                return Ok(false);
            }
            let start = size(start, "start of a part")?;
            self.add(start, size(bytes, "length of a part")?)?;
        }
        Ok(true)
    }

    /// Bytes that the archive holds.
    pub const fn stored(&self) -> u64 {
        self.stored
    }
}

fn missing(what: &str) -> Fault {
    Fault::Broken(format!("its PAX records of holes lack {what}"))
}

/// Decimal numbers, a line each, in blocks in front of the content.
struct Lines<'a, 'b> {
    feed: &'a mut Feed<'b>,
    /// Bytes of the member behind the block.
    left: u64,
    block: Block,
    at: usize,
}

impl<'a, 'b> Lines<'a, 'b> {
    const fn new(feed: &'a mut Feed<'b>, stored: u64) -> Self {
        Self {
            feed,
            left: stored,
            block: [0; BLOCK_BYTES],
            at: BLOCK_BYTES,
        }
    }

    fn number(&mut self) -> Result<u64, Fault> {
        let mut line = Vec::with_capacity(LINE_BYTES_MAX);
        loop {
            match self.byte()? {
                b'\n' => break,
                byte if line.len() < LINE_BYTES_MAX => line.push(byte),
                _ => break, // too long for a number
            }
        }
        pax::number(&line).map_err(|reason| Fault::Broken(format!("its map of holes: {reason}")))
    }

    fn byte(&mut self) -> Result<u8, Fault> {
        if self.at == BLOCK_BYTES {
            let left = self.left.checked_sub(BLOCK_BYTES as u64);
            self.left = left.ok_or_else(|| {
                Fault::Broken("its map of holes does not end with the member".into())
            })?;
            self.block = self.feed.block()?.ok_or(Fault::Truncated)?;
            self.at = 0;
        }
        self.at += 1;
        Ok(self.block[self.at - 1])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn map(file_bytes: u64, parts: &[(u64, u64)], stored: u64) -> Result<Vec<Part>, Fault> {
        let mut map = SparseMap::new(file_bytes);
        for (start, bytes) in parts {
            map.add(*start, *bytes)?;
        }
        map.of(stored).map(|map| map.parts)
    }

    #[test]
    fn parts_that_meet_are_one() {
        let parts = [(0, 0), (10, 5), (15, 5), (20, 0), (50, 50), (100, 0)];
        let joined = map(100, &parts, 60);
        let apart = map(100, &[(10, 10), (50, 50)], 60);
        assert_eq!(joined.unwrap(), apart.unwrap());
    }

    #[test]
    fn what_cannot_be_is_refused() {
        for (parts, stored) in [
            (&[(10, 5), (14, 5)][..], 10),
            (&[(50, 5), (10, 5)], 10),
            (&[(96, 5)], 5),
            (&[(96, u64::MAX)], 5),
            (&[(u64::MAX, 2)], 2),
            (&[(10, 5)], 6),
        ] {
            assert!(map(100, parts, stored).is_err(), "{parts:?}");
        }
    }
}
