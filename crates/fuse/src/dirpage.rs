//! The payload of READDIR and READDIRPLUS: records packed one after the other.
//!
//! ```text
//! READDIR:                  | Dirent (24) | name | 0..7 zeros |
//! READDIRPLUS: | EntryOut (128) | Dirent (24) | name | 0..7 zeros |
//! ```

use anteros_core::{DirEntry, FileKind, Ino};
use zerocopy::{FromBytes, FromZeros, IntoBytes};

use crate::proto::{Dirent, EntryOut};

/// A reply to READDIR(PLUS) being filled.
pub struct DirPage<'buf> {
    buf: &'buf mut [u8],
    len: usize,
    /// Bytes before the `Dirent` of each record.
    head_len: usize,
}

impl<'buf> DirPage<'buf> {
    /// An empty page of plain records.
    pub fn new(buf: &'buf mut [u8]) -> Self {
        Self {
            buf,
            len: 0,
            head_len: 0,
        }
    }

    /// An empty page of records with an `EntryOut` each.
    pub fn plus(buf: &'buf mut [u8]) -> Self {
        Self {
            buf,
            len: 0,
            head_len: size_of::<EntryOut>(),
        }
    }

    /// Bytes filled.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Appends an entry, its `EntryOut` (if any) zero: name and kind known, attributes not. Says
    /// whether there was room.
    pub fn push(&mut self, entry: &DirEntry<'_>) -> bool {
        let record_len = record_len(self.head_len, entry.name.len());
        let Some(record) = self.buf[self.len..].get_mut(..record_len) else {
            return false;
        };
        let dirent = Dirent {
            ino: entry.ino.0,
            off: entry.next,
            namelen: entry.name.len() as u32,
            kind: entry.kind.mode_bits() >> 12,
        };
        record.zero();
        let name_at = self.head_len + size_of::<Dirent>();
        record[self.head_len..name_at].copy_from_slice(dirent.as_bytes());
        record[name_at..][..entry.name.len()].copy_from_slice(entry.name);
        self.len += record_len;
        true
    }

    /// Fills the `EntryOut` of every record but `.` and `..`, which the kernel knows already. What it is
    /// told of those would not count as known either.
    pub fn fill_entries(&mut self, mut entry: impl FnMut(&DirEntry<'_>) -> EntryOut) {
        let mut rest = &mut self.buf[..self.len];
        while let Some((head, tail)) = rest.split_at_mut_checked(size_of::<EntryOut>()) {
            let Ok((dirent, name)) = Dirent::read_from_prefix(tail) else {
                break;
            };
            let name = &name[..dirent.namelen as usize];
            let kind = FileKind::from_mode(dirent.kind << 12);
            if let Some(kind) = kind.filter(|_| !matches!(name, b"." | b"..")) {
                let listed = DirEntry {
                    ino: Ino(dirent.ino),
                    kind,
                    next: dirent.off,
                    name,
                };
                head.copy_from_slice(entry(&listed).as_bytes());
            }
            rest = &mut tail[record_len(0, dirent.namelen as usize)..];
        }
    }
}

/// Bytes of a record, rounded up so that the next one is aligned.
fn record_len(head_len: usize, name_len: usize) -> usize {
    (head_len + size_of::<Dirent>() + name_len).next_multiple_of(8)
}

#[cfg(test)]
mod tests {
    use anteros_core::FileKind;

    use super::*;

    fn entry(name: &[u8], next: u64) -> DirEntry<'_> {
        DirEntry {
            ino: Ino(77),
            kind: FileKind::Symlink,
            next,
            name,
        }
    }

    #[test]
    fn a_plain_record_byte_by_byte() {
        let mut buf = [0xee; 40];
        let mut page = DirPage::new(&mut buf);
        assert!(page.push(&entry(b"nine_char", 5)));
        assert_eq!(page.len(), 40);
        let mut expected = Vec::new();
        expected.extend(77u64.to_ne_bytes());
        expected.extend(5u64.to_ne_bytes());
        expected.extend(9u32.to_ne_bytes());
        expected.extend(10u32.to_ne_bytes()); // DT_LNK
        expected.extend(b"nine_char\0\0\0\0\0\0\0");
        assert_eq!(buf[..], expected);
    }

    #[test]
    fn records_end_at_multiples_of_eight_and_never_beyond_the_page() {
        for name_len in 1..=255 {
            let name = vec![b'x'; name_len];
            let mut buf = vec![0; 4096];
            let mut page = DirPage::new(&mut buf);
            let mut count = 0;
            while page.push(&entry(&name, 0)) {
                count += 1;
                assert_eq!(page.len() % 8, 0, "name of {name_len} bytes");
            }
            assert_eq!(page.len(), count * (24 + name_len.div_ceil(8) * 8));
            assert!(
                page.len() + 24 + name_len > 4096,
                "name of {name_len} bytes"
            );
        }
    }

    #[test]
    fn plus_records_are_filled_except_for_the_dots() {
        let mut buf = vec![0; 1024];
        let mut page = DirPage::plus(&mut buf);
        for name in [&b"."[..], b"..", b"...", b"eightlng"] {
            assert!(page.push(&entry(name, 0)));
        }
        assert_eq!(page.len(), 4 * 160);
        let mut asked = 0;
        page.fill_entries(|listed| {
            asked += 1;
            assert_eq!(listed.name, [&b"..."[..], b"eightlng"][asked as usize - 1]);
            EntryOut {
                nodeid: listed.ino.0 + asked,
                ..EntryOut::new_zeroed()
            }
        });
        let nodes: Vec<_> = buf[..640]
            .chunks(160)
            .map(|record| EntryOut::read_from_prefix(record).unwrap().0.nodeid)
            .collect();
        assert_eq!(nodes, [0, 0, 78, 79]);
    }
}
