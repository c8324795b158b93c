//! An image of which names and attributes are read, and zeros in the place of content.

use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;

use anteros_core::{Attr, DirEntry, FileDevice, FileKind, FileSystem, FsResult, Ino, Seek, StatFs};
use anteros_image::{Image, ImageFs, OpenOptions};

use crate::outcome::Outcome;

pub(super) struct Zeros(ImageFs);

impl Zeros {
    /// # Errors
    /// When it is no image.
    pub(super) fn of(image: &Path) -> Outcome<Self> {
        let image = Image::open(
            Arc::new(FileDevice::open(image)?),
            Vec::new(),
            OpenOptions::default(),
        )?;
        Ok(Self(ImageFs::new(Arc::new(image))))
    }
}

impl FileSystem for Zeros {
    fn root(&self) -> Ino {
        self.0.root()
    }

    fn lookup(&self, parent: Ino, name: &[u8]) -> FsResult<Attr> {
        self.0.lookup(parent, name)
    }

    fn getattr(&self, ino: Ino) -> FsResult<Attr> {
        self.0.getattr(ino)
    }

    fn getattr_listed(&self, ino: Ino, kind: FileKind) -> Option<Attr> {
        self.0.getattr_listed(ino, kind)
    }

    fn readdir(
        &self,
        ino: Ino,
        from: u64,
        visit: &mut dyn FnMut(DirEntry<'_>) -> ControlFlow<()>,
    ) -> FsResult<()> {
        self.0.readdir(ino, from, visit)
    }

    fn readlink(&self, ino: Ino) -> FsResult<Vec<u8>> {
        self.0.readlink(ino)
    }

    fn read(&self, ino: Ino, offset: u64, buf: &mut [u8]) -> FsResult<usize> {
        Ok(fill(self.0.getattr(ino)?.size, offset, buf))
    }

    fn seek(&self, ino: Ino, offset: u64, what: Seek) -> FsResult<u64> {
        self.0.seek(ino, offset, what)
    }

    fn getxattr(&self, ino: Ino, name: &[u8]) -> FsResult<Vec<u8>> {
        self.0.getxattr(ino, name)
    }

    fn listxattr(&self, ino: Ino) -> FsResult<Vec<Vec<u8>>> {
        self.0.listxattr(ino)
    }

    fn statfs(&self) -> FsResult<StatFs> {
        self.0.statfs()
    }
}

/// Reads zeros from a file of so many bytes, and says how many there were.
pub(super) fn fill(size: u64, offset: u64, buf: &mut [u8]) -> usize {
    let len = size.saturating_sub(offset).min(buf.len() as u64) as usize;
    buf[..len].fill(0);
    len
}
