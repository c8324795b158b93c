//! The record that a patch leaves at the end of an image: the state before it, and where its bytes are.
//!
//! EROFS itself knows nothing of it. The record lies in blocks that no inode refers to, at the end of the blocks that the
//! superblock counts. `docs/format/patch.md` describes it.

use anteros_core::Timestamp;
use zerocopy::little_endian::{I64, U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::superblock::{RawSuperblock, SUPERBLOCK_BYTES, Superblock};
use crate::{Corrupt, Fault, SLOT_BYTES};

/// The magic number.
pub const MAGIC: [u8; 8] = *b"anterosP";

/// The only version.
pub const VERSION: u32 = 1;

/// Bytes of a record.
pub const RECORD_BYTES: usize = 1024;

/// Most ranges of free slots that a record has room for.
pub const FREE_MAX: usize = 192;

/// Most states of an image behind the one that was built.
pub const STATES_MAX: u32 = 4096;

/// Slots that a root without 48-bit addresses may lie in: its node id has 16 bits.
pub const ROOT_SLOTS: u64 = 1 << 16;

/// The kinds of records.
const PATCH: u32 = 1;
const ROLLBACK: u32 = 2;

/// A record as it lies on disk.
///
/// ```text
///        0            4            8            c
/// 0x00 |          magic          |  version   |  checksum  |
/// 0x10 |  number    |  kind      |  restores  | free_count |
/// 0x20 |          seconds        |  nanos     | superblock |
/// 0x30 |          start          |          end            |
/// 0x40 |          previous       |          root           |
/// 0x50 |                         0                         |
/// 0x80 | former superblock, 128 bytes                       |
/// 0x100| 192 ranges of free slots: first u16, count u16     |
/// ```
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct RawRecord {
    magic: [u8; 8],
    version: U32,
    checksum: U32,
    number: U32,
    kind: U32,
    restores: U32,
    free_count: U32,
    seconds: I64,
    nanos: U32,
    superblock: U32,
    start: U64,
    end: U64,
    previous: U64,
    root: U64,
    reserved: [u8; 48],
    former: [u8; SUPERBLOCK_BYTES],
    free: [RawSlots; FREE_MAX],
}

/// A range of slots as it lies on disk.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct RawSlots {
    first: U16,
    count: U16,
}

const _: () = assert!(size_of::<RawRecord>() == RECORD_BYTES);

/// The change that made a state.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Change {
    /// Files were changed.
    Patch,
    /// The state of this number was made the current one again.
    Rollback(u32),
}

/// A range of slots that nothing refers to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Slots {
    /// The node id of the first one.
    pub first: u16,
    /// Slots in all, at least one.
    pub count: u16,
}

impl Slots {
    /// The slot behind the last one.
    pub fn end(self) -> u64 {
        u64::from(self.first) + u64::from(self.count)
    }
}

/// A record that may be relied on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PatchRecord {
    /// The number of the state, from 1 on. State 0 is the image as it was built.
    pub number: u32,
    /// The change that made the state.
    pub change: Change,
    /// The time of that change.
    pub time: Timestamp,
    /// The first byte that was appended, where a block begins.
    pub start: u64,
    /// The end of the state: of the blocks that its superblock counts.
    pub end: u64,
    /// The byte at which the record of the former state begins; `None` for the first patch.
    pub previous: Option<u64>,
    /// The byte at which the root inode begins, if that is in front of `start`.
    pub root: Option<u64>,
    /// The superblock of the former state, without what lies behind its 128 bytes: a patch does not change that.
    pub former: [u8; SUPERBLOCK_BYTES],
    /// The CRC32-C of the 128 bytes of the state's own superblock.
    pub superblock: u32,
    /// Slots that nothing of this state or a former one refers to, ascending.
    pub free: Vec<Slots>,
}

/// Bytes at the end of an image that a record takes: whole blocks.
pub const fn room(block_bytes: u32) -> u64 {
    if block_bytes as usize > RECORD_BYTES {
        block_bytes as u64
    } else {
        RECORD_BYTES as u64
    }
}

/// The value of a superblock's 128 bytes by which its record knows it.
pub fn superblock_crc(bytes: &[u8]) -> u32 {
    crc32c::crc32c(bytes)
}

impl PatchRecord {
    /// Returns whether bytes begin as those of a record do.
    pub fn is_at(bytes: &[u8]) -> bool {
        bytes.starts_with(&MAGIC)
    }

    /// The bytes of the record.
    ///
    /// # Panics
    ///
    /// If there are more ranges of free slots than [`FREE_MAX`].
    pub fn encode(&self) -> [u8; RECORD_BYTES] {
        assert!(self.free.len() <= FREE_MAX, "whoever makes it knows");
        let (kind, restores) = match self.change {
            Change::Patch => (PATCH, 0),
            Change::Rollback(number) => (ROLLBACK, number),
        };
        let none = RawSlots {
            first: 0.into(),
            count: 0.into(),
        };
        let mut raw = RawRecord {
            magic: MAGIC,
            version: VERSION.into(),
            checksum: 0.into(),
            number: self.number.into(),
            kind: kind.into(),
            restores: restores.into(),
            free_count: (self.free.len() as u32).into(),
            seconds: self.time.secs.into(),
            nanos: self.time.nanos.into(),
            superblock: self.superblock.into(),
            start: self.start.into(),
            end: self.end.into(),
            previous: self.previous.unwrap_or(0).into(),
            root: self.root.unwrap_or(0).into(),
            reserved: [0; 48],
            former: self.former,
            free: [none; FREE_MAX],
        };
        for (raw, slots) in raw.free.iter_mut().zip(&self.free) {
            raw.first = slots.first.into();
            raw.count = slots.count.into();
        }
        raw.checksum = crc32c::crc32c(raw.as_bytes()).into();
        let mut bytes = [0; RECORD_BYTES];
        bytes.copy_from_slice(raw.as_bytes());
        bytes
    }

    /// Checks the bytes of a record that begins at byte `at` of an image, and was made for its state with this superblock.
    ///
    /// # Errors
    ///
    /// The first rule that is broken.
    pub fn parse(bytes: &[u8], at: u64, sb: &Superblock) -> Result<Self, Fault> {
        let broken = |what, found| Err(Corrupt::PatchRecord { what, found }.into());
        let Ok((raw, _)) = RawRecord::read_from_prefix(bytes) else {
            return broken("length", bytes.len() as u64);
        };
        if raw.magic != MAGIC {
            return broken("magic", u64::from_le_bytes(raw.magic));
        }
        let plain = RawRecord {
            checksum: 0.into(),
            ..raw
        };
        if crc32c::crc32c(plain.as_bytes()) != raw.checksum.get() {
            return broken("checksum", raw.checksum.get().into());
        }
        if raw.version.get() != VERSION {
            return broken("version", raw.version.get().into());
        }
        let number = raw.number.get();
        if number == 0 || number > STATES_MAX {
            return broken("number", number.into());
        }
        let change = match (raw.kind.get(), raw.restores.get()) {
            (PATCH, 0) => Change::Patch,
            (ROLLBACK, restored) if restored < number => Change::Rollback(restored),
            (kind, _) => return broken("kind", kind.into()),
        };
        if raw.nanos.get() >= 1_000_000_000 {
            return broken("time", raw.nanos.get().into());
        }
        raw.check_places(at, sb)?;
        raw.check_former(sb)?;
        Ok(Self {
            number,
            change,
            time: Timestamp {
                secs: raw.seconds.get(),
                nanos: raw.nanos.get(),
            },
            start: raw.start.get(),
            end: raw.end.get(),
            previous: Some(raw.previous.get()).filter(|at| *at > 0),
            root: Some(raw.root.get()).filter(|at| *at > 0),
            former: raw.former,
            superblock: raw.superblock.get(),
            free: raw.free_slots()?,
        })
    }

    /// The superblock of the former state, which was checked.
    pub fn former(&self) -> Result<Superblock, Fault> {
        Superblock::parse(&self.former)
    }
}

impl RawRecord {
    /// Checks that all places are in order, and lie where they must.
    fn check_places(&self, at: u64, sb: &Superblock) -> Result<(), Corrupt> {
        let broken = |what, found| Err(Corrupt::PatchRecord { what, found });
        let block_bytes = u64::from(sb.block_bytes());
        let room = room(sb.block_bytes());
        let (start, end) = (self.start.get(), self.end.get());
        if at.checked_add(room) != Some(end) {
            return broken("end", end);
        }
        if start % block_bytes != 0 || start < block_bytes || start > at {
            return broken("start", start);
        }
        let previous = self.previous.get();
        let is_first = self.number.get() == 1;
        let is_before = previous
            .checked_add(room)
            .is_some_and(|end| end <= start && previous % block_bytes == 0);
        if is_first != (previous == 0) || !is_before && !is_first {
            return broken("place of the former record", previous);
        }
        let root = self.root.get();
        let is_in_slots = root >= block_bytes && root % SLOT_BYTES == 0 && root < start;
        if root != 0 && !is_in_slots {
            return broken("place of the root", root);
        }
        match self.reserved.iter().all(|byte| *byte == 0) {
            true => Ok(()),
            false => broken("reserved part", 1),
        }
    }

    /// Checks that the former superblock is one of this image.
    fn check_former(&self, sb: &Superblock) -> Result<(), Fault> {
        let broken = |what, found| Err(Corrupt::PatchRecord { what, found }.into());
        let former = Superblock::parse(&self.former)?;
        if (former.block_bits, former.uuid) != (sb.block_bits, sb.uuid) {
            return broken("block size or UUID of the former superblock", 0);
        }
        if former.superblock_bytes != sb.superblock_bytes {
            let bytes = former.superblock_bytes;
            return broken("length of the former superblock", bytes.into());
        }
        match former.blocks.checked_mul(u64::from(sb.block_bytes())) {
            Some(end) if end <= self.start.get() => Ok(()),
            _ => broken("number of former blocks", former.blocks),
        }
    }

    fn free_slots(&self) -> Result<Vec<Slots>, Corrupt> {
        let broken = |what, found| Err(Corrupt::PatchRecord { what, found });
        let count = self.free_count.get();
        if count as usize > FREE_MAX {
            return broken("number of ranges of free slots", count.into());
        }
        let (used, unused) = self.free.split_at(count as usize);
        let mut reached = 0;
        let mut free = Vec::with_capacity(used.len());
        for raw in used {
            let slots = Slots {
                first: raw.first.get(),
                count: raw.count.get(),
            };
            let is_ascending = u64::from(slots.first) >= reached;
            if slots.count == 0 || !is_ascending || slots.end() > ROOT_SLOTS {
                return broken("range of free slots", slots.first.into());
            }
            reached = slots.end();
            free.push(slots);
        }
        match unused.iter().all(|raw| raw.as_bytes() == [0; 4]) {
            true => Ok(free),
            false => broken("unused range of free slots", 1),
        }
    }
}

/// The superblock of a state with another number of blocks, and the checksum that it has before `rest`, the bytes behind it
/// that the checksum covers.
pub fn with_blocks(former: &[u8; SUPERBLOCK_BYTES], blocks: u64, rest: &[u8]) -> Vec<u8> {
    use crate::features::{Compat, Incompat};

    let (mut raw, _) = RawSuperblock::read_from_prefix(&former[..]).expect("128 bytes");
    raw.blocks_lo = (blocks as u32).into();
    let incompat = Incompat::from_bits_retain(raw.feature_incompat.get());
    if incompat.contains(Incompat::FORTY_EIGHT_BIT) && raw.rootnid_8b.get() != 0 {
        raw.rootnid_2b = ((blocks >> 32) as u16).into();
    }
    raw.checksum = 0.into();
    let compat = Compat::from_bits_retain(raw.feature_compat.get());
    if compat.contains(Compat::SB_CHKSUM) {
        let all = [raw.as_bytes(), rest].concat();
        raw.checksum = crate::superblock::checksum(&all).into();
    }
    raw.as_bytes().to_vec()
}

#[cfg(test)]
mod tests {
    use super::*;

    const AT: u64 = 5 << 12;

    fn superblock() -> [u8; SUPERBLOCK_BYTES] {
        let mut raw = RawSuperblock::read_from_bytes(&[0; SUPERBLOCK_BYTES]).unwrap();
        raw.magic = crate::superblock::MAGIC.into();
        raw.blkszbits = 12;
        raw.blocks_lo = 3.into();
        let mut bytes = [0; SUPERBLOCK_BYTES];
        bytes.copy_from_slice(raw.as_bytes());
        bytes
    }

    fn record() -> PatchRecord {
        PatchRecord {
            number: 2,
            change: Change::Rollback(0),
            time: Timestamp {
                secs: -7,
                nanos: 999,
            },
            start: 4 << 12,
            end: 6 << 12,
            previous: Some(3 << 12),
            root: Some(4096 + 32),
            former: superblock(),
            superblock: 0x1234_5678,
            free: vec![
                Slots { first: 7, count: 1 },
                Slots {
                    first: 8,
                    count: 65_528,
                },
            ],
        }
    }

    #[test]
    fn a_record_is_read_as_it_was_written() {
        let sb = Superblock::parse(&superblock()).unwrap();
        let first = PatchRecord {
            number: 1,
            change: Change::Patch,
            previous: None,
            root: None,
            free: Vec::new(),
            ..record()
        };
        for record in [record(), first] {
            let read = PatchRecord::parse(&record.encode(), AT, &sb).unwrap();
            assert_eq!(read, record);
        }
    }

    /// Tests that any changed byte is noticed, by the checksum; and with a right one, by the rules.
    #[test]
    fn hostile_bytes_are_refused() {
        let sb = Superblock::parse(&superblock()).unwrap();
        let good = record().encode();
        for at in 0..good.len() {
            let mut bytes = good;
            bytes[at] ^= 0x10;
            assert!(PatchRecord::parse(&bytes, AT, &sb).is_err(), "{at}");
        }
        type Change = fn(&mut RawRecord);
        let change: [(&str, Change); 17] = [
            ("version", |raw| raw.version = 2.into()),
            ("number", |raw| raw.number = 0.into()),
            ("number", |raw| raw.number = (STATES_MAX + 1).into()),
            ("kind", |raw| raw.kind = 3.into()),
            ("kind", |raw| raw.restores = 2.into()),
            ("time", |raw| raw.nanos = 1_000_000_000.into()),
            ("end", |raw| raw.end = (7 << 12).into()),
            ("start", |raw| raw.start = (6 << 12).into()),
            ("start", |raw| raw.start = 100.into()),
            ("place of the former record", |raw| {
                raw.previous = 0.into();
            }),
            ("place of the former record", |raw| {
                raw.previous = (4 << 12).into();
            }),
            ("place of the root", |raw| raw.root = 64.into()),
            ("place of the root", |raw| raw.root = (4 << 12).into()),
            ("reserved part", |raw| raw.reserved[47] = 1),
            ("range of free slots", |raw| raw.free[1].first = 7.into()),
            ("range of free slots", |raw| {
                raw.free[1].count = 65_529.into();
            }),
            ("unused range of free slots", |raw| {
                raw.free[2].count = 1.into();
            }),
        ];
        for (expected, change) in change {
            let (mut raw, _) = RawRecord::read_from_prefix(&good[..]).unwrap();
            change(&mut raw);
            raw.checksum = 0.into();
            raw.checksum = crc32c::crc32c(raw.as_bytes()).into();
            let told = PatchRecord::parse(raw.as_bytes(), AT, &sb).unwrap_err();
            let Fault::Corrupt(Corrupt::PatchRecord { what, .. }) = told else {
                panic!("{expected}: {told}");
            };
            assert_eq!(what, expected);
        }
    }
}
