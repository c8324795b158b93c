//! Borders of blocks between the sequences of Zstandard.
//!
//! A block has codes of its own. So a border pays where the two sides differ so much that codes for
//! each of them save more than their description takes. libzstd cuts its input by a look at its
//! bytes before it searches. Behind the search there are the literals and the sequences themselves, so
//! their entropy says what a border saves.

use std::ops::Range;

use zstd_safe::zstd_sys::ZSTD_Sequence;

/// Symbols of one kind: bytes, or codes of numbers.
const LITERALS: Range<usize> = 0..256;
const OFFSETS: Range<usize> = 256..288;
const LITERAL_LENGTHS: Range<usize> = 288..320;
const MATCH_LENGTHS: Range<usize> = 320..352;
const SYMBOLS: usize = 352;

/// Bits that a block takes whatever is in it: headers, and the description of three codes.
const BLOCK_BITS: f32 = 8.0 * 40.0;
/// Bits in the description of a code for literals, for each byte that occurs.
const LITERAL_BITS: f32 = 4.0;

/// Occurrences of each symbol.
type Counts = [u32; SYMBOLS];

/// Puts borders between sequences where they pay.
#[derive(Debug)]
pub(crate) struct Splitter {
    /// Input between two places where a border may be, or more.
    cell_bytes: usize,
    /// Of the block: the symbols up to each such place, and the sequence behind it.
    sums: Vec<(Counts, usize)>,
    borders: Vec<usize>,
}

impl Splitter {
    /// One that has borders at least so many bytes apart.
    pub fn new(cell_bytes: usize) -> Self {
        Self {
            cell_bytes,
            sums: Vec::new(),
            borders: Vec::new(),
        }
    }

    /// Puts borders into the blocks of `sequences`, which are those of `input`.
    pub fn split(&mut self, input: &[u8], sequences: &mut Vec<ZSTD_Sequence>) {
        self.borders.clear();
        let (mut at, mut begin) = (0, 0);
        while begin < sequences.len() {
            let (end, next) = self.count(input, at, begin, sequences);
            self.divide(0, self.sums.len() - 1);
            (begin, at) = (end, next);
        }
        let mut end = sequences.len();
        sequences.resize(end + self.borders.len(), END);
        for (before, &border) in self.borders.iter().enumerate().rev() {
            sequences.copy_within(border..end, border + before + 1);
            sequences[border + before] = END;
            end = border;
        }
    }

    /// Counts the symbols of the block that begins with a sequence, and at a byte. Returns where the next one does.
    fn count(
        &mut self,
        input: &[u8],
        mut at: usize,
        begin: usize,
        sequences: &[ZSTD_Sequence],
    ) -> (usize, usize) {
        self.sums.clear();
        let mut counts = [0; SYMBOLS];
        self.sums.push((counts, begin));
        let mut cell = at;
        for (index, sequence) in (begin..).zip(&sequences[begin..]) {
            let literals = sequence.litLength as usize;
            for &byte in &input[at..at + literals] {
                counts[usize::from(byte)] += 1;
            }
            at += literals + sequence.matchLength as usize;
            if sequence.matchLength == 0 {
                self.sums.push((counts, index + 1));
                return (index + 1, at);
            }
            // Codes of numbers grow with their logarithm; those of the last offsets come first.
            let offset = match sequence.rep {
                0 => 3 + sequence.offset.ilog2(),
                rep => rep - 1,
            };
            counts[OFFSETS.start + offset as usize] += 1;
            counts[LITERAL_LENGTHS.start + code(sequence.litLength)] += 1;
            counts[MATCH_LENGTHS.start + code(sequence.matchLength)] += 1;
            if at - cell >= self.cell_bytes {
                cell = at;
                self.sums.push((counts, index + 1));
            }
        }
        unreachable!("every block has an end")
    }

    /// Notes the best border between two sums, and those on both sides of it, if they pay.
    fn divide(&mut self, begin: usize, end: usize) {
        let cost = |from: usize, to: usize| cost(&self.sums[from].0, &self.sums[to].0);
        let costs = (begin + 1..end).map(|at| (cost(begin, at) + cost(at, end), at));
        let best = costs.min_by(|one, other| one.0.total_cmp(&other.0));
        let Some((_, at)) = best.filter(|best| best.0 < cost(begin, end)) else {
            return;
        };
        self.divide(begin, at);
        self.borders.push(self.sums[at].1);
        self.divide(at, end);
    }
}

/// The end of a block behind a match.
const END: ZSTD_Sequence = ZSTD_Sequence {
    offset: 0,
    litLength: 0,
    matchLength: 0,
    rep: 0,
};

/// About the code of a number: small ones have one each, longer ones one for each length in bits.
fn code(number: u32) -> usize {
    match number {
        0..16 => number as usize,
        _ => 12 + number.ilog2().min(19) as usize,
    }
}

/// About the bits of what lies between two sums, as one block.
fn cost(before: &Counts, behind: &Counts) -> f32 {
    let kind = |kind: Range<usize>| entropy(&before[kind.clone()], &behind[kind]);
    let (literals, present) = kind(LITERALS);
    let numbers = [OFFSETS, LITERAL_LENGTHS, MATCH_LENGTHS].map(|numbers| kind(numbers).0);
    BLOCK_BITS + LITERAL_BITS * present as f32 + literals + numbers.iter().sum::<f32>()
}

/// Symbols that are counted side by side.
const LANES: usize = 8;

/// Bits of the symbols between two sums in a perfect code, and how many different ones there are.
fn entropy(before: &[u32], behind: &[u32]) -> (f32, u32) {
    let (mut all, mut present, mut logs) = ([0; LANES], [0; LANES], [0.0; LANES]);
    let pairs = before.chunks_exact(LANES).zip(behind.chunks_exact(LANES));
    for (one, other) in pairs {
        for lane in 0..LANES {
            let count = other[lane] - one[lane];
            all[lane] += count;
            present[lane] += u32::from(count > 0);
            logs[lane] += times_log(count);
        }
    }
    let bits = times_log(all.iter().sum()) - logs.iter().sum::<f32>();
    (bits, present.iter().sum())
}

/// A count times its base-2 logarithm, right to some hundredths of a bit for each: the same on every machine, as the result of a library
/// need not be.
#[inline(always)]
fn times_log(count: u32) -> f32 {
    let count = count as i32 as f32;
    let bits = count.to_bits() as i32;
    let exponent = ((bits >> 23) - 127) as f32;
    let mantissa = f32::from_bits((bits & 0x7f_ffff | 0x3f80_0000) as u32);
    count * (exponent + (-0.335_828_78 * mantissa + 2.0) * mantissa - 1.664_171_2)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::{Random, text};

    fn sequence(literals: usize, offset: u32, matched: usize) -> ZSTD_Sequence {
        ZSTD_Sequence {
            offset,
            litLength: literals as u32,
            matchLength: matched as u32,
            rep: 0,
        }
    }

    /// The lengths of the blocks of sequences.
    fn blocks(sequences: &[ZSTD_Sequence]) -> Vec<usize> {
        let len = |s: &ZSTD_Sequence| (s.litLength + s.matchLength) as usize;
        let blocks = sequences.split_inclusive(|s| s.matchLength == 0);
        blocks.map(|block| block.iter().map(len).sum()).collect()
    }

    /// Splits an input of which every tenth byte begins a match of five.
    fn split(input: &[u8]) -> Vec<usize> {
        let mut sequences = vec![sequence(5, 1000, 5); input.len() / 10];
        sequences.push(sequence(input.len() % 10, 0, 0));
        Splitter::new(2048).split(input, &mut sequences);
        blocks(&sequences)
    }

    #[test]
    fn borders_are_where_the_literals_change() {
        let noise = Random::new(1).bytes(40_000);
        let digits: Vec<u8> = noise.iter().map(|byte| b'0' + byte % 10).collect();
        assert_eq!(split(&digits), [40_000]);
        let both = [digits.clone(), noise, digits].concat();
        let found = split(&both);
        let ends = found.iter().scan(0, |end, len| {
            *end += len;
            Some(*end)
        });
        let ends: Vec<usize> = ends.collect();
        for change in [40_000, 80_000, 120_000] {
            let is_near = |end: &usize| end.abs_diff(change) <= 2048;
            assert!(ends.iter().any(is_near), "{ends:?}");
        }
        // One may lie on either side of a change.
        assert!(found.len() <= 5, "{ends:?}");
    }

    #[test]
    fn blocks_that_are_short_or_empty_stay() {
        assert_eq!(split(&text(3000)), [3000]);
        assert_eq!(split(b""), [0]);
        let mut sequences = vec![sequence(9, 0, 0), sequence(0, 0, 0), sequence(7, 0, 0)];
        Splitter::new(2048).split(&[7; 16], &mut sequences);
        assert_eq!(blocks(&sequences), [9, 0, 7]);
    }

    #[test]
    fn logarithms_are_about_right() {
        assert_eq!(times_log(0), 0.0);
        for count in 1..200_000 {
            let right = f64::from(count) * f64::from(count).log2();
            let error = (f64::from(times_log(count)) - right).abs() / f64::from(count);
            assert!(error < 0.012, "{count}: {error}");
        }
    }
}
