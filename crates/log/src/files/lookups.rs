//! Lookup counts of inodes, and the eviction of orphans that no lookup keeps any more.

use anteros_core::{FsError, FsResult};

use crate::files::Files;
use crate::layout::node::FILE_BLOCKS;
use crate::store::medium::is_damage;

impl Files {
    /// Returns whether the lookup count of an inode is more than zero.
    pub(crate) fn is_looked_up(&self, ino: u32) -> bool {
        self.lookups.contains_key(&ino)
    }

    /// Returns whether somebody has a file open for writing.
    pub(crate) fn is_written(&self, ino: u32) -> bool {
        self.writers.contains_key(&ino)
    }

    /// Begins to give content of a file away, which keeps its inode. Returns false if nobody knows the file, or somebody writes
    /// to it. Where nothing changes, lookups are not counted.
    pub(crate) fn begin_giving(&mut self, ino: u32) -> bool {
        let is_known = self.is_looked_up(ino) || self.store.options().read_only;
        let may = is_known && !self.is_written(ino) && self.given.insert(ino);
        if may {
            self.add_lookup(ino);
        }
        may
    }

    /// Ends it, but for the inode, which is to be forgotten once.
    pub(crate) fn end_giving(&mut self, ino: u32) {
        self.given.remove(&ino);
    }

    /// Refuses for now to change a file whose content is being given away.
    pub(crate) fn check_not_given(&self, ino: u32) -> FsResult<()> {
        match self.given.contains(&ino) {
            true => Err(FsError::Later),
            false => Ok(()),
        }
    }

    /// One open file for writing more. Returns which one it is, since the mount.
    pub(crate) fn writes_more(&mut self, ino: u32) -> u64 {
        *self.writers.entry(ino).or_default() += 1;
        self.opened += 1;
        self.opened
    }

    /// Inodes without a name that a lookup still keeps.
    pub(crate) fn orphans(&self) -> Vec<u32> {
        self.orphans.iter().copied().collect()
    }

    /// Notes an inode that has no name.
    pub(crate) fn add_orphan(&mut self, ino: u32) {
        self.orphans.insert(ino);
    }

    /// Returns whether there are inodes to be given back in pieces.
    pub(crate) fn has_evicting(&self) -> bool {
        !self.evicting.is_empty()
    }

    /// The next one of them, and up to which block it still has content.
    pub(crate) fn next_evicting(&self) -> Option<(u32, u32)> {
        self.evicting
            .first_key_value()
            .map(|(&ino, &end)| (ino, end))
    }

    /// Leaves it an orphan.
    pub(crate) fn keep_orphan(&mut self, ino: u32) {
        self.evicting.remove(&ino);
    }

    /// One open file for writing less.
    pub(crate) fn writes_no_more(&mut self, ino: u32) {
        if let Some(count) = self.writers.get_mut(&ino) {
            *count -= 1;
            if *count == 0 {
                self.writers.remove(&ino);
            }
        }
    }
}

impl Files {
    /// As [`evict_orphan`](Self::evict_orphan); what is damaged stays an orphan, for a repair to find.
    pub(crate) fn try_evict_orphan(&mut self, ino: u32) -> FsResult<()> {
        match self.evict_orphan(ino) {
            Err(error) if is_damage(&error) => Ok(()),
            evicted => evicted,
        }
    }

    /// Removes an inode that has no name and no lookup; or, if it is large, has that done in pieces.
    pub(crate) fn evict_orphan(&mut self, ino: u32) -> FsResult<()> {
        if self.lookups.contains_key(&ino) || !self.orphans.contains(&ino) {
            return Ok(());
        }
        if self.is_large(ino)? {
            self.evicting.insert(ino, FILE_BLOCKS);
            return Ok(());
        }
        self.evict_orphan_now(ino)
    }

    /// As [`evict_orphan`](Self::evict_orphan), at once, however large it is.
    pub(crate) fn evict_orphan_now(&mut self, ino: u32) -> FsResult<()> {
        if self.lookups.contains_key(&ino) || !self.orphans.contains(&ino) {
            return Ok(());
        }
        self.drop_content(ino)?;
        self.drop_xattrs(ino)?;
        let attributes = self.live(ino)?.inode().attributes;
        self.free_nid(ino)?;
        self.remove(ino);
        self.orphans.remove(&ino);
        self.unrecorded.drop_inode(ino, attributes);
        Ok(())
    }

    /// Adds one to the lookup count of an inode.
    pub(crate) fn add_lookup(&mut self, ino: u32) {
        *self.lookups.entry(ino).or_default() += 1;
    }

    /// Takes so many from the lookup count of an inode; with the last one an orphan is evicted.
    pub(crate) fn forget(&mut self, ino: u32, times: u64) -> FsResult<()> {
        let Some(count) = self.lookups.get_mut(&ino) else {
            return Ok(());
        };
        *count = count.saturating_sub(times);
        if *count == 0 {
            self.lookups.remove(&ino);
            self.evict_orphan(ino)?;
        }
        Ok(())
    }
}
