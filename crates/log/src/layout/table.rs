//! The three tables: of segments, of the slots of packed blocks, and of the nodes' addresses.
//!
//! Source: `docs/format/log.md`, sections 4 to 6.

use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::checkpoint::HeadKind;
use super::{BLOCK_BYTES, Block, Corrupt, SEGMENT_BLOCKS};

/// Entries in a block of the segment table.
pub const SIT_PER_BLOCK: u32 = 51;
/// Segments whose entries a block of the block state table holds.
pub const BST_SEGMENTS_PER_BLOCK: u32 = 2;
/// Entries in a block of the block state table, one for each block of its segments.
pub const BST_PER_BLOCK: u32 = BST_SEGMENTS_PER_BLOCK * SEGMENT_BLOCKS;
/// Entries in a block of the node address table.
pub const NAT_PER_BLOCK: u32 = 256;

/// Bytes of an entry of the segment table.
pub(crate) const SIT_BYTES: usize = 80;
/// Bytes of an entry of the node address table.
pub(crate) const NAT_BYTES: usize = 16;

const _: () = assert!(size_of::<RawSitEntry>() == SIT_BYTES);
const _: () = assert!(size_of::<RawNatEntry>() == NAT_BYTES);
const _: () = assert!(BLOCK_BYTES / SIT_BYTES == SIT_PER_BLOCK as usize);
const _: () = assert!(BLOCK_BYTES == 4 * BST_PER_BLOCK as usize);
const _: () = assert!(BLOCK_BYTES == NAT_BYTES * NAT_PER_BLOCK as usize);

/// The bytes of an entry, the `index`th of its block.
fn entry_range(index: u32, bytes: usize) -> std::ops::Range<usize> {
    let start = index as usize * bytes;
    start..start + bytes
}

/// A segment in its table.
///
/// ```text
///      0     2    3    4          8                      10
/// 0x00 |valid|kind| 0  |  serial  |       seconds        |
/// 0x10 |                bits, 64 bytes                   |
/// ```
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct RawSitEntry {
    valid: U16,
    kind: u8,
    reserved: u8,
    serial: U32,
    seconds: U64,
    bits: [u8; 64],
}

/// Tells which blocks of a segment are valid, and what it was filled with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SitEntry {
    /// Tells how many blocks are valid.
    pub valid: u16,
    /// The head that filled it.
    pub kind: u8,
    /// The number it was opened with.
    pub serial: u32,
    /// Tells when a block of it changed last, in seconds.
    pub seconds: u64,
    /// The valid blocks, lowest bit of a byte first.
    pub bits: [u8; 64],
}

impl Default for SitEntry {
    fn default() -> Self {
        Self::decode(&[0; SIT_BYTES])
    }
}

impl SitEntry {
    /// Entry `index`, below [`SIT_PER_BLOCK`], of a block of the table; not yet [checked](Self::check).
    pub fn read(block: &Block, index: u32) -> Self {
        let mut bytes = [0; SIT_BYTES];
        bytes.copy_from_slice(&block[entry_range(index, SIT_BYTES)]);
        Self::decode(&bytes)
    }

    /// Writes entry `index` of a block of the table.
    pub fn write(&self, block: &mut Block, index: u32) {
        block[entry_range(index, SIT_BYTES)].copy_from_slice(&self.encode());
    }

    pub(crate) fn decode(bytes: &[u8; SIT_BYTES]) -> Self {
        let raw: &RawSitEntry = zerocopy::transmute_ref!(bytes);
        Self {
            valid: raw.valid.get(),
            kind: raw.kind,
            serial: raw.serial.get(),
            seconds: raw.seconds.get(),
            bits: raw.bits,
        }
    }

    pub(crate) fn encode(&self) -> [u8; SIT_BYTES] {
        zerocopy::transmute!(RawSitEntry {
            valid: self.valid.into(),
            kind: self.kind,
            reserved: 0,
            serial: self.serial.into(),
            seconds: self.seconds.into(),
            bits: self.bits,
        })
    }

    /// Checks the entry of a segment.
    ///
    /// # Errors
    ///
    /// When the number of valid blocks is not that of the set bits, the summary counts as valid, or the kind
    /// is unknown.
    pub fn check(&self, segment: u32) -> Result<(), Corrupt> {
        let fault = |rule, found| Corrupt::Segment {
            segment,
            rule,
            found,
        };
        if self.bits[63] >> 7 == 1 {
            return Err(fault(
                "the summary counts as a valid block",
                self.valid.into(),
            ));
        }
        let ones: u32 = self.bits.iter().map(|byte| byte.count_ones()).sum();
        if u32::from(self.valid) != ones {
            return Err(fault(
                "the count of valid blocks is not that of the set bits",
                self.valid.into(),
            ));
        }
        if HeadKind::from_raw(self.kind).is_none() {
            return Err(fault("the kind is unknown", self.kind.into()));
        }
        Ok(())
    }
}

impl SitEntry {
    /// Makes an entry one that passes a [check](Self::check): the set bits count, and no unknown kind.
    pub(crate) fn make_sane(&mut self) {
        self.bits[63] &= 0x7f;
        self.valid = self.bits.iter().map(|byte| byte.count_ones() as u16).sum();
        if HeadKind::from_raw(self.kind).is_none() {
            self.kind = HeadKind::WarmData.to_raw();
        }
    }
}

/// The valid slots of a block: entry `index`, below [`BST_PER_BLOCK`], of a block of the table.
pub fn bst_get(block: &Block, index: u32) -> u32 {
    let mut bytes = [0; 4];
    bytes.copy_from_slice(&block[entry_range(index, 4)]);
    u32::from_le_bytes(bytes)
}

/// Sets the valid slots of a block.
pub fn bst_set(block: &mut Block, index: u32, slots: u32) {
    block[entry_range(index, 4)].copy_from_slice(&slots.to_le_bytes());
}

/// A node in its table.
///
/// ```text
///      0                       8          c            10
/// 0x00 |        pointer        |   ino    | generation |
/// ```
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct RawNatEntry {
    pointer: U64,
    ino: U32,
    generation: U32,
}

/// Tells where a node lies.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct NatEntry {
    /// As it is stored: whoever follows it decodes it.
    pub pointer: u64,
    /// The inode that the node belongs to.
    pub ino: u32,
    /// Tells how often the number had been used before.
    pub generation: u32,
}

impl NatEntry {
    /// Entry `index`, below [`NAT_PER_BLOCK`], of a block of the table.
    pub fn read(block: &Block, index: u32) -> Self {
        let mut bytes = [0; NAT_BYTES];
        bytes.copy_from_slice(&block[entry_range(index, NAT_BYTES)]);
        Self::decode(&bytes)
    }

    /// Writes entry `index` of a block of the table.
    pub fn write(&self, block: &mut Block, index: u32) {
        block[entry_range(index, NAT_BYTES)].copy_from_slice(&self.encode());
    }

    pub(crate) fn decode(bytes: &[u8; NAT_BYTES]) -> Self {
        let raw: &RawNatEntry = zerocopy::transmute_ref!(bytes);
        Self {
            pointer: raw.pointer.get(),
            ino: raw.ino.get(),
            generation: raw.generation.get(),
        }
    }

    pub(crate) fn encode(&self) -> [u8; NAT_BYTES] {
        zerocopy::transmute!(RawNatEntry {
            pointer: self.pointer.into(),
            ino: self.ino.into(),
            generation: self.generation.into(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::super::Broken;
    use super::*;

    fn sit() -> SitEntry {
        let mut bits = [0; 64];
        bits[0] = 0b101;
        bits[63] = 0x40;
        SitEntry {
            valid: 3,
            kind: 4,
            serial: 77,
            seconds: 1 << 33,
            bits,
        }
    }

    #[test]
    fn entries_come_back_from_their_places() {
        let mut block = [0; BLOCK_BYTES];
        sit().write(&mut block, SIT_PER_BLOCK - 1);
        assert_eq!(SitEntry::read(&block, SIT_PER_BLOCK - 1), sit());
        assert_eq!(SitEntry::read(&block, 0), SitEntry::default());
        assert_eq!(block[50 * 80..50 * 80 + 5], [3, 0, 4, 0, 77]);

        let entry = NatEntry {
            pointer: 0x0123_4567_89ab_cdef,
            ino: 5,
            generation: 6,
        };
        entry.write(&mut block, NAT_PER_BLOCK - 1);
        assert_eq!(NatEntry::read(&block, NAT_PER_BLOCK - 1), entry);

        bst_set(&mut block, BST_PER_BLOCK - 1, 0x8000_0001);
        assert_eq!(bst_get(&block, BST_PER_BLOCK - 1), 0x8000_0001);
        assert_eq!(block[4092..], [1, 0, 0, 0x80]);
    }

    #[test]
    fn what_cannot_be_is_refused() {
        assert_eq!(sit().check(9), Ok(()));
        let broken: [Broken<SitEntry>; 4] = [
            ("not that of the set bits", |entry| entry.valid = 4),
            ("not that of the set bits", |entry| entry.bits[5] = 1),
            ("summary", |entry| entry.bits[63] = 0x80),
            ("kind", |entry| entry.kind = 10),
        ];
        for (word, break_it) in broken {
            let mut entry = sit();
            break_it(&mut entry);
            let fault = entry.check(9).unwrap_err().to_string();
            assert!(
                fault.contains(word) && fault.contains("segment 9"),
                "{fault}"
            );
        }
    }
}
