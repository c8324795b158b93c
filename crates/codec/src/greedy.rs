//! A quick encoder of LZ4 blocks of a given length.
//!
//! It takes the first match that it finds, as liblz4 does by `LZ4_compress_destSize`, from a table with the last position of
//! each five bytes. It differs in four points:
//!
//! - The search ends where the literals alone have used up the room, so data without matches costs little.
//! - The table is kept from block to block (`table.rs`).
//! - The table is twice as large, and has three positions of each match instead of one, so more is found.
//! - Where neither end of the block is near, few branches depend on the data (`middle.rs`).

use crate::Encoded;
use crate::sequences::{
    LAST_LITERALS, MATCH_MIN, MATCH_START_MARGIN, Sequence, Writer, allowed, common, literals_in,
    matches_end,
};
use middle::{Match, Next, PATIENCE, STEP_MAX, search, visited, write_middle};
use table::Table;

mod middle;
mod table;

/// The working memory of an encoder.
pub(crate) struct Greedy {
    table: Table,
}

impl Greedy {
    pub fn new() -> Self {
        Self {
            table: Table::new(),
        }
    }

    /// Compresses as much of the front of `data` as fits into `out`. The block depends on these two alone.
    pub fn encode(&mut self, data: &[u8], out: &mut [u8]) -> Encoded {
        if out.is_empty() || data.is_empty() {
            return Encoded::default();
        }
        let mut block = Block {
            data,
            table: &mut self.table,
            writer: Writer { out, len: 0 },
            literals: 0,
        };
        let mut last = 0;
        while let Some(found) = block.next_match() {
            last = found.at;
            if !block.push(found) {
                break;
            }
        }
        let encoded = block.finish();
        // The last match may have been found behind as much of it as had room.
        self.table.restart(encoded.consumed.max(last + 1));
        encoded
    }
}

/// A block, written from front to end.
struct Block<'a> {
    data: &'a [u8],
    table: &'a mut Table,
    writer: Writer<'a>,
    /// The first byte behind the sequences that have been written.
    literals: usize,
}

impl Block<'_> {
    /// Returns the next match that is not written yet, if there is room for one.
    fn next_match(&mut self) -> Option<Match> {
        let next = write_middle(self.data, self.table, &mut self.writer, &mut self.literals);
        match next {
            Next::From(at) => {
                let end = matches_end(self.literals, self.left())?;
                self.search(at, end.min(self.starts()))
            }
            Next::Found(found) => Some(found),
        }
    }

    /// Returns the first match from `at` on that begins before `end`. There is none from the literals to `at`.
    #[inline(never)]
    fn search(&mut self, mut at: usize, end: usize) -> Option<Match> {
        let mut step = 1 + (at - self.literals) / PATIENCE;
        while at < end {
            let stop = end.min(at + PATIENCE * step);
            let found = search(self.data, self.table, at..stop, step);
            if found.at < stop {
                return Some(found);
            }
            at = found.at;
            step = (step + 1).min(STEP_MAX);
        }
        None
    }

    /// Writes a match, or as much of it as there is room for. Returns whether that was all.
    fn push(&mut self, found: Match) -> bool {
        let (start, len) = self.longest(found);
        let Some(allowed) = allowed(self.left(), self.literals, start, len) else {
            return false;
        };
        let sequence = Sequence {
            literals: self.literals,
            start,
            len: allowed,
            distance: (found.at - found.source) as u16,
        };
        self.writer.sequence(self.data, &sequence);
        self.literals = sequence.end();
        if allowed == len && self.literals < self.starts() {
            for at in visited(found.at, self.literals) {
                self.table.put(at, eight(self.data, at));
            }
        }
        allowed == len
    }

    /// Extends a match to both sides; returns its first byte and its length.
    fn longest(&self, Match { at, source }: Match) -> (usize, usize) {
        let data = &self.data[..self.data.len() - LAST_LITERALS];
        let len = MATCH_MIN + common(data, source + MATCH_MIN, at + MATCH_MIN);
        let before = data[self.literals..at].iter().rev();
        let pairs = before.zip(data[..source].iter().rev());
        let back = pairs.take_while(|(one, other)| one == other).count();
        (at - back, len + back)
    }

    /// Writes the literals that end the block.
    fn finish(mut self) -> Encoded {
        let end = self.literals + literals_in(self.left());
        let consumed = end.min(self.data.len());
        self.writer.last(&self.data[self.literals..consumed]);
        Encoded {
            consumed,
            written: self.writer.len,
        }
    }

    /// Bytes that are left for more.
    fn left(&self) -> u32 {
        let left = self.writer.out.len() - self.writer.len;
        u32::try_from(left).unwrap_or(u32::MAX >> 1)
    }

    /// The end of the positions that the format lets a match begin at.
    fn starts(&self) -> usize {
        (self.data.len() + 1).saturating_sub(MATCH_START_MARGIN)
    }
}

#[inline(always)]
fn eight(data: &[u8], at: usize) -> u64 {
    let bytes = data[at..at + 8].try_into().expect("eight bytes");
    u64::from_le_bytes(bytes)
}

#[cfg(test)]
mod tests;
