//! Extended attributes, in the order of their names.
//!
//! ```text
//! 0          1   2           4
//! | name_len | 0 | value_len | name | value |
//! ```
//!
//! Source: `docs/format/log.md`, section 10.

use anteros_core::FsError;
use zerocopy::little_endian::U16;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::Corrupt;

/// The most bytes of all extended attributes of an inode: those of an attribute node.
pub const XATTR_BYTES_MAX: usize = 4064;

const HEADER_BYTES: usize = 4;

const _: () = assert!(size_of::<RawHeader>() == HEADER_BYTES);

#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct RawHeader {
    name_len: u8,
    reserved: u8,
    value_len: U16,
}

/// The extended attributes of an inode.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Xattrs(Vec<(Vec<u8>, Vec<u8>)>);

impl Xattrs {
    /// Reads and checks all of them; `bytes` holds nothing else.
    ///
    /// # Errors
    ///
    /// When an entry goes beyond the end, or a name is empty, has a NUL or comes before the last one.
    pub fn parse(bytes: &[u8]) -> Result<Self, Corrupt> {
        let mut entries: Vec<(Vec<u8>, Vec<u8>)> = Vec::new();
        let mut rest = bytes;
        while !rest.is_empty() {
            let at = bytes.len() - rest.len();
            let fault = |rule, found| Corrupt::Xattr { at, rule, found };
            if at > XATTR_BYTES_MAX {
                return Err(fault(
                    "more bytes than an inode can have",
                    bytes.len() as u64,
                ));
            }
            let (name, value, behind) = split(rest)
                .ok_or_else(|| fault("the entry goes beyond the end", rest.len() as u64))?;
            if name.is_empty() || name.contains(&0) {
                return Err(fault("the name is empty or has a NUL", name.len() as u64));
            }
            if entries
                .last()
                .is_some_and(|(last, _)| last.as_slice() >= name)
            {
                return Err(fault(
                    "the name does not come behind the one before",
                    name.len() as u64,
                ));
            }
            entries.push((name.to_vec(), value.to_vec()));
            rest = behind;
        }
        if bytes.len() > XATTR_BYTES_MAX {
            let rule = "more bytes than an inode can have";
            return Err(Corrupt::Xattr {
                at: 0,
                rule,
                found: bytes.len() as u64,
            });
        }
        Ok(Self(entries))
    }

    /// As they are stored.
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(self.encoded_len());
        for (name, value) in &self.0 {
            // What is stored all together has fewer bytes than 16 bits can count.
            let header = RawHeader {
                name_len: name.len() as u8,
                reserved: 0,
                value_len: (value.len() as u16).into(),
            };
            bytes.extend_from_slice(header.as_bytes());
            bytes.extend_from_slice(name);
            bytes.extend_from_slice(value);
        }
        bytes
    }

    /// Returns how many bytes they are stored in.
    pub fn encoded_len(&self) -> usize {
        let entries = self.0.iter();
        entries
            .map(|(name, value)| HEADER_BYTES + name.len() + value.len())
            .sum()
    }

    /// Returns whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The names, in their order.
    pub fn names(&self) -> impl Iterator<Item = &[u8]> {
        self.0.iter().map(|(name, _)| name.as_slice())
    }

    fn place(&self, name: &[u8]) -> Result<usize, usize> {
        self.0
            .binary_search_by(|(other, _)| other.as_slice().cmp(name))
    }

    /// The value of an attribute.
    pub fn get(&self, name: &[u8]) -> Option<&[u8]> {
        let place = self.place(name).ok()?;
        Some(&self.0[place].1)
    }

    /// Sets an attribute that may be there already.
    ///
    /// # Errors
    ///
    /// [`FsError::Invalid`] if no attribute can have the name, [`FsError::NoSpace`] if all together do not fit;
    /// nothing is changed then.
    pub fn set(&mut self, name: &[u8], value: &[u8]) -> Result<(), FsError> {
        if name.is_empty() || name.len() > 255 || name.contains(&0) {
            return Err(FsError::Invalid);
        }
        let place = self.place(name);
        let old = place.map_or(0, |at| HEADER_BYTES + name.len() + self.0[at].1.len());
        let new = HEADER_BYTES + name.len() + value.len();
        if self.encoded_len() - old + new > XATTR_BYTES_MAX {
            return Err(FsError::NoSpace);
        }
        match place {
            Ok(at) => self.0[at].1 = value.to_vec(),
            Err(at) => self.0.insert(at, (name.to_vec(), value.to_vec())),
        }
        Ok(())
    }

    /// Removes an attribute; says whether it was there.
    pub fn remove(&mut self, name: &[u8]) -> bool {
        let place = self.place(name);
        if let Ok(at) = place {
            self.0.remove(at);
        }
        place.is_ok()
    }
}

/// Name and value of the first entry, and what follows it.
fn split(bytes: &[u8]) -> Option<(&[u8], &[u8], &[u8])> {
    let (header, rest) = RawHeader::read_from_prefix(bytes).ok()?;
    let (name, rest) = rest.split_at_checked(header.name_len.into())?;
    let (value, rest) = rest.split_at_checked(header.value_len.get().into())?;
    Some((name, value, rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn example() -> Xattrs {
        let mut xattrs = Xattrs::default();
        xattrs.set(b"user.b", b"2").unwrap();
        xattrs.set(b"user.a", b"").unwrap();
        xattrs.set(b"security.x", &[0; 300]).unwrap();
        xattrs
    }

    #[test]
    fn attributes_come_back_in_the_order_of_their_names() {
        let bytes = example().encode();
        assert_eq!(bytes.len(), example().encoded_len());
        assert_eq!(Xattrs::parse(&bytes).unwrap(), example());
        let names: [&[u8]; 3] = [b"security.x", b"user.a", b"user.b"];
        assert!(example().names().eq(names));
        assert!(Xattrs::parse(&[]).unwrap().is_empty());
        for end in 1..bytes.len() {
            // Whole entries may be missing, parts of one not.
            let parsed = Xattrs::parse(&bytes[..end]);
            assert_eq!(parsed.is_ok(), [314, 324].contains(&end), "up to {end}");
        }
    }

    #[test]
    fn they_are_set_found_and_removed() {
        let mut xattrs = example();
        xattrs.set(b"user.b", b"new").unwrap();
        assert_eq!(xattrs.get(b"user.b"), Some(&b"new"[..]));
        assert_eq!(xattrs.get(b"user.a"), Some(&b""[..]));
        assert_eq!(xattrs.get(b"user"), None);
        assert!(xattrs.remove(b"user.b") && !xattrs.remove(b"user.b"));
        assert_eq!(xattrs.get(b"user.b"), None);
    }

    #[test]
    fn a_value_may_take_all_the_room_and_no_byte_more() {
        let mut xattrs = Xattrs::default();
        let room = XATTR_BYTES_MAX - HEADER_BYTES - 6;
        xattrs.set(b"user.a", &vec![1; room]).unwrap();
        let full = xattrs.clone();
        assert!(matches!(
            xattrs.set(b"user.a", &vec![2; room + 1]),
            Err(FsError::NoSpace)
        ));
        assert!(matches!(xattrs.set(b"u", b""), Err(FsError::NoSpace)));
        assert_eq!(xattrs, full);
        xattrs.set(b"user.a", &vec![2; room]).unwrap();
        assert_eq!(Xattrs::parse(&xattrs.encode()).unwrap(), xattrs);
        for name in [&b""[..], b"a\0", &[b'x'; 256]] {
            assert!(matches!(xattrs.set(name, b""), Err(FsError::Invalid)));
        }
    }

    #[test]
    fn what_cannot_be_is_refused() {
        let two = |first: &[u8; 1], second: &[u8; 1]| {
            [&[1, 0, 0, 0], &first[..], &[1, 0, 0, 0], &second[..]].concat()
        };
        let large: Vec<u8> = (1..=16)
            .flat_map(|name| [&[1, 0, 0, 1, name], &[0; 256][..]].concat())
            .collect();
        let broken = [
            ("beyond the end", vec![1, 0, 0]),
            ("beyond the end", vec![1, 0, 0xff, 0xff, b'a']),
            ("beyond the end", vec![255, 0, 0, 0, b'a']),
            ("empty", vec![0, 0, 0, 0]),
            ("NUL", vec![1, 0, 0, 0, 0]),
            ("behind", two(b"b", b"a")),
            ("behind", two(b"a", b"a")),
            ("more bytes", large),
        ];
        for (word, bytes) in broken {
            let fault = Xattrs::parse(&bytes).unwrap_err().to_string();
            assert!(fault.contains(word), "{word}: {fault}");
        }
    }
}
