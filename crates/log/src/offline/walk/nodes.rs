//! The nodes of all inodes, level by level: first the inodes, then what they name, then what that names. Those of one
//! level are read in the order of the device.

use anteros_core::{FileKind, FsError, FsResult, Sorted, Sorter};

use super::finding::{Fault, Part, Place};
use super::records::{About, Attached, Chunk, Extent, Wanted, WantedDir};
use super::{Sink, Walk};
use crate::files::dir::type_of;
use crate::files::xattr::{check_admitted, positions};
use crate::layout::node::{Inode, NodeHeader, NodeKind};
use crate::layout::table::NatEntry;
use crate::layout::xattr::{Stored, Xattrs, further_bytes};
use crate::layout::{Block, Corrupt, dir};
use crate::nodes::place::{NodePlace, nowhere};
use crate::nodes::tree::Subtree;

impl<S: Sink> Walk<'_, S> {
    /// Looks at all nodes.
    ///
    /// # Errors
    ///
    /// Errors of the temporary file.
    pub(in crate::offline) fn read_nodes(&mut self) -> FsResult<()> {
        let mut wanted = self.inodes()?;
        while !wanted.is_empty() {
            let mut below = self.sorter();
            self.sweep(&wanted, &mut |walk, wanted, block| {
                walk.meet(wanted, block, &mut below)
            })?;
            wanted = self.located(&below.finish()?)?;
        }
        let attached = self.sorted(|walk| &mut walk.attached)?;
        for attached in attached.iter() {
            let Attached { ino, nid } = attached?;
            match self.sink.has_attributes(ino) {
                true => self.count_blocks(ino, 1)?,
                false => {
                    self.disown(nid);
                    self.sink.find(Place::Node(nid), Fault::Stray { ino });
                }
            }
        }
        Ok(())
    }

    /// All inodes, by their places.
    fn inodes(&mut self) -> FsResult<Sorted<Wanted>> {
        let mut inodes = self.sorter();
        for table_block in 0..self.state.nodes.nat().table_blocks() {
            let used = match self.state.nodes.used_in(table_block) {
                Ok(used) => used,
                Err(error) => {
                    self.sink.find(Place::Table, Fault::Table(error));
                    self.state.nodes.nat().found_in(table_block)
                }
            };
            self.counts.numbers += used.len() as u64;
            for (nid, entry) in used {
                if entry.ino == nid {
                    let inode = Wanted {
                        nid,
                        ino: nid,
                        level: Wanted::INODE,
                        ..Wanted::default()
                    };
                    self.locate(inode, entry, &mut inodes)?;
                }
            }
        }
        Ok(inodes.finish()?)
    }

    /// Sorts nodes by their places instead of their numbers.
    fn located(&mut self, numbered: &Sorted<Wanted>) -> FsResult<Sorted<Wanted>> {
        let mut located = self.sorter();
        for wanted in numbered.iter() {
            let wanted = Wanted {
                key: 0,
                is_owned: 0,
                ..wanted?
            };
            match self.state.nodes.entry(wanted.nid) {
                Ok(entry) => self.locate(wanted, entry, &mut located)?,
                Err(error) => self.note_node(&wanted, error)?,
            }
        }
        Ok(located.finish()?)
    }

    fn locate(
        &mut self,
        wanted: Wanted,
        entry: NatEntry,
        located: &mut Sorter<Wanted>,
    ) -> FsResult<()> {
        let Wanted { nid, ino, .. } = wanted;
        let fault = |rule, found| Corrupt::Node { nid, rule, found };
        if entry.ino != ino {
            let rule = "the node address table has another inode for it";
            return self.note_node(&wanted, fault(rule, entry.ino.into()).into());
        }
        let place = NodePlace::of(entry, self.state.store.superblock(), nid);
        let (key, slot) = match place {
            Ok(NodePlace::Block(block)) => (block, 0),
            Ok(NodePlace::Slot(block, slot)) => (block, slot + 1),
            _ => (0, 0),
        };
        let wanted = self.claim_node(Wanted {
            key,
            slot,
            ..wanted
        })?;
        match place {
            Ok(NodePlace::None) if !self.is_loaded(&wanted) => {
                self.note_node(&wanted, nowhere(nid, entry.pointer).into())
            }
            Ok(_) => Ok(located.push(wanted)?),
            Err(error) => self.note_node(&wanted, error.into()),
        }
    }

    fn is_loaded(&self, wanted: &Wanted) -> bool {
        match wanted.level {
            Wanted::INODE => self.state.loaded(wanted.nid).is_some(),
            _ => self.state.loaded_node(wanted.nid).is_some(),
        }
    }

    /// A node belongs to an inode, and so does the block that it lies in, if it has one.
    fn claim_node(&mut self, wanted: Wanted) -> FsResult<Wanted> {
        let Wanted { nid, ino, .. } = wanted;
        self.counts.nodes += 1;
        if self.nids.add(nid) {
            self.find_in(ino, Fault::SharedNode { nid });
            return Ok(wanted);
        }
        match wanted.part() {
            Part::Inode => self.counts.inodes += 1,
            Part::Attributes => self.attached.push(Attached { ino, nid })?,
            Part::Tree => self.count_blocks(ino, 1)?,
        }
        if wanted.slot != 0 {
            let has_block = self.state.loaded(ino).is_some_and(|live| live.has_block);
            self.counts.in_slots += u64::from(!has_block);
            self.chunks.push(Chunk {
                block: wanted.key,
                slot: wanted.slot - 1,
                behind: 0,
                ino,
                first: nid,
                sequences: 0,
            })?;
        } else if wanted.key != 0 {
            self.extents.push(Extent {
                block: wanted.key,
                blocks: 1,
                ino,
                lblk: nid,
                is_node: 1,
            })?;
        }
        Ok(Wanted {
            is_owned: 1,
            ..wanted
        })
    }

    pub(super) fn count_blocks(&mut self, ino: u32, counted: u64) -> FsResult<()> {
        let about = About {
            counted,
            ..About::of(ino)
        };
        Ok(self.abouts.push(about)?)
    }

    pub(super) fn mark(&mut self, ino: u32, marks: u8) -> FsResult<()> {
        let about = About {
            marks,
            ..About::of(ino)
        };
        Ok(self.abouts.push(about)?)
    }

    /// Finds that something below an inode is not known.
    pub(super) fn note_torn(&mut self, ino: u32, fault: Fault) -> FsResult<()> {
        self.find_in(ino, fault);
        self.mark(ino, About::TORN | About::UNLISTED)
    }

    /// Finds that a node is not known.
    fn note_node(&mut self, wanted: &Wanted, error: FsError) -> FsResult<()> {
        let fault = Fault::Node {
            part: wanted.part(),
            block: wanted.key,
            error,
        };
        self.find_in(wanted.ino, fault);
        if wanted.is_owned != 0 && !S::TRUSTS_UNREAD {
            self.disown(wanted.nid);
            self.counts.in_slots -= u64::from(wanted.slot != 0);
        }
        self.mark(wanted.ino, wanted.mark())
    }

    /// Looks at a node.
    fn meet(
        &mut self,
        wanted: &Wanted,
        block: FsResult<&Block>,
        below: &mut Sorter<Wanted>,
    ) -> FsResult<()> {
        if wanted.level == Wanted::INODE {
            return self.meet_inode(wanted, block, below);
        }
        let found = match self.state.loaded_node(wanted.nid) {
            Some((header, block)) => Ok((*header, Box::new(*block))),
            None => block
                .and_then(|block| Ok((NodeHeader::check(block, wanted.nid)?, Box::new(*block)))),
        };
        let (header, block) = match found {
            Ok(found) => found,
            Err(error) => return self.note_node(wanted, error),
        };
        if let Err(fault) = wanted.check(&header) {
            return self.note_node(wanted, fault.into());
        }
        match wanted.level {
            Wanted::ATTRIBUTES => {
                let visited = self.visit_xattrs(wanted, &block, below)?;
                if let Err(fault) = visited {
                    self.find_in(wanted.ino, Fault::Attributes(fault));
                }
                Ok(())
            }
            // Together with the one that names it.
            Wanted::FURTHER => Ok(()),
            0 => self.visit_pointers(wanted, &block, NodeKind::Direct),
            _ => {
                let subtree = wanted.subtree();
                let children = subtree.children(&block);
                children
                    .map(|child| below.push(wanted.child(child)))
                    .try_for_each(|pushed| Ok(pushed?))
            }
        }
    }

    /// Looks at the extended attributes that an attribute node has or names.
    fn visit_xattrs(
        &mut self,
        wanted: &Wanted,
        block: &Block,
        below: &mut Sorter<Wanted>,
    ) -> FsResult<Result<(), Corrupt>> {
        let (len, nids) = match Stored::parse(block, wanted.nid) {
            Ok(Stored::Here(bytes)) => return Ok(Xattrs::parse(bytes).map(drop)),
            Ok(Stored::Further { len, nids }) => (len, nids),
            Err(fault) => return Ok(Err(fault)),
        };
        let mut bytes = Vec::with_capacity(len);
        for (position, nid) in positions().zip(nids) {
            below.push(Wanted {
                key: nid.into(),
                nid,
                level: Wanted::FURTHER,
                position,
                ..*wanted
            })?;
            let copy = (self.state).copy_node(wanted.ino, nid, NodeKind::Attributes, position);
            if let Ok(block) = copy {
                bytes.extend(further_bytes(&block).iter().take(len - bytes.len()));
            }
        }
        let admitted = check_admitted(self.state.store.superblock(), wanted.nid, len);
        // One that cannot be read is told when its turn comes.
        let is_whole = bytes.len() == len;
        Ok(admitted.and_then(|()| match is_whole {
            true => Xattrs::parse(&bytes).map(drop),
            false => Ok(()),
        }))
    }

    fn meet_inode(
        &mut self,
        wanted: &Wanted,
        block: FsResult<&Block>,
        below: &mut Sorter<Wanted>,
    ) -> FsResult<()> {
        let ino = wanted.ino;
        let found = match self.state.loaded(ino) {
            Some(live) => Ok((live.inode().clone(), Box::new(*live.pointers()))),
            None => block
                .and_then(|block| Ok(wanted.place().node_in(ino, block)?))
                .and_then(|node| parse_inode(node, ino)),
        };
        match found {
            Ok((inode, block)) => self.visit_inode(ino, &inode, &block, below),
            Err(error) => self.note_node(wanted, error),
        }
    }

    fn visit_inode(
        &mut self,
        ino: u32,
        inode: &Inode,
        block: &Block,
        below: &mut Sorter<Wanted>,
    ) -> FsResult<()> {
        let attributes = inode.attributes;
        let is_directory = attributes.kind == FileKind::Directory;
        match attributes.kind {
            _ if attributes.is_own => self.counts.others += 1,
            FileKind::Regular => self.counts.files += 1,
            FileKind::Directory => self.counts.directories += 1,
            _ => self.counts.others += 1,
        }
        if attributes.is_own {
            // By the checkpoint, or by nothing, which is told of it then.
            self.reached.add(ino);
        }
        self.abouts.push(About {
            rank: 0,
            marks: if attributes.is_own { About::OWN } else { 0 },
            kind: type_of(attributes.kind),
            nlink: attributes.nlink,
            parent: attributes.parent,
            entries: inode.entries,
            blocks: attributes.blocks,
            ..About::of(ino)
        })?;
        let of = Wanted {
            ino,
            nid: ino,
            size: attributes.size,
            is_directory: is_directory.into(),
            ..Wanted::default()
        };
        if inode.xattr_nid != 0 {
            below.push(Wanted {
                key: inode.xattr_nid.into(),
                nid: inode.xattr_nid,
                level: Wanted::ATTRIBUTES,
                ..of
            })?;
        } else if let Err(fault) = Xattrs::parse(&inode.xattrs) {
            self.find_in(ino, Fault::Attributes(fault));
        }
        for subtree in Subtree::of(inode.nids) {
            below.push(of.child(subtree))?;
        }
        if is_directory {
            self.directories.add(ino);
            self.begin_directory(ino, inode)?;
        }
        if !attributes.is_inline {
            self.visit_pointers(&of, block, NodeKind::Inode)?;
        }
        self.count_unplaced(ino)
    }

    /// Looks at the names in the inode, or has those in blocks looked at.
    fn begin_directory(&mut self, ino: u32, inode: &Inode) -> FsResult<()> {
        if inode.attributes.is_inline {
            return self.visit_names(ino, dir::entries(&inode.inline), 0..u64::MAX);
        }
        Ok(self.indexed.push(WantedDir {
            ino,
            level: dir::LEVEL_MAX as u8 + 1,
            high: u64::MAX,
            ..WantedDir::default()
        })?)
    }
}

fn parse_inode(node: Box<Block>, ino: u32) -> FsResult<(Inode, Box<Block>)> {
    let header = NodeHeader::check(&node, ino)?;
    let fault = |rule, found| Corrupt::Node {
        nid: ino,
        rule,
        found,
    };
    if header.ino != ino {
        let rule = "the node address table has another inode for it";
        return Err(fault(rule, header.ino.into()).into());
    }
    if header.kind != NodeKind::Inode {
        return Err(fault("the node is no inode", header.kind as u64).into());
    }
    Ok((Inode::parse(&node, ino)?, node))
}

impl Wanted {
    fn place(&self) -> NodePlace {
        match self.slot.checked_sub(1) {
            Some(slot) => NodePlace::Slot(self.key, slot),
            None => NodePlace::Block(self.key),
        }
    }

    fn subtree(&self) -> Subtree {
        Subtree {
            nid: self.nid,
            level: self.level.into(),
            position: self.position,
            first: self.first,
        }
    }

    /// A node below, of the same inode.
    fn child(&self, subtree: Subtree) -> Self {
        Self {
            key: subtree.nid.into(),
            nid: subtree.nid,
            level: subtree.level as u8,
            position: subtree.position,
            first: subtree.first,
            ..*self
        }
    }

    fn part(&self) -> Part {
        match self.level {
            Self::INODE => Part::Inode,
            Self::ATTRIBUTES | Self::FURTHER => Part::Attributes,
            _ => Part::Tree,
        }
    }

    fn mark(&self) -> u8 {
        match self.part() {
            Part::Inode => About::BROKEN,
            Part::Attributes => 0,
            Part::Tree => About::TORN | About::UNLISTED,
        }
    }

    /// Checks that the node is the one that is named.
    fn check(&self, header: &NodeHeader) -> Result<(), Corrupt> {
        let nid = self.nid;
        let fault = |rule, found| Corrupt::Node { nid, rule, found };
        let kind = match (self.part(), self.level) {
            (Part::Attributes, _) => NodeKind::Attributes,
            (_, 0) => NodeKind::Direct,
            _ => NodeKind::Indirect,
        };
        if header.ino != self.ino {
            let rule = "the node belongs to another inode";
            return Err(fault(rule, header.ino.into()));
        }
        if header.kind != kind || header.position != self.position {
            let rule = "the node has another place in the tree";
            return Err(fault(rule, header.position.into()));
        }
        Ok(())
    }
}
