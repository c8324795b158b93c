//! The header of a patch that is a file of its own: what lies between a former state of an image and a later one.
//!
//! ```text
//! | header, 512 bytes | table of roots | roots … | bytes that follow the former state … |
//! ```
//!
//! `docs/format/patch.md` describes it.

use std::ops::Range;

use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::patch::{ROOT_SLOTS, STATES_MAX};
use crate::superblock::{SUPERBLOCK_BYTES, SUPERBLOCK_OFFSET, Superblock};
use crate::{Corrupt, DEVICE_BYTES_MAX, Fault, SLOT_BYTES};

/// The magic number.
pub const MAGIC: [u8; 8] = *b"anterosD";

/// The only version.
pub const VERSION: u32 = 2;

/// Bytes of the header.
pub const HEADER_BYTES: usize = 512;

/// Bytes of an entry of the table of roots.
pub const ROOT_ENTRY_BYTES: usize = 16;

/// Bytes of a digest, by BLAKE3.
pub const DIGEST_BYTES: usize = 32;

/// The place of the digest of the whole file, which is zero while that is made.
pub const DIGEST_PLACE: Range<usize> = 0x80..0xa0;

/// Most bytes of all roots.
pub const ROOT_BYTES_MAX: u64 = 64 << 20;

/// Bytes at either end of the base that its short digest covers.
pub const ENDS_BYTES: u64 = 1 << 20;

/// A header as it lies in the file.
///
/// ```text
///        0            4            8            c
/// 0x00 |          magic          |  version   |   roots    |
/// 0x10 |                       uuid                        |
/// 0x20 |   base     |  number    |          start          |
/// 0x30 |          end            |            0            |
/// 0x40 | digest of the ends of the base, 32 bytes           |
/// 0x60 | digest of the base, 32 bytes                       |
/// 0x80 | digest of the file, 32 bytes                       |
/// 0xa0 |                         0                         |
/// 0x100| superblock of the base, 128 bytes                  |
/// 0x180| superblock of the state, 128 bytes                 |
/// ```
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct RawHeader {
    magic: [u8; 8],
    version: U32,
    roots: U32,
    uuid: [u8; 16],
    base: U32,
    number: U32,
    start: U64,
    end: U64,
    reserved: [u8; 8],
    ends_digest: [u8; DIGEST_BYTES],
    base_digest: [u8; DIGEST_BYTES],
    digest: [u8; DIGEST_BYTES],
    reserved2: [u8; 96],
    former: [u8; SUPERBLOCK_BYTES],
    superblock: [u8; SUPERBLOCK_BYTES],
}

const _: () = assert!(size_of::<RawHeader>() == HEADER_BYTES);

/// An entry of the table of roots as it lies in the file.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct RawRoot {
    at: U64,
    bytes: U64,
}

const _: () = assert!(size_of::<RawRoot>() == ROOT_ENTRY_BYTES);

/// A header that may be relied on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PatchHeader {
    /// The UUID of the image.
    pub uuid: [u8; 16],
    /// The number of the state that the image must have.
    pub base: u32,
    /// The number of the state that it has then.
    pub number: u32,
    /// The end of the base, of the blocks that its superblock counts: where the appended bytes begin.
    pub start: u64,
    /// The end of the new state.
    pub end: u64,
    /// Roots that lie in slots of the base.
    pub root_count: u32,
    /// The BLAKE3 digest of the first and the last [`ENDS_BYTES`] of the base, with its own superblock and slots that are zero.
    pub ends_digest: [u8; DIGEST_BYTES],
    /// The BLAKE3 digest of all bytes of the base, in the same form.
    pub base_digest: [u8; DIGEST_BYTES],
    /// The BLAKE3 digest of the file, with zeros in place of this.
    pub digest: [u8; DIGEST_BYTES],
    /// The superblock of the base.
    pub former: [u8; SUPERBLOCK_BYTES],
    /// The superblock of the new state.
    pub superblock: [u8; SUPERBLOCK_BYTES],
}

impl PatchHeader {
    /// The bytes of the header.
    pub fn encode(&self) -> [u8; HEADER_BYTES] {
        let raw = RawHeader {
            magic: MAGIC,
            version: VERSION.into(),
            roots: self.root_count.into(),
            uuid: self.uuid,
            base: self.base.into(),
            number: self.number.into(),
            start: self.start.into(),
            end: self.end.into(),
            reserved: [0; 8],
            ends_digest: self.ends_digest,
            base_digest: self.base_digest,
            digest: self.digest,
            reserved2: [0; 96],
            former: self.former,
            superblock: self.superblock,
        };
        let mut bytes = [0; HEADER_BYTES];
        bytes.copy_from_slice(raw.as_bytes());
        bytes
    }

    /// Checks the bytes of a header.
    ///
    /// # Errors
    ///
    /// The first rule that is broken.
    pub fn parse(bytes: &[u8]) -> Result<Self, Fault> {
        let Ok((raw, _)) = RawHeader::read_from_prefix(bytes) else {
            return broken("length", bytes.len() as u64);
        };
        if raw.magic != MAGIC {
            return broken("magic", u64::from_le_bytes(raw.magic));
        }
        if raw.version.get() != VERSION {
            return broken("version", raw.version.get().into());
        }
        let reserved = raw.reserved.iter().chain(&raw.reserved2);
        if reserved.copied().any(|byte| byte != 0) {
            return broken("reserved part", 1);
        }
        let (base, number) = (raw.base.get(), raw.number.get());
        if number > STATES_MAX || base >= number {
            return broken("number", number.into());
        }
        if raw.roots.get() > number - base {
            return broken("number of roots", raw.roots.get().into());
        }
        raw.check_superblocks()?;
        Ok(Self {
            uuid: raw.uuid,
            base,
            number,
            start: raw.start.get(),
            end: raw.end.get(),
            root_count: raw.roots.get(),
            ends_digest: raw.ends_digest,
            base_digest: raw.base_digest,
            digest: raw.digest,
            former: raw.former,
            superblock: raw.superblock,
        })
    }

    /// Bytes of the table of roots.
    pub const fn table_bytes(&self) -> usize {
        self.root_count as usize * ROOT_ENTRY_BYTES
    }

    /// Checks the table of roots; returns the bytes of the base that each of them takes, ascending.
    ///
    /// # Errors
    ///
    /// The first rule that is broken.
    pub fn roots(&self, table: &[u8]) -> Result<Vec<Range<u64>>, Fault> {
        if table.len() != self.table_bytes() {
            return broken("length of the table of roots", table.len() as u64);
        }
        let block_bytes = Superblock::parse(&self.former)?.block_bytes();
        let first_block = SUPERBLOCK_OFFSET + SUPERBLOCK_BYTES as u64;
        let mut reached = first_block.next_multiple_of(block_bytes.into());
        let mut all_bytes = 0;
        let mut roots = Vec::with_capacity(self.root_count as usize);
        for entry in table.chunks_exact(ROOT_ENTRY_BYTES) {
            let (raw, _) = RawRoot::read_from_prefix(entry).expect("16 bytes");
            let (at, bytes) = (raw.at.get(), raw.bytes.get());
            let end = at.checked_add(bytes).filter(|end| *end <= self.start);
            let Some(end) = end.filter(|_| at >= reached && at % SLOT_BYTES == 0) else {
                return broken("place of a root", at);
            };
            all_bytes += bytes.min(self.start);
            let is_root = (SLOT_BYTES..=ROOT_SLOTS * SLOT_BYTES).contains(&bytes);
            if !is_root || all_bytes > ROOT_BYTES_MAX {
                return broken("length of a root", bytes);
            }
            reached = end;
            roots.push(at..end);
        }
        Ok(roots)
    }

    /// The table of roots that take these bytes of the base.
    pub fn table(roots: &[Range<u64>]) -> Vec<u8> {
        let entry = |root: &Range<u64>| RawRoot {
            at: root.start.into(),
            bytes: (root.end - root.start).into(),
        };
        let entries = roots.iter().map(entry);
        entries
            .flat_map(|entry| entry.as_bytes().to_vec())
            .collect()
    }
}

impl RawHeader {
    /// Checks that both superblocks are of the image, and count its bytes.
    fn check_superblocks(&self) -> Result<(), Fault> {
        let former = Superblock::parse(&self.former)?;
        let sb = Superblock::parse(&self.superblock)?;
        if former.uuid != self.uuid || sb.uuid != self.uuid {
            return broken("UUID of a superblock", 0);
        }
        if former.block_bits != sb.block_bits {
            return broken("block size", 1 << sb.block_bits);
        }
        if former.superblock_bytes != sb.superblock_bytes {
            return broken("length of the superblock", sb.superblock_bytes.into());
        }
        let is_plain = |sb: &Superblock| sb.extra_devices == 0 && sb.metabox.is_none();
        if !is_plain(&former) || !is_plain(&sb) {
            return broken("form of image", 1);
        }
        let (start, end) = (self.start.get(), self.end.get());
        let bytes = |sb: &Superblock| sb.blocks.checked_mul(sb.block_bytes().into());
        if bytes(&former) != Some(start) || start < SUPERBLOCK_OFFSET + SUPERBLOCK_BYTES as u64 {
            return broken("end of the base", start);
        }
        match bytes(&sb) == Some(end) && start < end && end <= DEVICE_BYTES_MAX {
            true => Ok(()),
            false => broken("end", end),
        }
    }
}

fn broken<T>(what: &'static str, found: u64) -> Result<T, Fault> {
    Err(Corrupt::PatchFile { what, found }.into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::superblock::RawSuperblock;

    fn superblock(blocks: u32) -> [u8; SUPERBLOCK_BYTES] {
        let mut raw = RawSuperblock::read_from_bytes(&[0; SUPERBLOCK_BYTES]).unwrap();
        raw.magic = crate::superblock::MAGIC.into();
        raw.blkszbits = 12;
        raw.blocks_lo = blocks.into();
        raw.uuid = [7; 16];
        let mut bytes = [0; SUPERBLOCK_BYTES];
        bytes.copy_from_slice(raw.as_bytes());
        bytes
    }

    fn header() -> PatchHeader {
        PatchHeader {
            uuid: [7; 16],
            base: 1,
            number: 3,
            start: 5 << 12,
            end: 9 << 12,
            root_count: 2,
            ends_digest: [1; DIGEST_BYTES],
            base_digest: [2; DIGEST_BYTES],
            digest: [3; DIGEST_BYTES],
            former: superblock(5),
            superblock: superblock(9),
        }
    }

    fn what<T: std::fmt::Debug>(told: Result<T, Fault>) -> &'static str {
        match told {
            Err(Fault::Corrupt(Corrupt::PatchFile { what, .. })) => what,
            told => panic!("{told:?}"),
        }
    }

    #[test]
    fn a_header_is_read_as_it_was_written() {
        let bytes = header().encode();
        assert_eq!(PatchHeader::parse(&bytes).unwrap(), header());
        assert_eq!(bytes[DIGEST_PLACE], [3; DIGEST_BYTES]);
        assert_eq!(what(PatchHeader::parse(&bytes[..511])), "length");
        let roots = [4096..4160, 4160..9000];
        let table = PatchHeader::table(&roots);
        assert_eq!(header().roots(&table).unwrap(), roots);
    }

    #[test]
    fn headers_that_break_a_rule_are_refused_by_it() {
        type Change = fn(&mut PatchHeader);
        let changes: [(&str, Change); 11] = [
            ("number", |header| header.number = STATES_MAX + 1),
            ("number", |header| header.base = 3),
            ("number of roots", |header| header.root_count = 3),
            ("UUID of a superblock", |header| header.uuid[3] = 1),
            ("end of the base", |header| header.start += 1),
            ("end", |header| header.end += 4096),
            ("end", |header| {
                header.end = header.start;
                header.superblock = header.former;
            }),
            ("block size", |header| header.superblock[12] = 13),
            ("length of the superblock", |header| {
                header.superblock[13] = 1;
            }),
            ("form of image", |header| {
                header.superblock[0x50] = 8;
                header.superblock[0x56] = 1;
            }),
            ("end of the base", |header| {
                header.start = 0;
                header.former = superblock(0);
            }),
        ];
        for (expected, change) in changes {
            let mut header = header();
            change(&mut header);
            assert_eq!(what(PatchHeader::parse(&header.encode())), expected);
        }
        for (expected, at) in [("magic", 0), ("version", 8), ("reserved part", 0xa0)] {
            let mut bytes = header().encode();
            bytes[at] ^= 0x40;
            assert_eq!(what(PatchHeader::parse(&bytes)), expected);
        }
        for (expected, roots) in [
            ("place of a root", [4064..4160, 4160..4192]),
            ("place of a root", [4096..4160, 4128..4192]),
            ("place of a root", [4096..4160, 4170..4192]),
            (
                "place of a root",
                [4096..4160, (5 << 12) - 32..(5 << 12) + 1],
            ),
            ("length of a root", [4096..4100, 4160..4192]),
        ] {
            let table = PatchHeader::table(&roots);
            assert_eq!(what(header().roots(&table)), expected);
        }
    }
}
