//! Nodes that are written: each goes to a new place, which the node address table names from then on.

use std::collections::BTreeSet;

use anteros_core::{FileKind, FsResult};

use crate::compress::kind::ContentKind;
use crate::layout::Block;
use crate::layout::checkpoint::HeadKind;
use crate::layout::node::{NodeHeader, NodeKind};
use crate::layout::summary::Owner;
use crate::layout::table::NatEntry;
use crate::nodes::Nodes;
use crate::nodes::loaded::{CachedInode, Node};
use crate::nodes::place::NodePlace;
use crate::statistics::Cause;
use crate::store::medium::vanished;
use crate::store::segments::Moment;

/// An inode with so many bytes of content finds a slot whatever they are: all behind them is zeros.
const CONTENT_SMALL: usize = 2560;

impl Nodes {
    /// Writes all that is dirty of the nodes, to new places.
    pub(crate) fn write_nodes(&mut self) -> FsResult<()> {
        let nids: BTreeSet<u32> = self
            .others
            .iter()
            .filter(|(_, node)| node.is_dirty())
            .map(|(&nid, _)| nid)
            .collect();
        for nid in nids {
            self.write_node(nid, None)?;
        }
        for ino in self.inodes_to_write() {
            self.write_inode(ino, None)?;
        }
        Ok(())
    }

    /// Writes a node that is in memory and no inode, by the head for its kind if no other is said.
    fn write_node(&mut self, nid: u32, heat: Option<HeadKind>) -> FsResult<()> {
        let version = self.store.version() + 1;
        let node = self.others.get_mut(&nid).ok_or_else(vanished)?;
        let (header, block) = node.sealed(version);
        let heat = heat.unwrap_or_else(|| self.node_heat(&header));
        self.move_node(&header, block, heat, self.store.moment())?;
        if let Some(node) = self.others.get_mut(&nid) {
            node.written();
        }
        Ok(())
    }

    /// Writes an inode that is in memory, likewise.
    pub(crate) fn write_inode(&mut self, ino: u32, heat: Option<HeadKind>) -> FsResult<()> {
        let version = self.store.version() + 1;
        let live = self.inodes.get_mut(&ino).ok_or_else(vanished)?;
        let (header, block) = live.sealed(ino, version);
        let heat = heat.unwrap_or_else(|| self.node_heat(&header));
        self.move_node(&header, block, heat, self.store.moment())?;
        if let Some(live) = self.inodes.get_mut(&ino) {
            live.written();
            let was_counted = std::mem::replace(&mut live.has_block, true);
            self.store.space_mut().charge((!was_counted).into());
        }
        Ok(())
    }

    /// Notes that an inode has been written to a slot of a packed block, which is valid from then on.
    pub(crate) fn note_packed(&mut self, ino: u32, block: u64, slot: u8) -> FsResult<()> {
        self.settle_node(ino, ino, NodePlace::Slot(block, slot))?;
        if let Some(live) = self.inodes.get_mut(&ino) {
            live.written();
            let was_counted = std::mem::replace(&mut live.has_block, false);
            self.store.space_mut().give(was_counted.into());
        }
        Ok(())
    }

    /// Counts a block for an inode that lies in a slot, before it gets so many bytes of content: they may not shrink.
    ///
    /// # Errors
    ///
    /// When there is no room for the block. Nothing has changed then.
    pub(crate) fn count_block(&mut self, ino: u32, bytes: usize) -> FsResult<()> {
        if bytes <= CONTENT_SMALL || self.live(ino)?.has_block {
            return Ok(());
        }
        self.store.space_mut().take(1)?;
        let live = self.live(ino)?;
        live.has_block = true;
        live.mark_dirty();
        Ok(())
    }

    /// Returns whether inodes of files of this kind are written to slots of packed blocks: the superblock has to say that
    /// they may be.
    pub(crate) fn packs_inodes(&self, kind: ContentKind) -> bool {
        let policy = self.store.options().policy;
        policy.packs_inodes(kind) && self.store.superblock().has_packed_inodes()
    }

    /// The inodes that have to be written.
    pub(crate) fn inodes_to_write(&self) -> Vec<u32> {
        self.inos(CachedInode::needs_writing)
    }

    fn node_heat(&self, header: &NodeHeader) -> HeadKind {
        let is_directory = self
            .inodes
            .get(&header.ino)
            .is_some_and(|live| live.kind() == FileKind::Directory);
        match header.kind {
            NodeKind::Indirect => HeadKind::ColdNode,
            _ if is_directory => HeadKind::HotNode,
            _ => HeadKind::WarmNode,
        }
    }

    /// Gives a sealed node another place.
    pub(crate) fn move_node(
        &mut self,
        header: &NodeHeader,
        block: Box<Block>,
        heat: HeadKind,
        moment: Moment,
    ) -> FsResult<()> {
        let owner = Owner {
            ino: header.ino,
            lblk: header.nid,
        };
        let placed = self.store.place(heat, owner, Cause::Node, moment)?;
        self.settle_node(header.nid, header.ino, NodePlace::Block(placed.block))?;
        self.store.push(placed.block, block);
        Ok(())
    }

    /// Says where a node lies now, and that it does not where it lay before.
    pub(crate) fn settle_node(&mut self, nid: u32, ino: u32, place: NodePlace) -> FsResult<()> {
        let old = self.nat.get(nid)?;
        NodePlace::of(old, self.store.superblock(), nid)?.leave(&mut self.store);
        let pointer = place.encode();
        let entry = NatEntry {
            pointer,
            ino,
            ..old
        };
        self.nat.set(nid, entry);
        Ok(())
    }

    /// Has a node written again at another place: for the cleaner, or by another head that is said.
    pub(crate) fn relocate_node(
        &mut self,
        nid: u32,
        from: u64,
        heat: Option<HeadKind>,
        moment: Moment,
    ) -> FsResult<()> {
        let entry = self.nat.get(nid)?;
        if entry.pointer != NodePlace::Block(from).encode() {
            return Ok(());
        }
        if entry.ino == nid {
            self.live(nid)?;
            self.write_inode(nid, heat)
        } else if self.others.get(&nid).is_some_and(Node::is_dirty) {
            self.write_node(nid, heat)
        } else {
            let (header, block) = self.read_node(nid)?;
            self.move_node(&header, block, HeadKind::ColdNode, moment)
        }
    }
}
