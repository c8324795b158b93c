//! The parse: the sequences that take the most input into a given number of bytes.
//!
//! It is a shortest path. To each position of the block leads a cheapest way, by literals or by a match that ends there;
//! the positions are gone through once, from front to end, until no way is cheap enough. A distance costs two bytes
//! whatever it is, so only the longest match of a position matters, and every shorter one comes with it.
//!
//! Positions are kept for a stretch of the block at a time. At its end, and where a match is so long that no other way
//! can be better by more than a few bytes, the way so far is settled, and the parse goes on from there.

use super::chains::{Chains, Depth, Match};
use super::lanes::Lanes;
use crate::sequences::{
    DISTANCE_BYTES, LAST_LITERALS, MATCH_MIN, MATCH_SHORT_MAX, MATCH_START_MARGIN, Sequence,
    last_cost, literal_bytes, literals_in, match_bytes,
};

/// Positions of a stretch.
const STRETCH: usize = 1 << 16;
/// Positions at the end of a stretch that are gone through once more with the next one.
const OVERLAP: usize = 64;
/// A match of this length is taken.
pub(super) const TAKEN: usize = 4096;
/// The cost of a position that no match ends at.
const UNREACHED: u32 = 1 << 30;
/// Positions that there is room for at first; more is needed where literals alone are longer than a stretch.
const ROOM: usize = STRETCH + OVERLAP + ROOM_AHEAD;
/// Positions that the match at one reaches, at most.
const ROOM_AHEAD: usize = TAKEN + 64;
/// Runs of last literals that are tried.
const LAST_TRIED: usize = 64;

/// A block, and the bytes it may cost.
#[derive(Clone, Copy)]
pub(super) struct Block<'a> {
    pub data: &'a [u8],
    /// The first byte of the block.
    pub start: usize,
    /// The block ends here at the latest.
    pub end: usize,
    pub budget: u32,
    pub depth: Depth,
}

/// A position that was gone through.
#[derive(Debug, Clone, Copy, Default)]
struct Position {
    /// The cheapest way to begin a match here: bytes up to its distance.
    begun: u32,
    /// The first literal of that way's last run.
    run: u32,
    /// The longest match; lengths below 4 are none.
    len: u32,
    distance: u16,
}

/// The positions of a stretch: index 0 is its first one.
pub(super) struct Parser {
    positions: Vec<Position>,
    /// The cheapest way that ends with a match at a position: bytes of its sequences.
    ended: Vec<u32>,
    /// The start of the long match that made `ended` what it is, or was.
    from: Vec<u32>,
    /// No position of `ended` is reached from here on.
    reached: usize,
    /// The last position that was gone through.
    gone_through: usize,
    /// The way that is settled, and its cost.
    pub sequences: Vec<Sequence>,
    cost: u32,
}

/// Tells how far a stretch came.
enum Stop {
    /// This position is the first that costs too much, or the end of the block.
    Full(usize),
    /// Here is the next stretch.
    Settled,
}

impl Parser {
    pub fn new() -> Self {
        Self {
            positions: vec![Position::default(); ROOM],
            ended: vec![UNREACHED; ROOM],
            from: vec![0; ROOM],
            reached: 0,
            gone_through: 0,
            sequences: Vec::new(),
            cost: 0,
        }
    }

    /// Finds the sequences of a block behind those that are settled, which take so many bytes; the end of the literals
    /// behind them, which is the end of the block.
    pub fn parse(&mut self, block: &Block<'_>, chains: &mut Chains, cost: u32) -> usize {
        self.cost = cost;
        loop {
            let base = self.settled(block);
            match self.stretch(block, chains, base) {
                Stop::Full(at) => return self.finish(block, base, at),
                Stop::Settled => {}
            }
        }
    }

    /// Returns where the settled sequences end.
    pub fn settled(&self, block: &Block<'_>) -> usize {
        self.sequences.last().map_or(block.start, Sequence::end)
    }

    /// Makes room for positions below `end`.
    #[cold]
    fn grow(&mut self, end: usize) {
        let end = end.next_multiple_of(ROOM);
        self.positions.resize(end, Position::default());
        self.ended.resize(end, UNREACHED);
        self.from.resize(end, 0);
    }

    /// Goes through positions from `base` on.
    fn stretch(&mut self, block: &Block<'_>, chains: &mut Chains, base: usize) -> Stop {
        self.ended[..self.reached].fill(UNREACHED);
        self.ended[0] = self.cost;
        self.reached = MATCH_SHORT_MAX;
        let mut lanes = Lanes::new(self.cost);
        let match_end_max = block.end.saturating_sub(LAST_LITERALS);
        // The literals that the cheapest way has before it begins a match, and the cost up to them.
        let (mut run, mut run_cost) = (0, self.cost);
        let mut reaching = Match::default();
        let mut reaching_end = 0;
        for q in 0..block.end - base {
            if q + ROOM_AHEAD > self.ended.len() {
                self.grow(q + ROOM_AHEAD);
            }
            if let Some(short) = lanes.first() {
                self.ended[q + 3] = self.ended[q + 3].min(short);
            }
            let mut literals = run_cost + (q - run) as u32;
            if self.ended[q] <= literals + allowance(q - run) {
                (run, run_cost) = (q, self.ended[q]);
                literals = run_cost;
            }
            let begun = literals + 1 + literal_bytes(q - run);
            let at = base + q;
            // A match one byte further on is as cheap and reaches as far, unless it is too short there.
            let is_beaten = self.ended[q + 1] < begun;
            let found = if begun > block.budget
                || is_beaten && !self.needs_short(block, q, begun, &lanes)
            {
                Match::default()
            } else if is_beaten {
                chains.insert_to(block.data, at + block.depth.nice + 64);
                // The search for the longest one would find it as well, in more time.
                chains.shortest(block.data, block.start, at, match_end_max, block.depth)
            } else {
                let known = Match {
                    len: reaching_end.max(at) - at,
                    ..reaching
                };
                self.search(block, chains, at, match_end_max, known)
            };
            self.positions[q] = Position {
                begun,
                run: run as u32,
                len: found.len as u32,
                distance: found.distance as u16,
            };
            self.gone_through = q;
            if begun > block.budget {
                self.reached = self.reached.max(q + 4);
                return Stop::Full(at);
            }
            if found.len >= MATCH_MIN {
                if at + found.len > reaching_end {
                    (reaching, reaching_end) = (found, at + found.len);
                }
                if found.len >= TAKEN {
                    self.reached = self.reached.max(q + 4);
                    self.take(block, base, q, found);
                    return Stop::Settled;
                }
                let cost = begun + DISTANCE_BYTES;
                lanes.relax(cost, found.len.min(MATCH_SHORT_MAX) - 3);
                if found.len > MATCH_SHORT_MAX {
                    self.relax_long(q, found.len, cost);
                }
            }
            lanes.advance();
            if q >= STRETCH + OVERLAP && self.settle(base, q, q - OVERLAP) {
                self.reached = self.reached.max(q + 4);
                return Stop::Settled;
            }
        }
        self.reached = self.reached.max(block.end - base + 4);
        Stop::Full(block.end)
    }

    fn search(
        &self,
        block: &Block<'_>,
        chains: &mut Chains,
        at: usize,
        end: usize,
        known: Match,
    ) -> Match {
        if known.len >= block.depth.nice {
            return known;
        }
        chains.insert_to(block.data, at + block.depth.nice + 64);
        chains.longest(block.data, block.start, at, end, block.depth, known)
    }

    /// Returns whether a match of four bytes at `q` is wanted: it is as cheap as three literals behind the next position.
    ///
    /// Both cost the same up to there. Literals behind the match begin a new run, whose length takes no byte.
    #[inline(always)]
    fn needs_short(&self, block: &Block<'_>, q: usize, begun: u32, lanes: &Lanes) -> bool {
        block.depth.shortest > 0
            && self.ended[q + 1] + 1 == begun
            && self.ended[q + MATCH_MIN].min(lanes.second()) > begun + DISTANCE_BYTES
    }

    /// Lowers the costs of all ends of a match that need bytes of length.
    fn relax_long(&mut self, q: usize, len: usize, cost: u32) {
        self.reached = self.reached.max(q + len + 1);
        if cost + match_bytes(len) >= self.ended[q + len] {
            return;
        }
        let mut first = MATCH_SHORT_MAX + 1;
        while first <= len {
            let last = (first + 254).min(len);
            let cost = cost + match_bytes(first);
            let ends = q + first..=q + last;
            for (ended, from) in self.ended[ends.clone()]
                .iter_mut()
                .zip(&mut self.from[ends])
            {
                let is_lower = cost < *ended;
                *ended = if is_lower { cost } else { *ended };
                *from = if is_lower { q as u32 } else { *from };
            }
            first = last + 1;
        }
    }

    /// Returns the start of the match that ends at `end` on the cheapest way.
    fn start_of(&self, end: usize) -> Option<usize> {
        let from = self.from[end] as usize;
        let reaches = |start: usize| self.positions[start].len as usize >= end - start;
        let short = end.saturating_sub(MATCH_SHORT_MAX)..(end + 1).saturating_sub(MATCH_MIN);
        // The first of several is the longest: fewer sequences.
        let short = short
            .filter(|start| reaches(*start))
            .min_by_key(|start| self.positions[*start].begun);
        let is_long = from < end && end - from > MATCH_SHORT_MAX && reaches(from);
        let long = is_long.then_some(from);
        let cost = |start: &usize| self.positions[*start].begun + match_bytes(end - start);
        [long, short].into_iter().flatten().min_by_key(cost)
    }

    /// Settles the cheapest way that begins a match at `q`, but for the literals before it and for matches that end behind
    /// `until`. Returns whether there are any.
    fn settle(&mut self, base: usize, q: usize, until: usize) -> bool {
        let mut end = self.positions[q].run as usize;
        let first = self.sequences.len();
        while end > 0 {
            let Some(start) = self.start_of(end) else {
                self.sequences.truncate(first);
                return false;
            };
            let literals = self.positions[start].run as usize;
            if end <= until {
                self.sequences.push(Sequence {
                    literals: base + literals,
                    start: base + start,
                    len: end - start,
                    distance: self.positions[start].distance,
                });
            }
            end = literals;
        }
        self.sequences[first..].reverse();
        let new = &self.sequences[first..];
        self.cost += new.iter().map(Sequence::cost).sum::<u32>();
        !new.is_empty()
    }

    /// Settles the way to a long match, and the match as far as the budget allows.
    fn take(&mut self, block: &Block<'_>, base: usize, q: usize, found: Match) {
        self.settle(base, q, q);
        let literals = self.settled(block);
        let mut sequence = Sequence {
            literals,
            start: base + q,
            len: MATCH_MIN,
            distance: found.distance as u16,
        };
        let least = self.cost + sequence.cost() + last_cost(LAST_LITERALS);
        // Without room for a short match and the last literals, the way ends with literals: see `finish`.
        if let Some(left) = block.budget.checked_sub(least) {
            sequence.len = found.len.min(MATCH_SHORT_MAX + 255 * left as usize);
        }
        self.cost += sequence.cost();
        self.sequences.push(sequence);
    }

    /// Ends the block, before `at` or there: the way that comes furthest, with the literals that have to be last.
    fn finish(&mut self, block: &Block<'_>, base: usize, at: usize) -> usize {
        let known = (at - base).min(self.gone_through);
        let mut furthest = self.end_of(block, base, self.positions[known].run as usize);
        let mut left = LAST_TRIED;
        for run in (0..=known).rev() {
            furthest = furthest.max(self.end_of(block, base, run));
            left -= usize::from(furthest.is_some());
            if left == 0 {
                break;
            }
        }
        let Some((end, _, run)) = furthest else {
            return self.give_back(block);
        };
        self.settle_to(base, run);
        if self.cost + last_cost(end - self.settled(block)) > block.budget {
            return self.give_back(block);
        }
        end
    }

    /// Returns the end of the block if its last literals begin at `run`, what it does not use of the budget, and `run`.
    fn end_of(&self, block: &Block<'_>, base: usize, run: usize) -> Option<(usize, u32, usize)> {
        let left = block.budget.checked_sub(self.ended[run])?;
        let end = (base + run + literals_in(left)).min(block.end);
        let start = match run {
            0 => self.sequences.last().map(|sequence| sequence.start),
            run => Some(base + self.start_of(run)?),
        };
        let is_allowed = start.is_none_or(|start| {
            end >= base + run + LAST_LITERALS && end >= start + MATCH_START_MARGIN
        });
        let unused = || left.checked_sub(last_cost(end - base - run));
        if is_allowed {
            Some((end, unused()?, run))
        } else {
            None
        }
    }

    /// Settles the cheapest way that ends with a match at `q`.
    fn settle_to(&mut self, base: usize, q: usize) {
        if q > 0 {
            self.positions[q].run = q as u32;
            self.settle(base, q, q);
        }
    }

    /// Ends the block with literals where matches were, until it has the room for them.
    fn give_back(&mut self, block: &Block<'_>) -> usize {
        loop {
            let settled = self.settled(block);
            let end = match block.budget.checked_sub(self.cost) {
                Some(left) => (settled + literals_in(left)).min(block.end),
                None => settled,
            };
            let Some(last) = self.sequences.last() else {
                return end;
            };
            if end >= settled + LAST_LITERALS && end >= last.start + MATCH_START_MARGIN {
                return end;
            }
            self.cost -= last.cost();
            self.sequences.pop();
        }
    }
}

/// Returns how much dearer a shorter run of literals may be, as the length of a longer one costs bytes.
#[inline(always)]
fn allowance(literals: usize) -> u32 {
    match literals {
        270.. => literal_bytes(literals) - 1,
        _ => 0,
    }
}
