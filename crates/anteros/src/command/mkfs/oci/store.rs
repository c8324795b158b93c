//! Files of an image layout: of a directory, or of an archive of one.

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::FileExt;
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

use anteros_build::{ArchivedFile, Error};
use rustix::io::Errno;

use crate::failure::{Failure, Kind};

/// The files, by their names.
#[derive(Debug)]
pub struct Store {
    path: PathBuf,
    /// `None` for a directory.
    archive: Option<Archive>,
}

#[derive(Debug)]
struct Archive {
    file: Arc<File>,
    /// Places of its files.
    files: HashMap<Vec<u8>, ArchivedFile>,
}

impl Store {
    /// Opens a directory, or an archive that is not compressed.
    pub fn open(path: &Path) -> Result<Self, Failure> {
        let system = |error| Failure::system(path, &error);
        let path = path.to_owned();
        if !std::fs::metadata(&path).is_ok_and(|found| found.is_file()) {
            let archive = None;
            return Ok(Self { path, archive });
        }
        let file = File::open(&path).map_err(system)?;
        let list = ArchivedFile::list(&path, file.try_clone().map_err(system)?);
        let list = list.map_err(|error| no_archive(&error))?;
        let files = list.into_iter().map(|file| (file.name.clone(), file));
        let archive = Archive {
            file: Arc::new(file),
            files: files.collect(),
        };
        let archive = Some(archive);
        Ok(Self { path, archive })
    }

    /// Returns whether there is a file of this name.
    pub fn has(&self, name: &str) -> bool {
        match &self.archive {
            None => self.path(name).exists(),
            Some(archive) => archive.files.contains_key(name.as_bytes()),
        }
    }

    /// The path of a file, for messages.
    pub fn path(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    /// Opens a regular file.
    pub fn file(&self, name: &str) -> Result<Part, Failure> {
        let path = self.path(name);
        let system = |error| Failure::system(&path, &error);
        let Some(Archive { file, files }) = &self.archive else {
            let is_inside = |part| matches!(part, Component::Normal(_));
            if !Path::new(name).components().all(is_inside) {
                let text = format!("{}: it leads out of the directory", path.display());
                return Err(Failure::new(Kind::Corrupt, text));
            }
            let file = File::open(&path).map_err(system)?;
            let found = file.metadata().map_err(system)?;
            if !found.is_file() {
                let text = format!("{}: it is no regular file", path.display());
                return Err(Failure::new(Kind::Corrupt, text));
            }
            return Ok(Part {
                file: Arc::new(file),
                at: 0,
                end: found.len(),
            });
        };
        let missing = || system(Errno::NOENT.into());
        let found = files.get(name.as_bytes()).ok_or_else(missing)?;
        Ok(Part {
            file: Arc::clone(file),
            at: found.offset,
            end: found.offset + found.len,
        })
    }
}

/// The failure to list an archive.
fn no_archive(error: &Error) -> Failure {
    let kind = match error {
        Error::Archive { .. } => Kind::Corrupt,
        _ => Kind::System,
    };
    Failure::new(kind, error).hint("an archive of an image layout is not compressed itself")
}

/// A file, or a part of one, that is read in order.
#[derive(Debug)]
pub struct Part {
    file: Arc<File>,
    at: u64,
    end: u64,
}

impl Part {
    /// Bytes that are left to read.
    pub fn len(&self) -> u64 {
        self.end - self.at
    }
}

impl Read for Part {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let most = usize::try_from(self.len()).unwrap_or(usize::MAX);
        let len = buf.len().min(most);
        let count = self.file.read_at(&mut buf[..len], self.at)?;
        self.at += count as u64;
        Ok(count)
    }
}
