//! A directory as the source of an image: everything is opened below its root, without following
//! symbolic links at the end and however long the path is.

use std::ffi::OsStr;
use std::fs::File;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use rustix::fs::{
    AtFlags, Mode, OFlags, ResolveFlags, SeekFrom, Statx, StatxFlags, StatxTimestamp, openat,
    openat2, statx,
};
use rustix::io::Errno;

use crate::Error;
use crate::tree::{Fingerprint, NodeId, Tree};

/// Longest path that is handed to the kernel at once; longer ones are walked in steps.
const STEP_BYTES_MAX: usize = 4000;

/// The directory, held open.
#[derive(Debug)]
pub(crate) struct Directory {
    root: OwnedFd,
    path: PathBuf,
}

impl Directory {
    pub fn open(path: &Path) -> Result<Self, Error> {
        let flags = OFlags::DIRECTORY | OFlags::CLOEXEC;
        let root = rustix::fs::open(path, flags, Mode::empty()).map_err(|e| Error::Source {
            path: path.to_owned(),
            action: "open the directory",
            cause: e.into(),
        })?;
        Ok(Self {
            root,
            path: path.to_owned(),
        })
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns where a relative path leads, for messages.
    pub fn full_path(&self, path: &[u8]) -> PathBuf {
        self.path.join(OsStr::from_bytes(path))
    }

    /// Opens the directory at a relative path.
    pub fn open_directory(&self, path: &[u8]) -> io::Result<OwnedFd> {
        self.open_at(path, OFlags::DIRECTORY)
    }

    /// Opens a regular file for reading.
    pub fn open_file(&self, tree: &Tree, id: NodeId) -> io::Result<HostFile> {
        // Not to be kept waiting if it has become a pipe.
        let fd = self.open_at(&tree.path(id), OFlags::NONBLOCK)?;
        Ok(HostFile(fd.into()))
    }

    /// Opens what lies at a path below the directory, without following any symbolic link.
    pub fn open_beneath(&self, path: &[u8], flags: OFlags) -> io::Result<OwnedFd> {
        let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS;
        self.open_in_steps(path, flags, |dir, path, flags| {
            openat2(dir, OsStr::from_bytes(path), flags, Mode::empty(), resolve)
        })
    }

    fn open_at(&self, path: &[u8], flags: OFlags) -> io::Result<OwnedFd> {
        self.open_in_steps(path, flags | OFlags::NOFOLLOW, |dir, path, flags| {
            openat(dir, OsStr::from_bytes(path), flags, Mode::empty())
        })
    }

    fn open_in_steps(
        &self,
        path: &[u8],
        flags: OFlags,
        open: impl Fn(BorrowedFd<'_>, &[u8], OFlags) -> Result<OwnedFd, Errno>,
    ) -> io::Result<OwnedFd> {
        let open = |dir: BorrowedFd<'_>, path: &[u8], flags: OFlags| {
            let path = if path.is_empty() { b"." } else { path };
            open(dir, path, flags | OFlags::CLOEXEC)
        };
        let mut rest = path;
        let mut step: Option<OwnedFd> = None;
        loop {
            let dir = step.as_ref().map_or(self.root.as_fd(), AsFd::as_fd);
            if rest.len() <= STEP_BYTES_MAX {
                return Ok(open(dir, rest, flags)?);
            }
            let is_slash = |b: &u8| *b == b'/';
            let cut = rest[..STEP_BYTES_MAX].iter().rposition(is_slash);
            let cut = cut.ok_or(Errno::NAMETOOLONG)?;
            let stop = OFlags::PATH | OFlags::DIRECTORY | (flags & OFlags::NOFOLLOW);
            step = Some(open(dir, &rest[..cut], stop)?);
            rest = &rest[cut + 1..];
        }
    }
}

/// A regular file of the directory.
pub(crate) struct HostFile(File);

impl HostFile {
    /// The regular file at a path below a directory, without following any symbolic link.
    pub fn beneath(directory: &Directory, path: &[u8]) -> io::Result<Self> {
        // Not to be kept waiting if it has become a pipe.
        let fd = directory.open_beneath(path, OFlags::NONBLOCK)?;
        Ok(Self(fd.into()))
    }

    pub fn read_exact_at(&self, buf: &mut [u8], offset: u64) -> io::Result<()> {
        self.0.read_exact_at(buf, offset)
    }

    /// Returns the parts of a file of `size` bytes that are not holes, as bytes from and to.
    pub fn data_ranges(&self, size: u64) -> io::Result<Vec<(u64, u64)>> {
        let mut ranges = Vec::new();
        let mut at = 0;
        while at < size {
            let start = match rustix::fs::seek(&self.0, SeekFrom::Data(at)) {
                Ok(start) => start,
                Err(Errno::NXIO) => break,
                Err(e) => return Err(e.into()),
            };
            at = rustix::fs::seek(&self.0, SeekFrom::Hole(start))?.min(size);
            if at <= start {
                break; // it begins beyond the end that was scanned
            }
            ranges.push((start, at));
        }
        Ok(ranges)
    }

    pub fn fingerprint(&self) -> io::Result<Fingerprint> {
        Ok(fingerprint(&stat(&self.0, b"", AtFlags::EMPTY_PATH)?))
    }
}

/// Returns what `statx` says of `name` in `dir`.
pub(crate) fn stat(dir: impl AsFd, name: &[u8], flags: AtFlags) -> io::Result<Statx> {
    let flags = flags | AtFlags::SYMLINK_NOFOLLOW | AtFlags::NO_AUTOMOUNT;
    Ok(statx(
        dir,
        OsStr::from_bytes(name),
        flags,
        StatxFlags::BASIC_STATS,
    )?)
}

/// Returns what tells this file from others: its device and inode.
pub(crate) fn identity(stat: &Statx) -> (u64, u64) {
    let device = u64::from(stat.stx_dev_major) << 32 | u64::from(stat.stx_dev_minor);
    (device, stat.stx_ino)
}

/// Returns what tells this file from others, and from itself at other times.
pub(crate) fn fingerprint(stat: &Statx) -> Fingerprint {
    let time = |time: StatxTimestamp| (time.tv_sec, time.tv_nsec);
    let (mtime, ctime) = (time(stat.stx_mtime), time(stat.stx_ctime));
    let mut hasher = DefaultHasher::new();
    (identity(stat), stat.stx_size, mtime, ctime).hash(&mut hasher);
    Fingerprint(hasher.finish())
}
