//! The way from a draft to a [`Tree`], whose nodes are numbered as those of a directory are: the
//! children of a directory follow each other by name, its subdirectories come after all of them.

use std::ops::Range;

use anteros_core::FileKind;

use super::draft::Draft;
use super::inode::{Body, Inode, InodeId, ROOT};
use super::whiteout;
use crate::source::Gaps;
use crate::source::archive::Extent;
use crate::sparse::Allocation;
use crate::times;
use crate::tree::{Entry, Fingerprint, Node, NodeId, Tree};
use crate::xattr::Xattr;

/// A tree with the places of its content.
pub(crate) struct Finished {
    pub tree: Tree,
    pub extents: Vec<Extent>,
    /// The extents of each node.
    pub nodes: Vec<Range<u32>>,
    pub gaps: Gaps,
}

/// Makes the tree of a draft. `fingerprint` is that of its content.
pub(crate) fn finish(draft: Draft<'_>, fingerprint: Fingerprint) -> Finished {
    let mut walk = Walk {
        nodes_of: vec![None; draft.inodes.len()],
        tree: Tree::default(),
        inodes: Vec::new(),
        gaps: Gaps::default(),
        fingerprint,
        draft: &draft,
    };
    walk.add(ROOT, 0, b"");
    let mut directories = vec![0];
    while let Some(directory) = directories.pop() {
        let subdirectories = walk.directory(directory);
        directories.extend(subdirectories.into_iter().rev());
    }
    times::give_implied(&mut walk.tree, &walk.gaps.implied, draft.options);
    let extents = |inode: &InodeId| match &draft.inodes[*inode as usize].body {
        Body::Regular { extents, .. } => extents.clone(),
        _ => 0..0,
    };
    let nodes = walk.inodes.iter().map(extents).collect();
    Finished {
        tree: walk.tree,
        gaps: walk.gaps,
        nodes,
        extents: draft.extents,
    }
}

/// The way through a finished draft.
struct Walk<'a> {
    draft: &'a Draft<'a>,
    fingerprint: Fingerprint,
    tree: Tree,
    /// The node of each inode that has one, unless each name is a node of its own.
    nodes_of: Vec<Option<NodeId>>,
    /// The inode of each node.
    inodes: Vec<InodeId>,
    gaps: Gaps,
}

impl Walk<'_> {
    /// Adds the children of a directory; answers which of them are directories.
    fn directory(&mut self, id: NodeId) -> Vec<NodeId> {
        let inode = self.inodes[id as usize];
        let Body::Directory(entries) = &self.draft.inodes[inode as usize].body else {
            unreachable!("only directories are entered");
        };
        let options = self.draft.options;
        let path = match options.exclude.is_empty() {
            true => Vec::new(),
            false => self.tree.path(id),
        };
        let start = self.tree.entries.len() as u32;
        let mut subdirectories = Vec::new();
        for (name, &inode) in entries {
            if options.is_excluded(&path, name) || self.is_hidden(inode, name) {
                continue;
            }
            let node = self.entry(inode, id, name);
            if self.tree.node(node).kind == FileKind::Directory {
                subdirectories.push(node);
            }
        }
        let end = self.tree.entries.len() as u32;
        let node = &mut self.tree.nodes[id as usize];
        node.entries = start..end;
        node.nlink = 2 + subdirectories.len() as u32;
        subdirectories
    }

    /// Returns whether an entry serves layers alone.
    fn is_hidden(&self, inode: InodeId, name: &[u8]) -> bool {
        let options = self.draft.options;
        options.aufs_whiteouts && whiteout::is_own(name)
            || options.strip_overlay && self.draft.inodes[inode as usize].is_whiteout()
    }

    fn entry(&mut self, inode: InodeId, parent: NodeId, name: &[u8]) -> NodeId {
        let known = self.nodes_of[inode as usize].filter(|_| !self.draft.options.hard_dereference);
        let node = match known {
            Some(node) => {
                self.tree.nodes[node as usize].nlink += 1;
                node
            }
            None => self.add(inode, parent, name),
        };
        let name = match known {
            Some(_) => self.tree.intern(name),
            None => self.tree.node(node).name,
        };
        self.tree.entries.push(Entry { name, node });
        node
    }

    fn add(&mut self, inode_id: InodeId, parent: NodeId, name: &[u8]) -> NodeId {
        let inode = &self.draft.inodes[inode_id as usize];
        let id = self.tree.nodes.len() as NodeId;
        let (size, allocation) = match &inode.body {
            Body::Regular {
                bytes, allocation, ..
            } => (*bytes, *allocation),
            Body::Symlink(target) => (target.len() as u64, Allocation::Whole),
            _ => (0, Allocation::Whole),
        };
        let (rdev, target) = match &inode.body {
            Body::Special(_, rdev) => (*rdev, &b""[..]),
            Body::Symlink(target) => (0, &target[..]),
            _ => (0, &b""[..]),
        };
        let xattrs = self.xattrs(inode);
        let node = Node {
            kind: inode.body.kind(),
            perm: inode.perm,
            uid: inode.uid,
            gid: inode.gid,
            nlink: 1,
            size,
            allocation,
            mtime: inode.mtime,
            rdev,
            parent,
            name: self.tree.intern(name),
            xattrs,
            fingerprint: self.fingerprint,
            entries: 0..0,
            target: self.tree.intern(target),
        };
        self.tree.nodes.push(node);
        self.inodes.push(inode_id);
        if inode.is_implied {
            self.gaps.implied.push(id);
        }
        if let Body::Below(link) = &inode.body {
            self.gaps.links.insert(id, link.clone());
        }
        self.nodes_of[inode_id as usize] = Some(id);
        id
    }

    fn xattrs(&mut self, inode: &Inode) -> Range<u32> {
        let options = self.draft.options;
        let found = self.draft.xattrs.of(&inode.xattrs);
        let is_kept = |xattr: &&Xattr| match xattr.name() {
            whiteout::OPAQUE if inode.is_opaque => false,
            name => !(options.strip_overlay && whiteout::is_overlay(name)),
        };
        let mut kept: Vec<_> = found.filter(is_kept).cloned().collect();
        if inode.is_opaque && options.xattr_share_above.is_some() && !options.strip_overlay {
            let opaque = Xattr::new(whiteout::OPAQUE, whiteout::IS_OPAQUE);
            kept.push(opaque.expect("it is short"));
        }
        self.tree.xattrs.add(kept)
    }
}
