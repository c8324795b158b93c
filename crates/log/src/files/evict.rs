//! Memory of nodes and pages: what is clean and was not used for long goes, when there is too much.

use crate::layout::dir;
use crate::state::State;

/// Nodes that are looked at before it is asked again whether there are too many.
const LOOKS_BETWEEN: u64 = 1000;

/// The most of them that are loaded until then.
const LOADED_BETWEEN: usize = 128;

/// Memory of a page or a node, and of an inode without its inline content, with the overhead of heap and tables.
const PAGE_BYTES: usize = 4352;

const INODE_BYTES: usize = 4864;

/// The same of an entry of a table, with the room that the table has for others.
const ENTRY_BYTES: usize = 20;

impl State {
    /// Bytes of what is in memory and could be elsewhere, or is on its way there.
    pub(crate) fn cached_bytes(&self) -> usize {
        let inodes = self.inodes.values();
        let inodes = inodes.map(|live| {
            INODE_BYTES + live.inode().inline.capacity() + live.pages.len() * PAGE_BYTES
        });
        let pages = self.staged_pages() + self.nodes.len() + self.store.writer().blocks();
        inodes.sum::<usize>() + pages * PAGE_BYTES + self.table_bytes()
    }

    /// Bytes of what else grows with the files in use. Should that be most of what there is room for, the rest
    /// still has some.
    fn table_bytes(&self) -> usize {
        let entries = self.known.capacity() + self.nat.newer_count();
        let bytes = self.names.capacity() + entries * ENTRY_BYTES;
        bytes.min(self.store.options().memory_bytes / 4)
    }

    /// Lets go of what was not used for long, if there is too much. It looks now and then; there is room for what comes until
    /// it looks again.
    pub(crate) fn shrink(&mut self) {
        if self.store.options().evicts_always {
            return self.evict();
        }
        let loaded = self.nodes.len() + self.inodes.len();
        if self.clock < self.shrunk_at + LOOKS_BETWEEN && loaded < self.loaded_then + LOADED_BETWEEN
        {
            return;
        }
        self.shrunk_at = self.clock;
        if self.cached_bytes() > self.store.options().memory_bytes / 4 * 3 {
            self.drop_oldest();
        }
        self.loaded_then = self.nodes.len() + self.inodes.len();
    }

    /// Lets go of the older half of what is clean.
    fn drop_oldest(&mut self) {
        let mut stamps: Vec<u64> = self.nodes.values().map(|node| node.stamp).collect();
        stamps.extend(self.inodes.values().map(|live| live.stamp));
        stamps.sort_unstable();
        self.drop_until(stamps.get(stamps.len() / 2).copied().unwrap_or(0));
        // One directory in use may be larger than what there is room for. What leads to many of its blocks goes last.
        for level_kept in [1, u16::MAX] {
            if self.cached_bytes() > self.store.options().memory_bytes {
                for live in self.inodes.values_mut() {
                    live.pages
                        .retain(|_, page| page.dirty || dir::level(&page.data) >= level_kept);
                }
            }
        }
    }

    /// Lets go of all that is clean, if that is to be done after each operation.
    pub(crate) fn evict(&mut self) {
        if self.store.options().evicts_always {
            self.drop_until(u64::MAX);
            self.nat.let_go();
        }
    }

    /// Lets go of what is clean and was not used since then.
    fn drop_until(&mut self, oldest: u64) {
        self.nodes
            .retain(|_, node| node.is_dirty() || node.stamp > oldest);
        let kept = |ino: &u32| self.touched.contains(ino);
        self.inodes
            .retain(|ino, live| live.stamp > oldest || !live.is_clean() || kept(ino));
        for live in self.inodes.values_mut().filter(|live| live.stamp <= oldest) {
            live.pages.retain(|_, page| page.dirty);
        }
    }
}
