//! The match finder: chains of positions whose next four bytes have the same hash.
//!
//! A chain is kept as distances: each position has the distance to the one before it with the same
//! hash. Positions are inserted ahead of the one that is searched for, so the chain of *any* four
//! bytes of a match can be walked. A match that is longer than the best one so far must contain the
//! four bytes that end behind it, and their chain is often the shortest. The distance tells whether
//! a candidate lies in the block, so nothing is cleared between blocks.

use crate::probe::hash;
use crate::sequences::{MATCH_MIN, common, string};

/// Bits of a hash.
const HASH_BITS: u32 = 17;
/// Positions whose distances are kept: those that a match can begin at, and those inserted ahead.
const RING: usize = 1 << 17;
/// The distance that stands for none; the largest one of LZ4 as well.
pub(super) const DISTANCE_MAX: usize = u16::MAX as usize;
/// Positions that are inserted at once.
const BATCH: usize = 1024;
/// Bytes of a match that are looked at for the chain with the longest distance.
const ANCHORS: usize = 16;
/// Steps of a chain until a candidate beyond the current one is given up.
const STEPS: usize = 8;

/// A match: so many bytes are those at a distance before.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Match {
    pub len: usize,
    pub distance: usize,
}

/// Tells how long is searched.
#[derive(Debug, Clone, Copy)]
pub(super) struct Depth {
    /// Candidates that are looked at for one position.
    pub candidates: usize,
    /// Candidates for a match of four bytes where one of more is of no use.
    pub shortest: usize,
    /// A match of this length ends the search.
    pub nice: usize,
}

/// The chains of the data that is encoded.
pub(super) struct Chains {
    /// The last position with each hash, plus `base`.
    head: Box<[u32; 1 << HASH_BITS]>,
    /// By position, modulo [`RING`].
    distance: Box<[u16; RING]>,
    /// An offset that is added to positions, so that those of earlier data are too far away.
    base: u32,
    /// Positions below this one are in chains.
    inserted: usize,
}

impl Chains {
    pub fn new() -> Self {
        Self {
            head: zeros(),
            distance: zeros(),
            base: DISTANCE_MAX as u32 + 1,
            inserted: 0,
        }
    }

    /// Begins with other data.
    pub fn restart(&mut self) {
        self.base += self.inserted as u32 + DISTANCE_MAX as u32 + 1;
        self.inserted = 0;
        if self.base > 1 << 30 {
            self.head.fill(0);
            self.base = DISTANCE_MAX as u32 + 1;
        }
    }

    /// Inserts all positions up to `end` at least, as far as there are four bytes.
    pub fn insert_to(&mut self, data: &[u8], end: usize) {
        if self.inserted >= end {
            return;
        }
        let end = (end + BATCH).min(data.len().saturating_sub(3));
        let Some(strings) = data.get(self.inserted..end.max(self.inserted) + 3) else {
            return;
        };
        let first = self.inserted;
        for (index, string) in strings.windows(4).enumerate() {
            let string = u32::from_le_bytes([string[0], string[1], string[2], string[3]]);
            let at = (first + index) as u32 + self.base;
            let last = std::mem::replace(&mut self.head[hash(string, HASH_BITS)], at);
            let distance = (at - last).min(DISTANCE_MAX as u32);
            self.distance[(first + index) % RING] = distance as u16;
        }
        self.inserted = end.max(first);
    }

    #[inline(always)]
    fn distance(&self, position: usize) -> usize {
        usize::from(self.distance[position % RING])
    }

    /// Returns whether there is a candidate for a match at `at` that begins at `start` or behind.
    #[inline(always)]
    pub fn has_candidate(&self, at: usize, start: usize) -> bool {
        self.distance(at) <= (at - start).min(DISTANCE_MAX)
    }

    /// Returns the longest match at `at` that begins at `start` or behind and ends before `end`, if there is one that is
    /// longer than `known` and than three bytes; else `known`.
    pub fn longest(
        &self,
        data: &[u8],
        start: usize,
        at: usize,
        end: usize,
        depth: Depth,
        known: Match,
    ) -> Match {
        let data = &data[..end];
        let reach = (at - start).min(DISTANCE_MAX);
        let mut best = Match {
            len: known.len.max(3),
            ..known
        };
        if at + best.len >= end {
            return known;
        }
        let mut anchor = best.len - 3;
        let mut distance = self.distance(at + anchor);
        for _ in 0..depth.candidates {
            if distance > reach {
                break;
            }
            let candidate = at - distance;
            let last = best.len - 3;
            if string(data, candidate + last) == string(data, at + last)
                && string(data, candidate) == string(data, at)
            {
                let len = common(data, candidate, at);
                if len > best.len {
                    best = Match { len, distance };
                    if len >= depth.nice || at + len >= end {
                        break;
                    }
                    (distance, anchor) = self.beyond(at, best);
                    continue;
                }
            }
            distance += self.distance(candidate + anchor);
        }
        if best.len > known.len.max(3) {
            best
        } else {
            known
        }
    }

    /// Returns a match of four bytes at `at`, if one of the first candidates is one.
    #[inline(always)]
    pub fn shortest(
        &self,
        data: &[u8],
        start: usize,
        at: usize,
        end: usize,
        depth: Depth,
    ) -> Match {
        let reach = (at - start).min(DISTANCE_MAX);
        if at + MATCH_MIN > end {
            return Match::default();
        }
        let mut distance = self.distance(at);
        for _ in 0..depth.shortest {
            if distance > reach {
                break;
            }
            if string(data, at - distance) == string(data, at) {
                return Match {
                    len: MATCH_MIN,
                    distance,
                };
            }
            distance += self.distance(at - distance);
        }
        Match::default()
    }

    /// Returns a match of more than `longest` bytes that has the four at `at`, and how many bytes of it come before. The
    /// places are where it begins at the earliest, where what comes before begins, `at`, and where it ends at the latest.
    pub fn wider(
        &self,
        data: &[u8],
        (start, low, at, end): (usize, usize, usize, usize),
        depth: Depth,
        longest: usize,
    ) -> Option<(usize, Match)> {
        let data = &data[..end];
        let reach = (at - start).min(DISTANCE_MAX);
        // So many bytes from `at` on are the same at least, if it is longer.
        let least = |longest: usize| (longest + 1).saturating_sub(at - low).max(4);
        let mut anchor = least(longest) - 4;
        if at + anchor + 4 > end {
            return None;
        }
        let mut best = None;
        let mut best_len = longest;
        let mut distance = self.distance(at + anchor);
        for _ in 0..depth.candidates {
            if distance > reach {
                break;
            }
            let candidate = at - distance;
            if string(data, candidate + anchor) == string(data, at + anchor)
                && string(data, candidate) == string(data, at)
            {
                let ahead = common(data, candidate, at);
                let room = (at - low).min(candidate - start);
                let same = |back: &usize| data[at - back - 1] == data[candidate - back - 1];
                let back = (0..room).take_while(same).count();
                let len = ahead + back;
                if len > best_len {
                    (best, best_len) = (Some((back, Match { len, distance })), len);
                    let last = least(len) - 4;
                    if len >= depth.nice || at + last + 4 > end {
                        break;
                    }
                    let behind = self.beyond_on(at + last, distance);
                    if behind > distance {
                        (anchor, distance) = (last, behind);
                        continue;
                    }
                }
            }
            distance += self.distance(candidate + anchor);
        }
        best
    }

    /// Returns the first distance beyond another one on the chain of a position, or one before it if that is far.
    fn beyond_on(&self, at: usize, distance: usize) -> usize {
        let mut behind = self.distance(at);
        for _ in 0..STEPS {
            if behind > distance {
                break;
            }
            behind += self.distance(at - behind);
        }
        behind
    }

    /// Returns the next candidate for a longer match: its distance, and the byte of the match whose chain has it.
    fn beyond(&self, at: usize, found: Match) -> (usize, usize) {
        let candidate = at - found.distance;
        // A longer match lies on the chain of each string of this one. The longest step passes by most of the others.
        let mut step = 0;
        let mut anchor = 0;
        for index in 0..ANCHORS.min(found.len - 3) {
            let distance = self.distance(candidate + index);
            if distance > step {
                (step, anchor) = (distance, index);
            }
        }
        let along = found.distance + step;
        // And on that of the string that ends one byte behind it.
        let last = found.len - 3;
        let behind = self.beyond_on(at + last, found.distance);
        if behind >= along {
            (behind, last)
        } else {
            (along, anchor)
        }
    }
}

fn zeros<T: Copy + Default, const LEN: usize>() -> Box<[T; LEN]> {
    let zeros = vec![T::default(); LEN].into_boxed_slice();
    zeros.try_into().ok().expect("the length is the same")
}
