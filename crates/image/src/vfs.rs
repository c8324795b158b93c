//! An image as a file system.

use std::collections::HashMap;
use std::io;
use std::ops::ControlFlow;
use std::sync::{Arc, Mutex, PoisonError};

use anteros_core::{Attr, DirEntry, FileKind, FileSystem, FsError, FsResult, Ino, Seek, StatFs};
use anteros_format::Nid;
use anteros_format::inode::Inode;

use crate::dir::DirCursor;
use crate::{Error, Image, Map, Source};

/// The position behind a `.` that no block holds; a directory has fewer blocks.
const END: u64 = 1 << 62;

/// An image as a [`FileSystem`]. Inode numbers are those that the kernel's EROFS shows.
pub struct ImageFs {
    image: Arc<Image>,
    /// Files that were read lately, with what is known of where their data lies.
    files: Mutex<HashMap<Ino, Arc<(Inode, Map)>>>,
}

/// How many files are kept in mind.
const FILES_MAX: usize = 256;

impl ImageFs {
    /// Offers an image as a file system.
    pub fn new(image: Arc<Image>) -> Self {
        Self {
            image,
            files: Mutex::default(),
        }
    }

    /// A file and its map; both are found once for many reads.
    fn file(&self, ino: Ino) -> FsResult<Arc<(Inode, Map)>> {
        let files = || self.files.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(file) = files().get(&ino) {
            return Ok(file.clone());
        }
        let inode = self.inode(ino)?;
        let map = self.image.map(&inode)?;
        let file = Arc::new((inode, map));
        let mut files = files();
        if files.len() >= FILES_MAX {
            files.clear();
        }
        files.insert(ino, file.clone());
        Ok(file)
    }

    /// With a metabox, bit 63 of a node id moves to bit 31, and what is above bit 30 up by one.
    fn ino(&self, nid: Nid) -> Ino {
        Ino(match self.image.superblock().metabox {
            None => nid.0,
            Some(_) => {
                nid.slot() >> 31 << 32 | u64::from(nid.in_metabox()) << 31 | nid.0 & 0x7fff_ffff
            }
        })
    }

    fn nid(&self, ino: Ino) -> Nid {
        Nid(match self.image.superblock().metabox {
            None => ino.0,
            Some(_) => (ino.0 >> 31 & 1) << 63 | ino.0 >> 32 << 31 | ino.0 & 0x7fff_ffff,
        })
    }

    fn inode(&self, ino: Ino) -> FsResult<Inode> {
        Ok(self.image.inode(self.nid(ino))?)
    }

    fn attr(&self, inode: &Inode) -> Attr {
        let sb = self.image.superblock();
        let block = u64::from(sb.block_bytes());
        let bytes = match inode.layout.is_compressed() {
            true => inode.compressed_blocks.saturating_mul(block),
            false => inode.size.next_multiple_of(block),
        };
        Attr {
            ino: self.ino(inode.nid),
            kind: inode.kind,
            perm: inode.perm,
            nlink: inode.nlink,
            uid: inode.uid,
            gid: inode.gid,
            rdev: inode.rdev,
            size: inode.size,
            blocks: bytes / 512,
            block_size: sb.block_bytes(),
            mtime: inode.mtime,
        }
    }
}

impl From<Error> for FsError {
    fn from(error: Error) -> Self {
        match error {
            Error::NotFound => Self::NotFound,
            Error::NotDirectory => Self::NotDirectory,
            Error::NotSymlink => Self::Invalid,
            // One inode of a newer kind says nothing of the others: `FsError::Unsupported` would.
            error @ Error::Unsupported { .. } => Self::Io(io::Error::new(
                io::ErrorKind::Unsupported,
                error.to_string(),
            )),
            Error::Io { source, .. } => Self::Io(source),
            error => Self::Corrupt(error.to_string()),
        }
    }
}

impl FileSystem for ImageFs {
    fn root(&self) -> Ino {
        self.ino(self.image.superblock().root)
    }

    fn lookup(&self, parent: Ino, name: &[u8]) -> FsResult<Attr> {
        let dir = self.inode(parent)?;
        let entry = self.image.lookup(&dir, name)?.ok_or(FsError::NotFound)?;
        Ok(self.attr(&self.image.inode(entry.nid)?))
    }

    fn getattr(&self, ino: Ino) -> FsResult<Attr> {
        Ok(self.attr(&self.inode(ino)?))
    }

    fn readdir(
        &self,
        ino: Ino,
        from: u64,
        visit: &mut dyn FnMut(DirEntry<'_>) -> ControlFlow<()>,
    ) -> FsResult<()> {
        let dir = self.inode(ino)?;
        let mut broken = false;
        self.image
            .visit_dir(&dir, DirCursor::from_u64(from), |entry, next| {
                let next = next.to_u64();
                let flow = visit(DirEntry {
                    ino: self.ino(entry.nid),
                    kind: entry.kind,
                    next,
                    name: entry.name,
                });
                broken = flow.is_break();
                flow
            })?;
        if dir.dot_omitted && !broken && from != END {
            // Where the kernel shows it too: behind all others.
            let _ = visit(DirEntry {
                ino,
                kind: FileKind::Directory,
                next: END,
                name: b".",
            });
        }
        Ok(())
    }

    fn readlink(&self, ino: Ino) -> FsResult<Vec<u8>> {
        Ok(self.image.read_link(&self.inode(ino)?)?)
    }

    fn read(&self, ino: Ino, offset: u64, buf: &mut [u8]) -> FsResult<usize> {
        let file = self.file(ino)?;
        let (inode, map) = &*file;
        if inode.kind == FileKind::Directory {
            return Err(FsError::IsDirectory);
        }
        Ok(self.image.read(inode, map, offset, buf)?)
    }

    fn seek(&self, ino: Ino, offset: u64, what: Seek) -> FsResult<u64> {
        let file = self.file(ino)?;
        let (inode, map) = &*file;
        if offset >= inode.size {
            return Err(FsError::BeyondEnd);
        }
        for extent in self.image.extents_from(inode, map, offset) {
            let extent = extent?;
            let is_hole = extent.source == Source::Hole;
            if is_hole == (what == Seek::Hole) {
                return Ok(extent.offset.max(offset));
            }
        }
        match what {
            Seek::Hole => Ok(inode.size),
            Seek::Data => Err(FsError::BeyondEnd),
        }
    }

    fn getxattr(&self, ino: Ino, name: &[u8]) -> FsResult<Vec<u8>> {
        let inode = self.inode(ino)?;
        self.image.xattr(&inode, name)?.ok_or(FsError::NoData)
    }

    fn listxattr(&self, ino: Ino) -> FsResult<Vec<Vec<u8>>> {
        let inode = self.inode(ino)?;
        Ok(self
            .image
            .xattrs(&inode)?
            .into_iter()
            .map(|xattr| xattr.name)
            .collect())
    }

    fn statfs(&self) -> FsResult<StatFs> {
        let sb = self.image.superblock();
        let extra: u64 = self
            .image
            .devices()
            .iter()
            .flat_map(|d| &d.slot)
            .map(|s| s.blocks)
            .sum();
        Ok(StatFs {
            block_size: sb.block_bytes(),
            blocks: sb.blocks + extra,
            blocks_free: 0,
            // As the kernel's EROFS counts: an image is never short of inodes.
            files: u64::MAX,
            files_free: u64::MAX - sb.inodes,
            name_max: 255,
        })
    }
}
