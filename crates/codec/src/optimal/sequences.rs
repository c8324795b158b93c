//! Sequences of an LZ4 block: literals and a match each, but for the last one, which has literals alone.

use std::ops::Range;

use crate::lz4_block::NIBBLE_MAX;
pub(super) use crate::lz4_block::{LAST_LITERALS, MATCH_MIN};

/// A longer one has a byte of length behind its token.
pub(super) const MATCH_SHORT_MAX: usize = MATCH_MIN + NIBBLE_MAX - 1;
/// Every match begins so many bytes before the end of the block, at least.
pub(super) const MATCH_START_MARGIN: usize = 12;
/// Bytes of a distance.
pub(super) const DISTANCE_BYTES: u32 = 2;

/// Literals up to a match, and the match.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Sequence {
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
pub(super) fn literal_bytes(literals: usize) -> u32 {
    if literals < NIBBLE_MAX {
        0
    } else {
        1 + ((literals - NIBBLE_MAX) / 255) as u32
    }
}

/// Returns how many bytes of length follow a distance for so long a match.
#[inline(always)]
pub(super) fn match_bytes(len: usize) -> u32 {
    if len <= MATCH_SHORT_MAX {
        0
    } else {
        1 + ((len - MATCH_SHORT_MAX - 1) / 255) as u32
    }
}

/// Returns the cost of the last sequence.
pub(super) fn last_cost(literals: usize) -> u32 {
    1 + literals as u32 + literal_bytes(literals)
}

/// Returns how many literals the last sequence can have in so many bytes.
pub(super) fn literals_in(bytes: u32) -> usize {
    let mut literals = (bytes as usize).saturating_sub(1);
    while literals > 0 && last_cost(literals) > bytes {
        literals -= 1;
    }
    literals
}

/// Writes sequences and the last literals to the front of `out`; the number of bytes.
pub(super) fn write(
    data: &[u8],
    sequences: &[Sequence],
    last: Range<usize>,
    out: &mut [u8],
) -> usize {
    let mut writer = Writer { out, len: 0 };
    for sequence in sequences {
        let literals = &data[sequence.literals..sequence.start];
        writer.literals(literals, sequence.len - MATCH_MIN);
        writer.bytes(&sequence.distance.to_le_bytes());
        writer.length(sequence.len - MATCH_MIN);
    }
    writer.literals(&data[last], 0);
    writer.len
}

struct Writer<'a> {
    out: &'a mut [u8],
    len: usize,
}

impl Writer<'_> {
    fn bytes(&mut self, bytes: &[u8]) {
        self.out[self.len..self.len + bytes.len()].copy_from_slice(bytes);
        self.len += bytes.len();
    }

    /// Writes a token and the literals behind it.
    fn literals(&mut self, literals: &[u8], match_nibble: usize) {
        let nibble = literals.len().min(NIBBLE_MAX) << 4 | match_nibble.min(NIBBLE_MAX);
        self.bytes(&[nibble as u8]);
        self.length(literals.len());
        self.bytes(literals);
    }

    /// Writes the part of a length that its nibble does not hold.
    fn length(&mut self, len: usize) {
        let Some(rest) = len.checked_sub(NIBBLE_MAX) else {
            return;
        };
        let end = self.len + rest / 255;
        self.out[self.len..end].fill(u8::MAX);
        self.len = end;
        self.bytes(&[(rest % 255) as u8]);
    }
}
