//! A manifest as the source of an image: the content of each file lies below a directory, or the
//! manifest itself told it.

use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};

use super::directory::{Directory, HostFile};
use crate::tree::{NodeId, Tree};

/// The content of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Place {
    /// The manifest told these bytes of [`Listed::told`].
    Told(Range<usize>),
    /// The path of a file below the directory, these bytes of [`Listed::told`].
    Path(Range<usize>),
}

/// The content of all files of a manifest.
#[derive(Debug)]
pub(crate) struct Listed {
    path: PathBuf,
    root: Option<Directory>,
    /// Content that the manifest told, and paths, one after the other.
    told: Vec<u8>,
    places: Vec<Place>,
    /// The number of each node's place.
    nodes: Vec<u32>,
}

/// A regular file of a manifest.
pub(crate) enum ListedFile<'a> {
    Host(HostFile),
    Told(&'a [u8]),
}

impl Listed {
    pub fn new(path: PathBuf, root: Option<Directory>) -> Self {
        Self {
            path,
            root,
            told: Vec::new(),
            places: Vec::new(),
            nodes: Vec::new(),
        }
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    pub const fn root(&self) -> Option<&Directory> {
        self.root.as_ref()
    }

    /// Adds the content of a file that the manifest tells; answers its number.
    pub fn add_told(&mut self, bytes: &[u8]) -> u32 {
        let range = self.keep(bytes);
        self.add(Place::Told(range))
    }

    /// Adds a file below the directory; answers its number.
    pub fn add_path(&mut self, path: &[u8]) -> u32 {
        let range = self.keep(path);
        self.add(Place::Path(range))
    }

    fn keep(&mut self, bytes: &[u8]) -> Range<usize> {
        let start = self.told.len();
        self.told.extend_from_slice(bytes);
        start..self.told.len()
    }

    fn add(&mut self, place: Place) -> u32 {
        self.places.push(place);
        // A draft takes no more members than 32 bits can count.
        (self.places.len() - 1) as u32
    }

    /// Adds the numbers of all nodes.
    pub fn with(self, nodes: Vec<u32>) -> Self {
        Self { nodes, ..self }
    }

    /// Opens a regular file.
    pub fn file(&self, id: NodeId) -> io::Result<ListedFile<'_>> {
        let place = &self.places[self.nodes[id as usize] as usize];
        Ok(match (place, &self.root) {
            (Place::Told(range), _) => ListedFile::Told(&self.told[range.clone()]),
            (Place::Path(range), Some(root)) => {
                ListedFile::Host(HostFile::beneath(root, &self.told[range.clone()])?)
            }
            (Place::Path(_), None) => return Err(io::ErrorKind::NotFound.into()),
        })
    }

    /// Returns where the content of a node lies, for messages: the file itself, if there is one.
    pub fn full_path(&self, tree: &Tree, id: NodeId) -> PathBuf {
        let place = self.nodes.get(id as usize);
        let place = place.and_then(|number| self.places.get(*number as usize));
        match (place, &self.root) {
            (Some(Place::Path(range)), Some(root)) => root.full_path(&self.told[range.clone()]),
            _ => tree.full_path(&self.path, id),
        }
    }
}

/// Fills `buf` from `offset` of `bytes` on.
pub(super) fn read_exact_at(bytes: &[u8], buf: &mut [u8], offset: u64) -> io::Result<()> {
    let found = usize::try_from(offset).ok().and_then(|start| {
        let end = start.checked_add(buf.len())?;
        bytes.get(start..end)
    });
    buf.copy_from_slice(found.ok_or(io::ErrorKind::UnexpectedEof)?);
    Ok(())
}
