//! The index of encoded extents, as it lies behind inode and xattrs: one record for each extent, which may lie at any byte
//! (format page, section 12.5).

use anteros_core::Algorithm;
use anteros_format::extent::{ExtentFormat, ExtentRecord};
use anteros_format::zmap::ExtentHeader;
use zerocopy::IntoBytes;

use crate::extent::{Extent, Run, Share, Tail};

/// Largest shift of the length of extents, relative to blocks, that the map header has room for.
const SHIFT_MAX: u8 = 15;
/// Bytes of the address in front of records that have none themselves.
const ADDRESS_BYTES: u64 = 8;

/// The form of the records of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Records {
    header: ExtentHeader,
    block_bits: u8,
}

impl Records {
    /// The shortest records that can tell where the extents of a file lie.
    pub fn new(runs: &[Run<'_>], tail: Tail, size: u64, block_bits: u8) -> Self {
        let count: usize = runs.iter().map(|(_, extents)| extents.len()).sum();
        let fixed = match (runs, tail) {
            ([(_, extents)], Tail::Blocks) => shift(extents, block_bits),
            _ => None,
        };
        let record_bytes = match fixed {
            Some(_) => 4,
            None if size <= u32::MAX.into() => 16,
            None => 32,
        };
        let header = ExtentHeader {
            record_bytes,
            lcluster_bits: block_bits + fixed.unwrap_or(0),
            count: count as u64,
            interlaced: false,
            fragment: matches!(tail, Tail::Fragment(_)),
        };
        Self { header, block_bits }
    }

    /// Bytes of map header and records, if the header is to begin at byte `start` of the inode.
    pub fn bytes(self, start: u64) -> u64 {
        let address = if self.header.is_fixed_size() {
            ADDRESS_BYTES
        } else {
            0
        };
        let records = self.header.count * u64::from(self.header.record_bytes);
        self.table(start) - start + address + records
    }

    /// Appends map header and records to `out`, which begins where the inode does and ends where the header is to begin.
    pub fn encode(
        self,
        runs: &[Run<'_>],
        tail: Tail,
        algorithms: (Algorithm, Option<Algorithm>),
        out: &mut Vec<u8>,
    ) {
        let table = self.table(out.len() as u64);
        out.extend_from_slice(self.header.encode(self.block_bits).as_bytes());
        out.resize(table as usize, 0);
        if self.header.is_fixed_size() {
            let start = runs.first().map_or(0, |(start, _)| *start);
            out.extend_from_slice(&start.to_le_bytes());
        }
        let mut lstart = 0;
        for (start, extents) in runs {
            let mut pstart = *start;
            for extent in *extents {
                let record = match (tail, extent.stored) {
                    (Tail::Fragment(offset), 0) => ExtentRecord::of_fragment(offset, lstart),
                    _ => record(extent, algorithms, pstart, lstart),
                };
                record.encode(self.header.record_bytes, out);
                pstart += u64::from(extent.stored);
                lstart += u64::from(extent.len);
            }
        }
    }

    fn table(self, start: u64) -> u64 {
        let table = self.header.table_offset(start);
        table.expect("offsets within an inode do not overflow")
    }
}

fn record(
    extent: &Extent,
    (first, quick): (Algorithm, Option<Algorithm>),
    pstart: u64,
    lstart: u64,
) -> ExtentRecord {
    let algorithm = quick.filter(|_| extent.quick).unwrap_or(first);
    let format = ExtentFormat::Encoded {
        bytes: extent.stored,
        algorithm: (!extent.plain).then_some(algorithm),
        partial: extent.share == Share::Front,
    };
    ExtentRecord {
        plen: format.plen(),
        pstart,
        lstart,
    }
}

/// The length of all extents but the last, as a shift relative to blocks, if they have the same and the last one no more.
fn shift(extents: &[Extent], block_bits: u8) -> Option<u8> {
    let first = extents.first()?;
    let len = match extents {
        [only] => only.len.next_power_of_two(),
        _ => first.len,
    };
    let len = len.max(1 << block_bits);
    let shift = len.ilog2() as u8 - block_bits;
    let (last, others) = extents.split_last()?;
    let is_fixed = len.is_power_of_two()
        && others.iter().all(|extent| extent.len == len)
        && last.len <= len
        && shift <= SHIFT_MAX;
    is_fixed.then_some(shift)
}

#[cfg(test)]
mod tests {
    use anteros_format::inode::DataLayout;
    use anteros_format::zmap::{HEADER_BYTES, MapHeader};

    use super::*;

    fn extent(len: u32, stored: u32) -> Extent {
        Extent {
            len,
            stored,
            plain: false,
            quick: false,
            share: Share::None,
        }
    }

    fn encoded(runs: &[Run<'_>], tail: Tail, size: u64) -> (ExtentHeader, Vec<ExtentRecord>, u64) {
        let records = Records::new(runs, tail, size, 12);
        let mut out = vec![0; 40];
        records.encode(runs, tail, (Algorithm::Zstd, None), &mut out);
        assert_eq!(out.len() as u64 - 40, records.bytes(40));
        let header = out[40..40 + HEADER_BYTES].try_into().unwrap();
        let layout = DataLayout::CompressedFull;
        let Ok(MapHeader::Extents(header)) = MapHeader::parse(&header, layout, 12) else {
            panic!("no encoded extents");
        };
        let mut table = &out[header.table_offset(40).unwrap() as usize..];
        let mut start = 0;
        if header.is_fixed_size() {
            start = u64::from_le_bytes(table[..8].try_into().unwrap());
            table = &table[8..];
        }
        let found = table.chunks_exact(header.record_bytes.into());
        let found: Vec<_> = found.map(ExtentRecord::parse).collect();
        assert_eq!(header.records(size), Ok(found.len() as u64));
        (header, found, start)
    }

    #[test]
    fn extents_of_one_length_have_the_shortest_records() {
        let (header, found, start) = encoded(&[(77_777, &[extent(9000, 500)])], Tail::Blocks, 9000);
        assert_eq!((header.record_bytes, header.lcluster_bits), (4, 14));
        assert_eq!((found[0].plen, start), (4 << 28 | 500, 77_777));
        let extents = [extent(8192, 500), extent(8192, 70), extent(100, 60)];
        let (header, found, _) = encoded(&[(1, &extents)], Tail::Blocks, 16_484);
        assert_eq!(
            (header.record_bytes, header.lcluster_bits, found.len()),
            (4, 13, 3)
        );
    }

    #[test]
    fn others_say_where_they_begin() {
        let mut shared = extent(5000, 900);
        shared.share = Share::Front;
        let own = [extent(8192, 500), extent(8000, 70)];
        let runs: [Run<'_>; 2] = [(5 << 32, &own), (9, &[shared])];
        let (header, found, _) = encoded(&runs, Tail::Blocks, 21_192);
        assert_eq!((header.record_bytes, header.count), (16, 3));
        let places: Vec<_> = found.iter().map(|r| (r.lstart, r.pstart)).collect();
        assert_eq!(places, [(0, 5 << 32), (8192, (5 << 32) + 500), (16_192, 9)]);
        assert!(matches!(
            found[2].format(),
            Ok(ExtentFormat::Encoded {
                bytes: 900,
                partial: true,
                ..
            })
        ));
        let (header, ..) = encoded(&runs, Tail::Blocks, 5 << 32);
        assert_eq!(header.record_bytes, 32);
    }

    #[test]
    fn a_fragment_has_the_last_record() {
        let extents = [extent(8192, 500), extent(100, 0)];
        let tail = Tail::Fragment(3 << 32 | 8);
        let (header, found, _) = encoded(&[(1, &extents)], tail, 8292);
        assert!(header.fragment);
        assert_eq!(
            (found[1].lstart, found[1].fragment_offset(16)),
            (8192, 3 << 32 | 8)
        );
    }
}
