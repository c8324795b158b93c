//! Memory of files: what could be elsewhere goes, when there is too much.

use crate::files::Files;
use crate::nodes::evict::PAGE_BYTES;

/// Memory of an entry of a table, with the room that the table has for others.
const ENTRY_BYTES: usize = 20;

impl Files {
    /// Bytes of what is in memory and could be elsewhere, or is on its way there.
    pub(crate) fn cached_bytes(&self) -> usize {
        let pages = self.atomic_pages() + self.store.writer().blocks();
        self.nodes.bytes() + pages * PAGE_BYTES + self.prepared_bytes() + self.table_bytes()
    }

    /// Bytes of what else grows with the files in use. Should that be most of what there is room for, the rest
    /// still has some.
    fn table_bytes(&self) -> usize {
        let entries = self.lookups.capacity() + self.nodes.nat().newer_count();
        let bytes = self.unrecorded.names().capacity() + entries * ENTRY_BYTES;
        bytes.min(self.store.options().memory_bytes / 4)
    }

    /// Returns whether so many inodes are looked up that those which are only listed are not to be added.
    pub(crate) fn is_crowded(&self) -> bool {
        self.lookups.len() * ENTRY_BYTES > self.store.options().memory_bytes / 8
    }

    /// Lets go of what was not used for long, if there is too much. It looks now and then; there is room for what comes until
    /// it looks again.
    pub(crate) fn shrink(&mut self) {
        if self.store.options().evicts_always {
            return self.evict();
        }
        if !self.nodes.is_look_due() {
            return;
        }
        self.nodes.look();
        if self.cached_bytes() > self.store.memory_bytes() / 4 * 3 {
            self.drop_oldest();
        }
        self.nodes.has_looked();
    }

    /// Lets go of what there is no room for since some memory was lent. Says whether it was anything.
    pub(crate) fn make_way(&mut self) -> bool {
        let begun = self.cached_bytes();
        let (mut before, mut bytes) = (usize::MAX, begun);
        while bytes < before && bytes > self.store.memory_bytes() / 4 * 3 {
            self.drop_oldest();
            (before, bytes) = (bytes, self.cached_bytes());
        }
        bytes < begun
    }

    /// Lets go of the older half of what is clean.
    fn drop_oldest(&mut self) {
        self.drop_until(self.nodes.median_use());
        // One directory in use may be larger than what there is room for. What leads to many of its blocks goes last.
        for level_kept in [1, u16::MAX] {
            if self.cached_bytes() > self.store.memory_bytes() {
                self.nodes.drop_below(level_kept);
            }
        }
    }

    /// Lets go of all that is clean, if that is to be done after each operation.
    pub(crate) fn evict(&mut self) {
        if self.store.options().evicts_always {
            self.drop_until(u64::MAX);
            self.nodes.drop_table();
        }
    }

    fn drop_until(&mut self, oldest: u64) {
        let touched = self.unrecorded.touched();
        self.packer
            .nodes
            .drop_until(oldest, |ino| touched.contains(ino));
    }
}
