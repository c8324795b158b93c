//! Chunk-based inodes: data in chunks of equal size that lie anywhere, on any device.
//!
//! The table begins behind the inode and its xattrs, rounded up to the size of an entry.

use zerocopy::little_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::{Corrupt, Unsupported, align_up};

const BLOCK_BITS_MASK: u16 = 0x1f;
const INDEXES: u16 = 0x20;
const FORTY_EIGHT_BIT: u16 = 0x40;

/// An 8-byte chunk index.
///
/// ```text
/// | startblk_hi: u16 | device_id: u16 | startblk_lo: u32 |
/// ```
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
#[allow(missing_docs)] // the specification's own names, drawn above
pub struct RawChunkIndex {
    pub startblk_hi: U16,
    pub device_id: U16,
    pub startblk_lo: U32,
}

const _: () = assert!(size_of::<RawChunkIndex>() == 8);

/// Describes how an inode's chunks are described.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ChunkFormat {
    /// A chunk has two to this bytes, at most 2^47.
    pub chunk_bits: u32,
    /// Tells whether entries are 8-byte indexes instead of 4-byte block numbers.
    pub indexes: bool,
    /// Tells whether addresses have 48 bits.
    pub wide: bool,
}

/// Tells where a chunk lies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Chunk {
    /// Nowhere: it reads as zeros.
    Hole,
    /// At this block of this device; device 0 is the unified address space.
    At {
        /// Tells which device.
        device: u16,
        /// Its first block there.
        block: u64,
    },
}

impl ChunkFormat {
    /// Checks the low 16 bits of `i_u`.
    ///
    /// # Errors
    ///
    /// [`Unsupported::ChunkFormat`] for unknown bits.
    pub fn parse(format: u16, block_bits: u8) -> Result<Self, Unsupported> {
        if format & !(BLOCK_BITS_MASK | INDEXES | FORTY_EIGHT_BIT) != 0 {
            return Err(Unsupported::ChunkFormat { format });
        }
        let chunk_bits = u32::from(format & BLOCK_BITS_MASK) + u32::from(block_bits);
        Ok(Self {
            chunk_bits,
            indexes: format & INDEXES != 0,
            wide: format & FORTY_EIGHT_BIT != 0,
        })
    }

    /// The low 16 bits of `i_u`.
    pub fn encode(self, block_bits: u8) -> u16 {
        let bits = (self.chunk_bits - u32::from(block_bits)) as u16 & BLOCK_BITS_MASK;
        bits | if self.indexes { INDEXES } else { 0 } | if self.wide { FORTY_EIGHT_BIT } else { 0 }
    }

    /// Bytes of an entry.
    pub const fn entry_bytes(self) -> u64 {
        if self.indexes { 8 } else { 4 }
    }

    /// Returns where entry `chunk` lies, given where inode and xattrs end.
    ///
    /// # Errors
    ///
    /// [`Corrupt::AddressOverflow`].
    pub fn entry_offset(self, head_end: u64, chunk: u64) -> Result<u64, Corrupt> {
        align_up(head_end, self.entry_bytes())
            .and_then(|table| table.checked_add(chunk.checked_mul(self.entry_bytes())?))
            .ok_or(Corrupt::AddressOverflow {
                what: "a chunk entry",
            })
    }

    /// Reads an entry of [`entry_bytes`](Self::entry_bytes) bytes; `device_mask` says which bits of
    /// the device count.
    ///
    /// # Panics
    ///
    /// If there are fewer bytes.
    pub fn entry(self, bytes: &[u8], device_mask: u16) -> Chunk {
        if !self.indexes {
            let (block, _) = U32::read_from_prefix(bytes).expect("4 bytes");
            return match block.get() {
                u32::MAX => Chunk::Hole,
                block => Chunk::At {
                    device: 0,
                    block: block.into(),
                },
            };
        }
        let (raw, _) = RawChunkIndex::read_from_prefix(bytes).expect("8 bytes");
        let mask = if self.wide {
            (1 << 48) - 1
        } else {
            u64::from(u32::MAX)
        };
        let block = u64::from(raw.startblk_lo.get()) | u64::from(raw.startblk_hi.get()) << 32;
        match block & mask {
            hole if hole == mask => Chunk::Hole,
            block => Chunk::At {
                device: raw.device_id.get() & device_mask,
                block,
            },
        }
    }
}
