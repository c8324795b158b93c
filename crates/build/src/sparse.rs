//! Files in chunks: which chunks hold data, and how large chunks had best be.

use anteros_format::chunk::ChunkFormat;

/// With compression, a file keeps its holes if at most one byte in so many is data.
const DATA_SHARE: u64 = 8;

/// Tells how much of a file its file system has allocated.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Allocation {
    /// No less than its size.
    #[default]
    Whole,
    /// Less: there are holes.
    Holes,
    /// So little that holes are worth more than compression.
    MostlyHoles,
}

impl Allocation {
    pub const fn of(size: u64, allocated: u64) -> Self {
        match allocated {
            _ if allocated >= size => Self::Whole,
            _ if allocated <= size / DATA_SHARE => Self::MostlyHoles,
            _ => Self::Holes,
        }
    }
}

/// Chunks can have two to this blocks.
const CHUNK_SHIFT_MAX: u32 = 31;

/// Chunks that lie behind each other in the image already.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct KeptChunks {
    /// The first byte of the file, and the end.
    pub start: u64,
    pub end: u64,
    /// The first block, or [`HOLE`] for zeros that are not stored.
    pub block: u32,
}

/// Stands for the block of chunks that are not stored.
pub(crate) const HOLE: u32 = u32::MAX;

/// A file in chunks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ChunkedFile {
    pub chunk_bits: u32,
    /// Runs of chunks that hold data, ascending and apart, as bytes of the file from and to. They
    /// begin at chunks, and end there or with the file.
    pub runs: Vec<(u64, u64)>,
    /// Runs of chunks that hold data of the image that is patched, apart from those.
    pub kept: Vec<KeptChunks>,
    /// Entries are indexes of 8 bytes instead of block numbers.
    pub indexes: bool,
}

impl ChunkedFile {
    /// A file without holes.
    pub fn whole(size: u64, chunk_bytes: u64, block_bits: u8) -> Self {
        let chunk_bits = chunk_bytes.ilog2().max(block_bits.into());
        Self {
            chunk_bits,
            runs: vec![(0, size)],
            kept: Vec::new(),
            indexes: false,
        }
    }

    /// A file that is one hole, in as few chunks as can be.
    pub fn hole(size: u64, block_bits: u8) -> Self {
        let block_bits = u32::from(block_bits);
        let wanted = size.next_power_of_two().trailing_zeros();
        Self {
            chunk_bits: wanted.clamp(block_bits, block_bits + CHUNK_SHIFT_MAX),
            runs: Vec::new(),
            kept: Vec::new(),
            indexes: false,
        }
    }

    /// A file with data in these ranges alone, in chunks of the given size or else of the one with
    /// which table and data take the fewest bytes. `None` if no hole is as large as a chunk then.
    pub fn sparse(
        size: u64,
        ranges: &[(u64, u64)],
        chunk_bytes: Option<u64>,
        block_bits: u8,
    ) -> Option<Self> {
        let at = |chunk_bits| Self {
            chunk_bits,
            runs: runs(size, ranges, chunk_bits),
            kept: Vec::new(),
            indexes: false,
        };
        let file = match chunk_bytes {
            Some(bytes) => at(bytes.ilog2()),
            None => {
                let block_bits = u32::from(block_bits);
                let sizes = block_bits..=(block_bits + CHUNK_SHIFT_MAX).min(size.ilog2() + 1);
                sizes.map(at).min_by_key(|file| file.stored_bytes(size))?
            }
        };
        (file.runs != [(0, size)]).then_some(file)
    }

    /// A file of which some blocks, ascending, are in the image already, in chunks of the size with which table and new data
    /// take the fewest bytes. Holes of this one stay.
    pub fn patched(&self, size: u64, kept: &[KeptChunks], block_bits: u8) -> Self {
        let sizes = block_bits.into()..=size.ilog2().max(block_bits.into());
        let with = |chunk_bits| self.with_chunks(size, kept, chunk_bits, block_bits);
        let best = sizes
            .map(with)
            .min_by_key(|file: &Self| file.stored_bytes(size));
        best.unwrap_or_else(|| self.clone())
    }

    /// The file in chunks of a size: each is one that is there, a hole, or new.
    fn with_chunks(&self, size: u64, kept: &[KeptChunks], chunk_bits: u32, block_bits: u8) -> Self {
        let mut file = Self {
            chunk_bits,
            runs: Vec::new(),
            kept: Vec::new(),
            indexes: self.indexes,
        };
        let (mut data, mut known) = (self.runs.iter().peekable(), kept.iter().peekable());
        for start in (0..size).step_by(1 << chunk_bits) {
            let end = size.min(start + (1 << chunk_bits));
            while data.next_if(|(_, data_end)| *data_end <= start).is_some() {}
            while known.next_if(|known| known.end <= start).is_some() {}
            if data.peek().is_none_or(|(data_start, _)| *data_start >= end) {
                continue;
            }
            match known.peek() {
                Some(known) if known.start <= start && known.end >= end => {
                    let block = match known.block {
                        HOLE => HOLE,
                        block => block + ((start - known.start) >> block_bits) as u32,
                    };
                    file.keep(KeptChunks { start, end, block }, block_bits);
                }
                _ => match file.runs.last_mut() {
                    Some(last) if last.1 == start => last.1 = end,
                    _ => file.runs.push((start, end)),
                },
            }
        }
        file
    }

    /// Appends chunks that are there.
    fn keep(&mut self, chunks: KeptChunks, block_bits: u8) {
        if chunks.block == HOLE {
            return;
        }
        match self.kept.last_mut() {
            Some(last)
                if last.end == chunks.start
                    && last.block + ((last.end - last.start) >> block_bits) as u32
                        == chunks.block =>
            {
                last.end = chunks.end;
            }
            _ => self.kept.push(chunks),
        }
    }

    /// Has what is in the image already lie so many blocks further on.
    pub fn move_kept(&mut self, blocks: u32) {
        let kept = self.kept.iter_mut().filter(|kept| kept.block != HOLE);
        kept.for_each(|kept| kept.block += blocks);
    }

    /// Entries of the table.
    pub const fn chunks(&self, size: u64) -> u64 {
        size.div_ceil(1 << self.chunk_bits)
    }

    /// The low 16 bits of `i_u`.
    pub fn format(&self, block_bits: u8) -> u16 {
        self.chunk_format().encode(block_bits)
    }

    /// Bytes of the table.
    pub fn table_bytes(&self, size: u64) -> u64 {
        self.chunks(size) * self.chunk_format().entry_bytes()
    }

    /// Bytes from the end of inode and xattrs, which take `head_bytes`, to the end of the table.
    pub fn bytes_behind(&self, head_bytes: u64, size: u64) -> u64 {
        let start = head_bytes.next_multiple_of(self.chunk_format().entry_bytes());
        start - head_bytes + self.table_bytes(size)
    }

    /// Appends the table; the runs lie behind each other from `first_block` on.
    pub fn encode(&self, size: u64, first_block: u32, block_bits: u8, out: &mut Vec<u8>) {
        let indexes = self.indexes;
        out.resize(
            out.len()
                .next_multiple_of(self.chunk_format().entry_bytes() as usize),
            0,
        );
        let mut push = |block: u32| {
            if indexes {
                // No high bits, and the primary device.
                out.extend_from_slice(&[0; 4]);
            }
            out.extend_from_slice(&block.to_le_bytes());
        };
        let mut chunk = 0;
        for KeptChunks { start, end, block } in self.all(first_block, block_bits) {
            (chunk..start >> self.chunk_bits).for_each(|_| push(HOLE));
            let after = end.div_ceil(1 << self.chunk_bits);
            for n in 0..after - (start >> self.chunk_bits) {
                push(block + (n << (self.chunk_bits - u32::from(block_bits))) as u32);
            }
            chunk = after;
        }
        (chunk..self.chunks(size)).for_each(|_| push(HOLE));
    }

    /// All runs of chunks with data; the new ones lie behind each other from a block on.
    fn all(&self, first_block: u32, block_bits: u8) -> Vec<KeptChunks> {
        let mut block = first_block;
        let new = self.runs.iter().map(|&(start, end)| {
            let run = KeptChunks { start, end, block };
            block += (end - start).div_ceil(1 << block_bits) as u32;
            run
        });
        let mut all: Vec<KeptChunks> = new.chain(self.kept.iter().copied()).collect();
        all.sort_unstable_by_key(|run| run.start);
        all
    }

    const fn chunk_format(&self) -> ChunkFormat {
        ChunkFormat {
            chunk_bits: self.chunk_bits,
            indexes: self.indexes,
            wide: false,
        }
    }

    /// Bytes of new data and of the table.
    pub fn stored_bytes(&self, size: u64) -> u64 {
        let data: u64 = self.runs.iter().map(|(start, end)| end - start).sum();
        data.saturating_add(self.table_bytes(size))
    }
}

/// The ranges, each extended to whole chunks, and joined where they meet.
fn runs(size: u64, ranges: &[(u64, u64)], chunk_bits: u32) -> Vec<(u64, u64)> {
    let mut runs: Vec<(u64, u64)> = Vec::new();
    for &(start, end) in ranges {
        let start = start >> chunk_bits << chunk_bits;
        let end = end.next_multiple_of(1 << chunk_bits).min(size);
        match runs.last_mut() {
            Some(last) if start <= last.1 => last.1 = end,
            _ => runs.push((start, end)),
        }
    }
    runs
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(file: &ChunkedFile, size: u64) -> Vec<u32> {
        let mut bytes = Vec::new();
        file.encode(size, 100, 12, &mut bytes);
        assert_eq!(bytes.len() as u64, file.table_bytes(size));
        bytes
            .chunks(4)
            .map(|b| u32::from_le_bytes(b.try_into().unwrap()))
            .collect()
    }

    #[test]
    fn chunks_are_as_large_as_is_cheapest() {
        let size = 10 << 30;
        let far = ChunkedFile::sparse(size, &[(5 << 30, (5 << 30) + 1000)], None, 12).unwrap();
        // 160 K of table and 256 K of data; half the size takes 320 K and 128 K, double 80 K and 512 K.
        assert_eq!(far.chunk_bits, 18);
        let near = ChunkedFile::sparse(1 << 20, &[(0, 4096)], None, 12).unwrap();
        assert_eq!(near.chunk_bits, 12);
    }

    #[test]
    fn the_table_leads_to_the_data() {
        let size = 10 * 4096 + 5;
        let ranges = [
            (4096, 3 * 4096),
            (3 * 4096 + 1, 3 * 4096 + 2),
            (10 * 4096, size),
        ];
        let file = ChunkedFile::sparse(size, &ranges, Some(4096), 12).unwrap();
        assert_eq!(file.runs, [(4096, 4 * 4096), (10 * 4096, size)]);
        let hole = u32::MAX;
        assert_eq!(
            table(&file, size),
            [hole, 100, 101, 102, hole, hole, hole, hole, hole, hole, 103]
        );
        let mut indexed = file.clone();
        indexed.indexes = true;
        let mut bytes = vec![0; 36];
        indexed.encode(size, 100, 12, &mut bytes);
        assert_eq!(bytes.len() as u64, 36 + indexed.bytes_behind(36, size));
        assert_eq!(&bytes[40..48], &[0, 0, 0, 0, 255, 255, 255, 255]);
        assert_eq!(&bytes[48..56], &[0, 0, 0, 0, 100, 0, 0, 0]);
        let wide = ChunkedFile::sparse(size, &ranges, Some(16384), 12).unwrap();
        assert_eq!(table(&wide, size), [100, hole, 104]);
        assert_eq!(ChunkedFile::sparse(size, &ranges, Some(65536), 12), None);
    }
}
