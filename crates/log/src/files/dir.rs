//! Directories: names ordered by their hash, in the inode or in a tree of blocks.
//!
//! A position in a directory is the hash of a name and a count of those with the same hash, so that it means the
//! same whatever else comes and goes. `docs/format/log.md`, section 9.

use std::ops::ControlFlow;

use anteros_core::{FileKind, FsError, FsResult};

use crate::files::Files;
use crate::layout::dir::{self, Entry, Index, Leaf, OwnedEntry};
use crate::layout::node::INLINE_BYTES;
use crate::layout::pointer::Pointer;
use crate::layout::record::Record;
use crate::layout::summary::Owner;
use crate::layout::{BLOCK_BYTES, Block, Corrupt};
use crate::nodes::loaded::Page;

/// The longest name.
pub(crate) const NAME_MAX: usize = 255;

/// The most blocks above a leaf.
const ABOVE_MAX: usize = dir::LEVEL_MAX as usize;

/// Inode number and kind of a name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Named {
    pub(crate) ino: u32,
    pub(crate) kind: u8,
}

/// The type of a file in a directory.
pub(crate) fn type_of(kind: FileKind) -> u8 {
    (kind.mode_bits() >> 12) as u8
}

/// The kind that a type in a directory names.
pub(crate) fn kind_of(file_type: u8) -> FileKind {
    FileKind::from_mode(u32::from(file_type) << 12).unwrap_or(FileKind::Regular)
}

/// The way to a leaf.
struct Descent {
    /// The blocks above it, from the root on.
    above: Vec<u32>,
    leaf: u32,
    /// Hash at which the names of the next leaf begin, if there is one.
    next: Option<u64>,
}

impl Files {
    /// Refuses names that cannot be.
    pub(crate) fn check_name(name: &[u8]) -> FsResult<()> {
        if name.len() > NAME_MAX {
            return Err(FsError::NameTooLong);
        }
        if name.is_empty()
            || name == b"."
            || name == b".."
            || name.iter().any(|byte| matches!(byte, 0 | b'/'))
        {
            return Err(FsError::Invalid);
        }
        Ok(())
    }

    fn hash(&self, name: &[u8]) -> u64 {
        dir::hash(name, &self.store.superblock().hash_seed)
    }

    fn is_inline(&mut self, parent: u32) -> FsResult<bool> {
        let live = self.live(parent)?;
        if live.kind() != FileKind::Directory {
            return Err(FsError::NotDirectory);
        }
        Ok(live.inode().attributes.is_inline)
    }

    /// A block of a directory.
    pub(crate) fn dir_block(&mut self, parent: u32, lblk: u32) -> FsResult<&Block> {
        if !self.live(parent)?.pages.contains_key(&lblk) {
            let Pointer::Plain(place, checksum) = self.pointer(parent, lblk)? else {
                return Err(Corrupt::Node {
                    nid: parent,
                    rule: "a block of the directory is missing",
                    found: lblk.into(),
                }
                .into());
            };
            let block = self.store.fetch_near(place)?;
            checksum.check(&block, Owner { ino: parent, lblk }, place)?;
            dir::check(&block, lblk)?;
            self.live(parent)?.pages.insert(
                lblk,
                Page {
                    data: block.into(),
                    dirty: false,
                },
            );
        }
        let page = self.live(parent)?.pages.get(&lblk);
        page.map(|page| &*page.data)
            .ok_or_else(crate::store::medium::vanished)
    }

    fn put_dir_block(&mut self, parent: u32, lblk: u32, block: &Block) -> FsResult<()> {
        *self.page_mut(parent, lblk, true)? = *block;
        Ok(())
    }

    fn descend(&mut self, parent: u32, hash: u64) -> FsResult<Descent> {
        let mut descent = Descent {
            above: Vec::new(),
            leaf: 0,
            next: None,
        };
        while dir::level(self.dir_block(parent, descent.leaf)?) > 0 {
            if descent.above.len() >= ABOVE_MAX {
                let rule = "the tree of the directory has too many levels";
                return Err(Corrupt::Node {
                    nid: parent,
                    rule,
                    found: descent.leaf.into(),
                }
                .into());
            }
            let (child, next) = dir::child(self.dir_block(parent, descent.leaf)?, hash)?;
            descent.next = next.or(descent.next);
            descent.above.push(descent.leaf);
            descent.leaf = child;
        }
        Ok(descent)
    }

    /// Looks a name up in a directory.
    pub(crate) fn find(&mut self, parent: u32, name: &[u8]) -> FsResult<Option<Named>> {
        let hash = self.hash(name);
        let found = if self.is_inline(parent)? {
            dir::find_inline(&self.live(parent)?.inode().inline, hash, name)?
        } else {
            let leaf = self.descend(parent, hash)?.leaf;
            dir::find(self.dir_block(parent, leaf)?, hash, name)?
        };
        Ok(found.map(|(ino, kind)| Named { ino, kind }))
    }

    /// Adds a name that is not there.
    pub(crate) fn add_name(&mut self, parent: u32, name: &[u8], named: Named) -> FsResult<()> {
        let entry = OwnedEntry {
            hash: self.hash(name),
            ino: named.ino,
            kind: named.kind,
            name: name.into(),
        };
        if self.is_inline(parent)? {
            self.add_inline(parent, entry)?;
        } else {
            self.add_to_tree(parent, entry)?;
        }
        let live = self.live(parent)?;
        let inode = live.inode_mut();
        inode.entries = inode.entries.saturating_add(1);
        Record::NameAdded {
            parent,
            ino: named.ino,
            kind: named.kind,
            name,
        }
        .append(self.unrecorded.names_mut());
        Ok(())
    }

    fn add_inline(&mut self, parent: u32, entry: OwnedEntry) -> FsResult<()> {
        let mut leaf = Leaf::from_inline(&self.live(parent)?.inode().inline)?;
        leaf.insert(entry)?;
        let bytes = leaf.encode_inline();
        if bytes.len() <= INLINE_BYTES {
            self.count_block(parent, bytes.len())?;
            self.live(parent)?.inode_mut().inline = bytes;
            return Ok(());
        }
        let block = leaf.encode().ok_or(FsError::NoSpace)?;
        self.store.space().check(1)?;
        let live = self.live(parent)?;
        live.inode_mut().inline.clear();
        live.pointers_mut().fill(0);
        let attributes = live.attributes();
        attributes.is_inline = false;
        attributes.size = BLOCK_BYTES as u64;
        self.put_dir_block(parent, 0, &block)
    }

    fn add_to_tree(&mut self, parent: u32, entry: OwnedEntry) -> FsResult<()> {
        let descent = self.descend(parent, entry.hash)?;
        let mut leaf = Leaf::parse(self.dir_block(parent, descent.leaf)?)?;
        leaf.insert(entry)?;
        if let Some(block) = leaf.encode() {
            return self.put_dir_block(parent, descent.leaf, &block);
        }
        // A split that goes up to the root takes one more level.
        if descent.above.len() == ABOVE_MAX && self.are_full(parent, &descent.above)? {
            return Err(FsError::NoSpace);
        }
        // All that a split may need, before anything is changed.
        let most = 2 * descent.above.len() as u64 + 4;
        self.store.back(most, 0);
        self.store.space().check(most)?;
        let (left, right, first) = leaf.split().ok_or(FsError::NoSpace)?;
        self.divide(parent, &descent.above, descent.leaf, (&left, &right, first))
    }

    /// Returns whether all of these blocks are full.
    fn are_full(&mut self, parent: u32, above: &[u32]) -> FsResult<bool> {
        for &lblk in above {
            if !dir::is_full(self.dir_block(parent, lblk)?) {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Puts the two halves of a block into its place and a new one, and names the new one above.
    fn divide(
        &mut self,
        parent: u32,
        above: &[u32],
        lblk: u32,
        (left, right, first): (&Block, &Block, u64),
    ) -> FsResult<()> {
        let new = self.grow(parent)?;
        self.put_dir_block(parent, new, right)?;
        let Some((&up, rest)) = above.split_last() else {
            // The root stays where it is, one level higher.
            let moved = self.grow(parent)?;
            self.put_dir_block(parent, moved, left)?;
            let level = dir::level(left) + 1;
            let root = Index {
                level,
                items: vec![(0, moved), (first, new)],
            };
            let block = root.encode().ok_or(FsError::NoSpace)?;
            return self.put_dir_block(parent, lblk, &block);
        };
        self.put_dir_block(parent, lblk, left)?;
        let mut index = Index::parse(self.dir_block(parent, up)?)?;
        index.insert(first, new);
        match index.encode() {
            Some(block) => self.put_dir_block(parent, up, &block),
            None => {
                let (left, right, first) = index.split().ok_or(FsError::NoSpace)?;
                self.divide(parent, rest, up, (&left, &right, first))
            }
        }
    }

    /// A new block at the end of a directory.
    fn grow(&mut self, parent: u32) -> FsResult<u32> {
        let attributes = self.live(parent)?.attributes();
        let lblk = (attributes.size / BLOCK_BYTES as u64) as u32;
        attributes.size += BLOCK_BYTES as u64;
        Ok(lblk)
    }

    /// Removes a name that is there.
    pub(crate) fn remove_name(&mut self, parent: u32, name: &[u8]) -> FsResult<()> {
        let hash = self.hash(name);
        if self.is_inline(parent)? {
            let inline = &mut self.live(parent)?.inode_mut().inline;
            dir::remove_inline(inline, hash, name)?;
        } else {
            let lblk = self.descend(parent, hash)?.leaf;
            dir::remove(self.page_mut(parent, lblk, false)?, hash, name)?;
        }
        let live = self.live(parent)?;
        let inode = live.inode_mut();
        inode.entries = inode.entries.saturating_sub(1);
        if inode.entries == 0 && !inode.attributes.is_inline {
            self.drop_content(parent)?;
            let attributes = self.live(parent)?.attributes();
            attributes.is_inline = true;
            attributes.size = 0;
        }
        Record::NameRemoved { parent, name }.append(self.unrecorded.names_mut());
        Ok(())
    }

    /// Makes a name refer to something else.
    pub(crate) fn replace_name(&mut self, parent: u32, name: &[u8], named: Named) -> FsResult<()> {
        self.remove_name(parent, name)?;
        self.add_name(parent, name, named)
    }

    /// Calls `visit` with each entry behind a position, and the position behind it.
    pub(crate) fn list(
        &mut self,
        parent: u32,
        from: u64,
        visit: &mut dyn FnMut(&Entry<'_>, u64) -> ControlFlow<()>,
    ) -> FsResult<()> {
        if self.is_inline(parent)? {
            let inline = self.live(parent)?.inode().inline.clone();
            let _ = visit_entries(dir::entries(&inline), from, &mut 0, visit)?;
            return Ok(());
        }
        let mut hash = from & !0xff;
        let mut last = 0;
        loop {
            let descent = self.descend(parent, hash)?;
            let block = self.dir_block(parent, descent.leaf)?;
            if visit_entries(dir::leaf_entries(block)?, from, &mut last, visit)?.is_break() {
                return Ok(());
            }
            match descent.next {
                Some(next) if next > hash => hash = next,
                _ => return Ok(()),
            }
        }
    }
}

/// `last` is the last position that was met; each comes behind it, so that no leaf is visited twice.
fn visit_entries<'a>(
    entries: impl Iterator<Item = Result<Entry<'a>, Corrupt>>,
    from: u64,
    last: &mut u64,
    visit: &mut dyn FnMut(&Entry<'_>, u64) -> ControlFlow<()>,
) -> FsResult<ControlFlow<()>> {
    let (mut hash, mut count) = (0, 0);
    for entry in entries {
        let entry = entry?;
        count = if entry.hash == hash { count + 1 } else { 1 };
        hash = entry.hash;
        let position = hash + count;
        if position <= *last {
            return Err(Corrupt::DirEntry {
                at: 0,
                rule: "a leaf begins with what comes before",
                found: hash,
            }
            .into());
        }
        *last = position;
        if position > from && visit(&entry, position).is_break() {
            return Ok(ControlFlow::Break(()));
        }
    }
    Ok(ControlFlow::Continue(()))
}
