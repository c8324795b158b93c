//! The steps of a sweep: files, and parts of files, in the order in which they are stored.

use std::collections::HashMap;
use std::ops::Range;

use crate::parts::Part;
use crate::tree::NodeId;

/// The number of no range.
pub(super) const NEVER: u32 = u32::MAX;

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
    /// Bytes at which streams of such a file begin anew, in order, though what lies around them is stored together.
    seams: HashMap<NodeId, Vec<u64>>,
    /// Inodes that are read, in the order in which they are stored.
    inodes: Vec<NodeId>,
    /// Tells of each inode whether it is one of these; empty if there are none.
    is_read: Vec<bool>,
    cuts_packed: bool,
}

impl Sweep {
    /// Takes the first range that leads to each inode, if one does.
    pub fn new(
        steps: Vec<Step>,
        seams: HashMap<NodeId, Vec<u64>>,
        first_ranges: &[u32],
        cuts_packed: bool,
    ) -> Self {
        let is_read: Vec<bool> = first_ranges.iter().map(|first| *first != NEVER).collect();
        let ids = (0..).zip(&is_read).filter(|(_, is_read)| **is_read);
        let mut inodes: Vec<NodeId> = ids.map(|(id, _)| id).collect();
        inodes.sort_by_key(|&id| first_ranges[id as usize]);
        let mut sweep = Self {
            steps: Vec::new(),
            parts: HashMap::new(),
            seams,
            inodes,
            is_read,
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

    /// The seams inside a part of a file.
    fn seams_in(&self, id: NodeId, part: Range<u64>) -> impl Iterator<Item = u64> + use<'_> {
        let seams = self.seams.get(&id).map_or(&[][..], Vec::as_slice);
        let from = seams.partition_point(|seam| *seam <= part.start);
        let inside = seams[from..].iter().copied();
        inside.take_while(move |seam| *seam < part.end)
    }

    /// Returns whether a byte of a file that is cut is read, and does not only lie near to what is: it lies behind a seam where
    /// that begins, or in a file that begins so.
    pub fn is_hot(&self, id: NodeId, offset: u64) -> bool {
        let seams = self.seams.get(&id).map_or(&[][..], Vec::as_slice);
        seams.partition_point(|seam| *seam <= offset) % 2 == 0
    }

    /// Inodes that are read, in the order in which they are stored.
    pub fn inodes(&self) -> impl Iterator<Item = NodeId> + use<'_> {
        self.inodes.iter().copied()
    }

    /// Returns whether an inode is read.
    pub fn has_inode(&self, id: NodeId) -> bool {
        self.is_read.get(id as usize).copied().unwrap_or_default()
    }

    /// Cuts a part of a file where parts of the sweep begin and end, and at seams; tells of each piece whether it belongs to the sweep.
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
            at = start;
            for seam in self.seams_in(id, start..end).chain([end]) {
                pieces.push((own(at, seam), true));
                at = seam;
            }
        }
        if at < part.end {
            pieces.push((own(at, part.end), false));
        }
        pieces
    }

    /// Bytes of memory.
    pub fn memory_bytes(&self) -> u64 {
        let inodes = size_of_val(&*self.inodes) + self.is_read.len();
        (size_of_val(&*self.steps) + inodes) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_is_cut_where_the_sweep_begins_and_ends_and_at_seams() {
        let sweep = Sweep::new(
            vec![
                Step::Part(3, 300..400),
                Step::File(9),
                Step::Part(3, 0..100),
            ],
            HashMap::from([(3, vec![320, 330, 400])]),
            &[],
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
        let gap = (100, 300, false);
        let seams = [(300, 320, true), (320, 330, true), (330, 400, true)];
        assert_eq!(split(0, 400), [&[(0, 100, true), gap], &seams[..]].concat());
        assert_eq!(split(50, 310), [(50, 100, true), gap, (300, 310, true)]);
        assert_eq!(split(100, 300), [gap]);
        assert_eq!(split(350, 500), [(350, 400, true), (400, 500, false)]);
        let is_hot = [0, 319, 320, 329, 330, 399].map(|at| sweep.is_hot(3, at));
        assert_eq!(is_hot, [true, true, false, false, true, true]);
        assert!(sweep.cuts(3) && !sweep.cuts(9));
        assert_eq!(sweep.files().collect::<Vec<_>>(), [9]);
    }

    #[test]
    fn inodes_lie_in_the_order_of_first_access() {
        let sweep = Sweep::new(Vec::new(), HashMap::new(), &[0, 7, NEVER, 3, 7], false);
        assert_eq!(sweep.inodes().collect::<Vec<_>>(), [0, 3, 1, 4]);
        assert!(sweep.has_inode(4) && !sweep.has_inode(2) && !sweep.has_inode(9));
    }
}
