//! The choice of files that are cut.
//!
//! ```text
//! read         |      ███      █        ██                             |
//! gaps         |  a    |   b   |    c    |              d              |
//! in the sweep |      |██████████|░░░░░░|██|░░░░░░                     |   b is too short, all of c and the front of d come along
//! ```
//!
//! At a border, half a block is lost on average, and a stream that would have been longer: one cluster that holds less. A
//! gap is worth its borders if it is so long that what they cost is less than what is not read any more. All borders
//! together may take a certain share of the image; the longest gaps come first.
//!
//! The kernel reads ahead, around each page that is missing. So what is near to a part that is read lies beside it in the sweep,
//! in clusters of its own: whoever reads it anyway needs no further request, and whoever asks for what is read alone does not
//! read it.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::ops::Range;

use super::hot::{Hot, HotFile, HotPart};
use super::steps::{Step, Sweep};
use crate::Options;
use crate::parts::SHRINKS_TO;
use crate::plan::{Intent, Plan};
use crate::tree::{NodeId, Tree};

/// A border costs this share of a cluster beside half a block, as measured.
const BORDER_SHARE: u64 = 8;

/// Bytes that the kernel reads ahead, by default; around a page, it begins with as many in front of it.
const READ_AHEAD_BYTES: u64 = 128 << 10;

/// A run of a file that is not read.
struct Gap {
    /// The place of the file.
    file: usize,
    range: Range<u64>,
    /// Bytes that its borders cost.
    cost: u64,
}

impl Gap {
    /// Bytes of the file.
    const fn bytes(&self) -> u64 {
        self.range.end - self.range.start
    }
}

/// Bytes that may still be spent.
struct Budget(u64);

impl Budget {
    /// Spends so many bytes, if there are as many.
    fn take(&mut self, bytes: u64) -> bool {
        let left = self.0.checked_sub(bytes);
        self.0 = left.unwrap_or(self.0);
        left.is_some()
    }
}

/// Decides which files are cut, and which belong to the sweep as a whole.
pub(super) fn sweep(hot: Hot, tree: &Tree, plan: &mut Plan, options: &Options) -> Sweep {
    let content = content_bytes(tree, plan) / 1000;
    let mut budget = Budget(content.saturating_mul(options.hot_cuts_permille.into()));
    let packed = options.fragments.and(options.packed_pcluster_bytes());
    let cuts_packed = packed.is_some_and(|bytes| budget.take(border(bytes.into(), options)));
    let Hot { files, inodes, .. } = hot;
    let mut gaps = Vec::new();
    for (place, file) in files.iter().enumerate() {
        gaps.extend(gaps_of(place, file, tree, plan, options));
    }
    gaps.sort_by_key(|gap| (Reverse(gap.bytes()), gap.file, gap.range.start));
    let mut taken: Vec<Vec<Range<u64>>> = vec![Vec::new(); files.len()];
    for gap in gaps {
        let is_first = taken[gap.file].is_empty();
        let id = files[gap.file].id;
        let of_index = match is_first {
            true => plan.index_of(id).more_in_full(tree.node(id).size),
            false => 0,
        };
        if budget.take(gap.cost + of_index) {
            taken[gap.file].push(gap.range);
        }
    }
    let mut steps = Vec::new();
    let mut seams = HashMap::new();
    for (file, mut gaps) in files.into_iter().zip(taken) {
        let first = file.parts.iter().map(|part| part.first).min();
        if gaps.is_empty() {
            steps.push((first.unwrap_or_default(), Step::File(file.id)));
            continue;
        }
        // What is packed cannot be cut.
        plan.nodes[file.id as usize].intent = Intent::Compress;
        gaps.sort_by_key(|gap| gap.start);
        let size = tree.node(file.id).size;
        seams.insert(
            file.id,
            gaps.iter().flat_map(|gap| [gap.start, gap.end]).collect(),
        );
        let far: Vec<_> = gaps.iter().filter_map(|gap| far(gap, size)).collect();
        let parts = between(&far, size, &file.parts);
        steps.extend(
            parts
                .into_iter()
                .map(|part| (part.first, Step::Part(file.id, part.range))),
        );
    }
    steps.sort_by_key(|(first, _)| *first);
    let steps = steps.into_iter().map(|(_, step)| step).collect();
    Sweep::new(steps, seams, &inodes, cuts_packed)
}

/// The part of a gap that the kernel does not read ahead.
fn far(gap: &Range<u64>, size: u64) -> Option<Range<u64>> {
    let start = match gap.start {
        0 => 0,
        start => start + READ_AHEAD_BYTES,
    };
    let end = match gap.end {
        end if end == size => end,
        end => end.saturating_sub(READ_AHEAD_BYTES),
    };
    (start < end).then_some(start..end)
}

/// The gaps of a file that are worth their borders.
fn gaps_of(place: usize, file: &HotFile, tree: &Tree, plan: &Plan, options: &Options) -> Vec<Gap> {
    let Some(pcluster_bytes) = cuttable(file.id, tree, plan, options) else {
        return Vec::new();
    };
    let size = tree.node(file.id).size;
    let border = border(pcluster_bytes, options);
    let starts = [0]
        .into_iter()
        .chain(file.parts.iter().map(|part| part.range.end));
    let ends = file.parts.iter().map(|part| part.range.start).chain([size]);
    let gaps = starts.zip(ends).filter(|(start, end)| start < end);
    let gaps = gaps.map(|(start, end)| {
        let borders = u64::from(start > 0) + u64::from(end < size);
        Gap {
            file: place,
            range: start..end,
            cost: borders * border,
        }
    });
    gaps.filter(|gap| gap.bytes() / SHRINKS_TO >= gap.cost)
        .collect()
}

/// The length of the clusters of a file that may be cut.
fn cuttable(id: NodeId, tree: &Tree, plan: &Plan, options: &Options) -> Option<u64> {
    let pcluster_bytes = u64::from(plan.ways.setting(id)?.pcluster_bytes);
    let is_one_piece = options.data_align_blocks > 1;
    let is_long = tree.node(id).size > SHRINKS_TO * pcluster_bytes;
    let may_be = matches!(plan.node(id).intent, Intent::Compress | Intent::Pack);
    (may_be && is_long && !is_one_piece).then_some(pcluster_bytes)
}

/// Bytes that a border between clusters of so many bytes costs.
fn border(pcluster_bytes: u64, options: &Options) -> u64 {
    u64::from(options.block_bytes()) / 2 + pcluster_bytes / BORDER_SHARE
}

/// Bytes of all files that are compressed.
fn content_bytes(tree: &Tree, plan: &Plan) -> u64 {
    let is_compressed =
        |id: &NodeId| matches!(plan.node(*id).intent, Intent::Compress | Intent::Pack);
    let files = tree.ids().filter(is_compressed);
    files.fold(0, |sum, id| sum.saturating_add(tree.node(id).size))
}

/// The parts of a file between gaps, each as early as the first of those that are read in it.
fn between(gaps: &[Range<u64>], size: u64, read: &[HotPart]) -> Vec<HotPart> {
    let starts = [0].into_iter().chain(gaps.iter().map(|gap| gap.end));
    let ends = gaps.iter().map(|gap| gap.start).chain([size]);
    let parts = starts.zip(ends).filter(|(start, end)| start < end);
    parts
        .map(|(start, end)| {
            let inside = read
                .iter()
                .filter(|part| part.range.start < end && start < part.range.end);
            HotPart {
                range: start..end,
                first: inside.map(|part| part.first).min().unwrap_or_default(),
            }
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_near_to_a_part_comes_along() {
        const NEAR: u64 = READ_AHEAD_BYTES;
        let size = 10 * NEAR;
        assert_eq!(far(&(NEAR..9 * NEAR), size), Some(2 * NEAR..8 * NEAR));
        assert_eq!(far(&(0..9 * NEAR), size), Some(0..8 * NEAR));
        assert_eq!(far(&(NEAR..size), size), Some(2 * NEAR..size));
        assert_eq!(far(&(NEAR..3 * NEAR), size), None);
        assert_eq!(far(&(0..NEAR), size), None);
    }

    #[test]
    fn parts_between_gaps_are_as_early_as_what_is_read_in_them() {
        let read =
            [(100, 200, 7), (300, 400, 3), (800, 900, 5)].map(|(start, end, first)| HotPart {
                range: start..end,
                first,
            });
        let parts = between(&[0..100, 400..800], 900, &read);
        let parts: Vec<_> = parts
            .into_iter()
            .map(|part| (part.range, part.first))
            .collect();
        assert_eq!(parts, [(100..400, 3), (800..900, 5)]);
    }
}
