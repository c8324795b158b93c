//! Walking a tree in order, in bounded memory, for those who write what they find.
//!
//! The root comes first; a directory comes right in front of what is below it, the names of a directory in their order.
//! Memory is bounded whatever the image says: entries are read a few at a time, and directories that were met are noted in a
//! temporary file when there are many.

use std::collections::VecDeque;
use std::io;
use std::ops::ControlFlow;

use anteros_core::FileKind;
use anteros_format::Nid;
use anteros_format::inode::Inode;

use crate::{DirCursor, Error, Image, ImagePath, NidSet, OwnedDirent, Result};

/// Entries of a directory that are read at a time.
const PAGE_ENTRIES: usize = 64;

/// The longest path. Only a tree that was made to be a burden has longer ones.
pub(crate) const PATH_BYTES_MAX: usize = 1 << 16;

/// Memory for each set of inodes that were met, in bytes.
pub(crate) const NOTES_BYTES: usize = 1 << 20;

/// Tells why a walk ended before its tree did.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum WalkProblem {
    /// The image could not be read.
    #[error(transparent)]
    Image(#[from] Error),
    /// A temporary file could not be used.
    #[error("cannot note it in a temporary file: {0}")]
    Note(io::Error),
    /// A directory has two names: no tree has that, and a loop is one way to get there.
    #[error("directory inode {nid} has a second name, or contains itself")]
    DirectoryTwice {
        /// The inode.
        nid: Nid,
    },
    /// A directory entry says otherwise than its inode.
    #[error("the directory says that this is a {}, but it is a {}", .says.name(), .is.name())]
    Kind {
        /// Holds what the directory says.
        says: FileKind,
        /// Holds what the inode is.
        is: FileKind,
    },
    /// The path is longer than any that a sane tree has.
    #[error("its path has more than {PATH_BYTES_MAX} bytes")]
    PathLength,
    /// The caller wished to stop.
    #[error("cancelled here")]
    Cancelled,
}

impl WalkProblem {
    /// Returns whether the image itself is broken.
    pub const fn is_corrupt(&self) -> bool {
        match self {
            Self::Image(error) => error.is_corrupt(),
            Self::DirectoryTwice { .. } | Self::Kind { .. } => true,
            _ => false,
        }
    }
}

/// A path below another, for messages.
pub(crate) fn path_below(from: &[u8], path: &[u8]) -> ImagePath {
    let names = [from, path]
        .into_iter()
        .flat_map(|path| path.split(|&byte| byte == b'/'));
    let names: Vec<&[u8]> = names.filter(|name| !name.is_empty()).collect();
    ImagePath::from(names.join(&b'/'))
}

/// A walk that is under way.
pub(crate) struct Walk<'a> {
    image: &'a Image,
    /// The root, until it was handed over.
    root: Option<Inode>,
    levels: Vec<Level>,
    /// Entries of the innermost directory that were read ahead, each with the position behind it.
    page: VecDeque<(OwnedDirent, DirCursor)>,
    path: Vec<u8>,
    entered: NidSet,
}

/// A directory on the way.
struct Level {
    inode: Inode,
    /// The length of its path.
    path_bytes: usize,
    /// The position behind the entry that was taken last.
    next: DirCursor,
}

impl<'a> Walk<'a> {
    pub fn new(image: &'a Image, root: Inode) -> Self {
        Self {
            image,
            root: Some(root),
            levels: Vec::new(),
            page: VecDeque::new(),
            path: Vec::new(),
            entered: NidSet::new(NOTES_BYTES),
        }
    }

    /// The path of what was met last, or of what an error is about; that of the root is empty.
    pub fn path(&self) -> &[u8] {
        &self.path
    }

    /// Returns the next inode. The contents of a directory follow it.
    pub fn next(&mut self) -> Result<Option<Inode>, WalkProblem> {
        let inode = match self.root.take() {
            Some(root) => root,
            None => match self.entry()? {
                Some(inode) => inode,
                None => return Ok(None),
            },
        };
        if inode.kind == FileKind::Directory {
            self.enter(&inode)?;
        }
        Ok(Some(inode))
    }

    fn entry(&mut self) -> Result<Option<Inode>, WalkProblem> {
        while let Some(level) = self.levels.last_mut() {
            self.path.truncate(level.path_bytes);
            if self.page.is_empty() {
                self.page = page(self.image, &level.inode, level.next)?;
            }
            let Some((entry, next)) = self.page.pop_front() else {
                self.levels.pop();
                continue;
            };
            level.next = next;
            if !self.path.is_empty() {
                self.path.push(b'/');
            }
            self.path.extend_from_slice(&entry.name);
            if self.path.len() > PATH_BYTES_MAX {
                return Err(WalkProblem::PathLength);
            }
            return inode_of(self.image, &entry).map(Some);
        }
        Ok(None)
    }

    /// Goes into a directory. Of those on the way only the innermost has entries in memory.
    fn enter(&mut self, inode: &Inode) -> Result<(), WalkProblem> {
        if !self.entered.insert(inode.nid).map_err(WalkProblem::Note)? {
            return Err(WalkProblem::DirectoryTwice { nid: inode.nid });
        }
        self.page.clear();
        self.levels.push(Level {
            inode: inode.clone(),
            path_bytes: self.path.len(),
            next: DirCursor::default(),
        });
        Ok(())
    }
}

/// The inode that an entry names.
pub(crate) fn inode_of(image: &Image, entry: &OwnedDirent) -> Result<Inode, WalkProblem> {
    let inode = image.inode(entry.nid)?;
    match inode.kind == entry.kind {
        true => Ok(inode),
        false => Err(WalkProblem::Kind {
            says: entry.kind,
            is: inode.kind,
        }),
    }
}

/// Some entries of a directory from a position on, each with the position behind it.
pub(crate) fn page(
    image: &Image,
    directory: &Inode,
    from: DirCursor,
) -> Result<VecDeque<(OwnedDirent, DirCursor)>> {
    let mut page = VecDeque::new();
    image.visit_dir(directory, from, |entry, next| {
        if !matches!(entry.name, b"." | b"..") {
            let (nid, kind, name) = (entry.nid, entry.kind, entry.name.to_vec());
            page.push_back((OwnedDirent { nid, kind, name }, next));
        }
        match page.len() < PAGE_ENTRIES {
            true => ControlFlow::Continue(()),
            false => ControlFlow::Break(()),
        }
    })?;
    Ok(page)
}
