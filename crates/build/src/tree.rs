//! The tree that will be in the image, as it was found.
//!
//! Nodes are numbered so that the children of a directory follow each other in the order of their
//! names, and each directory's subdirectories come after all of its children. That is the order of
//! inodes and of file data in the image: what is listed together lies together. It depends on names
//! alone, not on the order in which the source lists them.

use std::ffi::OsStr;
use std::ops::Range;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use anteros_core::{FileKind, Timestamp};

use crate::sparse::Allocation;
use crate::xattr::XattrTable;

/// The number of a node, from 0 (the root) on.
pub(crate) type NodeId = u32;

/// A name in [`Tree::names`], or where a symbolic link points: its place and its length, in one number
/// because there are very many.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct NameRef(u64);

/// Bits of the length.
const NAME_LEN_BITS: u32 = 16;

/// An entry of a directory.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Entry {
    pub name: NameRef,
    pub node: NodeId,
}

/// A digest of all that tells whether a file is still the one that was scanned, as it was then.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Fingerprint(pub u64);

/// An inode to be.
#[derive(Debug, Clone)]
pub(crate) struct Node {
    pub kind: FileKind,
    pub perm: u16,
    pub uid: u32,
    pub gid: u32,
    /// Names within the image; of a directory two and its subdirectories.
    pub nlink: u32,
    /// Bytes of content; directories get theirs when they are laid out.
    pub size: u64,
    pub allocation: Allocation,
    pub mtime: Timestamp,
    /// Encoded device number of a device.
    pub rdev: u32,
    /// The directory of its first name.
    pub parent: NodeId,
    /// Its first name, empty for the root.
    pub name: NameRef,
    /// Its attributes, in the table's lists.
    pub xattrs: Range<u32>,
    pub fingerprint: Fingerprint,
    /// Of a directory: its entries in [`Tree::entries`], without `.` and `..`.
    pub entries: Range<u32>,
    /// Of a symbolic link: where it points.
    pub target: NameRef,
}

/// All nodes and names.
#[derive(Debug, Default)]
pub(crate) struct Tree {
    pub nodes: Vec<Node>,
    pub entries: Vec<Entry>,
    pub xattrs: XattrTable,
    names: Vec<u8>,
}

impl Tree {
    /// Keeps a name, or where a symbolic link points.
    pub fn intern(&mut self, name: &[u8]) -> NameRef {
        debug_assert!(name.len() < 1 << NAME_LEN_BITS);
        let start = self.names.len() as u64;
        self.names.extend_from_slice(name);
        NameRef(start << NAME_LEN_BITS | name.len() as u64)
    }

    pub fn name(&self, name: NameRef) -> &[u8] {
        let start = (name.0 >> NAME_LEN_BITS) as usize;
        let len = name.0 as usize % (1 << NAME_LEN_BITS);
        &self.names[start..start + len]
    }

    pub fn node(&self, id: NodeId) -> &Node {
        &self.nodes[id as usize]
    }

    /// Gives a node another value of an attribute, or takes the attribute away.
    pub fn set_xattr(&mut self, id: NodeId, name: &[u8], value: Option<&[u8]>) {
        let node = &mut self.nodes[id as usize];
        node.xattrs = self.xattrs.replace(node.xattrs.clone(), name, value);
    }

    /// The entries of a directory, sorted by name.
    pub fn entries_of(&self, id: NodeId) -> &[Entry] {
        let range = &self.node(id).entries;
        &self.entries[range.start as usize..range.end as usize]
    }

    /// The node at a path relative to the source. Slashes around it do not matter.
    pub fn find(&self, path: &[u8]) -> Option<NodeId> {
        let mut names = path.split(|byte| *byte == b'/');
        names.try_fold(0, |id, name| match name {
            b"" | b"." => Some(id),
            _ => self.entry(id, name),
        })
    }

    /// The node of a name in a directory.
    pub fn entry(&self, directory: NodeId, name: &[u8]) -> Option<NodeId> {
        let entries = self.entries_of(directory);
        let at = entries.binary_search_by(|entry| self.name(entry.name).cmp(name));
        at.ok().map(|at| entries[at].node)
    }

    /// Returns where a node lies relative to the source, without leading slash; empty for the root.
    pub fn path(&self, id: NodeId) -> Vec<u8> {
        let name = |id| self.name(self.node(id).name);
        let names: Vec<&[u8]> = self.ancestors(id).map(name).collect();
        names.join(&b'/')
    }

    /// The directories that lead from the root to a node, and the node; the root is not among them.
    pub fn ancestors(&self, id: NodeId) -> impl Iterator<Item = NodeId> {
        let up = |&id: &NodeId| Some(self.node(id).parent);
        let mut directories: Vec<NodeId> = std::iter::successors(Some(id), up)
            .take_while(|&id| id != 0)
            .collect();
        directories.reverse();
        directories.into_iter()
    }

    /// Returns where a node lies, for messages.
    pub fn full_path(&self, source: &Path, id: NodeId) -> PathBuf {
        source.join(OsStr::from_bytes(&self.path(id)))
    }

    /// Bytes of memory that nodes and names take.
    pub fn memory_bytes(&self) -> u64 {
        (size_of_val(&*self.nodes) + size_of_val(&*self.entries) + self.names.len()) as u64
    }

    pub fn ids(&self) -> Range<NodeId> {
        0..self.nodes.len() as NodeId
    }

    /// The regular files.
    pub fn files(&self) -> impl Iterator<Item = &Node> {
        self.nodes
            .iter()
            .filter(|node| node.kind == FileKind::Regular)
    }
}
