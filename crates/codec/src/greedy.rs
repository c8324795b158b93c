//! A quick encoder of LZ4 blocks of a given length.
//!
//! It takes the first match that it finds, as liblz4 does by `LZ4_compress_destSize`, from a hash table with the last
//! position of each five bytes. It differs in two points:
//!
//! - The search ends where the literals alone have used up the room, so data without matches costs little.
//! - The table is kept from block to block. A position counts if it lies in the block, so nothing is cleared between.

use std::ops::Range;

use crate::Encoded;
use crate::sequences::{
    self, LAST_LITERALS, MATCH_MIN, MATCH_START_MARGIN, Room, Sequence, common, string,
};

/// Bits of a hash.
const HASH_BITS: u32 = 14;
/// The largest distance of LZ4.
const DISTANCE_MAX: usize = u16::MAX as usize;
/// So many positions without a match make steps longer by one.
const PATIENCE: usize = 64;
/// Bytes of a position that are read at once; the hash is that of five of them.
const EIGHT: usize = 8;

/// The working memory of an encoder.
pub(crate) struct Greedy {
    /// By hash: the last position with it, plus `base`.
    slots: Box<[u32; 1 << HASH_BITS]>,
    /// An offset that is added to positions, so that those of earlier data lie before these.
    base: u32,
    /// No position from here on is in the table.
    inserted: usize,
    /// Of the block, positions from its first byte on.
    sequences: Vec<Sequence>,
}

/// A match at a position: so many bytes are those at another one before.
#[derive(Clone, Copy)]
struct Found {
    at: usize,
    source: usize,
    len: usize,
}

impl Greedy {
    pub fn new() -> Self {
        let slots = vec![0; 1 << HASH_BITS].into_boxed_slice();
        Self {
            slots: slots.try_into().expect("the length is the same"),
            base: 1,
            inserted: 0,
            sequences: Vec::new(),
        }
    }

    /// Begins with other data: nothing is remembered of what came before.
    pub fn restart(&mut self) {
        self.base = self.base.wrapping_add(self.inserted as u32);
        self.inserted = 0;
        if self.base > 1 << 30 {
            self.slots.fill(0);
            self.base = 1;
        }
    }

    /// Compresses as much of `data[start..end]` as fits into `out`.
    ///
    /// Blocks of the same data begin one behind the other. The block depends on the bytes from `start` on alone.
    pub fn encode(&mut self, data: &[u8], start: usize, end: usize, out: &mut [u8]) -> Encoded {
        if out.is_empty() || start == end {
            return Encoded::default();
        }
        let window = Window {
            bytes: &data[start..end],
            slots: &mut self.slots,
            origin: self.base.wrapping_add(start as u32),
        };
        let budget = u32::try_from(out.len()).unwrap_or(u32::MAX >> 1);
        let last = window.parse(budget, &mut self.sequences);
        let consumed = last.end;
        self.inserted = self.inserted.max(start + consumed);
        Encoded {
            consumed,
            written: sequences::write(&data[start..end], &self.sequences, last, out),
        }
    }
}

/// The bytes of a block, and what the table says of them.
struct Window<'a> {
    /// From the first byte of the block on.
    bytes: &'a [u8],
    slots: &'a mut [u32; 1 << HASH_BITS],
    /// The position of the first byte, plus the offset of the table.
    origin: u32,
}

impl Window<'_> {
    /// Finds the sequences of a block, and the literals that end it. No position behind them comes into the table.
    fn parse(mut self, budget: u32, sequences: &mut Vec<Sequence>) -> Range<usize> {
        let starts = (self.bytes.len() + 1).saturating_sub(MATCH_START_MARGIN);
        let mut room = Room::new(sequences, 0, budget);
        while let Some(end) = room.matches_end() {
            let Some(found) = self.search(room.literals(), end.min(starts)) else {
                break;
            };
            let distance = (found.at - found.source) as u16;
            if !room.push(found.at, found.len, distance) {
                break;
            }
            let literals = room.literals();
            if literals < starts {
                self.put(literals - 2, eight(self.bytes, literals - 2));
            }
        }
        room.last(self.bytes.len())
    }

    /// Returns the first match from `literals` on that begins before `end`.
    #[inline(always)]
    fn search(&mut self, literals: usize, end: usize) -> Option<Found> {
        let (at, source) = self.candidate(literals.max(1), end)?;
        Some(self.longest(at, source, literals))
    }

    /// Returns the first position from `begin` on that has a match before it, and where.
    #[inline(never)]
    fn candidate(&mut self, begin: usize, end: usize) -> Option<(usize, usize)> {
        let near = end.min(begin + PATIENCE);
        let first = (begin + PATIENCE).saturating_sub(DISTANCE_MAX + 1);
        let bytes = self.bytes;
        let strings = bytes.get(begin..near + EIGHT - 1)?.windows(EIGHT);
        for (at, string) in (begin..).zip(strings) {
            let string = u64::from_le_bytes(string.try_into().expect("eight bytes"));
            if let Some(source) = self.visit(at, string, first) {
                return Some((at, source));
            }
        }
        let (mut at, mut step) = (near, 2 * PATIENCE);
        while at < end {
            let first = at.saturating_sub(DISTANCE_MAX);
            if let Some(source) = self.visit(at, eight(self.bytes, at), first) {
                return Some((at, source));
            }
            at += step / PATIENCE;
            step += 1;
        }
        None
    }

    /// Puts a position into the table that lies behind all others, and returns one from `first` on with the same four
    /// bytes, if there is one.
    #[inline(always)]
    fn visit(&mut self, at: usize, bytes: u64, first: usize) -> Option<usize> {
        let last = self.put(at, bytes);
        // Nobody can foretell whether the last one lies there. The first that does will do as well as another: no branch
        // is needed, but for whether the bytes are the same.
        let ahead = last.wrapping_sub(self.origin.wrapping_add(first as u32)) as i32;
        let source = first + (ahead & !(ahead >> 31)) as usize;
        (source < at && string(self.bytes, source) == bytes as u32).then_some(source)
    }

    /// Puts a position and its bytes into the table, and returns what was there.
    #[inline(always)]
    fn put(&mut self, at: usize, bytes: u64) -> u32 {
        let hash = (bytes << 24).wrapping_mul(889_523_592_379) >> (u64::BITS - HASH_BITS);
        let now = self.origin.wrapping_add(at as u32);
        std::mem::replace(&mut self.slots[hash as usize], now)
    }

    /// Extends four bytes that are the same to both sides.
    #[inline(always)]
    fn longest(&self, at: usize, source: usize, literals: usize) -> Found {
        let bytes = &self.bytes[..self.bytes.len() - LAST_LITERALS];
        let len = MATCH_MIN + common(bytes, source + MATCH_MIN, at + MATCH_MIN);
        let (mut at, mut source, end) = (at, source, at + len);
        while at > literals && source > 0 && bytes[at - 1] == bytes[source - 1] {
            at -= 1;
            source -= 1;
        }
        Found {
            at,
            source,
            len: end - at,
        }
    }
}

#[inline(always)]
fn eight(data: &[u8], at: usize) -> u64 {
    let bytes = data[at..at + 8].try_into().expect("eight bytes");
    u64::from_le_bytes(bytes)
}

#[cfg(test)]
mod tests;
