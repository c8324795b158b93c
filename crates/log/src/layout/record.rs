//! Records: what a group says that is no content.
//!
//! ```text
//! 0      1       2     4
//! | kind | flags | len | len bytes |
//! ```
//!
//! Source: `docs/format/log.md`, section 13.

use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::checksum::Checksum;
use super::node::{ATTRIBUTES_BYTES, FILE_BLOCKS};
use super::{BLOCKS_MAX, Corrupt, is_file_type, is_name};

const HEADER_BYTES: usize = 4;
const NAME_ADDED: u8 = 1;
const NAME_REMOVED: u8 = 2;
const ATTRIBUTES: u8 = 3;
const MAP: u8 = 4;
const CHECKSUMS: u8 = 5;
const INLINE: u8 = 6;
const XATTRS: u8 = 7;
/// Of attributes: size, times and content too.
const WHOLE: u8 = 1;

/// Of extended attributes: the next record goes on with them.
const GOES_ON: u8 = 1;
/// Of a map: a checksum of each block follows.
const CHECKED: u8 = 1;

/// The most checksums of one record.
const SUMS_MAX: usize = (u16::MAX as usize - 8) / 4;
/// Bytes of the checksum of a block in a map.
const CHECKSUM_BYTES: usize = 3;
/// The most blocks with checksums that one record maps.
const CHECKED_MAX: usize = (u16::MAX as usize - size_of::<RawMap>()) / CHECKSUM_BYTES;
/// The most bytes of extended attributes of one record.
const XATTRS_MAX: usize = 32 << 10;

const _: () = assert!(size_of::<RawHeader>() == HEADER_BYTES);
const _: () = assert!(size_of::<RawMap>() == 20);

#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct RawHeader {
    kind: u8,
    flags: u8,
    len: U16,
}

#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct RawNameAdded {
    parent: U32,
    ino: U32,
    kind: u8,
}

#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct RawMap {
    ino: U32,
    lblk: U32,
    count: U32,
    pointer: U64,
}

/// The checksums of blocks that follow each other.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Checksums<'a>(&'a [u8]);

impl Iterator for Checksums<'_> {
    type Item = u32;

    fn next(&mut self) -> Option<u32> {
        let (sum, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(u32::from_le_bytes(*sum))
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        let left = self.0.len() / 4;
        (left, Some(left))
    }
}

impl ExactSizeIterator for Checksums<'_> {}

/// Checksums of the blocks of a map, one for each; or none at all.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct MapChecksums<'a>(&'a [u8]);

impl Iterator for MapChecksums<'_> {
    type Item = Checksum;

    fn next(&mut self) -> Option<Checksum> {
        let (&[low, middle, high], rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        let bits = u32::from_le_bytes([low, middle, high, 0]);
        Some(Checksum::from_bits(bits))
    }
}

/// A record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Record<'a> {
    /// A directory has a new name.
    NameAdded {
        /// The directory.
        parent: u32,
        /// Holds what the name refers to.
        ino: u32,
        /// The file type of that.
        kind: u8,
        /// The name.
        name: &'a [u8],
    },
    /// A directory has lost a name.
    NameRemoved {
        /// The directory.
        parent: u32,
        /// The name.
        name: &'a [u8],
    },
    /// Attributes of an inode.
    Attributes {
        /// The inode.
        ino: u32,
        /// Tells whether size, times and content count too.
        whole: bool,
        /// As in the inode: whoever needs them checks them.
        attributes: &'a [u8; ATTRIBUTES_BYTES],
    },
    /// Place of a run of logical blocks.
    Map {
        /// The inode.
        ino: u32,
        /// The first logical block.
        lblk: u32,
        /// Tells how many there are, at least one.
        count: u32,
        /// As in the inode, but without a checksum: whoever needs it decodes it.
        pointer: u64,
        /// Checksums of the blocks, if they are plain and have any.
        checksums: MapChecksums<'a>,
    },
    /// Content that blocks must hold that are part of the group.
    Checksums {
        /// The first block.
        block: u64,
        /// Its CRC-32C, and those of the blocks behind it.
        sums: Checksums<'a>,
    },
    /// Content that lies in the inode.
    Inline {
        /// The inode.
        ino: u32,
        /// The content.
        bytes: &'a [u8],
    },
    /// All extended attributes of an inode, or a part of them.
    Xattrs {
        /// The inode.
        ino: u32,
        /// Tells whether the next record has the part behind this one.
        goes_on: bool,
        /// As they lie in the inode.
        bytes: &'a [u8],
    },
}

impl Record<'_> {
    /// Writes the record behind others. What it holds came from an inode or a directory and fits.
    pub fn append(&self, out: &mut Vec<u8>) {
        match *self {
            Self::NameAdded {
                parent,
                ino,
                kind,
                name,
            } => {
                let raw = RawNameAdded {
                    parent: parent.into(),
                    ino: ino.into(),
                    kind,
                };
                put(out, NAME_ADDED, 0, raw.as_bytes(), name);
            }
            Self::NameRemoved { parent, name } => {
                put(out, NAME_REMOVED, 0, &parent.to_le_bytes(), name);
            }
            Self::Attributes {
                ino,
                whole,
                attributes,
            } => {
                let flags = if whole { WHOLE } else { 0 };
                put(out, ATTRIBUTES, flags, &ino.to_le_bytes(), attributes);
            }
            Self::Map {
                ino,
                lblk,
                count,
                pointer,
                ref checksums,
            } => {
                let raw = RawMap {
                    ino: ino.into(),
                    lblk: lblk.into(),
                    count: count.into(),
                    pointer: pointer.into(),
                };
                let flags = if checksums.0.is_empty() { 0 } else { CHECKED };
                put(out, MAP, flags, raw.as_bytes(), checksums.0);
            }
            Self::Checksums { block, ref sums } => {
                put(out, CHECKSUMS, 0, &block.to_le_bytes(), sums.0);
            }
            Self::Inline { ino, bytes } => put(out, INLINE, 0, &ino.to_le_bytes(), bytes),
            Self::Xattrs {
                ino,
                goes_on,
                bytes,
            } => {
                let flags = if goes_on { GOES_ON } else { 0 };
                put(out, XATTRS, flags, &ino.to_le_bytes(), bytes);
            }
        }
    }
}

/// Writes the checksums of any number of blocks from `block` on, as records behind others.
pub fn append_checksums(block: u64, sums: &[u32], out: &mut Vec<u8>) {
    let mut first = block;
    for part in sums.chunks(SUMS_MAX) {
        let bytes: Vec<u8> = part.iter().flat_map(|sum| sum.to_le_bytes()).collect();
        put(out, CHECKSUMS, 0, &first.to_le_bytes(), &bytes);
        first += part.len() as u64;
    }
}

/// Writes where logical blocks of an inode lie that follow each other, the first one and how many; as records behind others.
/// Plain blocks have a checksum each, others none.
pub fn append_map(
    (ino, lblk, count): (u32, u32, u32),
    pointer: u64,
    checksums: &[Checksum],
    out: &mut Vec<u8>,
) {
    let mut append = |passed: u32, count: u32, checksums: &[u8]| {
        Record::Map {
            ino,
            lblk: lblk + passed,
            count,
            // A plain pointer has the number of its block in its lowest bits.
            pointer: pointer + u64::from(passed),
            checksums: MapChecksums(checksums),
        }
        .append(out);
    };
    if checksums.is_empty() {
        return append(0, count, &[]);
    }
    let mut passed = 0;
    for part in checksums.chunks(CHECKED_MAX) {
        let bits = part.iter().map(|checksum| checksum.bits().to_le_bytes());
        let bytes: Vec<u8> = bits
            .flat_map(|[low, middle, high, _]| [low, middle, high])
            .collect();
        append(passed, part.len() as u32, &bytes);
        passed += part.len() as u32;
    }
}

/// Writes all extended attributes of an inode, as records behind others.
pub fn append_xattrs(ino: u32, bytes: &[u8], out: &mut Vec<u8>) {
    let mut rest = bytes;
    loop {
        let (part, behind) = rest.split_at(rest.len().min(XATTRS_MAX));
        let goes_on = !behind.is_empty();
        Record::Xattrs {
            ino,
            goes_on,
            bytes: part,
        }
        .append(out);
        if !goes_on {
            return;
        }
        rest = behind;
    }
}

fn put(out: &mut Vec<u8>, kind: u8, flags: u8, head: &[u8], tail: &[u8]) {
    let len = head.len() + tail.len();
    debug_assert!(len <= usize::from(u16::MAX), "a record of {len} bytes");
    let header = RawHeader {
        kind,
        flags,
        len: (len as u16).into(),
    };
    out.extend_from_slice(header.as_bytes());
    out.extend_from_slice(head);
    out.extend_from_slice(tail);
}

/// The records of a group. Ends behind the first that is refused.
pub fn records(bytes: &[u8]) -> impl Iterator<Item = Result<Record<'_>, Corrupt>> {
    let mut at = 0;
    std::iter::from_fn(move || {
        let rest = bytes.get(at..).filter(|rest| !rest.is_empty())?;
        let start = at;
        at = bytes.len();
        let parsed = parse(rest).map(|(record, taken)| {
            at = start + taken;
            record
        });
        Some(parsed.map_err(|(rule, found)| Corrupt::RecordBytes {
            at: start,
            rule,
            found,
        }))
    })
}

type Broken = (&'static str, u64);

/// The first record, and how many bytes it takes.
fn parse(bytes: &[u8]) -> Result<(Record<'_>, usize), Broken> {
    let cut_off = ("the bytes end within it", bytes.len() as u64);
    let (header, rest) = RawHeader::read_from_prefix(bytes).map_err(|_| cut_off)?;
    let len = usize::from(header.len.get());
    let body = rest.get(..len).ok_or(cut_off)?;
    let flags_known = match header.kind {
        ATTRIBUTES => WHOLE,
        XATTRS => GOES_ON,
        MAP => CHECKED,
        _ => 0,
    };
    if header.flags & !flags_known != 0 {
        return Err(("a flag is unknown", header.flags.into()));
    }
    let record = parse_body(&header, body)?;
    Ok((record, HEADER_BYTES + len))
}

fn parse_body<'a>(header: &RawHeader, body: &'a [u8]) -> Result<Record<'a>, Broken> {
    let wrong_len = ("no record of its kind has so many bytes", body.len() as u64);
    if header.kind == CHECKSUMS {
        return parse_checksums(body).ok_or(wrong_len)?;
    }
    if !(NAME_ADDED..=XATTRS).contains(&header.kind) {
        return Err(("the kind is unknown", header.kind.into()));
    }
    // All others begin with an inode or a directory.
    let (first, tail) = U32::read_from_prefix(body).map_err(|_| wrong_len)?;
    let ino = match first.get() {
        0 => return Err(("no inode has the number", 0)),
        ino => ino,
    };
    Ok(match header.kind {
        NAME_ADDED => {
            let (raw, name) = RawNameAdded::read_from_prefix(body).map_err(|_| wrong_len)?;
            if raw.ino.get() == 0 {
                return Err(("no inode has the number", 0));
            }
            if !is_file_type(raw.kind) {
                return Err(("the file type is unknown", raw.kind.into()));
            }
            Record::NameAdded {
                parent: ino,
                ino: raw.ino.get(),
                kind: raw.kind,
                name: checked_name(name)?,
            }
        }
        NAME_REMOVED => Record::NameRemoved {
            parent: ino,
            name: checked_name(tail)?,
        },
        ATTRIBUTES => Record::Attributes {
            ino,
            whole: header.flags & WHOLE != 0,
            attributes: tail.try_into().map_err(|_| wrong_len)?,
        },
        MAP => {
            let (raw, checksums) = RawMap::read_from_prefix(body).map_err(|_| wrong_len)?;
            let bytes = match header.flags & CHECKED {
                0 => Some(0),
                _ => (raw.count.get() as usize).checked_mul(CHECKSUM_BYTES),
            };
            if bytes != Some(checksums.len()) {
                return Err(wrong_len);
            }
            parse_map(raw, MapChecksums(checksums))?
        }
        INLINE => Record::Inline { ino, bytes: tail },
        _ => Record::Xattrs {
            ino,
            goes_on: header.flags & GOES_ON != 0,
            bytes: tail,
        },
    })
}

fn checked_name(name: &[u8]) -> Result<&[u8], Broken> {
    match is_name(name) {
        true => Ok(name),
        false => Err((
            "no directory can have such a name, of so many bytes",
            name.len() as u64,
        )),
    }
}

fn parse_map(raw: RawMap, checksums: MapChecksums<'_>) -> Result<Record<'_>, Broken> {
    let (lblk, count) = (raw.lblk.get(), raw.count.get());
    let end = lblk.checked_add(count).filter(|&end| end <= FILE_BLOCKS);
    if count == 0 || end.is_none() {
        return Err(("no file has such a run of logical blocks", count.into()));
    }
    Ok(Record::Map {
        ino: raw.ino.get(),
        lblk,
        count,
        pointer: raw.pointer.get(),
        checksums,
    })
}

/// `None` if there are not whole checksums behind the block.
fn parse_checksums(body: &[u8]) -> Option<Result<Record<'_>, Broken>> {
    let (block, sums) = U64::read_from_prefix(body).ok()?;
    if sums.is_empty() || sums.len() % 4 != 0 {
        return None;
    }
    let block = block.get();
    let end = block.checked_add(sums.len() as u64 / 4);
    let is_possible = end.is_some_and(|end| end <= BLOCKS_MAX);
    Some(match is_possible {
        true => Ok(Record::Checksums {
            block,
            sums: Checksums(sums),
        }),
        false => Err(("no device has such a block", block)),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn examples() -> Vec<Record<'static>> {
        vec![
            Record::NameAdded {
                parent: 1,
                ino: 2,
                kind: 8,
                name: b"name",
            },
            Record::NameRemoved {
                parent: u32::MAX,
                name: &[b'x'; 255],
            },
            Record::Attributes {
                ino: 3,
                whole: true,
                attributes: &[7; ATTRIBUTES_BYTES],
            },
            Record::Attributes {
                ino: 3,
                whole: false,
                attributes: &[8; ATTRIBUTES_BYTES],
            },
            Record::Map {
                ino: 4,
                lblk: 5,
                count: FILE_BLOCKS - 5,
                pointer: u64::MAX,
                checksums: MapChecksums::default(),
            },
            Record::Map {
                ino: 4,
                lblk: 5,
                count: 2,
                pointer: 9,
                checksums: MapChecksums(&[1, 2, 3, 4, 5, 6]),
            },
            Record::Checksums {
                block: 6,
                sums: Checksums(&[1, 0, 0, 0, 2, 0, 0, 0]),
            },
            Record::Inline { ino: 7, bytes: b"" },
            Record::Xattrs {
                ino: 8,
                goes_on: true,
                bytes: b"abc",
            },
            Record::Xattrs {
                ino: 8,
                goes_on: false,
                bytes: b"",
            },
        ]
    }

    fn refused(bytes: &[u8], word: &str) {
        let results: Vec<_> = records(bytes).collect();
        let fault = results.last().unwrap().as_ref().unwrap_err().to_string();
        assert!(fault.contains(word), "{word}: {fault}");
    }

    fn raw(kind: u8, flags: u8, body: &[u8]) -> Vec<u8> {
        let mut bytes = Vec::new();
        put(&mut bytes, kind, flags, body, &[]);
        bytes
    }

    #[test]
    fn records_come_back_in_their_order() {
        let mut bytes = Vec::new();
        for record in examples() {
            record.append(&mut bytes);
        }
        let parsed: Vec<_> = records(&bytes).collect::<Result<_, _>>().unwrap();
        assert_eq!(parsed, examples());
        assert_eq!(bytes[..4], [NAME_ADDED, 0, 13, 0]);
        assert_eq!(records(&[]).count(), 0);
    }

    #[test]
    fn every_cut_is_noticed_and_nothing_follows_it() {
        for record in examples() {
            let mut bytes = Vec::new();
            record.append(&mut bytes);
            for end in 1..bytes.len() {
                let results: Vec<_> = records(&bytes[..end]).collect();
                assert!(
                    results.len() == 1 && results[0].is_err(),
                    "{record:?} up to {end}"
                );
            }
        }
    }

    #[test]
    fn many_checksums_take_several_records() {
        let sums: Vec<u32> = (0..40_000).collect();
        let mut bytes = Vec::new();
        append_checksums(100, &sums, &mut bytes);
        let mut found = Vec::new();
        for record in records(&bytes) {
            let Record::Checksums { block, sums } = record.unwrap() else {
                panic!("another record");
            };
            assert_eq!(block, 100 + found.len() as u64);
            assert!(sums.len() <= SUMS_MAX);
            found.extend(sums);
        }
        assert_eq!(found, sums);
    }

    #[test]
    fn a_map_with_many_checksums_takes_several_records() {
        let all: Vec<_> = (0..50_000).map(Checksum::from_bits).collect();
        let mut bytes = Vec::new();
        append_map((3, 7, all.len() as u32), 1000, &all, &mut bytes);
        let mut found = Vec::new();
        for record in records(&bytes) {
            let Record::Map {
                ino: 3,
                lblk,
                count,
                pointer,
                checksums,
            } = record.unwrap()
            else {
                panic!("another record");
            };
            let passed = found.len() as u64;
            assert_eq!((u64::from(lblk), pointer), (7 + passed, 1000 + passed));
            found.extend(checksums);
            assert_eq!(found.len() as u64, passed + u64::from(count));
        }
        assert!(found == all);
    }

    #[test]
    fn many_extended_attributes_take_several_records() {
        for len in [0, 1, XATTRS_MAX, XATTRS_MAX + 1, 3 * XATTRS_MAX] {
            let all: Vec<u8> = (0..len).map(|at| (at % 251) as u8).collect();
            let mut bytes = Vec::new();
            append_xattrs(9, &all, &mut bytes);
            let (mut found, mut went_on) = (Vec::new(), true);
            for record in records(&bytes) {
                let Record::Xattrs {
                    ino: 9,
                    goes_on,
                    bytes,
                } = record.unwrap()
                else {
                    panic!("another record");
                };
                assert!(went_on);
                went_on = goes_on;
                found.extend_from_slice(bytes);
            }
            assert!(found == all && !went_on, "{len} bytes");
        }
    }

    #[test]
    fn what_cannot_be_is_refused() {
        let name = |name: &[u8]| [&[1, 0, 0, 0], name].concat();
        refused(&raw(0, 0, &[]), "kind is unknown");
        refused(&raw(8, 0, &[0; 8]), "kind is unknown");
        refused(&raw(INLINE, 1, &[1, 0, 0, 0]), "flag");
        refused(&raw(ATTRIBUTES, 2, &[1; 100]), "flag");
        refused(&raw(ATTRIBUTES, 0, &[1; 99]), "so many bytes");
        refused(&raw(INLINE, 0, &[1; 3]), "so many bytes");
        refused(&raw(XATTRS, 0, &[0; 4]), "no inode");
        refused(&raw(XATTRS, 2, &[1; 4]), "flag");
        refused(
            &raw(NAME_ADDED, 0, &[1, 0, 0, 0, 0, 0, 0, 0, 8, b'a']),
            "no inode",
        );
        refused(
            &raw(NAME_ADDED, 0, &[1, 0, 0, 0, 1, 0, 0, 0, 3, b'a']),
            "file type",
        );
        refused(
            &raw(NAME_ADDED, 0, &[1, 0, 0, 0, 1, 0, 0, 0, 24, b'a']),
            "file type",
        );
        for impossible in [&b""[..], b".", b"..", b"a/b", b"a\0", &[b'x'; 256]] {
            refused(&raw(NAME_REMOVED, 0, &name(impossible)), "such a name");
        }
        let map = |lblk: u32, count: u32| {
            let mut bytes = Vec::new();
            Record::Map {
                ino: 1,
                lblk,
                count,
                pointer: 0,
                checksums: MapChecksums::default(),
            }
            .append(&mut bytes);
            bytes
        };
        refused(&map(0, 0), "such a run");
        refused(&map(1, FILE_BLOCKS), "such a run");
        refused(&map(u32::MAX, u32::MAX), "such a run");
        refused(&raw(MAP, 0, &[1; 21]), "so many bytes");
        refused(&raw(MAP, CHECKED, &[1; 21]), "so many bytes");
        refused(&raw(MAP, 2, &[1; 20]), "flag");
        refused(&raw(CHECKSUMS, 0, &[0; 8]), "so many bytes");
        refused(&raw(CHECKSUMS, 0, &[0; 13]), "so many bytes");
        refused(&raw(CHECKSUMS, 0, &[0xff; 12]), "such a block");
        let end = [&BLOCKS_MAX.to_le_bytes()[..], &[0; 4]].concat();
        refused(&raw(CHECKSUMS, 0, &end), "such a block");
    }
}
