//! A directory of this machine as a [`FileSystem`]: a source tree, or a mount. So the same walks describe it that
//! describe our own reader.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::io;
use std::ops::ControlFlow;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use anteros_core::{
    Attr, DirEntry, FileKind, FileSystem, FsError, FsResult, Ino, Rdev, Seek, StatFs, Timestamp,
};
use rustix::fs::{AtFlags, CWD, Mode, OFlags, RawDir, SeekFrom, Statx, StatxFlags, StatxTimestamp};
use rustix::io::Errno;

/// A directory and all below it, on one file system.
pub struct HostFs {
    root: Ino,
    /// By which path each inode was found first.
    paths: Mutex<HashMap<Ino, PathBuf>>,
}

impl HostFs {
    /// Looks at a directory.
    ///
    /// # Panics
    ///
    /// If there is none.
    pub fn new(root: &Path) -> Self {
        let ino = Ino(stat(root).unwrap().stx_ino);
        let paths = HashMap::from([(ino, root.to_owned())]);
        Self {
            root: ino,
            paths: Mutex::new(paths),
        }
    }

    fn path(&self, ino: Ino) -> FsResult<PathBuf> {
        self.paths
            .lock()
            .unwrap()
            .get(&ino)
            .cloned()
            .ok_or(FsError::NotFound)
    }

    fn open(&self, ino: Ino, flags: OFlags) -> FsResult<OwnedFd> {
        let flags = OFlags::NOFOLLOW | OFlags::CLOEXEC | flags;
        let path = self.path(ino)?;
        let told = |errno: &Errno| eprintln!("{}: {errno}", path.display());
        let opened = rustix::fs::open(&path, flags, Mode::empty());
        opened.inspect_err(told).map_err(fault)
    }
}

/// Everything that `statx` says of a path; symbolic links are not followed.
///
/// # Errors
///
/// What the kernel says.
pub fn stat(path: &Path) -> Result<Statx, Errno> {
    rustix::fs::statx(CWD, path, AtFlags::SYMLINK_NOFOLLOW, StatxFlags::ALL)
}

fn fault(errno: Errno) -> FsError {
    match errno {
        Errno::NOENT => FsError::NotFound,
        Errno::NODATA => FsError::NoData,
        Errno::NXIO => FsError::BeyondEnd,
        errno => FsError::Io(io::Error::from(errno)),
    }
}

fn attr(stat: &Statx) -> Attr {
    Attr {
        ino: Ino(stat.stx_ino),
        kind: FileKind::from_mode(stat.stx_mode.into()).unwrap(),
        perm: stat.stx_mode & 0o7777,
        nlink: stat.stx_nlink,
        uid: stat.stx_uid,
        gid: stat.stx_gid,
        rdev: Rdev {
            major: stat.stx_rdev_major,
            minor: stat.stx_rdev_minor,
        },
        size: stat.stx_size,
        blocks: stat.stx_blocks,
        block_size: stat.stx_blksize,
        atime: time(stat.stx_atime),
        mtime: time(stat.stx_mtime),
        ctime: time(stat.stx_ctime),
    }
}

fn time(time: StatxTimestamp) -> Timestamp {
    Timestamp {
        secs: time.tv_sec,
        nanos: time.tv_nsec,
    }
}

fn kind(kind: rustix::fs::FileType) -> FsResult<FileKind> {
    let known = FileKind::from_mode(kind.as_raw_mode());
    known.ok_or_else(|| FsError::Io(io::Error::other("an entry of no known kind")))
}

impl FileSystem for HostFs {
    fn root(&self) -> Ino {
        self.root
    }

    fn lookup(&self, parent: Ino, name: &[u8]) -> FsResult<Attr> {
        let path = self.path(parent)?.join(OsStr::from_bytes(name));
        // A test that fails shows which name it was.
        let told = |errno: &Errno| eprintln!("{}: {errno}", path.display());
        let attr = attr(&stat(&path).inspect_err(told).map_err(fault)?);
        self.paths.lock().unwrap().entry(attr.ino).or_insert(path);
        Ok(attr)
    }

    fn getattr(&self, ino: Ino) -> FsResult<Attr> {
        Ok(attr(&stat(&self.path(ino)?).map_err(fault)?))
    }

    fn readdir(
        &self,
        ino: Ino,
        from: u64,
        visit: &mut dyn FnMut(DirEntry<'_>) -> ControlFlow<()>,
    ) -> FsResult<()> {
        let fd = self.open(ino, OFlags::DIRECTORY)?;
        rustix::fs::seek(&fd, SeekFrom::Start(from)).map_err(fault)?;
        let mut space = Vec::with_capacity(32 << 10);
        let mut entries = RawDir::new(fd, space.spare_capacity_mut());
        while let Some(entry) = entries.next() {
            let entry = entry.map_err(fault)?;
            let entry = DirEntry {
                ino: Ino(entry.ino()),
                kind: kind(entry.file_type())?,
                next: entry.next_entry_cookie(),
                name: entry.file_name().to_bytes(),
            };
            if visit(entry).is_break() {
                break;
            }
        }
        Ok(())
    }

    fn readlink(&self, ino: Ino) -> FsResult<Vec<u8>> {
        Ok(std::fs::read_link(self.path(ino)?)?
            .into_os_string()
            .into_vec())
    }

    fn read(&self, ino: Ino, offset: u64, buf: &mut [u8]) -> FsResult<usize> {
        let fd = self.open(ino, OFlags::empty())?;
        let mut done = 0;
        while done < buf.len() {
            match rustix::io::pread(&fd, &mut buf[done..], offset + done as u64).map_err(fault)? {
                0 => break,
                count => done += count,
            }
        }
        Ok(done)
    }

    fn seek(&self, ino: Ino, offset: u64, what: Seek) -> FsResult<u64> {
        let fd = self.open(ino, OFlags::empty())?;
        let what = match what {
            Seek::Data => SeekFrom::Data(offset),
            Seek::Hole => SeekFrom::Hole(offset),
        };
        rustix::fs::seek(&fd, what).map_err(fault)
    }

    fn getxattr(&self, ino: Ino, name: &[u8]) -> FsResult<Vec<u8>> {
        let mut value = vec![0; 64 << 10];
        let len = rustix::fs::lgetxattr(self.path(ino)?, name, &mut value).map_err(fault)?;
        value.truncate(len);
        Ok(value)
    }

    fn listxattr(&self, ino: Ino) -> FsResult<Vec<Vec<u8>>> {
        let mut names = vec![0; 64 << 10];
        let len = match rustix::fs::llistxattr(self.path(ino)?, &mut names) {
            Err(Errno::OPNOTSUPP) => 0,
            result => result.map_err(fault)?,
        };
        let names = names[..len].split(|&byte| byte == 0);
        Ok(names
            .filter(|name| !name.is_empty())
            .map(<[u8]>::to_vec)
            .collect())
    }

    fn statfs(&self) -> FsResult<StatFs> {
        let stat = rustix::fs::statfs(self.path(self.root)?).map_err(fault)?;
        Ok(StatFs {
            block_size: stat.f_bsize as u32,
            blocks: stat.f_blocks,
            blocks_free: stat.f_bfree,
            blocks_available: stat.f_bavail,
            files: stat.f_files,
            files_free: stat.f_ffree,
            name_max: stat.f_namelen as u32,
        })
    }
}
