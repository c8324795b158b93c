//! The extents of a compressed file, and where they lie.

use crate::extent::{Extent, Run, Share};

/// All extents of a compressed file, in order.
#[derive(Debug, Clone, Default)]
pub(crate) struct Body {
    extents: Vec<Extent>,
    /// Byte of the image at which the first one lies.
    start: u64,
    /// Numbers of extents that do not lie behind the one before, and where they lie.
    jumps: Vec<(u32, u64)>,
    /// The byte behind the last extent.
    next: u64,
}

/// No extent lies behind the last one.
const NOWHERE: u64 = u64::MAX;

/// An extent of a file: its number, and the byte of the image at which it lies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Mark {
    pub index: usize,
    pub at: u64,
}

impl Body {
    /// Extents that lie behind each other.
    pub fn new(start: u64, extents: Vec<Extent>) -> Self {
        let stored: u64 = extents.iter().map(|extent| u64::from(extent.stored)).sum();
        Self {
            extents,
            start,
            jumps: Vec::new(),
            next: start + stored,
        }
    }

    /// Appends extents that lie behind each other, all shared or none.
    pub fn append(&mut self, part: &Self) {
        if self.extents.is_empty() {
            *self = part.clone();
            return;
        }
        let Some(first) = part.extents.first() else {
            return;
        };
        let is_own = |extent: &Extent| extent.share == Share::None;
        let follows = self.extents.last().is_some_and(is_own) && is_own(first);
        if !follows || part.start != self.next {
            self.jumps.push((self.extents.len() as u32, part.start));
        }
        self.extents.extend_from_slice(&part.extents);
        self.next = part.next;
    }

    /// Appends extents that lie apart from all others of the file, whatever their places are now.
    pub fn append_apart(&mut self, part: &Self) {
        match (self.extents.is_empty(), part.extents.is_empty()) {
            (_, true) => return,
            (true, false) => *self = part.clone(),
            (false, false) => {
                self.jumps.push((self.extents.len() as u32, part.start));
                self.extents.extend_from_slice(&part.extents);
            }
        }
        self.next = NOWHERE;
    }

    /// All extents.
    pub fn extents(&self) -> &[Extent] {
        &self.extents
    }

    /// Returns whether some extents lie apart from others.
    pub fn is_split(&self) -> bool {
        !self.jumps.is_empty()
    }

    /// Bytes of the file.
    pub fn bytes(&self) -> u64 {
        let lens = self.extents.iter().map(|extent| u64::from(extent.len));
        lens.sum()
    }

    /// Bytes of the file that lie in extents of another part of the tree.
    pub fn shared_bytes(&self) -> u64 {
        let shared = self.of(|share| matches!(share, Share::Whole | Share::Front));
        shared.map(|extent| u64::from(extent.len)).sum()
    }

    /// Bytes of the image that no earlier part has.
    pub fn own_bytes(&self) -> u64 {
        let own = self.of(|share| matches!(share, Share::None | Share::Kept));
        own.map(|extent| u64::from(extent.stored)).sum()
    }

    fn of(&self, is_wanted: impl Fn(Share) -> bool) -> impl Iterator<Item = &Extent> {
        let extents = self.extents.iter();
        extents.filter(move |extent| is_wanted(extent.share))
    }

    /// The extents from a mark on, each with the byte at which it lies, as far as they lie behind each other.
    pub fn from(&self, mark: Mark) -> impl Iterator<Item = (Extent, u64)> {
        let next = self
            .jumps
            .partition_point(|(index, _)| *index as usize <= mark.index);
        let end = self
            .jumps
            .get(next)
            .map_or(self.extents.len(), |(index, _)| *index as usize);
        let extents = self.extents.get(mark.index..end).unwrap_or_default();
        extents.iter().scan(mark.at, |at, extent| {
            let start = *at;
            *at += u64::from(extent.stored);
            Some((*extent, start))
        })
    }

    /// The mark of the first extent.
    pub const fn first(&self) -> Mark {
        Mark {
            index: 0,
            at: self.start,
        }
    }

    /// The byte of the image behind the last extent.
    pub const fn end(&self) -> u64 {
        self.next
    }

    /// The mark of an extent that is appended next, if it lies there.
    pub fn next(&self, at: u64) -> Mark {
        Mark {
            index: self.extents.len(),
            at,
        }
    }

    /// Extents that lie behind each other, run after run.
    pub fn runs(&self) -> Vec<Run<'_>> {
        let starts = [(0, self.start)]
            .into_iter()
            .chain(self.jumps.iter().copied());
        let ends = self.jumps.iter().map(|(index, _)| *index as usize);
        let runs = starts.zip(ends.chain([self.extents.len()]));
        runs.map(|((index, at), end)| (at, &self.extents[index as usize..end]))
            .collect()
    }

    /// The bytes of the image that each run of extents takes, from and to.
    pub fn places(&self) -> impl Iterator<Item = (u64, u64)> {
        self.runs().into_iter().map(|(start, extents)| {
            let stored = extents.iter().map(|extent| u64::from(extent.stored));
            (start, start + stored.sum::<u64>())
        })
    }

    /// Gives all extents their final places.
    pub fn relocate(&mut self, place: impl Fn(u64) -> u64) {
        let starts = self.jumps.iter_mut().map(|(_, start)| start);
        for start in starts.chain([&mut self.start]) {
            *start = place(*start);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn extent(len: u32, stored: u32, share: Share) -> Extent {
        Extent {
            len,
            stored,
            plain: false,
            quick: false,
            share,
        }
    }

    #[test]
    fn a_run_ends_where_another_place_begins_or_another_owner() {
        let own = [extent(9000, 2, Share::None), extent(5000, 1, Share::None)];
        let shared = [extent(9000, 2, Share::Whole), extent(50, 1, Share::Front)];
        let mut body = Body::default();
        body.append(&Body::new(10, own.to_vec()));
        body.append(&Body::new(13, own[..1].to_vec()));
        body.append(&Body::new(15, shared.to_vec()));
        body.append(&Body::new(15, own.to_vec()));
        let runs: Vec<_> = body
            .runs()
            .iter()
            .map(|(at, extents)| (*at, extents.len()))
            .collect();
        assert_eq!(runs, [(10, 3), (15, 2), (15, 2)]);
        assert_eq!((body.own_bytes(), body.shared_bytes()), (8, 9050));
        let from: Vec<_> = body.from(Mark { index: 1, at: 12 }).collect();
        assert_eq!(from, [(own[1], 12), (own[0], 13)]);
        let mut moved = body.clone();
        moved.relocate(|at| at * 2);
        assert_eq!(moved.runs()[2].0, 30);
        assert_eq!(body.from(body.next(7)).count(), 0);
        let mut apart = Body::new(10, own.to_vec());
        apart.append_apart(&Body::default());
        apart.append_apart(&Body::new(13, own.to_vec()));
        apart.append(&Body::new(16, own.to_vec()));
        assert_eq!(apart.runs().len(), 3);
    }
}
