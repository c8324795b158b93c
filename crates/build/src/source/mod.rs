//! The source of an image, as the builder sees it once the tree is known: content of regular files,
//! read by any worker at any place.
//!
//! Invariant B3 of `docs/design/building.md`: a file that changes while it is read is an error, with its name.

pub(crate) mod archive;
pub(crate) mod directory;
pub(crate) mod layers;
pub(crate) mod listed;
pub(crate) mod seam;

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anteros_core::{FsError, Ino};

use crate::Error;
use crate::base::Base;
use crate::early::Segment;
use crate::places::Places;
use crate::tree::{Fingerprint, NodeId, Tree};
use archive::{Contents, PackedFile};
use directory::{Directory, HostFile};
use layers::Layers;
use listed::{Listed, ListedFile};
use seam::{AnsweredFile, Answering};

/// A source with what was found in it.
#[derive(Debug)]
pub(crate) struct Scanned {
    pub source: Source,
    pub tree: Tree,
    pub warnings: u64,
    pub gaps: Gaps,
}

impl Scanned {
    /// A source of which no content is read.
    pub fn unread(self) -> Self {
        Self {
            source: Source::Unread(Box::new(self.source)),
            ..self
        }
    }
}

/// Properties of an archive's tree that only the layers below it tell.
#[derive(Debug, Default)]
pub(crate) struct Gaps {
    /// Directories that no member names, ascending: only what lies in them.
    pub implied: Vec<NodeId>,
    /// Hard links to what no member is. Their nodes are empty regular files.
    pub links: BTreeMap<NodeId, Link>,
}

/// A hard link to a file of a lower layer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Link {
    pub target: Box<[u8]>,
    /// Byte of the archive at which its member begins.
    pub offset: u64,
}

/// The source, held open.
#[derive(Debug)]
pub(crate) enum Source {
    Directory(Directory),
    Archive(Contents),
    Listed(Listed),
    FileSystem(Answering),
    Layers(Layers),
    /// A source of which no content is read: zeros are.
    Unread(Box<Source>),
}

impl Source {
    /// Returns the path of the source, for messages.
    pub fn path(&self) -> &Path {
        match self {
            Self::Directory(directory) => directory.path(),
            Self::Archive(contents) => contents.path(),
            Self::Listed(listed) => listed.path(),
            Self::FileSystem(fs) => fs.path(),
            Self::Layers(layers) => layers.path(),
            Self::Unread(source) => source.path(),
        }
    }

    /// Returns where a node lies in the source, for messages.
    pub fn full_path(&self, tree: &Tree, id: NodeId) -> PathBuf {
        match self {
            Self::Layers(layers) => layers.full_path(id),
            Self::Listed(listed) => listed.full_path(tree, id),
            Self::Unread(source) => source.full_path(tree, id),
            _ => tree.full_path(self.path(), id),
        }
    }

    /// Returns the first block of a file that was written to the image while the source was read.
    pub fn stored_block(&self, id: NodeId) -> Option<u32> {
        match self {
            Self::Archive(contents) => contents.stored_block(id),
            _ => None,
        }
    }

    /// Returns whether files may be compressed already.
    pub fn has_segments(&self) -> bool {
        match self {
            Self::Archive(contents) => contents.has_segments(),
            Self::Layers(layers) => layers.all().iter().any(|layer| layer.source.has_segments()),
            _ => false,
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
            Self::Listed(listed) => match listed.file(id).map_err(fail)? {
                ListedFile::Host(file) => Content::File(file),
                ListedFile::Told(bytes) => Content::Told(bytes),
            },
            Self::FileSystem(fs) => Content::Answered(fs.file(id)),
            Self::Layers(layers) => return layers.open_file(id),
            Self::Unread(_) => Content::Zeros,
        };
        Ok(OpenFile {
            source: self,
            tree,
            id,
            content,
        })
    }

    /// Tells of each layer where its content lies, if it knows; of a single source likewise.
    pub fn places(&self) -> Vec<Option<&Arc<dyn Places>>> {
        match self {
            Self::Layers(layers) => {
                let places = layers.all().iter();
                places.flat_map(|layer| layer.source.places()).collect()
            }
            Self::FileSystem(fs) => vec![fs.places()],
            _ => vec![None],
        }
    }

    /// Tells of the inodes of each layer, if it is an image that is appended to.
    pub fn bases(&self) -> Vec<Option<&dyn Base>> {
        match self {
            Self::Layers(layers) => {
                let bases = layers.all().iter();
                bases.flat_map(|layer| layer.source.bases()).collect()
            }
            Self::FileSystem(fs) => vec![fs.base()],
            Self::Unread(source) => source.bases(),
            _ => vec![None],
        }
    }

    /// The number of the layer that a node is of, and its inode there, if that answers as a file system.
    pub fn answers(&self, id: NodeId) -> Option<(usize, Ino)> {
        match self {
            Self::FileSystem(fs) => Some((0, fs.inode(id))),
            Self::Unread(source) => source.answers(id),
            Self::Layers(layers) => {
                let (number, layer, id) = layers.origin(id);
                let (_, ino) = layer.source.answers(id)?;
                Some((number as usize, ino))
            }
            _ => None,
        }
    }

    pub fn error(&self, tree: &Tree, id: NodeId, action: &'static str, cause: io::Error) -> Error {
        let path = self.full_path(tree, id);
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
    Told(&'a [u8]),
    Answered(AnsweredFile<'a>),
    Zeros,
}

impl OpenFile<'_> {
    /// Fills `buf` from `offset` on.
    pub fn read(&self, offset: u64, buf: &mut [u8]) -> Result<(), Error> {
        let read = match &self.content {
            Content::File(file) => file.read_exact_at(buf, offset),
            Content::Packed(file) => file.read_exact_at(buf, offset),
            Content::Told(bytes) => listed::read_exact_at(bytes, buf, offset),
            Content::Zeros => {
                buf.fill(0);
                Ok(())
            }
            Content::Answered(file) => {
                let read = file.read_exact_at(buf, offset);
                let read = read.map_err(|cause| self.answer("read the file", cause));
                return if read? { Ok(()) } else { Err(self.changed()) };
            }
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
            Content::Told(bytes) => Ok(vec![(0, bytes.len() as u64)]),
            Content::Zeros => Ok(Vec::new()),
            Content::Answered(file) => file
                .data_ranges(self.tree.node(self.id).size)
                .map_err(|cause| self.answer("look for holes", cause)),
        }
    }

    /// The part of the file that is compressed already, if there is one from `offset` on that has so many bytes.
    pub fn segment(&self, offset: u64, len: u64) -> Option<Segment<'_>> {
        match &self.content {
            Content::Packed(file) => file.segment(offset, len),
            Content::File(_) | Content::Told(_) | Content::Answered(_) | Content::Zeros => None,
        }
    }

    /// Adds the place of the file to an error in reading such parts.
    pub fn kept<T>(&self, read: io::Result<T>) -> Result<T, Error> {
        read.map_err(|cause| self.error("read again what was kept of the file", cause))
    }

    /// Makes sure that what was read belongs together: nothing has touched the file since the scan.
    pub fn finish(self) -> Result<(), Error> {
        let now = match &self.content {
            Content::Zeros => return Ok(()),
            Content::File(file) => file.fingerprint(),
            Content::Packed(file) => file.fingerprint(),
            Content::Told(_) | Content::Answered(_) => Ok(Fingerprint::default()),
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

    /// The error that an answer of a file system is.
    fn answer(&self, action: &'static str, cause: FsError) -> Error {
        Error::FileSystem {
            path: self.source.full_path(self.tree, self.id),
            action,
            cause,
        }
    }

    fn changed(&self) -> Error {
        let path = self.source.full_path(self.tree, self.id);
        Error::Changed { path }
    }
}
