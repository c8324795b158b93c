//! The map of the image: what overlaps, and what nothing refers to.

use crate::Place;

use super::finding::FindingKind;
use super::part::{Part, Parts};
use super::run::Run;

/// Notes all overlaps, and returns how many bytes lie in blocks that nothing refers to.
pub(super) fn check(run: &Run<'_>, parts: &Parts) -> u64 {
    let sb = run.image.superblock();
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
            let first = (part.location.address() >> sb.block_bits).max(reached_block);
            let end = part.end().div_ceil(sb.block_bytes().into());
            used_blocks += end.saturating_sub(first);
            reached_block = reached_block.max(end);
        }
    }
    note_unreachable(run, used_blocks)
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
