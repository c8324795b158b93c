//! A mirrored directory that writes down what is done to it: every write with its bytes, in the order in which they were
//! done.
//!
//! One change is done at a time, and written down before the next one. What the format has no words for is refused,
//! so that programs do it in another way: hard links, files without a name, copies within the file system, holes.

use std::collections::{HashMap, HashSet};
use std::fs::{self, File};
use std::io::{self, BufWriter};
use std::ops::ControlFlow;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use anteros_core::{
    Attr, Changes, DirEntry, FileKind, FilePosition, FileSystem, FsError, FsResult, Ino, New,
    OpenFile, Rdev, Seek, StatFs, Writable,
};
use anteros_passthru::HostFs;
use anteros_tests::recorded::{Action, Content, Record, Writer};
use rustix::fs::{OFlags, RenameFlags};

/// A mirrored directory that is recorded.
pub(super) struct Recording {
    inner: HostFs,
    tape: Mutex<Tape>,
}

/// Holds what was written down so far.
struct Tape {
    writer: Option<Writer<BufWriter<File>>>,
    start: Instant,
    directories: Directories,
    /// Whoever appends does not say where.
    appending: HashSet<u64>,
    count: Count,
    failure: Option<io::Error>,
}

/// Describes how much was recorded.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Count {
    pub(crate) records: u64,
    /// Writes to files that had no name any more: nobody will ask for them after a crash.
    pub(crate) nameless: u64,
}

/// Numbers of directories, by their paths. None is given twice.
#[derive(Default)]
struct Directories {
    numbers: HashMap<Vec<u8>, usize>,
    next: usize,
}

impl Directories {
    fn number(&mut self, path: &[u8]) -> usize {
        if let Some(number) = self.numbers.get(path) {
            return *number;
        }
        let number = self.next;
        self.numbers.insert(path.to_vec(), number);
        self.next += 1;
        number
    }

    /// There is none of this path any more; if it comes back, it is another one.
    fn remove(&mut self, path: &[u8]) {
        self.numbers.remove(path);
    }

    /// A directory, and all below it, has another path from now on.
    fn rename(&mut self, from: &[u8], to: &[u8]) {
        let moved = |path: &Vec<u8>| {
            let rest = path.strip_prefix(from)?;
            let lies_below = rest.is_empty() || rest[0] == b'/';
            lies_below.then(|| [to, rest].concat())
        };
        let numbers = std::mem::take(&mut self.numbers);
        let renamed = numbers
            .into_iter()
            .map(|(path, number)| match moved(&path) {
                Some(path) => (path, number),
                None => (path, number),
            });
        self.numbers = renamed.collect();
    }

    /// A path as the trace has it.
    fn within(&mut self, path: &[u8]) -> String {
        let slash = path.iter().rposition(|&byte| byte == b'/');
        let (parent, name) = match slash {
            Some(at) => (&path[..at], &path[at + 1..]),
            None => (&b""[..], path),
        };
        let number = self.number(parent);
        format!("d{number}/{}", String::from_utf8_lossy(name))
    }
}

impl Tape {
    fn write(&mut self, path: String, action: Action) {
        let record = Record {
            micros: self.start.elapsed().as_micros() as u64,
            path,
            action,
        };
        let written = self.writer.as_mut().map(|writer| writer.write(&record));
        self.count.records += 1;
        // The first failure says why the record is worth nothing.
        if let (Some(Err(error)), None) = (written, &self.failure) {
            self.failure = Some(error);
        }
    }
}

impl Recording {
    /// Records what is done to a directory.
    ///
    /// # Errors
    /// When the directory cannot be mirrored.
    pub(super) fn new(directory: &Path, trace: File) -> io::Result<Self> {
        let tape = Tape {
            writer: Some(Writer::new(BufWriter::new(trace))?),
            start: Instant::now(),
            directories: Directories::default(),
            appending: HashSet::new(),
            count: Count::default(),
            failure: None,
        };
        Ok(Self {
            inner: HostFs::new(directory)?,
            tape: Mutex::new(tape),
        })
    }

    /// Ends the trace, and says how much it has.
    ///
    /// # Errors
    /// When not all of it could be written.
    pub(super) fn finish(&self) -> io::Result<Count> {
        let mut tape = self.tape();
        if let Some(error) = tape.failure.take() {
            return Err(error);
        }
        if let Some(writer) = tape.writer.take() {
            writer.finish()?;
        }
        Ok(tape.count)
    }

    /// Returns what the files hold now, by their names in the trace.
    ///
    /// # Errors
    /// When a file cannot be read.
    pub(super) fn content(&self, directory: &Path) -> io::Result<Content> {
        let mut content = Content::default();
        let mut tape = self.tape();
        let mut left = vec![directory.to_owned()];
        while let Some(parent) = left.pop() {
            for entry in fs::read_dir(parent)? {
                let (entry, kind) = entry.and_then(|one| Ok((one.path(), one.file_type()?)))?;
                if kind.is_dir() {
                    left.push(entry);
                } else if kind.is_file() {
                    let within = entry.strip_prefix(directory).unwrap_or(&entry);
                    let within = tape.directories.within(within.as_os_str().as_bytes());
                    content.0.insert(within, fs::read(entry)?);
                }
            }
        }
        Ok(content)
    }

    fn tape(&self) -> MutexGuard<'_, Tape> {
        self.tape.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The path of a known inode.
    fn path(&self, ino: Ino) -> FsResult<Vec<u8>> {
        let path = self.inner.path_of(ino).ok_or(FsError::NotFound)?;
        Ok(path.strip_prefix(b"/").unwrap_or(&path).to_vec())
    }

    fn path_in(&self, parent: Ino, name: &[u8]) -> FsResult<Vec<u8>> {
        let parent = self.path(parent)?;
        match parent.is_empty() {
            true => Ok(name.to_vec()),
            false => Ok([&parent, &b"/"[..], name].concat()),
        }
    }

    /// Writes down what was done to a file, if it still has a name.
    fn note(&self, tape: &mut Tape, ino: Ino, action: Action) -> FsResult<()> {
        if self.inner.getattr(ino)?.nlink == 0 {
            tape.count.nameless += 1;
            return Ok(());
        }
        let path = tape.directories.within(&self.path(ino)?);
        tape.write(path, action);
        Ok(())
    }

    fn is_there(&self, parent: Ino, name: &[u8]) -> bool {
        let found = self.inner.lookup(parent, name);
        if let Ok(attr) = &found {
            self.inner.forget(attr.ino, 1);
        }
        found.is_ok()
    }
}

fn has(flags: u32, flag: OFlags) -> bool {
    OFlags::from_bits_retain(flags).contains(flag)
}

impl FileSystem for Recording {
    fn root(&self) -> Ino {
        self.inner.root()
    }

    fn lookup(&self, parent: Ino, name: &[u8]) -> FsResult<Attr> {
        self.inner.lookup(parent, name)
    }

    fn getattr(&self, ino: Ino) -> FsResult<Attr> {
        self.inner.getattr(ino)
    }

    fn readdir(
        &self,
        ino: Ino,
        from: u64,
        visit: &mut dyn FnMut(DirEntry<'_>) -> ControlFlow<()>,
    ) -> FsResult<()> {
        self.inner.readdir(ino, from, visit)
    }

    fn readlink(&self, ino: Ino) -> FsResult<Vec<u8>> {
        self.inner.readlink(ino)
    }

    fn read(&self, ino: Ino, offset: u64, buf: &mut [u8]) -> FsResult<usize> {
        self.inner.read(ino, offset, buf)
    }

    fn seek(&self, ino: Ino, offset: u64, what: Seek) -> FsResult<u64> {
        self.inner.seek(ino, offset, what)
    }

    fn getxattr(&self, ino: Ino, name: &[u8]) -> FsResult<Vec<u8>> {
        self.inner.getxattr(ino, name)
    }

    fn listxattr(&self, ino: Ino) -> FsResult<Vec<Vec<u8>>> {
        self.inner.listxattr(ino)
    }

    fn statfs(&self) -> FsResult<StatFs> {
        self.inner.statfs()
    }

    fn writable(&self) -> Option<&dyn Writable> {
        Some(self)
    }
}

impl Writable for Recording {
    fn trusted_for(&self) -> Duration {
        self.inner.trusted_for()
    }

    fn keeps_cached(&self) -> bool {
        self.inner.keeps_cached()
    }

    fn forget(&self, ino: Ino, times: u64) {
        self.inner.forget(ino, times);
    }

    fn open(&self, ino: Ino, flags: u32) -> FsResult<u64> {
        let mut tape = self.tape();
        let handle = self.inner.open(ino, flags)?;
        if has(flags, OFlags::TRUNC) {
            self.note(&mut tape, ino, Action::Truncate { size: 0 })?;
        }
        if has(flags, OFlags::APPEND) {
            tape.appending.insert(handle);
        }
        Ok(handle)
    }

    fn create(&self, new: &New<'_>, flags: u32) -> FsResult<(Attr, u64)> {
        let mut tape = self.tape();
        let was_there = self.is_there(new.parent, new.name);
        let (attr, handle) = self.inner.create(new, flags)?;
        if !was_there {
            self.note(&mut tape, attr.ino, Action::Create)?;
        } else if has(flags, OFlags::TRUNC) {
            self.note(&mut tape, attr.ino, Action::Truncate { size: 0 })?;
        }
        if has(flags, OFlags::APPEND) {
            tape.appending.insert(handle);
        }
        Ok((attr, handle))
    }

    fn create_unnamed(&self, _new: &New<'_>, _flags: u32) -> FsResult<(Attr, u64)> {
        Err(FsError::Unsupported)
    }

    fn release(&self, file: OpenFile) {
        self.tape().appending.remove(&file.handle);
        self.inner.release(file);
    }

    fn read_open(&self, file: OpenFile, offset: u64, buf: &mut [u8]) -> FsResult<usize> {
        self.inner.read_open(file, offset, buf)
    }

    fn write(
        &self,
        file: OpenFile,
        offset: u64,
        data: &[u8],
        drops_privileges: bool,
    ) -> FsResult<usize> {
        let mut tape = self.tape();
        let len = self.inner.write(file, offset, data, drops_privileges)?;
        let offset = match tape.appending.contains(&file.handle) {
            true => self.inner.getattr(file.ino)?.size - len as u64,
            false => offset,
        };
        let data = data[..len].to_vec();
        self.note(&mut tape, file.ino, Action::Write { offset, data })?;
        Ok(len)
    }

    fn flush(&self, file: OpenFile) -> FsResult<()> {
        self.inner.flush(file)
    }

    fn fsync(&self, file: OpenFile, data_only: bool) -> FsResult<()> {
        let mut tape = self.tape();
        self.inner.fsync(file, data_only)?;
        let action = match data_only {
            true => Action::Fdatasync,
            false => Action::Fsync,
        };
        self.note(&mut tape, file.ino, action)
    }

    fn seek_open(&self, file: OpenFile, offset: u64, what: Seek) -> FsResult<u64> {
        self.inner.seek_open(file, offset, what)
    }

    fn allocate(&self, file: OpenFile, offset: u64, len: u64, mode: u32) -> FsResult<()> {
        if mode != 0 {
            return Err(FsError::Unsupported);
        }
        let mut tape = self.tape();
        self.inner.allocate(file, offset, len, mode)?;
        self.note(&mut tape, file.ino, Action::Allocate { offset, len })
    }

    fn copy_range(&self, _from: FilePosition, _to: FilePosition, _len: u64) -> FsResult<u64> {
        Err(FsError::Unsupported)
    }

    fn change(&self, ino: Ino, file: Option<OpenFile>, changes: &Changes) -> FsResult<Attr> {
        let mut tape = self.tape();
        let attr = self.inner.change(ino, file, changes)?;
        if let Some(size) = changes.size {
            self.note(&mut tape, ino, Action::Truncate { size })?;
        }
        Ok(attr)
    }

    fn make(&self, new: &New<'_>, rdev: Rdev) -> FsResult<Attr> {
        let mut tape = self.tape();
        let attr = self.inner.make(new, rdev)?;
        if attr.kind == FileKind::Regular {
            self.note(&mut tape, attr.ino, Action::Create)?;
        }
        Ok(attr)
    }

    fn symlink(&self, new: &New<'_>, target: &[u8]) -> FsResult<Attr> {
        self.inner.symlink(new, target)
    }

    fn link(&self, _ino: Ino, _parent: Ino, _name: &[u8]) -> FsResult<Attr> {
        Err(FsError::Unsupported)
    }

    fn unlink(&self, parent: Ino, name: &[u8]) -> FsResult<()> {
        let mut tape = self.tape();
        let path = self.path_in(parent, name)?;
        let attr = self.inner.lookup(parent, name)?;
        self.inner.forget(attr.ino, 1);
        self.inner.unlink(parent, name)?;
        if attr.kind == FileKind::Regular {
            let path = tape.directories.within(&path);
            tape.write(path, Action::Unlink);
        }
        Ok(())
    }

    fn rmdir(&self, parent: Ino, name: &[u8]) -> FsResult<()> {
        let mut tape = self.tape();
        let path = self.path_in(parent, name)?;
        self.inner.rmdir(parent, name)?;
        tape.directories.remove(&path);
        Ok(())
    }

    fn rename(&self, from: (Ino, &[u8]), to: (Ino, &[u8]), flags: u32) -> FsResult<()> {
        let known = RenameFlags::NOREPLACE.bits();
        if flags & !known != 0 {
            return Err(FsError::Unsupported);
        }
        let mut tape = self.tape();
        let (old, new) = (self.path_in(from.0, from.1)?, self.path_in(to.0, to.1)?);
        let attr = self.inner.lookup(from.0, from.1)?;
        self.inner.forget(attr.ino, 1);
        self.inner.rename(from, to, flags)?;
        match attr.kind {
            FileKind::Regular => {
                let from = tape.directories.within(&old);
                let path = tape.directories.within(&new);
                tape.write(path, Action::Rename { from });
            }
            FileKind::Directory => tape.directories.rename(&old, &new),
            _ => {}
        }
        Ok(())
    }

    fn setxattr(&self, ino: Ino, name: &[u8], value: &[u8], flags: u32) -> FsResult<()> {
        self.inner.setxattr(ino, name, value, flags)
    }

    fn removexattr(&self, ino: Ino, name: &[u8]) -> FsResult<()> {
        self.inner.removexattr(ino, name)
    }

    fn open_dir(&self, ino: Ino) -> FsResult<u64> {
        self.inner.open_dir(ino)
    }

    fn release_dir(&self, dir: OpenFile) {
        self.inner.release_dir(dir);
    }

    fn read_dir(
        &self,
        dir: OpenFile,
        from: u64,
        visit: &mut dyn FnMut(DirEntry<'_>) -> ControlFlow<()>,
    ) -> FsResult<()> {
        self.inner.read_dir(dir, from, visit)
    }

    fn fsync_dir(&self, dir: OpenFile) -> FsResult<()> {
        let mut tape = self.tape();
        self.inner.fsync_dir(dir)?;
        let path = self.path(dir.ino)?;
        let number = tape.directories.number(&path);
        tape.write(format!("d{number}"), Action::SyncDirectory);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn directories_keep_their_numbers_when_they_are_renamed() {
        let mut directories = Directories::default();
        assert_eq!(directories.within(b"x"), "d0/x");
        assert_eq!(directories.within(b"a/x"), "d1/x");
        assert_eq!(directories.within(b"a/b/x"), "d2/x");
        assert_eq!(directories.within(b"ab/x"), "d3/x");
        directories.rename(b"a", b"c/d");
        assert_eq!(directories.within(b"c/d/x"), "d1/x");
        assert_eq!(directories.within(b"c/d/b/x"), "d2/x");
        assert_eq!(directories.within(b"ab/x"), "d3/x");
        assert_eq!(directories.within(b"a/x"), "d4/x");
        directories.remove(b"ab");
        assert_eq!(directories.within(b"ab/x"), "d5/x");
    }
}
