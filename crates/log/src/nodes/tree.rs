//! From a logical block of a file to the pointer that says where it lies.

#![deny(clippy::indexing_slicing)]

use std::ops::Range;

use anteros_core::{FsError, FsResult};

use crate::compress::chunks::CHUNK_BLOCKS_MAX;
use crate::layout::Block;
use crate::layout::node::{
    self, DIRECT_POINTERS, FILE_BLOCKS, INDIRECT_NIDS, INODE_POINTERS, NodeKind, Path,
};
use crate::layout::pointer::{Pointer, Slotted};
use crate::nodes::Nodes;
use crate::store::medium::vanished;

/// Tells where a pointer lies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Leaf {
    /// In the inode.
    Inode,
    /// In this direct node, at this place of the tree.
    Direct { nid: u32, position: u32 },
    /// Nowhere: all logical blocks up to this one are holes.
    Absent(u32),
}

impl Leaf {
    /// The node, of an inode if it is no other.
    fn nid(self, ino: u32) -> u32 {
        match self {
            Self::Direct { nid, .. } => nid,
            Self::Inode | Self::Absent(_) => ino,
        }
    }
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
            let position = step.position;
            let node = self.node(ino, nid, kind_of(step.level), position)?;
            if step.level == 0 {
                return Ok(Leaf::Direct { nid, position });
            }
            nid = node::nid(node.block(), step.index);
        }
        Err(vanished())
    }

    /// The node, other than the inode, that the pointer of a logical block lies in.
    pub(crate) fn leaf_nid(&mut self, ino: u32, lblk: u32) -> FsResult<Option<u32>> {
        let path = Self::path(lblk)?;
        Ok(match self.leaf(ino, &path)? {
            Leaf::Direct { nid, .. } => Some(nid),
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
        let position = above.position;
        Ok(Leaf::Direct { nid, position })
    }

    /// The node that pointers lie in; a hole lies in none.
    fn leaf_block(&mut self, ino: u32, leaf: Leaf) -> FsResult<Option<(NodeKind, &Block)>> {
        Ok(match leaf {
            Leaf::Inode => Some((NodeKind::Inode, self.live(ino)?.pointers())),
            Leaf::Direct { nid, position } => {
                let node = self.node(ino, nid, NodeKind::Direct, position)?;
                Some((NodeKind::Direct, node.block()))
            }
            Leaf::Absent(_) => None,
        })
    }

    /// As [`leaf_block`](Self::leaf_block), to be changed; a hole counts as one in the inode.
    fn leaf_block_mut(&mut self, ino: u32, leaf: Leaf) -> FsResult<(NodeKind, &mut Block)> {
        Ok(match leaf {
            Leaf::Direct { nid, position } => {
                let node = self.node(ino, nid, NodeKind::Direct, position)?;
                (NodeKind::Direct, node.block_mut())
            }
            _ => (NodeKind::Inode, self.live(ino)?.pointers_mut()),
        })
    }

    fn decode(&self, ino: u32, leaf: Leaf, index: u16, raw: u64) -> FsResult<Pointer> {
        let superblock = self.store.superblock();
        Ok(Pointer::decode(raw, superblock, leaf.nid(ino), index)?)
    }

    /// The pointers at these places of a node that are no holes, as they lie there.
    fn raw_pointers(
        &mut self,
        ino: u32,
        leaf: Leaf,
        indexes: Range<u16>,
    ) -> FsResult<Vec<(u16, u64)>> {
        let Some((kind, block)) = self.leaf_block(ino, leaf)? else {
            return Ok(Vec::new());
        };
        let raw = indexes.map(|index| (index, node::pointer(block, kind, index)));
        Ok(raw.filter(|(_, raw)| *raw != 0).collect())
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
            let indexes = (at - path.first) as u16..(end - path.first) as u16;
            for (index, raw) in self.raw_pointers(ino, leaf, indexes)? {
                let pointer = self.decode(ino, leaf, index, raw)?;
                visit(path.first + u32::from(index), pointer);
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
            if let Leaf::Direct { nid, position } = self.make_leaf(ino, &path)? {
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
            for (lblk, old) in (at..).zip(self.swap_pointers(ino, leaf, path.index(), here)?) {
                self.overwritten(ino, lblk, old)?;
                was(old);
            }
            at += count as u32;
            pointers = rest;
        }
        Ok(())
    }

    /// Sets pointers of one node from this place on, and returns those that were there.
    fn swap_pointers(
        &mut self,
        ino: u32,
        leaf: Leaf,
        first: u16,
        new: &[Pointer],
    ) -> FsResult<Vec<Pointer>> {
        let (kind, block) = self.leaf_block_mut(ino, leaf)?;
        let indexes = first..;
        let raw: Vec<u64> = indexes
            .clone()
            .zip(new)
            .map(|(index, _)| node::pointer(block, kind, index))
            .collect();
        for (index, pointer) in indexes.clone().zip(new) {
            node::set_pointer(block, kind, index, pointer.encode());
        }
        let decode = |(index, raw)| self.decode(ino, leaf, index, raw);
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
        let own = range.start.min(INODE_POINTERS) as u16..range.end.min(INODE_POINTERS) as u16;
        self.clear_in(ino, Leaf::Inode, 0, own)?;
        for (root, subtree) in Subtree::all(nids).enumerate() {
            if self.clear_below(ino, subtree, &range)? {
                self.set_root(ino, root, 0)?;
            }
        }
        Ok(())
    }

    /// Makes holes of pointers of one node, whose first one is that of this logical block.
    fn clear_in(&mut self, ino: u32, leaf: Leaf, first: u32, indexes: Range<u16>) -> FsResult<()> {
        let raw = self.raw_pointers(ino, leaf, indexes)?;
        let decode = |&(index, raw): &(u16, u64)| {
            let pointer = self.decode(ino, leaf, index, raw)?;
            Ok((first + u32::from(index), pointer))
        };
        let gone = raw.iter().map(decode).collect::<FsResult<Vec<_>>>()?;
        if gone.is_empty() {
            return Ok(());
        }
        let (kind, block) = self.leaf_block_mut(ino, leaf)?;
        for (index, _) in raw {
            node::set_pointer(block, kind, index, 0);
        }
        self.release(ino, &gone)
    }

    /// Returns whether the node itself was given back.
    fn clear_below(&mut self, ino: u32, tree: Subtree, range: &Range<u32>) -> FsResult<bool> {
        if tree.nid == 0 || range.end <= tree.first || range.start >= tree.end() {
            return Ok(false);
        }
        let (nid, position) = (tree.nid, tree.position);
        let indexes = tree.indexes(range);
        if tree.level == 0 {
            let indexes = indexes.start as u16..indexes.end as u16;
            self.clear_in(ino, Leaf::Direct { nid, position }, tree.first, indexes)?;
        } else {
            for index in indexes {
                self.clear_child(ino, tree, index, range)?;
            }
        }
        let is_covered = range.start <= tree.first && range.end >= tree.end();
        if is_covered {
            self.drop_node(ino, tree.nid)?;
        }
        Ok(is_covered)
    }

    /// Clears what lies below one of the nodes that an indirect one names.
    fn clear_child(
        &mut self,
        ino: u32,
        tree: Subtree,
        index: u32,
        range: &Range<u32>,
    ) -> FsResult<()> {
        let node = self.node(ino, tree.nid, NodeKind::Indirect, tree.position)?;
        let child = tree.child(node::nid(node.block(), index as u16), index);
        if self.clear_below(ino, child, range)? {
            let node = self.node(ino, tree.nid, NodeKind::Indirect, tree.position)?;
            node::set_nid(node.block_mut(), index as u16, 0);
        }
        Ok(())
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

    /// Logical blocks of an inode are gone that had these pointers, and none of them is there any more.
    fn release(&mut self, ino: u32, gone: &[(u32, Pointer)]) -> FsResult<()> {
        let blocks = gone.iter().filter(|(_, pointer)| pointer.has_block());
        self.store.space_mut().give(blocks.count() as u64);
        let count = &mut self.live(ino)?.attributes().blocks;
        *count = count.saturating_sub(gone.len() as u64);
        let is_one = |(_, left): &(u32, Pointer), (_, right): &(u32, Pointer)| {
            left.chunk().is_some() && left.chunk() == right.chunk()
        };
        let mut first = gone.chunk_by(is_one).filter_map(<[_]>::first);
        first.try_for_each(|&(lblk, pointer)| self.overwritten(ino, lblk, pointer))
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
mod tests;
