//! Runs of chunks that occurred before in the same order.

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use super::chunker::Chunk;

/// Most chunks that are known at once, and most runs: some 16 MiB and 24 MiB.
pub(super) const KNOWN_MAX: usize = 7 << 17;
const RUNS_MAX: usize = 1 << 20;

/// Bytes that occurred before. Positions are those of all content that is looked at, one file behind the other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Run {
    pub at: u64,
    /// The position at which they are found first, in front of `at`.
    pub from: u64,
    pub len: u64,
}

/// Finds runs among chunks that are told in order.
#[derive(Debug, Default)]
pub(super) struct Matches {
    /// The positions at which a chunk with this hash was seen first, and last.
    known: HashMap<u64, [u64; 2]>,
    /// The end of the last chunk.
    at: u64,
    runs: Vec<Run>,
}

impl Matches {
    /// Adds the next chunk.
    pub fn add(&mut self, chunk: Chunk) {
        let (at, len) = (self.at, u64::from(chunk.len));
        self.at += len;
        let Some(hash) = chunk.hash else { return };
        let is_full = self.known.len() >= KNOWN_MAX;
        let seen = match self.known.entry(hash) {
            Entry::Occupied(mut seen) => {
                let [first, last] = *seen.get();
                seen.insert([first, at]);
                [first, last]
            }
            Entry::Vacant(_) if is_full => return,
            Entry::Vacant(place) => {
                place.insert([at; 2]);
                return;
            }
        };
        self.found(at, seen, len);
    }

    /// Has the last run go on, if it can; else a new one begins where the chunk was seen first, so that one cut there does
    /// for all that share it.
    fn found(&mut self, at: u64, seen: [u64; 2], len: u64) {
        let is_full = self.runs.len() >= RUNS_MAX;
        let goes_on =
            |run: &&mut Run| run.at + run.len == at && seen.contains(&(run.from + run.len));
        match self.runs.last_mut().filter(goes_on) {
            Some(run) => run.len += len,
            None if is_full => {}
            None => self.runs.push(Run {
                at,
                from: seen[0],
                len,
            }),
        }
    }

    /// All runs, by where they are.
    pub fn finish(self) -> Vec<Run> {
        self.runs
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chunks_that_follow_each_other_in_both_places_are_one_run() {
        let mut matches = Matches::default();
        for hash in [1, 2, 3, 9, 0, 2, 3, 8, 3, 1, 2] {
            let hash = (hash > 0).then_some(hash);
            matches.add(Chunk { len: 10, hash });
        }
        let run = |at, from, len| Run { at, from, len };
        let expected = [run(50, 10, 20), run(80, 20, 10), run(90, 0, 20)];
        assert_eq!(matches.finish(), expected);
    }
}
