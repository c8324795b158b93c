//! Logical clusters: the index entries of compressed inodes, full and compact.
//!
//! A file is cut into logical clusters of one block. A *head* says that an extent begins in its
//! lcluster, at which offset, and where its pcluster lies. A *nonhead* lies wholly inside an extent
//! and says how far its head is. If the last extent ends inside the last lcluster, that one's entry
//! is plain with the end as its offset: an empty extent at the end of the file.
//!
//! Behind a head of more than one block, the first nonhead gives the size of the pcluster in place
//! of its distance, which is 1.

use zerocopy::little_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::Corrupt;

/// A full index entry.
///
/// ```text
/// byte 0        2            4                 8
///      | advise | clusterofs | block           |   head
///      | advise | 0          | delta0 | delta1 |   nonhead
/// ```
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
#[allow(missing_docs)] // the specification's own names, drawn above
pub struct RawFullIndex {
    /// Bits 0 and 1 type, bit 15 partial reference.
    pub di_advise: U16,
    pub di_clusterofs: U16,
    pub di_u: U32,
}

/// Bytes of a full entry.
pub const FULL_BYTES: u64 = 8;

const _: () = assert!(size_of::<RawFullIndex>() == FULL_BYTES as usize);

const ADVISE_TYPE: u16 = 3;
const ADVISE_PARTIAL_REF: u16 = 1 << 15;
const NONHEAD: u16 = 2;
/// Marks the size of a pcluster in the place of a distance.
const CBLKCNT: u32 = 1 << 11;
/// Longest distance an entry can give.
pub const DELTA_MAX: u32 = CBLKCNT - 1;

/// Tells how the extent that a head begins is stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HeadKind {
    /// As it is.
    Plain,
    /// By the inode's first algorithm.
    Head1,
    /// By its second.
    Head2,
}

impl HeadKind {
    fn from_bits(bits: u16) -> Option<Self> {
        [
            Some(Self::Plain),
            Some(Self::Head1),
            None,
            Some(Self::Head2),
        ][usize::from(bits & 3)]
    }

    const fn bits(self) -> u16 {
        match self {
            Self::Plain => 0,
            Self::Head1 => 1,
            Self::Head2 => 3,
        }
    }
}

/// An index entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lcluster {
    /// An extent begins here.
    Head {
        /// Tells how it is stored.
        kind: HeadKind,
        /// At which byte of the lcluster it begins.
        clusterofs: u32,
        /// The first block of its pcluster.
        block: u32,
        /// Only a prefix of what the pcluster decodes to is used.
        partial: bool,
    },
    /// An extent goes on here.
    NonHead {
        /// Lclusters back to its head, or to another nonhead of it.
        back: u32,
        /// Lclusters ahead to the next head, or to another nonhead.
        ahead: u32,
        /// Blocks of the pcluster, behind a head of more than one.
        pcluster_blocks: Option<u32>,
    },
}

/// Returns where full indexes begin, given where the map header begins.
///
/// # Errors
///
/// [`Corrupt::AddressOverflow`].
pub fn full_table_offset(header_offset: u64) -> Result<u64, Corrupt> {
    // Eight bytes behind the header are unused.
    header_offset
        .checked_add(16)
        .ok_or(Corrupt::AddressOverflow { what: "an index" })
}

impl Lcluster {
    /// Reads a full entry; `lcn` is only reported.
    ///
    /// # Errors
    ///
    /// If a head begins outside its lcluster.
    pub fn parse_full(
        lcn: u64,
        bytes: [u8; FULL_BYTES as usize],
        lcluster_bits: u8,
    ) -> Result<Self, Corrupt> {
        let raw = RawFullIndex::read_from_bytes(&bytes).expect("8 bytes");
        let advise = raw.di_advise.get();
        let value = raw.di_u.get();
        let Some(kind) = HeadKind::from_bits(advise & ADVISE_TYPE) else {
            let (back, blocks) = split_back(value & 0xffff);
            return Ok(Self::NonHead {
                back,
                ahead: value >> 16,
                pcluster_blocks: blocks,
            });
        };
        let clusterofs = raw.di_clusterofs.get().into();
        check_clusterofs(lcn, clusterofs, lcluster_bits)?;
        let partial = advise & ADVISE_PARTIAL_REF != 0;
        Ok(Self::Head {
            kind,
            clusterofs,
            block: value,
            partial,
        })
    }

    /// The full entry for this lcluster.
    pub fn encode_full(&self) -> RawFullIndex {
        match *self {
            Self::Head {
                kind,
                clusterofs,
                block,
                partial,
            } => RawFullIndex {
                di_advise: (kind.bits() | if partial { ADVISE_PARTIAL_REF } else { 0 }).into(),
                di_clusterofs: (clusterofs as u16).into(),
                di_u: block.into(),
            },
            Self::NonHead {
                back,
                ahead,
                pcluster_blocks,
            } => RawFullIndex {
                di_advise: NONHEAD.into(),
                di_clusterofs: 0.into(),
                di_u: (join_back(back, pcluster_blocks) | ahead.min(DELTA_MAX) << 16).into(),
            },
        }
    }
}

fn split_back(value: u32) -> (u32, Option<u32>) {
    if value & CBLKCNT != 0 {
        (1, Some(value & DELTA_MAX))
    } else {
        (value, None)
    }
}

fn join_back(back: u32, pcluster_blocks: Option<u32>) -> u32 {
    pcluster_blocks.map_or(back.min(DELTA_MAX), |blocks| CBLKCNT | blocks)
}

fn check_clusterofs(lcn: u64, clusterofs: u32, lcluster_bits: u8) -> Result<(), Corrupt> {
    let lcluster_bytes = 1 << lcluster_bits;
    if clusterofs >= lcluster_bytes {
        return Err(Corrupt::ClusterOffset {
            lcn,
            clusterofs,
            lcluster_bytes,
        });
    }
    Ok(())
}

/// Describes how compact entries are packed: 4-byte packs up to a multiple of 32 bytes, 2-byte
/// packs as far as they fit, then 4-byte packs again.
///
/// | pack | entries | bytes | bits of an entry |
/// |---|---|---|---|
/// | 4B | 2 | 8 | 16 |
/// | 2B | 16 | 32 | 14 |
///
/// A pack ends with a 32-bit base block; its entries lie in front, lowest bits first. An entry is
/// its type above the low bits, which hold the offset of a head or the distance back of a nonhead;
/// the last entry of a pack gives the distance ahead instead. A head's block is the base and what
/// the pcluster sizes in front of it in the pack add up to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CompactLayout {
    base: u64,
    total: u64,
    initial_4b: u64,
    packed_2b: u64,
    lcluster_bits: u8,
    big_pcluster: bool,
}

/// The longest pack in bytes.
pub const PACK_BYTES_MAX: usize = 32;

/// A pack: where it lies, and which lclusters it holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pack {
    /// Byte at which it begins.
    pub offset: u64,
    /// Its length in bytes: 8 or 32.
    pub bytes: usize,
    /// Its first lcluster.
    pub first_lcn: u64,
    /// Its entries: 2 or 16.
    pub entries: usize,
}

impl CompactLayout {
    /// The packs of a file of `total` lclusters whose map header begins at byte `header_offset` of
    /// its metadata space.
    ///
    /// # Errors
    ///
    /// [`Corrupt::AddressOverflow`].
    pub fn new(
        header_offset: u64,
        total: u64,
        lcluster_bits: u8,
        compacted_2b: bool,
        big_pcluster: bool,
    ) -> Result<Self, Corrupt> {
        let overflow = Corrupt::AddressOverflow { what: "an index" };
        let base = header_offset
            .checked_add(crate::zmap::HEADER_BYTES as u64)
            .ok_or(overflow.clone())?;
        let initial_4b = ((32 - base % 32) / 4) & 7;
        let packed_2b = match compacted_2b && initial_4b < total {
            true => (total - initial_4b) & !15,
            false => 0,
        };
        let layout = Self {
            base,
            total,
            initial_4b,
            packed_2b,
            lcluster_bits,
            big_pcluster,
        };
        total
            .checked_mul(4)
            .and_then(|len| base.checked_add(len + 8))
            .ok_or(overflow)?;
        Ok(layout)
    }

    /// Bytes from the end of the map header to the end of the last pack.
    pub fn index_bytes(&self) -> u64 {
        let final_4b = self.total.saturating_sub(self.initial_4b + self.packed_2b);
        let initial = self.initial_4b.min(self.total);
        // Packs of two; where the total is odd, the last one is half empty.
        (initial.next_multiple_of(2) + final_4b.next_multiple_of(2)) * 4 + self.packed_2b * 2
    }

    /// The pack that holds an lcluster.
    pub fn pack_of(&self, lcn: u64) -> Pack {
        let start_2b = self.base + self.initial_4b * 4;
        let pack = |start: u64, first: u64, entries: u64, entry_bytes: u64| {
            let skip = (lcn - first) / entries * entries;
            Pack {
                offset: start + skip * entry_bytes,
                bytes: (entries * entry_bytes) as usize,
                first_lcn: first + skip,
                entries: entries as usize,
            }
        };
        if lcn < self.initial_4b {
            pack(self.base, 0, 2, 4)
        } else if lcn < self.initial_4b + self.packed_2b {
            pack(start_2b, self.initial_4b, 16, 2)
        } else {
            pack(
                start_2b + self.packed_2b * 2,
                self.initial_4b + self.packed_2b,
                2,
                4,
            )
        }
    }

    /// Reads the entry of an lcluster from its pack.
    ///
    /// # Errors
    ///
    /// If a head begins outside its lcluster, or the size of a pcluster is missing or stray.
    ///
    /// # Panics
    ///
    /// If `bytes` are fewer than the pack has, or the lcluster is not in it.
    pub fn parse(&self, lcn: u64, pack: &Pack, bytes: &[u8]) -> Result<Lcluster, Corrupt> {
        let index = (lcn - pack.first_lcn) as usize;
        let (low, kind) = self.field(pack, bytes, index);
        match kind {
            None => self.parse_nonhead(lcn, pack, bytes, index, low),
            Some(kind) => {
                check_clusterofs(lcn, low, self.lcluster_bits)?;
                let base = u32::from_le_bytes(
                    bytes[pack.bytes - 4..pack.bytes]
                        .try_into()
                        .expect("4 bytes"),
                );
                let skipped = self.blocks_before(lcn, pack, bytes, index)?;
                let block = base.wrapping_add(skipped);
                Ok(Lcluster::Head {
                    kind,
                    clusterofs: low,
                    block,
                    partial: false,
                })
            }
        }
    }

    fn parse_nonhead(
        &self,
        lcn: u64,
        pack: &Pack,
        bytes: &[u8],
        index: usize,
        low: u32,
    ) -> Result<Lcluster, Corrupt> {
        let last = pack.entries - 1;
        let (mut back, pcluster_blocks) = split_back(low);
        if pcluster_blocks.is_some() && !self.big_pcluster {
            return Err(Corrupt::PclusterBlocksStray { lcn });
        }
        if index == last && pcluster_blocks.is_none() {
            back = match self.field(pack, bytes, index - 1) {
                (_, Some(_)) => 1,
                (low, None) => split_back(low).0 + 1,
            };
        }
        // The next head of this pack, or what the last entry says of the next one.
        let head = (index + 1..pack.entries).find(|&i| self.field(pack, bytes, i).1.is_some());
        let ahead = match head {
            Some(head) => (head - index) as u32,
            None => {
                let (low, _) = self.field(pack, bytes, last);
                let (beyond, is_size) = split_back(low);
                (last - index) as u32 + if is_size.is_some() { 1 } else { beyond }
            }
        };
        Ok(Lcluster::NonHead {
            back,
            ahead,
            pcluster_blocks,
        })
    }

    /// Returns what stands between the base of a pack and the block of the head at `index`.
    fn blocks_before(
        &self,
        lcn: u64,
        pack: &Pack,
        bytes: &[u8],
        index: usize,
    ) -> Result<u32, Corrupt> {
        let fields = (0..index).map(|i| self.field(pack, bytes, i));
        if !self.big_pcluster {
            return Ok(1 + fields.filter(|(_, kind)| kind.is_some()).count() as u32);
        }
        let mut sum = 0u32;
        for (i, (low, kind)) in fields.enumerate() {
            let next = self.field(pack, bytes, i + 1);
            sum = sum.wrapping_add(match kind {
                None => split_back(low).1.unwrap_or(0),
                Some(_) if next.1.is_some() => 1,
                Some(_) if split_back(next.0).1.is_some() => 0,
                Some(_) => {
                    return Err(Corrupt::PclusterBlocksMissing {
                        lcn: lcn - (index - i) as u64,
                    });
                }
            });
        }
        Ok(sum)
    }

    fn field(&self, pack: &Pack, bytes: &[u8], index: usize) -> (u32, Option<HeadKind>) {
        let low_bits = self.low_bits();
        let bit = index * Self::entry_bits(pack);
        let mut window = [0; 4];
        let start = bit / 8;
        let end = (start + 4).min(pack.bytes);
        window[..end - start].copy_from_slice(&bytes[start..end]);
        let value = u32::from_le_bytes(window) >> (bit % 8);
        (
            value & ((1 << low_bits) - 1),
            HeadKind::from_bits((value >> low_bits) as u16),
        )
    }

    /// Packs the entries of a whole file. The block of the first head decides; the others must
    /// follow it without gap.
    pub fn encode(&self, entries: &[Lcluster]) -> Vec<u8> {
        debug_assert_eq!(entries.len() as u64, self.total);
        let mut out = Vec::with_capacity(self.index_bytes() as usize);
        let mut lcn = 0;
        while lcn < self.total {
            let pack = self.pack_of(lcn);
            let end = (lcn + pack.entries as u64).min(self.total);
            self.encode_pack(&pack, &entries[lcn as usize..end as usize], &mut out);
            lcn = end;
        }
        out
    }

    fn encode_pack(&self, pack: &Pack, entries: &[Lcluster], out: &mut Vec<u8>) {
        let start = out.len();
        out.resize(start + pack.bytes, 0);
        let bytes = &mut out[start..];
        let low_bits = self.low_bits();
        for (index, entry) in entries.iter().enumerate() {
            let is_last = index + 1 == pack.entries;
            let (low, kind) = match *entry {
                Lcluster::Head {
                    kind, clusterofs, ..
                } => (clusterofs, kind.bits()),
                Lcluster::NonHead {
                    ahead,
                    pcluster_blocks: None,
                    ..
                } if is_last => (ahead.min(DELTA_MAX), NONHEAD),
                Lcluster::NonHead {
                    back,
                    pcluster_blocks,
                    ..
                } => (join_back(back, pcluster_blocks), NONHEAD),
            };
            let bit = index * Self::entry_bits(pack);
            let value = (low | u32::from(kind) << low_bits) << (bit % 8);
            for (byte, value) in bytes[bit / 8..].iter_mut().zip(value.to_le_bytes()) {
                *byte |= value;
            }
        }
        let first_head = entries
            .iter()
            .enumerate()
            .find_map(|(index, entry)| match entry {
                Lcluster::Head { block, .. } => Some((index, *block)),
                Lcluster::NonHead { .. } => None,
            });
        if let Some((index, block)) = first_head {
            let before: u32 = if self.big_pcluster {
                entries[..index].iter().map(recorded_blocks).sum()
            } else {
                1
            };
            let base = block.wrapping_sub(before);
            bytes[pack.bytes - 4..].copy_from_slice(&base.to_le_bytes());
        }
    }

    fn low_bits(&self) -> u32 {
        u32::from(self.lcluster_bits).max(12)
    }

    const fn entry_bits(pack: &Pack) -> usize {
        (pack.bytes - 4) * 8 / pack.entries
    }
}

fn recorded_blocks(entry: &Lcluster) -> u32 {
    match entry {
        Lcluster::NonHead {
            pcluster_blocks: Some(blocks),
            ..
        } => *blocks,
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The index of extents with these lengths in lclusters and blocks, one after the other.
    fn index(extents: &[(u32, u32)], big: bool) -> Vec<Lcluster> {
        let mut block = 7;
        let mut entries = Vec::new();
        for (n, &(lclusters, blocks)) in extents.iter().enumerate() {
            let clusterofs = n as u32 * 5 % 4096;
            let kind = if n % 3 == 0 {
                HeadKind::Plain
            } else {
                HeadKind::Head1
            };
            entries.push(Lcluster::Head {
                kind,
                clusterofs,
                block,
                partial: false,
            });
            for i in 1..lclusters {
                let pcluster_blocks = (i == 1 && big).then_some(blocks);
                entries.push(Lcluster::NonHead {
                    back: i,
                    ahead: lclusters - i,
                    pcluster_blocks,
                });
            }
            block += blocks;
        }
        entries
    }

    fn survives(header_offset: u64, entries: &[Lcluster], two: bool, big: bool) {
        let total = entries.len() as u64;
        let layout = CompactLayout::new(header_offset, total, 12, two, big).unwrap();
        let bytes = layout.encode(entries);
        assert_eq!(bytes.len() as u64, layout.index_bytes());
        for (lcn, expected) in (0..).zip(entries) {
            let pack = layout.pack_of(lcn);
            let start = (pack.offset - header_offset - 8) as usize;
            let found = layout
                .parse(lcn, &pack, &bytes[start..start + pack.bytes])
                .unwrap();
            let same = match (found, *expected) {
                // A distance may stop short at another nonhead, and never leads beyond the extent.
                (
                    Lcluster::NonHead {
                        back,
                        ahead,
                        pcluster_blocks: found,
                    },
                    Lcluster::NonHead {
                        back: b,
                        ahead: a,
                        pcluster_blocks: expected,
                    },
                ) => {
                    (b.min(DELTA_MAX)..=b).contains(&back)
                        && (1..=a).contains(&ahead)
                        && found == expected
                }
                (found, expected) => found == expected,
            };
            assert!(
                same,
                "lcn {lcn} at {header_offset}: {found:?} instead of {expected:?}"
            );
        }
    }

    #[test]
    fn compact_indexes_survive() {
        let small: Vec<(u32, u32)> = (0..200).map(|i| (1 + i * 7 % 5, 1)).collect();
        let large: Vec<(u32, u32)> = (0..60u32)
            .map(|i| {
                let lclusters = 1 + i * 13 % 40;
                (lclusters, if lclusters == 1 { 1 } else { 1 + i % 16 })
            })
            .collect();
        for header_offset in (0..64).step_by(8) {
            for two in [false, true] {
                survives(header_offset, &index(&small, false), two, false);
                survives(header_offset, &index(&large, true), two, true);
                for total in 1..40 {
                    survives(
                        header_offset,
                        &index(&vec![(1, 1); total], false),
                        two,
                        false,
                    );
                }
            }
        }
    }

    #[test]
    fn very_long_extents_survive() {
        survives(0, &index(&[(5000, 1), (3, 1)], false), true, false);
        survives(0, &index(&[(3072, 16), (1, 1), (2, 2)], true), true, true);
    }

    #[test]
    fn full_indexes_survive() {
        for (lcn, entry) in (0..).zip(index(&[(3, 2), (1, 1), (2000, 16)], true)) {
            let raw = entry.encode_full();
            let found = Lcluster::parse_full(lcn, raw.as_bytes().try_into().unwrap(), 12).unwrap();
            assert_eq!(found, entry);
        }
    }

    #[test]
    fn refuses_a_head_outside_its_lcluster() {
        let mut raw = RawFullIndex {
            di_advise: 1.into(),
            di_clusterofs: 4095.into(),
            di_u: 9.into(),
        };
        assert!(Lcluster::parse_full(0, raw.as_bytes().try_into().unwrap(), 12).is_ok());
        raw.di_clusterofs = 33024.into();
        let error = Lcluster::parse_full(4, raw.as_bytes().try_into().unwrap(), 12).unwrap_err();
        assert_eq!(
            error,
            Corrupt::ClusterOffset {
                lcn: 4,
                clusterofs: 33024,
                lcluster_bytes: 4096
            }
        );
    }

    #[test]
    fn refuses_a_pcluster_size_without_big_pclusters() {
        let entries = index(&[(4, 2), (1, 1)], true);
        let bytes = CompactLayout::new(0, 5, 12, false, true)
            .unwrap()
            .encode(&entries);
        let layout = CompactLayout::new(0, 5, 12, false, false).unwrap();
        let pack = layout.pack_of(1);
        let error = layout.parse(1, &pack, &bytes[..8]).unwrap_err();
        assert_eq!(error, Corrupt::PclusterBlocksStray { lcn: 1 });
    }
}
