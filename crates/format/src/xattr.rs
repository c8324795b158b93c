//! Extended attributes.
//!
//! ```text
//! inode | header (12 bytes) | shared ids (4 bytes each) | inline entries …
//! ```
//!
//! Shared id `k` is the entry at byte `xattr_block * block size + 4 * k`.

use zerocopy::little_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::Corrupt;

/// The header of an inode's xattr region.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
#[allow(missing_docs)]
pub struct RawXattrHeader {
    /// Bloom filter, complemented: a set bit says that no name hashes there.
    pub name_filter: U32,
    pub shared_count: u8,
    pub reserved: [u8; 7],
}

/// Holds what precedes the name and the value of an xattr.
///
/// ```text
/// | name_len: u8 | name_index: u8 | value_size: u16 | name | value | padding to 4 |
/// ```
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
#[allow(missing_docs)] // the specification's own names, drawn above
pub struct RawXattrEntry {
    pub name_len: u8,
    /// A short prefix, or with bit 7 a long one.
    pub name_index: u8,
    pub value_size: U16,
}

/// Bytes of the header.
pub const HEADER_BYTES: usize = 12;
/// Bytes in front of an entry's name.
pub const ENTRY_BYTES: usize = 4;

const _: () = assert!(size_of::<RawXattrHeader>() == HEADER_BYTES);
const _: () = assert!(size_of::<RawXattrEntry>() == ENTRY_BYTES);

/// Bit of the name index that refers to the table of long prefixes.
pub const LONG_PREFIX: u8 = 0x80;

/// Seed of the name filter's hash, to which the name index is added.
pub const FILTER_SEED: u32 = 0x25BB_E08F;

/// The short prefixes by their index; those of POSIX ACLs are whole names.
pub const PREFIXES: [(u8, &[u8]); 6] = [
    (1, b"user."),
    (2, b"system.posix_acl_access"),
    (3, b"system.posix_acl_default"),
    (4, b"trusted."),
    (5, b"lustre."),
    (6, b"security."),
];

/// The short prefix with this index.
pub fn short_prefix(index: u8) -> Option<&'static [u8]> {
    PREFIXES
        .iter()
        .find(|(i, _)| *i == index)
        .map(|(_, prefix)| *prefix)
}

/// Splits a full name into the index of its short prefix and the rest.
pub fn split_name(name: &[u8]) -> Option<(u8, &[u8])> {
    PREFIXES.iter().find_map(|&(index, prefix)| {
        let rest = name.strip_prefix(prefix)?;
        let is_acl = index == 2 || index == 3;
        (rest.is_empty() == is_acl).then_some((index, rest))
    })
}

/// The bit of the name filter that belongs to a name without its short prefix.
pub fn filter_bit(index: u8, rest: &[u8]) -> u32 {
    1 << (xxhash_rust::xxh32::xxh32(rest, FILTER_SEED + u32::from(index)) & 31)
}

/// Bytes of the xattr region, told by `i_xattr_icount`.
///
/// # Errors
///
/// [`Corrupt::XattrRegionEmpty`]: a header alone is refused by the kernel.
pub fn region_bytes(icount: u16) -> Result<u32, Corrupt> {
    match icount {
        0 => Ok(0),
        1 => Err(Corrupt::XattrRegionEmpty),
        n => Ok(HEADER_BYTES as u32 + 4 * (u32::from(n) - 1)),
    }
}

/// The inverse of [`region_bytes`]: `icount` for entries and ids of so many bytes.
pub fn icount_for(body_bytes: usize) -> Option<u16> {
    match body_bytes.div_ceil(4) {
        0 => Some(0),
        n => u16::try_from(n + 1).ok(),
    }
}

/// A long name prefix.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LongPrefix {
    /// The short prefix it extends; 0 hides the attribute from users.
    pub base: u8,
    /// Holds what follows the short prefix.
    pub infix: Vec<u8>,
}

impl LongPrefix {
    /// Checks the bytes behind the size field of record `index`.
    ///
    /// # Errors
    ///
    /// [`Corrupt`] if the size is out of range or the short prefix is unknown.
    pub fn parse(index: u8, record: &[u8]) -> Result<Self, Corrupt> {
        let size = record.len() as u16;
        let (&base, infix) = record
            .split_first()
            .ok_or(Corrupt::XattrPrefixSize { index, size })?;
        if record.len() > 256 {
            return Err(Corrupt::XattrPrefixSize { index, size });
        }
        if base != 0 && short_prefix(base).is_none() {
            return Err(Corrupt::XattrPrefixBase { index, base });
        }
        Ok(Self {
            base,
            infix: infix.to_vec(),
        })
    }
}

/// An attribute that may be relied on, lent from its region.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct XattrEntry<'a> {
    /// Index of the short prefix or, with [`LONG_PREFIX`], of the long one.
    pub index: u8,
    /// The name behind the prefix.
    pub suffix: &'a [u8],
    /// The value.
    pub value: &'a [u8],
    /// Bytes of the entry with its padding.
    pub bytes: usize,
}

impl<'a> XattrEntry<'a> {
    /// Checks the entry at byte `offset` of a region.
    ///
    /// # Errors
    ///
    /// [`Corrupt::XattrEntry`] if it reaches beyond the region.
    pub fn parse(region: &'a [u8], offset: usize) -> Result<Self, Corrupt> {
        let beyond = Corrupt::XattrEntry {
            offset,
            region: region.len(),
        };
        let rest = region.get(offset..).ok_or_else(|| beyond.clone())?;
        let (raw, rest) = RawXattrEntry::read_from_prefix(rest).map_err(|_| beyond.clone())?;
        let name_len = usize::from(raw.name_len);
        let value_len = usize::from(raw.value_size.get());
        let content = rest.get(..name_len + value_len).ok_or(beyond)?;
        let (suffix, value) = content.split_at(name_len);
        let bytes = (ENTRY_BYTES + content.len()).next_multiple_of(4);
        Ok(Self {
            index: raw.name_index,
            suffix,
            value,
            bytes,
        })
    }

    /// Returns how many bytes [`parse`](Self::parse) needs, told by the first four.
    pub fn bytes_needed(head: [u8; ENTRY_BYTES]) -> usize {
        let raw = RawXattrEntry::read_from_bytes(&head).expect("4 bytes");
        ENTRY_BYTES + usize::from(raw.name_len) + usize::from(raw.value_size.get())
    }

    /// The full name, `None` for an attribute that is hidden from users.
    ///
    /// # Errors
    ///
    /// [`Corrupt`] if the prefix is unknown, or the name too long or with a NUL; `offset` is only
    /// reported.
    pub fn name(&self, prefixes: &[LongPrefix], offset: usize) -> Result<Option<Vec<u8>>, Corrupt> {
        let (base, infix): (u8, &[u8]) = match self.index & !LONG_PREFIX {
            index if self.index & LONG_PREFIX == 0 => (index, b""),
            index => {
                let long = prefixes.get(usize::from(index));
                let missing = Corrupt::XattrPrefixIndex {
                    index,
                    count: prefixes.len(),
                };
                let long = long.ok_or(missing)?;
                (long.base, &long.infix)
            }
        };
        if base == 0 && self.index & LONG_PREFIX != 0 {
            return Ok(None);
        }
        let short = short_prefix(base).ok_or(Corrupt::XattrNameIndex {
            offset,
            index: base,
        })?;
        let name = [short, infix, self.suffix].concat();
        let is_acl = matches!(base, 2 | 3);
        let is_bare = name.len() == short.len();
        if name.len() > 255 || is_acl != is_bare {
            return Err(Corrupt::XattrNameLength {
                offset,
                len: name.len(),
            });
        }
        if name.contains(&0) {
            return Err(Corrupt::XattrNameNul { offset });
        }
        Ok(Some(name))
    }
}

/// An inode's xattr region: the ids of shared attributes, then the inline ones.
#[derive(Debug, Clone, Copy)]
pub struct XattrRegion<'a> {
    region: &'a [u8],
    /// Bloom filter over the names, complemented.
    pub name_filter: u32,
    shared_count: u8,
}

impl<'a> XattrRegion<'a> {
    /// Checks the header of a region of at least 12 bytes.
    ///
    /// # Errors
    ///
    /// [`Corrupt::XattrSharedCount`].
    ///
    /// # Panics
    ///
    /// If there are fewer than 12 bytes; [`region_bytes`] never says so.
    pub fn parse(region: &'a [u8]) -> Result<Self, Corrupt> {
        let (raw, body) = RawXattrHeader::read_from_prefix(region).expect("12 bytes");
        let count = raw.shared_count;
        if usize::from(count) * 4 > body.len() {
            return Err(Corrupt::XattrSharedCount {
                count,
                region: region.len(),
            });
        }
        Ok(Self {
            region,
            name_filter: raw.name_filter.get(),
            shared_count: count,
        })
    }

    /// The ids of the shared attributes.
    pub fn shared_ids(&self) -> impl Iterator<Item = u32> + use<'a> {
        let ids = &self.region[HEADER_BYTES..self.inline_offset()];
        ids.chunks_exact(4)
            .map(|id| U32::read_from_bytes(id).expect("4 bytes").get())
    }

    /// The inline attributes, each with its offset in the region. Stops at the first error.
    pub fn inline(
        &self,
    ) -> impl Iterator<Item = Result<(usize, XattrEntry<'a>), Corrupt>> + use<'a> {
        let region = self.region;
        let mut next = Some(self.inline_offset()).filter(|&o| o < region.len());
        std::iter::from_fn(move || {
            let mut offset = next.take()?;
            // Room for attributes to come, as `mkfs.erofs --root-xattr-isize` leaves it.
            while region[offset..].starts_with(&[0; ENTRY_BYTES]) {
                offset += ENTRY_BYTES;
            }
            if offset == region.len() {
                return None;
            }
            let entry = XattrEntry::parse(region, offset);
            if let Ok(entry) = &entry {
                next = Some(offset + entry.bytes).filter(|&o| o < region.len());
            }
            Some(entry.map(|entry| (offset, entry)))
        })
    }

    fn inline_offset(&self) -> usize {
        HEADER_BYTES + 4 * usize::from(self.shared_count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_split_and_join() {
        for (name, index, rest) in [
            (&b"user.a"[..], 1, &b"a"[..]),
            (b"security.selinux", 6, b"selinux"),
            (b"system.posix_acl_access", 2, b""),
            (b"trusted.overlay.opaque", 4, b"overlay.opaque"),
        ] {
            assert_eq!(split_name(name), Some((index, rest)));
            let entry = XattrEntry {
                index,
                suffix: rest,
                value: b"",
                bytes: 0,
            };
            assert_eq!(entry.name(&[], 0), Ok(Some(name.to_vec())));
        }
        assert_eq!(split_name(b"user."), None);
        assert_eq!(split_name(b"system.posix_acl_access.x"), None);
        assert_eq!(split_name(b"btrfs.compression"), None);
    }

    #[test]
    fn long_prefixes_join_and_hide() {
        let prefixes = [
            LongPrefix::parse(0, b"\x04overlay.").unwrap(),
            LongPrefix::parse(1, b"\x00hidden").unwrap(),
        ];
        let entry = |index| XattrEntry {
            index,
            suffix: b"opaque",
            value: b"y",
            bytes: 0,
        };
        assert_eq!(
            entry(0x80).name(&prefixes, 0),
            Ok(Some(b"trusted.overlay.opaque".to_vec()))
        );
        assert_eq!(entry(0x81).name(&prefixes, 0), Ok(None));
        let error = entry(0x82).name(&prefixes, 0).unwrap_err();
        assert_eq!(error, Corrupt::XattrPrefixIndex { index: 2, count: 2 });
        assert!(LongPrefix::parse(0, b"").is_err());
        assert!(LongPrefix::parse(0, b"\x09x").is_err());
        assert!(LongPrefix::parse(0, &[1; 257]).is_err());
    }

    #[test]
    fn entries_end_with_their_region() {
        let mut region = vec![0u8; 12];
        region.extend_from_slice(&[1, 1, 2, 0, b'k', b'v', b'w', 0]);
        let parsed = XattrRegion::parse(&region).unwrap();
        let entries: Vec<_> = parsed.inline().collect::<Result<_, _>>().unwrap();
        assert_eq!(entries.len(), 1);
        assert_eq!(
            (entries[0].1.suffix, entries[0].1.value),
            (&b"k"[..], &b"vw"[..])
        );

        region[14] = 200;
        let error = XattrRegion::parse(&region)
            .unwrap()
            .inline()
            .next()
            .unwrap()
            .unwrap_err();
        assert_eq!(
            error,
            Corrupt::XattrEntry {
                offset: 12,
                region: 20
            }
        );
        region[4] = 3;
        let error = XattrRegion::parse(&region).unwrap_err();
        assert_eq!(
            error,
            Corrupt::XattrSharedCount {
                count: 3,
                region: 20
            }
        );
    }

    #[test]
    fn counts_and_sizes_agree() {
        assert_eq!(region_bytes(0), Ok(0));
        assert_eq!(region_bytes(1), Err(Corrupt::XattrRegionEmpty));
        for body in [1usize, 4, 5, 100] {
            let bytes = region_bytes(icount_for(body).unwrap()).unwrap() as usize;
            assert_eq!(bytes, HEADER_BYTES + body.next_multiple_of(4));
        }
        assert_eq!(icount_for(4 * 65536), None);
    }
}
