//! A daemon that does nothing: it says of every name that it is not there, and of every file that it was made. The kernel
//! writes by itself what is written, always to the same place. So what is left is what the kernel asks for.

use std::fs::File;
use std::ops::ControlFlow;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use anteros_core::{
    Attr, Changes, DirEntry, FileKind, FilePosition, FileSystem, FsError, FsResult, Ino, New,
    OpenFile, Rdev, Seek, StatFs, Timestamp, Writable,
};
use rustix::fs::{MemfdFlags, memfd_create};

use crate::outcome::Outcome;

const ROOT: Ino = Ino(1);
const REFUSED: FsError = FsError::Unsupported;

/// The file system.
pub(super) struct Idle {
    made: AtomicU64,
    /// Tells where all that is written goes.
    file: File,
}

impl Idle {
    /// # Errors
    /// When the system refuses a file in memory.
    pub(super) fn new() -> Outcome<Self> {
        let file = memfd_create("idle", MemfdFlags::CLOEXEC)?;
        Ok(Self {
            made: AtomicU64::new(ROOT.0),
            file: file.into(),
        })
    }
}

const fn attr(ino: Ino) -> Attr {
    const NEVER: Timestamp = Timestamp { secs: 0, nanos: 0 };
    Attr {
        ino,
        kind: match ino.0 == ROOT.0 {
            true => FileKind::Directory,
            false => FileKind::Regular,
        },
        perm: 0o755,
        nlink: 1,
        uid: 0,
        gid: 0,
        rdev: Rdev { major: 0, minor: 0 },
        size: 0,
        blocks: 0,
        block_size: 4096,
        atime: NEVER,
        mtime: NEVER,
        ctime: NEVER,
    }
}

impl FileSystem for Idle {
    fn root(&self) -> Ino {
        ROOT
    }

    fn lookup(&self, _: Ino, _: &[u8]) -> FsResult<Attr> {
        Err(FsError::NotFound)
    }

    fn getattr(&self, ino: Ino) -> FsResult<Attr> {
        Ok(attr(ino))
    }

    fn readdir(
        &self,
        _: Ino,
        _: u64,
        _: &mut dyn FnMut(DirEntry<'_>) -> ControlFlow<()>,
    ) -> FsResult<()> {
        Ok(())
    }

    fn readlink(&self, _: Ino) -> FsResult<Vec<u8>> {
        Err(REFUSED)
    }

    fn read(&self, _: Ino, _: u64, _: &mut [u8]) -> FsResult<usize> {
        Ok(0)
    }

    fn seek(&self, _: Ino, _: u64, _: Seek) -> FsResult<u64> {
        Err(REFUSED)
    }

    fn getxattr(&self, _: Ino, _: &[u8]) -> FsResult<Vec<u8>> {
        Err(FsError::NoData)
    }

    fn listxattr(&self, _: Ino) -> FsResult<Vec<Vec<u8>>> {
        Ok(Vec::new())
    }

    fn statfs(&self) -> FsResult<StatFs> {
        Err(REFUSED)
    }

    fn writable(&self) -> Option<&dyn Writable> {
        Some(self)
    }
}

impl Writable for Idle {
    fn trusted_for(&self) -> Duration {
        Duration::from_secs(1)
    }

    fn forget(&self, _: Ino, _: u64) {}

    fn open(&self, _: Ino, _: u32) -> FsResult<u64> {
        Ok(0)
    }

    fn create(&self, _: &New<'_>, _: u32) -> FsResult<(Attr, u64)> {
        let ino = Ino(1 + self.made.fetch_add(1, Ordering::Relaxed));
        Ok((attr(ino), 0))
    }

    fn create_unnamed(&self, _: &New<'_>, _: u32) -> FsResult<(Attr, u64)> {
        Err(REFUSED)
    }

    fn release(&self, _: OpenFile) {}

    fn read_open(&self, _: OpenFile, _: u64, _: &mut [u8]) -> FsResult<usize> {
        Ok(0)
    }

    fn write(&self, _: OpenFile, _: u64, data: &[u8], _: bool) -> FsResult<usize> {
        Ok(data.len())
    }

    fn flush(&self, _: OpenFile) -> FsResult<()> {
        Ok(())
    }

    fn fsync(&self, _: OpenFile, _: bool) -> FsResult<()> {
        Ok(())
    }

    fn seek_open(&self, _: OpenFile, _: u64, _: Seek) -> FsResult<u64> {
        Err(REFUSED)
    }

    fn allocate(&self, _: OpenFile, _: u64, _: u64, _: u32) -> FsResult<()> {
        Err(REFUSED)
    }

    fn copy_range(&self, _: FilePosition, _: FilePosition, _: u64) -> FsResult<u64> {
        Err(REFUSED)
    }

    fn change(&self, ino: Ino, _: Option<OpenFile>, _: &Changes) -> FsResult<Attr> {
        Ok(attr(ino))
    }

    fn make(&self, _: &New<'_>, _: Rdev) -> FsResult<Attr> {
        Err(REFUSED)
    }

    fn symlink(&self, _: &New<'_>, _: &[u8]) -> FsResult<Attr> {
        Err(REFUSED)
    }

    fn link(&self, _: Ino, _: Ino, _: &[u8]) -> FsResult<Attr> {
        Err(REFUSED)
    }

    fn unlink(&self, _: Ino, _: &[u8]) -> FsResult<()> {
        Err(REFUSED)
    }

    fn rmdir(&self, _: Ino, _: &[u8]) -> FsResult<()> {
        Err(REFUSED)
    }

    fn rename(&self, _: (Ino, &[u8]), _: (Ino, &[u8]), _: u32) -> FsResult<()> {
        Err(REFUSED)
    }

    fn setxattr(&self, _: Ino, _: &[u8], _: &[u8], _: u32) -> FsResult<()> {
        Err(REFUSED)
    }

    fn removexattr(&self, _: Ino, _: &[u8]) -> FsResult<()> {
        Err(REFUSED)
    }

    fn open_dir(&self, _: Ino) -> FsResult<u64> {
        Ok(0)
    }

    fn release_dir(&self, _: OpenFile) {}

    fn read_dir(
        &self,
        _: OpenFile,
        _: u64,
        _: &mut dyn FnMut(DirEntry<'_>) -> ControlFlow<()>,
    ) -> FsResult<()> {
        Ok(())
    }

    fn fsync_dir(&self, _: OpenFile) -> FsResult<()> {
        Ok(())
    }

    fn backing(&self, _: OpenFile) -> Option<OwnedFd> {
        Some(self.file.try_clone().ok()?.into())
    }
}
