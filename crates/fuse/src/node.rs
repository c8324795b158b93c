//! Node numbers: how the kernel names inodes.
//!
//! The kernel reserves two node numbers: 1 is the root, 0 says "no such file". A file system may
//! give either to any inode, and its root may be any number at all. Instead of a table that grows
//! with every file touched, two exchanges translate in both directions: first 0 with the largest
//! number, then 1 with whatever the root has become. All other numbers stay as they are.
//!
//! Exchanges only rearrange, so no two inodes meet in one node number and nothing needs to be
//! remembered or forgotten, but for inodes that are [renewed](Renewed). One inode is the price, the one that falls on 0 (`u64::MAX`, or 1
//! when the root itself is `u64::MAX`): it has no node number and cannot be reached.
//!
//! Node numbers stay between the kernel and the session. `stat` and `readdir` show the file system's
//! own inode numbers.

use std::sync::Arc;

use anteros_core::Ino;

use crate::proto::ROOT_ID;
use crate::renewed::Renewed;

/// Translates between the file system's inode numbers and the kernel's node numbers.
#[derive(Debug, Clone)]
pub struct Nodes {
    /// Tells where the first exchange takes the root.
    root: u64,
    renewed: Arc<Renewed>,
}

impl Nodes {
    /// The translation for a file system with this root.
    pub fn new(root: Ino) -> Self {
        Self {
            root: exchange(root.0, 0, u64::MAX),
            renewed: Arc::default(),
        }
    }

    /// The node number of an inode; `None` for the one inode that has none.
    pub fn node(&self, ino: Ino) -> Option<u64> {
        self.renewed.current(ino).or_else(|| self.first_node(ino))
    }

    /// The node number that an inode has until it is renewed; `None` for the one inode that has none.
    pub fn first_node(&self, ino: Ino) -> Option<u64> {
        let node = exchange(exchange(ino.0, 0, u64::MAX), self.root, ROOT_ID);
        (node != 0).then_some(node)
    }

    /// The inode of a node number; `None` for 0.
    pub fn ino(&self, node: u64) -> Option<Ino> {
        if let Some(ino) = self.renewed.ino(node) {
            return Some(ino);
        }
        let ino = exchange(exchange(node, self.root, ROOT_ID), 0, u64::MAX);
        (node != 0).then_some(Ino(ino))
    }

    /// The further numbers of inodes.
    pub(crate) fn renewed(&self) -> &Arc<Renewed> {
        &self.renewed
    }
}

/// `x`, unless it is one of the two: then the other.
fn exchange(x: u64, a: u64, b: u64) -> u64 {
    match x {
        _ if x == a => b,
        _ if x == b => a,
        _ => x,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const INTERESTING: [u64; 8] = [0, 1, 2, 36, 1 << 63, (1 << 63) | 5, u64::MAX - 1, u64::MAX];

    #[test]
    fn the_root_is_one_and_every_node_leads_back() {
        for root in INTERESTING {
            let nodes = Nodes::new(Ino(root));
            assert_eq!(nodes.node(Ino(root)), Some(ROOT_ID), "root {root}");
            for ino in INTERESTING.map(Ino) {
                if let Some(node) = nodes.node(ino) {
                    assert_eq!(nodes.ino(node), Some(ino), "root {root}, {ino:?}");
                }
            }
        }
    }

    #[test]
    fn one_inode_alone_has_no_node() {
        for root in INTERESTING {
            let nodes = Nodes::new(Ino(root));
            let without: Vec<_> = INTERESTING
                .into_iter()
                .filter(|&i| nodes.node(Ino(i)).is_none())
                .collect();
            assert_eq!(
                without,
                [if root == u64::MAX { 1 } else { u64::MAX }],
                "root {root}"
            );
            assert_eq!(nodes.ino(0), None);
        }
    }
}
