//! From a logical block of a file to the pointer that says where it lies.

#![deny(clippy::indexing_slicing)]

use std::ops::Range;

use anteros_core::{FsError, FsResult};

use crate::compress::chunks::CHUNK_BLOCKS_MAX;
use crate::layout::Block;
use crate::layout::node::{
    self, DIRECT_POINTERS, FILE_BLOCKS, INDIRECT_NIDS, INODE_POINTERS, NodeKind, Path, Step,
};
use crate::layout::pointer::{Pointer, Slotted};
use crate::nodes::Nodes;
use crate::store::medium::vanished;

/// Tells where a pointer lies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Leaf {
    /// In the inode.
    Inode,
    /// In this direct node.
    Direct(u32),
    /// Nowhere: all logical blocks up to this one are holes.
    Absent(u32),
}

/// Logical blocks below a node so many levels above the pointers; there are no more than two.
const fn span(level: usize) -> u32 {
    match level {
        0 => DIRECT_POINTERS,
        1 => DIRECT_POINTERS * INDIRECT_NIDS,
        _ => DIRECT_POINTERS * INDIRECT_NIDS * INDIRECT_NIDS,
    }
}

/// The five subtrees of an inode: how many levels they have, the first logical block, the place of the node.
const ROOTS: [(usize, u32, u32); 5] = [
    (0, INODE_POINTERS, 1),
    (0, INODE_POINTERS + span(0), 2),
    (1, INODE_POINTERS + 2 * span(0), 3),
    (1, INODE_POINTERS + 2 * span(0) + span(1), 4 + INDIRECT_NIDS),
    (
        2,
        INODE_POINTERS + 2 * span(0) + 2 * span(1),
        5 + 2 * INDIRECT_NIDS,
    ),
];

fn kind_of(level: usize) -> NodeKind {
    if level == 0 {
        NodeKind::Direct
    } else {
        NodeKind::Indirect
    }
}

/// A node of the tree and what lies below it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Subtree {
    pub(crate) nid: u32,
    /// Levels above the nodes with pointers.
    pub(crate) level: usize,
    pub(crate) position: u32,
    /// The first logical block below it.
    pub(crate) first: u32,
}

impl Subtree {
    /// The five of an inode, with the number 0 where there is none.
    fn all(nids: [u32; 5]) -> impl Iterator<Item = Self> {
        let subtrees = ROOTS.into_iter().zip(nids);
        subtrees.map(|((level, first, position), nid)| Self {
            nid,
            level,
            position,
            first,
        })
    }

    /// The five of an inode, of those that are there.
    pub(crate) fn of(nids: [u32; 5]) -> impl Iterator<Item = Self> {
        Self::all(nids).filter(|subtree| subtree.nid != 0)
    }

    /// Those one level below, of an indirect node.
    pub(crate) fn children<'a>(&'a self, block: &'a Block) -> impl Iterator<Item = Self> + 'a {
        let nids = (0..INDIRECT_NIDS).map(|index| (index, node::nid(block, index as u16)));
        nids.filter(|(_, nid)| *nid != 0)
            .map(|(index, nid)| self.child(nid, index))
    }

    fn end(&self) -> u32 {
        self.first + span(self.level)
    }

    fn child(&self, nid: u32, index: u32) -> Self {
        let level = self.level - 1;
        let nodes_below = if level == 0 { 1 } else { 1 + INDIRECT_NIDS };
        Self {
            nid,
            level,
            position: self.position + 1 + index * nodes_below,
            first: self.first + index * span(level),
        }
    }

    /// The children, or pointers, that lie in this range of logical blocks.
    fn indexes(&self, range: &Range<u32>) -> Range<u32> {
        let unit = if self.level == 0 {
            1
        } else {
            span(self.level - 1)
        };
        let start = range.start.saturating_sub(self.first) / unit;
        let end = (range.end.min(self.end()) - self.first).div_ceil(unit);
        start..end
    }
}

impl Nodes {
    fn path(lblk: u32) -> FsResult<Path> {
        Path::to(lblk).ok_or(FsError::TooLarge)
    }

    /// The subtree of an inode that a way leads into, by its number among the five.
    fn root(&mut self, ino: u32, root: u8) -> FsResult<Subtree> {
        let nids = self.live(ino)?.inode().nids;
        let mut subtrees = Subtree::all(nids);
        subtrees.nth(root.into()).ok_or_else(vanished)
    }

    /// Names the node of one of the five subtrees of an inode; 0 for none.
    fn set_root(&mut self, ino: u32, root: usize, nid: u32) -> FsResult<()> {
        let nids = &mut self.live(ino)?.inode_mut().nids;
        *nids.get_mut(root).ok_or_else(vanished)? = nid;
        Ok(())
    }

    fn leaf(&mut self, ino: u32, path: &Path) -> FsResult<Leaf> {
        let Some(root) = path.root else {
            return Ok(Leaf::Inode);
        };
        let root = self.root(ino, root)?;
        let mut nid = root.nid;
        for step in path.steps() {
            if nid == 0 {
                let span = span(step.level);
                let first = path.first - (path.first - root.first) % span;
                return Ok(Leaf::Absent(first + span));
            }
            let node = self.node(ino, nid, kind_of(step.level), step.position)?;
            if step.level == 0 {
                return Ok(Leaf::Direct(nid));
            }
            nid = node::nid(node.block(), step.index);
        }
        Err(vanished())
    }

    /// The node, other than the inode, that the pointer of a logical block lies in.
    pub(crate) fn leaf_nid(&mut self, ino: u32, lblk: u32) -> FsResult<Option<u32>> {
        let path = Self::path(lblk)?;
        Ok(match self.leaf(ino, &path)? {
            Leaf::Direct(nid) => Some(nid),
            Leaf::Inode | Leaf::Absent(_) => None,
        })
    }

    /// As [`leaf`](Self::leaf); the nodes on the way are made if they are not there.
    fn make_leaf(&mut self, ino: u32, path: &Path) -> FsResult<Leaf> {
        let mut steps = path.steps();
        let (Some(root), Some(mut above)) = (path.root, steps.next()) else {
            return Ok(Leaf::Inode);
        };
        let mut nid = self.root(ino, root)?.nid;
        if nid == 0 {
            nid = self.new_node(ino, kind_of(above.level), above.position)?;
            self.set_root(ino, root.into(), nid)?;
        }
        for step in steps {
            let parent = self.node(ino, nid, kind_of(above.level), above.position)?;
            let mut child = node::nid(parent.block(), above.index);
            if child == 0 {
                child = self.new_node(ino, kind_of(step.level), step.position)?;
                let parent = self.node(ino, nid, kind_of(above.level), above.position)?;
                node::set_nid(parent.block_mut(), above.index, child);
            }
            nid = child;
            above = step;
        }
        Ok(Leaf::Direct(nid))
    }

    /// The direct node at the end of a way.
    fn last(path: &Path) -> FsResult<Step> {
        path.steps().next_back().ok_or_else(vanished)
    }

    fn raw_pointer(&mut self, ino: u32, leaf: Leaf, path: &Path, index: u16) -> FsResult<u64> {
        match leaf {
            Leaf::Inode => Ok(node::pointer(
                self.live(ino)?.pointers(),
                NodeKind::Inode,
                index,
            )),
            Leaf::Direct(nid) => {
                let position = Self::last(path)?.position;
                let node = self.node(ino, nid, NodeKind::Direct, position)?;
                Ok(node::pointer(node.block(), NodeKind::Direct, index))
            }
            Leaf::Absent(_) => Ok(0),
        }
    }

    fn decode(&self, leaf: Leaf, ino: u32, index: u16, raw: u64) -> FsResult<Pointer> {
        let nid = if let Leaf::Direct(nid) = leaf {
            nid
        } else {
            ino
        };
        Ok(Pointer::decode(raw, self.store.superblock(), nid, index)?)
    }

    /// Returns where a logical block lies.
    pub(crate) fn pointer(&mut self, ino: u32, lblk: u32) -> FsResult<Pointer> {
        let mut found = Pointer::Hole;
        self.for_pointers(ino, lblk..lblk.saturating_add(1), |_, pointer| {
            found = pointer
        })?;
        Ok(found)
    }

    /// Calls `visit` for each logical block of a range that is no hole.
    pub(crate) fn for_pointers(
        &mut self,
        ino: u32,
        range: Range<u32>,
        mut visit: impl FnMut(u32, Pointer),
    ) -> FsResult<()> {
        if self.live(ino)?.inode().attributes.is_inline {
            return Ok(());
        }
        let mut at = range.start;
        while at < range.end.min(FILE_BLOCKS) {
            let path = Self::path(at)?;
            let leaf = self.leaf(ino, &path)?;
            if let Leaf::Absent(until) = leaf {
                at = until;
                continue;
            }
            let end = range.end.min(path.first + path.count);
            for lblk in at..end {
                let index = (lblk - path.first) as u16;
                let raw = self.raw_pointer(ino, leaf, &path, index)?;
                if raw != 0 {
                    visit(lblk, self.decode(leaf, ino, index, raw)?);
                }
            }
            at = end;
        }
        Ok(())
    }

    /// The logical blocks of the next node with pointers that is there, at or behind a block.
    pub(crate) fn next_leaf(&mut self, ino: u32, from: u32) -> FsResult<Option<Range<u32>>> {
        let mut at = if self.live(ino)?.inode().attributes.is_inline {
            FILE_BLOCKS
        } else {
            from
        };
        while at < FILE_BLOCKS {
            let path = Self::path(at)?;
            match self.leaf(ino, &path)? {
                Leaf::Absent(until) => at = until,
                _ => return Ok(Some(path.first..path.first + path.count)),
            }
        }
        Ok(None)
    }

    /// Makes the nodes that the pointers of a range lie in; they will have to be written, as will the inode, which says when.
    /// None is left if there is no room for one of them.
    pub(crate) fn prepare(&mut self, ino: u32, range: Range<u32>) -> FsResult<()> {
        let prepared = self.prepare_each(ino, range.clone());
        self.prune_unless(prepared, ino, range)
    }

    fn prepare_each(&mut self, ino: u32, range: Range<u32>) -> FsResult<()> {
        let mut at = range.start;
        while at < range.end {
            let path = Self::path(at)?;
            if let Leaf::Direct(nid) = self.make_leaf(ino, &path)? {
                let position = Self::last(&path)?.position;
                self.node(ino, nid, NodeKind::Direct, position)?
                    .mark_dirty();
            }
            at = path.first + path.count;
        }
        Ok(())
    }

    /// Says where a logical block lies now, and returns where it lay before; that block is not valid any more.
    pub(crate) fn set_pointer(
        &mut self,
        ino: u32,
        lblk: u32,
        pointer: Pointer,
    ) -> FsResult<Pointer> {
        let mut old = Pointer::Hole;
        self.set_pointers(ino, lblk, &[pointer], |was| old = was)?;
        Ok(old)
    }

    /// Says where the logical blocks from `first` on lie now. `was` hears where each lay before; these blocks are not
    /// valid any more.
    pub(crate) fn set_pointers(
        &mut self,
        ino: u32,
        first: u32,
        pointers: &[Pointer],
        was: impl FnMut(Pointer),
    ) -> FsResult<()> {
        self.swap_all(ino, first, pointers, was)?;
        let end = first + pointers.len() as u32;
        self.live(ino)?.unrecorded.insert(first..end);
        Ok(())
    }

    /// Sets pointers as [`set_pointers`](Self::set_pointers) does, and leaves no record: a group has them in another way.
    pub(crate) fn swap_all(
        &mut self,
        ino: u32,
        first: u32,
        mut pointers: &[Pointer],
        mut was: impl FnMut(Pointer),
    ) -> FsResult<()> {
        let mut at = first;
        while !pointers.is_empty() {
            let path = Self::path(at)?;
            let leaf = self.make_leaf(ino, &path)?;
            let count = pointers.len().min((path.first + path.count - at) as usize);
            let (here, rest) = pointers.split_at(count);
            for (lblk, old) in (at..).zip(self.swap_pointers(ino, leaf, &path, here)?) {
                self.overwritten(ino, lblk, old)?;
                was(old);
            }
            at += count as u32;
            pointers = rest;
        }
        Ok(())
    }

    /// Sets pointers of one node, and returns those that were there.
    fn swap_pointers(
        &mut self,
        ino: u32,
        leaf: Leaf,
        path: &Path,
        new: &[Pointer],
    ) -> FsResult<Vec<Pointer>> {
        let (kind, nid, block) = match leaf {
            Leaf::Direct(nid) => {
                let position = Self::last(path)?.position;
                let node = self.node(ino, nid, NodeKind::Direct, position)?;
                (NodeKind::Direct, nid, node.block_mut())
            }
            _ => (NodeKind::Inode, ino, self.live(ino)?.pointers_mut()),
        };
        let indexes = path.index()..;
        let raw: Vec<u64> = indexes
            .clone()
            .zip(new)
            .map(|(index, _)| node::pointer(block, kind, index))
            .collect();
        for (index, pointer) in indexes.clone().zip(new) {
            node::set_pointer(block, kind, index, pointer.encode());
        }
        let decode = |(index, raw)| Ok(Pointer::decode(raw, self.store.superblock(), nid, index)?);
        indexes.zip(raw).map(decode).collect()
    }

    /// Notes that what a pointer named lies elsewhere now, or nowhere.
    pub(crate) fn overwritten(&mut self, ino: u32, lblk: u32, old: Pointer) -> FsResult<()> {
        match old {
            Pointer::Hole => {}
            Pointer::Preallocated => self.store.space_mut().fill_preallocated(1),
            Pointer::Plain(block, _) => self.store.invalidate(block),
            Pointer::Packed(at) => self.leave_chunk(ino, lblk, at)?,
        }
        Ok(())
    }

    /// Makes holes: gives back the blocks of a range, and the nodes that it covers wholly. Content that is
    /// only in memory is not touched.
    pub(crate) fn clear_pointers(&mut self, ino: u32, range: Range<u32>) -> FsResult<()> {
        let live = self.live(ino)?;
        if live.inode().attributes.is_inline || range.is_empty() {
            return Ok(());
        }
        live.unrecorded.insert(range.clone());
        let nids = live.inode().nids;
        for index in range.start.min(INODE_POINTERS)..range.end.min(INODE_POINTERS) {
            let raw = node::pointer(self.live(ino)?.pointers(), NodeKind::Inode, index as u16);
            if raw != 0 {
                let pointer = self.decode(Leaf::Inode, ino, index as u16, raw)?;
                node::set_pointer(
                    self.live(ino)?.pointers_mut(),
                    NodeKind::Inode,
                    index as u16,
                    0,
                );
                self.release(ino, index, pointer)?;
            }
        }
        for (root, subtree) in Subtree::all(nids).enumerate() {
            if self.clear_below(ino, subtree, &range)? {
                self.set_root(ino, root, 0)?;
            }
        }
        Ok(())
    }

    /// Returns whether the node itself was given back.
    fn clear_below(&mut self, ino: u32, tree: Subtree, range: &Range<u32>) -> FsResult<bool> {
        if tree.nid == 0 || range.end <= tree.first || range.start >= tree.end() {
            return Ok(false);
        }
        let kind = kind_of(tree.level);
        for index in tree.indexes(range) {
            let node = self.node(ino, tree.nid, kind, tree.position)?;
            if tree.level > 0 {
                let child = tree.child(node::nid(node.block(), index as u16), index);
                if self.clear_below(ino, child, range)? {
                    let node = self.node(ino, tree.nid, kind, tree.position)?;
                    node::set_nid(node.block_mut(), index as u16, 0);
                }
                continue;
            }
            let raw = node::pointer(node.block(), kind, index as u16);
            if raw != 0 {
                let pointer = self.decode(Leaf::Direct(tree.nid), ino, index as u16, raw)?;
                let node = self.node(ino, tree.nid, kind, tree.position)?;
                node::set_pointer(node.block_mut(), kind, index as u16, 0);
                self.release(ino, tree.first + index, pointer)?;
            }
        }
        let is_covered = range.start <= tree.first && range.end >= tree.end();
        if is_covered {
            self.drop_node(ino, tree.nid)?;
        }
        Ok(is_covered)
    }

    /// Gives back the nodes of a range that lead to nothing, if there was no room for what they were made for.
    pub(crate) fn prune_unless(
        &mut self,
        done: FsResult<()>,
        ino: u32,
        range: Range<u32>,
    ) -> FsResult<()> {
        if matches!(done, Err(FsError::NoSpace)) {
            self.prune(ino, range)?;
        }
        done
    }

    /// Gives back the nodes of a range that lead to nothing.
    pub(crate) fn prune(&mut self, ino: u32, range: Range<u32>) -> FsResult<()> {
        let live = self.live(ino)?;
        if live.inode().attributes.is_inline {
            return Ok(());
        }
        let nids = live.inode().nids;
        for (root, tree) in Subtree::all(nids).enumerate() {
            if self.prune_below(ino, tree, &range)? {
                self.set_root(ino, root, 0)?;
            }
        }
        Ok(())
    }

    /// Returns whether the node itself was given back.
    fn prune_below(&mut self, ino: u32, tree: Subtree, range: &Range<u32>) -> FsResult<bool> {
        if tree.nid == 0 || range.end <= tree.first || range.start >= tree.end() {
            return Ok(false);
        }
        let kind = kind_of(tree.level);
        if tree.level > 0 {
            for index in tree.indexes(range) {
                let node = self.node(ino, tree.nid, kind, tree.position)?;
                let child = tree.child(node::nid(node.block(), index as u16), index);
                if self.prune_below(ino, child, range)? {
                    let node = self.node(ino, tree.nid, kind, tree.position)?;
                    node::set_nid(node.block_mut(), index as u16, 0);
                }
            }
        }
        let node = self.node(ino, tree.nid, kind, tree.position)?;
        let leads_on = match tree.level {
            0 => (0..DIRECT_POINTERS).any(|at| node::pointer(node.block(), kind, at as u16) != 0),
            _ => (0..INDIRECT_NIDS).any(|at| node::nid(node.block(), at as u16) != 0),
        };
        let mut pages = self.live(ino)?.pages.range(tree.first..tree.end());
        // Content that waits for its place in memory will lie below it.
        if leads_on || pages.any(|(_, page)| page.dirty) {
            return Ok(false);
        }
        self.drop_node(ino, tree.nid)?;
        Ok(true)
    }

    /// A logical block of an inode is gone that had this pointer.
    fn release(&mut self, ino: u32, lblk: u32, pointer: Pointer) -> FsResult<()> {
        self.overwritten(ino, lblk, pointer)?;
        self.store.space_mut().give(pointer.has_block().into());
        let blocks = &mut self.live(ino)?.attributes().blocks;
        *blocks = blocks.saturating_sub(1);
        Ok(())
    }

    /// Calls `visit` for each node of the tree of an inode; below one that cannot be read, it is called with the
    /// reason.
    pub(crate) fn for_nodes(
        &mut self,
        ino: u32,
        visit: &mut dyn FnMut(u32, FsResult<()>),
    ) -> FsResult<()> {
        let nids = self.live(ino)?.inode().nids;
        for tree in Subtree::of(nids) {
            self.visit_below(ino, tree, visit);
        }
        Ok(())
    }

    fn visit_below(&mut self, ino: u32, tree: Subtree, visit: &mut dyn FnMut(u32, FsResult<()>)) {
        if tree.nid == 0 {
            return;
        }
        let block = match self.node(ino, tree.nid, kind_of(tree.level), tree.position) {
            Ok(node) => Box::new(*node.block()),
            Err(error) => return visit(tree.nid, Err(error)),
        };
        visit(tree.nid, Ok(()));
        if tree.level > 0 {
            for index in 0..INDIRECT_NIDS {
                self.visit_below(
                    ino,
                    tree.child(node::nid(&block, index as u16), index),
                    visit,
                );
            }
        }
    }

    /// A logical block is not where a pointer said any more: its chunk may be of no use to anything.
    pub(crate) fn leave_chunk(&mut self, ino: u32, lblk: u32, at: Slotted) -> FsResult<()> {
        let first = lblk.saturating_sub(at.sequence.into());
        let mut is_used = false;
        self.for_pointers(ino, first..first + CHUNK_BLOCKS_MAX, |_, pointer| {
            is_used |= pointer.chunk() == Some((at.block, at.slot));
        })?;
        if !is_used {
            at.places()
                .for_each(|(block, slot)| self.store.vacate(block, slot));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_way_leads_through_the_subtrees_that_have_the_block() {
        let inner = DIRECT_POINTERS * INDIRECT_NIDS;
        let edges = [
            INODE_POINTERS,
            INODE_POINTERS + DIRECT_POINTERS,
            INODE_POINTERS + 2 * DIRECT_POINTERS,
            INODE_POINTERS + 2 * DIRECT_POINTERS + inner,
            INODE_POINTERS + 2 * DIRECT_POINTERS + 2 * inner,
            INODE_POINTERS + 2 * DIRECT_POINTERS + 5 * inner,
        ];
        for lblk in edges
            .into_iter()
            .flat_map(|edge| [edge, edge + 600])
            .chain([FILE_BLOCKS - 1])
        {
            let path = Path::to(lblk).unwrap();
            let root = path.root.unwrap();
            let mut tree = Subtree::all([1; 5]).nth(root.into()).unwrap();
            for step in path.steps() {
                assert!((tree.first..tree.end()).contains(&lblk), "block {lblk}");
                let place = (tree.level, tree.position);
                assert_eq!(place, (step.level, step.position), "block {lblk}");
                if step.level > 0 {
                    tree = tree.child(1, step.index.into());
                }
            }
            assert_eq!(tree.first, path.first, "block {lblk}");
        }
    }
}
