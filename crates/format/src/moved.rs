//! Content at another place of the unified address space: all addresses of an inode grow by the same number of blocks.
//!
//! | layout | what has addresses |
//! |---|---|
//! | flat | the inode |
//! | chunks | each entry that is no hole and names no extra device |
//! | packed index | the base block of each pack |
//! | full index | each head, but that of a fragment and of the empty extent at the end |
//! | encoded extents | each record but holes and the fragment; with records of 4 bytes, what lies in front of them |

use std::mem::offset_of;

use crate::chunk::{Chunk, ChunkFormat};
use crate::extent::ExtentRecord;
use crate::inode::{DataLayout, Inode, RawCompactInode};
use crate::lcluster::{CompactLayout, FULL_BYTES, Lcluster, full_table_offset};
use crate::superblock::Superblock;
use crate::zmap::{ExtentHeader, HEADER_BYTES, IndexHeader, MapHeader, Tail, header_offset};
use crate::{Corrupt, Fault, Nid};

/// Moves the content of an inode, which `record` has with all that follows it, up by so many blocks. The inode lies at a
/// multiple of 32 bytes. What lies behind it, in the packed inode or on an extra device stays.
///
/// # Errors
///
/// If the inode or its index breaks a rule, or an address has no room any more.
pub fn move_content(record: &mut [u8], sb: &Superblock, blocks: u32) -> Result<(), Fault> {
    let head = record.first_chunk::<2>().copied().unwrap_or_default();
    part(record, 0, Inode::bytes_needed(head))?;
    let inode = Inode::parse(Nid(1), record, sb)?;
    let mut record = Record {
        bytes: record,
        blocks,
        block_bits: sb.block_bits,
    };
    match inode.layout {
        _ if !inode.kind.may_have_data() => Ok(()),
        DataLayout::FlatPlain | DataLayout::FlatInline => record.flat(&inode),
        DataLayout::ChunkBased => record.chunks(&inode),
        DataLayout::CompressedFull | DataLayout::CompressedCompact => record.compressed(&inode),
    }
}

/// An inode whose addresses grow.
struct Record<'a> {
    bytes: &'a mut [u8],
    blocks: u32,
    block_bits: u8,
}

impl Record<'_> {
    /// Has the block number at a byte grow.
    fn block(&mut self, at: u64) -> Result<(), Fault> {
        let blocks = self.blocks;
        let field = part(self.bytes, at, 4)?;
        let block = u32::from_le_bytes(field.try_into().expect("4 bytes"));
        // The base of a pack may lie in front of the first block.
        field.copy_from_slice(&block.wrapping_add(blocks).to_le_bytes());
        Ok(())
    }

    fn bytes_up(&self) -> u64 {
        u64::from(self.blocks) << self.block_bits
    }

    fn flat(&mut self, inode: &Inode) -> Result<(), Fault> {
        let has_blocks = match inode.layout {
            DataLayout::FlatInline => inode.size > 1 << self.block_bits,
            _ => inode.size > 0,
        };
        match inode.start_block.filter(|_| has_blocks) {
            Some(_) => self.block(offset_of!(RawCompactInode, i_u) as u64), // in either form
            None => Ok(()),
        }
    }

    fn chunks(&mut self, inode: &Inode) -> Result<(), Fault> {
        let format: ChunkFormat = inode.chunk_format.expect("it is of chunks");
        let low = format.entry_bytes() - 4; // the low part comes last
        for chunk in 0..inode.size.div_ceil(1 << format.chunk_bits) {
            let at = format.entry_offset(inode.head_bytes(), chunk)?;
            let entry = part(self.bytes, at, format.entry_bytes() as usize)?;
            if matches!(format.entry(entry, u16::MAX), Chunk::At { device: 0, .. }) {
                self.block(at + low)?;
            }
        }
        Ok(())
    }

    fn compressed(&mut self, inode: &Inode) -> Result<(), Fault> {
        let at = header_offset(inode.head_bytes())?;
        let header = part(self.bytes, at, HEADER_BYTES)?;
        let header = (&*header).try_into().expect("8 bytes");
        match MapHeader::parse(header, inode.layout, self.block_bits)? {
            MapHeader::WholeFragment { .. } => Ok(()),
            MapHeader::Indexed(header) if header.compact => self.packs(at, header, inode.size),
            MapHeader::Indexed(header) => self.full(at, header, inode.size),
            MapHeader::Extents(header) => self.extents(at, header, inode.size),
        }
    }

    fn packs(&mut self, at: u64, header: IndexHeader, size: u64) -> Result<(), Fault> {
        let total = size.div_ceil(1 << header.lcluster_bits);
        let (two, big) = (header.compacted_2b, header.big_pcluster_1);
        let layout = CompactLayout::new(at, total, header.lcluster_bits, two, big)?;
        let mut lcn = 0;
        while lcn < total {
            let pack = layout.pack_of(lcn);
            self.block(pack.offset + pack.bytes as u64 - 4)?;
            lcn = pack.first_lcn + pack.entries as u64;
        }
        Ok(())
    }

    fn full(&mut self, at: u64, header: IndexHeader, size: u64) -> Result<(), Fault> {
        let table = full_table_offset(at)?;
        let total = size.div_ceil(1 << header.lcluster_bits);
        let mut is_fragment = matches!(header.tail, Tail::Fragment { .. });
        for lcn in (0..total).rev() {
            let at = table + lcn * FULL_BYTES;
            let entry = part(self.bytes, at, FULL_BYTES as usize)?;
            let entry = (&*entry).try_into().expect("8 bytes");
            let entry = Lcluster::parse_full(lcn, entry, header.lcluster_bits)?;
            let Lcluster::Head { clusterofs, .. } = entry else {
                continue;
            };
            let is_empty = (lcn << header.lcluster_bits) + u64::from(clusterofs) >= size;
            // The last extent that is not empty is the fragment.
            if !is_empty && !std::mem::take(&mut is_fragment) {
                self.block(at + 4)?;
            }
        }
        Ok(())
    }

    fn extents(&mut self, at: u64, header: ExtentHeader, size: u64) -> Result<(), Fault> {
        let bytes_up = self.bytes_up();
        let table = header.table_offset(at)?;
        if header.record_bytes == 4 {
            return self.address(table, 8, bytes_up);
        }
        let count = header.records(size)? - u64::from(header.fragment && size > 0);
        let record_bytes = usize::from(header.record_bytes);
        for index in 0..count {
            let at = table + index * record_bytes as u64;
            let record = ExtentRecord::parse(part(self.bytes, at, record_bytes)?);
            if record.plen != 0 {
                self.address(at + 4, (record_bytes - 4).min(8), bytes_up)?;
            }
        }
        Ok(())
    }

    /// Has the address of so many bytes at a byte grow.
    fn address(&mut self, at: u64, bytes: usize, up: u64) -> Result<(), Fault> {
        let field = part(self.bytes, at, bytes)?;
        let mut whole = [0; 8];
        whole[..bytes].copy_from_slice(field);
        let moved = u64::from_le_bytes(whole).checked_add(up);
        let moved = moved.filter(|moved| bytes == 8 || moved >> (8 * bytes) == 0);
        let what = "an extent";
        let moved = moved.ok_or(Corrupt::AddressOverflow { what })?;
        field.copy_from_slice(&moved.to_le_bytes()[..bytes]);
        Ok(())
    }
}

/// Some bytes of an inode and what follows it.
fn part(record: &mut [u8], at: u64, bytes: usize) -> Result<&mut [u8], Corrupt> {
    let size = record.len() as u64;
    let end = at.saturating_add(bytes as u64);
    let found = usize::try_from(at)
        .ok()
        .and_then(|at| record.get_mut(at..)?.get_mut(..bytes));
    found.ok_or(Corrupt::OutOfBounds {
        what: "an index",
        end,
        of: "an inode",
        size,
    })
}

#[cfg(test)]
mod tests {
    use zerocopy::{FromZeros, IntoBytes};

    use super::*;
    use crate::extent::ExtentFormat;
    use crate::inode::{FORMAT_LAYOUT_SHIFT, FORMAT_NLINK_1};
    use crate::lcluster::HeadKind;
    use crate::superblock::{MAGIC, RawSuperblock};

    const BLOCKS: u32 = 1000;

    fn superblock() -> Superblock {
        let mut raw = RawSuperblock::new_zeroed();
        raw.magic = MAGIC.into();
        raw.blkszbits = 12;
        raw.rootnid_2b = 1.into();
        Superblock::parse(raw.as_bytes()).unwrap()
    }

    /// A compact inode of a file, and what follows it.
    fn file(layout: DataLayout, size: u32, i_u: u32, rest: &[u8]) -> Vec<u8> {
        let mut raw = RawCompactInode::new_zeroed();
        raw.i_format = ((layout as u16) << FORMAT_LAYOUT_SHIFT).into();
        raw.i_mode = 0o100_644.into();
        raw.i_nb = 1.into();
        raw.i_size = size.into();
        raw.i_u = i_u.into();
        [raw.as_bytes(), rest].concat()
    }

    fn moved(mut record: Vec<u8>) -> Vec<u8> {
        move_content(&mut record, &superblock(), BLOCKS).unwrap();
        record
    }

    #[test]
    fn flat_files_and_chunks_move_but_for_holes() {
        let flat = |layout, size, block| file(layout, size, block, &[]);
        for (layout, size, block, after) in [
            (DataLayout::FlatPlain, 5000, 7, 1007),
            (DataLayout::FlatPlain, 5000, u32::MAX, u32::MAX),
            (DataLayout::FlatPlain, 0, 7, 7),
            (DataLayout::FlatInline, 4097, 7, 1007),
            (DataLayout::FlatInline, 4096, 7, 7),
        ] {
            assert_eq!(moved(flat(layout, size, block)), flat(layout, size, after));
        }
        let mut device = flat(DataLayout::FlatPlain, 5000, 7);
        device[4..6].copy_from_slice(&0o060_644u16.to_le_bytes());
        assert_eq!(moved(device.clone()), device);
        // An address of 48 bits is no hole unless all of it is ones.
        let wide = |block: u32| {
            let mut wide = flat(DataLayout::FlatPlain, 5000, block);
            wide[..2].copy_from_slice(&FORMAT_NLINK_1.to_le_bytes());
            wide[6..8].copy_from_slice(&[0; 2]);
            wide
        };
        assert_eq!(moved(wide(9)), wide(1009));
        let chunks = |format, words: &[u32]| {
            let words: Vec<_> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
            file(DataLayout::ChunkBased, 12_000, format, &words)
        };
        let table = moved(chunks(0, &[5, u32::MAX, 6]));
        assert_eq!(table, chunks(0, &[1005, u32::MAX, 1006]));
        let indexes = moved(chunks(0x20, &[0, 5, 0, u32::MAX, 2 << 16, 6]));
        assert_eq!(indexes, chunks(0x20, &[0, 1005, 0, u32::MAX, 2 << 16, 6]));
    }

    /// The entries of a file of four extents; the last one may be a fragment, behind which an empty extent ends the file.
    fn entries(first_block: u32) -> Vec<Lcluster> {
        let head = |clusterofs, block, kind| Lcluster::Head {
            kind,
            clusterofs,
            block,
            partial: false,
        };
        let back = |back, ahead| Lcluster::NonHead {
            back,
            ahead,
            pcluster_blocks: None,
        };
        vec![
            head(0, first_block, HeadKind::Head1),
            back(1, 2),
            back(2, 1),
            head(10, first_block + 1, HeadKind::Plain),
            head(20, first_block + 2, HeadKind::Head1),
            back(1, 1),
            head(30, first_block + 3, HeadKind::Head1),
            head(40, 0, HeadKind::Plain),
        ]
    }

    const SIZE: u32 = 7 * 4096 + 40;

    fn header(advise: u16) -> Vec<u8> {
        [&[0; 4], &advise.to_le_bytes()[..], &[0; 2]].concat()
    }

    #[test]
    fn packs_move_with_their_base() {
        let packs = |first_block| {
            let layout = CompactLayout::new(32, 8, 12, true, false).unwrap();
            let bytes = layout.encode(&entries(first_block));
            let rest = [header(1), bytes].concat();
            file(DataLayout::CompressedCompact, SIZE, 4, &rest)
        };
        let (before, after) = (moved(packs(50)), packs(1050));
        let layout = CompactLayout::new(32, 8, 12, true, false).unwrap();
        for lcn in 0..7 {
            let pack = layout.pack_of(lcn);
            let range = pack.offset as usize..pack.offset as usize + pack.bytes;
            let [one, other] = [&before, &after].map(|record| {
                let bytes = record[range.clone()].to_vec();
                layout.parse(lcn, &pack, &bytes).unwrap()
            });
            assert_eq!(one, other, "{lcn}");
        }
    }

    #[test]
    fn heads_move_but_for_a_fragment_and_the_end() {
        for (advise, moves_last) in [(0, true), (0x20, false)] {
            let full = |first_block: u32, last: u32| {
                let mut entries = entries(first_block);
                if let Lcluster::Head { block, .. } = &mut entries[6] {
                    *block = last;
                }
                let bytes = entries
                    .iter()
                    .flat_map(|entry| entry.encode_full().as_bytes().to_vec());
                let rest = [header(advise), vec![0; 8], bytes.collect()].concat();
                file(DataLayout::CompressedFull, SIZE, 4, &rest)
            };
            let last = if moves_last { 1053 } else { 53 };
            assert_eq!(moved(full(50, 53)), full(1050, last));
        }
    }

    #[test]
    fn extents_move_but_for_holes_and_fragments() {
        let extents = |record_bytes: u8, fragment, up: u64| {
            let header = ExtentHeader {
                record_bytes,
                lcluster_bits: 13,
                count: 3,
                interlaced: false,
                fragment,
            };
            let plen = ExtentFormat::Encoded {
                bytes: 700,
                algorithm: None,
                partial: false,
            };
            let record = |plen, pstart, lstart| ExtentRecord {
                plen,
                pstart,
                lstart,
            };
            let last_up = if fragment { 0 } else { up };
            let records = [
                record(plen.plen(), 5001 + up, 0),
                record(0, 17, 8192),
                record(plen.plen(), 6001 + last_up, 16_384),
            ];
            let mut rest = header.encode(12).as_bytes().to_vec();
            rest.resize(rest.len().next_multiple_of(record_bytes.into()), 0);
            rest.resize(header.table_offset(32).unwrap() as usize - 32, 0);
            if record_bytes == 4 {
                rest.extend((5001 + up).to_le_bytes());
            }
            records
                .iter()
                .for_each(|record| record.encode(record_bytes, &mut rest));
            file(DataLayout::CompressedFull, 20_000, 4, &rest)
        };
        let up = u64::from(BLOCKS) << 12;
        for record_bytes in [4, 8, 16, 32] {
            for fragment in [false, true] {
                let after = moved(extents(record_bytes, fragment, 0));
                assert_eq!(after, extents(record_bytes, fragment, up), "{record_bytes}");
            }
        }
        // Records of 8 bytes have no room for more than 32 bits.
        let mut record = extents(8, false, 0);
        move_content(&mut record, &superblock(), 1 << 20).unwrap_err();
        let mut record = extents(16, false, 0);
        move_content(&mut record, &superblock(), 1 << 20).unwrap();
    }

    /// Whatever the bytes, and however many are missing.
    #[test]
    fn hostile_records_are_refused_or_moved() {
        let mut state = 7u64;
        let mut random = || {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            (state >> 33) as usize
        };
        let rest: Vec<u8> = (0..200).map(|_| random() as u8).collect();
        for layout in [
            DataLayout::FlatPlain,
            DataLayout::CompressedFull,
            DataLayout::FlatInline,
            DataLayout::CompressedCompact,
            DataLayout::ChunkBased,
        ] {
            for _ in 0..500 {
                let mut record = file(layout, 30_000, 4, &rest);
                record.truncate(random() % 240);
                for _ in 0..random() % 4 {
                    let at = random() % record.len().max(1);
                    record
                        .get_mut(at)
                        .into_iter()
                        .for_each(|byte| *byte = random() as u8);
                }
                let _ = move_content(&mut record, &superblock(), BLOCKS);
            }
        }
        move_content(&mut [], &superblock(), 1).unwrap_err();
    }
}
