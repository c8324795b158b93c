//! Nodes that are written: each goes to a new place, which the node address table names from then on.

use std::collections::BTreeSet;

use anteros_core::{FileKind, FsResult};

use crate::layout::Block;
use crate::layout::checkpoint::HeadKind;
use crate::layout::node::{NodeHeader, NodeKind};
use crate::layout::pointer::Pointer;
use crate::layout::summary::Owner;
use crate::layout::table::NatEntry;
use crate::nodes::Nodes;
use crate::nodes::loaded::Node;
use crate::statistics::Cause;
use crate::store::medium::vanished;
use crate::store::segments::Moment;

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
        let inos: BTreeSet<u32> = self
            .inodes
            .iter()
            .filter(|(_, live)| live.needs_writing())
            .map(|(&ino, _)| ino)
            .collect();
        for ino in inos {
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
        }
        Ok(())
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
        let old = self.nat.get(header.nid)?;
        if let Some(block) =
            Pointer::decode(old.pointer, self.store.superblock(), header.nid, 0)?.block()
        {
            self.store.invalidate(block);
        }
        self.nat.set(
            header.nid,
            NatEntry {
                pointer: Pointer::unchecked(placed.block).encode(),
                ino: header.ino,
                ..old
            },
        );
        self.store.push(placed.block, block);
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
        if entry.pointer != Pointer::unchecked(from).encode() {
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
