//! Measures against too many known inodes.
//!
//! Each of them takes a descriptor, and a process may have only so many. The kernel forgets inodes when it
//! needs memory, which may be much later. So when most descriptors are taken, it is asked to: whoever
//! serves the file system has it forget inodes that nobody uses, those first that have been known for longest.
//!
//! A kernel before Linux 6.18 is told names to drop instead. It does so while nobody looks anything up in their
//! directory, so there a program that hurries through a very large directory may be faster than the forgetting.

use std::ffi::{OsStr, OsString};
use std::os::fd::AsFd;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::PathBuf;
use std::sync::mpsc::Receiver;
use std::sync::{Arc, Weak};
use std::thread;
use std::time::Duration;

use anteros_core::{FileKind, Ino};
use rustix::fs::{AtFlags, CWD, statat};

use crate::host::ProcFds;
use crate::table::{Key, Table};

/// States how long, and how often, the kernel's forgetting is waited for: files that it will not forget are
/// not looked at all the time.
const PAUSE: Duration = Duration::from_millis(1);
const PAUSES_MAX: usize = 100;

/// A name that the kernel may drop.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Name {
    /// The directory that has it, known as well.
    pub parent: Ino,
    /// The name in it.
    pub name: Vec<u8>,
}

/// Tells when too many inodes are known, and what could be forgotten.
#[derive(Debug)]
pub struct Shrinker {
    table: Weak<Table>,
    proc_fds: Arc<ProcFds>,
    called: Receiver<()>,
}

impl Shrinker {
    pub(crate) fn new(table: &Arc<Table>, proc_fds: &Arc<ProcFds>, called: Receiver<()>) -> Self {
        Self {
            table: Arc::downgrade(table),
            proc_fds: Arc::clone(proc_fds),
            called,
        }
    }

    /// Waits until too many inodes are known; `false` when the file system is gone.
    pub fn wait(&self) -> bool {
        self.called.recv().is_ok()
    }

    /// Hands out half of the known inodes, which the kernel could forget, to `prune`; if that says that the
    /// kernel does not know how to, the names of the files among them to `drop_name`. Either may take its time,
    /// and must not be called by who serves the file system: dropping a name waits for those who use its
    /// directory.
    pub fn thin(&self, prune: impl FnOnce(&[Ino]) -> bool, mut drop_name: impl FnMut(&Name)) {
        let Some(table) = self.table.upgrade() else {
            return;
        };
        let oldest = table.older_half();
        if !prune(&oldest) {
            let names = oldest.iter().filter_map(|&ino| self.name_of(&table, ino));
            names.for_each(|name| drop_name(&name));
        }
        let mut pauses = 0;
        while table.is_crowded() && pauses < PAUSES_MAX {
            thread::sleep(PAUSE);
            pauses += 1;
        }
    }

    /// The name of a file, as far as the host can tell. Directories keep theirs: who works in one
    /// would no longer know where.
    fn name_of(&self, table: &Table, ino: Ino) -> Option<Name> {
        let node = table.get(ino).ok()?;
        if node.kind == FileKind::Directory {
            return None;
        }
        let path = PathBuf::from(OsString::from_vec(self.proc_fds.path(node.as_fd()).ok()?));
        let parent = statat(CWD, path.parent()?, AtFlags::SYMLINK_NOFOLLOW).ok()?;
        Some(Name {
            parent: table.number(Key::of(&parent))?,
            name: path.file_name().map(OsStr::as_bytes)?.to_vec(),
        })
    }
}
