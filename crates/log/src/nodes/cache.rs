//! Nodes in memory: read when they are wanted, made, and given up.

use anteros_core::{FsError, FsResult};

use crate::layout::node::{Inode, NodeHeader, NodeKind};
use crate::layout::table::NatEntry;
use crate::layout::{Block, Corrupt};
use crate::nodes::Nodes;
use crate::nodes::loaded::{CachedInode, Node};
use crate::nodes::place::NodePlace;
use crate::store::medium::vanished;

/// Checks that a node is `kind` of `ino` at this position.
fn check_node(header: &NodeHeader, ino: u32, kind: NodeKind, position: u32) -> FsResult<()> {
    let nid = header.nid;
    let fault = |rule, found| Err(FsError::from(Corrupt::Node { nid, rule, found }));
    if header.ino != ino {
        return fault("the node belongs to another inode", header.ino.into());
    }
    if header.kind != kind || header.position != position {
        return fault(
            "the node has another place in the tree",
            header.position.into(),
        );
    }
    Ok(())
}

impl Nodes {
    /// An inode that is there: named, or held.
    pub(crate) fn live(&mut self, ino: u32) -> FsResult<&mut CachedInode> {
        let stamp = self.tick();
        if !self.inodes.contains_key(&ino) {
            let live = self.load(ino)?;
            self.inodes.insert(ino, Box::new(live));
        }
        let live = self.inodes.get_mut(&ino).ok_or_else(vanished)?;
        live.stamp = stamp;
        Ok(live)
    }

    fn load(&mut self, ino: u32) -> FsResult<CachedInode> {
        if !self.nat.is_valid(ino) {
            return Err(FsError::NotFound);
        }
        let entry = self.nat.get(ino)?;
        if entry.ino != ino {
            return Err(FsError::NotFound);
        }
        let place = NodePlace::of(entry, self.store.superblock(), ino)?;
        let (header, block) = self.read_at(place, ino, entry.ino)?;
        if header.kind != NodeKind::Inode {
            return Err(Corrupt::Node {
                nid: ino,
                rule: "the node is no inode",
                found: header.kind as u64,
            }
            .into());
        }
        let inode = Inode::parse(&block, ino)?;
        let mut live = CachedInode::read(inode, block, self.store.dirty_inodes());
        live.has_block = place.has_block();
        Ok(live)
    }

    /// The block of a node that the table has, checked.
    pub(crate) fn read_node(&mut self, nid: u32) -> FsResult<(NodeHeader, Box<Block>)> {
        let entry = self.nat.get(nid)?;
        let place = NodePlace::of(entry, self.store.superblock(), nid)?;
        self.read_at(place, nid, entry.ino)
    }

    fn read_at(
        &mut self,
        place: NodePlace,
        nid: u32,
        ino: u32,
    ) -> FsResult<(NodeHeader, Box<Block>)> {
        let block = place.read(nid, &mut self.store)?;
        let header = NodeHeader::check(&block, nid)?;
        if header.ino != ino {
            return Err(Corrupt::Node {
                nid,
                rule: "the node address table has another inode for it",
                found: header.ino.into(),
            }
            .into());
        }
        Ok((header, block))
    }

    /// The place that the table has for a node.
    pub(crate) fn place_of(&mut self, nid: u32) -> FsResult<NodePlace> {
        let entry = self.nat.get(nid)?;
        Ok(NodePlace::of(entry, self.store.superblock(), nid)?)
    }

    /// As [`live`](Self::live), of an inode that is in memory already.
    pub(crate) fn loaded(&self, ino: u32) -> Option<&CachedInode> {
        self.inodes.get(&ino).map(|live| &**live)
    }

    /// Another node than an inode that is in memory already, as it is.
    pub(crate) fn loaded_node(&self, nid: u32) -> Option<(&NodeHeader, &Block)> {
        let node = self.others.get(&nid)?;
        Some((node.header(), node.block()))
    }

    /// The inodes with content that has to be written.
    pub(crate) fn dirty_inos(&self) -> Vec<u32> {
        self.inos(|live| live.dirty_pages > 0)
    }

    /// The inodes with content that no group has.
    pub(crate) fn changed_inos(&self) -> Vec<u32> {
        self.inos(|live| {
            live.content_changed || live.dirty_pages > 0 || !live.unrecorded.is_empty()
        })
    }

    pub(super) fn inos(&self, is_wanted: impl Fn(&CachedInode) -> bool) -> Vec<u32> {
        let wanted = self.inodes.iter().filter(|(_, live)| is_wanted(live));
        let mut inos: Vec<u32> = wanted.map(|(&ino, _)| ino).collect();
        inos.sort_unstable();
        inos
    }

    /// A new inode.
    pub(crate) fn insert(&mut self, ino: u32, inode: Inode) {
        let mut live = CachedInode::new(inode, self.store.dirty_inodes());
        live.stamp = self.tick();
        self.inode_count += 1;
        self.inodes.insert(ino, Box::new(live));
    }

    /// Forgets an inode that is gone, and its content with it.
    pub(crate) fn remove(&mut self, ino: u32) {
        if self.inodes.remove(&ino).is_some() {
            self.inode_count = self.inode_count.saturating_sub(1);
        }
    }

    /// Another node than an inode, which has to be `kind` of `ino` at this position.
    pub(crate) fn node(
        &mut self,
        ino: u32,
        nid: u32,
        kind: NodeKind,
        position: u32,
    ) -> FsResult<&mut Node> {
        let stamp = self.tick();
        if !self.others.contains_key(&nid) {
            let (header, block) = self.read_node(nid)?;
            self.others
                .insert(nid, Node::read(header, block, self.store.dirty_nodes()));
        }
        let node = self.others.get_mut(&nid).ok_or_else(vanished)?;
        check_node(node.header(), ino, kind, position)?;
        node.stamp = stamp;
        Ok(node)
    }

    /// A copy of such a node, which does not stay in memory if it is not there already.
    pub(crate) fn copy_node(
        &mut self,
        ino: u32,
        nid: u32,
        kind: NodeKind,
        position: u32,
    ) -> FsResult<Box<Block>> {
        if let Some(node) = self.others.get(&nid) {
            let copy = Box::new(*node.block());
            check_node(node.header(), ino, kind, position)?;
            return Ok(copy);
        }
        let (header, block) = self.read_node(nid)?;
        check_node(&header, ino, kind, position)?;
        Ok(block)
    }

    /// Makes a node, empty.
    pub(crate) fn new_node(&mut self, ino: u32, kind: NodeKind, position: u32) -> FsResult<u32> {
        self.store.space_mut().take(1)?;
        let allocated = self
            .nat
            .allocate()
            .and_then(|nid| nid.ok_or(FsError::NoSpace));
        let nid = allocated.inspect_err(|_| self.store.space_mut().give(1))?;
        let owner = if kind == NodeKind::Inode { nid } else { ino };
        // What a crash takes had a number as well, which no table says. The versions of checkpoints grow with each mount.
        let generation = self
            .nat
            .get(nid)?
            .generation
            .max(self.store.version() as u32);
        self.nat.set(
            nid,
            NatEntry {
                pointer: 0,
                ino: owner,
                generation,
            },
        );
        if kind != NodeKind::Inode {
            let header = NodeHeader {
                nid,
                ino,
                version: 0,
                kind,
                position,
            };
            let mut node = Node::new(header, self.store.dirty_nodes());
            node.stamp = self.tick();
            self.others.insert(nid, node);
            self.live(ino)?.attributes().blocks += 1;
        }
        Ok(nid)
    }

    /// A node is not needed any more.
    pub(crate) fn drop_node(&mut self, ino: u32, nid: u32) -> FsResult<()> {
        self.others.remove(&nid);
        self.free_nid(nid)?;
        if ino != nid {
            let blocks = &mut self.live(ino)?.attributes().blocks;
            *blocks = blocks.saturating_sub(1);
        }
        Ok(())
    }

    /// Gives back the number of a node and the block that it lay in.
    pub(crate) fn free_nid(&mut self, nid: u32) -> FsResult<()> {
        let place = self.place_of(nid)?;
        let has_block = match self.inodes.get(&nid) {
            Some(live) => live.has_block,
            None => place.has_block(),
        };
        self.nat.free(nid)?;
        self.store.space_mut().give(has_block.into());
        place.leave(&mut self.store);
        Ok(())
    }

    /// Notes that content of an inode has left outside of a group.
    pub(crate) fn left_early(&mut self, ino: u32) -> FsResult<()> {
        let epoch = self.store.epoch();
        self.live(ino)?.early = epoch;
        Ok(())
    }

    /// Returns whether content of an inode is under writeback outside of a group.
    pub(crate) fn is_under_way(&self, ino: u32) -> bool {
        self.loaded(ino)
            .is_some_and(|live| self.store.is_unflushed(live.early))
    }
}
