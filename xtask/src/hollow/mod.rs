//! FUSE file systems that keep no content, for benchmarks: what a program takes there is what FUSE itself takes, and no
//! daemon can be faster.
//!
//! `cargo xtask hollow DIR` keeps names and attributes, in memory: content that is written is dropped, and zeros are read.
//! `cargo xtask hollow IMAGE DIR` has names and attributes from an EROFS image, as `anteros mount` shows them.

mod tree;
mod zeros;

use std::ops::ControlFlow;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use anteros_core::{
    Attr, Changes, DirEntry, FilePosition, FileSystem, FsError, FsResult, Ino, New, OpenFile, Rdev,
    Seek, StatFs, Writable, unpoisoned,
};
use anteros_fuse::{MountOptions, Session};

use crate::outcome::Outcome;
use tree::{ROOT, Tree};
use zeros::{Zeros, fill};

/// As our log has it: nobody else changes anything.
const TRUSTED_FOR: Duration = Duration::from_secs(3600);

/// Bytes of a read, and bytes that are read ahead, by `anteros mount` as it is.
const IMAGE_READ_BYTES: usize = 256 << 10;
const IMAGE_READAHEAD: usize = 512 << 10;

/// Mounts one that can be written to, and serves it until it is unmounted.
///
/// # Errors
/// When it cannot be mounted, or a worker fails.
pub(crate) fn hollow(directory: &Path) -> Outcome {
    serve(
        Arc::new(Hollow::default()),
        directory,
        MountOptions::default(),
    )
}

/// Mounts one with the names of an image, and serves it until it is unmounted.
///
/// # Errors
/// When it is no image, or as [`hollow`].
pub(crate) fn hollow_image(image: &Path, directory: &Path) -> Outcome {
    let options = MountOptions {
        read_len_max: IMAGE_READ_BYTES,
        readahead: Some(IMAGE_READAHEAD),
        ..MountOptions::default()
    };
    serve(Arc::new(Zeros::of(image)?), directory, options)
}

fn serve(fs: Arc<dyn FileSystem>, directory: &Path, options: MountOptions) -> Outcome {
    let options = MountOptions {
        fs_name: "hollow".into(),
        subtype: "hollow".into(),
        ..options
    };
    Ok(Session::mount(fs, directory, &options)?.run()?)
}

#[derive(Default)]
struct Hollow(Mutex<Tree>);

impl Hollow {
    fn tree(&self) -> MutexGuard<'_, Tree> {
        unpoisoned(self.0.lock())
    }
}

impl FileSystem for Hollow {
    fn root(&self) -> Ino {
        ROOT
    }

    fn lookup(&self, parent: Ino, name: &[u8]) -> FsResult<Attr> {
        self.tree().lookup(parent, name)
    }

    fn getattr(&self, ino: Ino) -> FsResult<Attr> {
        self.tree().node(ino).map(|node| node.attr)
    }

    fn readdir(
        &self,
        ino: Ino,
        from: u64,
        visit: &mut dyn FnMut(DirEntry<'_>) -> ControlFlow<()>,
    ) -> FsResult<()> {
        self.tree().list(ino, from, visit)
    }

    fn readlink(&self, ino: Ino) -> FsResult<Vec<u8>> {
        self.tree().node(ino).map(|node| node.target.clone())
    }

    fn read(&self, ino: Ino, offset: u64, buf: &mut [u8]) -> FsResult<usize> {
        Ok(fill(self.getattr(ino)?.size, offset, buf))
    }

    fn seek(&self, _: Ino, _: u64, _: Seek) -> FsResult<u64> {
        Err(FsError::Unsupported)
    }

    fn getxattr(&self, _: Ino, _: &[u8]) -> FsResult<Vec<u8>> {
        Err(FsError::NoData)
    }

    fn listxattr(&self, _: Ino) -> FsResult<Vec<Vec<u8>>> {
        Ok(Vec::new())
    }

    fn statfs(&self) -> FsResult<StatFs> {
        const BLOCKS: u64 = 1 << 30;
        Ok(StatFs {
            block_size: 4096,
            blocks: BLOCKS,
            blocks_free: BLOCKS,
            blocks_available: BLOCKS,
            files: BLOCKS,
            files_free: BLOCKS,
            name_max: 255,
        })
    }

    fn writable(&self) -> Option<&dyn Writable> {
        Some(self)
    }
}

impl Writable for Hollow {
    fn trusted_for(&self) -> Duration {
        TRUSTED_FOR
    }

    fn keeps_cached(&self) -> bool {
        true
    }

    fn keeps_listings(&self) -> bool {
        true
    }

    /// Inodes stay as long as they have a name; those without one are few, and stay until the end.
    fn forget(&self, _: Ino, _: u64) {}

    fn open(&self, _: Ino, _: u32) -> FsResult<u64> {
        Ok(0)
    }

    fn create(&self, new: &New<'_>, _: u32) -> FsResult<(Attr, u64)> {
        Ok((self.make(new, Rdev::default())?, 0))
    }

    fn create_unnamed(&self, _: &New<'_>, _: u32) -> FsResult<(Attr, u64)> {
        Err(FsError::Unsupported)
    }

    fn release(&self, _: OpenFile) {}

    fn read_open(&self, file: OpenFile, offset: u64, buf: &mut [u8]) -> FsResult<usize> {
        self.read(file.ino, offset, buf)
    }

    fn write(&self, file: OpenFile, offset: u64, data: &[u8], _: bool) -> FsResult<usize> {
        self.tree().grow(file.ino, offset + data.len() as u64)?;
        Ok(data.len())
    }

    fn flush(&self, _: OpenFile) -> FsResult<()> {
        Err(FsError::Unsupported)
    }

    fn fsync(&self, _: OpenFile, _: bool) -> FsResult<()> {
        Ok(())
    }

    fn seek_open(&self, _: OpenFile, _: u64, _: Seek) -> FsResult<u64> {
        Err(FsError::Unsupported)
    }

    fn allocate(&self, _: OpenFile, _: u64, _: u64, _: u32) -> FsResult<()> {
        Err(FsError::Unsupported)
    }

    fn copy_range(&self, _: FilePosition, _: FilePosition, _: u64) -> FsResult<u64> {
        Err(FsError::Unsupported)
    }

    fn change(&self, ino: Ino, _: Option<OpenFile>, changes: &Changes) -> FsResult<Attr> {
        self.tree().change(ino, changes)
    }

    fn make(&self, new: &New<'_>, rdev: Rdev) -> FsResult<Attr> {
        self.tree().make(new, rdev, &[])
    }

    fn symlink(&self, new: &New<'_>, target: &[u8]) -> FsResult<Attr> {
        self.tree().make(new, Rdev::default(), target)
    }

    fn link(&self, ino: Ino, parent: Ino, name: &[u8]) -> FsResult<Attr> {
        self.tree().link(ino, parent, name)
    }

    fn unlink(&self, parent: Ino, name: &[u8]) -> FsResult<()> {
        self.tree().remove(parent, name)
    }

    fn rmdir(&self, parent: Ino, name: &[u8]) -> FsResult<()> {
        self.tree().remove(parent, name)
    }

    fn rename(&self, from: (Ino, &[u8]), to: (Ino, &[u8]), _: u32) -> FsResult<()> {
        let mut tree = self.tree();
        match tree.remove(to.0, to.1) {
            Ok(_) | Err(FsError::NotFound) => {}
            Err(error) => return Err(error),
        }
        let ino = tree.lookup(from.0, from.1)?.ino;
        tree.link(ino, to.0, to.1)?;
        tree.remove(from.0, from.1)
    }

    fn setxattr(&self, _: Ino, _: &[u8], _: &[u8], _: u32) -> FsResult<()> {
        Err(FsError::Unsupported)
    }

    fn removexattr(&self, _: Ino, _: &[u8]) -> FsResult<()> {
        Err(FsError::NoData)
    }

    fn open_dir(&self, _: Ino) -> FsResult<u64> {
        Ok(0)
    }

    fn release_dir(&self, _: OpenFile) {}

    fn read_dir(
        &self,
        dir: OpenFile,
        from: u64,
        visit: &mut dyn FnMut(DirEntry<'_>) -> ControlFlow<()>,
    ) -> FsResult<()> {
        self.readdir(dir.ino, from, visit)
    }

    fn lookup_listed(&self, parent: Ino, name: &[u8]) -> Option<Attr> {
        self.lookup(parent, name).ok()
    }

    fn lists_first_attributes(&self) -> bool {
        true
    }

    fn fsync_dir(&self, _: OpenFile) -> FsResult<()> {
        Ok(())
    }
}
