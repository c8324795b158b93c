//! Files whose content the kernel keeps and writes back later.
//!
//! It believes its own size and time of modification of such a file then, as long as it knows the inode,
//! whatever it is told. If something else changes the file behind the mount, the only way to
//! have it look again is to say that the inode is another one: it is [renewed](Renewed). That is done
//! when the name is looked up, so within the time for which names are believed, or when the file is opened;
//! unless someone has it open, who would be cut off from it: what they wrote and the kernel keeps would be lost.
//!
//! Attributes that are older than what else happened to the file meanwhile say nothing: a file that was just written to and
//! closed would seem to be changed by others. So there is a clock, of what happens to all files here, which is looked
//! at before attributes are asked for.
//!
//! The answer to a lookup may be old when the kernel looks at it. That does no harm as long as the kernel knows the inode.
//! If it has dropped the inode meanwhile, which only somebody else had open, it takes the size in that answer for that of
//! the file: what is appended then overwrites what the other has written. So where the kernel forgets an inode and was told
//! of it once more than that, the inode is renewed, too. Linux drops inodes so easily when many create one name at a time:
//! who finds the name missing takes the entry away that another is just making.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard};

use anteros_core::{Attr, FileKind, Ino, Timestamp, unpoisoned};
use rustix::fs::OFlags;

use crate::renewed::Renewed;

/// States how many threads are remembered that were refused. Whoever never comes back stays among them until there are so
/// many others.
const REFUSED_MAX: usize = 256;

/// Holds what is known of the files that the kernel knows.
#[derive(Debug)]
pub(super) struct WriteBack {
    files: Mutex<Files>,
    renewed: Arc<Renewed>,
}

#[derive(Debug, Default)]
struct Files {
    /// Tells how much has happened.
    clock: u64,
    known: HashMap<Ino, Known>,
    /// Holds the threads that were to look up the name of a file once more before they open it.
    refused: VecDeque<(Ino, u32)>,
}

impl Files {
    fn refuse(&mut self, ino: Ino, pid: u32) {
        if self.refused.len() == REFUSED_MAX {
            self.refused.pop_front();
        }
        self.refused.push_back((ino, pid));
    }

    /// Returns whether a thread was refused the last time.
    fn was_refused(&mut self, ino: Ino, pid: u32) -> bool {
        let before = self.refused.len();
        self.refused.retain(|&refused| refused != (ino, pid));
        self.refused.len() < before
    }
}

/// A moment: attributes that were asked for later are no older.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub(super) struct Moment(u64);

/// Describes what a change did to the size of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Size {
    Kept,
    /// It reaches at least to here.
    AtLeast(u64),
    Is(u64),
}

/// Describes who is about to open a file, and by which number.
#[derive(Debug, Clone, Copy)]
pub(super) struct Opening {
    pub(super) node: u64,
    /// The thread.
    pub(super) pid: u32,
    pub(super) reads_only: bool,
}

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
    /// Tells whether it is to be renewed when nobody has it open any more.
    is_doubtful: bool,
    /// Holds what the kernel believes of the file: its size.
    size: u64,
    /// Holds the time that the file had after the last change by the kernel. That is not always what the kernel believes: it
    /// tells no time of its own for what is written in the tick in which it told the last one.
    mtime: Timestamp,
    /// Tells when the last change by the kernel was taken note of.
    changed: Moment,
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
    pub(super) fn new(renewed: Arc<Renewed>) -> Self {
        Self {
            files: Mutex::default(),
            renewed,
        }
    }

    fn files(&self) -> MutexGuard<'_, Files> {
        unpoisoned(self.files.lock())
    }

    /// To be looked at before attributes are asked for.
    pub(super) fn now(&self) -> Moment {
        Moment(self.files().clock)
    }

    /// Takes note that the kernel is told of an inode, by attributes that were asked for since a moment, and returns its
    /// node number if that is not the first it had.
    pub(super) fn introduce(&self, attr: &Attr, since: Moment) -> Option<u64> {
        self.tell(attr, since, 0)
    }

    /// As [`introduce`](Self::introduce), of a file that the kernel gets open by the same answer.
    pub(super) fn introduce_open(&self, attr: &Attr, since: Moment) -> Option<u64> {
        self.tell(attr, since, 1)
    }

    fn tell(&self, attr: &Attr, since: Moment, opens: u64) -> Option<u64> {
        if attr.kind != FileKind::Regular {
            return None;
        }
        let mut files = self.files();
        let known = files.known.entry(attr.ino).or_insert_with(|| Known {
            lookups: 0,
            opens: 0,
            is_doubtful: false,
            size: attr.size,
            mtime: attr.mtime,
            changed: since,
            touched: since,
        });
        known.lookups += 1;
        if known.is_stale(attr, since) {
            (known.size, known.mtime) = (attr.size, attr.mtime);
            self.renewed.renew(attr.ino);
        }
        known.opens += opens;
        self.renewed.tell(attr.ino)
    }

    /// The kernel has forgotten so many of the times that it was told of an inode by this number.
    pub(super) fn forget(&self, ino: Ino, node: u64, times: u64) {
        let mut files = self.files();
        self.renewed.forget(node, times);
        if let Some(known) = files.known.get_mut(&ino) {
            known.lookups = known.lookups.saturating_sub(times);
            if known.lookups == 0 {
                files.known.remove(&ino);
                self.renewed.forget_all(ino);
            } else if !self.renewed.is_old(ino, node) {
                known.is_doubtful = true;
                self.settle(ino, known);
            }
        }
    }

    /// Renews an inode that is to be, if nobody has it open.
    fn settle(&self, ino: Ino, known: &mut Known) {
        if known.is_doubtful && known.opens == 0 {
            known.is_doubtful = false;
            self.renewed.renew(ino);
        }
    }

    /// Someone is about to open a file, whose attributes were asked for since a moment. From here on it is not renewed.
    ///
    /// Returns `None` if others have changed it, and nobody has it open: the name is to be looked up once more. The kernel
    /// does that only once, so a thread that comes back gets the file as it was when it looked the name up, whatever
    /// has happened since then.
    pub(super) fn opening(&self, by: &Opening, attr: &Attr, since: Moment) -> Option<Using<'_>> {
        let mut files = self.files();
        let comes_back = files.was_refused(attr.ino, by.pid);
        let is_old = self.renewed.is_old(attr.ino, by.node);
        let known = files.known.get(&attr.ino);
        let is_stale = known.is_some_and(|known| known.is_stale(attr, since));
        // Who writes is to have the file under the number by which all others have it.
        let may = match comes_back {
            true => !is_old || by.reads_only,
            false => !is_old && !is_stale,
        };
        if !may && !comes_back {
            files.refuse(attr.ino, by.pid);
        }
        may.then(|| self.using(&mut files, attr.ino))
    }

    /// Someone is about to change the file of this number, whoever else has changed it; `None` if it is an old number.
    pub(super) fn changing(&self, node: u64, ino: Ino) -> Option<Using<'_>> {
        let mut files = self.files();
        let is_old = self.renewed.is_old(ino, node);
        (!is_old).then(|| self.using(&mut files, ino))
    }

    fn using(&self, files: &mut Files, ino: Ino) -> Using<'_> {
        if let Some(known) = files.known.get_mut(&ino) {
            known.opens += 1;
        }
        Using { files: self, ino }
    }

    fn update(&self, ino: Ino, update: impl FnOnce(&mut Known, Moment)) {
        let mut files = self.files();
        files.clock += 1;
        let now = Moment(files.clock);
        if let Some(known) = files.known.get_mut(&ino) {
            known.touched = now;
            update(known, now);
        }
    }

    /// One who had the file open has gone.
    pub(super) fn released(&self, ino: Ino) {
        self.update(ino, |known, _| {
            known.opens = known.opens.saturating_sub(1);
            self.settle(ino, known);
        });
    }

    /// Takes note of a change by the kernel, and of the time that the file had after it, asked for since a moment. Returns
    /// whether that is so: if another change was taken note of meanwhile, nobody knows which came first. The time is to be
    /// asked for once more then. So the last one to take note does so of a time after all changes.
    pub(super) fn changed(&self, ino: Ino, size: Size, mtime: Timestamp, since: Moment) -> bool {
        let mut is_last = true;
        self.update(ino, |known, now| {
            is_last = known.changed <= since;
            known.changed = if is_last { now } else { known.changed };
            known.mtime = mtime;
            known.size = match size {
                Size::Kept => known.size,
                Size::AtLeast(end) => known.size.max(end),
                Size::Is(size) => size,
            };
        });
        is_last
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use anteros_core::Rdev;

    use super::*;
    use crate::renewed::FIRST as RENEWED;

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

    const SEVEN: Ino = Ino(7);

    fn files() -> WriteBack {
        WriteBack::new(Arc::default())
    }

    /// Looks a name up, and returns how often the file was renewed until then.
    fn introduce(files: &WriteBack, size: u64) -> u64 {
        let node = files.introduce(&file(size), files.now());
        node.map_or(0, |node| node - RENEWED + 1)
    }

    fn node(files: &WriteBack) -> u64 {
        files.renewed.current(SEVEN).unwrap_or(SEVEN.0)
    }

    /// Somebody new, who writes.
    fn by(node: u64) -> Opening {
        static PID: AtomicU32 = AtomicU32::new(1);
        Opening {
            node,
            pid: PID.fetch_add(1, Ordering::Relaxed),
            reads_only: false,
        }
    }

    fn opening(files: &WriteBack, attr: &Attr) -> bool {
        may_open(files, &by(node(files)), attr)
    }

    fn may_open(files: &WriteBack, by: &Opening, attr: &Attr) -> bool {
        files.opening(by, attr, files.now()).is_some()
    }

    fn open(files: &WriteBack, size: u64) {
        let using = files.opening(&by(node(files)), &file(size), files.now());
        using.unwrap().stays();
    }

    fn is_stale(files: &WriteBack, size: u64) -> bool {
        !opening(files, &file(size))
    }

    fn change(files: &WriteBack, size: Size, secs: i64) {
        let mtime = Timestamp { secs, nanos: 0 };
        assert!(files.changed(SEVEN, size, mtime, files.now()));
    }

    #[test]
    fn a_file_changed_by_others_is_another_one() {
        let files = files();
        assert_eq!(introduce(&files, 1), 0);
        assert_eq!(introduce(&files, 1), 0);
        assert_eq!(introduce(&files, 2), 1);
        change(&files, Size::Is(3), 0);
        assert_eq!(introduce(&files, 3), 1, "our own change");
        open(&files, 3);
        assert_eq!(introduce(&files, 4), 1, "who has it open keeps it");
        change(&files, Size::AtLeast(9), 0);
        change(&files, Size::Kept, 0);
        files.released(SEVEN);
        assert!(!is_stale(&files, 9));
        assert!(is_stale(&files, 4));
        assert_eq!(introduce(&files, 4), 2);
        assert!(!is_stale(&files, 4));
        files.forget(SEVEN, SEVEN.0, 2);
        files.forget(SEVEN, RENEWED, 3);
        assert_eq!(introduce(&files, 1), 3, "not yet forgotten");
        files.forget(SEVEN, RENEWED + 1, 1);
        files.forget(SEVEN, RENEWED + 2, 1);
        assert_eq!(introduce(&files, 1), 0);
    }

    /// Tests that the time of a write, which the host chose and the kernel does not tell, is no change by others.
    #[test]
    fn the_time_of_a_write_makes_no_file_another_one() {
        let files = files();
        assert_eq!(introduce(&files, 0), 0);
        open(&files, 0);
        change(&files, Size::AtLeast(100), 5);
        files.released(SEVEN);
        let mtime = Timestamp { secs: 5, nanos: 0 };
        let attr = Attr { mtime, ..file(100) };
        assert_eq!(files.introduce(&attr, files.now()), None);
        assert!(opening(&files, &attr));
    }

    /// Tests that of two changes at one time, the time counts that the file has after both.
    #[test]
    fn a_time_from_before_another_change_does_not_count() {
        let files = files();
        assert_eq!(introduce(&files, 0), 0);
        open(&files, 0);
        let time = |secs| Timestamp { secs, nanos: 0 };
        // One writes and asks for the time; before it is taken note of, the kernel sets another one.
        let since = files.now();
        change(&files, Size::Kept, 4);
        assert!(!files.changed(SEVEN, Size::AtLeast(100), time(5), since));
        assert!(files.changed(SEVEN, Size::AtLeast(100), time(4), files.now()));
        files.released(SEVEN);
        let mtime = time(4);
        assert!(opening(&files, &Attr { mtime, ..file(100) }));
    }

    /// Tests that who looks at a file while another who has it open writes to it and closes it does no harm.
    #[test]
    fn old_attributes_make_no_file_another_one() {
        let files = files();
        assert_eq!(introduce(&files, 0), 0);
        open(&files, 0);
        let since = files.now();
        let old = file(0);
        change(&files, Size::AtLeast(100), 0);
        files.released(SEVEN);
        assert_eq!(files.introduce(&old, since), None);
        assert!(files.opening(&by(SEVEN.0), &old, since).is_some());
        assert_eq!(introduce(&files, 100), 0);
        assert!(!is_stale(&files, 100));
    }

    /// Tests that a file does not become another one under who opens it, and writes to it at once.
    #[test]
    fn a_file_that_is_being_opened_is_no_other_one() {
        let files = files();
        assert_eq!(introduce(&files, 1), 0);
        let opening = files.opening(&by(SEVEN.0), &file(1), files.now()).unwrap();
        assert_eq!(introduce(&files, 2), 0);
        drop(opening);
        assert_eq!(introduce(&files, 2), 1, "it could not be opened");
        let changing = files.changing(RENEWED, SEVEN).unwrap();
        assert_eq!(introduce(&files, 3), 1);
        change(&files, Size::Is(3), 0);
        drop(changing);
        assert_eq!(introduce(&files, 3), 1);
        assert_eq!(
            files.introduce_open(&file(4), files.now()),
            Some(RENEWED + 1)
        );
        assert_eq!(introduce(&files, 5), 2, "made, and open at once");
    }

    /// Tests that a file which others change all the time can be opened: the kernel looks a name up only once more.
    #[test]
    fn who_was_refused_is_not_refused_again() {
        let files = files();
        assert_eq!(introduce(&files, 1), 0);
        let reader = Opening {
            reads_only: true,
            ..by(SEVEN.0)
        };
        assert!(!may_open(&files, &reader, &file(2)));
        assert_eq!(introduce(&files, 3), 1);
        let again = Opening {
            node: RENEWED,
            ..reader
        };
        assert!(may_open(&files, &again, &file(4)), "it looked it up");
        assert!(!may_open(&files, &again, &file(4)), "it did not");
        assert_eq!(introduce(&files, 5), 2);
        assert!(may_open(&files, &again, &file(6)), "others did, too");
        let writer = by(SEVEN.0);
        assert!(!may_open(&files, &writer, &file(6)));
        assert!(
            !may_open(&files, &writer, &file(6)),
            "it would write elsewhere"
        );
    }

    /// Tests that an answer which was on its way while the kernel dropped the inode makes no new one.
    #[test]
    fn an_inode_that_is_forgotten_while_it_is_told_of_is_another_one() {
        let files = files();
        files.introduce_open(&file(0), files.now());
        assert_eq!(introduce(&files, 0), 0, "size 0 is on its way");
        change(&files, Size::AtLeast(300), 0);
        files.released(SEVEN);
        files.forget(SEVEN, SEVEN.0, 1);
        assert!(!may_open(&files, &by(SEVEN.0), &file(300)));
        assert_eq!(introduce(&files, 300), 1);
        assert!(may_open(&files, &by(RENEWED), &file(300)));
        // Of the old number, nothing that is forgotten matters.
        files.forget(SEVEN, SEVEN.0, 1);
        assert_eq!(introduce(&files, 300), 1);
    }

    #[test]
    fn an_open_file_is_renewed_when_it_is_closed() {
        let files = files();
        assert_eq!(introduce(&files, 0), 0);
        assert_eq!(introduce(&files, 0), 0);
        open(&files, 0);
        files.forget(SEVEN, SEVEN.0, 1);
        assert_eq!(introduce(&files, 0), 0);
        files.released(SEVEN);
        assert_eq!(introduce(&files, 0), 1);
    }

    /// Tests that who found a file before it was renewed, and opens or changes it afterwards, looks it up once more.
    #[test]
    fn an_old_number_is_refused() {
        let files = files();
        assert_eq!(introduce(&files, 1), 0);
        assert_eq!(introduce(&files, 2), 1);
        assert!(!may_open(&files, &by(SEVEN.0), &file(2)));
        assert!(files.changing(SEVEN.0, SEVEN).is_none());
        assert!(may_open(&files, &by(RENEWED), &file(2)));
    }

    #[test]
    fn files_are_opened_so_that_pages_can_be_read() {
        let wanted = OFlags::WRONLY | OFlags::APPEND | OFlags::TRUNC;
        let flags = OFlags::from_bits_retain(open_flags(wanted.bits()));
        assert_eq!(flags, OFlags::RDWR | OFlags::TRUNC);
        assert_eq!(open_flags(OFlags::RDONLY.bits()), OFlags::RDONLY.bits());
    }
}
