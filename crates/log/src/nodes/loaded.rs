//! Inodes and other nodes in memory.
//!
//! A node is changed through [`Node::block_mut`], [`CachedInode::inode_mut`] and [`CachedInode::pointers_mut`] alone, and these mark it
//! as one that has to be written. Nothing else marks: a node that is not in memory cannot be marked by its number, for
//! such a mark would be lost without a word when it is read again.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use anteros_core::{FileKind, Timestamp};

use crate::compress::habits::{Habits, Refused};
use crate::compress::kind::START_BYTES;
use crate::layout::Block;
use crate::layout::node::{Attributes, Inode, NodeHeader, NodeKind};
use crate::nodes::ranges::Ranges;
use crate::store::medium::{BLOCK, zeroed};

/// Mark of a node that has to be written, counted together with its likes.
struct DirtyMark {
    is: bool,
    count: Arc<AtomicUsize>,
}

impl DirtyMark {
    fn clean(count: &Arc<AtomicUsize>) -> Self {
        Self {
            is: false,
            count: count.clone(),
        }
    }

    fn set(&mut self, is: bool) {
        match (self.is, is) {
            (false, true) => drop(self.count.fetch_add(1, Ordering::Relaxed)),
            (true, false) => drop(self.count.fetch_sub(1, Ordering::Relaxed)),
            _ => {}
        }
        self.is = is;
    }
}

impl Drop for DirtyMark {
    fn drop(&mut self) {
        self.set(false);
    }
}

/// A direct, indirect or attribute node in memory.
pub(crate) struct Node {
    header: NodeHeader,
    block: Box<Block>,
    dirty: DirtyMark,
    pub(crate) stamp: u64,
}

impl Node {
    /// As it was read; `count` is of those that have to be written.
    pub(crate) fn read(header: NodeHeader, block: Box<Block>, count: &Arc<AtomicUsize>) -> Self {
        Self {
            header,
            block,
            dirty: DirtyMark::clean(count),
            stamp: 0,
        }
    }

    /// A new one, empty, that has to be written.
    pub(crate) fn new(header: NodeHeader, count: &Arc<AtomicUsize>) -> Self {
        let mut node = Self::read(header, zeroed(), count);
        node.mark_dirty();
        node
    }

    pub(crate) fn header(&self) -> &NodeHeader {
        &self.header
    }

    pub(crate) fn block(&self) -> &Block {
        &self.block
    }

    /// Its content, to be changed: it has to be written.
    pub(crate) fn block_mut(&mut self) -> &mut Block {
        self.mark_dirty();
        &mut self.block
    }

    /// Notes that it has to be written.
    pub(crate) fn mark_dirty(&mut self) {
        self.dirty.set(true);
    }

    pub(crate) fn is_dirty(&self) -> bool {
        self.dirty.is
    }

    /// As it is to be written.
    pub(crate) fn sealed(&mut self, version: u64) -> (NodeHeader, Box<Block>) {
        self.header.version = version;
        self.header.seal(&mut self.block);
        (self.header, self.block.clone())
    }

    /// Notes that it has been written as it is.
    pub(crate) fn written(&mut self) {
        self.dirty.set(false);
    }
}

/// A block of content in memory.
#[derive(Clone)]
pub(crate) struct Page {
    pub(crate) data: Arc<Block>,
    pub(crate) dirty: bool,
}

/// An inode in memory.
pub(crate) struct CachedInode {
    inode: Inode,
    /// Its node, for the pointers.
    block: Box<Block>,
    /// Set if its node has to be written.
    dirty: DirtyMark,
    /// Tells whether a block is counted for its node, as for one that lies in no slot or may find none.
    pub(crate) has_block: bool,
    /// Content that is not on the device, and blocks of directories.
    pub(crate) pages: BTreeMap<u32, Page>,
    /// Tells how many of the pages are dirty.
    pub(crate) dirty_pages: usize,
    /// Holds what kind of file its name says that it is.
    pub(crate) named: crate::compress::kind::ContentKind,
    /// Holds what its content says.
    pub(crate) recognized: Option<crate::compress::kind::ContentKind>,
    /// Holds what is done to it.
    pub(crate) habits: Habits,
    /// Logical blocks that are not compressed before writeback, as those before them gained nothing.
    pub(crate) refused: Refused,
    /// Logical blocks whose pointers neither the checkpoint nor a group has.
    pub(crate) unrecorded: Ranges,
    /// Tells whether content or size changed since a group or the checkpoint had them.
    pub(crate) content_changed: bool,
    /// Tells when content was written last that is in no group with its checksum; see
    /// [`Store::flushing`](crate::store::Store::flushing).
    pub(crate) early: u64,
    /// Tells whether extended attributes changed since then.
    pub(crate) xattrs_changed: bool,
    pub(crate) stamp: u64,
}

impl CachedInode {
    /// As it was read; `count` is of those that have to be written.
    pub(crate) fn read(inode: Inode, block: Box<Block>, count: &Arc<AtomicUsize>) -> Self {
        Self {
            inode,
            block,
            dirty: DirtyMark::clean(count),
            has_block: true,
            pages: BTreeMap::new(),
            dirty_pages: 0,
            named: crate::compress::kind::ContentKind::Other,
            recognized: None,
            habits: Habits::default(),
            refused: Refused::default(),
            unrecorded: Ranges::default(),
            content_changed: false,
            early: 0,
            xattrs_changed: false,
            stamp: 0,
        }
    }

    /// A new one, that has to be written.
    pub(crate) fn new(inode: Inode, count: &Arc<AtomicUsize>) -> Self {
        let mut live = Self::read(inode, zeroed(), count);
        live.mark_dirty();
        live
    }

    pub(crate) fn inode(&self) -> &Inode {
        &self.inode
    }

    /// Content of its node but for the pointers, to be changed: it has to be written.
    pub(crate) fn inode_mut(&mut self) -> &mut Inode {
        self.mark_dirty();
        &mut self.inode
    }

    /// The block with its pointers.
    pub(crate) fn pointers(&self) -> &Block {
        &self.block
    }

    /// The block with its pointers, to be changed; marks it dirty.
    pub(crate) fn pointers_mut(&mut self) -> &mut Block {
        self.mark_dirty();
        &mut self.block
    }

    /// Notes that its node has to be written.
    pub(crate) fn mark_dirty(&mut self) {
        self.dirty.set(true);
    }

    pub(crate) fn needs_writing(&self) -> bool {
        self.dirty.is
    }

    /// Its node as it is to be written.
    pub(crate) fn sealed(&mut self, ino: u32, version: u64) -> (NodeHeader, Box<Block>) {
        let header = NodeHeader {
            nid: ino,
            ino,
            version,
            kind: NodeKind::Inode,
            position: 0,
        };
        self.inode.store(&mut self.block);
        header.seal(&mut self.block);
        (header, self.block.clone())
    }

    /// Notes that its node has been written as it is.
    pub(crate) fn written(&mut self) {
        self.dirty.set(false);
    }

    pub(crate) fn attributes(&mut self) -> &mut Attributes {
        &mut self.inode_mut().attributes
    }

    /// Says that the content changes now, and gives what else is known of the file.
    pub(crate) fn change_content(&mut self, now: Timestamp) -> &mut Attributes {
        self.content_changed = true;
        let attributes = self.attributes();
        attributes.mtime = now;
        attributes.ctime = now;
        attributes.is_launched = false;
        attributes.is_settled = false;
        attributes
    }

    pub(crate) fn kind(&self) -> FileKind {
        self.inode.attributes.kind
    }

    /// Sees what kind of file it is from its first block, and keeps that in mind unless nothing is there yet.
    pub(crate) fn recognize(&mut self, start: &Block) -> crate::compress::kind::ContentKind {
        let start = &start[..START_BYTES];
        let kind = crate::compress::kind::ContentKind::of(b"", start);
        if start.iter().any(|&byte| byte != 0) {
            self.recognized = Some(kind);
        }
        kind
    }

    /// Returns whether a logical block has content that has no place yet.
    pub(crate) fn is_dirty(&self, lblk: u32) -> bool {
        self.pages.get(&lblk).is_some_and(|page| page.dirty)
    }

    /// Takes note that a dirty page has got its place, and returns what it holds. Those stay in memory that will be asked for soon:
    /// the blocks of a directory, and the one that a file ends in, for there writing goes on.
    pub(crate) fn placed(&mut self, lblk: u32) -> Option<Arc<Block>> {
        let size = self.inode.attributes.size;
        let is_end = size % BLOCK != 0 && size / BLOCK == u64::from(lblk);
        let data = match is_end || self.kind() == FileKind::Directory {
            true => {
                let page = self.pages.get_mut(&lblk)?;
                page.dirty = false;
                page.data.clone()
            }
            false => self.pages.remove(&lblk)?.data,
        };
        self.dirty_pages -= 1;
        Some(data)
    }

    /// Returns whether it can be read again as it is.
    pub(crate) fn is_clean(&self) -> bool {
        !self.needs_writing()
            && self.dirty_pages == 0
            && self.unrecorded.is_empty()
            && !self.content_changed
            && !self.xattrs_changed
    }
}
