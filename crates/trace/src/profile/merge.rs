//! Several profiles to one.
//!
//! Ranges of one file may overlap in any way. So the merge goes over each file once, from one end of a range to the
//! next. Between two ends, the same ranges cover all bytes, and the sum of their counts is the count of a piece. Within
//! one profile, of ranges that overlap the largest count holds, for a round does not read a byte more than once.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use super::digest::Digest;
use super::range::{Profile, Range};
use super::turn::Turn;

/// Merges profiles of rounds, of one program or of several: rounds and counts are added up. What all rounds read comes first,
/// then what most did, and so on ([`Turn`]), each in the order of the first profile that has it. A digest stays where a range is still the one that it
/// was computed of and no profile has another one. Empty ranges are left out.
pub fn merge(profiles: &[Profile]) -> Profile {
    let rounds = profiles
        .iter()
        .fold(0_u64, |sum, profile| sum.saturating_add(profile.rounds));
    let mut files: HashMap<&[u8], File<'_>> = HashMap::new();
    for (profile, Profile { ranges, .. }) in profiles.iter().enumerate() {
        for (position, range) in ranges.iter().enumerate() {
            if range.end() > range.offset {
                let file = files.entry(&range.path).or_default();
                file.add((profile, position), range);
            }
        }
    }
    let mut pieces: Vec<Piece<'_>> = files
        .iter()
        .flat_map(|(path, file)| file.pieces(path))
        .collect();
    pieces.sort_unstable_by_key(|piece| piece.position(rounds));
    Profile {
        rounds,
        ranges: join(&pieces, &files),
    }
}

/// The profile that has a range, and where it stands there.
type Place = (usize, usize);

/// Ranges of a file.
#[derive(Default)]
struct File<'a> {
    ranges: Vec<(Place, &'a Range)>,
    /// Digests of ranges, by their ends; `None` where profiles do not agree.
    digests: HashMap<(u64, u64), Option<Digest>>,
}

/// Bytes of a file that the same ranges cover.
struct Piece<'a> {
    path: &'a [u8],
    start: u64,
    end: u64,
    count: u64,
    first: Place,
}

impl Piece<'_> {
    /// The position in a profile of so many rounds.
    fn position(&self, rounds: u64) -> (bool, Turn<(Place, u64)>) {
        let turn = Turn::new(self.count, (self.first, self.start));
        (self.count < rounds, turn)
    }
}

/// The ranges that cover one byte.
#[derive(Default)]
struct Cover {
    places: BTreeSet<Place>,
    /// The number of ranges of a profile with a count.
    counts: BTreeMap<usize, BTreeMap<u64, usize>>,
    /// The sum of the largest counts of all profiles.
    sum: u128,
}

impl<'a> File<'a> {
    fn add(&mut self, place: Place, range: &'a Range) {
        self.ranges.push((place, range));
        if let Some(digest) = range.digest {
            let known = self.digests.entry((range.offset, range.end()));
            let known = known.or_insert(Some(digest));
            *known = known.filter(|&known| known == digest);
        }
    }

    /// Cuts the ranges at all of their ends.
    fn pieces(&self, path: &'a [u8]) -> Vec<Piece<'a>> {
        let mut ends: Vec<(u64, bool, Place, u64)> = Vec::with_capacity(2 * self.ranges.len());
        for &(place, range) in &self.ranges {
            ends.push((range.offset, true, place, range.count));
            ends.push((range.end(), false, place, range.count));
        }
        ends.sort_unstable();
        let mut pieces = Vec::new();
        let mut cover = Cover::default();
        let mut start = 0;
        for (at, begins, place, count) in ends {
            if let Some(&first) = cover.places.first().filter(|_| at > start) {
                pieces.push(Piece {
                    path,
                    start,
                    end: at,
                    count: u64::try_from(cover.sum).unwrap_or(u64::MAX),
                    first,
                });
            }
            start = at;
            cover.change(begins, place, count);
        }
        pieces
    }
}

impl Cover {
    fn change(&mut self, begins: bool, place: Place, count: u64) {
        let counts = self.counts.entry(place.0).or_default();
        self.sum -= u128::from(largest(counts));
        let number = counts.entry(count).or_default();
        if begins {
            *number += 1;
            self.places.insert(place);
        } else {
            *number -= 1;
            if *number == 0 {
                counts.remove(&count);
            }
            self.places.remove(&place);
        }
        self.sum += u128::from(largest(counts));
    }
}

fn largest(counts: &BTreeMap<u64, usize>) -> u64 {
    counts.last_key_value().map_or(0, |(&count, _)| count)
}

/// Joins pieces that follow each other in the order and in their file, but for those that have a digest of their own.
fn join(pieces: &[Piece<'_>], files: &HashMap<&[u8], File<'_>>) -> Vec<Range> {
    let digest = |path: &[u8], start, end| {
        let file = files.get(path)?;
        file.digests.get(&(start, end)).copied().flatten()
    };
    let stays = |piece: &Piece<'_>| digest(piece.path, piece.start, piece.end).is_some();
    let follows = |last: &Piece<'_>, piece: &Piece<'_>| {
        (last.path, last.end, last.count) == (piece.path, piece.start, piece.count)
            && !stays(last)
            && !stays(piece)
    };
    let groups = pieces.chunk_by(follows);
    groups
        .filter_map(|group| {
            let (first, last) = (group.first()?, group.last()?);
            Some(Range {
                path: first.path.to_vec(),
                offset: first.start,
                len: last.end - first.start,
                count: first.count,
                digest: digest(first.path, first.start, last.end),
            })
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn range(path: &str, offset: u64, len: u64, count: u64) -> Range {
        Range {
            path: path.into(),
            offset,
            len,
            count,
            digest: None,
        }
    }

    fn profile(rounds: u64, ranges: &[Range]) -> Profile {
        let ranges = ranges.to_vec();
        Profile { rounds, ranges }
    }

    #[test]
    fn rounds_and_counts_are_added_up_and_the_core_comes_first() {
        let first = profile(
            1,
            &[
                range("/rare", 0, 10, 1),
                range("/b", 0, 8192, 1),
                range("/a", 0, 10, 1),
            ],
        );
        let second = profile(
            2,
            &[
                range("/a", 0, 10, 2),
                range("/b", 4096, 8192, 2),
                range("/z", 0, 1, 1),
            ],
        );
        let merged = merge(&[first.clone(), second]);
        let expected = [
            range("/b", 4096, 4096, 3),
            range("/a", 0, 10, 3),
            range("/b", 8192, 4096, 2),
            range("/rare", 0, 10, 1),
            range("/b", 0, 4096, 1),
            range("/z", 0, 1, 1),
        ];
        assert_eq!(merged, profile(3, &expected));
        assert_eq!(merge(std::slice::from_ref(&first)), first);
        assert_eq!(merge(&[]), Profile::default());
    }

    #[test]
    fn a_round_reads_no_byte_twice() {
        let overlapping = profile(
            1,
            &[
                range("/a", 0, 100, 1),
                range("/a", 50, 100, 1),
                range("/a", 7, 0, 1),
            ],
        );
        let merged = merge(&[overlapping]);
        assert_eq!(merged, profile(1, &[range("/a", 0, 150, 1)]));
    }

    #[test]
    fn pieces_of_one_count_are_joined_again() {
        let whole = profile(1, &[range("/a", 0, 100, 1)]);
        let halves = profile(1, &[range("/a", 0, 50, 1), range("/a", 50, 50, 1)]);
        let expected = profile(2, &[range("/a", 0, 100, 2)]);
        assert_eq!(merge(&[whole.clone(), halves.clone()]), expected);
        assert_eq!(merge(&[halves, whole]), expected);
    }

    #[test]
    fn digests_stay_where_ranges_do_and_profiles_agree() {
        let with = |digest: &[u8]| Range {
            digest: Some(Digest::of(digest)),
            ..range("/a", 0, 100, 1)
        };
        let next = Range {
            digest: Some(Digest::of(b"next")),
            ..range("/a", 100, 100, 1)
        };
        let one = profile(1, &[with(b"one"), next.clone()]);
        let merged = merge(&[one.clone(), profile(1, &[range("/a", 0, 200, 1)])]);
        let digests =
            |profile: &Profile| profile.ranges.iter().map(|r| r.digest).collect::<Vec<_>>();
        assert_eq!(digests(&merged), [with(b"one").digest, next.digest]);
        let other = merge(&[one.clone(), profile(1, &[with(b"other")])]);
        assert_eq!(digests(&other), [None, next.digest]);
        let cut = merge(&[one, profile(1, &[range("/a", 50, 50, 1)])]);
        assert_eq!(digests(&cut), [None, None, next.digest]);
    }

    #[test]
    fn the_largest_numbers_do_not_overflow() {
        let far = |count| range("/a", u64::MAX - 1, u64::MAX, count);
        let most = profile(u64::MAX, &[far(u64::MAX), range("/a", 0, u64::MAX, 1)]);
        let merged = merge(&[most.clone(), most]);
        assert_eq!(merged.rounds, u64::MAX);
        let expected = [
            range("/a", u64::MAX - 1, 1, u64::MAX),
            range("/a", 0, u64::MAX - 1, 2),
        ];
        assert_eq!(merged.ranges, expected);
    }

    /// Compares the merge with one that counts each byte by itself.
    #[test]
    fn any_ranges_are_merged_as_bytes_are() {
        let mut state = 1_u64;
        let mut random = |below: u64| {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            (state >> 33) % below
        };
        for _ in 0..200 {
            let profiles: Vec<Profile> = (0..3)
                .map(|_| {
                    let ranges = (0..random(8)).map(|_| {
                        let path = if random(2) == 0 { "/a" } else { "/b" };
                        range(path, random(20), random(10), 1 + random(3))
                    });
                    let ranges = ranges.collect();
                    Profile { rounds: 3, ranges }
                })
                .collect();
            let merged = merge(&profiles);
            for path in ["/a", "/b"] {
                let covers = |range: &&Range, byte| {
                    range.path == path.as_bytes() && (range.offset..range.end()).contains(&byte)
                };
                for byte in 0..40 {
                    let count = |profile: &Profile| {
                        let ranges = profile.ranges.iter().filter(|r| covers(r, byte));
                        ranges.map(|range| range.count).max().unwrap_or(0)
                    };
                    let expected: u64 = profiles.iter().map(count).sum();
                    assert_eq!(count(&merged), expected, "{path} {byte}: {profiles:?}");
                    let ranges = merged.ranges.iter().filter(|r| covers(r, byte)).count();
                    assert!(ranges <= 1, "{path} {byte}: {merged:?}");
                }
            }
        }
    }
}
