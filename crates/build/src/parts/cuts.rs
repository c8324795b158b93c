//! The cuts of files, so that a part of one can be what an earlier part of the tree is.
//!
//! ```text
//! earlier file   |  own …      | own …                         |
//!                0             from (a block begins)
//!                              |  the same content     |
//! later file     |  own …      |  shared               |  own …  |
//!                0             start (any byte)        end (any byte)
//! ```
//!
//! A pcluster can be shared from its beginning on alone, so the earlier file is cut where the shared part begins, at a
//! block of its own; several later files that go on there need one cut. How far the last pcluster is used does not matter
//! to the earlier file. Where the earlier file shares parts itself, the later one shares them with whoever has them first.

use std::collections::{BTreeSet, HashMap};
use std::ops::Range;

use crate::tree::NodeId;

/// Blocks that lie at least between two cuts: one compressed extent, whatever its length, and its neighbour.
const APART_BLOCKS: u64 = 2;

/// Bytes that stand in two places, as many as are equal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Match {
    pub node: NodeId,
    pub at: u64,
    /// The file that has them first: the same one or one in front of it.
    pub source: NodeId,
    pub from: u64,
    pub len: u64,
}

/// A part of a file that is stored as a part of the same or of an earlier one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Shared {
    pub start: u64,
    pub end: u64,
    /// The file that has it; in a patch the same one, as the image has it.
    pub source: NodeId,
    /// The byte of the source at which it begins; in a patch that of the file as it will be.
    pub from: u64,
}

/// A part of a file from a byte to another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Part {
    pub start: u64,
    pub end: u64,
    /// The part that it is stored as; `None` if it is stored on its own.
    pub shared: Option<Shared>,
}

/// The cuts of a file.
#[derive(Debug, Default)]
pub(crate) struct Cuts {
    /// Side by side or apart, in order.
    shared: Vec<Shared>,
    /// Bytes at which parts begin that others share.
    begins: BTreeSet<u64>,
}

impl Cuts {
    /// The cuts of a file of which these parts, in order, are shared.
    pub const fn sharing(shared: Vec<Shared>) -> Self {
        Self {
            shared,
            begins: BTreeSet::new(),
        }
    }

    /// Returns whether a part of the file is stored as another.
    pub fn is_sharing(&self) -> bool {
        !self.shared.is_empty()
    }

    /// Returns whether the file is not cut.
    fn is_empty(&self) -> bool {
        self.shared.is_empty() && self.begins.is_empty()
    }

    /// Bytes that are stored as others.
    fn shared_bytes(&self) -> u64 {
        self.shared.iter().map(|part| part.end - part.start).sum()
    }

    /// The parts of the file, side by side.
    pub fn parts(&self, size: u64) -> Vec<Part> {
        let mut parts = Vec::new();
        let mut at = 0;
        for shared in &self.shared {
            self.own(at, shared.start, &mut parts);
            let Shared { start, end, .. } = *shared;
            parts.push(Part {
                start,
                end,
                shared: Some(*shared),
            });
            at = end;
        }
        self.own(at, size, &mut parts);
        parts
    }

    fn own(&self, start: u64, end: u64, parts: &mut Vec<Part>) {
        if start == end {
            return;
        }
        let mut at = start;
        for &cut in self.begins.range(start + 1..end).chain([&end]) {
            parts.push(Part {
                start: at,
                end: cut,
                shared: None,
            });
            at = cut;
        }
    }

    /// The files that store a part of this one, which has `size` bytes, and where.
    pub fn owners(&self, id: NodeId, range: &Range<u64>, size: u64) -> Vec<(NodeId, Range<u64>)> {
        let mut owners = Vec::new();
        for part in self.parts(size) {
            let (start, end) = (range.start.max(part.start), range.end.min(part.end));
            if start < end {
                owners.push(match part.shared {
                    None => (id, start..end),
                    Some(shared) => {
                        let from = |at| shared.from + (at - shared.start);
                        (shared.source, from(start)..from(end))
                    }
                });
            }
        }
        owners
    }

    /// The last cut at or in front of a byte that no shared part covers; a shared part that does.
    fn before(&self, at: u64) -> Result<u64, Shared> {
        let index = self.shared.partition_point(|shared| shared.start <= at);
        let behind = match index.checked_sub(1).map(|last| self.shared[last]) {
            Some(last) if at < last.end => return Err(last),
            last => last.map_or(0, |last| last.end),
        };
        let begin = self.begins.range(..=at).next_back();
        Ok(begin.copied().unwrap_or(0).max(behind))
    }

    /// Returns whether a part begins at a byte that is stored on its own.
    fn has_begin(&self, at: u64) -> bool {
        let ends_there = || self.shared.binary_search_by_key(&at, |shared| shared.end);
        at == 0 || self.begins.contains(&at) || ends_there().is_ok()
    }

    /// The first shared part behind a byte.
    fn shared_behind(&self, at: u64) -> Option<Shared> {
        let index = self.shared.partition_point(|shared| shared.start <= at);
        self.shared.get(index).copied()
    }
}

/// Decides, match after match, what is shared.
#[derive(Debug)]
pub(super) struct Planner {
    block_bytes: u64,
    /// Bytes that are worth a cut.
    least: u64,
    files: HashMap<NodeId, Cuts>,
}

impl Planner {
    pub fn new(block_bytes: u64, least: u64) -> Self {
        Self {
            block_bytes,
            least,
            files: HashMap::new(),
        }
    }

    /// Adds a match, behind those that are already there.
    pub fn add(&mut self, found: &Match) {
        for found in self.owned(found) {
            self.add_owned(&found);
        }
    }

    /// Splits a match where its source shares parts: of these the source is the one that they are stored as.
    fn owned(&self, found: &Match) -> Vec<Match> {
        let end = found.from + found.len;
        let mut owned = Vec::new();
        let mut at = found.from;
        let mut push = |source: NodeId, first: u64, start: u64, end: u64| {
            if start < end {
                owned.push(Match {
                    at: found.at + (start - found.from),
                    source,
                    from: first,
                    len: end - start,
                    ..*found
                });
            }
        };
        self.cuts(found.source, |cuts| {
            let first = cuts.shared.partition_point(|shared| shared.end <= at);
            for shared in &cuts.shared[first..] {
                if shared.start >= end {
                    break;
                }
                push(found.source, at, at, shared.start);
                let start = at.max(shared.start);
                at = shared.end.min(end);
                push(
                    shared.source,
                    shared.from + (start - shared.start),
                    start,
                    at,
                );
            }
        });
        push(found.source, at, at, end);
        owned
    }

    /// Adds a match whose source shares no part of it.
    fn add_owned(&mut self, found: &Match) {
        let Some(shared) = self.fit(found) else {
            return;
        };
        let source = self.files.entry(shared.source).or_default();
        source.begins.insert(shared.from);
        let file = self.files.entry(found.node).or_default();
        file.shared.push(shared);
    }

    /// Returns the cuts. A file shares nothing if so many bytes of it are not worth it.
    pub fn finish(mut self, is_worth_it: impl Fn(NodeId, u64) -> bool) -> HashMap<NodeId, Cuts> {
        for (id, cuts) in &mut self.files {
            cuts.begins.clear();
            if !is_worth_it(*id, cuts.shared_bytes()) {
                cuts.shared.clear();
            }
        }
        let shared = self.files.values().flat_map(|cuts| &cuts.shared);
        let begins: Vec<_> = shared.map(|part| (part.source, part.from)).collect();
        for (source, from) in begins {
            self.files.entry(source).or_default().begins.insert(from);
        }
        self.files.retain(|_, cuts| !cuts.is_empty());
        self.files
    }

    /// The part of a match that is shared.
    fn fit(&self, found: &Match) -> Option<Shared> {
        let before = self.cuts(found.node, |cuts| {
            cuts.shared.last().map_or(0, |last| last.end)
        });
        let from_of = |start: u64| found.from + (start - found.at);
        let is_adjacent = found.at <= before
            && before < found.at + found.len
            && self.may_begin(found.source, from_of(before));
        let from = match is_adjacent {
            true => from_of(before),
            false => {
                let start = found.at.max(before + self.apart());
                self.begin(found.source, from_of(start))
            }
        };
        let start = found.at + (from - found.from);
        let end = self.end(found, start, from)?;
        let least = match self.has_cut(found.source, from) {
            true => self.block_bytes,
            false => self.least,
        };
        let is_enough = start < end && end - start >= least;
        is_enough.then_some(Shared {
            start,
            end,
            source: found.source,
            from,
        })
    }

    /// Returns whether a file has a cut at a byte, or may get one.
    fn may_begin(&self, node: NodeId, at: u64) -> bool {
        self.has_cut(node, at) || self.begin(node, at) == at
    }

    /// Returns whether a pcluster of a file begins at a byte in any case.
    fn has_cut(&self, node: NodeId, at: u64) -> bool {
        at == 0 || self.cuts(node, |cuts| cuts.has_begin(at))
    }

    /// Returns where a shared part ends that begins at byte `start` of a file and `from` of the source.
    fn end(&self, found: &Match, start: u64, from: u64) -> Option<u64> {
        let mut end = found.at + found.len;
        if let Some(next) = self.cuts(found.source, |cuts| cuts.shared_behind(from)) {
            end = end.min(start.checked_add(next.start - from)?);
        }
        if found.source == found.node {
            end = end.min(start + start.checked_sub(from)?);
        }
        Some(end)
    }

    /// The first byte from `at` on where a file has a cut, or may get one.
    fn begin(&self, source: NodeId, at: u64) -> u64 {
        let aligned = |at: u64| at.next_multiple_of(self.block_bytes);
        let Some(cuts) = self.files.get(&source) else {
            return self.apart_from(0, aligned(at));
        };
        let mut at = aligned(at);
        loop {
            let next = match cuts.before(at) {
                Err(shared) => aligned(shared.end),
                Ok(before) => aligned(self.apart_from(before, at)),
            };
            let cut = cuts.begins.range(next..).next();
            let shared = cuts.shared_behind(next);
            let is_near = |cut: u64| cut - next < self.apart();
            let next = match (cut, shared) {
                (Some(&cut), _) if is_near(cut) && cuts.before(cut) == Ok(cut) => cut,
                (_, Some(shared)) if is_near(shared.start) => aligned(shared.end),
                _ => next,
            };
            if next == at {
                return at;
            }
            at = next;
        }
    }

    /// A byte, or the first one behind it that is far enough from the cut in front.
    fn apart_from(&self, before: u64, at: u64) -> u64 {
        match at == before {
            true => at,
            false => at.max(before + self.apart()),
        }
    }

    const fn apart(&self) -> u64 {
        APART_BLOCKS * self.block_bytes
    }

    fn cuts<T: Default>(&self, node: NodeId, look: impl FnOnce(&Cuts) -> T) -> T {
        self.files.get(&node).map_or_else(T::default, look)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BLOCK: u64 = 4096;
    const LEAST: u64 = 4 * BLOCK;

    fn shared(start: u64, end: u64, source: NodeId, from: u64) -> Shared {
        Shared {
            start,
            end,
            source,
            from,
        }
    }

    fn found(node: NodeId, at: u64, source: NodeId, from: u64, len: u64) -> Match {
        Match {
            node,
            at,
            source,
            from,
            len,
        }
    }

    fn planned(matches: &[Match]) -> HashMap<NodeId, Cuts> {
        let mut planner = Planner::new(BLOCK, LEAST);
        matches.iter().for_each(|found| planner.add(found));
        planner.finish(|_, _| true)
    }

    #[test]
    fn a_file_that_shares_too_little_shares_nothing() {
        let mut planner = Planner::new(BLOCK, LEAST);
        planner.add(&found(2, 100_000, 1, 8192, 20_000));
        planner.add(&found(3, 90_112, 2, 90_112, 500_000));
        planner.add(&found(4, 0, 1, 40_960, 20_000));
        let files = planner.finish(|_, bytes| bytes > 20_000);
        // What the third file has from the second one goes on behind what that has now itself.
        assert_eq!(
            files[&3].shared,
            [
                shared(100_000, 120_000, 1, 8192),
                shared(120_000, 590_112, 2, 120_000)
            ]
        );
        assert_eq!(files[&2].begins, BTreeSet::from([120_000]));
        assert_eq!(files[&1].begins, BTreeSet::from([8192]));
        assert!(!files.contains_key(&4) && !files[&2].is_sharing());
    }

    #[test]
    fn parts_have_owners() {
        let files = planned(&[found(2, 98_304, 1, 8192, 100_000)]);
        let owners = files[&2].owners(2, &(90_112..110_592), 1_000_000);
        assert_eq!(owners, [(2, 90_112..98_304), (1, 8192..20_480)]);
    }

    #[test]
    fn a_source_is_cut_at_a_block() {
        let files = planned(&[found(2, 10_000, 1, 5000, 100_000)]);
        assert_eq!(files[&2].shared, [shared(13_192, 110_000, 1, 8192)]);
        assert_eq!(files[&1].begins, BTreeSet::from([8192]));
        let files = planned(&[found(2, 0, 1, 0, 1_000_000), found(2, 0, 1, 0, 8000)]);
        assert_eq!(files[&2].shared, [shared(0, 1_000_000, 1, 0)]);
        // A cut costs nothing where the source begins, or has one already.
        let files = planned(&[found(2, 0, 1, 0, BLOCK + 7)]);
        assert_eq!(files[&2].shared, [shared(0, BLOCK + 7, 1, 0)]);
        let short = found(3, 0, 1, 8192, 2 * BLOCK);
        let files = planned(&[found(2, 0, 1, 8192, LEAST), short]);
        assert_eq!(files[&3].shared, [shared(0, 2 * BLOCK, 1, 8192)]);
        assert!(planned(&[short]).is_empty());
        // Too short; too close to the front of its own file; no more than there is in front.
        assert!(planned(&[found(2, 0, 1, BLOCK, LEAST - 1)]).is_empty());
        assert!(planned(&[found(2, 1, 1, BLOCK, LEAST + BLOCK)]).is_empty());
        let files = planned(&[found(1, 100_000, 1, 0, 500_000)]);
        assert_eq!(files[&1].shared, [shared(100_000, 200_000, 1, 0)]);
    }

    #[test]
    fn what_a_source_shares_is_shared_with_whoever_has_it_first() {
        let first = found(2, 100_000, 1, 8192, 50_000);
        let files = planned(&[first, found(3, 90_007, 2, 90_000, 500_000)]);
        assert_eq!(files[&2].shared, [shared(100_000, 150_000, 1, 8192)]);
        let own = shared(150_007, 590_007, 2, 150_000);
        assert_eq!(files[&3].shared, [shared(100_007, 150_007, 1, 8192), own]);
        assert_eq!(files[&1].begins, BTreeSet::from([8192]));
        assert_eq!(files[&2].begins, BTreeSet::from([150_000]));
    }

    #[test]
    fn parts_keep_the_rules_whatever_matches() {
        let mut state = 1u64;
        let mut below = |limit: u64| {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            (state >> 33) % limit
        };
        for _ in 0..500 {
            let mut matches = Vec::new();
            for node in 1..6 {
                let mut at = 0;
                while at < 900_000 {
                    let source = 1 + below(u64::from(node)) as NodeId;
                    let len = 1 + below(100_000);
                    let room = if source == node { at } else { 1_000_000 - len };
                    if room > 0 {
                        matches.push(found(node, at, source, below(room), len));
                    }
                    at += len * below(3) / 2;
                }
            }
            let files = planned(&matches);
            assert!(files.values().any(Cuts::is_sharing));
            for (node, cuts) in &files {
                check(*node, cuts, &files);
            }
        }
    }

    fn check(node: NodeId, cuts: &Cuts, files: &HashMap<NodeId, Cuts>) {
        let parts = cuts.parts(1_000_000);
        let ends = parts.iter().map(|part| part.end);
        let starts = parts.iter().skip(1).map(|part| part.start);
        assert!(ends.eq(starts.chain([1_000_000])), "{parts:?}");
        for part in &parts {
            let is_last = part.end == 1_000_000;
            let Some(shared) = part.shared else {
                assert!(
                    is_last || part.end - part.start >= APART_BLOCKS * BLOCK,
                    "{parts:?}"
                );
                continue;
            };
            assert!(part.end - part.start >= BLOCK, "{parts:?}");
            let until = shared.from + (part.end - part.start);
            assert!(shared.source != node || until <= part.start);
            let source = files[&shared.source].parts(1_000_000);
            assert!(source.iter().any(|own| own.start == shared.from));
            let in_reach = |own: &&Part| own.start < until && shared.from < own.end;
            assert!(
                source
                    .iter()
                    .filter(in_reach)
                    .all(|own| own.shared.is_none())
            );
        }
    }
}
