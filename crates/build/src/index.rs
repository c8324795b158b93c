//! From extents to the index of a compressed inode, as it lies behind inode and xattrs.

use anteros_core::Algorithm;
use anteros_format::inode::DataLayout;
use anteros_format::lcluster::{CompactLayout, FULL_BYTES, HeadKind, Lcluster};
use anteros_format::zmap::{
    ADVISE_BIG_PCLUSTER_1, ADVISE_BIG_PCLUSTER_2, ADVISE_COMPACTED_2B, ADVISE_FRAGMENT_PCLUSTER,
    ADVISE_INLINE_PCLUSTER, HEADER_BYTES, RawMapHeader,
};
use zerocopy::IntoBytes;

use crate::Options;
use crate::extent::{Extent, Run, Share, Tail};
use crate::options::Setting;
use crate::records::Records;

/// Largest logical cluster, as a shift, whose entries fit into packs of 4 bytes an entry.
const COMPACT_BITS_MAX: u8 = 14;
/// And of 2 bytes an entry.
const COMPACTED_2B_BITS_MAX: u8 = 12;
/// Unused bytes between the map header and full entries.
const FULL_GAP_BYTES: usize = 8;

/// Bytes by which a full entry is longer than one in a pack.
const FULL_ENTRY_MORE: u64 = 6;

/// Bytes by which full entries of a file of so many bytes are longer than those of packs.
pub(crate) const fn more_in_full(file_bytes: u64, block_bytes: u64) -> u64 {
    file_bytes.div_ceil(block_bytes) * FULL_ENTRY_MORE
}

/// The kind of index that all compressed inodes of an image have.
#[derive(Debug, Clone, Copy)]
pub(crate) struct IndexKind {
    algorithm: Algorithm,
    /// The algorithm of quick extents, if there may be some.
    quick: Option<Algorithm>,
    block_bits: u8,
    form: Form,
    big: bool,
}

/// Entries of an index.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Form {
    /// One for each logical cluster, in packs.
    Packs,
    /// One for each logical cluster, in full.
    Full,
    /// One for each extent.
    Extents,
}

impl IndexKind {
    pub fn new(options: &Options) -> Self {
        let legacy = options.compression.is_some_and(|c| c.legacy_index);
        let form = match options.block_bits {
            _ if options.has_encoded_extents() => Form::Extents,
            ..=COMPACT_BITS_MAX if !legacy => Form::Packs,
            _ => Form::Full,
        };
        Self {
            algorithm: Algorithm::Lz4,
            quick: None,
            block_bits: options.block_bits,
            form,
            big: options.big_pclusters(),
        }
    }

    /// The index of what is compressed in a way.
    pub fn of(self, setting: Setting) -> Self {
        let (codec, quick) = setting.codecs();
        Self {
            algorithm: codec.algorithm(),
            quick: quick.map(|codec| codec.algorithm()),
            ..self
        }
    }

    /// An index in which some extents have another algorithm.
    pub const fn with_second(self, algorithm: Algorithm) -> Self {
        Self {
            quick: Some(algorithm),
            ..self
        }
    }

    /// An index that can name blocks of another file; packs cannot.
    pub const fn full(self) -> Self {
        let form = match self.form {
            Form::Packs => Form::Full,
            form => form,
        };
        Self { form, ..self }
    }

    /// Bytes by which the index of a file of so many bytes is longer if it has to be in full.
    pub const fn more_in_full(self, file_bytes: u64) -> u64 {
        match self.form {
            Form::Packs => more_in_full(file_bytes, 1 << self.block_bits),
            Form::Full | Form::Extents => 0,
        }
    }

    /// As the usual index with packs, if it is one, and all extents that begin in the same pack lie behind each other: a pack
    /// has one address.
    pub fn in_packs(
        self,
        usual: Self,
        head_bytes: u64,
        runs: &[Run<'_>],
        tail: Tail,
        size: u64,
    ) -> Self {
        let packs = Self {
            form: usual.form,
            ..self
        };
        match usual.form == Form::Packs && packs.has_room(head_bytes, runs, tail, size) {
            true => packs,
            false => self,
        }
    }

    /// Returns whether packs say of all extents where they lie.
    fn has_room(self, head_bytes: u64, runs: &[Run<'_>], tail: Tail, size: u64) -> bool {
        let entries = self.entries(runs, tail, size);
        let header = head_bytes.next_multiple_of(8);
        let layout = self.packs(header, entries.len() as u64);
        let bytes = layout.encode(&entries);
        (0..).zip(&entries).all(|(lcn, entry)| {
            let pack = layout.pack_of(lcn);
            let start = (pack.offset - header) as usize - HEADER_BYTES;
            let found = || layout.parse(lcn, &pack, &bytes[start..start + pack.bytes]);
            !matches!(entry, Lcluster::Head { .. }) || found().as_ref() == Ok(entry)
        })
    }

    /// The index of a file with this tail: where that lies far behind in the packed inode, only full entries have room to
    /// say so.
    pub const fn with(self, tail: Tail) -> Self {
        match tail {
            Tail::Fragment(offset) if offset > u32::MAX as u64 => self.full(),
            _ => self,
        }
    }

    /// The data layout of inodes with this index.
    pub const fn layout(self) -> DataLayout {
        match self.form {
            Form::Packs => DataLayout::CompressedCompact,
            Form::Full | Form::Extents => DataLayout::CompressedFull,
        }
    }

    /// Bytes of the index of a file of `size` bytes whose inode and xattrs take `head_bytes`, from
    /// there to its end. Inodes begin at multiples of 32, to which packs and records are aligned.
    pub fn bytes(self, head_bytes: u64, runs: &[Run<'_>], tail: Tail, size: u64) -> u64 {
        let header = head_bytes.next_multiple_of(8);
        let total = size.div_ceil(1 << self.block_bits);
        let from_header = match self.form {
            Form::Packs => HEADER_BYTES as u64 + self.packs(header, total).index_bytes(),
            Form::Full => (HEADER_BYTES + FULL_GAP_BYTES) as u64 + total * FULL_BYTES,
            Form::Extents => Records::new(runs, tail, size, self.block_bits).bytes(header),
        };
        header - head_bytes + from_header
    }

    /// Appends the index to `out`, which ends with inode and xattrs and begins at a multiple of 32.
    /// A packed index has the blocks of all extents in a row, but where a run begins with a pack.
    pub fn encode(self, runs: &[Run<'_>], tail: Tail, size: u64, out: &mut Vec<u8>) {
        let header = out.len().next_multiple_of(8);
        out.resize(header, 0);
        if self.form == Form::Extents {
            let records = Records::new(runs, tail, size, self.block_bits);
            return records.encode(runs, tail, (self.algorithm, self.quick), out);
        }
        out.extend_from_slice(self.header(tail).as_bytes());
        let entries = self.entries(runs, tail, size);
        if self.form == Form::Packs {
            let packs = self.packs(header as u64, entries.len() as u64);
            out.extend_from_slice(&packs.encode(&entries));
        } else {
            out.resize(out.len() + FULL_GAP_BYTES, 0);
            for entry in entries {
                out.extend_from_slice(entry.encode_full().as_bytes());
            }
        }
    }

    fn header(self, tail: Tail) -> RawMapHeader {
        let big = match self.big {
            true => ADVISE_BIG_PCLUSTER_1 | ADVISE_BIG_PCLUSTER_2,
            false => 0,
        };
        let two = if self.has_2b_packs() {
            ADVISE_COMPACTED_2B
        } else {
            0
        };
        let (where_tail, low) = match tail {
            Tail::Blocks => (0, 0),
            Tail::Inline(bytes) => (ADVISE_INLINE_PCLUSTER, u32::from(bytes) << 16),
            Tail::Fragment(offset) => (ADVISE_FRAGMENT_PCLUSTER, offset as u32),
        };
        RawMapHeader {
            h_fragmentoff: low.into(),
            h_advise: (big | two | where_tail).into(),
            h_algorithmtype: self.algorithm as u8
                | self.quick.map_or(0, |quick| (quick as u8) << 4),
            h_clusterbits: 0,
        }
    }

    const fn has_2b_packs(self) -> bool {
        matches!(self.form, Form::Packs) && self.block_bits <= COMPACTED_2B_BITS_MAX
    }

    fn packs(self, header: u64, total: u64) -> CompactLayout {
        CompactLayout::new(
            header,
            total,
            self.block_bits,
            self.has_2b_packs(),
            self.big,
        )
        .expect("offsets within an inode do not overflow")
    }

    fn entries(self, runs: &[Run<'_>], tail: Tail, size: u64) -> Vec<Lcluster> {
        let total = size.div_ceil(1 << self.block_bits) as usize;
        let mut entries = Vec::with_capacity(total);
        let (mut start, mut block) = (0u64, 0);
        let firsts = runs.iter().flat_map(|(at, extents)| {
            let first = (at >> self.block_bits) as u32; // whoever made room for it has checked that
            let first = std::iter::once(Some(first)).chain(std::iter::repeat(None));
            extents.iter().zip(first)
        });
        for (extent, first) in firsts {
            block = first.unwrap_or(block);
            if let (Tail::Fragment(offset), Form::Full, 0) = (tail, self.form, extent.stored) {
                block = (offset >> 32) as u32;
            }
            let end = start + u64::from(extent.len);
            debug_assert_eq!(entries.len() as u64, start >> self.block_bits);
            let partial = extent.share == Share::Front;
            let kind = match extent {
                Extent { plain: true, .. } => HeadKind::Plain,
                Extent { quick: true, .. } => HeadKind::Head2,
                _ => HeadKind::Head1,
            };
            entries.push(self.head(start, block, kind, partial));
            // Readers of packed entries add up blocks, also those of a tail that has none.
            let blocks = (extent.stored >> self.block_bits).max(1);
            self.push_nonheads(&mut entries, end, blocks);
            block += blocks;
            start = end;
        }
        if entries.len() < total {
            // An empty extent at the end of the file, where it ends inside an lcluster.
            let block = if self.form == Form::Packs { block } else { 0 };
            entries.push(self.head(size, block, HeadKind::Plain, false));
        }
        assert_eq!(entries.len(), total, "each lcluster has one entry");
        entries
    }

    fn head(self, at: u64, block: u32, kind: HeadKind, partial: bool) -> Lcluster {
        Lcluster::Head {
            kind,
            clusterofs: (at & ((1 << self.block_bits) - 1)) as u32,
            block,
            partial,
        }
    }

    /// The lclusters that lie wholly inside an extent whose head was pushed last.
    fn push_nonheads(self, entries: &mut Vec<Lcluster>, end: u64, blocks: u32) {
        let next = (end >> self.block_bits) as usize;
        let head = entries.len() - 1;
        for lcn in head + 1..next {
            let is_first = lcn == head + 1;
            entries.push(Lcluster::NonHead {
                back: (lcn - head) as u32,
                ahead: (next - lcn) as u32,
                pcluster_blocks: (is_first && self.big).then_some(blocks),
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kind(compact: bool, big: bool) -> IndexKind {
        IndexKind {
            algorithm: Algorithm::Lz4,
            quick: None,
            block_bits: 12,
            form: if compact { Form::Packs } else { Form::Full },
            big,
        }
    }

    fn extent(len: u32, blocks: u32, plain: bool) -> Extent {
        let share = Share::None;
        Extent {
            len,
            stored: blocks << 12,
            plain,
            quick: false,
            share,
        }
    }

    #[test]
    fn the_bytes_are_as_many_as_foretold() {
        for compact in [true, false] {
            for size in [4097, 8192, 100_000, 1 << 20] {
                for head in [32, 64, 48, 68] {
                    let kind = kind(compact, false);
                    let mut out = vec![0; head];
                    let runs: [Run<'_>; 1] = [(9 << 12, &[extent(size, 1, false)])];
                    kind.encode(&runs, Tail::Blocks, size.into(), &mut out);
                    let index = kind.bytes(head as u64, &runs, Tail::Blocks, size.into());
                    let foretold = head as u64 + index;
                    assert_eq!(out.len() as u64, foretold);
                }
            }
        }
    }

    #[test]
    fn the_end_has_an_entry_unless_an_extent_begins_there() {
        let extents = [extent(9000, 1, false)];
        let plain = |clusterofs, block| Lcluster::Head {
            kind: HeadKind::Plain,
            clusterofs,
            block,
            partial: false,
        };
        let compact = kind(true, false).entries(&[(7 << 12, &extents)], Tail::Blocks, 9000);
        assert_eq!((compact.len(), compact[2]), (3, plain(808, 8)));
        let full = kind(false, false).entries(&[(7 << 12, &extents)], Tail::Blocks, 9000);
        assert_eq!((full.len(), full[2]), (3, plain(808, 0)));

        let extents = [extent(9000, 1, false), extent(100, 1, true)];
        let entries = kind(true, false).entries(&[(7 << 12, &extents)], Tail::Blocks, 9100);
        assert_eq!((entries.len(), entries[2]), (3, plain(808, 8)));

        let entries =
            kind(true, false).entries(&[(7 << 12, &[extent(8192, 1, false)])], Tail::Blocks, 8192);
        assert_eq!(entries.len(), 2);
    }

    #[test]
    fn big_pclusters_say_how_big() {
        let entries = kind(true, true).entries(
            &[(7 << 12, &[extent(20_000, 3, false)])],
            Tail::Blocks,
            20_000,
        );
        let nonhead = |back, ahead, pcluster_blocks| Lcluster::NonHead {
            back,
            ahead,
            pcluster_blocks,
        };
        assert_eq!(entries[1], nonhead(1, 3, Some(3)));
        assert_eq!(entries[2], nonhead(2, 2, None));
    }

    /// Tests that packs are used where each has extents of one run, and full entries where one has those of two.
    #[test]
    fn packs_have_runs_that_begin_in_packs_of_their_own() {
        let long = [extent(200_000, 16, false), extent(180_000, 16, false)];
        let short = [extent(5000, 1, false), extent(5000, 1, false)];
        let front = [Extent {
            share: Share::Front,
            ..long[0]
        }];
        let chosen = |runs: &[Run<'_>]| {
            let lens = runs.iter().flat_map(|(_, extents)| *extents);
            let size = lens.map(|extent| u64::from(extent.len)).sum();
            let full = kind(false, true);
            full.in_packs(kind(true, true), 32, runs, Tail::Blocks, size)
                .form
        };
        assert_eq!(chosen(&[(90 << 12, &long), (7 << 12, &long)]), Form::Packs);
        assert_eq!(chosen(&[(90 << 12, &long), (7 << 12, &short)]), Form::Packs);
        let apart: [Run<'_>; 2] = [(90 << 12, &short[..1]), (7 << 12, &short)];
        assert_eq!(chosen(&apart), Form::Full);
        assert_eq!(chosen(&[(90 << 12, &long), (7 << 12, &front)]), Form::Full);
        let other = kind(false, true).in_packs(kind(false, true), 32, &apart, Tail::Blocks, 15_000);
        assert_eq!(other.form, Form::Full);
    }

    #[test]
    fn a_fragment_is_found_however_far_behind() {
        let far = Tail::Fragment(5 << 32 | 77);
        let full = kind(true, false).with(far);
        assert_eq!(full.layout(), DataLayout::CompressedFull);
        let near = Tail::Fragment(u32::MAX.into());
        assert_eq!(
            kind(true, false).with(near).layout(),
            DataLayout::CompressedCompact
        );
        let extents = [extent(9000, 1, false), extent(500, 0, false)];
        let entries = full.entries(&[(7 << 12, &extents)], far, 9500);
        assert!(matches!(
            entries[2],
            Lcluster::Head {
                clusterofs: 808,
                block: 5,
                ..
            }
        ));
        let header = full.header(far);
        assert_eq!(header.h_fragmentoff.get(), 77);
        assert_eq!(header.h_advise.get(), ADVISE_FRAGMENT_PCLUSTER);
    }
}
