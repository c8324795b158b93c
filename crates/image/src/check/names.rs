//! The names that a walk met, sorted by the inodes that they name.

use std::io;

use anteros_core::{FileKind, Record, Sorted};
use anteros_format::Nid;

/// A name of an inode.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Name {
    pub(super) nid: Nid,
    /// The directory that has the name; of the root and nameless inodes, the inode itself.
    pub(super) parent: Nid,
    /// Holds what the inode says, told with its first name.
    pub(super) first: Option<First>,
}

/// Holds what an inode says of itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct First {
    /// `None` if it cannot be read.
    pub(super) kind: Option<FileKind>,
    pub(super) nlink: u32,
}

/// The names of all inodes, those of one beside each other with the first in front.
pub(super) type Names = Sorted<Name>;

impl Ord for Name {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        let key = |name: &Self| (name.nid, name.first.is_none(), name.parent);
        key(self).cmp(&key(other))
    }
}

impl PartialOrd for Name {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

const NOT_FIRST: u8 = 0xff;
const UNREADABLE: u8 = 0xfe;

impl Record for Name {
    const BYTES: usize = 21;

    fn store(&self, out: &mut [u8]) {
        out[..8].copy_from_slice(&self.nid.0.to_le_bytes());
        out[8..16].copy_from_slice(&self.parent.0.to_le_bytes());
        let nlink = self.first.map_or(0, |first| first.nlink);
        out[16..20].copy_from_slice(&nlink.to_le_bytes());
        out[20] = match self.first {
            None => NOT_FIRST,
            Some(First { kind: None, .. }) => UNREADABLE,
            Some(First {
                kind: Some(kind), ..
            }) => kind as u8,
        };
    }

    fn load(bytes: &[u8]) -> Self {
        let number = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().expect("8 bytes"));
        let nlink = u32::from_le_bytes(bytes[16..20].try_into().expect("4 bytes"));
        let kind = KINDS.into_iter().find(|&kind| kind as u8 == bytes[20]);
        Self {
            nid: Nid(number(0)),
            parent: Nid(number(8)),
            first: (bytes[20] != NOT_FIRST).then_some(First { kind, nlink }),
        }
    }
}

const KINDS: [FileKind; 7] = [
    FileKind::Regular,
    FileKind::Directory,
    FileKind::Symlink,
    FileKind::CharDevice,
    FileKind::BlockDevice,
    FileKind::Fifo,
    FileKind::Socket,
];

/// An inode with the number of its names.
pub(super) struct Counted {
    pub(super) nid: Nid,
    pub(super) first: First,
    pub(super) names: u64,
    /// Tells whether no directory names it.
    pub(super) is_nameless: bool,
}

/// The inodes in their order.
pub(super) fn inodes(names: &Names) -> impl Iterator<Item = io::Result<Counted>> {
    let mut names = names.iter().peekable();
    std::iter::from_fn(move || {
        let name = match names.next()? {
            Ok(name) => name,
            Err(error) => return Some(Err(error)),
        };
        let is_same =
            |next: &io::Result<Name>| next.as_ref().is_ok_and(|next| next.nid == name.nid);
        let mut count = 1;
        while names.next_if(is_same).is_some() {
            count += 1;
        }
        let unknown = First {
            kind: None,
            nlink: 0,
        };
        let first = name.first.unwrap_or(unknown);
        let is_nameless = name.parent == name.nid;
        Some(Ok(Counted {
            nid: name.nid,
            first,
            names: count,
            is_nameless,
        }))
    })
}

/// The directory in which an inode was met first; `None` if it was not met.
pub(super) fn parent(names: &Names, nid: Nid) -> io::Result<Option<Nid>> {
    let first = names.first_from(|name| name.nid < nid)?;
    Ok(first.filter(|name| name.nid == nid).map(|name| name.parent))
}

#[cfg(test)]
mod tests {
    use anteros_core::Sorter;

    use super::*;

    #[test]
    fn a_name_is_read_as_it_was_written() {
        let kinds = KINDS.into_iter().map(Some).chain([None]);
        let firsts = kinds.map(|kind| {
            Some(First {
                kind,
                nlink: 0x0102_0304,
            })
        });
        for first in firsts.chain([None]) {
            let name = Name {
                nid: Nid(u64::MAX - 1),
                parent: Nid(7),
                first,
            };
            let mut bytes = [0; Name::BYTES];
            name.store(&mut bytes);
            assert_eq!(Name::load(&bytes), name);
        }
    }

    #[test]
    fn inodes_are_counted_by_their_names() {
        let first = First {
            kind: Some(FileKind::Regular),
            nlink: 3,
        };
        let mut sorter = Sorter::new(0);
        for (nid, parent, first) in [
            (5, 1, None),
            (9, 2, Some(first)),
            (5, 8, Some(first)),
            (5, 3, None),
        ] {
            sorter
                .push(Name {
                    nid: Nid(nid),
                    parent: Nid(parent),
                    first,
                })
                .unwrap();
        }
        let names = sorter.finish().unwrap();
        let counted: Vec<_> = inodes(&names)
            .map(Result::unwrap)
            .map(|i| (i.nid.0, i.names, i.first.nlink))
            .collect();
        assert_eq!(counted, [(5, 3, 3), (9, 1, 3)]);
        assert_eq!(parent(&names, Nid(5)).unwrap(), Some(Nid(8)));
        assert_eq!(parent(&names, Nid(6)).unwrap(), None);
    }
}
