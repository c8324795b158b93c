//! The nodes of all inodes, level by level: first the inodes, then what they name, then what that names. Those of one
//! level are read in the order of the device.

use anteros_core::{FileKind, FsError, FsResult, Record, Sorted, Sorter};

use super::Checker;
use super::finding::Place;
use super::records::{About, Chunk, DirBlock, Extent, Wanted, WantedDir};
use crate::files::dir::type_of;
use crate::files::xattr::{check_admitted, positions};
use crate::layout::node::{self, DIRECT_POINTERS, INODE_POINTERS, Inode, NodeHeader, NodeKind};
use crate::layout::pointer::{Pointer, Slotted};
use crate::layout::table::NatEntry;
use crate::layout::xattr::{Stored, Xattrs, further_bytes};
use crate::layout::{BLOCK_BYTES, Block, Corrupt, dir};
use crate::nodes::tree::Subtree;
use crate::store::medium::zeroed;

impl Checker {
    /// Looks at all nodes.
    ///
    /// # Errors
    ///
    /// Those of the temporary file.
    pub(super) fn read_nodes(&mut self) -> FsResult<()> {
        let mut wanted = self.inodes()?;
        while !wanted.is_empty() {
            let mut below = self.sorter();
            self.sweep(&wanted, &mut |checker, wanted, block| {
                checker.meet(wanted, block, &mut below)
            })?;
            wanted = self.located(&below.finish()?)?;
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
                    self.note("node address table", error);
                    continue;
                }
            };
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
            let wanted = wanted?;
            match self.state.nodes.entry(wanted.nid) {
                Ok(entry) => self.locate(wanted, entry, &mut located)?,
                Err(error) => self.note_torn(wanted.ino, error)?,
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
        let pointer = Pointer::decode(entry.pointer, self.state.store.superblock(), nid, 0);
        let is_loaded = self.is_loaded(&wanted);
        let fault = |rule, found| Corrupt::Node { nid, rule, found };
        match pointer {
            _ if entry.ino != ino => {
                let rule = "the node address table has another inode for it";
                self.note_torn(ino, fault(rule, entry.ino.into()))
            }
            Ok(Pointer::Plain(key)) => {
                self.claim_node(&wanted, key)?;
                Ok(located.push(Wanted { key, ..wanted })?)
            }
            Ok(_) if is_loaded => {
                self.claim_node(&wanted, 0)?;
                Ok(located.push(Wanted { key: 0, ..wanted })?)
            }
            Ok(_) => {
                self.claim_node(&wanted, 0)?;
                let rule = "the node address table has no block for it";
                let nowhere = Wanted { key: 0, ..wanted };
                self.note_node(&nowhere, fault(rule, entry.pointer).into())
            }
            Err(error) => {
                self.claim_node(&wanted, 0)?;
                self.note_node(&Wanted { key: 0, ..wanted }, error.into())
            }
        }
    }

    fn is_loaded(&self, wanted: &Wanted) -> bool {
        match wanted.level {
            Wanted::INODE => self.state.loaded(wanted.nid).is_some(),
            _ => self.state.loaded_node(wanted.nid).is_some(),
        }
    }

    /// A node belongs to an inode, and so does the block that it lies in, if it has one.
    fn claim_node(&mut self, wanted: &Wanted, block: u64) -> FsResult<()> {
        let Wanted { nid, ino, .. } = *wanted;
        self.report.nodes += 1;
        if self.nids.add(nid) {
            let text = format!("node {nid} belongs to something else as well");
            self.note_inode(ino, text);
            return Ok(());
        }
        if wanted.level == Wanted::INODE {
            self.inodes += 1;
        } else {
            self.count_blocks(ino, 1)?;
        }
        if block != 0 {
            self.extents.push(Extent {
                block,
                blocks: 1,
                ino,
                lblk: nid,
                is_node: 1,
            })?;
        }
        Ok(())
    }

    fn count_blocks(&mut self, ino: u32, counted: u64) -> FsResult<()> {
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

    /// Notes why what lies below a node of an inode is not known.
    fn note_torn(&mut self, ino: u32, fault: impl std::fmt::Display) -> FsResult<()> {
        self.note_inode(ino, fault);
        self.mark(ino, About::TORN | About::UNLISTED)
    }

    /// Notes why a node is not known.
    fn note_node(&mut self, wanted: &Wanted, error: FsError) -> FsResult<()> {
        match (wanted.key, error) {
            (block, FsError::Corrupt(fault)) if block != 0 => {
                self.note_inode(wanted.ino, format_args!("block {block}: {fault}"));
            }
            (_, error) => self.note_inode(wanted.ino, error),
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
                    self.note_inode(wanted.ino, format_args!("extended attributes: {fault}"));
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
            None => block.and_then(|block| parse_inode(block, ino)),
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
            FileKind::Regular => self.report.files += 1,
            FileKind::Directory => self.report.directories += 1,
            _ => self.report.others += 1,
        }
        self.abouts.push(About {
            rank: 0,
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
            self.note_inode(ino, format_args!("extended attributes: {fault}"));
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

    /// Counts the blocks of directories that a mount would write, and has them looked at.
    fn count_unplaced(&mut self, ino: u32) -> FsResult<()> {
        let Some(live) = self.state.loaded(ino) else {
            return Ok(());
        };
        if live.kind() == FileKind::Directory {
            for &lblk in live.pages.keys() {
                let place = 0;
                self.dir_blocks.push(DirBlock { ino, lblk, place })?;
            }
        }
        if live.dirty_pages == 0 {
            return Ok(());
        }
        match self.state.unplaced(ino) {
            Ok(unplaced) => {
                self.report.data_blocks += unplaced;
                self.count_blocks(ino, unplaced)
            }
            Err(error) => self.note_torn(ino, error),
        }
    }

    /// Looks at the pointers of a node.
    fn visit_pointers(&mut self, of: &Wanted, block: &Block, kind: NodeKind) -> FsResult<()> {
        let count = match kind {
            NodeKind::Inode => INODE_POINTERS,
            _ => DIRECT_POINTERS,
        };
        let (mut extent, mut chunk) = (Extent::default(), Chunk::default());
        let mut counted = 0;
        for (index, lblk) in (0..count as u16).zip(of.first..) {
            let raw = node::pointer(block, kind, index);
            if raw == 0 {
                continue;
            }
            counted += 1;
            let pointer = match Pointer::decode(raw, self.state.store.superblock(), of.nid, index) {
                Ok(pointer) => pointer,
                Err(fault) => {
                    self.note_torn(of.ino, format_args!("logical block {lblk}: {fault}"))?;
                    continue;
                }
            };
            match pointer {
                Pointer::Plain(block) => {
                    self.report.data_blocks += 1;
                    let next = Extent {
                        block,
                        blocks: 1,
                        ino: of.ino,
                        lblk,
                        is_node: 0,
                    };
                    if !extent.goes_on(&next) {
                        push_unless_empty(&mut self.extents, extent, extent.blocks)?;
                        extent = next;
                    }
                    if of.is_directory != 0 {
                        let (ino, place) = (of.ino, block);
                        self.dir_blocks.push(DirBlock { ino, lblk, place })?;
                    }
                }
                Pointer::Packed(at) => {
                    let next = Chunk::of(of.ino, lblk, at);
                    if !chunk.add(&next) {
                        push_unless_empty(&mut self.chunks, chunk, chunk.sequences)?;
                        chunk = next;
                    }
                }
                Pointer::Preallocated => self.preallocated += 1,
                Pointer::Hole => {}
            }
            if let Some(block) = pointer.block() {
                let size = of.size;
                if u64::from(lblk) * BLOCK_BYTES as u64 >= size {
                    let text =
                        format!("has a block {lblk} behind its end at {size}, in block {block}");
                    self.note_inode(of.ino, text);
                }
            }
        }
        push_unless_empty(&mut self.extents, extent, extent.blocks)?;
        push_unless_empty(&mut self.chunks, chunk, chunk.sequences)?;
        self.count_blocks(of.ino, counted)
    }

    fn note_inode(&mut self, ino: u32, fault: impl std::fmt::Display) {
        self.note_at(Place::Inode(ino), fault);
    }
}

fn push_unless_empty<R: Record>(sorter: &mut Sorter<R>, record: R, size: u32) -> FsResult<()> {
    match size {
        0 => Ok(()),
        _ => Ok(sorter.push(record)?),
    }
}

fn parse_inode(block: &Block, ino: u32) -> FsResult<(Inode, Box<Block>)> {
    let header = NodeHeader::check(block, ino)?;
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
    let mut pointers = zeroed();
    *pointers = *block;
    Ok((Inode::parse(block, ino)?, pointers))
}

impl Wanted {
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

    fn mark(&self) -> u8 {
        match self.level {
            Self::INODE => About::BROKEN,
            Self::ATTRIBUTES | Self::FURTHER => 0,
            _ => About::TORN | About::UNLISTED,
        }
    }

    /// Checks that the node is the one that is named.
    fn check(&self, header: &NodeHeader) -> Result<(), Corrupt> {
        let nid = self.nid;
        let fault = |rule, found| Corrupt::Node { nid, rule, found };
        let kind = match self.level {
            Self::ATTRIBUTES | Self::FURTHER => NodeKind::Attributes,
            0 => NodeKind::Direct,
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

impl Extent {
    /// Takes in what comes right behind.
    fn goes_on(&mut self, next: &Self) -> bool {
        let is_behind = self.blocks > 0
            && next.block == self.block + u64::from(self.blocks)
            && next.lblk == self.lblk + self.blocks;
        self.blocks += u32::from(is_behind);
        is_behind
    }
}

impl Chunk {
    fn of(ino: u32, lblk: u32, at: Slotted) -> Self {
        Self {
            block: at.block,
            slot: at.slot,
            behind: at.behind,
            ino,
            first: lblk.wrapping_sub(at.sequence.into()),
            sequences: 1 << at.sequence,
        }
    }
}
