//! Inodes of the image that is patched with other properties: what lies behind the attributes is copied as it is, with the
//! addresses of data in it.
//!
//! ```text
//! before   | inode | attributes      | index, table, or inline data |
//! copied   | inode     | attributes … 0 | the same bytes            |
//! ```
//!
//! Places in an index follow from its own place, as a remainder of 32 bytes. So the attributes are filled up until what follows
//! them has the same one. What crosses blocks and ends with inline data begins at the same byte of a block.

use std::mem::offset_of;

use anteros_core::{FsError, FsResult, Ino};
use anteros_format::SLOT_BYTES;
use anteros_format::inode::{
    COMPACT_BYTES, DataLayout, EXTENDED_BYTES, FORMAT_EXTENDED, FORMAT_LAYOUT_SHIFT,
    FORMAT_NLINK_1, RawCompactInode, RawExtendedInode,
};
use anteros_format::xattr::{HEADER_BYTES, region_bytes};

use crate::base::{Base, Record};

/// Longest record. An index of 16 bytes for each block of 64 GiB is no longer.
const RECORD_BYTES_MAX: u64 = 256 << 20;

/// An inode of the image that is patched, as it lies there.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Copied {
    pub record: Record,
    /// Tells whether it takes 64 bytes instead of 32.
    pub extended: bool,
    /// The units of its attributes.
    pub icount: u16,
    /// The bits of its data layout, where they belong in the format.
    pub layout: u16,
    /// The place of its data, or its device number.
    pub i_u: u32,
    /// The high part of an address; none in a compact inode that counts its links instead.
    pub address_hi: Option<u16>,
    /// The number of its names, as it tells.
    pub nlink: u32,
}

impl Copied {
    /// Reads an inode.
    pub fn read(base: &dyn Base, ino: Ino) -> FsResult<Self> {
        let record = base.record(ino)?;
        if record.bytes > RECORD_BYTES_MAX {
            let text = format!("its inode takes {} bytes", record.bytes);
            return Err(FsError::Corrupt(text));
        }
        let mut raw = [0; EXTENDED_BYTES];
        let (compact, more) = raw.split_at_mut(COMPACT_BYTES);
        base.read(record.address, compact)?;
        let format = u16::from_le_bytes([compact[0], compact[1]]);
        let extended = format & FORMAT_EXTENDED != 0;
        if extended {
            base.read(record.address + COMPACT_BYTES as u64, more)?;
        }
        let half = |at: usize| u16::from_le_bytes([raw[at], raw[at + 1]]);
        let word = |at: usize| u32::from(half(at)) | u32::from(half(at + 2)) << 16;
        let has_address = extended || format & FORMAT_NLINK_1 != 0;
        let address = half(offset_of!(RawExtendedInode, i_nb));
        let nlink = match (extended, has_address) {
            (true, _) => word(offset_of!(RawExtendedInode, i_nlink)),
            (false, true) => 1,
            (false, false) => address.into(),
        };
        Ok(Self {
            record,
            extended,
            icount: half(offset_of!(RawCompactInode, i_xattr_icount)),
            layout: format & 7 << FORMAT_LAYOUT_SHIFT,
            i_u: word(offset_of!(RawCompactInode, i_u)), // in either form
            address_hi: has_address.then_some(address),
            nlink,
        })
    }

    /// Bytes of the inode and its attributes.
    pub fn head_bytes(&self) -> u64 {
        let body = if self.extended {
            EXTENDED_BYTES
        } else {
            COMPACT_BYTES
        };
        body as u64 + region(self.icount)
    }

    /// Bytes of what follows these.
    pub fn rest_bytes(&self) -> u64 {
        self.record.bytes.saturating_sub(self.head_bytes())
    }

    /// Returns whether it is a hole as a whole, which is told in as many bits as the address has.
    pub fn is_hole(&self) -> bool {
        self.layout == (DataLayout::FlatPlain as u16) << FORMAT_LAYOUT_SHIFT && self.i_u == u32::MAX
    }

    /// Returns whether a compact inode cannot say so much: an address with a high part, and another number of links than one.
    pub fn needs_extended(&self, nlink: u32) -> bool {
        self.extended || self.address_hi.is_some_and(|hi| hi > 0) && nlink != 1
    }

    /// The units of attributes of at least so many units behind which all that follows keeps its place; `None` if they are
    /// too many.
    pub fn icount_for(&self, wanted: u16) -> Option<u16> {
        if self.rest_bytes() == 0 {
            return Some(wanted);
        }
        let remainder = region(self.icount) % SLOT_BYTES;
        let fits = |icount: &u16| *icount != 1 && region(*icount) % SLOT_BYTES == remainder;
        (wanted..=wanted.saturating_add(16)).find(fits)
    }

    /// The byte of a block at which the record has to begin behind a head of so many bytes, if it crosses blocks and may not do so
    /// anywhere.
    pub fn place_in_block(&self, head_bytes: u64, block_bytes: u64) -> Option<u64> {
        let crosses = head_bytes + self.rest_bytes() > block_bytes;
        let rest = self.record.address + self.head_bytes();
        (self.record.is_inline && crosses)
            .then(|| (rest + block_bytes * head_bytes - head_bytes) % block_bytes)
    }
}

/// Bytes of attributes in so many units.
fn region(icount: u16) -> u64 {
    region_bytes(icount).unwrap_or(HEADER_BYTES as u32).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn copied(icount: u16, bytes: u64) -> Copied {
        Copied {
            record: Record {
                address: 4096 + 96,
                bytes,
                is_inline: true,
            },
            extended: false,
            icount,
            layout: 0,
            i_u: 0,
            address_hi: None,
            nlink: 1,
        }
    }

    #[test]
    fn what_follows_keeps_its_remainder_and_its_place_in_blocks() {
        for before in [0, 2, 3, 7, 8, 9, 30] {
            let copied = copied(before, 32 + region(before) + 9000);
            for wanted in [0, 2, 3, 5, 8, 9, 17, 40] {
                let icount = copied.icount_for(wanted).unwrap();
                assert!(icount >= wanted && icount != 1);
                assert_eq!(region(icount) % 32, region(before) % 32);
                let head = 64 + region(icount);
                let start = copied.place_in_block(head, 4096).unwrap();
                assert_eq!(start % 32, 0);
                let rest = copied.record.address + copied.head_bytes();
                assert_eq!((start + head) % 4096, rest % 4096);
            }
        }
        assert_eq!(copied(4, 32 + region(4)).icount_for(3), Some(3));
    }
}
