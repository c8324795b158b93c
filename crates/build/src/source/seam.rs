//! Anything that answers as a file system as the source of an image.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anteros_core::{FileSystem, FsError, FsResult, Ino, Seek};

use crate::base::Base;
use crate::places::Places;
use crate::tree::NodeId;

/// A file system that nobody writes to.
pub(crate) struct Answering {
    fs: Arc<dyn FileSystem>,
    path: PathBuf,
    /// The inode of each node.
    inodes: Vec<Ino>,
    /// Tells where content lies, if an image may refer to it.
    places: Option<Arc<dyn Places>>,
    /// Tells of its inodes, if it is an image that is appended to.
    base: Option<Arc<dyn Base>>,
}

impl fmt::Debug for Answering {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Answering")
            .field("path", &self.path)
            .finish_non_exhaustive()
    }
}

impl Answering {
    pub fn new(fs: Arc<dyn FileSystem>, path: PathBuf, inodes: Vec<Ino>) -> Self {
        Self {
            fs,
            path,
            inodes,
            places: None,
            base: None,
        }
    }

    /// Adds what tells where content lies.
    pub fn with(self, places: Arc<dyn Places>) -> Self {
        Self {
            places: Some(places),
            ..self
        }
    }

    /// Adds what tells of inodes.
    pub fn based_on(self, base: Arc<dyn Base>) -> Self {
        Self {
            base: Some(base),
            ..self
        }
    }

    pub fn base(&self) -> Option<&dyn Base> {
        self.base.as_deref()
    }

    pub const fn places(&self) -> Option<&Arc<dyn Places>> {
        self.places.as_ref()
    }

    pub fn inode(&self, id: NodeId) -> Ino {
        self.inodes[id as usize]
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    pub fn file(&self, id: NodeId) -> AnsweredFile<'_> {
        AnsweredFile {
            fs: &*self.fs,
            ino: self.inodes[id as usize],
        }
    }
}

/// A regular file of a file system.
pub(crate) struct AnsweredFile<'a> {
    pub fs: &'a dyn FileSystem,
    pub ino: Ino,
}

impl AnsweredFile<'_> {
    /// Fills `buf` from `offset` on; answers whether there was enough.
    pub fn read_exact_at(&self, mut buf: &mut [u8], mut offset: u64) -> FsResult<bool> {
        while !buf.is_empty() {
            let len = self.fs.read(self.ino, offset, buf)?.min(buf.len());
            if len == 0 {
                return Ok(false);
            }
            buf = &mut buf[len..];
            offset += len as u64;
        }
        Ok(true)
    }

    /// Returns the parts of a file of `size` bytes that are not holes, as bytes from and to.
    pub fn data_ranges(&self, size: u64) -> FsResult<Vec<(u64, u64)>> {
        let mut ranges = Vec::new();
        let mut at = 0;
        while at < size {
            let start = match self.fs.seek(self.ino, at, Seek::Data) {
                Ok(start) => start,
                Err(FsError::NoData | FsError::BeyondEnd) => break,
                Err(e) => return Err(e),
            };
            if start < at || start >= size {
                break;
            }
            at = self.fs.seek(self.ino, start, Seek::Hole)?.min(size);
            if at <= start {
                break; // an answer that leads nowhere
            }
            ranges.push((start, at));
        }
        Ok(ranges)
    }
}
