//! The order in which files are read and stored.
//!
//! Like files had best lie together where clusters are large: then one is a few references to the other. Which names a
//! tree has tells much of that for nothing: translations of a program, licences, indexes of manuals have the same name in
//! many directories.

use std::collections::HashMap;

use anteros_core::FileKind;

use crate::tree::{NodeId, Tree};

/// Tells in which order files are stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Order {
    /// As they are listed: what lies in a directory lies together.
    #[default]
    Path,
    /// Files of the same name lie together, where the first of them is listed.
    Name,
}

impl Order {
    /// All nodes in this order.
    pub(crate) fn of(self, tree: &Tree) -> Vec<NodeId> {
        let mut order: Vec<NodeId> = tree.ids().collect();
        if self == Self::Name {
            let mut named = HashMap::new();
            let first = |id| match tree.node(id) {
                node if node.kind == FileKind::Regular => {
                    *named.entry(tree.name(node.name)).or_insert(id)
                }
                _ => id,
            };
            let firsts: Vec<NodeId> = tree.ids().map(first).collect();
            order.sort_by_key(|&id| firsts[id as usize]);
        }
        order
    }
}

#[cfg(test)]
mod tests {
    use anteros_core::Timestamp;

    use super::*;
    use crate::tree::{Identity, NameRef, Node};

    fn node(kind: FileKind, name: NameRef) -> Node {
        let time = Timestamp::default();
        Node {
            kind,
            perm: 0,
            uid: 0,
            gid: 0,
            nlink: 1,
            size: 0,
            allocated: 0,
            mtime: time,
            rdev: 0,
            parent: 0,
            name,
            xattrs: 0..0,
            identity: Identity {
                device: 0,
                inode: 0,
                size: 0,
                mtime: time,
                ctime: time,
            },
            entries: 0..0,
            target: Box::default(),
        }
    }

    fn tree(names: &[&str]) -> Tree {
        let mut tree = Tree::default();
        for name in names {
            let kind = match *name {
                "directory" => FileKind::Directory,
                _ => FileKind::Regular,
            };
            let name = tree.intern(name.as_bytes());
            tree.nodes.push(node(kind, name));
        }
        tree
    }

    #[test]
    fn namesakes_lie_where_the_first_one_does() {
        let tree = tree(&["b", "a", "directory", "a", "b", "d", "a", "directory"]);
        assert_eq!(Order::Path.of(&tree), [0, 1, 2, 3, 4, 5, 6, 7]);
        assert_eq!(Order::Name.of(&tree), [0, 4, 1, 3, 6, 2, 5, 7]);
    }
}
