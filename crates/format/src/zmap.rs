//! The map header of a compressed inode.
//!
//! It lies at the first multiple of 8 bytes behind the xattrs and says how the rest is indexed.

use anteros_core::Algorithm;
use zerocopy::little_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::compr_cfg::algorithm_of;
use crate::inode::DataLayout;
use crate::{Corrupt, Fault, Unsupported, align_up};

/// The map header.
///
/// ```text
/// byte 0                          4         6            7             8
///      | fragmentoff              | advise  | algorithms | clusterbits |
///      | 0, then idata_size       |         |            |             |
///      | extents_lo               |         | extents_hi (16 bits)     |
/// ```
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
#[allow(missing_docs)] // the specification's own names, drawn above
pub struct RawMapHeader {
    pub h_fragmentoff: U32,
    pub h_advise: U16,
    /// Low nibble HEAD1, high nibble HEAD2.
    pub h_algorithmtype: u8,
    /// Bits 0 to 3: lcluster bits less block bits; bit 7: the whole file is a fragment.
    pub h_clusterbits: u8,
}

/// Bytes of the header.
pub const HEADER_BYTES: usize = 8;

const _: () = assert!(size_of::<RawMapHeader>() == HEADER_BYTES);

/// Advise: compact indexes have packs of 2 bytes an entry.
pub const ADVISE_COMPACTED_2B: u16 = 0x01;
/// Advise, in the full layout: the index is made of encoded extents.
pub const ADVISE_EXTENTS: u16 = 0x01;
/// Advise: HEAD1 pclusters may exceed a block.
pub const ADVISE_BIG_PCLUSTER_1: u16 = 0x02;
/// Advise: HEAD2 and plain pclusters may exceed a block.
pub const ADVISE_BIG_PCLUSTER_2: u16 = 0x04;
/// Advise: the tail pcluster lies behind the index.
pub const ADVISE_INLINE_PCLUSTER: u16 = 0x08;
/// Advise: plain pclusters are rotated to their offset in the block.
pub const ADVISE_INTERLACED_PCLUSTER: u16 = 0x10;
/// Advise: the tail is a fragment of the packed inode.
pub const ADVISE_FRAGMENT_PCLUSTER: u16 = 0x20;

/// Set in a map header that is nothing but the offset of the whole file in the packed inode.
pub const WHOLE_FRAGMENT: u64 = 1 << 63;

/// Tells what a map header says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MapHeader {
    /// The whole file lies at this offset of the packed inode.
    WholeFragment {
        /// Bytes from the start of the packed inode's content.
        offset: u64,
    },
    /// One index entry for each logical cluster.
    Indexed(IndexHeader),
    /// One record for each extent.
    Extents(ExtentHeader),
}

/// An inode with one index entry for each logical cluster.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct IndexHeader {
    /// Packed entries instead of full ones.
    pub compact: bool,
    /// Compact entries of 2 bytes are used.
    pub compacted_2b: bool,
    /// A logical cluster has two to this bytes; always a block.
    pub lcluster_bits: u8,
    /// The algorithm of HEAD1 extents.
    pub head1: Algorithm,
    /// The algorithm of HEAD2 extents.
    pub head2: Algorithm,
    /// HEAD1 pclusters may exceed a block.
    pub big_pcluster_1: bool,
    /// HEAD2 and plain pclusters may exceed a block.
    pub big_pcluster_2: bool,
    /// Plain pclusters are rotated.
    pub interlaced: bool,
    /// Tells where the last extent lies.
    pub tail: Tail,
}

/// Tells where the last extent of an indexed inode lies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tail {
    /// In its own pcluster, like the others.
    Ordinary,
    /// Behind the index.
    Inline {
        /// Encoded bytes.
        bytes: u16,
    },
    /// In the packed inode.
    Fragment {
        /// Low 32 bits of its offset there.
        offset_lo: u32,
    },
}

/// An inode with encoded extents.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ExtentHeader {
    /// Bytes of a record: 4, 8, 16 or 32.
    pub record_bytes: u8,
    /// With records of 4 and 8 bytes, an extent has two to this bytes.
    pub lcluster_bits: u8,
    /// With larger records, how many there are.
    pub count: u64,
    /// Plain pclusters of whole blocks are rotated.
    pub interlaced: bool,
    /// The last record is a fragment.
    pub fragment: bool,
}

/// Returns where the map header lies, given where inode and xattrs end.
///
/// # Errors
///
/// [`Corrupt::AddressOverflow`].
pub fn header_offset(head_end: u64) -> Result<u64, Corrupt> {
    align_up(head_end, 8).ok_or(Corrupt::AddressOverflow {
        what: "a map header",
    })
}

impl MapHeader {
    /// Checks a map header.
    ///
    /// # Errors
    ///
    /// The first rule that is broken.
    pub fn parse(
        bytes: &[u8; HEADER_BYTES],
        layout: DataLayout,
        block_bits: u8,
    ) -> Result<Self, Fault> {
        let whole = u64::from_le_bytes(*bytes);
        if whole & WHOLE_FRAGMENT != 0 {
            return Ok(Self::WholeFragment {
                offset: whole & !WHOLE_FRAGMENT,
            });
        }
        let raw = RawMapHeader::read_from_bytes(bytes).expect("8 bytes");
        let advise = raw.h_advise.get();
        let compact = layout == DataLayout::CompressedCompact;
        let lcluster_bits = block_bits + (raw.h_clusterbits & 15);
        if !compact && advise & ADVISE_EXTENTS != 0 {
            return Ok(Self::Extents(raw.extents(lcluster_bits)));
        }
        let big = (
            advise & ADVISE_BIG_PCLUSTER_1 != 0,
            advise & ADVISE_BIG_PCLUSTER_2 != 0,
        );
        if compact && big.0 != big.1 {
            return Err(Corrupt::BigPclusterFlags { advise }.into());
        }
        let compacted_2b = compact && advise & ADVISE_COMPACTED_2B != 0;
        let bits_max = match (compact, compacted_2b) {
            (_, true) => 12,
            (true, _) => 14,
            (false, _) => block_bits,
        };
        if lcluster_bits != block_bits || lcluster_bits > bits_max {
            return Err(Unsupported::LclusterBits {
                bits: lcluster_bits,
            }
            .into());
        }
        Ok(Self::Indexed(IndexHeader {
            compact,
            compacted_2b,
            lcluster_bits,
            head1: algorithm_of(raw.h_algorithmtype & 15)?,
            head2: algorithm_of(raw.h_algorithmtype >> 4)?,
            big_pcluster_1: big.0,
            big_pcluster_2: big.1,
            interlaced: advise & ADVISE_INTERLACED_PCLUSTER != 0,
            tail: raw.tail()?,
        }))
    }
}

impl ExtentHeader {
    /// The map header that says so, in an image with blocks of two to `block_bits` bytes.
    pub fn encode(&self, block_bits: u8) -> RawMapHeader {
        let code = self.record_bytes.ilog2() as u16 - 2;
        let interlaced = if self.interlaced {
            ADVISE_INTERLACED_PCLUSTER
        } else {
            0
        };
        let fragment = if self.fragment {
            ADVISE_FRAGMENT_PCLUSTER
        } else {
            0
        };
        let (low, [byte_6, byte_7]) = match self.is_fixed_size() {
            true => (0, [0, self.lcluster_bits - block_bits]),
            false => (self.count as u32, ((self.count >> 32) as u16).to_le_bytes()),
        };
        RawMapHeader {
            h_fragmentoff: low.into(),
            h_advise: (ADVISE_EXTENTS | code << 1 | interlaced | fragment).into(),
            h_algorithmtype: byte_6,
            h_clusterbits: byte_7,
        }
    }
}

impl RawMapHeader {
    fn tail(&self) -> Result<Tail, Corrupt> {
        let advise = self.h_advise.get();
        let inline = advise & ADVISE_INLINE_PCLUSTER != 0;
        let fragment = advise & ADVISE_FRAGMENT_PCLUSTER != 0;
        let low = self.h_fragmentoff.get();
        match (inline, fragment) {
            (true, true) => Err(Corrupt::Advise { advise }),
            (false, true) => Ok(Tail::Fragment { offset_lo: low }),
            // The size is the upper half; zero means that this file has no inline tail after all.
            (true, false) if low >> 16 != 0 => Ok(Tail::Inline {
                bytes: (low >> 16) as u16,
            }),
            _ => Ok(Tail::Ordinary),
        }
    }

    fn extents(&self, lcluster_bits: u8) -> ExtentHeader {
        let advise = self.h_advise.get();
        let high = u16::from_le_bytes([self.h_algorithmtype, self.h_clusterbits]);
        ExtentHeader {
            record_bytes: 4 << (advise >> 1 & 3),
            lcluster_bits,
            count: u64::from(self.h_fragmentoff.get()) | u64::from(high) << 32,
            interlaced: advise & ADVISE_INTERLACED_PCLUSTER != 0,
            fragment: advise & ADVISE_FRAGMENT_PCLUSTER != 0,
        }
    }
}
