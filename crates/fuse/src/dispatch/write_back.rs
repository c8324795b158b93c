//! Files whose content the kernel keeps and writes back later.
//!
//! It believes its own size and time of modification of such a file then, as long as it knows the inode,
//! whatever it is told. If something else changes the file behind the mount, the only way to
//! have it look again is to say that the inode is another one: it gets the next generation. That is done
//! when the name is looked up, so within the time for which names are believed, or when the file is opened;
//! unless someone has it open, who would be cut off from it: what they wrote and the kernel keeps would be lost.
//!
//! Attributes that are older than what else happened to the file meanwhile say nothing: a file that was just written to and
//! closed would seem to be changed by others. So there is a clock, of what happens to all files here, which is looked
//! at before attributes are asked for.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use anteros_core::{Attr, FileKind, Ino, Timestamp};
use rustix::fs::OFlags;

/// Holds what is known of the files that the kernel knows.
#[derive(Debug, Default)]
pub(super) struct WriteBack(Mutex<Files>);

#[derive(Debug, Default)]
struct Files {
    /// Tells how much has happened.
    clock: u64,
    known: HashMap<Ino, Known>,
}

/// A moment: attributes that were asked for later are no older.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub(super) struct Moment(u64);

/// One who has a file open, or is about to change it, as long as this is there.
#[derive(Debug)]
pub(super) struct Using<'a> {
    files: &'a WriteBack,
    ino: Ino,
}

impl Using<'_> {
    /// The file stays open: it is [released](WriteBack::released) later.
    pub(super) fn stays(self) {
        std::mem::forget(self);
    }
}

impl Drop for Using<'_> {
    fn drop(&mut self) {
        self.files.released(self.ino);
    }
}

#[derive(Debug)]
struct Known {
    /// Tells how often the kernel was told of the inode and has not forgotten it.
    lookups: u64,
    opens: u64,
    generation: u64,
    /// Holds what the kernel believes of the file: its size, and the time that it set or was told. After it
    /// has written it sets the time, before it lets go of the file.
    size: u64,
    mtime: Timestamp,
    /// Tells when something last happened to it.
    touched: Moment,
}

impl Known {
    /// Returns whether others have changed a file, by attributes that were asked for since a moment, and nobody has it
    /// open.
    fn is_stale(&self, attr: &Attr, since: Moment) -> bool {
        let differs = (self.size, self.mtime) != (attr.size, attr.mtime);
        self.opens == 0 && self.touched <= since && differs
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
    fn files(&self) -> MutexGuard<'_, Files> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// To be looked at before attributes are asked for.
    pub(super) fn now(&self) -> Moment {
        Moment(self.files().clock)
    }

    /// The kernel is told of an inode, by attributes that were asked for since a moment: of which generation it is.
    pub(super) fn introduce(&self, attr: &Attr, since: Moment) -> u64 {
        if attr.kind != FileKind::Regular {
            return 0;
        }
        let mut files = self.files();
        let known = files.known.entry(attr.ino).or_insert_with(|| Known {
            lookups: 0,
            opens: 0,
            generation: 0,
            size: attr.size,
            mtime: attr.mtime,
            touched: since,
        });
        known.lookups += 1;
        if known.is_stale(attr, since) {
            (known.size, known.mtime) = (attr.size, attr.mtime);
            known.generation += 1;
        }
        known.generation
    }

    /// The kernel has forgotten so many of the times that it was told.
    pub(super) fn forget(&self, ino: Ino, times: u64) {
        let mut files = self.files();
        if let Some(known) = files.known.get_mut(&ino) {
            known.lookups = known.lookups.saturating_sub(times);
            if known.lookups == 0 {
                files.known.remove(&ino);
            }
        }
    }

    /// Someone is about to open the file, or to change it, whose attributes were asked for since a moment; `None` if others
    /// have changed it, and nobody has it open. From here on nobody is told that it is another one.
    pub(super) fn using(&self, attr: &Attr, since: Moment) -> Option<Using<'_>> {
        let mut files = self.files();
        if let Some(known) = files.known.get_mut(&attr.ino) {
            if known.is_stale(attr, since) {
                return None;
            }
            // Whatever happens in between, it is not told to be another one.
            known.opens += 1;
        }
        Some(Using {
            files: self,
            ino: attr.ino,
        })
    }

    /// As [`using`](Self::using), whoever has changed the file.
    pub(super) fn changing(&self, ino: Ino) -> Using<'_> {
        self.opened(ino);
        Using { files: self, ino }
    }

    fn update(&self, ino: Ino, update: impl FnOnce(&mut Known)) {
        let mut files = self.files();
        files.clock += 1;
        let now = Moment(files.clock);
        if let Some(known) = files.known.get_mut(&ino) {
            known.touched = now;
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

    /// The file reaches at least to here, and was written to at this time. The kernel tells its own time later, but not of
    /// what is written in the tick in which it told the last one.
    pub(super) fn wrote(&self, ino: Ino, end: u64, mtime: Timestamp) {
        self.update(ino, |known| {
            known.size = known.size.max(end);
            known.mtime = known.mtime.max(mtime);
        });
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

    /// By attributes that are new.
    fn introduce(files: &WriteBack, size: u64) -> u64 {
        files.introduce(&file(size), files.now())
    }

    fn is_stale(files: &WriteBack, size: u64) -> bool {
        files.using(&file(size), files.now()).is_none()
    }

    #[test]
    fn a_file_changed_by_others_is_another_one() {
        let files = WriteBack::default();
        assert_eq!(introduce(&files, 1), 0);
        assert_eq!(introduce(&files, 1), 0);
        assert_eq!(introduce(&files, 2), 1);
        files.changed(&file(3), Some(3));
        assert_eq!(introduce(&files, 3), 1, "our own change");
        files.opened(Ino(7));
        assert_eq!(introduce(&files, 4), 1, "who has it open keeps it");
        files.wrote(Ino(7), 9, Timestamp::default());
        files.changed(&file(4), None);
        files.released(Ino(7));
        assert!(!is_stale(&files, 9));
        assert!(is_stale(&files, 4));
        assert_eq!(introduce(&files, 4), 2);
        assert!(!is_stale(&files, 4));
        files.forget(Ino(7), 5);
        assert_eq!(introduce(&files, 1), 3, "not yet forgotten");
        files.forget(Ino(7), 2);
        assert_eq!(introduce(&files, 1), 0);
    }

    /// The host has a time of its own for what is written, and the kernel does not always tell another one.
    #[test]
    fn the_time_of_a_write_makes_no_file_another_one() {
        let files = WriteBack::default();
        assert_eq!(introduce(&files, 0), 0);
        files.using(&file(0), files.now()).unwrap().stays();
        let mtime = Timestamp { secs: 5, nanos: 0 };
        files.wrote(Ino(7), 100, mtime);
        files.released(Ino(7));
        let attr = Attr { mtime, ..file(100) };
        assert_eq!(files.introduce(&attr, files.now()), 0);
        assert!(files.using(&attr, files.now()).is_some());
    }

    /// Somebody looks at a file, and while they do, another who has it open writes to it and closes it.
    #[test]
    fn old_attributes_make_no_file_another_one() {
        let files = WriteBack::default();
        assert_eq!(introduce(&files, 0), 0);
        files.using(&file(0), files.now()).unwrap().stays();
        let since = files.now();
        let old = file(0);
        files.wrote(Ino(7), 100, Timestamp::default());
        files.changed(&file(100), None);
        files.released(Ino(7));
        assert_eq!(files.introduce(&old, since), 0);
        assert!(files.using(&old, since).is_some());
        assert_eq!(introduce(&files, 100), 0);
        assert!(!is_stale(&files, 100));
    }

    /// Tests that who opens a file writes to it at once: it must not become another one then.
    #[test]
    fn a_file_that_is_being_opened_is_no_other_one() {
        let files = WriteBack::default();
        assert_eq!(introduce(&files, 1), 0);
        let opening = files.using(&file(1), files.now()).unwrap();
        assert_eq!(introduce(&files, 2), 0);
        drop(opening);
        assert_eq!(introduce(&files, 2), 1, "it could not be opened");
        let changing = files.changing(Ino(7));
        assert_eq!(introduce(&files, 3), 1);
        files.changed(&file(3), Some(3));
        drop(changing);
        assert_eq!(introduce(&files, 3), 1);
    }

    #[test]
    fn files_are_opened_so_that_pages_can_be_read() {
        let wanted = OFlags::WRONLY | OFlags::APPEND | OFlags::TRUNC;
        let flags = OFlags::from_bits_retain(open_flags(wanted.bits()));
        assert_eq!(flags, OFlags::RDWR | OFlags::TRUNC);
        assert_eq!(open_flags(OFlags::RDONLY.bits()), OFlags::RDONLY.bits());
    }
}
