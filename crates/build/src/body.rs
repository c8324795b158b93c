//! The extents of a compressed file, and where they lie.

use crate::compress::{Extent, Share};
use crate::index::Run;

/// All extents of a compressed file, in order.
#[derive(Debug, Clone, Default)]
pub(crate) struct Body {
    extents: Vec<Extent>,
    first_block: u32,
    /// Numbers of extents whose blocks do not follow those of the one before, and their first blocks.
    jumps: Vec<(u32, u32)>,
    /// The block behind those of the last extent.
    next: u32,
}

/// An extent of a file: its number, and its first block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Mark {
    pub index: usize,
    pub block: u32,
}

impl Body {
    /// Extents whose blocks follow each other.
    pub fn new(first_block: u32, extents: Vec<Extent>) -> Self {
        let blocks: u32 = extents.iter().map(|extent| u32::from(extent.blocks)).sum();
        Self {
            extents,
            first_block,
            jumps: Vec::new(),
            next: first_block + blocks,
        }
    }

    /// Appends extents whose blocks follow each other, all shared or none.
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
        if !follows || part.first_block != self.next {
            self.jumps
                .push((self.extents.len() as u32, part.first_block));
        }
        self.extents.extend_from_slice(&part.extents);
        self.next = part.next;
    }

    /// All extents.
    pub fn extents(&self) -> &[Extent] {
        &self.extents
    }

    /// Bytes of the file that lie in blocks of another part of the tree.
    pub fn shared_bytes(&self) -> u64 {
        let shared = self
            .extents
            .iter()
            .filter(|extent| extent.share != Share::None);
        shared.map(|extent| u64::from(extent.len)).sum()
    }

    /// Blocks that no earlier part has.
    pub fn own_blocks(&self) -> u32 {
        let own = self
            .extents
            .iter()
            .filter(|extent| extent.share == Share::None);
        own.map(|extent| u32::from(extent.blocks)).sum()
    }

    /// The extents from a mark on, each with its first block, as far as their blocks follow each other.
    pub fn from(&self, mark: Mark) -> impl Iterator<Item = (Extent, u32)> {
        let next = self
            .jumps
            .partition_point(|(index, _)| *index as usize <= mark.index);
        let end = self
            .jumps
            .get(next)
            .map_or(self.extents.len(), |(index, _)| *index as usize);
        let extents = self.extents.get(mark.index..end).unwrap_or_default();
        extents.iter().scan(mark.block, |block, extent| {
            let first = *block;
            *block += u32::from(extent.blocks);
            Some((*extent, first))
        })
    }

    /// The mark of the first extent.
    pub const fn first(&self) -> Mark {
        Mark {
            index: 0,
            block: self.first_block,
        }
    }

    /// The mark of an extent that is appended next, if its first block is this.
    pub fn next(&self, block: u32) -> Mark {
        Mark {
            index: self.extents.len(),
            block,
        }
    }

    /// Extents whose blocks follow each other, run after run.
    pub fn runs(&self) -> Vec<Run<'_>> {
        let starts = [(0, self.first_block)]
            .into_iter()
            .chain(self.jumps.iter().copied());
        let ends = self.jumps.iter().map(|(index, _)| *index as usize);
        let runs = starts.zip(ends.chain([self.extents.len()]));
        runs.map(|((start, block), end)| (block, &self.extents[start as usize..end]))
            .collect()
    }

    /// Gives all blocks their final numbers.
    pub fn renumber(&mut self, block: impl Fn(u32) -> u32) {
        let firsts = self.jumps.iter_mut().map(|(_, first)| first);
        for first in firsts.chain([&mut self.first_block]) {
            *first = block(*first);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn extent(len: u32, blocks: u16, share: Share) -> Extent {
        Extent {
            len,
            blocks,
            plain: false,
            share,
        }
    }

    #[test]
    fn a_run_ends_where_blocks_do_not_follow_or_others_own_them() {
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
        assert_eq!((body.own_blocks(), body.shared_bytes()), (8, 9050));
        let from: Vec<_> = body
            .from(Mark {
                index: 1,
                block: 12,
            })
            .collect();
        assert_eq!(from, [(own[1], 12), (own[0], 13)]);
        let mut moved = body.clone();
        moved.renumber(|block| block * 2);
        assert_eq!(moved.runs()[2].0, 30);
        assert_eq!(body.from(body.next(7)).count(), 0);
    }
}
