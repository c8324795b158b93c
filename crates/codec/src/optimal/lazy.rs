//! A parse that looks at few positions: the one of liblz4's HC levels 3 to 9, over our chains.
//!
//! The parse holds up to three matches that overlap, beginning with the first that it finds. A
//! longer match that begins within another one takes bytes from it, or its place. The last match
//! decides how the first is cut. Then the first is settled.

use std::ops::Range;

use super::chains::{Chains, Depth, Match};
use super::parse::Block;
use crate::sequences::{
    LAST_LITERALS, MATCH_MIN, MATCH_SHORT_MAX, MATCH_START_MARGIN, Room, Sequence,
};

/// Input from which on the data may be dense.
const DENSE_INPUT_MIN: usize = 16 << 10;
/// Dense data shrink to this part, or less.
const DENSE_RATIO: usize = 3;

/// A match at a position.
#[derive(Debug, Clone, Copy)]
struct Found {
    at: usize,
    len: usize,
    distance: usize,
}

impl Found {
    fn end(&self) -> usize {
        self.at + self.len
    }

    /// Begins so many bytes later.
    fn cut_front(&mut self, bytes: usize) {
        self.at += bytes;
        self.len = self.len.saturating_sub(bytes);
    }

    /// Makes this match end where `next` begins. As long as it is short, it takes bytes from `next` to be as long as a
    /// token can say.
    fn meet(&mut self, next: &mut Self) {
        let gap = next.at - self.at;
        if gap < MATCH_SHORT_MAX {
            let most = next.end() - MATCH_MIN - self.at;
            let len = self.len.min(MATCH_SHORT_MAX).min(most);
            next.cut_front(len.saturating_sub(gap));
            self.len = self.len.min(next.at - self.at);
        } else {
            self.len = self.len.min(gap);
        }
    }
}

/// The parse of a block.
struct Parse<'a> {
    block: Block<'a>,
    chains: &'a mut Chains,
    room: Room<'a>,
}

/// No more matches go into the block.
struct Full;

/// Tells how far the parse came.
pub(super) enum Parsed {
    /// To the end of the block, which has these literals last.
    All(Range<usize>),
    /// To the end of the sequences, which take so many bytes: the data are dense.
    Dense(u32),
}

/// Finds the sequences of a block, unless the data turn out to be dense.
pub(super) fn parse<'a>(
    block: Block<'a>,
    chains: &'a mut Chains,
    sequences: &'a mut Vec<Sequence>,
) -> Parsed {
    let room = Room::new(sequences, block.start, block.budget);
    let mut parse = Parse {
        block,
        chains,
        room,
    };
    let mut at = block.start;
    while let Some(first) = parse.first(at) {
        match parse.settle_from(first) {
            Ok(end) => at = end,
            Err(Full) => break,
        }
        let used = block.budget - parse.room.left();
        if is_dense(at - block.start, used) {
            return Parsed::Dense(used);
        }
    }
    Parsed::All(parse.room.last(block.end))
}

/// Returns whether so much input shrinks so well that an optimal parse is as quick: it looks at fewer candidates, and
/// comes further.
fn is_dense(input: usize, used: u32) -> bool {
    input >= DENSE_INPUT_MIN && input >= DENSE_RATIO * used as usize
}

impl Parse<'_> {
    /// Returns the first match from `at` on.
    fn first(&mut self, at: usize) -> Option<Found> {
        let starts = (self.block.end + 1).saturating_sub(MATCH_START_MARGIN);
        let end = self.room.matches_end()?.min(starts);
        (at..end).find_map(|at| {
            self.insert_to(at);
            let (block, none) = (&self.block, Match::default());
            if !self.chains.has_candidate(at, block.start) {
                return None;
            }
            let end = block.end - LAST_LITERALS;
            let Match { len, distance } =
                self.chains
                    .longest(block.data, block.start, at, end, block.depth, none);
            (len >= MATCH_MIN).then_some(Found { at, len, distance })
        })
    }

    /// Returns a match around `back` bytes before the end of `found` that is longer and begins no earlier.
    fn longer(&mut self, found: &Found, back: usize) -> Option<Found> {
        let is_long = found.len >= self.block.depth.nice;
        if is_long || found.end() + MATCH_START_MARGIN > self.block.end {
            return None;
        }
        let at = found.end() - back;
        self.insert_to(at);
        let block = &self.block;
        let (low, end) = (found.at, block.end - LAST_LITERALS);
        let places = (block.start, low, at, end);
        let (back, longer) = self
            .chains
            .wider(block.data, places, block.depth, found.len)?;
        Some(Found {
            at: at - back,
            len: longer.len,
            distance: longer.distance,
        })
    }

    fn insert_to(&mut self, at: usize) {
        let Depth { nice, .. } = self.block.depth;
        self.chains.insert_to(self.block.data, at + nice + 64);
    }

    /// Settles matches from this one on, until the last of them has no longer one behind it; the end of that one.
    fn settle_from(&mut self, first: Found) -> Result<usize, Full> {
        let (mut one, mut skipped) = (first, first);
        loop {
            let Some(two) = self.longer(&one, 2) else {
                self.push(&one)?;
                return Ok(one.end());
            };
            if skipped.at < one.at && two.at < one.at + skipped.len {
                one = skipped;
            }
            if two.at - one.at < 3 {
                one = two;
                continue;
            }
            match self.settle_two(one, two)? {
                Next::Go(third, second) => (one, skipped) = (third, second),
                Next::End(end) => return Ok(end),
            }
        }
    }

    /// Settles matches from two on that overlap.
    fn settle_two(&mut self, mut one: Found, mut two: Found) -> Result<Next, Full> {
        loop {
            if two.at - one.at < MATCH_SHORT_MAX {
                let mut cut = one;
                cut.meet(&mut two);
            }
            let Some(three) = self.longer(&two, 3) else {
                one.len = one.len.min(two.at - one.at);
                self.push(&one)?;
                self.push(&two)?;
                return Ok(Next::End(two.end()));
            };
            if three.at >= one.end() + 3 {
                one.meet(&mut two);
                self.push(&one)?;
                (one, two) = (two, three);
            } else if three.at >= one.end() {
                // There is no room for the second one.
                two.cut_front(one.end().saturating_sub(two.at));
                if two.len < MATCH_MIN {
                    two = three;
                }
                self.push(&one)?;
                return Ok(Next::Go(three, two));
            } else {
                two = three;
            }
        }
    }

    fn push(&mut self, found: &Found) -> Result<(), Full> {
        let Found { at, len, distance } = *found;
        let is_whole = self.room.push(at, len, distance as u16);
        if is_whole { Ok(()) } else { Err(Full) }
    }
}

/// Tells what comes behind matches that overlapped.
enum Next {
    /// This match, before which another one was skipped.
    Go(Found, Found),
    /// Something new, from here on.
    End(usize),
}
