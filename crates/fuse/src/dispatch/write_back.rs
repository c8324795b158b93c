//! Files whose content the kernel keeps and writes back later.
//!
//! It believes its own size and time of modification of such a file then, as long as it knows the inode,
//! whatever it is told. If something else changes the file behind the mount, the only way to
//! have it look again is to say that the inode is another one: it gets the next generation. That is done
//! when the name is looked up, so within the time for which names are believed, or when the file is opened;
//! unless someone has it open, who would be cut off from it.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use anteros_core::{Attr, FileKind, Ino, Timestamp};
use rustix::fs::OFlags;

/// What is known of the files that the kernel knows.
#[derive(Debug, Default)]
pub(super) struct WriteBack(Mutex<HashMap<Ino, Known>>);

#[derive(Debug)]
struct Known {
    /// How often the kernel was told of the inode and has not forgotten it.
    lookups: u64,
    opens: u64,
    generation: u64,
    /// What the kernel believes of the file: its size, and the time that it set or was told. After it
    /// has written it sets the time, before it lets go of the file.
    size: u64,
    mtime: Timestamp,
}

impl Known {
    /// Whether others have changed a file, and nobody has it open.
    fn is_stale(&self, attr: &Attr) -> bool {
        self.opens == 0 && (self.size, self.mtime) != (attr.size, attr.mtime)
    }
}

/// The flags to open a file with that the kernel writes back through: it reads the rest of pages that are
/// written in part, and says itself where the end is.
pub(super) fn open_flags(flags: u32) -> u32 {
    let mut flags = OFlags::from_bits_retain(flags);
    if flags.contains(OFlags::WRONLY) {
        flags = (flags - OFlags::WRONLY) | OFlags::RDWR;
    }
    (flags - OFlags::APPEND).bits()
}

impl WriteBack {
    fn files(&self) -> MutexGuard<'_, HashMap<Ino, Known>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The kernel is told of an inode: of which generation it is.
    pub(super) fn introduce(&self, attr: &Attr) -> u64 {
        if attr.kind != FileKind::Regular {
            return 0;
        }
        let mut files = self.files();
        let known = files.entry(attr.ino).or_insert_with(|| Known {
            lookups: 0,
            opens: 0,
            generation: 0,
            size: attr.size,
            mtime: attr.mtime,
        });
        known.lookups += 1;
        if known.is_stale(attr) {
            (known.size, known.mtime) = (attr.size, attr.mtime);
            known.generation += 1;
        }
        known.generation
    }

    /// The kernel has forgotten so many of the times that it was told.
    pub(super) fn forget(&self, ino: Ino, times: u64) {
        let mut files = self.files();
        if let Some(known) = files.get_mut(&ino) {
            known.lookups = known.lookups.saturating_sub(times);
            if known.lookups == 0 {
                files.remove(&ino);
            }
        }
    }

    /// Whether others have changed a file, and nobody has it open.
    pub(super) fn is_stale(&self, attr: &Attr) -> bool {
        let files = self.files();
        files
            .get(&attr.ino)
            .is_some_and(|known| known.is_stale(attr))
    }

    fn update(&self, ino: Ino, update: impl FnOnce(&mut Known)) {
        if let Some(known) = self.files().get_mut(&ino) {
            update(known);
        }
    }

    /// Someone has opened the file.
    pub(super) fn opened(&self, ino: Ino) {
        self.update(ino, |known| known.opens += 1);
    }

    /// One who had the file open has gone.
    pub(super) fn released(&self, ino: Ino) {
        self.update(ino, |known| known.opens = known.opens.saturating_sub(1));
    }

    /// The file reaches at least to here.
    pub(super) fn reaches(&self, ino: Ino, end: u64) {
        self.update(ino, |known| known.size = known.size.max(end));
    }

    /// The kernel had attributes changed, its size perhaps, and was told these.
    pub(super) fn changed(&self, attr: &Attr, size: Option<u64>) {
        self.update(attr.ino, |known| {
            known.size = size.unwrap_or(known.size);
            known.mtime = attr.mtime;
        });
    }
}

#[cfg(test)]
mod tests {
    use anteros_core::Rdev;

    use super::*;

    fn file(size: u64) -> Attr {
        Attr {
            ino: Ino(7),
            kind: FileKind::Regular,
            perm: 0o644,
            nlink: 1,
            uid: 0,
            gid: 0,
            size,
            blocks: 0,
            block_size: 4096,
            rdev: Rdev::default(),
            atime: Timestamp::default(),
            mtime: Timestamp::default(),
            ctime: Timestamp::default(),
        }
    }

    #[test]
    fn a_file_changed_by_others_is_another_one() {
        let files = WriteBack::default();
        assert_eq!(files.introduce(&file(1)), 0);
        assert_eq!(files.introduce(&file(1)), 0);
        assert_eq!(files.introduce(&file(2)), 1);
        files.changed(&file(3), Some(3));
        assert_eq!(files.introduce(&file(3)), 1, "our own change");
        files.opened(Ino(7));
        assert_eq!(files.introduce(&file(4)), 1, "who has it open keeps it");
        files.reaches(Ino(7), 9);
        files.changed(&file(4), None);
        files.released(Ino(7));
        assert!(!files.is_stale(&file(9)));
        assert!(files.is_stale(&file(4)));
        assert_eq!(files.introduce(&file(4)), 2);
        assert!(!files.is_stale(&file(4)));
        files.forget(Ino(7), 5);
        assert_eq!(files.introduce(&file(1)), 3, "not yet forgotten");
        files.forget(Ino(7), 2);
        assert_eq!(files.introduce(&file(1)), 0);
    }

    #[test]
    fn files_are_opened_so_that_pages_can_be_read() {
        let wanted = OFlags::WRONLY | OFlags::APPEND | OFlags::TRUNC;
        let flags = OFlags::from_bits_retain(open_flags(wanted.bits()));
        assert_eq!(flags, OFlags::RDWR | OFlags::TRUNC);
        assert_eq!(open_flags(OFlags::RDONLY.bits()), OFlags::RDONLY.bits());
    }
}
