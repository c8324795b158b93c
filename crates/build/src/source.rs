//! The directory an image is made from: everything is opened below its root, without following
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
    AtFlags, Mode, OFlags, SeekFrom, Statx, StatxFlags, StatxTimestamp, openat, statx,
};
use rustix::io::Errno;

use crate::Error;
use crate::tree::{Fingerprint, NodeId, Tree};

/// Longest path that is handed to the kernel at once; longer ones are walked in steps.
const STEP_BYTES_MAX: usize = 4000;

/// The source, held open.
#[derive(Debug)]
pub(crate) struct Source {
    root: OwnedFd,
    path: PathBuf,
}

impl Source {
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

    /// Opens the directory at a relative path.
    pub fn open_directory(&self, path: &[u8]) -> io::Result<OwnedFd> {
        self.open_at(path, OFlags::DIRECTORY)
    }

    /// Opens a regular file for reading, to be closed by [`OpenFile::finish`].
    pub fn open_file<'a>(&'a self, tree: &'a Tree, id: NodeId) -> Result<OpenFile<'a>, Error> {
        let fail = |cause| self.error(tree, id, "open the file", cause);
        // Not to be kept waiting if it has become a pipe.
        let fd = self
            .open_at(&tree.path(id), OFlags::NONBLOCK)
            .map_err(fail)?;
        Ok(OpenFile {
            source: self,
            tree,
            id,
            file: fd.into(),
        })
    }

    fn open_at(&self, path: &[u8], flags: OFlags) -> io::Result<OwnedFd> {
        let open = |dir: BorrowedFd<'_>, path: &[u8], flags: OFlags| {
            let path = if path.is_empty() { b"." } else { path };
            let flags = flags | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            openat(dir, OsStr::from_bytes(path), flags, Mode::empty())
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
            step = Some(open(dir, &rest[..cut], OFlags::PATH | OFlags::DIRECTORY)?);
            rest = &rest[cut + 1..];
        }
    }

    pub fn error(&self, tree: &Tree, id: NodeId, action: &'static str, cause: io::Error) -> Error {
        let path = tree.full_path(&self.path, id);
        Error::Source {
            path,
            action,
            cause,
        }
    }
}

/// A regular file of the source while it is read.
pub(crate) struct OpenFile<'a> {
    source: &'a Source,
    tree: &'a Tree,
    id: NodeId,
    file: File,
}

impl OpenFile<'_> {
    /// Fills `buf` from `offset` on.
    pub fn read(&self, offset: u64, buf: &mut [u8]) -> Result<(), Error> {
        self.file
            .read_exact_at(buf, offset)
            .map_err(|cause| match cause.kind() {
                io::ErrorKind::UnexpectedEof => self.changed(),
                _ => self
                    .source
                    .error(self.tree, self.id, "read the file", cause),
            })
    }

    /// The parts of the file that are not holes, as bytes from and to.
    pub fn data_ranges(&self) -> Result<Vec<(u64, u64)>, Error> {
        let size = self.tree.node(self.id).size;
        let fail = |e: Errno| {
            self.source
                .error(self.tree, self.id, "look for holes", e.into())
        };
        let mut ranges = Vec::new();
        let mut at = 0;
        while at < size {
            let start = match rustix::fs::seek(&self.file, SeekFrom::Data(at)) {
                Ok(start) => start,
                Err(Errno::NXIO) => break,
                Err(e) => return Err(fail(e)),
            };
            at = rustix::fs::seek(&self.file, SeekFrom::Hole(start))
                .map_err(fail)?
                .min(size);
            if at <= start {
                break; // it begins beyond the end that was scanned
            }
            ranges.push((start, at));
        }
        Ok(ranges)
    }

    /// Makes sure that what was read belongs together: nothing has touched the file since the scan.
    pub fn finish(self) -> Result<(), Error> {
        let now = stat(&self.file, b"", AtFlags::EMPTY_PATH).map_err(|e| {
            self.source
                .error(self.tree, self.id, "look at the file again", e)
        })?;
        match fingerprint(&now) == self.tree.node(self.id).fingerprint {
            true => Ok(()),
            false => Err(self.changed()),
        }
    }

    fn changed(&self) -> Error {
        let path = self.tree.full_path(&self.source.path, self.id);
        Error::Changed { path }
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
