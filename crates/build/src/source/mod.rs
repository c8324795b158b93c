//! The source of an image, as the builder sees it once the tree is known: content of regular files,
//! read by any worker at any place.

pub(crate) mod archive;
pub(crate) mod directory;

use std::io;
use std::path::Path;

use crate::Error;
use crate::tree::{NodeId, Tree};
use archive::{Contents, PackedFile};
use directory::{Directory, HostFile};

/// The source, held open.
#[derive(Debug)]
pub(crate) enum Source {
    Directory(Directory),
    Archive(Contents),
}

impl Source {
    /// Returns the path of the source, for messages.
    pub fn path(&self) -> &Path {
        match self {
            Self::Directory(directory) => directory.path(),
            Self::Archive(contents) => contents.path(),
        }
    }

    /// Opens a regular file for reading, to be closed by [`OpenFile::finish`].
    pub fn open_file<'a>(&'a self, tree: &'a Tree, id: NodeId) -> Result<OpenFile<'a>, Error> {
        let fail = |cause| self.error(tree, id, "open the file", cause);
        let content = match self {
            Self::Directory(directory) => {
                Content::File(directory.open_file(tree, id).map_err(fail)?)
            }
            Self::Archive(contents) => Content::Packed(contents.file(id)),
        };
        Ok(OpenFile {
            source: self,
            tree,
            id,
            content,
        })
    }

    pub fn error(&self, tree: &Tree, id: NodeId, action: &'static str, cause: io::Error) -> Error {
        let path = tree.full_path(self.path(), id);
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
    content: Content<'a>,
}

/// Content of a regular file, where its source keeps it.
enum Content<'a> {
    File(HostFile),
    Packed(PackedFile<'a>),
}

impl OpenFile<'_> {
    /// Fills `buf` from `offset` on.
    pub fn read(&self, offset: u64, buf: &mut [u8]) -> Result<(), Error> {
        let read = match &self.content {
            Content::File(file) => file.read_exact_at(buf, offset),
            Content::Packed(file) => file.read_exact_at(buf, offset),
        };
        read.map_err(|cause| match cause.kind() {
            io::ErrorKind::UnexpectedEof => self.changed(),
            _ => self.error("read the file", cause),
        })
    }

    /// The parts of the file that are not holes, as bytes from and to.
    pub fn data_ranges(&self) -> Result<Vec<(u64, u64)>, Error> {
        match &self.content {
            Content::File(file) => file
                .data_ranges(self.tree.node(self.id).size)
                .map_err(|cause| self.error("look for holes", cause)),
            Content::Packed(file) => Ok(file.data_ranges()),
        }
    }

    /// Makes sure that what was read belongs together: nothing has touched the file since the scan.
    pub fn finish(self) -> Result<(), Error> {
        let now = match &self.content {
            Content::File(file) => file.fingerprint(),
            Content::Packed(file) => file.fingerprint(),
        };
        let now = now.map_err(|cause| self.error("look at the file again", cause))?;
        match now == self.tree.node(self.id).fingerprint {
            true => Ok(()),
            false => Err(self.changed()),
        }
    }

    fn error(&self, action: &'static str, cause: io::Error) -> Error {
        self.source.error(self.tree, self.id, action, cause)
    }

    fn changed(&self) -> Error {
        let path = self.tree.full_path(self.source.path(), self.id);
        Error::Changed { path }
    }
}
