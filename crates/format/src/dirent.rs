//! Directory blocks.
//!
//! A directory is a sequence of blocks that stand alone: a table of 12-byte entries, then the names
//! without separators. The last block may be cut off at the size of the directory. Names ascend
//! strictly in byte order, `.` and `..` included, through all blocks.

use anteros_core::FileKind;
use zerocopy::little_endian::{U16, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::{Corrupt, Nid};

/// A directory entry as it lies on disk.
///
/// ```text
/// byte 0            8         10     11         12
///      |    nid     | nameoff | type | reserved |
/// ```
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
#[allow(missing_docs)] // the specification's own names, drawn above
pub struct RawDirent {
    pub nid: U64,
    /// Tells where the name begins, from the start of the block.
    pub nameoff: U16,
    pub file_type: u8,
    pub reserved: u8,
}

/// Bytes of an entry without its name.
pub const DIRENT_BYTES: usize = 12;

/// Longest name in bytes.
pub const NAME_BYTES_MAX: usize = 255;

const _: () = assert!(size_of::<RawDirent>() == DIRENT_BYTES);

/// An entry that may be relied on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Dirent<'a> {
    /// The inode it names.
    pub nid: Nid,
    /// The kind it says that inode is.
    pub kind: FileKind,
    /// 1 to 255 bytes without `/` and NUL.
    pub name: &'a [u8],
}

/// A directory block whose entry table has been checked; entries are checked as they are read.
#[derive(Debug, Clone, Copy)]
pub struct DirBlock<'a> {
    block: &'a [u8],
    count: usize,
}

impl<'a> DirBlock<'a> {
    /// Checks the entry table of a block, cut off at the end of the directory if it is the last.
    ///
    /// Names begin where the table ends, so the first entry's `nameoff` is also its length.
    ///
    /// # Errors
    ///
    /// [`Corrupt::DirentTable`].
    pub fn parse(block: &'a [u8]) -> Result<Self, Corrupt> {
        let first = RawDirent::read_from_prefix(block);
        let nameoff = first.map_or(0, |(first, _)| first.nameoff.get());
        let table = usize::from(nameoff);
        if table == 0 || table % DIRENT_BYTES != 0 || table >= block.len() {
            return Err(Corrupt::DirentTable {
                nameoff,
                block_len: block.len(),
            });
        }
        Ok(Self {
            block,
            count: table / DIRENT_BYTES,
        })
    }

    /// Returns how many entries there are, at least one.
    pub const fn len(&self) -> usize {
        self.count
    }

    /// Never: a block without entries is refused.
    pub const fn is_empty(&self) -> bool {
        false
    }

    /// Entry `index`.
    ///
    /// # Errors
    ///
    /// If its name lies outside the name table, is empty, too long or has a forbidden byte, or its
    /// type is unknown.
    ///
    /// # Panics
    ///
    /// If there is no such entry.
    pub fn entry(&self, index: usize) -> Result<Dirent<'a>, Corrupt> {
        let raw = self.raw(index);
        let file_type = raw.file_type;
        Ok(Dirent {
            nid: Nid(raw.nid.get()),
            kind: kind_of(file_type).ok_or(Corrupt::DirentType { index, file_type })?,
            name: self.name(index)?,
        })
    }

    /// The name of entry `index` alone.
    ///
    /// # Errors
    ///
    /// As [`entry`](Self::entry), but for the type.
    ///
    /// # Panics
    ///
    /// If there is no such entry.
    pub fn name(&self, index: usize) -> Result<&'a [u8], Corrupt> {
        let table = self.count * DIRENT_BYTES;
        let nameoff = self.raw(index).nameoff.get();
        let start = usize::from(nameoff);
        let last = index + 1 == self.count;
        let end = if last {
            self.block.len()
        } else {
            self.raw(index + 1).nameoff.get().into()
        };
        let upper = end.min(self.block.len());
        if start < table || start >= upper || end > self.block.len() {
            return Err(Corrupt::DirentName {
                index,
                nameoff,
                lower: table,
                upper,
            });
        }
        let mut name = &self.block[start..end];
        if last {
            // The last name ends at the first NUL, or with the block.
            name = name.split(|&b| b == 0).next().unwrap_or_default();
        }
        if !(1..=NAME_BYTES_MAX).contains(&name.len()) {
            return Err(Corrupt::DirentNameLength {
                index,
                len: name.len(),
            });
        }
        if name.iter().any(|&b| b == b'/' || b == 0) {
            return Err(Corrupt::DirentNameByte {
                index,
                name: name.escape_ascii().to_string(),
            });
        }
        Ok(name)
    }

    /// Finds an entry by name; `Err` of the inner result says where it would stand.
    ///
    /// # Errors
    ///
    /// As [`entry`](Self::entry), for the entries that the binary search touches.
    pub fn search(&self, name: &[u8]) -> Result<Result<Dirent<'a>, usize>, Corrupt> {
        let (mut low, mut high) = (0, self.count);
        while low < high {
            let middle = low + (high - low) / 2;
            match self.name(middle)?.cmp(name) {
                std::cmp::Ordering::Equal => return Ok(Ok(self.entry(middle)?)),
                std::cmp::Ordering::Less => low = middle + 1,
                std::cmp::Ordering::Greater => high = middle,
            }
        }
        Ok(Err(low))
    }

    fn raw(&self, index: usize) -> RawDirent {
        assert!(index < self.count, "entry {index} of {}", self.count);
        let at = index * DIRENT_BYTES;
        RawDirent::read_from_bytes(&self.block[at..at + DIRENT_BYTES]).expect("12 bytes")
    }
}

/// The kind that a file type on disk names.
pub const fn kind_of(file_type: u8) -> Option<FileKind> {
    Some(match file_type {
        1 => FileKind::Regular,
        2 => FileKind::Directory,
        3 => FileKind::CharDevice,
        4 => FileKind::BlockDevice,
        5 => FileKind::Fifo,
        6 => FileKind::Socket,
        7 => FileKind::Symlink,
        _ => return None,
    })
}

/// The inverse of [`kind_of`].
pub const fn file_type_of(kind: FileKind) -> u8 {
    match kind {
        FileKind::Regular => 1,
        FileKind::Directory => 2,
        FileKind::CharDevice => 3,
        FileKind::BlockDevice => 4,
        FileKind::Fifo => 5,
        FileKind::Socket => 6,
        FileKind::Symlink => 7,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn block(names: &[&[u8]]) -> Vec<u8> {
        let mut nameoff = names.len() * DIRENT_BYTES;
        let mut block = Vec::new();
        for (nid, name) in (36u64..).zip(names) {
            let nid = nid.into();
            let raw = RawDirent {
                nid,
                nameoff: (nameoff as u16).into(),
                file_type: 1,
                reserved: 0,
            };
            block.extend_from_slice(raw.as_bytes());
            nameoff += name.len();
        }
        names.iter().for_each(|name| block.extend_from_slice(name));
        block
    }

    #[test]
    fn finds_each_name_and_no_other() {
        let names: Vec<&[u8]> = vec![b".", b"..", b"a", b"bc", b"z"];
        let bytes = [block(&names), vec![0; 7]].concat();
        let block = DirBlock::parse(&bytes).unwrap();
        assert_eq!(block.len(), 5);
        for (index, name) in names.iter().enumerate() {
            let found = block.search(name).unwrap().unwrap();
            assert_eq!((found.name, found.nid), (*name, Nid(36 + index as u64)));
        }
        assert_eq!(block.search(b"b").unwrap(), Err(3));
        assert_eq!(block.search(b"zz").unwrap(), Err(5));
    }

    #[test]
    fn refuses_bad_tables() {
        let good = block(&[b"a"]);
        for nameoff in [0u16, 11, 13, 24, u16::MAX] {
            let mut bad = good.clone();
            bad[8..10].copy_from_slice(&nameoff.to_le_bytes());
            let block_len = bad.len();
            let error = DirBlock::parse(&bad).unwrap_err();
            assert_eq!(error, Corrupt::DirentTable { nameoff, block_len });
        }
        assert!(DirBlock::parse(&[]).is_err());
        assert!(DirBlock::parse(&good[..11]).is_err());
    }

    #[test]
    fn refuses_bad_names() {
        let broken = |at: usize, value: u16| {
            let mut bad = block(&[b"a", b"bb"]);
            bad[at..at + 2].copy_from_slice(&value.to_le_bytes());
            DirBlock::parse(&bad)
                .unwrap()
                .entry(0)
                .map(|_| ())
                .unwrap_err()
        };
        assert!(
            matches!(broken(20, 24), Corrupt::DirentName { .. }),
            "runs backwards"
        );
        assert!(
            matches!(broken(20, 4000), Corrupt::DirentName { .. }),
            "beyond the block"
        );
        let slash = block(&[b"a/b", b"c"]);
        let error = DirBlock::parse(&slash).unwrap().entry(0).unwrap_err();
        assert!(matches!(error, Corrupt::DirentNameByte { .. }));
        let long = block(&[&[b'x'; 256]]);
        let error = DirBlock::parse(&long).unwrap().entry(0).unwrap_err();
        assert_eq!(error, Corrupt::DirentNameLength { index: 0, len: 256 });
    }

    #[test]
    fn refuses_unknown_types() {
        let mut bad = block(&[b"a"]);
        bad[10] = 9;
        let error = DirBlock::parse(&bad).unwrap().entry(0).unwrap_err();
        assert_eq!(
            error,
            Corrupt::DirentType {
                index: 0,
                file_type: 9
            }
        );
    }
}
