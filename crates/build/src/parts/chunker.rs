//! Content-defined chunks: where one ends depends on some bytes in front of its end alone, so equal parts of files are cut
//! alike wherever they lie.

use std::ops::Range;

use xxhash_rust::xxh3::xxh3_64_with_seed;

/// Chunks are no shorter than this part of their average, and no longer than so many times.
const SHORTEST_PART: usize = 4;
const LONGEST_TIMES: usize = 8;

/// Bytes that have a say in where a chunk ends: one bit of the hash leaves it with each byte.
const REACH: usize = u64::BITS as usize;

/// Numbers that bytes stand for in the hash.
const GEAR: [u64; 256] = gear();

/// Pseudo-random numbers: SplitMix64.
const fn gear() -> [u64; 256] {
    let mut gear = [0; 256];
    let mut state = 0u64;
    let mut index = 0;
    while index < gear.len() {
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = state;
        z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        gear[index] = z ^ z >> 31;
        index += 1;
    }
    gear
}

/// A part of a file that its content delimits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Chunk {
    pub len: u32,
    /// A hash of the content; none where it did not end by its content. Such are the ends of what is cut, and whatever
    /// repeats itself: that takes little room in any case.
    pub hash: Option<u64>,
}

/// Cuts content into chunks of a certain length on average.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Chunker {
    average: usize,
}

impl Chunker {
    /// Chunks of `average` bytes, a power of two of at least 256.
    pub const fn new(average: usize) -> Self {
        Self { average }
    }

    /// The chunks of some content, side by side. With another seed none has the same hash.
    pub fn chunks(self, content: &[u8], seed: u64) -> impl Iterator<Item = Chunk> {
        let mut at = 0;
        std::iter::from_fn(move || {
            let rest = &content[at..];
            let end = self.end(rest);
            let len = end.unwrap_or(rest.len().min(self.average * LONGEST_TIMES));
            at += len;
            (len > 0).then(|| Chunk {
                len: len as u32, // a few averages at most
                hash: end.map(|end| xxh3_64_with_seed(&rest[..end], seed)),
            })
        })
    }

    /// Returns where the first chunk ends by its content.
    fn end(self, content: &[u8]) -> Option<usize> {
        let shortest = self.average / SHORTEST_PART;
        let Range { start, end } = shortest..content.len().min(self.average * LONGEST_TIMES);
        // The upper bits depend on the most bytes.
        let mask = !(u64::MAX >> self.average.ilog2());
        let before = content.get(start - REACH..start)?;
        let shift = |hash: u64, byte: &u8| (hash << 1).wrapping_add(GEAR[usize::from(*byte)]);
        let mut hash = before.iter().fold(0, shift);
        for (index, byte) in content.get(start..end)?.iter().enumerate() {
            hash = shift(hash, byte);
            if hash & mask == 0 {
                return Some(start + index + 1);
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn noise(len: usize) -> Vec<u8> {
        let mut state = 3u64;
        let mut next = || {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            (state >> 56) as u8
        };
        (0..len).map(|_| next()).collect()
    }

    #[test]
    fn chunks_are_side_by_side_and_as_long_as_they_should_be() {
        let content = noise(1 << 20);
        let chunks: Vec<_> = Chunker::new(4096).chunks(&content, 0).collect();
        let lens = chunks.iter().map(|chunk| chunk.len as usize);
        assert_eq!(lens.sum::<usize>(), content.len());
        let (last, others) = chunks.split_last().unwrap();
        assert_eq!(last.hash, None);
        assert!(
            others
                .iter()
                .all(|chunk| (1024..=32768).contains(&chunk.len))
        );
        assert!((128..512).contains(&chunks.len()), "{}", chunks.len());
    }

    #[test]
    fn what_is_inserted_changes_the_chunks_around_it_alone() {
        let content = noise(1 << 18);
        let mut longer = content.clone();
        longer.splice(100_000..100_000, *b"something else");
        let [one, other] = [&content, &longer].map(|content| {
            let chunks = Chunker::new(4096).chunks(content, 0);
            chunks.filter_map(|chunk| chunk.hash).collect::<Vec<_>>()
        });
        let equal = other.iter().filter(|hash| one.contains(hash)).count();
        assert!(
            equal + 4 > one.len() && equal < other.len(),
            "{equal} of {}",
            one.len()
        );
    }

    #[test]
    fn what_repeats_itself_has_no_hash() {
        let mut chunks = Chunker::new(4096).chunks(&[7; 100_000], 0);
        assert!(chunks.all(|chunk| chunk.hash.is_none()));
        assert_eq!(Chunker::new(4096).chunks(&[], 0).count(), 0);
    }
}
