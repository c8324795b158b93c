//! Files that a profile names: those of an image, of a log, or below a directory of the host.

use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;
use std::sync::Arc;

use anteros_core::{FileDevice, FileKind, FileSystem, FsError, Ino, Occupant, Timestamp};
use anteros_image::{Image, ImageFs};
use anteros_warm::Directory;
use rustix::io::Errno;

use crate::args::ImageArgs;
use crate::command::log;
use crate::daemon::recording;
use crate::failure::Failure;

/// Files that a profile names.
pub enum Tree {
    /// Those of an image or log, as it answers.
    Answers(Arc<dyn FileSystem + Send + Sync>),
    /// Those below a directory of the host.
    Directory(Directory),
}

/// A regular file of a tree.
pub struct Found {
    /// Bytes of the file.
    pub size: u64,
    /// Tells when the content was last changed.
    pub mtime: Timestamp,
    content: Content,
}

enum Content {
    Inode(Ino),
    File(File),
}

impl Tree {
    /// Opens an image, a log that is not mounted, or a directory.
    pub fn open(path: &Path) -> Result<Self, Failure> {
        let failure = |error: io::Error| Failure::system(path, &error);
        if std::fs::metadata(path).map_err(failure)?.is_dir() {
            let directory = Directory::open(path).map_err(failure)?;
            return Ok(Self::Directory(directory));
        }
        Ok(match is_log(path)? {
            true => Self::Answers(Arc::new(log::as_source(path)?)),
            false => Self::of_image(ImageArgs::alone(path).open()?),
        })
    }

    /// The files of an image.
    pub fn of_image(image: Arc<Image>) -> Self {
        Self::Answers(Arc::new(ImageFs::new(image)))
    }

    /// Finds a regular file. Symbolic links are not followed: a profile has the paths of files.
    pub fn find(&self, path: &[u8]) -> io::Result<Found> {
        match self {
            Self::Answers(fs) => {
                let names = path.split(|&byte| byte == b'/');
                let names = names.filter(|name| !matches!(*name, b"" | b"."));
                let mut attr = fs.getattr(fs.root()).map_err(io_error)?;
                for name in names {
                    if name == b".." {
                        return Err(io::ErrorKind::NotFound.into());
                    }
                    attr = fs.lookup(attr.ino, name).map_err(io_error)?;
                }
                match attr.kind {
                    FileKind::Regular => Ok(Found {
                        size: attr.size,
                        mtime: attr.mtime,
                        content: Content::Inode(attr.ino),
                    }),
                    _ => Err(no_file()),
                }
            }
            Self::Directory(directory) => found(directory.find(path)?),
        }
    }

    /// Fills `buf` with what a file has at `offset`; with less only if the file ends there.
    pub fn read(&self, found: &Found, offset: u64, buf: &mut [u8]) -> io::Result<usize> {
        let mut filled = 0;
        while filled < buf.len() {
            let at = offset.saturating_add(filled as u64);
            let rest = &mut buf[filled..];
            let count = match (self, &found.content) {
                (Self::Answers(fs), Content::Inode(ino)) => {
                    fs.read(*ino, at, rest).map_err(io_error)
                }
                (_, Content::File(file)) => file.read_at(rest, at),
                (Self::Directory(_), Content::Inode(_)) => Err(io::ErrorKind::InvalidInput.into()),
            };
            match count {
                Ok(0) => break,
                Ok(count) => filled += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(filled)
    }

    /// The paths of all files, by inode number, as far as they are known.
    pub fn paths(&self) -> HashMap<u64, Vec<u8>> {
        match self {
            Self::Answers(fs) => recording::walk(&**fs),
            Self::Directory(root) => super::walk::paths(root, |_| true),
        }
    }
}

impl Found {
    /// The file of the host, if it is one.
    pub fn file(&self) -> Option<&File> {
        match &self.content {
            Content::File(file) => Some(file),
            Content::Inode(_) => None,
        }
    }
}

/// Returns whether a file or device holds a log.
pub fn is_log(path: &Path) -> Result<bool, Failure> {
    let device = FileDevice::open(path).map_err(|error| Failure::system(path, &error))?;
    Ok(matches!(device.occupant_from(0), Ok(Some(Occupant::Log))))
}

/// A file of the host.
fn found(file: File) -> io::Result<Found> {
    let metadata = file.metadata()?;
    Ok(Found {
        size: metadata.len(),
        mtime: Timestamp {
            secs: metadata.mtime(),
            nanos: metadata.mtime_nsec() as u32,
        },
        content: Content::File(file),
    })
}

fn no_file() -> io::Error {
    io::Error::other("no regular file")
}

fn io_error(error: FsError) -> io::Error {
    match error {
        FsError::NotFound | FsError::NotDirectory => Errno::NOENT.into(),
        error => io::Error::other(error),
    }
}
