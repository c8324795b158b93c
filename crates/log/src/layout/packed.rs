//! Packed blocks: several chunks, records or nodes in one block that says itself whose they are.
//!
//! Source: `docs/format/log.md`, section 12.

use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::superblock::SLOTS_MAX;
use super::{BLOCK_BYTES, Block, Corrupt, block_crc, seal};

const MAGIC: u32 = u32::from_le_bytes(*b"PACK");
const CRC_AT: usize = 4;
const HEADER_BYTES: usize = 32;
/// Bytes of what says what is in a slot.
pub(crate) const SLOT_BYTES: usize = 16;
const FIRST: u8 = 1;
const LAST: u8 = 2;
const CONTINUES: u8 = 1;
const CONTINUED: u8 = 2;
const CORE: u8 = 4;
const CODEC_MAX: u8 = 3;
/// The most logical blocks of a chunk: a pointer counts those that come before in five bits.
const CHUNK_BLOCKS_MAX: u8 = 32;

const _: () = assert!(size_of::<RawHeader>() == HEADER_BYTES);
const _: () = assert!(size_of::<RawSlot>() == SLOT_BYTES);

/// The head of a packed block; the slots follow, then their bytes.
///
/// ```text
///      0           4           8           c
/// 0x00 |   magic   |    crc    |       sequence        |
/// 0x10 |checkpoint |next_segm. | lag |fl|sl| used|  0  |
/// ```
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct RawHeader {
    magic: U32,
    crc: U32,
    sequence: U64,
    checkpoint: U32,
    next_segment: U32,
    lag: U16,
    flags: u8,
    slots: u8,
    used: U16,
    left: U16,
}

/// A slot.
///
/// ```text
/// 0      1       2       4     6        7       8     c      10
/// | kind | codec | start | len | blocks | flags | ino | lblk |
/// ```
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct RawSlot {
    kind: u8,
    codec: u8,
    start: U16,
    len: U16,
    blocks: u8,
    flags: u8,
    ino: U32,
    lblk: U32,
}

/// Tells which group a packed block belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct PackedHeader {
    /// The number of the group.
    pub sequence: u64,
    /// The lowest bits of the version of the checkpoint that it follows.
    pub checkpoint: u32,
    /// Tells where the log goes on behind this segment.
    pub next_segment: u32,
    /// Groups below `sequence - lag` were durable when this was written.
    pub lag: u16,
    /// Tells whether the group begins here.
    pub first: bool,
    /// Tells whether it ends here.
    pub last: bool,
    /// Of what launches read: logical blocks of those that were started together, from the first one that begins here on; 0 if
    /// that is not known.
    pub left: u16,
}

/// Tells what a slot holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SlotKind {
    /// A part of the group's records.
    Records = 1,
    /// A chunk of a file.
    Data,
    /// A node.
    Node,
}

impl SlotKind {
    fn from_raw(raw: u8) -> Option<Self> {
        [Self::Records, Self::Data, Self::Node]
            .into_iter()
            .find(|kind| *kind as u8 == raw)
    }
}

/// A slot of a packed block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Slot {
    /// Holds what it holds.
    pub kind: SlotKind,
    /// Tells how: 0 stored, 1 LZ4, 2 LZO, 3 zstd.
    pub codec: u8,
    /// Tells where its bytes begin, from the start of the block; [`PackedBlock::push`] sets it.
    pub start: u16,
    /// Tells how many bytes it has here; [`PackedBlock::push`] sets it.
    pub len: u16,
    /// Of data: logical blocks in the chunk, 1 to 32.
    pub blocks: u8,
    /// Tells whether it goes on in slot 0 of the block behind.
    pub continues: bool,
    /// Tells whether it began in the block before.
    pub continued: bool,
    /// Tells whether each launch that was recorded read it, or more than one.
    pub core: bool,
    /// The inode.
    pub ino: u32,
    /// The first logical block; of a node: its number.
    pub lblk: u32,
}

impl Slot {
    /// A slot of nobody's, with bytes as they are: what one of records is.
    pub fn new(kind: SlotKind) -> Self {
        Self {
            kind,
            codec: 0,
            start: 0,
            len: 0,
            blocks: 0,
            continues: false,
            continued: false,
            core: false,
            ino: 0,
            lblk: 0,
        }
    }

    /// The bytes of the slot.
    pub fn bytes<'a>(&self, block: &'a Block) -> &'a [u8] {
        let start = usize::from(self.start);
        &block[start..start + usize::from(self.len)]
    }

    fn to_raw(self) -> RawSlot {
        RawSlot {
            kind: self.kind as u8,
            codec: self.codec,
            start: self.start.into(),
            len: self.len.into(),
            blocks: self.blocks,
            flags: flag(self.continues, CONTINUES)
                | flag(self.continued, CONTINUED)
                | flag(self.core, CORE),
            ino: self.ino.into(),
            lblk: self.lblk.into(),
        }
    }
}

/// The most bytes of the only slot of a block.
pub const ROOM_MAX: usize = BLOCK_BYTES - HEADER_BYTES - SLOT_BYTES;

/// A packed block that is being filled.
#[derive(Debug, Clone)]
pub struct PackedBlock {
    header: PackedHeader,
    /// `start` counts from the first byte of all slots until the block is finished.
    slots: Vec<Slot>,
    bytes: Vec<u8>,
}

impl PackedBlock {
    /// An empty one.
    pub fn new(header: PackedHeader) -> Self {
        Self {
            header,
            slots: Vec::new(),
            bytes: Vec::new(),
        }
    }

    /// The head, which may be changed until the block is finished.
    pub fn header_mut(&mut self) -> &mut PackedHeader {
        &mut self.header
    }

    /// Returns how many slots there are.
    pub fn slots(&self) -> usize {
        self.slots.len()
    }

    /// The most bytes that one more slot can hold.
    pub fn room(&self) -> usize {
        if self.slots.len() == usize::from(SLOTS_MAX) {
            return 0;
        }
        let table = (self.slots.len() + 1) * SLOT_BYTES;
        (BLOCK_BYTES - HEADER_BYTES - self.bytes.len()).saturating_sub(table)
    }

    /// Adds a slot with its bytes and returns its number; `None` if there is no room for it.
    pub fn push(&mut self, slot: Slot, bytes: &[u8]) -> Option<u8> {
        if bytes.is_empty() || bytes.len() > self.room() {
            return None;
        }
        let number = self.slots.len() as u8;
        // A block is shorter than what 16 bits can count.
        let (start, len) = (self.bytes.len() as u16, bytes.len() as u16);
        self.slots.push(Slot { start, len, ..slot });
        self.bytes.extend_from_slice(bytes);
        Some(number)
    }

    /// The block, sealed.
    pub fn finish(&self) -> Box<Block> {
        let bytes_at = HEADER_BYTES + self.slots.len() * SLOT_BYTES;
        let used = bytes_at + self.bytes.len();
        let header = RawHeader {
            magic: MAGIC.into(),
            crc: 0.into(),
            sequence: self.header.sequence.into(),
            checkpoint: self.header.checkpoint.into(),
            next_segment: self.header.next_segment.into(),
            lag: self.header.lag.into(),
            flags: flag(self.header.first, FIRST) | flag(self.header.last, LAST),
            slots: self.slots.len() as u8,
            used: (used as u16).into(),
            left: self.header.left.into(),
        };
        let mut block = Box::new([0; BLOCK_BYTES]);
        block[..HEADER_BYTES].copy_from_slice(header.as_bytes());
        let table = block[HEADER_BYTES..bytes_at].chunks_exact_mut(SLOT_BYTES);
        for (place, slot) in table.zip(&self.slots) {
            let start = slot.start + bytes_at as u16;
            place.copy_from_slice(Slot { start, ..*slot }.to_raw().as_bytes());
        }
        block[bytes_at..used].copy_from_slice(&self.bytes);
        seal(&mut *block, CRC_AT);
        block
    }
}

fn flag(is_set: bool, bit: u8) -> u8 {
    if is_set { bit } else { 0 }
}

/// Returns what a packed block says of itself.
///
/// # Errors
///
/// When it is none, its checksum is wrong, or a slot breaks a rule.
pub fn parse(block: &Block) -> Result<(PackedHeader, Vec<Slot>), Corrupt> {
    let fault = |rule, found| Corrupt::Packed { rule, found };
    let header = RawHeader::read_from_prefix(block);
    let (raw, rest) = header.map_err(|_| fault("the block is too short", 0))?;
    if raw.magic.get() != MAGIC {
        return Err(fault("the magic number is wrong", raw.magic.get().into()));
    }
    if raw.crc.get() != block_crc(block, CRC_AT) {
        return Err(fault("the checksum is wrong", raw.crc.get().into()));
    }
    if raw.flags & !(FIRST | LAST) != 0 {
        return Err(fault("a flag is unknown", raw.flags.into()));
    }
    if raw.slots > SLOTS_MAX {
        return Err(fault("more than 32 slots", raw.slots.into()));
    }
    let bytes_at = HEADER_BYTES + usize::from(raw.slots) * SLOT_BYTES;
    let used = raw.used.get();
    if !(bytes_at..=BLOCK_BYTES).contains(&usize::from(used)) {
        return Err(fault(
            "its end lies before that of the slots, or outside",
            used.into(),
        ));
    }
    let table = rest[..bytes_at - HEADER_BYTES].chunks_exact(SLOT_BYTES);
    let slots: Vec<Slot> = table
        .enumerate()
        .map(|(number, bytes)| parse_slot(number as u8, bytes, bytes_at, used))
        .collect::<Result<_, _>>()?;
    check_apart(&slots)?;
    let header = PackedHeader {
        sequence: raw.sequence.get(),
        checkpoint: raw.checkpoint.get(),
        next_segment: raw.next_segment.get(),
        lag: raw.lag.get(),
        first: raw.flags & FIRST != 0,
        last: raw.flags & LAST != 0,
        left: raw.left.get(),
    };
    Ok((header, slots))
}

/// Returns how many logical blocks the chunks have that begin in a block, whether or not it is as it should be.
pub(crate) fn pages_in(block: &Block) -> u64 {
    let Ok((header, rest)) = RawHeader::read_from_prefix(block) else {
        return 0;
    };
    let slots = match header.magic.get() {
        MAGIC => header.slots.min(SLOTS_MAX),
        _ => 0,
    };
    let table = rest.chunks_exact(SLOT_BYTES).take(slots.into());
    let slots = table.flat_map(RawSlot::read_from_bytes);
    slots
        .filter(|slot| slot.kind == SlotKind::Data as u8 && slot.flags & CONTINUED == 0)
        .map(|slot| u64::from(slot.blocks))
        .sum()
}

fn parse_slot(number: u8, bytes: &[u8], bytes_at: usize, used: u16) -> Result<Slot, Corrupt> {
    let fault = |rule, found: u64| Corrupt::Slot {
        slot: number,
        rule,
        found,
    };
    let raw = RawSlot::read_from_bytes(bytes).map_err(|_| fault("it is cut off", 0))?;
    let kind = SlotKind::from_raw(raw.kind);
    let kind = kind.ok_or_else(|| fault("the kind is unknown", raw.kind.into()))?;
    if raw.codec > CODEC_MAX {
        return Err(fault("the codec is unknown", raw.codec.into()));
    }
    if raw.flags & !(CONTINUES | CONTINUED | CORE) != 0 {
        return Err(fault("a flag is unknown", raw.flags.into()));
    }
    if raw.flags & CONTINUED != 0 && number != 0 {
        return Err(fault(
            "only the first slot goes on from the block before",
            raw.flags.into(),
        ));
    }
    let (start, len) = (raw.start.get(), raw.len.get());
    let end = u32::from(start) + u32::from(len);
    if usize::from(start) < bytes_at || end > used.into() || len == 0 {
        return Err(fault(
            "its bytes do not lie between the slots and the end",
            start.into(),
        ));
    }
    if kind == SlotKind::Data && !(1..=CHUNK_BLOCKS_MAX).contains(&raw.blocks) {
        return Err(fault(
            "a chunk has 1 to 32 logical blocks",
            raw.blocks.into(),
        ));
    }
    Ok(Slot {
        kind,
        codec: raw.codec,
        start,
        len,
        blocks: raw.blocks,
        continues: raw.flags & CONTINUES != 0,
        continued: raw.flags & CONTINUED != 0,
        core: raw.flags & CORE != 0,
        ino: raw.ino.get(),
        lblk: raw.lblk.get(),
    })
}

fn check_apart(slots: &[Slot]) -> Result<(), Corrupt> {
    // As a writer leaves them; others are put in order first.
    if slots.is_sorted_by(|left, right| left.start + left.len <= right.start) {
        return Ok(());
    }
    let mut order: Vec<u8> = (0..slots.len() as u8).collect();
    order.sort_by_key(|&slot| slots[usize::from(slot)].start);
    let mut end = 0;
    for slot in order {
        let Slot { start, len, .. } = slots[usize::from(slot)];
        if start < end {
            let rule = "it overlaps with another";
            return Err(Corrupt::Slot {
                slot,
                rule,
                found: start.into(),
            });
        }
        end = start + len;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::Broken;
    use super::*;

    const PACKED: PackedHeader = PackedHeader {
        sequence: 1 << 40,
        checkpoint: 17,
        next_segment: 3,
        lag: 2,
        first: true,
        last: false,
        left: 700,
    };

    fn slot(kind: SlotKind) -> Slot {
        Slot {
            codec: 1,
            blocks: 4,
            ino: 9,
            lblk: 8,
            ..Slot::new(kind)
        }
    }

    fn example() -> Box<Block> {
        let mut block = PackedBlock::new(PACKED);
        assert_eq!(block.push(slot(SlotKind::Records), b"records"), Some(0));
        assert_eq!(block.push(slot(SlotKind::Node), &[5; 300]), Some(1));
        let last = Slot {
            continues: true,
            ..slot(SlotKind::Data)
        };
        let room = block.room();
        assert_eq!(block.push(last, &vec![6; room + 1]), None);
        assert_eq!(block.push(last, &vec![6; room]), Some(2));
        assert_eq!((block.room(), block.slots()), (0, 3));
        block.finish()
    }

    fn refused(block: &Block, word: &str) {
        let fault = parse(block).unwrap_err().to_string();
        assert!(fault.contains(word), "{word}: {fault}");
    }

    #[test]
    fn a_block_comes_back_with_the_bytes_of_its_slots() {
        let block = example();
        let (header, slots) = parse(&block).unwrap();
        assert_eq!(header, PACKED);
        let kinds: Vec<_> = slots
            .iter()
            .map(|slot| (slot.kind, slot.continues))
            .collect();
        let expected = [
            (SlotKind::Records, false),
            (SlotKind::Node, false),
            (SlotKind::Data, true),
        ];
        assert_eq!(kinds, expected);
        assert_eq!(slots[0].bytes(&block), b"records");
        assert_eq!(slots[1].bytes(&block), [5; 300]);
        assert_eq!(usize::from(slots[2].start + slots[2].len), BLOCK_BYTES);
        assert_eq!(
            (slots[2].ino, slots[2].lblk, slots[2].blocks, slots[2].codec),
            (9, 8, 4, 1)
        );
    }

    #[test]
    fn thirty_two_slots_are_the_most() {
        let mut block = PackedBlock::new(PackedHeader {
            first: false,
            last: true,
            ..PACKED
        });
        for number in 0..32 {
            assert_eq!(block.push(slot(SlotKind::Data), &[number; 9]), Some(number));
        }
        assert_eq!(
            (block.room(), block.push(slot(SlotKind::Data), b"x")),
            (0, None)
        );
        block.header_mut().lag = 9;
        let (header, slots) = parse(&block.finish()).unwrap();
        assert_eq!((slots.len(), header.lag, header.last), (32, 9, true));
        let empty = PackedBlock::new(PACKED);
        assert_eq!(parse(&empty.finish()).unwrap(), (PACKED, vec![]));
    }

    #[test]
    fn no_changed_byte_goes_unnoticed() {
        let mut block = example();
        for at in 0..BLOCK_BYTES {
            block[at] ^= 8;
            assert!(parse(&block).is_err(), "byte {at}");
            block[at] ^= 8;
        }
    }

    #[test]
    fn what_cannot_be_is_refused() {
        let headers: [Broken<RawHeader>; 5] = [
            ("magic", |raw| raw.magic = 0.into()),
            ("flag", |raw| raw.flags = 4),
            ("32 slots", |raw| raw.slots = 33),
            ("its end", |raw| raw.used = 79.into()),
            ("its end", |raw| raw.used = 4097.into()),
        ];
        for (word, break_it) in headers {
            let mut block = example();
            let (mut raw, _) = RawHeader::read_from_prefix(&*block).unwrap();
            break_it(&mut raw);
            block[..HEADER_BYTES].copy_from_slice(raw.as_bytes());
            seal(&mut *block, CRC_AT);
            refused(&block, word);
        }
        let slots: [Broken<RawSlot>; 11] = [
            ("kind", |raw| raw.kind = 0),
            ("kind", |raw| raw.kind = 4),
            ("codec", |raw| raw.codec = 4),
            ("flag", |raw| raw.flags = 8),
            ("first slot", |raw| raw.flags = 2),
            ("do not lie", |raw| raw.start = 79.into()),
            ("do not lie", |raw| raw.start = u16::MAX.into()),
            ("do not lie", |raw| raw.len = u16::MAX.into()),
            ("do not lie", |raw| raw.len = 0.into()),
            ("logical blocks", |raw| raw.blocks = 33),
            ("overlaps", |raw| raw.start = (raw.start.get() - 1).into()),
        ];
        for (word, break_it) in slots {
            let mut block = example();
            let at = HEADER_BYTES + 2 * SLOT_BYTES;
            let mut raw = RawSlot::read_from_bytes(&block[at..at + SLOT_BYTES]).unwrap();
            break_it(&mut raw);
            block[at..at + SLOT_BYTES].copy_from_slice(raw.as_bytes());
            seal(&mut *block, CRC_AT);
            refused(&block, word);
        }
    }
}
