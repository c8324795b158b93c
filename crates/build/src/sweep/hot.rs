//! Ranges that are read, found in the tree.

use std::collections::HashMap;
use std::ops::Range;

use anteros_core::FileKind;

use super::steps::NEVER;
use crate::options::ReadRange;
use crate::plan::Plan;
use crate::tree::{NodeId, Tree};

/// Links that lead to links are followed so often.
const LINKS_MAX: usize = 4;

/// Paths that a warning names.
const NAMED_MAX: usize = 3;

/// A part of a file that is read, in whole blocks or up to its end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct HotPart {
    pub range: Range<u64>,
    /// The number of the first range in it.
    pub first: usize,
}

/// A file of which something is read.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct HotFile {
    pub id: NodeId,
    /// Parts in the order of the file; between two of them there is a block at least.
    pub parts: Vec<HotPart>,
}

/// Everything in the tree that is read.
#[derive(Debug, Default)]
pub(super) struct Hot {
    /// Files with content in the image, in the order of first access.
    pub files: Vec<HotFile>,
    /// The first range that leads to each inode; [`NEVER`] if none does.
    pub inodes: Vec<u32>,
    /// Paths of ranges that are not there.
    missing: Vec<Vec<u8>>,
}

impl Hot {
    /// Looks for some ranges, which are in the order of first access.
    pub fn find(ranges: &[ReadRange], tree: &Tree, plan: &Plan, block_bytes: u64) -> Self {
        let mut hot = Self {
            inodes: vec![NEVER; tree.nodes.len()],
            ..Self::default()
        };
        let mut places = HashMap::new();
        for (number, range) in ranges.iter().enumerate() {
            let found = tree.find(&range.path).filter(|&id| has(tree, id, range));
            let Some(id) = found else {
                hot.missing.push(range.path.clone());
                continue;
            };
            hot.lead_to(id, number);
            tree.ancestors(id)
                .for_each(|directory| hot.lead_to(directory, number));
            if range.len == 0 || !plan.is_stored_file(tree, id) {
                continue;
            }
            let place = *places.entry(id).or_insert(hot.files.len());
            if place == hot.files.len() {
                let parts = Vec::new();
                hot.files.push(HotFile { id, parts });
            }
            hot.files[place].parts.push(HotPart {
                range: in_blocks(range, tree.node(id).size, block_bytes),
                first: number,
            });
        }
        hot.files
            .iter_mut()
            .for_each(|file| file.parts = merged(std::mem::take(&mut file.parts)));
        if hot.inodes.iter().any(|first| *first != NEVER) {
            hot.lead_to(0, 0);
            hot.follow_links(tree);
        }
        hot
    }

    /// Notes that a range leads to an inode.
    fn lead_to(&mut self, id: NodeId, number: usize) {
        let first = &mut self.inodes[id as usize];
        *first = (*first).min(number as u32); // a profile has a million ranges
    }

    /// Takes the links that lead to what is read for read as well: a profile has only files that they led to.
    fn follow_links(&mut self, tree: &Tree) {
        for _ in 0..LINKS_MAX {
            let leads = |id: NodeId| {
                let is_new = self.inodes[id as usize] == NEVER;
                let is_link = is_new && tree.node(id).kind == FileKind::Symlink;
                let to = target(tree, id).filter(|_| is_link)?;
                let first = self.inodes[to as usize];
                (first != NEVER).then_some((id, first))
            };
            let links: Vec<_> = tree.ids().filter_map(leads).collect();
            if links.is_empty() {
                return;
            }
            for (id, first) in links {
                self.lead_to(id, first as usize);
            }
        }
    }

    /// Warns of ranges that are not there.
    pub fn warning(&self, ranges: usize) -> Option<String> {
        let mut named: Vec<&[u8]> = Vec::new();
        for path in &self.missing {
            if named.len() < NAMED_MAX && !named.contains(&&path[..]) {
                named.push(path);
            }
        }
        let named: Vec<_> = named.into_iter().map(String::from_utf8_lossy).collect();
        let count = self.missing.len();
        (count > 0).then(|| {
            format!(
                "{count} of the {ranges} ranges in the profile are not there; the first of them are in {}",
                named.join(", ")
            )
        })
    }
}

/// Returns whether a node has the beginning of a range.
fn has(tree: &Tree, id: NodeId, range: &ReadRange) -> bool {
    let node = tree.node(id);
    range.len == 0 || node.kind != FileKind::Regular || range.offset < node.size
}

/// The blocks that a range takes of a file.
fn in_blocks(range: &ReadRange, size: u64, block_bytes: u64) -> Range<u64> {
    let end = range.offset.saturating_add(range.len).min(size);
    let start = range.offset / block_bytes * block_bytes;
    start..end.next_multiple_of(block_bytes).min(size)
}

/// Parts in the order of their file; those that overlap or touch are one.
pub(super) fn merged(mut parts: Vec<HotPart>) -> Vec<HotPart> {
    parts.sort_by_key(|part| (part.range.start, part.first));
    let mut merged: Vec<HotPart> = Vec::new();
    for part in parts {
        match merged.last_mut() {
            Some(last) if part.range.start <= last.range.end => {
                last.range.end = last.range.end.max(part.range.end);
                last.first = last.first.min(part.first);
            }
            _ => merged.push(part),
        }
    }
    merged
}

/// The node that a link leads to, unless there is a further link on the way.
fn target(tree: &Tree, id: NodeId) -> Option<NodeId> {
    let path = tree.name(tree.node(id).target);
    let from = match path.starts_with(b"/") {
        true => 0,
        false => tree.node(id).parent,
    };
    let mut names = path.split(|byte| *byte == b'/');
    names.try_fold(from, |at, name| match name {
        b"" | b"." => Some(at),
        b".." => Some(tree.node(at).parent),
        _ => tree.entry(at, name),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn part(start: u64, end: u64, first: usize) -> HotPart {
        HotPart {
            range: start..end,
            first,
        }
    }

    #[test]
    fn parts_that_touch_are_one_and_come_first_as_the_first_of_them() {
        let parts = vec![
            part(8, 12, 5),
            part(0, 4, 9),
            part(4, 8, 7),
            part(20, 30, 1),
        ];
        assert_eq!(merged(parts), [part(0, 12, 5), part(20, 30, 1)]);
    }

    #[test]
    fn a_range_takes_whole_blocks_up_to_the_end() {
        let range = |offset, len| {
            let path = Vec::new();
            in_blocks(&ReadRange { path, offset, len }, 10_000, 4096)
        };
        assert_eq!(range(5000, 1), 4096..8192);
        assert_eq!(range(0, u64::MAX), 0..10_000);
        assert_eq!(range(9000, 10), 8192..10_000);
    }
}
