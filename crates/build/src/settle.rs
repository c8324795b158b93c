//! New content finds its places in the room of an older image.
//!
//! ```text
//! written   | old image, with room █ |  a   |  b  |    c    |
//! settled   | b | … | front of c | … |  a   | rest of c |
//! ```
//!
//! It is written behind the image first, for nobody knows before how long it gets. Then the longest goes to the smallest room
//! that takes it as a whole. What finds none is cut between extents, if it is compressed: its front goes to the largest room.
//! The rest stays behind the image, without gaps.

use std::cmp::Reverse;
use std::collections::BTreeSet;
use std::ops::Range;

use anteros_core::FileKind;

use crate::Error;
use crate::body::Body;
use crate::data::{Job, Stored};
use crate::extent::{Extent, Tail};
use crate::output::{Move, Output};
use crate::plan::Intent;
use crate::ranges::Ranges;
use crate::tree::NodeId;

/// Content that lies together, and to stay so.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Piece {
    id: NodeId,
    /// The byte of the image at which it was written.
    at: u64,
    bytes: u64,
    /// The number of its first extent, and its extents if it may be cut between them.
    first: usize,
    extents: Vec<Extent>,
}

/// A piece, and the byte at which it lies in the end.
type Settled = (Piece, u64);

/// Moves what was written behind the older image to free room. Returns the bytes of blocks that stay free.
pub(crate) fn settle(
    job: &Job<'_>,
    stored: &mut [Stored],
    output: &mut Output,
) -> Result<u64, Error> {
    let Some(renewed) = job.plan.renewed() else {
        return Ok(0);
    };
    let pieces = job
        .tree
        .ids()
        .flat_map(|id| pieces(job, id, &stored[id as usize]));
    let mut room = Room::new(&renewed.data, output.block_bytes());
    let settled = room.settle(pieces.collect(), renewed.end);
    let moves: Vec<Move> = settled.iter().map(|(piece, to)| piece.to(*to)).collect();
    let end = settled.iter().map(|(piece, to)| to + piece.bytes).max();
    let end = end.unwrap_or(0).max(renewed.end);
    output.rearrange(&moves, end.next_multiple_of(output.block_bytes()))?;
    relocate(stored, settled, job.options.block_bits);
    Ok(room.free_bytes())
}

/// Returns the pieces that were written of a node.
fn pieces(job: &Job<'_>, id: NodeId, stored: &Stored) -> Vec<Piece> {
    let block_bits = job.options.block_bits;
    let piece = |at, bytes| Piece {
        id,
        at,
        bytes,
        first: 0,
        extents: Vec::new(),
    };
    let flat = |block: u32, bytes| vec![piece(u64::from(block) << block_bits, bytes)];
    let node = job.tree.node(id);
    match (stored, &job.plan.node(id).intent) {
        _ if node.kind != FileKind::Regular => Vec::new(),
        (
            Stored::Flat {
                first_block,
                inline,
            },
            _,
        ) if node.size > *inline => {
            let bytes = (node.size - inline).next_multiple_of(1 << block_bits);
            flat(*first_block, bytes)
        }
        (Stored::Chunked { first_block }, Intent::Chunks(file)) if !file.runs.is_empty() => {
            let bytes = file.runs.iter().map(|(start, end)| end - start);
            flat(
                *first_block,
                bytes.sum::<u64>().next_multiple_of(1 << block_bits),
            )
        }
        (Stored::Compressed { body, tail }, _) => {
            let may_be_cut = may_be_cut(job, id, body, *tail);
            let mut first = 0;
            let runs = body.runs().into_iter().map(|(at, extents)| {
                let bytes = extents.iter().map(|extent| u64::from(extent.stored)).sum();
                let run = Piece {
                    first,
                    extents: extents.iter().filter(|_| may_be_cut).copied().collect(),
                    ..piece(at, bytes)
                };
                first += extents.len();
                run
            });
            runs.filter(|run| run.bytes > 0).collect()
        }
        _ => Vec::new(),
    }
}

/// Returns whether there is room behind the inode for an index that can tell of extents which lie apart.
fn may_be_cut(job: &Job<'_>, id: NodeId, body: &Body, tail: Tail) -> bool {
    let index = job.plan.index_of(id).with(tail).full();
    let head = job.plan.head_bytes(id);
    let bytes = index.bytes(head, &body.runs(), tail, job.tree.node(id).size);
    tail == Tail::Blocks || head + bytes + tail.inline_bytes() <= job.options.block_bytes().into()
}

/// Gives content its places.
fn relocate(stored: &mut [Stored], mut settled: Vec<Settled>, block_bits: u8) {
    settled.sort_by_key(|(piece, _)| (piece.id, piece.first));
    for of_file in settled.chunk_by(|one, other| one.0.id == other.0.id) {
        match &mut stored[of_file[0].0.id as usize] {
            Stored::Flat { first_block, .. } | Stored::Chunked { first_block } => {
                *first_block = (of_file[0].1 >> block_bits) as u32; // less than it was
            }
            Stored::Compressed { body, .. } => **body = relocated(body, of_file),
            _ => {}
        }
    }
}

/// The extents of a file, whose pieces lie at new places.
fn relocated(body: &Body, pieces: &[Settled]) -> Body {
    let mut moved = Body::default();
    let mut start = 0;
    let firsts = pieces.iter().map(|(piece, _)| piece.first);
    let ends = firsts.skip(1).chain([body.extents().len()]);
    for ((_, at), end) in pieces.iter().zip(ends) {
        let extents = body.extents()[start..end].to_vec();
        moved.append(&Body::new(*at, extents));
        start = end;
    }
    moved
}

impl Piece {
    const fn to(&self, to: u64) -> Move {
        Move {
            from: self.at,
            to,
            bytes: self.bytes,
        }
    }

    /// Cuts the piece behind as many extents as take at most so many bytes; gives it back if there is no such place.
    fn cut(self, bytes: u64) -> Result<(Self, Self), Self> {
        let mut front = 0;
        let mut count = 0;
        for extent in &self.extents {
            if front + u64::from(extent.stored) > bytes {
                break;
            }
            front += u64::from(extent.stored);
            count += 1;
        }
        if front == 0 || front == self.bytes {
            return Err(self);
        }
        let mut extents = self.extents;
        let behind = extents.split_off(count);
        let rest = Self {
            at: self.at + front,
            bytes: self.bytes - front,
            first: self.first + count,
            extents: behind,
            ..self
        };
        let front = Self {
            id: self.id,
            at: self.at,
            bytes: front,
            first: self.first,
            extents,
        };
        Ok((front, rest))
    }
}

/// Blocks that are free.
struct Room {
    /// The length of each range, and where it begins.
    ranges: BTreeSet<(u64, u64)>,
    block_bytes: u64,
}

impl Room {
    fn new(free: &Ranges, block_bytes: u64) -> Self {
        let ranges = free
            .iter()
            .map(|range| (range.end - range.start, range.start));
        Self {
            ranges: ranges.collect(),
            block_bytes,
        }
    }

    /// Finds a place for each piece; those that find none lie behind `end`. In this order, none is moved to where a later one
    /// still lies.
    fn settle(&mut self, mut pieces: Vec<Piece>, end: u64) -> Vec<Settled> {
        pieces.sort_by_key(|piece| (Reverse(piece.bytes), piece.at));
        let (mut settled, mut behind) = (Vec::new(), Vec::new());
        for piece in pieces {
            let mut left = Some(piece);
            while let Some(piece) = left.take() {
                if let Some(at) = self.smallest_for(&piece) {
                    settled.push((piece, at));
                    continue;
                }
                match self.front_of(piece) {
                    Ok((front, at, rest)) => {
                        settled.push((front, at));
                        left = Some(rest);
                    }
                    Err(piece) => behind.push(piece),
                }
            }
        }
        behind.sort_by_key(|piece| piece.at);
        let mut next = end;
        for piece in behind {
            let at = self.aligned(next, &piece);
            next = at + piece.bytes;
            settled.push((piece, at));
        }
        settled
    }

    /// The first byte from `start` on at which a piece keeps its place within a block.
    fn aligned(&self, start: u64, piece: &Piece) -> u64 {
        let within = |at: u64| at % self.block_bytes;
        start + (within(piece.at) + self.block_bytes - within(start)) % self.block_bytes
    }

    /// Takes the smallest range that has room for all of a piece.
    fn smallest_for(&mut self, piece: &Piece) -> Option<u64> {
        let needed = piece.at % self.block_bytes + piece.bytes;
        let (bytes, start) = *self.ranges.range((needed, 0)..).next()?;
        Some(self.take(start..start + bytes, piece))
    }

    /// Takes the largest range for the front of a piece.
    fn front_of(&mut self, piece: Piece) -> Result<(Piece, u64, Piece), Piece> {
        let Some(&(bytes, start)) = self.ranges.last() else {
            return Err(piece);
        };
        let room = bytes.saturating_sub(piece.at % self.block_bytes);
        let (front, rest) = piece.cut(room)?;
        let at = self.take(start..start + bytes, &front);
        Ok((front, at, rest))
    }

    /// Puts a piece to the front of a free range.
    fn take(&mut self, range: Range<u64>, piece: &Piece) -> u64 {
        self.ranges.remove(&(range.end - range.start, range.start));
        let at = self.aligned(range.start, piece);
        let next = (at + piece.bytes).next_multiple_of(self.block_bytes);
        if next < range.end {
            self.ranges.insert((range.end - next, next));
        }
        at
    }

    fn free_bytes(&self) -> u64 {
        self.ranges.iter().map(|(bytes, _)| bytes).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::extent::Share;

    const BLOCK: u64 = 4096;

    fn piece(id: NodeId, at: u64, blocks: &[u64]) -> Piece {
        let extent = |blocks: &u64| Extent {
            len: 9000,
            stored: (blocks * BLOCK) as u32,
            plain: false,
            quick: false,
            share: Share::None,
        };
        Piece {
            id,
            at: at * BLOCK,
            bytes: blocks.iter().sum::<u64>() * BLOCK,
            first: 0,
            extents: blocks.iter().map(extent).collect(),
        }
    }

    fn room(free: &[Range<u64>]) -> Room {
        let bytes = free
            .iter()
            .map(|range| range.start * BLOCK..range.end * BLOCK);
        Room::new(&bytes.collect(), BLOCK)
    }

    /// The number, the first extent, and the first and the last block of each piece.
    fn told(settled: &[Settled]) -> Vec<(NodeId, usize, u64, u64)> {
        let tell = |(piece, at): &Settled| {
            (
                piece.id,
                piece.first,
                at / BLOCK,
                (at + piece.bytes) / BLOCK,
            )
        };
        settled.iter().map(tell).collect()
    }

    #[test]
    fn the_longest_goes_first_to_the_smallest_room_and_the_rest_behind() {
        let mut room = room(&[10..14, 20..30, 40..43]);
        let pieces = vec![
            piece(1, 100, &[2]),
            piece(2, 102, &[4]),
            Piece {
                extents: Vec::new(),
                ..piece(3, 106, &[12])
            },
            piece(4, 118, &[5, 5, 2]),
        ];
        let settled = room.settle(pieces, 100 * BLOCK);
        let expected = [
            (4, 0, 20, 30),
            (4, 2, 40, 42),
            (2, 0, 10, 14),
            (1, 0, 100, 102),
            (3, 0, 102, 114),
        ];
        assert_eq!(told(&settled), expected);
        assert_eq!(room.free_bytes(), BLOCK);
    }

    /// Tests that no move writes over what a later one reads, and that no two places overlap.
    #[test]
    fn moves_one_after_the_other_lose_nothing() {
        let mut state = 3_u64;
        let mut random = |below: u64| {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            (state >> 33) % below
        };
        for _ in 0..200 {
            let mut at = 4096 * BLOCK;
            let mut pieces = Vec::new();
            for id in 0..20 {
                let count = 1 + random(5);
                let mut file = piece(id, 0, &[]);
                file.at = at;
                for _ in 0..count {
                    let mut extent = piece(0, 0, &[1]).extents[0];
                    extent.stored = 1 + random(3 * BLOCK) as u32;
                    file.bytes += u64::from(extent.stored);
                    file.extents.push(extent);
                }
                at += file.bytes;
                pieces.push(file);
            }
            let mut next = 1;
            let free: Vec<_> = (0..10)
                .map(|_| {
                    let start = next + random(3);
                    next = start + 1 + random(6);
                    start..next
                })
                .collect();
            let settled = room(&free).settle(pieces.clone(), (4000 + random(96)) * BLOCK);
            let bytes: u64 = settled.iter().map(|(piece, _)| piece.bytes).sum();
            assert_eq!(bytes, pieces.iter().map(|piece| piece.bytes).sum());
            let mut places = Ranges::default();
            for (index, (piece, to)) in settled.iter().enumerate() {
                assert_eq!(to % BLOCK, piece.at % BLOCK);
                let place = *to..to + piece.bytes;
                let before = places.bytes();
                places.insert(place.clone());
                assert_eq!(places.bytes(), before + piece.bytes);
                for (later, _) in &settled[index + 1..] {
                    assert!(later.at >= place.end || later.at + later.bytes <= place.start);
                }
            }
        }
    }
}
