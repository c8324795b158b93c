//! The map of the image: what overlaps, and what nothing refers to.

use std::ops::Range;

use crate::Place;

use super::finding::FindingKind;
use super::part::{Part, Parts, What};
use super::report::Unused;
use super::run::Run;

/// Notes all overlaps, and returns what nothing refers to.
pub(super) fn check(run: &Run<'_>, parts: &Parts) -> Unused {
    let sb = run.image.superblock();
    let mut gaps = Gaps::new(run);
    let mut furthest: Option<Part> = None;
    let mut reached_block = 0;
    let mut used_blocks = 0;
    let known = parts.iter().map_while(|part| run.scratch(part));
    for part in known.filter(|part| !part.is_inline()) {
        let before = furthest.filter(|before| before.device() == part.device());
        if let Some(before) = before.filter(|before| before.end() > part.location.address()) {
            note_overlap(run, &before, &part);
        }
        if before.is_none_or(|before| before.end() <= part.end()) {
            furthest = Some(part);
        }
        if part.device() == Some(0) {
            gaps.take(&part);
            let first = (part.location.address() >> sb.block_bits).max(reached_block);
            let end = part.end().div_ceil(sb.block_bytes().into());
            used_blocks += end.saturating_sub(first);
            reached_block = reached_block.max(end);
        }
    }
    Unused {
        block_bytes: note_unreachable(run, used_blocks),
        gaps: gaps.finish(),
    }
}

/// Gathers gaps between parts, which come by address.
struct Gaps<'a> {
    wanted: &'a [Range<u64>],
    block_bytes: u64,
    /// The end of all parts so far.
    reached: u64,
    found: Vec<Range<u64>>,
}

impl<'a> Gaps<'a> {
    fn new(run: &Run<'a>) -> Self {
        Self {
            wanted: &run.options.gaps_in,
            block_bytes: run.image.superblock().block_bytes().into(),
            reached: 0,
            found: Vec::new(),
        }
    }

    /// Takes the next part of the primary device. What is not metadata takes whole blocks.
    fn take(&mut self, part: &Part) {
        self.note(part.location.address());
        let unit = match part.what {
            What::Metadata | What::SharedXattr => 1,
            What::Flat | What::Chunk | What::Encoded(_) => self.block_bytes,
        };
        let end = part.end().checked_next_multiple_of(unit);
        self.reached = self.reached.max(end.unwrap_or(u64::MAX));
    }

    /// Notes what is free up to a byte.
    fn note(&mut self, end: u64) {
        for wanted in self.wanted {
            let gap = self.reached.max(wanted.start)..end.min(wanted.end);
            if !gap.is_empty() {
                self.found.push(gap);
            }
        }
    }

    fn finish(mut self) -> Vec<Range<u64>> {
        self.note(u64::MAX);
        self.found
    }
}

fn note_overlap(run: &Run<'_>, before: &Part, part: &Part) {
    if before.may_share(part) {
        return;
    }
    let at = part.location.address();
    let bytes = before.end().min(part.end()) - at;
    run.note(
        part.place,
        FindingKind::Overlap {
            at,
            bytes,
            other: before.place,
        },
    );
}

fn note_unreachable(run: &Run<'_>, used_blocks: u64) -> u64 {
    let sb = run.image.superblock();
    let present = run.image.primary_size() >> sb.block_bits;
    let blocks = sb.blocks.min(present).saturating_sub(used_blocks);
    let bytes = blocks << sb.block_bits;
    if blocks > 0 && !run.is_ended() && run.is_all_read() {
        run.note(Place::Image, FindingKind::Unreachable { bytes, blocks });
    }
    bytes
}
