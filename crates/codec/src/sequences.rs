//! Sequences of an LZ4 block: literals and a match each, but for the last one, which has literals alone.

use std::ops::Range;

use crate::lz4_block::NIBBLE_MAX;
pub(crate) use crate::lz4_block::{LAST_LITERALS, MATCH_MIN};

/// A longer one has a byte of length behind its token.
pub(crate) const MATCH_SHORT_MAX: usize = MATCH_MIN + NIBBLE_MAX - 1;
/// Every match begins so many bytes before the end of the block, at least.
pub(crate) const MATCH_START_MARGIN: usize = 12;
/// Bytes of a distance.
pub(crate) const DISTANCE_BYTES: u32 = 2;

/// Literals up to a match, and the match.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Sequence {
    /// The first literal.
    pub literals: usize,
    /// Its first byte, behind the literals.
    pub start: usize,
    pub len: usize,
    pub distance: u16,
}

impl Sequence {
    pub fn end(&self) -> usize {
        self.start + self.len
    }

    pub fn cost(&self) -> u32 {
        let literals = self.start - self.literals;
        1 + literals as u32 + literal_bytes(literals) + DISTANCE_BYTES + match_bytes(self.len)
    }
}

/// Returns how many bytes of length follow a token for so many literals.
#[inline(always)]
pub(crate) fn literal_bytes(literals: usize) -> u32 {
    // The first byte comes at fifteen, another one with every 255 of them.
    (literals as u32 + 255 - NIBBLE_MAX as u32) / 255
}

/// Returns how many bytes of length follow a distance for so long a match.
#[inline(always)]
pub(crate) fn match_bytes(len: usize) -> u32 {
    (len as u32 + 254 - MATCH_SHORT_MAX as u32) / 255
}

/// Returns the cost of the last sequence.
pub(crate) fn last_cost(literals: usize) -> u32 {
    1 + literals as u32 + literal_bytes(literals)
}

/// Returns how many literals the last sequence can have in so many bytes.
#[inline(always)]
pub(crate) fn literals_in(bytes: u32) -> usize {
    let bytes = bytes as usize;
    match bytes.checked_sub(NIBBLE_MAX + 2) {
        None => bytes.saturating_sub(1).min(NIBBLE_MAX - 1),
        // Each 255 of them take one byte more.
        Some(more) => NIBBLE_MAX + more - (more + 1) / 256,
    }
}

/// The sequences of a block, and the room that they leave.
pub(crate) struct Room<'a> {
    sequences: &'a mut Vec<Sequence>,
    /// The first byte behind them.
    literals: usize,
    /// Bytes that are left for more.
    left: u32,
}

/// Bytes behind the literals of a sequence, if the block is to end behind its match: the distance, and the last sequence.
const MATCH_ROOM: u32 = DISTANCE_BYTES + 1 + LAST_LITERALS as u32;

/// Returns the end of the positions that a match behind literals can begin at, if so many bytes are left for both.
#[inline(always)]
pub(crate) fn matches_end(literals: usize, left: u32) -> Option<usize> {
    let left = left.checked_sub(MATCH_ROOM + 1)?;
    Some(literals + 1 + literals_in(left + 1))
}

/// Returns as much of a match behind literals as so many bytes have room for, with the literals that have to be last.
#[inline(always)]
pub(crate) fn allowed(left: u32, literals: usize, start: usize, len: usize) -> Option<usize> {
    let fixed = last_cost(start - literals) + MATCH_ROOM;
    let left = left.checked_sub(fixed)?;
    if left >= match_bytes(len) + MATCH_START_MARGIN as u32 {
        return Some(len);
    }
    let len = len.min(MATCH_SHORT_MAX + 255 * left as usize);
    let literals_more = MATCH_START_MARGIN.saturating_sub(len + LAST_LITERALS);
    (literals_more <= left as usize).then_some(len)
}

impl<'a> Room<'a> {
    /// All of a block that begins at `start`.
    pub fn new(sequences: &'a mut Vec<Sequence>, start: usize, budget: u32) -> Self {
        sequences.clear();
        Self {
            sequences,
            literals: start,
            left: budget,
        }
    }

    /// Bytes that are left for more.
    pub const fn left(&self) -> u32 {
        self.left
    }

    /// Returns the end of the positions that a match can still begin at.
    #[inline(always)]
    pub fn matches_end(&self) -> Option<usize> {
        matches_end(self.literals, self.left)
    }

    /// Adds a match, or as much of it as there is room for. Returns whether that was all.
    #[inline(always)]
    pub fn push(&mut self, start: usize, len: usize, distance: u16) -> bool {
        let Some(allowed) = allowed(self.left, self.literals, start, len) else {
            return false;
        };
        let sequence = Sequence {
            literals: self.literals,
            start,
            len: allowed,
            distance,
        };
        self.left -= sequence.cost();
        self.literals = sequence.end();
        self.sequences.push(sequence);
        allowed == len
    }

    /// Returns the last literals of a block that ends at `end` at the latest.
    pub fn last(&self, end: usize) -> Range<usize> {
        self.literals..(self.literals + literals_in(self.left)).min(end)
    }
}

/// Writes sequences and the last literals to the front of `out`; the number of bytes.
pub(crate) fn write(
    data: &[u8],
    sequences: &[Sequence],
    last: Range<usize>,
    out: &mut [u8],
) -> usize {
    let mut writer = Writer { out, len: 0 };
    for sequence in sequences {
        writer.sequence(data, sequence);
    }
    writer.last(&data[last]);
    writer.len
}

/// Writes a block from front to end.
pub(crate) struct Writer<'a> {
    pub out: &'a mut [u8],
    pub len: usize,
}

/// Bytes that are copied at once, where there is room for them.
const COPIED: usize = 16;

impl Writer<'_> {
    /// Writes a sequence of the data.
    #[inline(always)]
    pub fn sequence(&mut self, data: &[u8], sequence: &Sequence) {
        let literals = sequence.start - sequence.literals;
        let more = sequence.len - MATCH_MIN;
        let few = data.get(sequence.literals..);
        let few = few.and_then(<[u8]>::first_chunk::<COPIED>);
        let head = self.out.get_mut(self.len..);
        let head = head.and_then(<[u8]>::first_chunk_mut::<{ COPIED + 3 }>);
        if let (Some(few), Some(head), ..NIBBLE_MAX) = (few, head, literals) {
            head[0] = (literals << 4 | more.min(NIBBLE_MAX)) as u8;
            *head[1..].first_chunk_mut().expect("its length") = *few;
            [head[literals + 1], head[literals + 2]] = sequence.distance.to_le_bytes();
            self.len += literals + 3;
        } else {
            self.token(literals, more);
            self.bytes(&data[sequence.literals..sequence.start]);
            self.bytes(&sequence.distance.to_le_bytes());
        }
        if more >= NIBBLE_MAX {
            self.length(more);
        }
    }

    /// Writes the literals that end the block.
    pub fn last(&mut self, literals: &[u8]) {
        self.token(literals.len(), 0);
        self.bytes(literals);
    }

    #[inline(always)]
    fn bytes(&mut self, bytes: &[u8]) {
        self.out[self.len..self.len + bytes.len()].copy_from_slice(bytes);
        self.len += bytes.len();
    }

    /// Writes a token, and the length of the literals.
    #[inline(always)]
    fn token(&mut self, literals: usize, match_nibble: usize) {
        let nibble = literals.min(NIBBLE_MAX) << 4 | match_nibble.min(NIBBLE_MAX);
        self.bytes(&[nibble as u8]);
        self.length(literals);
    }

    /// Writes the part of a length that its nibble does not hold.
    #[inline(always)]
    fn length(&mut self, len: usize) {
        let Some(rest) = len.checked_sub(NIBBLE_MAX) else {
            return;
        };
        if rest >= 255 {
            let end = self.len + rest / 255;
            self.out[self.len..end].fill(u8::MAX);
            self.len = end;
        }
        self.bytes(&[(rest % 255) as u8]);
    }
}

/// Returns the four bytes at a position.
#[inline(always)]
pub(crate) fn string(data: &[u8], at: usize) -> u32 {
    let bytes = data[at..at + 4].try_into().expect("four bytes");
    u32::from_le_bytes(bytes)
}

/// Returns how many bytes are the same from both positions on, to the end of the data.
#[inline(always)]
pub(crate) fn common(data: &[u8], candidate: usize, at: usize) -> usize {
    let ahead = &data[at..];
    let before = &data[candidate..candidate + ahead.len()];
    if let (Some(one), Some(other)) = (ahead.first_chunk(), before.first_chunk()) {
        let differing = u64::from_le_bytes(*one) ^ u64::from_le_bytes(*other);
        if differing != 0 {
            return (differing.trailing_zeros() / 8) as usize;
        }
    }
    let mut len = 0;
    for (one, other) in ahead.chunks_exact(8).zip(before.chunks_exact(8)) {
        let one = u64::from_le_bytes(one.try_into().expect("eight bytes"));
        let other = u64::from_le_bytes(other.try_into().expect("eight bytes"));
        if one != other {
            return len + ((one ^ other).trailing_zeros() / 8) as usize;
        }
        len += 8;
    }
    let rest = ahead[len..].iter().zip(&before[len..]);
    len + rest.take_while(|(one, other)| one == other).count()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn literals_fit_and_one_more_does_not() {
        assert_eq!(literals_in(0), 0);
        for bytes in 1..70_000 {
            let literals = literals_in(bytes);
            assert!(last_cost(literals) <= bytes, "{literals} in {bytes}");
            assert!(last_cost(literals + 1) > bytes, "{literals} in {bytes}");
        }
    }
}
