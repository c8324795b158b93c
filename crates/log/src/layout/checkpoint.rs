//! Checkpoint packs: which blocks count, and where writing goes on.
//!
//! A pack is one header and nine streams behind it, without gaps:
//!
//! ```text
//! | header | NAT bits | SIT bits | BST bits | orphans | NAT journal | SIT journal | BST journal | summaries of heads | of others |
//! ```
//!
//! Source: `docs/format/log.md`, section 3.

use std::collections::HashSet;

use anteros_core::Timestamp;
use zerocopy::little_endian::{I64, U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::bits::Bits;
use super::head::{HEADER_BYTES, ORPHAN_BYTES};
pub use super::head::{HEADS, HeadKind};
use super::summary::{OWNER_BYTES, Owner};
use super::table::{NAT_BYTES, NatEntry, SIT_BYTES, SitEntry};
use super::{BLOCK_BYTES, Block, Corrupt, ROOT, SEGMENT_CONTENT, Superblock, crc_of, seal};

const MAGIC: u32 = u32::from_le_bytes(*b"CKPT");
/// Of a pack that counts no more.
const SUPERSEDED: u32 = u32::from_le_bytes(*b"CKPO");
const CRC_AT: usize = 4;
const CLEAN: u32 = 1;
const ORPHANS_LEFT_OUT: u32 = 2;
const NONE: u32 = u32::MAX;
/// Of a head: it fills the holes of a segment.
const THREADED: u8 = 1;
/// More checkpoints or groups than anyone lives to see; those of a log may begin anywhere in the lower half.
const COUNT_MAX: u64 = 3 << 62;
const NAT_JOURNAL_BYTES: usize = 4 + NAT_BYTES;
const SIT_JOURNAL_BYTES: usize = 4 + SIT_BYTES;
const BST_JOURNAL_BYTES: usize = 12;
const SUMMARY_BYTES: usize = 4 + SEGMENT_CONTENT as usize * OWNER_BYTES;

const _: () = assert!(size_of::<RawHeader>() == HEADER_BYTES);
const _: () = assert!(size_of::<RawHead>() == 16);

/// A head as it lies in a pack.
///
/// ```text
/// 0         4      6    7    8        c              10
/// | segment | next |kind|flag| serial | next_segment |
/// ```
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct RawHead {
    segment: U32,
    next: U16,
    kind: u8,
    flags: u8,
    serial: U32,
    next_segment: U32,
}

/// The header of a pack.
///
/// ```text
///       0           4           8           c
/// 0x000 |   magic   |    crc    |        version        |
/// 0x010 |  blocks   |   flags   |        seconds        |
/// 0x020 |   nanos   |  orphans  |      used_blocks      |
/// 0x030 |    reserved_blocks    |  inodes   |   nodes   |
/// 0x040 | next_nid  | nat_journ.| sit_journ.| bst_journ.|
/// 0x050 |     next_sequence     |  serial   | rewritten |
/// 0x060 |record_ino | 0 to 0x80                         |
/// 0x080 | 16 heads                                      |
/// 0x180 | 0 to 0x200                                    |
/// ```
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct RawHeader {
    magic: U32,
    crc: U32,
    version: U64,
    blocks: U32,
    flags: U32,
    seconds: I64,
    nanos: U32,
    orphans: U32,
    used_blocks: U64,
    reserved_blocks: U64,
    inodes: U32,
    nodes: U32,
    next_nid: U32,
    nat_journal: U32,
    sit_journal: U32,
    bst_journal: U32,
    next_sequence: U64,
    serial: U32,
    rewritten: U32,
    record_ino: U32,
    reserved: [u8; 28],
    heads: [RawHead; HEADS],
    reserved2: [u8; 128],
}

/// An open segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Head {
    /// The segment.
    pub segment: u32,
    /// Its block that is written next; 511: none.
    pub next: u16,
    /// Holds what it is filled with.
    pub kind: HeadKind,
    /// The number it was opened with.
    pub serial: u32,
    /// Of the packed log: the segment in which it goes on.
    pub next_segment: Option<u32>,
    /// Tells whether it fills the holes of a segment that was full: blocks behind `next` may be valid.
    pub threaded: bool,
}

impl Head {
    /// Returns how many owners its summary has in a pack.
    fn owners(&self) -> u16 {
        match self.threaded {
            true => SEGMENT_CONTENT as u16,
            false => self.next,
        }
    }
}

/// Holds what a pack says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Checkpoint {
    /// Grows by one with each checkpoint; tells in which pack it lies.
    pub version: u64,
    /// Tells whether nothing was written behind it.
    pub clean: bool,
    /// Tells whether a newer one was on the device: what this one names may have been overwritten.
    pub superseded: bool,
    /// Tells when it was written.
    pub time: Timestamp,
    /// Valid blocks of the main area.
    pub used_blocks: u64,
    /// Blocks that are preallocated and not yet written.
    pub reserved_blocks: u64,
    /// Inodes in use.
    pub inodes: u32,
    /// Nodes in use, inodes included.
    pub nodes: u32,
    /// Tells where to look for a free nid first.
    pub next_nid: u32,
    /// The sequence number of the next group.
    pub next_sequence: u64,
    /// The number of the segment that was opened last.
    pub serial: u32,
    /// The inode that holds the log's own record; 0: none. What it names may be anything.
    pub record_ino: u32,
    /// The open segments, by their kinds.
    pub heads: Vec<Head>,
    /// Tells which copy of each block of the node address table counts.
    pub nat_bits: Bits,
    /// Tells which copy of each block of the segment table counts.
    pub sit_bits: Bits,
    /// Tells which copy of each block of the block state table counts.
    pub bst_bits: Bits,
    /// Inodes without a name that were open.
    pub orphans: Vec<u32>,
    /// Tells whether these were more than the pack has room for: any inode without a link is one then.
    pub orphans_left_out: bool,
    /// Newer entries of the node address table, each with its nid.
    pub nat_journal: Vec<(u32, NatEntry)>,
    /// Newer entries of the segment table, each with its segment.
    pub sit_journal: Vec<(u32, SitEntry)>,
    /// Newer entries of the block state table, each with its block.
    pub bst_journal: Vec<(u64, u32)>,
    /// For each head the owners of the blocks that it has written, of which there are `next`; of all blocks of the segment, if that
    /// has its holes filled.
    pub summaries: Vec<Vec<Owner>>,
    /// Segments whose holes were filled, by their numbers, with the owners of all their blocks: their summaries may not be on the
    /// device yet, or in part.
    pub rewritten: Vec<(u32, Vec<Owner>)>,
}

fn fault(rule: &'static str, found: impl Into<u64>) -> Corrupt {
    let found = found.into();
    Corrupt::Checkpoint { rule, found }
}

/// Holds what is left to read of a pack.
struct Streams<'a>(&'a [u8]);

impl<'a> Streams<'a> {
    fn take(&mut self, bytes: usize, rule: &'static str) -> Result<&'a [u8], Corrupt> {
        let split = self.0.split_at_checked(bytes);
        let (taken, rest) = split.ok_or_else(|| fault(rule, bytes as u64))?;
        self.0 = rest;
        Ok(taken)
    }

    /// `count` items of `BYTES` bytes.
    fn items<const BYTES: usize>(
        &mut self,
        count: u32,
        rule: &'static str,
    ) -> Result<impl ExactSizeIterator<Item = &'a [u8; BYTES]>, Corrupt> {
        let bytes = (count as usize).checked_mul(BYTES);
        let taken = self.take(bytes.unwrap_or(usize::MAX), rule)?;
        let items = taken.chunks_exact(BYTES);
        Ok(items.map(|item| item.try_into().expect("chunks of this size")))
    }

    fn bits(&mut self, blocks: u32) -> Result<Bits, Corrupt> {
        let len = blocks as usize;
        let bytes = self.take(
            Bits::bytes_of(len),
            "the bits of a table lie beyond its end",
        )?;
        Bits::from_bytes(bytes, len)
            .ok_or_else(|| fault("a bit behind the last block of a table is set", blocks))
    }
}

fn first_u32(bytes: &[u8]) -> u32 {
    U32::read_from_prefix(bytes).map_or(0, |(number, _)| number.get())
}

impl Checkpoint {
    /// Returns how many blocks the pack says it has whose first block this is; `None` if that is no first block.
    /// Nothing is checked but the magic number: hold it to the blocks of a pack before more is read.
    pub fn header_blocks(first_block: &Block) -> Option<u32> {
        let (raw, _) = RawHeader::read_from_prefix(first_block).ok()?;
        let blocks = raw.blocks.get();
        (is_magic(raw.magic.get()) && blocks > 0).then_some(blocks)
    }

    /// Has the first block of a pack say that a newer pack is on the device; says whether it did not before.
    pub fn supersede(first_block: &mut Block) -> bool {
        let is_current = first_block[..4] == MAGIC.to_le_bytes();
        if is_current {
            first_block[..4].copy_from_slice(&SUPERSEDED.to_le_bytes());
        }
        is_current
    }

    /// Reads and checks a pack; `bytes` are its blocks and perhaps others behind them.
    ///
    /// # Errors
    ///
    /// The first rule that is broken.
    pub fn parse(bytes: &[u8], superblock: &Superblock) -> Result<Self, Corrupt> {
        let (raw, pack) = check_pack(bytes, superblock)?;
        raw.check_counts(superblock)?;
        let heads = raw.heads(superblock)?;
        let mut streams = Streams(&pack[HEADER_BYTES..]);
        let parsed = Self {
            version: raw.version.get(),
            clean: raw.flags.get() & CLEAN != 0,
            superseded: raw.magic.get() == SUPERSEDED,
            orphans_left_out: raw.flags.get() & ORPHANS_LEFT_OUT != 0,
            time: Timestamp {
                secs: raw.seconds.get(),
                nanos: raw.nanos.get(),
            },
            used_blocks: raw.used_blocks.get(),
            reserved_blocks: raw.reserved_blocks.get(),
            inodes: raw.inodes.get(),
            nodes: raw.nodes.get(),
            next_nid: raw.next_nid.get(),
            next_sequence: raw.next_sequence.get(),
            serial: raw.serial.get(),
            record_ino: raw.record_ino.get(),
            nat_bits: streams.bits(superblock.nat_blocks)?,
            sit_bits: streams.bits(superblock.sit_blocks)?,
            bst_bits: streams.bits(superblock.bst_blocks)?,
            orphans: orphans(&mut streams, raw.orphans.get(), superblock)?,
            nat_journal: nat_journal(&mut streams, raw.nat_journal.get(), superblock)?,
            sit_journal: sit_journal(&mut streams, raw.sit_journal.get(), superblock)?,
            bst_journal: bst_journal(&mut streams, raw.bst_journal.get(), superblock)?,
            summaries: summaries(&mut streams, &heads)?,
            rewritten: rewritten(&mut streams, raw.rewritten.get(), superblock)?,
            heads,
        };
        if streams.0.len() >= BLOCK_BYTES {
            return Err(fault(
                "blocks behind the last stream",
                streams.0.len() as u64,
            ));
        }
        Ok(parsed)
    }

    /// The blocks of the pack.
    pub fn encode(&self) -> Vec<u8> {
        let mut order: Vec<usize> = (0..self.heads.len()).collect();
        order.sort_by_key(|&which| self.heads[which].kind);
        let mut bytes = vec![0; HEADER_BYTES];
        for bits in [&self.nat_bits, &self.sit_bits, &self.bst_bits] {
            bytes.extend_from_slice(bits.as_bytes());
        }
        for orphan in &self.orphans {
            bytes.extend_from_slice(&orphan.to_le_bytes());
        }
        for (nid, entry) in &self.nat_journal {
            bytes.extend_from_slice(&nid.to_le_bytes());
            bytes.extend_from_slice(&entry.encode());
        }
        for (segment, entry) in &self.sit_journal {
            bytes.extend_from_slice(&segment.to_le_bytes());
            bytes.extend_from_slice(&entry.encode());
        }
        for (block, slots) in &self.bst_journal {
            bytes.extend_from_slice(&block.to_le_bytes());
            bytes.extend_from_slice(&slots.to_le_bytes());
        }
        for which in order {
            let count = self.heads[which].owners();
            bytes.extend(encode_owners(&self.summaries[which], count));
        }
        for (segment, owners) in &self.rewritten {
            bytes.extend_from_slice(&segment.to_le_bytes());
            bytes.extend(encode_owners(owners, SEGMENT_CONTENT as u16));
        }
        bytes.resize(bytes.len().next_multiple_of(BLOCK_BYTES), 0);
        let blocks = bytes.len() / BLOCK_BYTES;
        bytes[..HEADER_BYTES].copy_from_slice(self.header(blocks as u32).as_bytes());
        seal(&mut bytes, CRC_AT);
        if self.superseded {
            bytes[..4].copy_from_slice(&SUPERSEDED.to_le_bytes());
        }
        bytes
    }

    fn flags(&self) -> u32 {
        let flags = [
            (self.clean, CLEAN),
            (self.orphans_left_out, ORPHANS_LEFT_OUT),
        ];
        flags
            .iter()
            .map(|&(is_set, flag)| if is_set { flag } else { 0 })
            .sum()
    }

    fn header(&self, blocks: u32) -> RawHeader {
        let mut heads = [RawHead::none(); HEADS];
        for head in &self.heads {
            heads[usize::from(head.kind.to_raw())] = RawHead::new(head);
        }
        let count = |items: usize| U32::new(items as u32);
        RawHeader {
            magic: MAGIC.into(),
            crc: 0.into(),
            version: self.version.into(),
            blocks: blocks.into(),
            flags: self.flags().into(),
            seconds: self.time.secs.into(),
            nanos: self.time.nanos.into(),
            orphans: count(self.orphans.len()),
            used_blocks: self.used_blocks.into(),
            reserved_blocks: self.reserved_blocks.into(),
            inodes: self.inodes.into(),
            nodes: self.nodes.into(),
            next_nid: self.next_nid.into(),
            nat_journal: count(self.nat_journal.len()),
            sit_journal: count(self.sit_journal.len()),
            bst_journal: count(self.bst_journal.len()),
            next_sequence: self.next_sequence.into(),
            serial: self.serial.into(),
            rewritten: count(self.rewritten.len()),
            record_ino: self.record_ino.into(),
            reserved: [0; 28],
            heads,
            reserved2: [0; 128],
        }
    }
}

/// So many owners, of which some may be unknown.
fn encode_owners(owners: &[Owner], count: u16) -> impl Iterator<Item = u8> + '_ {
    let unknown = std::iter::repeat(Owner::default());
    let owners = owners.iter().copied().chain(unknown);
    owners.take(count.into()).flat_map(Owner::encode)
}

fn is_magic(magic: u32) -> bool {
    magic == MAGIC || magic == SUPERSEDED
}

/// The checksum of a pack, which it keeps when it is superseded.
fn pack_crc(pack: &[u8]) -> u32 {
    crc_of(&[&MAGIC.to_le_bytes(), &[0; 4], &pack[CRC_AT + 4..]])
}

/// The header and all bytes of a pack whose length and checksum are right.
fn check_pack<'a>(
    bytes: &'a [u8],
    superblock: &Superblock,
) -> Result<(RawHeader, &'a [u8]), Corrupt> {
    let header = RawHeader::read_from_prefix(bytes);
    let (raw, _) = header.map_err(|_| fault("the pack is cut off", bytes.len() as u64))?;
    if !is_magic(raw.magic.get()) {
        return Err(fault("the magic number is wrong", raw.magic.get()));
    }
    let blocks = raw.blocks.get();
    let is_possible = (1..=superblock.checkpoint_blocks).contains(&blocks);
    let pack_bytes = blocks as usize * BLOCK_BYTES;
    let pack = bytes.get(..pack_bytes).filter(|_| is_possible);
    let pack = pack.ok_or_else(|| fault("the pack has no such number of blocks", blocks))?;
    let (stored, computed) = (raw.crc.get(), pack_crc(pack));
    if stored != computed {
        return Err(Corrupt::CheckpointChecksum { stored, computed });
    }
    Ok((raw, pack))
}

impl RawHead {
    fn new(head: &Head) -> Self {
        Self {
            segment: head.segment.into(),
            next: head.next.into(),
            kind: head.kind.to_raw(),
            flags: if head.threaded { THREADED } else { 0 },
            serial: head.serial.into(),
            next_segment: head.next_segment.unwrap_or(NONE).into(),
        }
    }

    fn none() -> Self {
        Self {
            segment: NONE.into(),
            next: 0.into(),
            kind: 0,
            flags: 0,
            serial: 0.into(),
            next_segment: NONE.into(),
        }
    }

    /// The head at place `place` of the table; `None` if there is none.
    fn read(&self, place: usize) -> Result<Option<Head>, Corrupt> {
        let segment = self.segment.get();
        if segment == NONE {
            return Ok(None);
        }
        let fault = |rule| Corrupt::Head {
            kind: self.kind,
            segment,
            rule,
        };
        let kind = HeadKind::from_raw(self.kind).filter(|kind| *kind as usize == place);
        let head = Head {
            segment,
            next: self.next.get(),
            kind: kind.ok_or_else(|| fault("the kind is not that of its place"))?,
            serial: self.serial.get(),
            next_segment: Some(self.next_segment.get()).filter(|&next| next != NONE),
            threaded: self.flags & THREADED != 0,
        };
        if self.flags & !THREADED != 0 {
            return Err(fault("a flag is unknown"));
        }
        if head.threaded && !head.kind.has_plain_data() {
            return Err(fault(
                "only content as it is goes to the holes of a segment",
            ));
        }
        if u32::from(head.next) > SEGMENT_CONTENT {
            return Err(fault("the next block lies beyond the segment"));
        }
        if head.next_segment.is_some() && head.kind != HeadKind::Packed {
            return Err(fault("only the packed log goes on in a certain segment"));
        }
        Ok(Some(head))
    }
}

impl RawHeader {
    fn check_counts(&self, superblock: &Superblock) -> Result<(), Corrupt> {
        let content = superblock.content_blocks();
        if self.flags.get() & !(CLEAN | ORPHANS_LEFT_OUT) != 0 {
            return Err(fault("a flag is unknown", self.flags.get()));
        }
        if self.nanos.get() >= 1_000_000_000 {
            return Err(fault(
                "the time has a second or more of nanoseconds",
                self.nanos.get(),
            ));
        }
        for (count, rule) in [
            (self.version.get(), "no log has so many checkpoints"),
            (self.next_sequence.get(), "no log has so many groups"),
        ] {
            if !(1..=COUNT_MAX).contains(&count) {
                return Err(fault(rule, count));
            }
        }
        if self.used_blocks.get() > content {
            return Err(fault(
                "more blocks are used than there are",
                self.used_blocks.get(),
            ));
        }
        if self.reserved_blocks.get() > content {
            return Err(fault(
                "more blocks are preallocated than there are",
                self.reserved_blocks.get(),
            ));
        }
        if self.nodes.get() >= superblock.nids {
            return Err(fault(
                "more nodes are in use than there are",
                self.nodes.get(),
            ));
        }
        if self.inodes.get() > self.nodes.get() {
            return Err(fault(
                "more inodes are in use than nodes",
                self.inodes.get(),
            ));
        }
        if self.next_nid.get() > superblock.nids {
            return Err(fault(
                "the search for a free nid begins beyond the last",
                self.next_nid.get(),
            ));
        }
        Ok(())
    }

    fn heads(&self, superblock: &Superblock) -> Result<Vec<Head>, Corrupt> {
        let mut heads = Vec::new();
        let mut taken = HashSet::new();
        for (place, raw) in self.heads.iter().enumerate() {
            let Some(head) = raw.read(place)? else {
                continue;
            };
            let fault = |segment, rule| Corrupt::Head {
                kind: raw.kind,
                segment,
                rule,
            };
            for segment in [Some(head.segment), head.next_segment]
                .into_iter()
                .flatten()
            {
                if segment >= superblock.segments {
                    return Err(fault(segment, "there is no such segment"));
                }
                if !taken.insert(segment) {
                    return Err(fault(segment, "the segment belongs to two heads"));
                }
            }
            heads.push(head);
        }
        Ok(heads)
    }
}

fn check_nid(nid: u32, superblock: &Superblock, rule: &'static str) -> Result<u32, Corrupt> {
    match (ROOT..superblock.nids).contains(&nid) {
        true => Ok(nid),
        false => Err(fault(rule, nid)),
    }
}

fn orphans(
    streams: &mut Streams,
    count: u32,
    superblock: &Superblock,
) -> Result<Vec<u32>, Corrupt> {
    let items = streams.items::<ORPHAN_BYTES>(count, "the orphans lie beyond its end")?;
    items
        .map(|item| {
            check_nid(
                u32::from_le_bytes(*item),
                superblock,
                "an orphan has no possible number",
            )
        })
        .collect()
}

/// The number in front of a journal's entry, and the entry.
fn journal_item<const BYTES: usize>(item: &[u8]) -> (u32, [u8; BYTES]) {
    let mut entry = [0; BYTES];
    entry.copy_from_slice(&item[4..]);
    (first_u32(item), entry)
}

fn nat_journal(
    streams: &mut Streams,
    count: u32,
    superblock: &Superblock,
) -> Result<Vec<(u32, NatEntry)>, Corrupt> {
    let rule = "the journal of the node address table lies beyond its end";
    let items = streams.items::<NAT_JOURNAL_BYTES>(count, rule)?;
    let read = |item: &[u8; NAT_JOURNAL_BYTES]| {
        let (nid, entry) = journal_item(item);
        let nid = check_nid(nid, superblock, "the journal has an impossible nid")?;
        Ok((nid, NatEntry::decode(&entry)))
    };
    items.map(read).collect()
}

fn sit_journal(
    streams: &mut Streams,
    count: u32,
    superblock: &Superblock,
) -> Result<Vec<(u32, SitEntry)>, Corrupt> {
    let rule = "the journal of the segment table lies beyond its end";
    let items = streams.items::<SIT_JOURNAL_BYTES>(count, rule)?;
    let read = |item: &[u8; SIT_JOURNAL_BYTES]| {
        let (segment, entry) = journal_item(item);
        let entry = SitEntry::decode(&entry);
        if segment >= superblock.segments {
            return Err(fault("the journal has an impossible segment", segment));
        }
        entry.check(segment)?;
        Ok((segment, entry))
    };
    items.map(read).collect()
}

fn bst_journal(
    streams: &mut Streams,
    count: u32,
    superblock: &Superblock,
) -> Result<Vec<(u64, u32)>, Corrupt> {
    let rule = "the journal of the block state table lies beyond its end";
    let items = streams.items::<BST_JOURNAL_BYTES>(count, rule)?;
    let read = |item: &[u8; BST_JOURNAL_BYTES]| {
        let block = U64::read_from_prefix(item).map_or(0, |(block, _)| block.get());
        if superblock.locate(block).is_none() {
            return Err(fault(
                "the journal has a block that holds no content",
                block,
            ));
        }
        Ok((block, first_u32(&item[8..])))
    };
    items.map(read).collect()
}

fn owners(streams: &mut Streams, count: u16) -> Result<Vec<Owner>, Corrupt> {
    let items = streams.items::<OWNER_BYTES>(count.into(), "the summaries lie beyond its end")?;
    Ok(items.map(Owner::decode).collect())
}

fn summaries(streams: &mut Streams, heads: &[Head]) -> Result<Vec<Vec<Owner>>, Corrupt> {
    let read = |head: &Head| owners(streams, head.owners());
    heads.iter().map(read).collect()
}

fn rewritten(
    streams: &mut Streams,
    count: u32,
    superblock: &Superblock,
) -> Result<Vec<(u32, Vec<Owner>)>, Corrupt> {
    let rule = "the summaries lie beyond its end";
    let bytes = (count as usize).saturating_mul(SUMMARY_BYTES);
    let mut streams = Streams(streams.take(bytes, rule)?);
    let mut summaries: Vec<(u32, Vec<Owner>)> = Vec::new();
    for _ in 0..count {
        let segment = first_u32(streams.take(4, rule)?);
        if segment >= superblock.segments {
            return Err(fault("a summary belongs to an impossible segment", segment));
        }
        if summaries.last().is_some_and(|(last, _)| *last >= segment) {
            return Err(fault(
                "the summaries are not in the order of their segments",
                segment,
            ));
        }
        summaries.push((segment, owners(&mut streams, SEGMENT_CONTENT as u16)?));
    }
    Ok(summaries)
}

#[cfg(test)]
mod tests;
