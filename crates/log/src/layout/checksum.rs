//! Checksum of a block of content, which lies in the pointer to it.
//!
//! Source: `docs/format/log.md`, section 7.

use super::summary::Owner;
use super::{BLOCK_BYTES, Block, Corrupt, crc};

/// Bits of a checksum: as many as a pointer has room for.
pub(super) const CHECKSUM_BITS: u32 = 21;

/// Tells which bits of the CRC-32C they are: with these, each change of eight neighbouring bits changes the checksum.
const SHIFT: u32 = 9;

const MASK: u32 = (1 << CHECKSUM_BITS) - 1;

/// Takes the place of zero, which stands for no checksum. No change of eight neighbouring bits makes one of the other.
const ZERO: u32 = 0x13;

/// Checksum of a block: bits 9 to 29 of its CRC-32C.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Checksum(u32);

impl Checksum {
    /// Stands for a block that was written before blocks had checksums.
    pub const UNKNOWN: Self = Self(0);

    /// The checksum of a block.
    pub fn of(block: &Block) -> Self {
        Self::of_crc(crc(block))
    }

    /// The checksum of a block with this CRC-32C.
    pub fn of_crc(crc: u32) -> Self {
        match crc >> SHIFT & MASK {
            0 => Self(ZERO),
            bits => Self(bits),
        }
    }

    /// The checksum with the lowest of these bits.
    pub const fn from_bits(bits: u32) -> Self {
        Self(bits & MASK)
    }

    /// Its bits; zero for none.
    pub const fn bits(self) -> u32 {
        self.0
    }

    /// Checks that a block that was read from `place` is the one that was written there.
    ///
    /// # Errors
    ///
    /// When it has another checksum, and this one is known.
    pub fn check(self, block: &Block, owner: Owner, place: u64) -> Result<(), Corrupt> {
        if self == Self::UNKNOWN {
            return Ok(());
        }
        let found = Self::of(block);
        match self == found {
            true => Ok(()),
            false => Err(Corrupt::Content {
                ino: owner.ino,
                offset: u64::from(owner.lblk) * BLOCK_BYTES as u64,
                block: place,
                found: found.0,
                expected: self.0,
            }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layout::BLOCK_BYTES;

    /// A CRC is linear: a change of some bits changes it by the same, whatever the block holds.
    #[test]
    fn no_change_of_eight_neighbouring_bits_goes_unnoticed() {
        let mut block = [0; BLOCK_BYTES];
        let empty = crc(&block);
        let mut of_bit = |bit: usize| {
            block[bit / 8] = 1 << (bit % 8);
            let change = crc(&block) ^ empty;
            block[bit / 8] = 0;
            change >> SHIFT & MASK
        };
        let changes: Vec<u32> = (0..BLOCK_BYTES * 8).map(&mut of_bit).collect();
        for (at, bits) in changes.windows(8).enumerate() {
            for pattern in 1..=u8::MAX {
                let chosen = (0..8).filter(|bit| pattern >> bit & 1 == 1);
                let change = chosen.fold(0, |change, bit| change ^ bits[bit]);
                assert!(change != 0 && change != ZERO, "{pattern:#x} at bit {at}");
            }
        }
    }

    #[test]
    fn a_checksum_is_never_taken_for_none() {
        assert_eq!(Checksum::of_crc(0).bits(), ZERO);
        assert_eq!(Checksum::of_crc(1 << (SHIFT + CHECKSUM_BITS)).bits(), ZERO);
    }

    #[test]
    fn another_block_is_refused_with_its_place() {
        let owner = Owner { ino: 5, lblk: 2 };
        let block = [7; BLOCK_BYTES];
        let checksum = Checksum::of(&block);
        checksum.check(&block, owner, 1234).unwrap();
        Checksum::UNKNOWN.check(&block, owner, 1234).unwrap();
        let refused = checksum.check(&[8; BLOCK_BYTES], owner, 1234).unwrap_err();
        let told = refused.to_string();
        assert!(told.contains("byte 8192 of inode 5: block 1234"), "{told}");
    }
}
