//! The steps of a sweep: files, and parts of files, in the order in which they are stored.

use std::collections::HashMap;
use std::ops::Range;

use crate::parts::Part;
use crate::tree::NodeId;

/// A file or a part of one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Step {
    /// All of a file.
    File(NodeId),
    /// A part of a file, the rest of which comes behind the sweep.
    Part(NodeId, Range<u64>),
}

impl Step {
    /// The file.
    pub const fn node(&self) -> NodeId {
        match self {
            Self::File(id) | Self::Part(id, _) => *id,
        }
    }
}

/// The content that is stored in front of all other, and the inodes that lie in front of all others.
#[derive(Debug, Default)]
pub(crate) struct Sweep {
    /// Files and parts, in the order in which they are stored. Those of one file neither overlap nor touch.
    steps: Vec<Step>,
    /// Parts of each file that is cut, in the order of the file.
    parts: HashMap<NodeId, Vec<Range<u64>>>,
    /// Tells of each inode whether it is read; empty if none is.
    inodes: Vec<bool>,
    cuts_packed: bool,
}

impl Sweep {
    pub fn new(steps: Vec<Step>, inodes: Vec<bool>, cuts_packed: bool) -> Self {
        let mut sweep = Self {
            steps: Vec::new(),
            parts: HashMap::new(),
            inodes,
            cuts_packed,
        };
        sweep.set_steps(steps);
        sweep
    }

    /// Replaces all steps.
    pub fn set_steps(&mut self, steps: Vec<Step>) {
        self.parts.clear();
        for step in &steps {
            if let Step::Part(id, range) = step {
                self.parts.entry(*id).or_default().push(range.clone());
            }
        }
        for parts in self.parts.values_mut() {
            parts.sort_by_key(|range| range.start);
        }
        self.steps = steps;
    }

    /// Files and parts, in the order in which they are stored.
    pub fn steps(&self) -> &[Step] {
        &self.steps
    }

    /// Files that are stored as a whole.
    pub fn files(&self) -> impl Iterator<Item = NodeId> {
        self.steps.iter().filter_map(|step| match step {
            Step::File(id) => Some(*id),
            Step::Part(..) => None,
        })
    }

    /// Returns whether the packed inode is cut behind the sweep.
    pub const fn cuts_packed(&self) -> bool {
        self.cuts_packed
    }

    /// Returns whether parts of a file are stored apart from the rest.
    pub fn cuts(&self, id: NodeId) -> bool {
        self.parts.contains_key(&id)
    }

    /// The parts of a file that are stored apart from the rest, in order.
    pub fn parts(&self, id: NodeId) -> &[Range<u64>] {
        self.parts.get(&id).map_or(&[], Vec::as_slice)
    }

    /// Returns whether an inode is read.
    pub fn has_inode(&self, id: NodeId) -> bool {
        self.inodes.get(id as usize).copied().unwrap_or_default()
    }

    /// Cuts a part of a file where parts of the sweep begin and end; tells of each piece whether it belongs to the sweep.
    pub fn split(&self, id: NodeId, part: Part) -> Vec<(Part, bool)> {
        let own = |start, end| Part {
            start,
            end,
            shared: None,
        };
        if part.shared.is_some() {
            return vec![(part, false)];
        }
        let mut pieces = Vec::new();
        let mut at = part.start;
        for range in self.parts(id) {
            let (start, end) = (range.start.max(part.start), range.end.min(part.end));
            if start >= end {
                continue;
            }
            if at < start {
                pieces.push((own(at, start), false));
            }
            pieces.push((own(start, end), true));
            at = end;
        }
        if at < part.end {
            pieces.push((own(at, part.end), false));
        }
        pieces
    }

    /// Bytes of memory.
    pub fn memory_bytes(&self) -> u64 {
        (size_of_val(&*self.steps) + self.inodes.len()) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_is_cut_where_the_sweep_begins_and_ends() {
        let sweep = Sweep::new(
            vec![
                Step::Part(3, 300..400),
                Step::File(9),
                Step::Part(3, 0..100),
            ],
            Vec::new(),
            false,
        );
        let split = |start, end| {
            let part = Part {
                start,
                end,
                shared: None,
            };
            let pieces = sweep.split(3, part).into_iter();
            pieces
                .map(|(part, swept)| (part.start, part.end, swept))
                .collect::<Vec<_>>()
        };
        let all = [(0, 100, true), (100, 300, false), (300, 400, true)];
        assert_eq!(split(0, 400), all);
        assert_eq!(split(50, 350), [(50, 100, true), all[1], (300, 350, true)]);
        assert_eq!(split(100, 300), [all[1]]);
        assert_eq!(split(350, 500), [(350, 400, true), (400, 500, false)]);
        assert!(sweep.cuts(3) && !sweep.cuts(9));
        assert_eq!(sweep.files().collect::<Vec<_>>(), [9]);
    }
}
