//! The superblock: where each area lies, and how large it is.
//!
//! Source: `docs/format/log.md`, sections 1 and 2.

use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::bits::Bits;
use super::head::{HEADER_BYTES, HeadKind, ORPHAN_BYTES};
use super::summary::OWNER_BYTES;
use super::table::{BST_SEGMENTS_PER_BLOCK, NAT_PER_BLOCK, SIT_PER_BLOCK};
use super::{
    BLOCK_BYTES, BLOCKS_MAX, Corrupt, Fault, SEGMENT_BLOCKS, SEGMENT_CONTENT, Unsupported,
    crc_around, seal,
};

mod plan;

/// Offset of the superblock in block 0 and in block 1.
pub const SUPERBLOCK_OFFSET: usize = 1024;
/// Bytes of the superblock.
pub const SUPERBLOCK_BYTES: usize = 256;
/// The most bytes of a label.
pub const LABEL_BYTES: usize = 64;
/// The most slots of a packed block.
pub const SLOTS_MAX: u8 = 32;

/// With fewer segments than these, heads share them.
pub const SEGMENTS_FEW: u32 = 256;
/// One segment in so many is left empty, so that cleaning finds some that are not full.
const SLACK: u32 = 20;
/// Segments beyond what users may fill: those of the heads, and some to clean and to write checkpoints.
const RESERVED: u32 = 30;
/// Segments beyond what users may fill, in a log whose heads share segments.
const RESERVED_OF_FEW: u32 = 12;
/// The blocks with the superblock.
const FIRST_AREA: u64 = 2;
/// Room in a pack for journals, in bytes.
const JOURNAL_BYTES: usize = 8 * BLOCK_BYTES;
/// Room in a pack for inodes without a name.
const ORPHANS: usize = 16 * BLOCK_BYTES / ORPHAN_BYTES;
/// The most summaries that a pack has room for besides those of the heads, and of how many segments it has one.
const SUMMARIES_MAX: u32 = 128;
const SEGMENTS_PER_SUMMARY: u32 = 4;

const MAGIC: [u8; 8] = *b"antlog\r\n";
const CRC_AT: usize = 8;
const BLOCK_BITS: u8 = 12;
const SEGMENT_BITS: u8 = 9;
/// Content may be compressed, in slots of packed blocks.
pub const INCOMPAT_PACKED: u64 = 1;
/// Segments may be filled where they have holes, and packs have room for their summaries.
pub const INCOMPAT_THREADED: u64 = 2;
/// Extended attributes of an inode may lie in more nodes than one.
pub const INCOMPAT_LARGE_XATTRS: u64 = 4;
/// Pointers to content may have checksums.
pub const INCOMPAT_CHECKSUMS: u64 = 8;
/// Inodes may lie in slots of packed blocks.
pub const INCOMPAT_PACKED_INODES: u64 = 16;
/// A chunk of a group may lie in more than two blocks.
pub const INCOMPAT_LONG_CHUNKS: u64 = 32;
const INCOMPAT_KNOWN: u64 = INCOMPAT_PACKED
    | INCOMPAT_THREADED
    | INCOMPAT_LARGE_XATTRS
    | INCOMPAT_CHECKSUMS
    | INCOMPAT_PACKED_INODES
    | INCOMPAT_LONG_CHUNKS;
/// The log may keep a record of its own, in an inode without a name.
pub const RO_COMPAT_OWN_RECORD: u64 = 1;
const RO_COMPAT_KNOWN: u64 = RO_COMPAT_OWN_RECORD;

const _: () = assert!(size_of::<RawSuperblock>() == SUPERBLOCK_BYTES);
const _: () = assert!(1 << BLOCK_BITS == BLOCK_BYTES);
const _: () = assert!(1 << SEGMENT_BITS == SEGMENT_BLOCKS);

/// The superblock as it lies at byte 1024 of its block.
///
/// ```text
///      0           4           8           c
/// 0x00 |         magic         |    crc    |   bytes   |
/// 0x10 |      generation       |       incompat        |
/// 0x20 |       ro_compat       |        compat         |
/// 0x30 |                     uuid                      |
/// 0x40 |                   hash_seed                   |
/// 0x50 |               label, 64 bytes                 |
/// 0x90 |        blocks         |   checkpoint_start    |
/// 0xa0 |ckpt_blocks| sit_blocks|       sit_start       |
/// 0xb0 |       bst_start       |bst_blocks |nat_blocks |
/// 0xc0 |       nat_start       |      main_start       |
/// 0xd0 | segments  |   nids    | sps | spz |sl|bb|sb|0 |
/// 0xe0 | reserved_segments | 0 to 0x100                |
/// ```
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct RawSuperblock {
    magic: [u8; 8],
    crc: U32,
    bytes: U32,
    generation: U64,
    incompat: U64,
    ro_compat: U64,
    compat: U64,
    uuid: [u8; 16],
    hash_seed: [u8; 16],
    label: [u8; LABEL_BYTES],
    blocks: U64,
    checkpoint_start: U64,
    checkpoint_blocks: U32,
    sit_blocks: U32,
    sit_start: U64,
    bst_start: U64,
    bst_blocks: U32,
    nat_blocks: U32,
    nat_start: U64,
    main_start: U64,
    segments: U32,
    nids: U32,
    segments_per_section: U16,
    sections_per_zone: U16,
    slots_max: u8,
    block_bits: u8,
    segment_bits: u8,
    reserved: u8,
    reserved_segments: U32,
    reserved2: [u8; 28],
}

/// A superblock that may be relied on; whether the device has all `blocks` is for the caller to see.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Superblock {
    /// Grows by one whenever it is written.
    pub generation: u64,
    /// Features that a reader must know.
    pub incompat: u64,
    /// Features that a writer must know; see [`check_writable`](Self::check_writable).
    pub ro_compat: u64,
    /// Features that nobody needs to know.
    pub compat: u64,
    /// The UUID.
    pub uuid: [u8; 16],
    /// Key of the directories' hash.
    pub hash_seed: [u8; 16],
    /// The label, at most [`LABEL_BYTES`] bytes.
    pub label: String,
    /// Blocks of the device that are used.
    pub blocks: u64,
    /// The first block of the first checkpoint pack.
    pub checkpoint_start: u64,
    /// Blocks of each of the two packs.
    pub checkpoint_blocks: u32,
    /// The first block of the segment table.
    pub sit_start: u64,
    /// Blocks of each of its two copies.
    pub sit_blocks: u32,
    /// The first block of the block state table.
    pub bst_start: u64,
    /// Blocks of each of its two copies.
    pub bst_blocks: u32,
    /// The first block of the node address table.
    pub nat_start: u64,
    /// Blocks of each of its two copies.
    pub nat_blocks: u32,
    /// The first block of segment 0.
    pub main_start: u64,
    /// Segments of the main area.
    pub segments: u32,
    /// Node numbers are below this.
    pub nids: u32,
    /// Segments that are freed and filled together.
    pub segments_per_section: u16,
    /// Sections that lie together on the medium.
    pub sections_per_zone: u16,
    /// The most slots of a packed block.
    pub slots_max: u8,
    /// Segments kept for cleaning and checkpoints.
    pub reserved_segments: u32,
}

/// Parameters that can be chosen when a log is made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Shape {
    /// Segments that are freed and filled together; 0 counts as 1.
    pub segments_per_section: u16,
    /// Sections that lie together on the medium; 0 counts as 1.
    pub sections_per_zone: u16,
    /// The most slots of a packed block, 1 to 32; others count as the nearest of these.
    pub slots_max: u8,
    /// Node numbers, at least 16; `None`: one for each block of the main area.
    pub nids: Option<u32>,
    /// The label; what is beyond 64 bytes is cut off when it is encoded.
    pub label: String,
    /// The UUID.
    pub uuid: [u8; 16],
    /// Key of the directories' hash.
    pub hash_seed: [u8; 16],
}

impl Default for Shape {
    fn default() -> Self {
        Self {
            segments_per_section: 1,
            sections_per_zone: 1,
            slots_max: SLOTS_MAX,
            nids: None,
            label: String::new(),
            uuid: [0; 16],
            hash_seed: [0; 16],
        }
    }
}

/// There is no room for a log of this shape.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{blocks} blocks of 4 KiB are too few: a log of this shape needs at least {blocks_min}, {} MiB", mib(*.blocks_min))]
pub struct TooSmall {
    /// Blocks that there are.
    pub blocks: u64,
    /// Blocks that it takes.
    pub blocks_min: u64,
}

/// In which so many blocks have room.
fn mib(blocks: u64) -> u64 {
    (blocks * BLOCK_BYTES as u64).div_ceil(1 << 20)
}

fn fault(rule: &'static str, found: impl Into<u64>) -> Corrupt {
    let found = found.into();
    Corrupt::Superblock { rule, found }
}

/// The superblock in bytes that are known to be one, by their magic number and their checksum.
fn intact(bytes: &[u8; SUPERBLOCK_BYTES]) -> Result<&RawSuperblock, Corrupt> {
    let raw: &RawSuperblock = zerocopy::transmute_ref!(bytes);
    if raw.magic != MAGIC {
        let found = u64::from_be_bytes(raw.magic);
        return Err(Corrupt::Magic { found });
    }
    let (stored, computed) = (raw.crc.get(), crc_around(bytes, CRC_AT));
    if stored != computed {
        return Err(Corrupt::SuperblockChecksum { stored, computed });
    }
    Ok(raw)
}

impl Superblock {
    /// Reads and checks a superblock.
    ///
    /// # Errors
    ///
    /// The first rule that is broken, or what is unknown here.
    pub fn parse(bytes: &[u8; SUPERBLOCK_BYTES]) -> Result<Self, Fault> {
        intact(bytes)?.check()
    }

    /// The one of the two copies that counts: with a right checksum, and the higher generation.
    ///
    /// A copy that counts and cannot be used is not passed over for an older one, which describes what may be
    /// there no more.
    ///
    /// # Errors
    ///
    /// As [`parse`](Self::parse); what is wrong with the first one if neither checksum is right.
    pub fn choose(
        first: &[u8; SUPERBLOCK_BYTES],
        second: &[u8; SUPERBLOCK_BYTES],
    ) -> Result<Self, Fault> {
        let raw = match (intact(first), intact(second)) {
            (Ok(first), Ok(second)) if second.generation.get() > first.generation.get() => second,
            (Err(_), Ok(second)) => second,
            (first, _) => first?,
        };
        raw.check()
    }

    /// Refuses to write where a feature is unknown.
    ///
    /// # Errors
    ///
    /// [`Unsupported::RoCompat`].
    pub fn check_writable(&self) -> Result<(), Unsupported> {
        match self.ro_compat & !RO_COMPAT_KNOWN {
            0 => Ok(()),
            unknown => Err(Unsupported::RoCompat(unknown)),
        }
    }

    /// As it lies on the device.
    pub fn encode(&self) -> [u8; SUPERBLOCK_BYTES] {
        let mut bytes: [u8; SUPERBLOCK_BYTES] = zerocopy::transmute!(RawSuperblock {
            magic: MAGIC,
            crc: 0.into(),
            bytes: (SUPERBLOCK_BYTES as u32).into(),
            generation: self.generation.into(),
            incompat: self.incompat.into(),
            ro_compat: self.ro_compat.into(),
            compat: self.compat.into(),
            uuid: self.uuid,
            hash_seed: self.hash_seed,
            label: encode_label(&self.label),
            blocks: self.blocks.into(),
            checkpoint_start: self.checkpoint_start.into(),
            checkpoint_blocks: self.checkpoint_blocks.into(),
            sit_blocks: self.sit_blocks.into(),
            sit_start: self.sit_start.into(),
            bst_start: self.bst_start.into(),
            bst_blocks: self.bst_blocks.into(),
            nat_blocks: self.nat_blocks.into(),
            nat_start: self.nat_start.into(),
            main_start: self.main_start.into(),
            segments: self.segments.into(),
            nids: self.nids.into(),
            segments_per_section: self.segments_per_section.into(),
            sections_per_zone: self.sections_per_zone.into(),
            slots_max: self.slots_max,
            block_bits: BLOCK_BITS,
            segment_bits: SEGMENT_BITS,
            reserved: 0,
            reserved_segments: self.reserved_segments.into(),
            reserved2: [0; 28],
        });
        seal(&mut bytes, CRC_AT);
        bytes
    }

    /// Blocks of the checkpoint packs and the tables.
    pub fn tables(&self) -> std::ops::Range<u64> {
        let tables = &self.areas()[..4];
        let start = tables.iter().map(|(_, start, _)| *start).min();
        let end = tables.iter().map(|(_, start, blocks)| start + blocks).max();
        start.unwrap_or(0)..end.unwrap_or(0)
    }

    fn has_tables_in_front(&self) -> bool {
        self.tables().end <= self.main_start
    }

    /// Bytes of a checkpoint pack when all heads are open and full, without journals and orphans.
    fn pack_bytes_min(&self) -> u64 {
        let tables = [self.nat_blocks, self.sit_blocks, self.bst_blocks];
        let bits: usize = tables
            .iter()
            .map(|&blocks| Bits::bytes_of(blocks as usize))
            .sum();
        let owners = HeadKind::ALL.len() * SEGMENT_CONTENT as usize * OWNER_BYTES;
        (HEADER_BYTES + bits + owners) as u64
    }

    /// Tells whether inodes may lie in slots of packed blocks.
    pub(crate) fn has_packed_inodes(&self) -> bool {
        self.incompat & INCOMPAT_PACKED_INODES != 0
    }

    /// Tells whether a chunk of a group may lie in more than two blocks.
    pub(crate) fn has_long_chunks(&self) -> bool {
        self.incompat & INCOMPAT_LONG_CHUNKS != 0
    }

    /// Tells whether the extended attributes of an inode may lie in several nodes.
    pub(crate) fn has_large_xattrs(&self) -> bool {
        self.incompat & INCOMPAT_LARGE_XATTRS != 0
    }

    /// Tells whether the log may keep a record of its own.
    pub(crate) fn has_own_record(&self) -> bool {
        self.ro_compat & RO_COMPAT_OWN_RECORD != 0
    }

    fn is_threaded(&self) -> bool {
        self.incompat & INCOMPAT_THREADED != 0
    }

    /// Number of summaries that a pack has room for besides those of the heads. Each takes less than a block.
    pub fn summaries_max(&self) -> u32 {
        match self.is_threaded() {
            true => self.checkpoint_blocks.saturating_sub(self.pack_blocks()),
            false => 0,
        }
    }

    /// Blocks of a pack that has room for journals and orphans besides.
    fn pack_blocks(&self) -> u32 {
        let spare = JOURNAL_BYTES + ORPHANS * ORPHAN_BYTES;
        let pack_bytes = self.pack_bytes_min() + spare as u64;
        // The bits of three tables of 2^32 blocks at most.
        pack_bytes.div_ceil(BLOCK_BYTES as u64) as u32
    }

    /// The areas: name, first block, blocks. The main area is the last one.
    fn areas(&self) -> [(&'static str, u64, u64); 5] {
        let twice = |blocks: u32| 2 * u64::from(blocks);
        let main_blocks = u64::from(self.segments) * u64::from(SEGMENT_BLOCKS);
        [
            (
                "the checkpoint packs",
                self.checkpoint_start,
                twice(self.checkpoint_blocks),
            ),
            ("the segment table", self.sit_start, twice(self.sit_blocks)),
            (
                "the block state table",
                self.bst_start,
                twice(self.bst_blocks),
            ),
            (
                "the node address table",
                self.nat_start,
                twice(self.nat_blocks),
            ),
            ("the main area", self.main_start, main_blocks),
        ]
    }

    fn check_areas(&self) -> Result<(), Corrupt> {
        let (mut lower, upper) = (FIRST_AREA, self.blocks);
        let mut areas = self.areas();
        areas.sort_by_key(|(_, start, _)| *start);
        for (area, start, blocks) in areas {
            let end = start.checked_add(blocks);
            let end = end.filter(|&end| start >= lower && end <= upper);
            lower = end.ok_or(Corrupt::Area {
                area,
                start,
                blocks,
                lower,
                upper,
            })?;
        }
        Ok(())
    }

    fn check_counts(&self) -> Result<(), Corrupt> {
        let pack_bytes = u64::from(self.checkpoint_blocks) * BLOCK_BYTES as u64;
        let too_few: [(bool, &'static str, u32); 4] = [
            (
                self.sit_blocks < self.segments.div_ceil(SIT_PER_BLOCK),
                "the segment table has too few blocks for the segments",
                self.sit_blocks,
            ),
            (
                self.bst_blocks < self.segments.div_ceil(BST_SEGMENTS_PER_BLOCK),
                "the block state table has too few blocks for the segments",
                self.bst_blocks,
            ),
            (
                self.nat_blocks < self.nids.div_ceil(NAT_PER_BLOCK),
                "the node address table has too few blocks for the nids",
                self.nat_blocks,
            ),
            (
                pack_bytes < self.pack_bytes_min(),
                "a checkpoint pack has too few blocks for what it must hold",
                self.checkpoint_blocks,
            ),
        ];
        if let Some(&(_, rule, found)) = too_few.iter().find(|(is_broken, ..)| *is_broken) {
            return Err(fault(rule, found));
        }
        let summaries = if self.is_threaded() { SUMMARIES_MAX } else { 0 };
        match self.checkpoint_blocks > self.pack_blocks() + summaries {
            // Whoever reads a pack makes room for it.
            true => Err(fault(
                "a checkpoint pack has more blocks than it can need",
                self.checkpoint_blocks,
            )),
            false => Ok(()),
        }
    }

    fn check_geometry(&self) -> Result<(), Corrupt> {
        if self.blocks > BLOCKS_MAX {
            return Err(fault("more than 2^40 blocks", self.blocks));
        }
        if self.segments_per_section == 0 {
            return Err(fault("sections without segments", 0u8));
        }
        if self.sections_per_zone == 0 {
            return Err(fault("zones without sections", 0u8));
        }
        if self.segments == 0 || self.segments % u32::from(self.segments_per_section) != 0 {
            return Err(fault(
                "the segments make no whole sections, or there are none",
                self.segments,
            ));
        }
        if self.nids < 2 {
            return Err(fault("there is no nid for the root", self.nids));
        }
        if !(1..=SLOTS_MAX).contains(&self.slots_max) {
            return Err(fault("a packed block has 1 to 32 slots", self.slots_max));
        }
        if self.reserved_segments >= self.segments {
            return Err(fault("all segments are reserved", self.reserved_segments));
        }
        Ok(())
    }

    /// The first block behind the main area.
    fn main_end(&self) -> u64 {
        self.main_start + u64::from(self.segments) * u64::from(SEGMENT_BLOCKS)
    }

    /// The first block of a segment.
    pub fn segment_start(&self, segment: u32) -> u64 {
        self.main_start + u64::from(segment) * u64::from(SEGMENT_BLOCKS)
    }

    /// The segment that a block of content lies in, and its place there; `None` for all other blocks.
    pub fn locate(&self, block: u64) -> Option<(u32, u16)> {
        let at = block.checked_sub(self.main_start)?;
        let segment = u32::try_from(at / u64::from(SEGMENT_BLOCKS)).ok()?;
        let index = (at % u64::from(SEGMENT_BLOCKS)) as u16;
        let is_content = segment < self.segments && u32::from(index) < SEGMENT_CONTENT;
        is_content.then_some((segment, index))
    }

    /// Blocks of the main area that can hold content.
    pub fn content_blocks(&self) -> u64 {
        u64::from(self.segments) * u64::from(SEGMENT_CONTENT)
    }

    /// Blocks that users may fill.
    pub fn capacity(&self) -> u64 {
        self.capacity_of(self.segments)
    }

    /// Blocks that users could fill if the log had only so many segments. Its reserve is the one of a log of that size.
    pub fn capacity_of(&self, segments: u32) -> u64 {
        let left_out = self.segments.saturating_sub(segments);
        let needed = if self.segments < SEGMENTS_FEW {
            RESERVED_OF_FEW
        } else {
            RESERVED
        };
        let reserved = self.reserved_segments.saturating_sub(left_out / SLACK);
        let reserved = reserved.max(needed.min(self.reserved_segments));
        let content = segments.min(self.segments).saturating_sub(reserved);
        u64::from(content) * u64::from(SEGMENT_CONTENT)
    }
}

/// As many node numbers as there are blocks in so many segments.
fn every_block(segments: u32) -> u32 {
    let blocks = u64::from(segments) * u64::from(SEGMENT_BLOCKS);
    u32::try_from(blocks).unwrap_or(u32::MAX)
}

/// As much of a label as there is room for, up to a NUL.
fn encode_label(label: &str) -> [u8; LABEL_BYTES] {
    let mut end = label.find('\0').unwrap_or(label.len()).min(LABEL_BYTES);
    while !label.is_char_boundary(end) {
        end -= 1;
    }
    let mut bytes = [0; LABEL_BYTES];
    bytes[..end].copy_from_slice(&label.as_bytes()[..end]);
    bytes
}

fn decode_label(bytes: &[u8; LABEL_BYTES]) -> Result<String, Corrupt> {
    let end = bytes
        .iter()
        .position(|&byte| byte == 0)
        .unwrap_or(LABEL_BYTES);
    let (label, padding) = bytes.split_at(end);
    if padding.iter().any(|&byte| byte != 0) {
        return Err(fault("the label goes on behind its end", end as u64));
    }
    let text = std::str::from_utf8(label);
    let text = text.map_err(|error| fault("the label is not UTF-8", error.valid_up_to() as u64))?;
    Ok(text.to_owned())
}

impl RawSuperblock {
    fn check(&self) -> Result<Superblock, Fault> {
        let unknown = self.incompat.get() & !INCOMPAT_KNOWN;
        if unknown != 0 {
            return Err(Unsupported::Incompat(unknown).into());
        }
        if self.bytes.get() != SUPERBLOCK_BYTES as u32 {
            return Err(fault("it must have 256 bytes", self.bytes.get()).into());
        }
        if self.block_bits != BLOCK_BITS {
            return Err(Unsupported::BlockBits(self.block_bits).into());
        }
        if self.segment_bits != SEGMENT_BITS {
            return Err(Unsupported::SegmentBits(self.segment_bits).into());
        }
        let superblock = self.read()?;
        superblock.check_geometry()?;
        superblock.check_counts()?;
        superblock.check_areas()?;
        Ok(superblock)
    }

    fn read(&self) -> Result<Superblock, Corrupt> {
        Ok(Superblock {
            generation: self.generation.get(),
            incompat: self.incompat.get(),
            ro_compat: self.ro_compat.get(),
            compat: self.compat.get(),
            uuid: self.uuid,
            hash_seed: self.hash_seed,
            label: decode_label(&self.label)?,
            blocks: self.blocks.get(),
            checkpoint_start: self.checkpoint_start.get(),
            checkpoint_blocks: self.checkpoint_blocks.get(),
            sit_start: self.sit_start.get(),
            sit_blocks: self.sit_blocks.get(),
            bst_start: self.bst_start.get(),
            bst_blocks: self.bst_blocks.get(),
            nat_start: self.nat_start.get(),
            nat_blocks: self.nat_blocks.get(),
            main_start: self.main_start.get(),
            segments: self.segments.get(),
            nids: self.nids.get(),
            segments_per_section: self.segments_per_section.get(),
            sections_per_zone: self.sections_per_zone.get(),
            slots_max: self.slots_max,
            reserved_segments: self.reserved_segments.get(),
        })
    }
}

#[cfg(test)]
mod tests;
