//! Encoded extents (Linux 6.15): one record for each extent, addresses in bytes.
//!
//! | record | holds | extents |
//! |---|---|---|
//! | 4 bytes | length; addresses accumulate from a 64-bit start in front | of fixed size |
//! | 8 bytes | length, low address | of fixed size |
//! | 16 bytes | length, address, low file offset | sorted by file offset |
//! | 32 bytes | length, address, file offset | sorted by file offset |

use anteros_core::Algorithm;
use zerocopy::little_endian::U32;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::compr_cfg::algorithm_of;
use crate::zmap::ExtentHeader;
use crate::{Corrupt, Fault, PCLUSTER_BYTES_MAX, align_up};

/// A record in full.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
#[allow(missing_docs)] // the specification's own names
pub struct RawExtent {
    /// Bits 0 to 20 encoded bytes, 27 partial reference, 28 to 31 format.
    pub plen: U32,
    pub pstart_lo: U32,
    pub pstart_hi: U32,
    pub lstart_lo: U32,
    pub lstart_hi: U32,
    pub reserved: [u8; 12],
}

const _: () = assert!(size_of::<RawExtent>() == 32);

/// The encoded-length bits of `plen`.
pub const PLEN_MASK: u32 = (1 << 21) - 1;
const PLEN_PARTIAL: u32 = 1 << 27;
const PLEN_FORMAT_SHIFT: u32 = 28;

/// A record, its meaning still raw where only the neighbours tell.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ExtentRecord {
    /// The whole length field.
    pub plen: u32,
    /// Byte address; 0 in 4-byte records.
    pub pstart: u64,
    /// File offset; 0 in records of 4 and 8 bytes.
    pub lstart: u64,
}

/// Tells how an extent is stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ExtentFormat {
    /// It is a hole.
    Hole,
    /// Encoded in `bytes` bytes; without algorithm as it is.
    Encoded {
        /// Encoded bytes.
        bytes: u32,
        /// `None` for plain data.
        algorithm: Option<Algorithm>,
        /// Only a prefix of what the pcluster decodes to is used.
        partial: bool,
    },
}

impl ExtentFormat {
    /// The length field that says so.
    pub const fn plen(self) -> u32 {
        match self {
            Self::Hole => 0,
            Self::Encoded {
                bytes,
                algorithm,
                partial,
            } => {
                let format = match algorithm {
                    Some(algorithm) => algorithm as u32 + 1,
                    None => 0,
                };
                let partial = if partial { PLEN_PARTIAL } else { 0 };
                format << PLEN_FORMAT_SHIFT | partial | bytes
            }
        }
    }
}

impl ExtentRecord {
    /// The record of a fragment at this offset of the packed inode; of 8 bytes at the least.
    pub const fn of_fragment(offset: u64, lstart: u64) -> Self {
        Self {
            plen: offset as u32,
            pstart: offset >> 32,
            lstart,
        }
    }

    /// Appends as many bytes of the record as it is to have: 4, 8, 16 or 32.
    pub fn encode(&self, record_bytes: u8, out: &mut Vec<u8>) {
        let raw = RawExtent {
            plen: self.plen.into(),
            pstart_lo: (self.pstart as u32).into(),
            pstart_hi: ((self.pstart >> 32) as u32).into(),
            lstart_lo: (self.lstart as u32).into(),
            lstart_hi: ((self.lstart >> 32) as u32).into(),
            reserved: [0; 12],
        };
        out.extend_from_slice(&raw.as_bytes()[..record_bytes.into()]);
    }

    /// Reads a record of as many bytes as `bytes` has: 4, 8, 16 or 32.
    pub fn parse(bytes: &[u8]) -> Self {
        let mut full = [0; size_of::<RawExtent>()];
        full[..bytes.len()].copy_from_slice(bytes);
        let raw = RawExtent::read_from_bytes(&full).expect("32 bytes");
        let join = |low: U32, high: U32| u64::from(low.get()) | u64::from(high.get()) << 32;
        Self {
            plen: raw.plen.get(),
            pstart: join(raw.pstart_lo, raw.pstart_hi),
            lstart: join(raw.lstart_lo, raw.lstart_hi),
        }
    }

    /// Returns how the extent is stored; not to be asked of a fragment record.
    ///
    /// # Errors
    ///
    /// [`Corrupt::ExtentPlen`] for reserved bits or a plain partial reference,
    /// [`crate::Unsupported`] for an unknown format.
    pub fn format(&self) -> Result<ExtentFormat, Fault> {
        let plen = self.plen;
        let bytes = plen & PLEN_MASK;
        if plen == 0 {
            return Ok(ExtentFormat::Hole);
        }
        let reserved = plen & !PLEN_MASK & !PLEN_PARTIAL & ((1 << PLEN_FORMAT_SHIFT) - 1);
        if bytes == 0 || bytes > PCLUSTER_BYTES_MAX || reserved != 0 {
            return Err(Corrupt::ExtentPlen { plen }.into());
        }
        let partial = plen & PLEN_PARTIAL != 0;
        let algorithm = match plen >> PLEN_FORMAT_SHIFT {
            0 if partial => return Err(Corrupt::ExtentPlen { plen }.into()),
            0 => None,
            id => Some(algorithm_of(id as u8 - 1)?),
        };
        Ok(ExtentFormat::Encoded {
            bytes,
            algorithm,
            partial,
        })
    }

    /// The offset in the packed inode, of a fragment record.
    pub const fn fragment_offset(&self, record_bytes: u8) -> u64 {
        let high = if record_bytes > 4 {
            self.pstart << 32
        } else {
            0
        };
        self.plen as u64 | high
    }
}

impl ExtentHeader {
    /// Returns where the records begin, given where the map header begins. In front of 4-byte
    /// records lies a 64-bit start address.
    ///
    /// # Errors
    ///
    /// [`Corrupt::AddressOverflow`].
    pub fn table_offset(&self, header_offset: u64) -> Result<u64, Corrupt> {
        header_offset
            .checked_add(crate::zmap::HEADER_BYTES as u64)
            .and_then(|end| align_up(end, self.record_bytes.into()))
            .ok_or(Corrupt::AddressOverflow {
                what: "an extent table",
            })
    }

    /// Returns whether every extent but the last has the same size, which the records do not repeat.
    pub const fn is_fixed_size(&self) -> bool {
        self.record_bytes <= 8
    }

    /// Returns how many records a file of `size` bytes has.
    ///
    /// # Errors
    ///
    /// [`Corrupt::ExtentCount`] if there are more records than bytes, or none for some bytes.
    pub fn records(&self, size: u64) -> Result<u64, Corrupt> {
        let count = match self.is_fixed_size() {
            true => size.div_ceil(1 << self.lcluster_bits),
            false => self.count,
        };
        if count > size || (count == 0 && size != 0) {
            return Err(Corrupt::ExtentCount { count, size });
        }
        Ok(count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(plen: u32) -> ExtentRecord {
        ExtentRecord {
            plen,
            pstart: 0,
            lstart: 0,
        }
    }

    #[test]
    fn formats() {
        assert_eq!(record(0).format(), Ok(ExtentFormat::Hole));
        let plain = ExtentFormat::Encoded {
            bytes: 5,
            algorithm: None,
            partial: false,
        };
        assert_eq!(record(5).format(), Ok(plain));
        let zstd = Some(Algorithm::Zstd);
        let zstd = ExtentFormat::Encoded {
            bytes: 9,
            algorithm: zstd,
            partial: true,
        };
        assert_eq!(record(4 << 28 | 1 << 27 | 9).format(), Ok(zstd));
    }

    #[test]
    fn what_is_written_is_read() {
        let format = ExtentFormat::Encoded {
            bytes: 1 << 20,
            algorithm: Some(Algorithm::Deflate),
            partial: true,
        };
        let whole = ExtentRecord {
            plen: format.plen(),
            pstart: 5 << 32 | 7,
            lstart: 9 << 32 | 11,
        };
        let read = |record_bytes| {
            let mut bytes = Vec::new();
            whole.encode(record_bytes, &mut bytes);
            assert_eq!(bytes.len(), record_bytes.into());
            ExtentRecord::parse(&bytes)
        };
        assert_eq!(read(32), whole);
        assert_eq!(
            read(16),
            ExtentRecord {
                lstart: 11,
                ..whole
            }
        );
        assert_eq!((read(8).pstart, read(4).pstart), (7, 0));
        assert_eq!(read(4).format(), Ok(format));
        assert_eq!(ExtentFormat::Hole.plen(), 0);
        let fragment = ExtentRecord::of_fragment(5 << 32 | 7, 4096);
        assert_eq!(fragment.fragment_offset(16), 5 << 32 | 7);
    }

    #[test]
    fn refuses_what_looks_like_a_hole_but_is_none() {
        for plen in [0x0200_0000, 1 << 28, 1 << 27, 1 << 27 | 5, PLEN_MASK] {
            assert_eq!(
                record(plen).format(),
                Err(Corrupt::ExtentPlen { plen }.into())
            );
        }
        assert!(matches!(
            record(9 << 28 | 1).format(),
            Err(Fault::Unsupported(_))
        ));
    }
}
