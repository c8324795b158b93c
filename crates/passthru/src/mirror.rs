//! A directory of the host, held open: the table of its inodes, and what is open of it.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;
use std::sync::mpsc::sync_channel;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use anteros_core::{Ino, OpenFile, unpoisoned};
use rustix::fs::{CWD, Mode, OFlags, openat};
use rustix::io::Errno;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit, umask};

use crate::dir::OpenDir;
use crate::file::HostFile;
use crate::host::{self, ProcFds};
use crate::identity::Identity;
use crate::shrinker::Shrinker;
use crate::slab::Slab;
use crate::table::Table;

/// Holds what can be chosen about a [`HostFs`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Options {
    /// For how long attributes and names may be believed: others may change the directory meanwhile.
    pub trusted_for: Duration,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            trusted_for: Duration::from_secs(1),
        }
    }
}

/// States how long, and how often, a descriptor is waited for when there is none.
const PAUSE: Duration = Duration::from_millis(5);
const PAUSES_MAX: usize = 100;

/// A directory of the host as a file system.
#[derive(Debug)]
pub struct HostFs {
    pub(crate) table: Arc<Table>,
    pub(crate) files: Slab<HostFile>,
    pub(crate) dirs: Slab<OpenDir>,
    pub(crate) proc_fds: Arc<ProcFds>,
    pub(crate) identity: Identity,
    pub(crate) options: Options,
    shrinker: Mutex<Option<Shrinker>>,
}

/// Holds what is held of the host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Held {
    /// Inodes that somebody knows.
    pub inodes: usize,
    /// Open files.
    pub files: usize,
    /// Open directories.
    pub directories: usize,
}

impl HostFs {
    /// The directory `dir` with the default [`Options`].
    ///
    /// This changes the process: its `umask` becomes 0, because each caller brings their own and a
    /// default ACL must see the bits unmasked, the soft limit of open files rises to the hard one, and this
    /// thread and those it starts lay down the right to exceed quotas (`CAP_SYS_RESOURCE`) and supplementary groups.
    /// A process that forks to go into the background does so before, as `/proc/self/fd` is opened here.
    pub fn new(dir: &Path) -> io::Result<Self> {
        Self::with_options(dir, Options::default())
    }

    /// As [`new`](Self::new), with options.
    pub fn with_options(dir: &Path, options: Options) -> io::Result<Self> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let root = openat(CWD, dir, flags, Mode::empty())?;
        let stat = host::stat_of(root.as_fd())?;
        let crowded_at = raise_file_limit() / 4 * 3;
        let (crowded, called) = sync_channel(1);
        let table = Arc::new(Table::new(root, &stat, crowded_at, crowded));
        let proc_fds = Arc::new(ProcFds::open()?);
        umask(Mode::empty());
        Ok(Self {
            shrinker: Mutex::new(Some(Shrinker::new(&table, &proc_fds, called))),
            table,
            files: Slab::default(),
            dirs: Slab::default(),
            proc_fds,
            identity: Identity::of_process()?,
            options,
        })
    }

    /// Returns what tells when too many inodes are known; the first who asks gets it.
    pub fn shrinker(&self) -> Option<Shrinker> {
        let mut shrinker = unpoisoned(self.shrinker.lock());
        shrinker.take()
    }
}

impl HostFs {
    /// Calls what needs a descriptor, again after a while if there was none and someone is there who
    /// has inodes forgotten.
    pub(crate) fn with_room<T>(
        &self,
        call: impl Fn() -> rustix::io::Result<T>,
    ) -> rustix::io::Result<T> {
        for _ in 0..PAUSES_MAX {
            match call() {
                Err(Errno::MFILE) if self.is_thinned() => {
                    self.table.call();
                    thread::sleep(PAUSE);
                }
                result => return result,
            }
        }
        call()
    }

    /// Returns whether someone has taken the [`Shrinker`].
    fn is_thinned(&self) -> bool {
        let shrinker = unpoisoned(self.shrinker.lock());
        shrinker.is_none()
    }
}

impl HostFs {
    /// Returns what is held of the host now.
    pub fn held(&self) -> Held {
        Held {
            inodes: self.table.len(),
            files: self.files.len(),
            directories: self.dirs.len(),
        }
    }

    /// A number that no other inode gets, as long as this one is known. The host gives numbers of inodes out
    /// again.
    pub fn serial_of(&self, ino: Ino) -> Option<u64> {
        Some(self.table.get(ino).ok()?.serial)
    }

    /// The path that leads to an open file, as [`path_of`](Self::path_of) tells it, also when its inode is
    /// known no more.
    pub fn path_of_open(&self, file: OpenFile) -> Option<Vec<u8>> {
        let file = self.files.get(file.handle).ok()?;
        self.path_below(file.fd())
    }

    /// The path that leads to a known inode now, from the root of the tree on; the last one if it is deleted.
    pub fn path_of(&self, ino: Ino) -> Option<Vec<u8>> {
        self.path_below(self.table.get(ino).ok()?.as_fd())
    }

    fn path_below(&self, fd: BorrowedFd<'_>) -> Option<Vec<u8>> {
        let root = self.proc_fds.path(self.table.root().as_fd()).ok()?;
        let path = self.proc_fds.path(fd).ok()?;
        host::below(&root, &path).map(<[u8]>::to_vec)
    }
}

/// Raises the limit of open files as far as it goes, and returns it. That it cannot be raised is no reason
/// to fail: it may never be reached.
fn raise_file_limit() -> usize {
    /// Bounds what is held, which cannot be reclaimed by a host that runs short of memory.
    const ENOUGH: u64 = 1 << 20;
    let limit = getrlimit(Resource::Nofile);
    let system = std::fs::read_to_string("/proc/sys/fs/nr_open");
    let system = system.ok().and_then(|text| text.trim().parse().ok());
    let system = system.map(|system: u64| system.min(ENOUGH));
    let raise = |maximum: Option<u64>| {
        let current = maximum;
        setrlimit(Resource::Nofile, Rlimit { current, maximum })
    };
    // Beyond the hard limit only who has the privilege to.
    if !system.is_some_and(|system| Some(system) > limit.maximum && raise(Some(system)).is_ok()) {
        let _ = raise(limit.maximum);
    }
    let now = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
    usize::try_from(now).unwrap_or(usize::MAX)
}
