//! Owners of the blocks of a full segment.
//!
//! ```text
//! 0x000 |    crc    |  serial   | 511 × ( ino u32, logical block u32 ) |
//! ```
//!
//! Source: `docs/format/log.md`, section 11.

use zerocopy::little_endian::U32;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::{BLOCK_BYTES, Block, Corrupt, SEGMENT_CONTENT, block_crc, seal};

/// Bytes of an owner.
pub(crate) const OWNER_BYTES: usize = 8;

const CRC_AT: usize = 0;

const _: () = assert!(size_of::<RawSummary>() == BLOCK_BYTES);
const _: () = assert!(size_of::<RawOwner>() == OWNER_BYTES);

/// An owner as it lies in a summary.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct RawOwner {
    ino: U32,
    lblk: U32,
}

/// A summary as it lies in its block.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct RawSummary {
    crc: U32,
    serial: U32,
    owners: [RawOwner; SEGMENT_CONTENT as usize],
}

/// Tells whose a block is. Both are zero for a packed block, which says so itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Hash)]
pub struct Owner {
    /// The inode.
    pub ino: u32,
    /// The logical block; of a node: its number.
    pub lblk: u32,
}

impl Owner {
    pub(crate) fn decode(bytes: &[u8; OWNER_BYTES]) -> Self {
        Self::from_raw(zerocopy::transmute_ref!(bytes))
    }

    pub(crate) fn encode(self) -> [u8; OWNER_BYTES] {
        zerocopy::transmute!(self.to_raw())
    }

    fn from_raw(raw: &RawOwner) -> Self {
        Self {
            ino: raw.ino.get(),
            lblk: raw.lblk.get(),
        }
    }

    fn to_raw(self) -> RawOwner {
        RawOwner {
            ino: self.ino.into(),
            lblk: self.lblk.into(),
        }
    }
}

/// The summary of a segment; blocks without an owner have the zero one.
pub fn encode(serial: u32, owners: &[Owner]) -> Box<Block> {
    let mut raw = RawSummary {
        crc: 0.into(),
        serial: serial.into(),
        owners: [Owner::default().to_raw(); SEGMENT_CONTENT as usize],
    };
    for (place, owner) in raw.owners.iter_mut().zip(owners) {
        *place = owner.to_raw();
    }
    let mut block: Box<Block> = Box::new(zerocopy::transmute!(raw));
    seal(&mut *block, CRC_AT);
    block
}

/// The owners of all blocks of the segment that was opened with the number `serial`.
///
/// # Errors
///
/// When the checksum is wrong, or the block is the summary of another segment, or of an earlier use of it.
pub fn parse(block: &Block, serial: u32) -> Result<Vec<Owner>, Corrupt> {
    let raw: &RawSummary = zerocopy::transmute_ref!(block);
    let fault = |rule, found| Corrupt::Summary {
        serial,
        rule,
        found,
    };
    if raw.crc.get() != block_crc(block, CRC_AT) {
        return Err(fault("the checksum is wrong", raw.crc.get()));
    }
    if raw.serial.get() != serial {
        return Err(fault("it belongs to another segment", raw.serial.get()));
    }
    Ok(raw.owners.iter().map(Owner::from_raw).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn owners() -> Vec<Owner> {
        (0..500).map(|ino| Owner { ino, lblk: ino * 3 }).collect()
    }

    #[test]
    fn a_summary_comes_back_and_belongs_to_one_segment() {
        let block = encode(12, &owners());
        let parsed = parse(&block, 12).unwrap();
        assert_eq!(parsed.len(), SEGMENT_CONTENT as usize);
        assert_eq!(parsed[..500], owners());
        assert_eq!(parsed[500..], [Owner::default(); 11]);
        let fault = parse(&block, 13).unwrap_err();
        assert!(fault.to_string().contains("another segment"), "{fault}");
    }

    #[test]
    fn no_changed_byte_goes_unnoticed() {
        let mut block = encode(12, &owners());
        for at in 0..BLOCK_BYTES {
            block[at] ^= 0x20;
            assert!(parse(&block, 12).is_err(), "byte {at}");
            block[at] ^= 0x20;
        }
    }
}
