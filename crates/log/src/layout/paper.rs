//! The pointers of the paper: 36 bits each, two of them in nine bytes.
//!
//! FPC (FAST'21, 4.5) extends a block number of 32 bits by one that says whether the block is compressed and by
//! three for the slot. On disk the log uses pointers of 64 bits; these show what the paper's cost.
//!
//! ```text
//! bit 35         34   32  31             0
//!    | compressed | slot |     block     |
//! ```
//!
//! Source: `docs/format/log.md`, section 14.

/// Bits of a pointer.
pub const POINTER_BITS: usize = 36;

/// Bytes that an inode and a direct node of F2FS have for block numbers of 32 bits, of which they hold
/// 923 and 1,018: a node of 4,096 bytes has a footer of 24, an inode in front of them 360 bytes of attributes
/// and behind them the nids of its five nodes.
const INODE_BYTES: usize = 4096 - 24 - 360 - 5 * 4;
const DIRECT_BYTES: usize = 4096 - 24;

/// Pointers in an inode.
pub const INODE_POINTERS: usize = INODE_BYTES * 8 / POINTER_BITS;
/// Pointers in a direct node.
pub const DIRECT_POINTERS: usize = DIRECT_BYTES * 8 / POINTER_BITS;

const _: () = assert!(INODE_BYTES == 4 * 923 && DIRECT_BYTES == 4 * 1018);
const _: () = assert!(INODE_POINTERS == 820 && INODE_POINTERS / 2 * 9 == 3690);
const _: () = assert!(DIRECT_POINTERS == 904);

const BLOCK_BITS: u32 = 32;
const COMPRESSED: u64 = 1 << 35;
const SLOTS: u8 = 8;

/// A pointer of the paper.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct PaperPointer {
    /// The block.
    pub block: u32,
    /// The slot, below 8, if the content is compressed.
    pub slot: Option<u8>,
}

impl PaperPointer {
    /// Its 36 bits; `None` if the slot has no room in them.
    pub fn encode(self) -> Option<u64> {
        match self.slot {
            None => Some(self.block.into()),
            Some(slot) if slot < SLOTS => {
                Some(COMPRESSED | u64::from(slot) << BLOCK_BITS | u64::from(self.block))
            }
            Some(_) => None,
        }
    }

    /// Returns what 36 bits say; `None` if there are more, or a slot of what is not compressed.
    pub fn decode(bits: u64) -> Option<Self> {
        let block = bits as u32;
        let slot = (bits >> BLOCK_BITS) as u8 & (SLOTS - 1);
        let slot = (bits & COMPRESSED != 0).then_some(slot);
        let decoded = Self { block, slot };
        (decoded.encode() == Some(bits)).then_some(decoded)
    }
}

/// Two pointers in nine bytes, the first in the lower bits; `None` if a slot has no room.
pub fn pack(pair: [PaperPointer; 2]) -> Option<[u8; 9]> {
    let bits = u128::from(pair[0].encode()?) | u128::from(pair[1].encode()?) << POINTER_BITS;
    let mut bytes = [0; 9];
    bytes.copy_from_slice(&bits.to_le_bytes()[..9]);
    Some(bytes)
}

/// The two pointers in nine bytes; `None` if one of them is none.
pub fn unpack(bytes: &[u8; 9]) -> Option<[PaperPointer; 2]> {
    let mut wide = [0; 16];
    wide[..9].copy_from_slice(bytes);
    let bits = u128::from_le_bytes(wide);
    let mask = (1 << POINTER_BITS) - 1;
    let first = PaperPointer::decode(bits as u64 & mask)?;
    let second = PaperPointer::decode((bits >> POINTER_BITS) as u64 & mask)?;
    Some([first, second])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn forms() -> Vec<PaperPointer> {
        let slots = (0..SLOTS).map(Some).chain([None]);
        let with = |slot| [0, 1, 0x8765_4321, u32::MAX].map(|block| PaperPointer { block, slot });
        slots.flat_map(with).collect()
    }

    #[test]
    fn every_pair_comes_back_from_nine_bytes() {
        for first in forms() {
            for second in forms() {
                let bytes = pack([first, second]).unwrap();
                assert_eq!(unpack(&bytes), Some([first, second]));
            }
        }
        let first = PaperPointer {
            block: 0x0403_0201,
            slot: Some(5),
        };
        let second = PaperPointer {
            block: 0x0807_0605,
            slot: None,
        };
        let bytes = pack([first, second]).unwrap();
        assert_eq!(bytes, [1, 2, 3, 4, 0x5d, 0x60, 0x70, 0x80, 0]);
    }

    #[test]
    fn what_has_no_room_is_refused() {
        let slot = PaperPointer {
            block: 1,
            slot: Some(SLOTS),
        };
        assert_eq!(slot.encode(), None);
        assert_eq!(pack([PaperPointer::default(), slot]), None);
        assert_eq!(PaperPointer::decode(1 << 36), None);
        assert_eq!(PaperPointer::decode(1 << BLOCK_BITS), None);
        assert_eq!(unpack(&[0, 0, 0, 0, 1, 0, 0, 0, 0]), None);
    }
}
