//! Runs of bytes that two forms of a file have in common.
//!
//! ```text
//! before | the same | ……  | the same  | … | the same |        compared from both ends first;
//! now    | the same | …… …… | the same  | the same |          what is between, by chunks that its content delimits
//! ```
//!
//! A chunk of the new form that the old one has as well is compared, and followed in both directions as far as both are equal.
//! There are never more chunks than a table of fixed size holds: the longer the file, the longer they are.

use std::collections::HashMap;

use crate::Error;
use crate::look::Look;
use crate::parts::{Chunker, Pair, by_steps};
use crate::ranges::Ranges;
use crate::source::OpenFile;

/// Most chunks of a file that are known.
const KNOWN_MAX: u64 = 1 << 16;

/// The lengths of chunks on average.
const AVERAGE_MIN: u64 = 1 << 10;
const AVERAGE_MAX: u64 = 512 << 10;

/// Bytes that are read at once, at least; there are as many of the average chunks in them.
const PIECE_BYTES_MIN: u64 = 1 << 20;
const PIECE_CHUNKS: u64 = 16;

/// Bytes after which somebody may have cancelled.
const STEP_BYTES: u64 = 16 << 20;

/// Bytes that both forms have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Equal {
    /// The first byte in the new form.
    pub at: u64,
    /// The first byte in the old form.
    pub from: u64,
    pub len: u64,
}

impl Equal {
    /// The end in the new form.
    pub const fn end(&self) -> u64 {
        self.at + self.len
    }
}

/// A form of a file, and its length.
pub(super) type Form<'a> = (OpenFile<'a>, u64);

/// The runs that two forms have in common, in the order of the new one.
pub(super) fn runs(
    look: &Look<'_>,
    (new, size): Form<'_>,
    (old, old_size): Form<'_>,
) -> Result<Vec<Equal>, Error> {
    let mut search = Search::new(look, new, old);
    let most = size.min(old_size);
    let front = search.ahead(0, 0, most)?;
    let end = search.back(size, old_size, most - front)?;
    search.push(0, 0, front);
    search.between(front..size - end, front..old_size - end)?;
    search.push(size - end, old_size - end, end);
    search.finish()
}

/// The runs that two forms have in common at the same place, where one of them has data in these parts alone. What is a hole in
/// both is not read.
pub(super) fn in_place(
    look: &Look<'_>,
    (new, size): Form<'_>,
    (old, old_size): Form<'_>,
    data: &Ranges,
) -> Result<Vec<Equal>, Error> {
    let mut search = Search::new(look, new, old);
    let block_bytes = u64::from(look.options.block_bytes());
    let most = size.min(old_size);
    let mut done = 0;
    for part in data.within(0..most) {
        search.push(done, done, part.start - done);
        let mut at = part.start;
        while at < part.end {
            let same = search.ahead(at, at, part.end - at)?;
            search.push(at, at, same);
            // The block that differs is left out.
            at = ((at + same) / block_bytes + 1) * block_bytes;
        }
        done = part.end;
    }
    search.push(done, done, most - done);
    search.finish()
}

/// Two forms of a file that are compared.
struct Search<'a> {
    look: &'a Look<'a>,
    pair: Pair<'a>,
    old: OpenFile<'a>,
    found: Vec<Equal>,
    /// Reused from piece to piece.
    bytes: Vec<u8>,
}

type Bytes = std::ops::Range<u64>;

impl<'a> Search<'a> {
    fn new(look: &'a Look<'a>, new: OpenFile<'a>, old: OpenFile<'a>) -> Self {
        Self {
            look,
            pair: Pair::new(new),
            old,
            found: Vec::new(),
            bytes: Vec::new(),
        }
    }

    /// Makes sure that nobody has changed the forms meanwhile, and returns the runs.
    fn finish(self) -> Result<Vec<Equal>, Error> {
        self.pair.finish()?;
        self.old.finish()?;
        Ok(self.found)
    }

    fn push(&mut self, at: u64, from: u64, len: u64) {
        match self.found.last_mut() {
            _ if len == 0 => {}
            Some(last) if last.end() == at && last.from + last.len == from => last.len += len,
            _ => self.found.push(Equal { at, from, len }),
        }
    }

    /// The bytes that are the same from two places on.
    fn ahead(&mut self, at: u64, from: u64, limit: u64) -> Result<u64, Error> {
        by_steps(limit, STEP_BYTES, |same, step| {
            self.look.check_cancelled()?;
            self.pair.ahead(at + same, &self.old, from + same, step)
        })
    }

    /// The bytes that are the same in front of two places.
    fn back(&mut self, at: u64, from: u64, limit: u64) -> Result<u64, Error> {
        by_steps(limit, STEP_BYTES, |same, step| {
            self.look.check_cancelled()?;
            self.pair.back(at - same, &self.old, from - same, step)
        })
    }

    /// Looks for what parts of both forms have in common.
    fn between(&mut self, new: Bytes, old: Bytes) -> Result<(), Error> {
        if new.is_empty() || old.is_empty() {
            return Ok(());
        }
        let average = average(old.end - old.start);
        let known = self.known(&old, average)?;
        let mut done = new.start;
        for piece in pieces(&new, average) {
            if piece.end <= done {
                continue;
            }
            for (at, len, hash) in self.chunks(&piece, average, true)? {
                let chunk_end = at + len;
                if at < done || chunk_end > new.end {
                    continue;
                }
                let shift = self.found.last().map(|last| (last.at, last.from));
                let Some(from) = known.find(at, hash, shift) else {
                    continue;
                };
                let limit = (new.end - at).min(old.end - from);
                let ahead = self.ahead(at, from, limit)?;
                if ahead < len {
                    continue; // another chunk with the same hash
                }
                let back = self.back(at, from, (at - done).min(from - old.start))?;
                self.push(at - back, from - back, back + ahead);
                done = at + ahead;
            }
        }
        Ok(())
    }

    /// The chunks of a part of the old form.
    fn known(&mut self, old: &Bytes, average: u64) -> Result<Known, Error> {
        let mut known = Known::default();
        for piece in pieces(old, average) {
            for (at, _, hash) in self.chunks(&piece, average, false)? {
                known.add(at, hash);
            }
        }
        Ok(known)
    }

    /// The chunks of a piece of either form that their content delimits: place, length, hash.
    fn chunks(
        &mut self,
        piece: &Bytes,
        average: u64,
        is_new: bool,
    ) -> Result<Vec<(u64, u64, u64)>, Error> {
        self.look.check_cancelled()?;
        self.bytes.resize((piece.end - piece.start) as usize, 0);
        match is_new {
            true => self.pair.read_own(piece.start, &mut self.bytes)?,
            false => self.old.read(piece.start, &mut self.bytes)?,
        }
        let mut at = piece.start;
        let chunks = Chunker::new(average as usize).chunks(&self.bytes, 0);
        let placed = chunks.filter_map(|chunk| {
            let (start, len) = (at, u64::from(chunk.len));
            at += len;
            Some((start, len, chunk.hash?))
        });
        Ok(placed.collect())
    }
}

/// The average length of chunks of so many bytes.
fn average(bytes: u64) -> u64 {
    let few = bytes.div_ceil(KNOWN_MAX).next_power_of_two();
    few.clamp(AVERAGE_MIN, AVERAGE_MAX)
}

/// The pieces of a part that are read at once.
fn pieces(part: &Bytes, average: u64) -> impl Iterator<Item = Bytes> + use<> {
    let step = PIECE_BYTES_MIN.max(PIECE_CHUNKS * average);
    let end = part.end;
    let starts = (part.start..end).step_by(step as usize);
    starts.map(move |start| start..end.min(start + step))
}

/// Chunks of the old form.
#[derive(Debug, Default)]
struct Known {
    /// The place at which each was seen first.
    first: HashMap<u64, u64>,
    /// All of them, in order.
    all: Vec<(u64, u64)>,
}

impl Known {
    fn add(&mut self, at: u64, hash: u64) {
        if (self.all.len() as u64) < 2 * KNOWN_MAX {
            self.first.entry(hash).or_insert(at);
            self.all.push((at, hash));
        }
    }

    /// A place at which the old form may have a chunk of the new one. Most of what changes stays as far from what is around it, or
    /// from the beginning, as it was.
    fn find(&self, at: u64, hash: u64, last: Option<(u64, u64)>) -> Option<u64> {
        let first = *self.first.get(&hash)?;
        let is_there = |from: &u64| {
            let found = self.all.binary_search_by_key(from, |(at, _)| *at);
            found.is_ok_and(|index| self.all[index].1 == hash)
        };
        let shifted = last.map(|(last, from)| from + (at - last));
        let likely = [shifted, Some(at)].into_iter().flatten();
        let likely = likely.into_iter().find(is_there);
        Some(likely.unwrap_or(first))
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;
    use std::sync::atomic::AtomicBool;

    use super::*;
    use crate::{Options, scan};

    /// The runs of two forms, all of which are equal.
    fn found(now: &[u8], before: &[u8]) -> Vec<Equal> {
        let directory = tempfile::TempDir::new().unwrap();
        fs::write(directory.path().join("1"), now).unwrap();
        fs::write(directory.path().join("2"), before).unwrap();
        let (options, cancel) = (Options::default(), AtomicBool::new(false));
        let image = Path::new("/dev/null");
        let scanned = scan::scan(directory.path(), image, &options, &(), &cancel).unwrap();
        let look = Look {
            source: &scanned.source,
            tree: &scanned.tree,
            options: &options,
            cancel: &cancel,
        };
        let form = |name: &[u8], bytes: &[u8]| {
            let id = scanned.tree.find(name).unwrap();
            let file = scanned.source.open_file(&scanned.tree, id).unwrap();
            (file, bytes.len() as u64)
        };
        let runs = runs(&look, form(b"1", now), form(b"2", before)).unwrap();
        let mut reached = 0;
        for run in &runs {
            assert!(run.at >= reached && run.len > 0, "{runs:?}");
            let part = |bytes: &[u8], at: u64| bytes[at as usize..][..run.len as usize].to_vec();
            assert!(part(now, run.at) == part(before, run.from), "{run:?}");
            reached = run.end();
        }
        runs
    }

    fn noise(seed: u64, len: usize) -> Vec<u8> {
        let mut state = seed;
        let mut next = || {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            (state >> 32) as u8
        };
        (0..len).map(|_| next()).collect()
    }

    #[test]
    fn both_ends_are_found_to_the_byte() {
        let before = noise(1, 100_000);
        let equal = |at, from, len| Equal { at, from, len };
        let mut now = before.clone();
        now[70_000] ^= 1;
        let expected = [equal(0, 0, 70_000), equal(70_001, 70_001, 29_999)];
        assert_eq!(found(&now, &before), expected);
        let now = [&before[..5], b"inserted", &before[5..]].concat();
        assert_eq!(found(&now, &before), [equal(0, 0, 5), equal(13, 5, 99_995)]);
        let now = [&before[..400], &before[500..]].concat();
        assert_eq!(
            found(&now, &before),
            [equal(0, 0, 400), equal(400, 500, 99_500)]
        );
        assert_eq!(found(&before[..9], &before), [equal(0, 0, 9)]);
        let other = found(&noise(2, 50_000), &before);
        assert!(other.iter().all(|run| run.len < 4), "{other:?}");
        // Zeros that become more are found, whatever stands for what.
        let [few, many] = [5000, 90_000].map(|len| vec![0; len]);
        assert_eq!(found(&many, &few), [equal(0, 0, 5000)]);
    }

    #[test]
    fn parts_that_moved_are_found() {
        let before = noise(3, 3_000_000);
        let parts = [2_000_000..2_900_000, 100..1_500_000, 1_500_100..2_000_000];
        let mut now = Vec::new();
        for part in parts {
            now.extend_from_slice(&before[part]);
            now.extend_from_slice(b"new");
        }
        let runs = found(&now, &before);
        let bytes: u64 = runs.iter().map(|run| run.len).sum();
        assert_eq!((bytes, runs.len()), (2_899_800, 3), "{runs:?}");
    }

    #[test]
    fn what_changes_in_many_places_stays_around_them() {
        let before = noise(4, 2_000_000);
        let mut now = before.clone();
        for place in 0..20 {
            let at = 100_000 * place + 777;
            now.splice(at..at + 1, noise(5, place % 3));
        }
        let runs = found(&now, &before);
        let bytes: u64 = runs.iter().map(|run| run.len).sum();
        assert!(now.len() as u64 - bytes < 50, "{bytes}");
        assert!((20..30).contains(&runs.len()), "{}", runs.len());
    }

    #[test]
    fn there_are_no_more_chunks_than_a_table_holds() {
        assert_eq!(average(0), 1 << 10);
        assert_eq!(average(64 << 20), 1 << 10);
        assert_eq!(average(1 << 30), 16 << 10);
        assert_eq!(average(1 << 50), 512 << 10);
        let mut known = Known::default();
        (0..5 << 16).for_each(|n| known.add(n, n));
        assert_eq!(known.all.len() as u64, 2 * KNOWN_MAX);
    }
}
