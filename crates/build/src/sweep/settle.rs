//! Parts of the sweep in files that share content: they are moved to the files that have it first.

use std::collections::{HashMap, HashSet};
use std::ops::Range;

use super::hot::{HotPart, merged};
use super::steps::Step;
use crate::plan::{Intent, Plan};
use crate::tree::{NodeId, Tree};

/// Has all parts lie in files that store them. A file that is cut because others share parts of it, or that shares parts itself,
/// is not cut a second time: it keeps what it stores in its place, unless it lies in the sweep as a whole.
pub(crate) fn settle(tree: &Tree, plan: &mut Plan, block_bytes: u64) {
    let mut files = HashSet::new();
    let mut steps = Vec::new();
    let mut parts: HashMap<NodeId, Vec<HotPart>> = HashMap::new();
    for (number, step) in plan.sweep.steps().iter().enumerate() {
        match step {
            Step::File(id) => {
                files.insert(*id);
                steps.push((number, step.clone()));
            }
            Step::Part(id, range) => {
                for (id, range) in owners(tree, plan, *id, range) {
                    let first = number;
                    parts.entry(id).or_default().push(HotPart { range, first });
                }
            }
        }
    }
    for (id, found) in parts {
        if files.contains(&id) || plan.cuts.contains_key(&id) {
            continue;
        }
        let own = whole_blocks(found, tree.node(id).size, block_bytes);
        steps.extend(
            own.into_iter()
                .map(|part| (part.first, Step::Part(id, part.range))),
        );
    }
    // Parts that come from one step are told apart by where they lie.
    steps.sort_by_key(|(number, step)| match step {
        Step::File(id) => (*number, *id, 0),
        Step::Part(id, range) => (*number, *id, range.start),
    });
    let steps = steps.into_iter().map(|(_, step)| step).collect();
    plan.sweep.set_steps(steps);
}

/// The files that store a part of one, and where.
fn owners(tree: &Tree, plan: &Plan, id: NodeId, range: &Range<u64>) -> Vec<(NodeId, Range<u64>)> {
    let id = match plan.node(id).intent {
        Intent::Same(first) => first,
        _ => id,
    };
    match plan.cuts.get(&id) {
        Some(cuts) => cuts.owners(id, range, tree.node(id).size),
        None => vec![(id, range.clone())],
    }
}

/// Parts in whole blocks.
fn whole_blocks(found: Vec<HotPart>, size: u64, block_bytes: u64) -> Vec<HotPart> {
    let widened = |part: HotPart| {
        let Range { start, end } = part.range;
        let start = start / block_bytes * block_bytes;
        let end = end.next_multiple_of(block_bytes).min(size);
        HotPart {
            range: start..end,
            ..part
        }
    };
    merged(found.into_iter().map(widened).collect())
}
