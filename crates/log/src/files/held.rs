//! Inodes that somebody holds: by name, by an open file, or without a name until the last one lets go.

use anteros_core::FsResult;

use crate::files::Files;
use crate::layout::node::FILE_BLOCKS;
use crate::store::medium::is_damage;

impl Files {
    /// Returns whether the user of the file system holds an inode.
    pub(crate) fn is_known(&self, ino: u32) -> bool {
        self.known.contains_key(&ino)
    }

    /// Returns whether somebody has a file open for writing.
    pub(crate) fn is_written(&self, ino: u32) -> bool {
        self.writers.contains_key(&ino)
    }

    /// One open file for writing more. Returns which one it is, since the mount.
    pub(crate) fn writes_more(&mut self, ino: u32) -> u64 {
        *self.writers.entry(ino).or_default() += 1;
        self.opened += 1;
        self.opened
    }

    /// Inodes without a name that are still held.
    pub(crate) fn orphans(&self) -> Vec<u32> {
        self.orphans.iter().copied().collect()
    }

    /// Notes an inode that has no name.
    pub(crate) fn add_orphan(&mut self, ino: u32) {
        self.orphans.insert(ino);
    }

    /// Returns whether there are inodes to be given back in pieces.
    pub(crate) fn has_doomed(&self) -> bool {
        !self.doomed.is_empty()
    }

    /// The next one of them, and up to which block it still has content.
    pub(crate) fn next_doomed(&self) -> Option<(u32, u32)> {
        self.doomed.first_key_value().map(|(&ino, &end)| (ino, end))
    }

    /// Leaves it an orphan.
    pub(crate) fn spare_doomed(&mut self, ino: u32) {
        self.doomed.remove(&ino);
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
    /// As [`reap`](Self::reap); what is damaged stays an orphan, for a repair to find.
    pub(crate) fn try_reap(&mut self, ino: u32) -> FsResult<()> {
        match self.reap(ino) {
            Err(error) if is_damage(&error) => Ok(()),
            reaped => reaped,
        }
    }

    /// Removes an inode that has no name and that nobody holds; or, if it is large, has that done in pieces.
    pub(crate) fn reap(&mut self, ino: u32) -> FsResult<()> {
        if self.known.contains_key(&ino) || !self.orphans.contains(&ino) {
            return Ok(());
        }
        if self.is_large(ino)? {
            self.doomed.insert(ino, FILE_BLOCKS);
            return Ok(());
        }
        self.reap_now(ino)
    }

    /// As [`reap`](Self::reap), at once, however large it is.
    pub(crate) fn reap_now(&mut self, ino: u32) -> FsResult<()> {
        if self.known.contains_key(&ino) || !self.orphans.contains(&ino) {
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

    /// The user of the file system holds an inode.
    pub(crate) fn hold(&mut self, ino: u32) {
        *self.known.entry(ino).or_default() += 1;
    }

    /// The user of the file system lets go of an inode, so many times.
    pub(crate) fn let_go(&mut self, ino: u32, times: u64) -> FsResult<()> {
        let Some(count) = self.known.get_mut(&ino) else {
            return Ok(());
        };
        *count = count.saturating_sub(times);
        if *count == 0 {
            self.known.remove(&ino);
            self.reap(ino)?;
        }
        Ok(())
    }
}
