//! Reads of one round of a program, as they come.

use std::collections::{BTreeMap, HashMap};

use super::range::{Profile, Range};
use super::text::RANGES_MAX;

/// Reads of one round. A byte counts when it is read first; what continues the range before it is joined to that.
#[derive(Debug, Default)]
pub struct Round {
    /// The bytes of a file that were read: starts and ends of ranges that neither overlap nor touch.
    files: HashMap<u64, BTreeMap<u64, u64>>,
    /// Ranges in the order in which they were read first: file, start, end.
    ranges: Vec<(u64, u64, u64)>,
    dropped: u64,
}

impl Round {
    /// Notes a read of a file, which `file` names. When there is no room for another range, nothing more is noted.
    pub fn note(&mut self, file: u64, offset: u64, len: u64) {
        if self.ranges.len() >= RANGES_MAX {
            self.dropped += 1;
            return;
        }
        let covered = self.files.entry(file).or_default();
        let end = offset.saturating_add(len);
        for (start, end) in cover(covered, offset, end) {
            let is_full = self.ranges.len() >= RANGES_MAX;
            match self.ranges.last_mut() {
                Some(last) if (last.0, last.2) == (file, start) => last.2 = end,
                _ if is_full => self.dropped += 1,
                _ => self.ranges.push((file, start, end)),
            }
        }
    }

    /// Returns how many reads came when there was no room any more.
    pub fn dropped(&self) -> u64 {
        self.dropped
    }

    /// Returns the numbers of the files that were read, in no order.
    pub fn files(&self) -> impl Iterator<Item = u64> {
        self.files.keys().copied()
    }

    /// Makes a profile of the round. Files that `path` does not know are left out.
    pub fn profile<'a>(&self, path: impl Fn(u64) -> Option<&'a [u8]>) -> Profile {
        let ranges = self.ranges.iter().filter_map(|&(file, start, end)| {
            Some(Range {
                path: path(file)?.to_vec(),
                offset: start,
                len: end - start,
                count: 1,
                digest: None,
            })
        });
        Profile {
            rounds: 1,
            ranges: ranges.collect(),
        }
    }
}

/// Adds the bytes from `start` to `end` to those that are covered, and returns which of them are new.
fn cover(covered: &mut BTreeMap<u64, u64>, start: u64, end: u64) -> Vec<(u64, u64)> {
    let mut new = Vec::new();
    if start >= end {
        return new;
    }
    let (mut first, mut last, mut at) = (start, end, start);
    let before = covered.range(..start).next_back();
    if let Some((&from, &to)) = before.filter(|&(_, &to)| to >= start) {
        (first, last, at) = (from, last.max(to), to);
    }
    while let Some((&from, &to)) = covered.range(start..=end).next() {
        covered.remove(&from);
        if from > at {
            new.push((at, from));
        }
        at = at.max(to);
        last = last.max(to);
    }
    if at < end {
        new.push((at, end));
    }
    covered.insert(first, last);
    new
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ranges(round: &Round) -> Vec<(u8, u64, u64)> {
        let names: [&[u8]; 2] = [b"0", b"1"];
        let profile = round.profile(|file| names.get(file as usize).copied());
        let range = |range: &Range| (range.path[0] - b'0', range.offset, range.len);
        profile.ranges.iter().map(range).collect()
    }

    #[test]
    fn a_byte_counts_when_it_is_read_first() {
        let mut round = Round::default();
        for (file, offset, len) in [
            (0, 10, 10),
            (0, 20, 10),
            (1, 0, 5),
            (0, 0, 40),
            (0, 15, 3),
            (1, 7, 0),
            (2, 0, 9),
        ] {
            round.note(file, offset, len);
        }
        let expected = [(0, 10, 20), (1, 0, 5), (0, 0, 10), (0, 30, 10)];
        assert_eq!(ranges(&round), expected);
        let mut files: Vec<u64> = round.files().collect();
        files.sort_unstable();
        assert_eq!(files, [0, 1, 2]);
    }

    #[test]
    fn the_end_of_all_numbers_is_no_obstacle() {
        let mut round = Round::default();
        round.note(0, u64::MAX - 1, 100);
        round.note(0, 0, u64::MAX);
        round.note(0, u64::MAX, u64::MAX);
        assert_eq!(ranges(&round), [(0, u64::MAX - 1, 1), (0, 0, u64::MAX - 1)]);
    }

    #[test]
    fn ranges_have_a_limit() {
        let mut round = Round::default();
        for n in 0..RANGES_MAX as u64 + 5 {
            round.note(0, 2 * n, 1);
        }
        assert_eq!(round.dropped(), 5);
        assert_eq!(round.profile(|_| Some(b"/a")).ranges.len(), RANGES_MAX);
    }

    /// Compares with a set of bytes.
    #[test]
    fn any_reads_are_what_their_bytes_are() {
        let mut state = 7_u64;
        let mut random = |below: u64| {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            (state >> 33) % below
        };
        for _ in 0..300 {
            let mut round = Round::default();
            let mut bytes: Vec<(u8, u64)> = Vec::new();
            for _ in 0..random(20) {
                let (file, offset, len) = (random(2), random(40), random(12));
                round.note(file, offset, len);
                for byte in offset..offset + len {
                    if !bytes.contains(&(file as u8, byte)) {
                        bytes.push((file as u8, byte));
                    }
                }
            }
            let ranges = ranges(&round);
            let each = ranges.iter();
            let each = each.flat_map(|&(file, at, len)| (at..at + len).map(move |b| (file, b)));
            assert_eq!(each.collect::<Vec<_>>(), bytes);
        }
    }
}
