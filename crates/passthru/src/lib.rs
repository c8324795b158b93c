//! A directory of the host as a file system: what is done to it is done to the host's files.
//!
//! [`HostFs`] keeps an `O_PATH` descriptor for each inode somebody knows, and does everything through
//! it, so neither a renaming nor the loss of the last name confuses anyone. Names are only ever looked
//! up in a directory that is held this way, one at a time and without following links: no name leads
//! out of the tree.
//!
//! ```text
//! Ino ──▶ table: O_PATH descriptor ──▶ *at(fd, name)          names
//!                                 └──▶ /proc/self/fd/N        opening, attributes, xattrs
//! handle ──▶ slab: open descriptor ──▶ pread, pwrite, fsync, fallocate, …
//! ```
//!
//! Whoever asks is trusted to be allowed to: permissions are checked by the kernel in front of the
//! mount (`default_permissions`), not here. What is made belongs to the caller all the same, see the
//! module `identity`.
//!
//! No call waits for what others do with a file as long as they like, where the host can be asked not to: see
//! [`FsError::Later`](anteros_core::FsError::Later). `docs/passthru.md` lists the calls that may.
//!
//! What it costs: a descriptor for each known inode. The limit of the process is raised as far as it
//! goes; when most of that is taken, a [`Crowd`] says which names the kernel may drop. Beyond it, lookups
//! fail with EMFILE.

mod attr;
mod create;
mod crowd;
mod dir;
mod host;
mod identity;
mod names;
mod open;
mod slab;
mod table;
mod xattr;

use std::io::{self, IoSlice};
use std::ops::ControlFlow;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::sync::mpsc::sync_channel;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use anteros_core::{
    Attr, Caller, Changes, DirEntry, FileKind, FilePosition, FileSystem, FsResult, Ino, New,
    OpenFile, Payload, Rdev, Seek, StatFs, Timestamp, Writable, unpoisoned,
};
use rustix::fs::{CWD, Mode, OFlags, RenameFlags, openat};
use rustix::io::Errno;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit, umask};

pub use crate::crowd::{Crowd, Name};
use crate::dir::OpenDir;
use crate::host::{ProcFds, refused};
use crate::identity::Identity;
use crate::open::HostFile;
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

/// A directory of the host as a file system.
#[derive(Debug)]
pub struct HostFs {
    table: Arc<Table>,
    files: Slab<HostFile>,
    dirs: Slab<OpenDir>,
    proc_fds: Arc<ProcFds>,
    identity: Identity,
    options: Options,
    crowd: Mutex<Option<Crowd>>,
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
            crowd: Mutex::new(Some(Crowd::new(&table, &proc_fds, called))),
            table,
            files: Slab::default(),
            dirs: Slab::default(),
            proc_fds,
            identity: Identity::of_process()?,
            options,
        })
    }

    /// Returns what tells when too many inodes are known; the first who asks gets it.
    pub fn crowd(&self) -> Option<Crowd> {
        let mut crowd = unpoisoned(self.crowd.lock());
        crowd.take()
    }
}

/// States how long, and how often, a descriptor is waited for when there is none.
const PAUSE: Duration = Duration::from_millis(5);
const PAUSES_MAX: usize = 100;

impl HostFs {
    /// Calls what needs a descriptor, again after a while if there was none and someone is there who
    /// has inodes forgotten.
    fn with_room<T>(&self, call: impl Fn() -> rustix::io::Result<T>) -> rustix::io::Result<T> {
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

    /// Returns whether someone has taken the [`Crowd`].
    fn is_thinned(&self) -> bool {
        let crowd = unpoisoned(self.crowd.lock());
        crowd.is_none()
    }
}

impl HostFs {
    /// The open file that is about to be written to, without its privileges if they are to go.
    fn file_to_write(&self, file: OpenFile, drops_privileges: bool) -> FsResult<Arc<HostFile>> {
        let file = self.files.get(file.handle)?;
        if drops_privileges {
            attr::drop_privileges(&self.identity, file.fd())?;
        }
        Ok(file)
    }
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

impl FileSystem for HostFs {
    fn root(&self) -> Ino {
        self.table.root().ino
    }

    fn lookup(&self, parent: Ino, name: &[u8]) -> FsResult<Attr> {
        names::lookup(self, parent, name)
    }

    fn getattr(&self, ino: Ino) -> FsResult<Attr> {
        attr::of(&*self.table.get(ino)?)
    }

    fn born(&self, ino: Ino) -> FsResult<Option<Timestamp>> {
        attr::born(&*self.table.get(ino)?)
    }

    /// Nothing: an inode met in a listing is not known, only one looked up is.
    fn getattr_listed(&self, _ino: Ino, _kind: FileKind) -> Option<Attr> {
        None
    }

    fn readdir(
        &self,
        ino: Ino,
        from: u64,
        visit: &mut dyn FnMut(DirEntry<'_>) -> ControlFlow<()>,
    ) -> FsResult<()> {
        dir::open(self, ino)?.visit(&self.table, from, visit)
    }

    fn readlink(&self, ino: Ino) -> FsResult<Vec<u8>> {
        names::readlink(self, ino)
    }

    fn read(&self, ino: Ino, offset: u64, buf: &mut [u8]) -> FsResult<usize> {
        open::to_read(self, ino)?.read(offset, buf)
    }

    fn seek(&self, ino: Ino, offset: u64, what: Seek) -> FsResult<u64> {
        open::to_read(self, ino)?.seek(offset, what)
    }

    fn getxattr(&self, ino: Ino, name: &[u8]) -> FsResult<Vec<u8>> {
        xattr::get(self, ino, name)
    }

    fn listxattr(&self, ino: Ino) -> FsResult<Vec<Vec<u8>>> {
        xattr::list(self, ino)
    }

    fn statfs(&self) -> FsResult<StatFs> {
        attr::statfs(self)
    }

    fn writable(&self) -> Option<&dyn Writable> {
        Some(self)
    }
}

impl Writable for HostFs {
    fn trusted_for(&self) -> Duration {
        self.options.trusted_for
    }

    fn forget(&self, ino: Ino, times: u64) {
        self.table.forget(ino, times);
    }

    fn open(&self, ino: Ino, flags: u32) -> FsResult<u64> {
        let file = open::open(self, ino, flags)?;
        Ok(self.files.insert(file))
    }

    fn create(&self, new: &New<'_>, flags: u32) -> FsResult<(Attr, u64)> {
        let (attr, file) = create::create(self, new, flags)?;
        Ok((attr, self.files.insert(file)))
    }

    fn create_unnamed(&self, new: &New<'_>, flags: u32) -> FsResult<(Attr, u64)> {
        let (attr, file) = create::create_unnamed(self, new, flags)?;
        Ok((attr, self.files.insert(file)))
    }

    fn release(&self, file: OpenFile) {
        self.files.remove(file.handle);
    }

    fn read_open(&self, file: OpenFile, offset: u64, buf: &mut [u8]) -> FsResult<usize> {
        self.files.get(file.handle)?.read(offset, buf)
    }

    fn write(
        &self,
        file: OpenFile,
        offset: u64,
        data: &[u8],
        drops_privileges: bool,
    ) -> FsResult<usize> {
        let file = self.file_to_write(file, drops_privileges)?;
        file.write(offset, data)
    }

    /// A descriptor with `O_APPEND` writes to the end, whatever offset it is given: another one is opened.
    fn write_kept(
        &self,
        file: OpenFile,
        offset: u64,
        payload: Payload<'_>,
        drops_privileges: bool,
    ) -> FsResult<usize> {
        let opened = self.file_to_write(file, drops_privileges)?;
        if !opened.appends() {
            return opened.write(offset, payload.bytes());
        }
        let opened = open::open(self, file.ino, OFlags::WRONLY.bits())?;
        opened.write(offset, payload.bytes())
    }

    fn write_pieces(
        &self,
        file: OpenFile,
        offset: u64,
        pieces: &[IoSlice<'_>],
        drops_privileges: bool,
    ) -> FsResult<usize> {
        let file = self.file_to_write(file, drops_privileges)?;
        file.write_pieces(offset, pieces)
    }

    /// Nothing is kept back here, so there is nothing to tell either.
    fn flush(&self, _file: OpenFile) -> FsResult<()> {
        Ok(())
    }

    fn fsync(&self, file: OpenFile, data_only: bool) -> FsResult<()> {
        self.files.get(file.handle)?.sync(data_only)
    }

    fn sync_written(&self, file: OpenFile, data_only: bool) -> FsResult<()> {
        let file = self.files.get(file.handle)?;
        match file.syncs_writes(data_only) {
            true => Ok(()),
            false => file.sync(data_only),
        }
    }

    fn seek_open(&self, file: OpenFile, offset: u64, what: Seek) -> FsResult<u64> {
        self.files.get(file.handle)?.seek(offset, what)
    }

    fn allocate(&self, file: OpenFile, offset: u64, len: u64, mode: u32) -> FsResult<()> {
        self.files.get(file.handle)?.allocate(offset, len, mode)
    }

    fn copy_range(&self, from: FilePosition, to: FilePosition, len: u64) -> FsResult<u64> {
        let source = self.files.get(from.file.handle)?;
        let target = self.files.get(to.file.handle)?;
        source.copy_to(from.offset, &target, to.offset, len)
    }

    fn change(&self, ino: Ino, file: Option<OpenFile>, changes: &Changes) -> FsResult<Attr> {
        attr::change(self, ino, file, changes)
    }

    fn make(&self, new: &New<'_>, rdev: Rdev) -> FsResult<Attr> {
        create::make(self, new, rdev)
    }

    fn symlink(&self, new: &New<'_>, target: &[u8]) -> FsResult<Attr> {
        create::symlink(self, new, target)
    }

    fn link(&self, ino: Ino, parent: Ino, name: &[u8]) -> FsResult<Attr> {
        names::link(self, ino, parent, name)
    }

    fn unlink(&self, parent: Ino, name: &[u8]) -> FsResult<()> {
        names::unlink(self, parent, name)
    }

    fn rmdir(&self, parent: Ino, name: &[u8]) -> FsResult<()> {
        names::rmdir(self, parent, name)
    }

    fn rename(&self, from: (Ino, &[u8]), to: (Ino, &[u8]), flags: u32) -> FsResult<()> {
        names::rename(self, from, to, flags)
    }

    fn unlink_as(&self, parent: Ino, name: &[u8], caller: Caller) -> FsResult<()> {
        names::acting_on(self, [parent], caller, false, || self.unlink(parent, name))
    }

    fn rmdir_as(&self, parent: Ino, name: &[u8], caller: Caller) -> FsResult<()> {
        names::acting_on(self, [parent], caller, false, || self.rmdir(parent, name))
    }

    fn rename_as(
        &self,
        from: (Ino, &[u8]),
        to: (Ino, &[u8]),
        flags: u32,
        caller: Caller,
    ) -> FsResult<()> {
        let makes = RenameFlags::from_bits_retain(flags).contains(RenameFlags::WHITEOUT);
        names::acting_on(self, [from.0, to.0], caller, makes, || {
            self.rename(from, to, flags)
        })
    }

    fn setxattr(&self, ino: Ino, name: &[u8], value: &[u8], flags: u32) -> FsResult<()> {
        xattr::set(self, ino, name, value, flags)
    }

    fn setxattr_by_outsider(
        &self,
        ino: Ino,
        name: &[u8],
        value: &[u8],
        flags: u32,
        caller: Caller,
    ) -> FsResult<()> {
        let _assumed = self.identity.assume_wholly(caller).map_err(refused)?;
        xattr::set(self, ino, name, value, flags)
    }

    fn removexattr(&self, ino: Ino, name: &[u8]) -> FsResult<()> {
        xattr::remove(self, ino, name)
    }

    fn open_dir(&self, ino: Ino) -> FsResult<u64> {
        let dir = dir::open(self, ino)?;
        Ok(self.dirs.insert(dir))
    }

    fn release_dir(&self, dir: OpenFile) {
        self.dirs.remove(dir.handle);
    }

    fn read_dir(
        &self,
        dir: OpenFile,
        from: u64,
        visit: &mut dyn FnMut(DirEntry<'_>) -> ControlFlow<()>,
    ) -> FsResult<()> {
        self.dirs.get(dir.handle)?.visit(&self.table, from, visit)
    }

    fn lookup_listed(&self, parent: Ino, name: &[u8]) -> Option<Attr> {
        names::lookup_listed(self, parent, name)
    }

    fn fsync_dir(&self, dir: OpenFile) -> FsResult<()> {
        self.dirs.get(dir.handle)?.sync()
    }

    fn backing(&self, file: OpenFile) -> Option<OwnedFd> {
        open::backing(self, file)
    }
}
