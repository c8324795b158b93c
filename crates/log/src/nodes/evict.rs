//! Memory of nodes: what is clean and was not used for long goes, when there is too much.

use crate::layout::dir;
use crate::nodes::Nodes;

/// Nodes that are looked at before it is asked again whether there are too many.
const LOOKS_BETWEEN: u64 = 1000;

/// The most of them that are loaded until then.
const LOADED_BETWEEN: usize = 128;

/// Memory of a page or a node, and of an inode without its inline content, with the overhead of heap and tables.
pub(crate) const PAGE_BYTES: usize = 4352;
const INODE_BYTES: usize = 4864;

impl Nodes {
    /// Bytes of the nodes in memory, and of the content that inodes have there.
    pub(crate) fn bytes(&self) -> usize {
        let inodes = self.inodes.values();
        let inodes = inodes.map(|live| {
            INODE_BYTES + live.inode().inline.capacity() + live.pages.len() * PAGE_BYTES
        });
        inodes.sum::<usize>() + self.others.len() * PAGE_BYTES
    }

    /// Returns whether so much was used or loaded since the last look at memory that another one is due.
    pub(crate) fn is_look_due(&self) -> bool {
        self.clock >= self.shrunk_at + LOOKS_BETWEEN
            || self.loaded_count() >= self.loaded_then + LOADED_BETWEEN
    }

    /// Notes that a look at memory begins.
    pub(crate) fn look(&mut self) {
        self.shrunk_at = self.clock;
    }

    /// Notes that it has ended.
    pub(crate) fn has_looked(&mut self) {
        self.loaded_then = self.loaded_count();
    }

    fn loaded_count(&self) -> usize {
        self.others.len() + self.inodes.len()
    }

    /// Time before which half of them were used last.
    pub(crate) fn median_use(&self) -> u64 {
        let mut stamps: Vec<u64> = self.others.values().map(|node| node.stamp).collect();
        stamps.extend(self.inodes.values().map(|live| live.stamp));
        stamps.sort_unstable();
        stamps.get(stamps.len() / 2).copied().unwrap_or(0)
    }

    /// Lets go of what is clean and was not used since then; inodes stay that somebody keeps.
    pub(crate) fn drop_until(&mut self, oldest: u64, is_kept: impl Fn(&u32) -> bool) {
        self.others
            .retain(|_, node| node.is_dirty() || node.stamp > oldest);
        self.inodes
            .retain(|ino, live| live.stamp > oldest || !live.is_clean() || is_kept(ino));
        for live in self.inodes.values_mut().filter(|live| live.stamp <= oldest) {
            live.pages.retain(|_, page| page.dirty);
        }
    }

    /// Lets go of blocks of the node address table that the device has.
    pub(crate) fn drop_table(&mut self) {
        self.nat.evict();
    }

    /// Lets go of clean blocks of directories below a level of their trees.
    pub(crate) fn drop_below(&mut self, level_kept: u16) {
        for live in self.inodes.values_mut() {
            live.pages
                .retain(|_, page| page.dirty || dir::level(&page.data) >= level_kept);
        }
    }
}
