//! Recorded calls are done again.

use std::collections::HashMap;
use std::io;
use std::path::{Path, PathBuf};

use super::{Action, HostDirectory, Record, Target, Trace, directory_of};

/// Holds what a replay has done.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Replayed {
    /// Writes.
    pub writes: u64,
    /// Bytes that were written.
    pub written_bytes: u64,
    /// Syncs of files.
    pub syncs: u64,
    /// Syncs of directories.
    pub directory_syncs: u64,
    /// All else.
    pub others: u64,
    /// Unlinks of what was there before the recording.
    pub skipped: u64,
}

/// Does recorded calls again, as fast as it can, one after the other. Files stay open as long as they have their name.
///
/// Which directory a sync was for is not recorded in the traces of the repository; it is that of the last call before it,
/// as when SQLite and LevelDB sync the directory in which they have made or removed a file. Where several threads were
/// at work, as in `chromium`, it may be another one.
pub struct Replay<T: Target> {
    target: T,
    files: HashMap<String, T::File>,
    /// The directory of the last call; empty for the top.
    directory: String,
    done: Replayed,
}

impl Replay<HostDirectory> {
    /// A replay in an empty directory.
    pub fn new(root: impl Into<PathBuf>) -> Self {
        Self::onto(HostDirectory::new(root))
    }
}

impl<T: Target> Replay<T> {
    /// A replay on something empty.
    pub fn onto(target: T) -> Self {
        Self {
            target,
            files: HashMap::new(),
            directory: String::new(),
            done: Replayed::default(),
        }
    }

    /// Returns what was done up to now.
    pub fn done(&self) -> Replayed {
        self.done
    }

    /// Does one call.
    ///
    /// # Errors
    ///
    /// What the file system says, with the path in front.
    pub fn step(&mut self, record: &Record) -> io::Result<()> {
        self.do_action(record)
            .map_err(|e| io::Error::new(e.kind(), format!("{}: {e}", record.path)))
    }

    /// Closes all files, and gives back what was written to.
    pub fn end(mut self) -> T {
        for (_, file) in self.files.drain() {
            self.target.close(file);
        }
        self.target
    }

    fn do_action(&mut self, record: &Record) -> io::Result<()> {
        let path = &record.path;
        match &record.action {
            Action::Write { offset, data } => {
                self.with(path, |target, file| target.write(file, *offset, data))?;
                self.done.writes += 1;
                self.done.written_bytes += data.len() as u64;
            }
            Action::Truncate { size } => {
                self.other(path, |target, file| target.truncate(file, *size))?;
            }
            Action::Allocate { offset, len } => {
                self.other(path, |target, file| target.allocate(file, *offset, *len))?;
            }
            Action::Create => self.other(path, |_, _| Ok(()))?,
            Action::Fsync => return self.sync(path, false),
            Action::Fdatasync => return self.sync(path, true),
            Action::SyncDirectory => return self.sync_directory(path),
            Action::Unlink => self.unlink(path)?,
            Action::Rename { from } => self.rename(from, path)?,
        }
        self.directory = directory_of(path).to_owned();
        Ok(())
    }

    /// Does something with a file, which is made if it is not there.
    fn with(
        &mut self,
        path: &str,
        work: impl FnOnce(&mut T, &T::File) -> io::Result<()>,
    ) -> io::Result<()> {
        if !self.files.contains_key(path) {
            let file = self.target.open(path)?;
            self.files.insert(path.to_owned(), file);
        }
        work(&mut self.target, &self.files[path])
    }

    fn other(
        &mut self,
        path: &str,
        work: impl FnOnce(&mut T, &T::File) -> io::Result<()>,
    ) -> io::Result<()> {
        self.done.others += 1;
        self.with(path, work)
    }

    fn sync(&mut self, path: &str, data_only: bool) -> io::Result<()> {
        let Some(file) = self.files.get(path) else {
            let directory = self.directory.clone();
            return self.sync_directory(&directory);
        };
        self.target.sync(file, data_only)?;
        self.directory = directory_of(path).to_owned();
        self.done.syncs += 1;
        Ok(())
    }

    fn sync_directory(&mut self, directory: &str) -> io::Result<()> {
        self.done.directory_syncs += 1;
        self.target.sync_directory(directory)
    }

    fn unlink(&mut self, path: &str) -> io::Result<()> {
        let Some(file) = self.files.remove(path) else {
            self.done.skipped += 1;
            return Ok(());
        };
        self.target.close(file);
        self.done.others += 1;
        self.target.unlink(path)
    }

    fn rename(&mut self, from: &str, to: &str) -> io::Result<()> {
        self.target.rename(from, to)?;
        self.done.others += 1;
        if let Some(replaced) = self.files.remove(to) {
            self.target.close(replaced);
        }
        let file = self.files.remove(from);
        self.files.extend(file.map(|file| (to.to_owned(), file)));
        Ok(())
    }
}

/// Does a whole trace again below an empty directory.
///
/// # Errors
///
/// When the trace cannot be read, or the file system fails.
pub fn replay(trace: Trace, root: &Path) -> io::Result<Replayed> {
    let mut replay = Replay::new(root);
    for record in trace {
        replay.step(&record?)?;
    }
    Ok(replay.done())
}
