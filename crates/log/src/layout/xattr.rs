//! Extended attributes, in the order of their names.
//!
//! ```text
//! 0          1                        2                     4
//! | name_len | high byte of value_len | value_len, low bits | name | value |
//! ```
//!
//! They lie in the inode, in an attribute node, or in further nodes that this one names:
//!
//! ```text
//! 0x20 |  len  | bytes …            |
//! 0x20 | 65535 | 0 |      len       |
//! 0x28 | nids of further nodes …    |
//! ```
//!
//! Source: `docs/format/log.md`, section 10.

use anteros_core::FsError;
use rustix::io::Errno;
use zerocopy::little_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::{BLOCK_BYTES, Block, Corrupt};

/// The most bytes of all extended attributes of an inode.
pub const XATTR_BYTES_MAX: usize = 256 << 10;
/// The most bytes of a value.
pub const VALUE_BYTES_MAX: usize = 64 << 10;
/// The most bytes of all names, with a NUL behind each: what `listxattr(2)` can say.
pub const NAMES_BYTES_MAX: usize = 64 << 10;
/// The most bytes of all extended attributes that lie in one attribute node.
pub const NODE_XATTR_BYTES: usize = BLOCK_BYTES - HERE_AT;
/// The bytes of them in each further node.
pub const FURTHER_XATTR_BYTES: usize = BLOCK_BYTES - LEN_AT;

/// In an attribute node: how many bytes there are, and they.
const LEN_AT: usize = 0x20;
const HERE_AT: usize = LEN_AT + 2;
/// Instead of a length: there are further nodes.
const LARGE: u16 = u16::MAX;
/// The length of what the further nodes hold, and their numbers.
const LARGE_LEN_AT: usize = 0x24;
const NIDS_AT: usize = 0x28;

const _: () = assert!(NIDS_AT + 4 * further_nodes(XATTR_BYTES_MAX) <= BLOCK_BYTES);
const _: () = assert!(NODE_XATTR_BYTES < LARGE as usize);

const HEADER_BYTES: usize = 4;

const _: () = assert!(size_of::<RawHeader>() == HEADER_BYTES);

#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct RawHeader {
    name_len: u8,
    value_len_high: u8,
    value_len: U16,
}

impl RawHeader {
    fn value_len(&self) -> usize {
        usize::from(self.value_len_high) << 16 | usize::from(self.value_len.get())
    }
}

/// Returns the number of further nodes for so many bytes; none if the attribute node has room for them.
pub const fn further_nodes(bytes: usize) -> usize {
    if bytes <= NODE_XATTR_BYTES {
        0
    } else {
        bytes.div_ceil(FURTHER_XATTR_BYTES)
    }
}

/// The place of the extended attributes, as an attribute node gives it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Stored<'a> {
    /// In the node itself.
    Here(&'a [u8]),
    /// In these nodes, in their order: so many bytes.
    Further {
        /// The bytes of all together.
        len: usize,
        /// The nodes.
        nids: Vec<u32>,
    },
}

impl<'a> Stored<'a> {
    /// Reads the attribute node `nid`.
    ///
    /// # Errors
    ///
    /// When there are more bytes than the node has, or than all nodes can have, or further nodes without need.
    pub fn parse(block: &'a Block, nid: u32) -> Result<Self, Corrupt> {
        let fault = |rule, found: usize| Corrupt::Node {
            nid,
            rule,
            found: found as u64,
        };
        let (_, rest) = block.split_at(LEN_AT);
        let Ok((len, here)) = U16::read_from_prefix(rest) else {
            return Err(fault("the block is too short", rest.len()));
        };
        if len.get() != LARGE {
            let len = usize::from(len.get());
            let here = here.get(..len).map(Self::Here);
            return here.ok_or_else(|| fault("the attributes exceed their node", len));
        }
        let (_, rest) = block.split_at(LARGE_LEN_AT);
        let Ok((len, nids)) = U32::read_from_prefix(rest) else {
            return Err(fault("the block is too short", rest.len()));
        };
        let len = len.get() as usize;
        if len <= NODE_XATTR_BYTES || len > XATTR_BYTES_MAX {
            return Err(fault(
                "the attributes in further nodes are too few or too many bytes",
                len,
            ));
        }
        let nids = nids.chunks_exact(4).take(further_nodes(len));
        let nids = nids.map(|nid| U32::read_from_bytes(nid).map_or(0, U32::get));
        Ok(Self::Further {
            len,
            nids: nids.collect(),
        })
    }

    /// Writes it into an attribute node.
    pub fn store(&self, block: &mut Block) {
        let (_, room) = block.split_at_mut(LEN_AT);
        room.fill(0);
        match self {
            Self::Here(bytes) => {
                room[..2].copy_from_slice(&(bytes.len() as u16).to_le_bytes());
                room[2..2 + bytes.len()].copy_from_slice(bytes);
            }
            Self::Further { len, nids } => {
                room[..2].copy_from_slice(&LARGE.to_le_bytes());
                room[4..8].copy_from_slice(&(*len as u32).to_le_bytes());
                for (room, nid) in room[8..].chunks_exact_mut(4).zip(nids) {
                    room.copy_from_slice(&nid.to_le_bytes());
                }
            }
        }
    }
}

/// The part of the extended attributes in a further node.
pub fn further_bytes(block: &Block) -> &[u8] {
    block.split_at(LEN_AT).1
}

/// Writes a part of them, at most [`FURTHER_XATTR_BYTES`], into a further node.
pub fn store_further(block: &mut Block, part: &[u8]) {
    let (_, room) = block.split_at_mut(LEN_AT);
    room.fill(0);
    room[..part.len()].copy_from_slice(part);
}

/// The extended attributes of an inode.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Xattrs(Vec<(Vec<u8>, Vec<u8>)>);

impl Xattrs {
    /// Reads and checks all of them; `bytes` holds nothing else.
    ///
    /// # Errors
    ///
    /// When an entry goes beyond the end, a name is empty, has a NUL or comes before the last one, or there are
    /// more bytes than there can be.
    pub fn parse(bytes: &[u8]) -> Result<Self, Corrupt> {
        let mut entries: Vec<(Vec<u8>, Vec<u8>)> = Vec::new();
        let mut rest = bytes;
        if bytes.len() > XATTR_BYTES_MAX {
            return Err(Corrupt::Xattr {
                at: 0,
                rule: "more bytes than an inode can have",
                found: bytes.len() as u64,
            });
        }
        while !rest.is_empty() {
            let at = bytes.len() - rest.len();
            let fault = |rule, found| Corrupt::Xattr { at, rule, found };
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
            if value.len() > VALUE_BYTES_MAX {
                return Err(fault("the value is too long", value.len() as u64));
            }
            entries.push((name.to_vec(), value.to_vec()));
            rest = behind;
        }
        Ok(Self(entries))
    }

    /// As they are stored.
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(self.encoded_len());
        for (name, value) in &self.0 {
            // Both were held to what there can be.
            let header = RawHeader {
                name_len: name.len() as u8,
                value_len_high: (value.len() >> 16) as u8,
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
    /// [`FsError::Invalid`] if no attribute can have the name, `E2BIG` if none can have the value,
    /// [`FsError::NoSpace`] if all together do not fit; nothing is changed then.
    pub fn set(&mut self, name: &[u8], value: &[u8]) -> Result<(), FsError> {
        if name.is_empty() || name.len() > 255 || name.contains(&0) {
            return Err(FsError::Invalid);
        }
        if value.len() > VALUE_BYTES_MAX {
            return Err(FsError::Host(Errno::TOOBIG.into()));
        }
        let place = self.place(name);
        let names: usize = self.names().map(|name| name.len() + 1).sum();
        if place.is_err() && names + name.len() + 1 > NAMES_BYTES_MAX {
            return Err(FsError::NoSpace);
        }
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
    let (value, rest) = rest.split_at_checked(header.value_len())?;
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
        for name in [b"user.x", b"user.y", b"user.z"] {
            xattrs.set(name, &[3; VALUE_BYTES_MAX]).unwrap();
        }
        let room = VALUE_BYTES_MAX - 4 * (HEADER_BYTES + 6);
        xattrs.set(b"user.a", &vec![1; room]).unwrap();
        assert_eq!(xattrs.encoded_len(), XATTR_BYTES_MAX);
        let full = xattrs.clone();
        let too_long = xattrs.set(b"user.x", &[0; VALUE_BYTES_MAX + 1]);
        assert!(matches!(too_long, Err(FsError::Host(_))));
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
    fn names_are_no_more_than_can_be_listed() {
        let mut xattrs = Xattrs::default();
        let name = |n: usize| format!("user.{n:0250}").into_bytes();
        for n in 0..256 {
            xattrs.set(&name(n), b"").unwrap();
        }
        assert!(matches!(xattrs.set(b"u", b""), Err(FsError::NoSpace)));
        xattrs.set(&name(3), b"value").unwrap();
        assert!(xattrs.remove(&name(255)));
        xattrs.set(b"u", b"").unwrap();
    }

    #[test]
    fn nodes_hold_what_they_have_room_for() {
        let mut block = [0xee; BLOCK_BYTES];
        let here = Stored::Here(&[7; NODE_XATTR_BYTES]);
        here.store(&mut block);
        assert_eq!(Stored::parse(&block, 5).unwrap(), here);
        let nids: Vec<u32> = (10..75).collect();
        let further = Stored::Further {
            len: XATTR_BYTES_MAX,
            nids,
        };
        further.store(&mut block);
        assert_eq!(Stored::parse(&block, 5).unwrap(), further);
        store_further(&mut block, &[9; FURTHER_XATTR_BYTES]);
        assert_eq!(further_bytes(&block), [9; FURTHER_XATTR_BYTES]);
        for (word, len, large) in [
            ("exceed", NODE_XATTR_BYTES + 1, None),
            ("too few", 0xffff, Some(NODE_XATTR_BYTES)),
            ("too many", 0xffff, Some(XATTR_BYTES_MAX + 1)),
        ] {
            let mut block = [0; BLOCK_BYTES];
            block[LEN_AT..HERE_AT].copy_from_slice(&(len as u16).to_le_bytes());
            let large = large.unwrap_or_default() as u32;
            block[LARGE_LEN_AT..NIDS_AT].copy_from_slice(&large.to_le_bytes());
            let fault = Stored::parse(&block, 5).unwrap_err().to_string();
            assert!(fault.contains(word), "{word}: {fault}");
        }
    }

    #[test]
    fn what_cannot_be_is_refused() {
        let two = |first: &[u8; 1], second: &[u8; 1]| {
            [&[1, 0, 0, 0], &first[..], &[1, 0, 0, 0], &second[..]].concat()
        };
        let value = |name: u8, len: u32| {
            let [low, high, higher, _] = len.to_le_bytes();
            [&[1, higher, low, high, name], &vec![0; len as usize][..]].concat()
        };
        let large = (1..=5).flat_map(|name| value(name, 60_000)).collect();
        let broken = [
            ("beyond the end", vec![1, 0, 0]),
            ("beyond the end", vec![1, 0, 0xff, 0xff, b'a']),
            ("beyond the end", vec![255, 0, 0, 0, b'a']),
            ("empty", vec![0, 0, 0, 0]),
            ("NUL", vec![1, 0, 0, 0, 0]),
            ("behind", two(b"b", b"a")),
            ("behind", two(b"a", b"a")),
            ("beyond the end", vec![1, 1, 0, 0, b'a']),
            ("more bytes", large),
            ("too long", value(1, 65_537)),
        ];
        for (word, bytes) in broken {
            let fault = Xattrs::parse(&bytes).unwrap_err().to_string();
            assert!(fault.contains(word), "{word}: {fault}");
        }
    }
}
