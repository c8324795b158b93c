//! An image's file system, with the daemon's numbers as an attribute of its root.

use std::ops::ControlFlow;
use std::os::fd::BorrowedFd;
use std::sync::Arc;

use anteros_core::{Attr, DirEntry, FileKind, FileSystem, FsResult, Ino, Seek, StatFs};
use anteros_image::ImageFs;

use super::metrics::{ATTRIBUTE, Metrics};

/// Answers as the image does, but for [`ATTRIBUTE`] of the root.
pub struct Observed {
    pub fs: Arc<ImageFs>,
    pub metrics: Arc<Metrics>,
}

impl FileSystem for Observed {
    fn root(&self) -> Ino {
        self.fs.root()
    }

    fn lookup(&self, parent: Ino, name: &[u8]) -> FsResult<Attr> {
        self.fs.lookup(parent, name)
    }

    fn getattr(&self, ino: Ino) -> FsResult<Attr> {
        self.fs.getattr(ino)
    }

    fn getattr_listed(&self, ino: Ino, kind: FileKind) -> Option<Attr> {
        self.fs.getattr_listed(ino, kind)
    }

    fn readdir(
        &self,
        ino: Ino,
        from: u64,
        visit: &mut dyn FnMut(DirEntry<'_>) -> ControlFlow<()>,
    ) -> FsResult<()> {
        self.fs.readdir(ino, from, visit)
    }

    fn readlink(&self, ino: Ino) -> FsResult<Vec<u8>> {
        self.fs.readlink(ino)
    }

    fn read(&self, ino: Ino, offset: u64, buf: &mut [u8]) -> FsResult<usize> {
        self.fs.read(ino, offset, buf)
    }

    fn has_memory_files(&self) -> bool {
        self.fs.has_memory_files()
    }

    fn memory_file(&self, ino: Ino) -> Option<BorrowedFd<'_>> {
        self.fs.memory_file(ino)
    }

    fn seek(&self, ino: Ino, offset: u64, what: Seek) -> FsResult<u64> {
        self.fs.seek(ino, offset, what)
    }

    fn getxattr(&self, ino: Ino, name: &[u8]) -> FsResult<Vec<u8>> {
        match ino == self.root() && name == ATTRIBUTE.as_bytes() {
            true => Ok(self.metrics.text(&self.fs).into_bytes()),
            false => self.fs.getxattr(ino, name),
        }
    }

    fn listxattr(&self, ino: Ino) -> FsResult<Vec<Vec<u8>>> {
        self.fs.listxattr(ino)
    }

    fn statfs(&self) -> FsResult<StatFs> {
        self.fs.statfs()
    }
}
