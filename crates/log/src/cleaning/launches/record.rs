//! Launches to bytes and back. `docs/format/launches.md` has the same in words.

use std::collections::BTreeMap;

use anteros_core::Timestamp;
use zerocopy::little_endian::{I64, U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::{BLOCKS_MAX, Block, FILES_MAX, File, Launches, Lookup, Rounds, Version};
use crate::layout::{crc_around, seal};

/// States what a record begins with.
const MAGIC: [u8; 8] = *b"ANTSTART";
const VERSION: u32 = 2;
const CRC_AT: usize = 12;
const NANOS: u32 = 1_000_000_000;

/// The most bytes of a record.
pub const RECORD_BYTES_MAX: usize = size_of::<RawHeader>()
    + FILES_MAX * (size_of::<RawFile>() + size_of::<RawLookup>())
    + BLOCKS_MAX * size_of::<RawBlock>();

/// Holds what a record begins with, as it lies in its file.
///
/// ```text
///      0        4        8        c
/// 0x00 |      magic      |version |  crc   |
/// 0x10 |               uuid                |
/// 0x20 | files  |rounds|0|     skipped     |
/// 0x30 |inodes  |   0    |
/// ```
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct RawHeader {
    magic: [u8; 8],
    version: U32,
    crc: U32,
    uuid: [u8; 16],
    files: U32,
    rounds: u8,
    reserved: [u8; 3],
    skipped: U64,
    inodes: U32,
    reserved_too: [u8; 4],
}

/// A file; its blocks lie behind it.
///
/// ```text
///      0        4        8        c
/// 0x00 |  ino   | gener. |  mtime, seconds |
/// 0x10 | nanos  | blocks |   |    |gathered|
/// ```
///
/// Bytes 0x18 and 0x19 have the launches and how many of them brought nothing new; then there are two of zeros.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct RawFile {
    ino: U32,
    generation: U32,
    mtime_secs: I64,
    mtime_nanos: U32,
    blocks: U32,
    launches: u8,
    same: u8,
    reserved: [u8; 2],
    gathered: U32,
}

/// A block of a file.
///
/// ```text
/// byte 0        4       6          7   8           16
///      |  lblk  | reads | launches | 0 |   order   |
/// ```
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct RawBlock {
    lblk: U32,
    reads: U16,
    launches: u8,
    reserved: u8,
    order: U64,
}

/// An inode that was looked up.
///
/// ```text
///      0        4        8      9        10
/// 0x00 |  ino   | gener. |launches|   0    |
/// 0x10 |      order      |
/// ```
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct RawLookup {
    ino: U32,
    generation: U32,
    launches: u8,
    reserved: [u8; 7],
    order: U64,
}

const _: () = assert!(size_of::<RawHeader>() == 56);
const _: () = assert!(size_of::<RawLookup>() == 24);
const _: () = assert!(size_of::<RawFile>() == 32);
const _: () = assert!(size_of::<RawBlock>() == 16);

/// Tells why bytes are no record of launches.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RecordFault {
    /// It is something else.
    #[error("no record of launches: it begins with \"{}\"", .0.escape_ascii())]
    Magic(Vec<u8>),
    /// It is of a later version.
    #[error("a record of launches of version {0}, of which only {VERSION} is known")]
    Version(u32),
    /// It is damaged, or cut short.
    #[error(
        "damaged or cut short: byte {CRC_AT} has the checksum {stored:#010x}, but that of its {bytes} bytes is {computed:#010x}"
    )]
    Checksum {
        /// Holds what the record says.
        stored: u32,
        /// Holds what it should say.
        computed: u32,
        /// Tells how long it is.
        bytes: usize,
    },
    /// A number breaks a rule.
    #[error("byte {at}: {rule}, found {found}")]
    Rule {
        /// Tells where.
        at: usize,
        /// Holds what should be there.
        rule: &'static str,
        /// Holds what is there.
        found: u64,
    },
}

impl Launches {
    /// As they lie in a record.
    pub fn encode(&self) -> Vec<u8> {
        let header = RawHeader {
            magic: MAGIC,
            version: VERSION.into(),
            crc: 0.into(),
            uuid: self.uuid,
            files: (self.files.len() as u32).into(),
            rounds: self.rounds,
            reserved: [0; 3],
            skipped: self.skipped.into(),
            inodes: (self.inodes.len() as u32).into(),
            reserved_too: [0; 4],
        };
        let mut bytes = header.as_bytes().to_vec();
        for (&ino, file) in &self.files {
            bytes.extend_from_slice(file.raw(ino).as_bytes());
            for (&lblk, block) in &file.blocks {
                bytes.extend_from_slice(block.raw(lblk).as_bytes());
            }
        }
        for (&ino, lookup) in &self.inodes {
            bytes.extend_from_slice(lookup.raw(ino).as_bytes());
        }
        seal(&mut bytes, CRC_AT);
        bytes
    }

    /// Reads and checks a record.
    ///
    /// # Errors
    ///
    /// The first rule that is broken, and where.
    pub fn parse(bytes: &[u8]) -> Result<Self, RecordFault> {
        let mut reader = Reader { bytes, at: 0 };
        if !bytes.starts_with(&MAGIC) {
            let begin = &bytes[..bytes.len().min(MAGIC.len())];
            return Err(RecordFault::Magic(begin.to_vec()));
        }
        let header: RawHeader = reader.next()?;
        if header.version.get() != VERSION {
            return Err(RecordFault::Version(header.version.get()));
        }
        let (stored, computed) = (header.crc.get(), crc_around(bytes, CRC_AT));
        if stored != computed {
            return Err(RecordFault::Checksum {
                stored,
                computed,
                bytes: bytes.len(),
            });
        }
        let files = header.files.get();
        rule(
            files as usize <= FILES_MAX,
            0x20,
            "at most 65,536 files",
            files,
        )?;
        rule(
            header.rounds > 0,
            0x24,
            "at least one launch to record",
            header.rounds,
        )?;
        let mut launches = Self::new(header.uuid, header.rounds);
        launches.skipped = header.skipped.get();
        let inodes = header.inodes.get();
        rule(
            inodes as usize <= FILES_MAX,
            0x30,
            "at most 65,536 inodes",
            inodes,
        )?;
        for _ in 0..files {
            launches.read_file(&mut reader)?;
        }
        for _ in 0..inodes {
            launches.read_lookup(&mut reader)?;
        }
        let left = bytes.len() - reader.at;
        rule(
            left == 0,
            reader.at,
            "no byte behind the inodes",
            left as u64,
        )?;
        Ok(launches)
    }

    fn read_lookup(&mut self, reader: &mut Reader<'_>) -> Result<(), RecordFault> {
        let at = reader.at;
        let raw: RawLookup = reader.next()?;
        let (ino, order) = (raw.ino.get(), raw.order.get());
        ascends(&self.inodes, ino, at, "inode numbers that ascend")?;
        rule(
            raw.launches > 0,
            at + 8,
            "at least one launch",
            raw.launches,
        )?;
        let lookup = Lookup {
            generation: raw.generation.get(),
            rounds: Rounds::over(raw.launches),
            order,
        };
        self.order = self.order.max(order.saturating_add(1));
        self.inodes.insert(ino, lookup);
        Ok(())
    }

    fn read_file(&mut self, reader: &mut Reader<'_>) -> Result<(), RecordFault> {
        let at = reader.at;
        let raw: RawFile = reader.next()?;
        let (ino, nanos) = (raw.ino.get(), raw.mtime_nanos.get());
        ascends(&self.files, ino, at, "inode numbers that ascend")?;
        rule(nanos < NANOS, at + 16, "nanoseconds of a second", nanos)?;
        rule(
            raw.launches > 0,
            at + 24,
            "at least one launch",
            raw.launches,
        )?;
        let count = raw.blocks.get();
        let room = BLOCKS_MAX - self.blocks;
        rule(
            count as usize <= room,
            at + 20,
            "at most 1,048,576 blocks in all",
            count,
        )?;
        let mut file = File::new(Version {
            generation: raw.generation.get(),
            mtime: Timestamp {
                secs: raw.mtime_secs.get(),
                nanos,
            },
        });
        rule(
            raw.same < raw.launches,
            at + 25,
            "fewer launches that brought nothing new than launches",
            raw.same,
        )?;
        file.gathered = raw.gathered.get();
        rule(
            file.gathered <= count,
            at + 28,
            "no more blocks that lie together than blocks",
            file.gathered,
        )?;
        file.rounds = Rounds {
            same: raw.same,
            ..Rounds::over(raw.launches)
        };
        for _ in 0..count {
            let block = file.read_block(reader)?;
            self.order = self.order.max(block.order.saturating_add(1));
        }
        self.blocks += file.blocks.len();
        self.files.insert(ino, file);
        Ok(())
    }
}

impl File {
    fn raw(&self, ino: u32) -> RawFile {
        RawFile {
            ino: ino.into(),
            generation: self.version.generation.into(),
            mtime_secs: self.version.mtime.secs.into(),
            mtime_nanos: self.version.mtime.nanos.into(),
            blocks: (self.blocks.len() as u32).into(),
            launches: self.rounds.begun,
            same: self.rounds.same,
            reserved: [0; 2],
            gathered: self.gathered.into(),
        }
    }

    fn read_block(&mut self, reader: &mut Reader<'_>) -> Result<Block, RecordFault> {
        let at = reader.at;
        let raw: RawBlock = reader.next()?;
        let (lblk, reads) = (raw.lblk.get(), raw.reads.get());
        ascends(&self.blocks, lblk, at, "logical blocks that ascend")?;
        let is_possible = (1..=self.rounds.begun).contains(&raw.launches);
        rule(
            is_possible,
            at + 6,
            "one of the file's launches",
            raw.launches,
        )?;
        let is_enough = reads >= u16::from(raw.launches);
        rule(is_enough, at + 4, "a read for each launch", reads)?;
        let block = Block {
            order: raw.order.get(),
            reads,
            launches: raw.launches,
            latest: 0,
        };
        self.blocks.insert(lblk, block);
        Ok(block)
    }
}

impl Lookup {
    fn raw(&self, ino: u32) -> RawLookup {
        RawLookup {
            ino: ino.into(),
            generation: self.generation.into(),
            launches: self.rounds.begun,
            reserved: [0; 7],
            order: self.order.into(),
        }
    }
}

impl Rounds {
    /// So many that have ended.
    fn over(begun: u8) -> Self {
        Self {
            begun,
            ..Self::default()
        }
    }
}

impl Block {
    fn raw(&self, lblk: u32) -> RawBlock {
        RawBlock {
            lblk: lblk.into(),
            reads: self.reads.into(),
            launches: self.launches,
            reserved: 0,
            order: self.order.into(),
        }
    }
}

/// Structures one behind the other.
struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl Reader<'_> {
    fn next<T: FromBytes>(&mut self) -> Result<T, RecordFault> {
        let rest = &self.bytes[self.at..];
        let (read, _) = T::read_from_prefix(rest).map_err(|_| RecordFault::Rule {
            at: self.at,
            rule: "more bytes than are there",
            found: rest.len() as u64,
        })?;
        self.at += size_of::<T>();
        Ok(read)
    }
}

/// Checks that a number is greater than all that were read before.
fn ascends<T>(
    read: &BTreeMap<u32, T>,
    number: u32,
    at: usize,
    what: &'static str,
) -> Result<(), RecordFault> {
    let last = read.last_key_value().map(|(&last, _)| last);
    rule(last < Some(number), at, what, number)
}

fn rule(
    holds: bool,
    at: usize,
    rule: &'static str,
    found: impl Into<u64>,
) -> Result<(), RecordFault> {
    let found = found.into();
    holds
        .then_some(())
        .ok_or(RecordFault::Rule { at, rule, found })
}

#[cfg(test)]
mod tests {
    use super::super::ORDERS_TOGETHER;
    use super::*;

    const V: Version = Version {
        generation: 3,
        mtime: Timestamp {
            secs: -5,
            nanos: NANOS - 1,
        },
    };

    fn some() -> Launches {
        let mut launches = Launches::new([7; 16], 2);
        for now in [0, 2000] {
            launches.note(12, V, 3..6, now);
            launches.note(400, V, 0..1, now);
            launches.note(12, V, now as u32..now as u32 + 1, now);
            launches.note_lookup(9, 1, now);
            launches.note_lookup(400, 1, now);
        }
        launches
    }

    #[test]
    fn what_is_written_is_read() {
        let launches = some();
        let read = Launches::parse(&launches.encode()).unwrap();
        assert_eq!((read.uuid(), read.rounds()), ([7; 16], 2));
        assert!(read.files().eq(launches.files()));
        for (ino, version) in launches.files() {
            assert_eq!(read.reads(ino, version), launches.reads(ino, version));
        }
        assert_eq!(Launches::parse(&read.encode()), Ok(read.clone()));
        assert_eq!(read.order, launches.order);
        let none = Launches::new([1; 16], 255);
        assert_eq!(Launches::parse(&none.encode()), Ok(none));
    }

    /// A launch does not go on in the next mount, and new reads come behind the old ones.
    #[test]
    fn what_is_read_goes_on() {
        let mut read = Launches::parse(&some().encode()).unwrap().with_rounds(3);
        read.note(12, V, 4..5, 2001);
        let reads = read.reads(12, V).unwrap();
        assert_eq!((reads.rounds, reads.core.len()), (3, 1));
        let found = (reads.core[0].mark.order, reads.core[0].lblk);
        assert_eq!(found, (2 * ORDERS_TOGETHER, 4));
        let other: Vec<u32> = reads.other.iter().map(|read| read.lblk).collect();
        assert_eq!(other, [0, 3, 5, 2000]);
    }

    #[test]
    fn every_damage_is_found() {
        let whole = some().encode();
        for len in 0..whole.len() {
            assert!(Launches::parse(&whole[..len]).is_err(), "{len}");
        }
        for at in 0..whole.len() {
            let mut flipped = whole.clone();
            flipped[at] ^= 1 << (at % 8);
            assert!(Launches::parse(&flipped).is_err(), "{at}");
        }
        let longer = [&whole[..], b"\0"].concat();
        assert!(Launches::parse(&longer).is_err());
    }

    /// With a right checksum.
    #[test]
    fn rules_that_are_broken_are_named() {
        let file = size_of::<RawHeader>();
        let block = file + size_of::<RawFile>();
        let inode = some().encode().len() - 2 * size_of::<RawLookup>();
        let cases: [(usize, &[u8], &str); 16] = [
            (0, b"A", "begins with \"ANTSTAR"),
            (8, &[3], "version 3"),
            (
                0x20,
                &[1, 0, 1],
                "byte 32: at most 65,536 files, found 65537",
            ),
            (0x30, &[3], "more bytes than are there, found 0"),
            (0x30, &[1], "no byte behind the inodes"),
            (0x32, &[1], "byte 48: at most 65,536 inodes, found 65538"),
            (inode + 24, &[9, 0], "inode numbers that ascend, found 9"),
            (inode + 8, &[0], "at least one launch, found 0"),
            (
                0x24,
                &[0],
                "byte 36: at least one launch to record, found 0",
            ),
            (file + 16, &[0, 0xca, 0x9a, 0x3b], "byte 72: nanoseconds"),
            (
                file + 20,
                &[1, 0, 16, 0],
                "byte 76: at most 1,048,576 blocks",
            ),
            (file + 24, &[0], "byte 80: at least one launch, found 0"),
            (
                file + 25,
                &[2],
                "byte 81: fewer launches that brought nothing new than launches, found 2",
            ),
            (block + 4, &[0], "byte 92: a read for each launch"),
            (
                block + 6,
                &[3],
                "byte 94: one of the file's launches, found 3",
            ),
            (
                block + 16,
                &[0],
                "byte 104: logical blocks that ascend, found 0",
            ),
        ];
        for (at, bytes, said) in cases {
            let mut broken = some().encode();
            broken[at..at + bytes.len()].copy_from_slice(bytes);
            if at == 0 {
                broken[7] = b'!';
            }
            seal(&mut broken, CRC_AT);
            let fault = Launches::parse(&broken).unwrap_err().to_string();
            assert!(fault.contains(said), "{said}: {fault}");
        }
        assert!(matches!(Launches::parse(b""), Err(RecordFault::Magic(_))));
    }
}
