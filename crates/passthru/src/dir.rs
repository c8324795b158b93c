//! Open directories.
//!
//! The host lists many entries at once, more than a caller usually takes. The rest is kept for the call
//! that goes on where the last one stopped; any other position is sought on the host, which keeps
//! what it calls positions stable itself. Going back to the beginning always asks the host, so
//! `rewinddir` shows what is new.

use std::ops::{ControlFlow, Range};
use std::os::fd::OwnedFd;
use std::sync::Mutex;

use anteros_core::{DirEntry, FileKind, FsResult, Ino, unpoisoned};
use rustix::fs::{AtFlags, FileType, RawDir, SeekFrom, Stat, fsync, seek, statat};
use rustix::io::retry_on_intr;

use crate::host::refused;
use crate::table::{Key, Node, Table};

/// States what the host is asked for at once, in bytes.
const BATCH: usize = 32 << 10;

/// A directory that is open.
#[derive(Debug)]
pub(crate) struct OpenDir {
    fd: OwnedFd,
    ino: Ino,
    key: Key,
    batch: Mutex<Batch>,
}

/// Holds what the host listed last.
#[derive(Debug, Default)]
struct Batch {
    /// The position of the first entry.
    start: u64,
    entries: Vec<Listed>,
    names: Vec<u8>,
    /// The entry that was visited last or is to be visited next.
    at: usize,
}

#[derive(Debug)]
struct Listed {
    inode: u64,
    file_type: FileType,
    next: u64,
    name: Range<usize>,
}

impl OpenDir {
    /// A directory that was opened.
    pub fn new(fd: OwnedFd, node: &Node) -> Self {
        Self {
            fd,
            ino: node.ino,
            key: node.key,
            batch: Mutex::default(),
        }
    }

    pub fn visit(
        &self,
        table: &Table,
        from: u64,
        visit: &mut dyn FnMut(DirEntry<'_>) -> ControlFlow<()>,
    ) -> FsResult<()> {
        let mut batch = unpoisoned(self.batch.lock());
        if !batch.resume(from) {
            seek(&self.fd, SeekFrom::Start(from)).map_err(refused)?;
            *batch = Batch {
                start: from,
                ..Batch::default()
            };
        }
        loop {
            while let Some(listed) = batch.entries.get(batch.at) {
                let name = &batch.names[listed.name.clone()];
                let flow = match self.inode_of(table, listed, name) {
                    Some((ino, kind)) => visit(DirEntry {
                        ino,
                        kind,
                        next: listed.next,
                        name,
                    }),
                    None => ControlFlow::Continue(()),
                };
                if flow.is_break() {
                    return Ok(());
                }
                batch.at += 1;
            }
            if !batch.fill(&self.fd).map_err(refused)? {
                return Ok(());
            }
        }
    }

    /// Returns what an entry is; `None` if it is gone before that could be told.
    ///
    /// `..` is asked for, as it may lie on another device, and of the root leads to itself: what is
    /// above is nobody's business.
    fn inode_of(&self, table: &Table, listed: &Listed, name: &[u8]) -> Option<(Ino, FileKind)> {
        match name {
            b"." => return Some((self.ino, FileKind::Directory)),
            b".." if self.key == table.root().key => {
                return Some((self.ino, FileKind::Directory));
            }
            b".." => {
                let parent = table.listed_number(Key::of(&self.stat(name)?));
                return Some((parent, FileKind::Directory));
            }
            _ => {}
        }
        let kind = match listed.file_type {
            // Not all file systems tell.
            FileType::Unknown => FileKind::from_mode(self.stat(name)?.st_mode)?,
            file_type => FileKind::from_mode(file_type.as_raw_mode())?,
        };
        let key = Key {
            device: self.key.device,
            inode: listed.inode,
        };
        Some((table.listed_number(key), kind))
    }

    fn stat(&self, name: &[u8]) -> Option<Stat> {
        let no_follow = AtFlags::SYMLINK_NOFOLLOW | AtFlags::NO_AUTOMOUNT;
        statat(&self.fd, name, no_follow).ok()
    }

    pub fn sync(&self) -> FsResult<()> {
        retry_on_intr(|| fsync(&self.fd)).map_err(refused)
    }
}

impl Batch {
    /// Goes to the position `from` if that is where the last call stopped: before the entry that was
    /// not taken, or after it.
    fn resume(&mut self, from: u64) -> bool {
        let found = [self.at, self.at + 1]
            .into_iter()
            .find(|&index| from != 0 && self.position(index) == Some(from));
        if let Some(index) = found {
            self.at = index;
        }
        found.is_some()
    }

    /// The position of an entry, or of the one after the last.
    fn position(&self, index: usize) -> Option<u64> {
        match index.checked_sub(1) {
            None => Some(self.start),
            Some(previous) => Some(self.entries.get(previous)?.next),
        }
    }

    /// Lists on after the last entry; `false` at the end.
    fn fill(&mut self, fd: &OwnedFd) -> rustix::io::Result<bool> {
        self.start = self.position(self.entries.len()).unwrap_or(self.start);
        self.entries.clear();
        self.names.clear();
        self.at = 0;
        let mut buf = Vec::<u8>::with_capacity(BATCH);
        let mut raw = RawDir::new(fd, buf.spare_capacity_mut());
        while let Some(entry) = raw.next() {
            let entry = entry?;
            let start = self.names.len();
            self.names.extend(entry.file_name().to_bytes());
            self.entries.push(Listed {
                inode: entry.ino(),
                file_type: entry.file_type(),
                next: entry.next_entry_cookie(),
                name: start..self.names.len(),
            });
            if raw.is_buffer_empty() {
                break;
            }
        }
        Ok(!self.entries.is_empty())
    }
}
