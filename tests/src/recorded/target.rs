//! Targets on which recorded calls are done again: a directory of the host, and a file system without a mount.

use std::collections::HashMap;
use std::fs::{self, File};
use std::io;
use std::ops::ControlFlow;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use anteros_core::{Caller, Changes, FsError, FsResult, Ino, New, OpenFile, Rdev, Writable};
use rustix::fs::{FallocateFlags, OFlags, fallocate};

use super::{Content, directory_of};

/// Describes what recorded calls are done to. Paths are those of the trace.
#[allow(clippy::missing_errors_doc)] // what the file system says
pub trait Target {
    /// A file that is open.
    type File;

    /// Opens a file; it is made if it is not there, its directory too.
    fn open(&mut self, path: &str) -> io::Result<Self::File>;

    /// Closes one.
    fn close(&mut self, file: Self::File);

    /// Writes all of it.
    fn write(&mut self, file: &Self::File, offset: u64, data: &[u8]) -> io::Result<()>;

    /// Sets the size.
    fn truncate(&mut self, file: &Self::File, size: u64) -> io::Result<()>;

    /// Promises space.
    fn allocate(&mut self, file: &Self::File, offset: u64, len: u64) -> io::Result<()>;

    /// Syncs a file.
    fn sync(&mut self, file: &Self::File, data_only: bool) -> io::Result<()>;

    /// Syncs a directory; the empty path is the top.
    fn sync_directory(&mut self, directory: &str) -> io::Result<()>;

    /// Removes a name.
    fn unlink(&mut self, path: &str) -> io::Result<()>;

    /// Renames.
    fn rename(&mut self, from: &str, to: &str) -> io::Result<()>;

    /// All that is there.
    fn content(&self) -> io::Result<Content>;
}

/// A directory of the host.
#[derive(Debug)]
pub struct HostDirectory(PathBuf);

impl HostDirectory {
    /// This one.
    pub fn new(root: impl Into<PathBuf>) -> Self {
        Self(root.into())
    }
}

impl Target for HostDirectory {
    type File = File;

    fn open(&mut self, path: &str) -> io::Result<File> {
        fs::create_dir_all(self.0.join(directory_of(path)))?;
        let mut options = File::options();
        let options = options.read(true).write(true).create(true).truncate(false);
        options.open(self.0.join(path))
    }

    fn close(&mut self, file: File) {
        drop(file);
    }

    fn write(&mut self, file: &File, offset: u64, data: &[u8]) -> io::Result<()> {
        file.write_all_at(data, offset)
    }

    fn truncate(&mut self, file: &File, size: u64) -> io::Result<()> {
        file.set_len(size)
    }

    fn allocate(&mut self, file: &File, offset: u64, len: u64) -> io::Result<()> {
        Ok(fallocate(file, FallocateFlags::empty(), offset, len)?)
    }

    fn sync(&mut self, file: &File, data_only: bool) -> io::Result<()> {
        match data_only {
            true => file.sync_data(),
            false => file.sync_all(),
        }
    }

    fn sync_directory(&mut self, directory: &str) -> io::Result<()> {
        File::open(self.0.join(directory))?.sync_all()
    }

    fn unlink(&mut self, path: &str) -> io::Result<()> {
        fs::remove_file(self.0.join(path))
    }

    fn rename(&mut self, from: &str, to: &str) -> io::Result<()> {
        fs::create_dir_all(self.0.join(directory_of(to)))?;
        fs::rename(self.0.join(from), self.0.join(to))
    }

    fn content(&self) -> io::Result<Content> {
        let mut content = Content::default();
        for directory in directories(&self.0)? {
            for file in fs::read_dir(directory)? {
                let path = file?.path();
                let within = path.strip_prefix(&self.0).unwrap_or(&path);
                let within = within.to_string_lossy().into_owned();
                content.0.insert(within, fs::read(path)?);
            }
        }
        Ok(content)
    }
}

/// The directories of a replay: what `mkfs` makes for itself is none.
fn directories(root: &Path) -> io::Result<Vec<PathBuf>> {
    let mut directories = Vec::new();
    for entry in fs::read_dir(root)? {
        let entry = entry?;
        let is_ours = entry.file_name().to_str().is_some_and(is_numbered);
        if is_ours && entry.file_type()?.is_dir() {
            directories.push(entry.path());
        }
    }
    Ok(directories)
}

fn is_numbered(name: &str) -> bool {
    let number = name.strip_prefix('d').unwrap_or_default();
    !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit())
}

/// A file system without a mount.
pub struct Tree<'a> {
    fs: &'a dyn Writable,
    directories: HashMap<String, Ino>,
}

impl<'a> Tree<'a> {
    /// This one.
    pub fn new(fs: &'a dyn Writable) -> Self {
        let directories = HashMap::from([(String::new(), fs.root())]);
        Self { fs, directories }
    }

    fn directory(&mut self, path: &str) -> FsResult<Ino> {
        let name = directory_of(path);
        if let Some(ino) = self.directories.get(name) {
            return Ok(*ino);
        }
        let new = new(self.fs.root(), name, 0o040_755);
        let ino = self.fs.make(&new, Rdev::default())?.ino;
        self.directories.insert(name.to_owned(), ino);
        Ok(ino)
    }

    fn read(&self, ino: Ino) -> FsResult<Vec<u8>> {
        let mut bytes = vec![0; self.fs.getattr(ino)?.size as usize];
        let len = self.fs.read(ino, 0, &mut bytes)?;
        bytes.truncate(len);
        Ok(bytes)
    }

    fn names(&self, directory: Ino) -> FsResult<Vec<String>> {
        let mut names = Vec::new();
        self.fs.readdir(directory, 0, &mut |entry| {
            names.push(String::from_utf8_lossy(entry.name).into_owned());
            ControlFlow::Continue(())
        })?;
        names.retain(|name| !matches!(name.as_str(), "." | ".."));
        Ok(names)
    }
}

fn new<'a>(parent: Ino, name: &'a str, mode: u32) -> New<'a> {
    New {
        parent,
        name: name.as_bytes(),
        mode,
        umask: 0,
        caller: Caller::default(),
    }
}

fn name_of(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or_default()
}

fn told(error: FsError) -> io::Error {
    io::Error::other(error.to_string())
}

impl Target for Tree<'_> {
    type File = OpenFile;

    fn open(&mut self, path: &str) -> io::Result<OpenFile> {
        let parent = self.directory(path).map_err(told)?;
        let new = new(parent, name_of(path), 0o100_644);
        let flags = OFlags::RDWR | OFlags::CREATE;
        let (attr, handle) = self.fs.create(&new, flags.bits()).map_err(told)?;
        let ino = attr.ino;
        Ok(OpenFile { ino, handle })
    }

    fn close(&mut self, file: OpenFile) {
        self.fs.release(file);
        self.fs.forget(file.ino, 1);
    }

    fn write(&mut self, file: &OpenFile, offset: u64, data: &[u8]) -> io::Result<()> {
        let mut done = 0;
        while done < data.len() {
            let at = offset + done as u64;
            let written = self.fs.write(*file, at, &data[done..], false);
            match written.map_err(told)? {
                0 => return Err(io::ErrorKind::WriteZero.into()),
                len => done += len,
            }
        }
        Ok(())
    }

    fn truncate(&mut self, file: &OpenFile, size: u64) -> io::Result<()> {
        let changes = Changes {
            size: Some(size),
            ..Changes::default()
        };
        let changed = self.fs.change(file.ino, Some(*file), &changes);
        changed.map(drop).map_err(told)
    }

    fn allocate(&mut self, file: &OpenFile, offset: u64, len: u64) -> io::Result<()> {
        self.fs.allocate(*file, offset, len, 0).map_err(told)
    }

    fn sync(&mut self, file: &OpenFile, data_only: bool) -> io::Result<()> {
        self.fs.fsync(*file, data_only).map_err(told)
    }

    fn sync_directory(&mut self, directory: &str) -> io::Result<()> {
        let ino = self.directory(directory).map_err(told)?;
        let handle = self.fs.open_dir(ino).map_err(told)?;
        let dir = OpenFile { ino, handle };
        let synced = self.fs.fsync_dir(dir).map_err(told);
        self.fs.release_dir(dir);
        synced
    }

    fn unlink(&mut self, path: &str) -> io::Result<()> {
        let parent = self.directory(path).map_err(told)?;
        let name = name_of(path).as_bytes();
        self.fs.unlink(parent, name).map_err(told)
    }

    fn rename(&mut self, from: &str, to: &str) -> io::Result<()> {
        let from_dir = self.directory(from).map_err(told)?;
        let to_dir = self.directory(to).map_err(told)?;
        let from = (from_dir, name_of(from).as_bytes());
        let to = (to_dir, name_of(to).as_bytes());
        self.fs.rename(from, to, 0).map_err(told)
    }

    fn content(&self) -> io::Result<Content> {
        let mut content = Content::default();
        let root = self.fs.root();
        for directory in self.names(root).map_err(told)? {
            let parent = self.fs.lookup(root, directory.as_bytes()).map_err(told)?;
            for name in self.names(parent.ino).map_err(told)? {
                let file = self.fs.lookup(parent.ino, name.as_bytes()).map_err(told)?;
                let bytes = self.read(file.ino).map_err(told)?;
                self.fs.forget(file.ino, 1);
                content.0.insert(format!("{directory}/{name}"), bytes);
            }
            self.fs.forget(parent.ino, 1);
        }
        Ok(content)
    }
}
