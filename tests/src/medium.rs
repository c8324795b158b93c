//! A medium with blocks that cannot be read, for processes: a FUSE file system with a few files in memory, of which reads
//! fail where they are told to.

use std::io::{self, IoSlice};
use std::ops::{ControlFlow, Range};
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::time::Duration;

use anteros_core::{
    Attr, Changes, DirEntry, FileKind, FilePosition, FileSystem, FsError, FsResult, Ino, New,
    OpenFile, Rdev, Seek, StatFs, Timestamp, Writable,
};
use rustix::fs::FallocateFlags;
use rustix::io::Errno;

const ROOT: Ino = Ino(1);

struct Medial {
    name: String,
    bytes: Vec<u8>,
    /// The range that cannot be read until all of it is written, or the medium is healed.
    bad: Option<Range<u64>>,
}

/// Files on a medium; everyone may read and write them, and nothing else.
pub struct Medium {
    files: RwLock<Vec<Medial>>,
}

impl Medium {
    /// A medium with files of these names.
    pub fn new<'a>(files: impl IntoIterator<Item = (&'a str, Vec<u8>)>) -> Arc<Self> {
        let file = |(name, bytes): (&str, Vec<u8>)| Medial {
            name: name.to_owned(),
            bytes,
            bad: None,
        };
        let files = files.into_iter().map(file).collect();
        Arc::new(Self {
            files: RwLock::new(files),
        })
    }

    /// Lets a range of a file be unreadable until the whole of it is written.
    pub fn scratch(&self, name: &str, range: Range<u64>) {
        self.file(name, |file| file.bad = Some(range));
    }

    /// Lets all be readable.
    pub fn heal(&self) {
        self.change().iter_mut().for_each(|file| file.bad = None);
    }

    /// Puts other content into a file, all of it readable.
    pub fn fill(&self, name: &str, bytes: &[u8]) {
        self.file(name, |file| {
            (file.bytes, file.bad) = (bytes.to_vec(), None);
        });
    }

    /// The content of a file.
    pub fn bytes(&self, name: &str) -> Vec<u8> {
        let mut found = Vec::new();
        self.file(name, |file| found.clone_from(&file.bytes));
        found
    }

    fn file(&self, name: &str, call: impl FnOnce(&mut Medial)) {
        self.change()
            .iter_mut()
            .find(|file| file.name == name)
            .map(call);
    }

    fn look(&self) -> RwLockReadGuard<'_, Vec<Medial>> {
        self.files.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn change(&self) -> RwLockWriteGuard<'_, Vec<Medial>> {
        self.files.write().unwrap_or_else(PoisonError::into_inner)
    }

    fn with<T>(&self, ino: Ino, call: impl FnOnce(&mut Medial) -> FsResult<T>) -> FsResult<T> {
        let mut files = self.change();
        let at = ino.0.checked_sub(2).ok_or(FsError::IsDirectory)?;
        call(files.get_mut(at as usize).ok_or(FsError::NotFound)?)
    }
}

impl Medial {
    fn write(&mut self, offset: u64, data: &[u8]) -> usize {
        let (start, end) = (offset as usize, offset as usize + data.len());
        if self.bytes.len() < end {
            self.bytes.resize(end, 0);
        }
        self.bytes[start..end].copy_from_slice(data);
        self.written(offset..end as u64);
        data.len()
    }

    /// A block that is written is given another place by the medium.
    fn written(&mut self, range: Range<u64>) {
        let bad = self.bad.take();
        self.bad = bad.filter(|bad| bad.start < range.start || bad.end > range.end);
    }

    fn zero(&mut self, range: Range<u64>) {
        let end = (range.end as usize).min(self.bytes.len());
        let start = (range.start as usize).min(end);
        self.bytes[start..end].fill(0);
        self.written(range);
    }
}

impl FileSystem for Medium {
    fn root(&self) -> Ino {
        ROOT
    }

    fn lookup(&self, _parent: Ino, name: &[u8]) -> FsResult<Attr> {
        let at = self
            .look()
            .iter()
            .position(|file| file.name.as_bytes() == name);
        self.getattr(Ino(2 + at.ok_or(FsError::NotFound)? as u64))
    }

    fn getattr(&self, ino: Ino) -> FsResult<Attr> {
        let (kind, perm, size) = match ino {
            ROOT => (FileKind::Directory, 0o777, 0),
            ino => self.with(ino, |file| {
                Ok((FileKind::Regular, 0o666, file.bytes.len() as u64))
            })?,
        };
        let never = Timestamp::default();
        Ok(Attr {
            ino,
            kind,
            perm,
            nlink: 1,
            uid: rustix::process::geteuid().as_raw(),
            gid: rustix::process::getegid().as_raw(),
            rdev: Rdev::default(),
            size,
            blocks: size.div_ceil(512),
            block_size: 4096,
            atime: never,
            mtime: never,
            ctime: never,
        })
    }

    fn readdir(
        &self,
        _ino: Ino,
        from: u64,
        visit: &mut dyn FnMut(DirEntry<'_>) -> ControlFlow<()>,
    ) -> FsResult<()> {
        for (at, file) in self.look().iter().enumerate().skip(from as usize) {
            let entry = DirEntry {
                ino: Ino(2 + at as u64),
                kind: FileKind::Regular,
                next: at as u64 + 1,
                name: file.name.as_bytes(),
            };
            if visit(entry).is_break() {
                break;
            }
        }
        Ok(())
    }

    fn readlink(&self, _ino: Ino) -> FsResult<Vec<u8>> {
        Err(FsError::Invalid)
    }

    fn read(&self, ino: Ino, offset: u64, buf: &mut [u8]) -> FsResult<usize> {
        self.with(ino, |file| {
            let rest = file.bytes.get(offset as usize..).unwrap_or_default();
            let len = rest.len().min(buf.len());
            let end = offset + len as u64;
            if file
                .bad
                .as_ref()
                .is_some_and(|bad| bad.start < end && offset < bad.end)
            {
                return Err(FsError::Host(Errno::IO.into()));
            }
            buf[..len].copy_from_slice(&rest[..len]);
            Ok(len)
        })
    }

    fn seek(&self, ino: Ino, offset: u64, what: Seek) -> FsResult<u64> {
        let size = self.getattr(ino)?.size;
        match what {
            _ if offset >= size => Err(FsError::BeyondEnd),
            Seek::Data => Ok(offset),
            Seek::Hole => Ok(size),
        }
    }

    fn getxattr(&self, _ino: Ino, _name: &[u8]) -> FsResult<Vec<u8>> {
        Err(FsError::NoData)
    }

    fn listxattr(&self, _ino: Ino) -> FsResult<Vec<Vec<u8>>> {
        Ok(Vec::new())
    }

    fn statfs(&self) -> FsResult<StatFs> {
        Ok(StatFs {
            block_size: 4096,
            blocks: 1 << 20,
            blocks_free: 1 << 19,
            blocks_available: 1 << 19,
            files: 100,
            files_free: 0,
            name_max: 255,
        })
    }

    fn writable(&self) -> Option<&dyn Writable> {
        Some(self)
    }
}

impl Writable for Medium {
    fn trusted_for(&self) -> Duration {
        Duration::ZERO
    }

    fn forget(&self, _ino: Ino, _times: u64) {}

    fn open(&self, _ino: Ino, _flags: u32) -> FsResult<u64> {
        Ok(0)
    }

    fn release(&self, _file: OpenFile) {}

    fn read_open(&self, file: OpenFile, offset: u64, buf: &mut [u8]) -> FsResult<usize> {
        self.read(file.ino, offset, buf)
    }

    fn write(&self, file: OpenFile, offset: u64, data: &[u8], _: bool) -> FsResult<usize> {
        self.with(file.ino, |file| Ok(file.write(offset, data)))
    }

    fn write_pieces(
        &self,
        file: OpenFile,
        offset: u64,
        pieces: &[IoSlice<'_>],
        _: bool,
    ) -> FsResult<usize> {
        let data: Vec<u8> = pieces
            .iter()
            .flat_map(|piece| piece.iter().copied())
            .collect();
        self.write(file, offset, &data, false)
    }

    fn flush(&self, _file: OpenFile) -> FsResult<()> {
        Ok(())
    }

    fn fsync(&self, _file: OpenFile, _data_only: bool) -> FsResult<()> {
        Ok(())
    }

    fn seek_open(&self, file: OpenFile, offset: u64, what: Seek) -> FsResult<u64> {
        self.seek(file.ino, offset, what)
    }

    fn allocate(&self, file: OpenFile, offset: u64, len: u64, mode: u32) -> FsResult<()> {
        let mode = FallocateFlags::from_bits_retain(mode);
        let range = offset..offset + len;
        self.with(file.ino, |file| {
            if mode.intersects(FallocateFlags::PUNCH_HOLE | FallocateFlags::ZERO_RANGE) {
                file.zero(range);
            } else if !mode.contains(FallocateFlags::KEEP_SIZE)
                && file.bytes.len() < range.end as usize
            {
                file.bytes.resize(range.end as usize, 0);
            }
            Ok(())
        })
    }

    fn copy_range(&self, _from: FilePosition, _to: FilePosition, _len: u64) -> FsResult<u64> {
        Err(FsError::Unsupported)
    }

    fn change(&self, ino: Ino, _file: Option<OpenFile>, changes: &Changes) -> FsResult<Attr> {
        if let Some(size) = changes.size {
            self.with(ino, |file| {
                file.bytes.resize(size as usize, 0);
                Ok(())
            })?;
        }
        self.getattr(ino)
    }

    fn open_dir(&self, _ino: Ino) -> FsResult<u64> {
        Ok(0)
    }

    fn release_dir(&self, _dir: OpenFile) {}

    fn read_dir(
        &self,
        dir: OpenFile,
        from: u64,
        visit: &mut dyn FnMut(DirEntry<'_>) -> ControlFlow<()>,
    ) -> FsResult<()> {
        self.readdir(dir.ino, from, visit)
    }

    fn fsync_dir(&self, _dir: OpenFile) -> FsResult<()> {
        Ok(())
    }

    fn create(&self, _new: &New<'_>, _flags: u32) -> FsResult<(Attr, u64)> {
        refused()
    }

    fn create_unnamed(&self, _new: &New<'_>, _flags: u32) -> FsResult<(Attr, u64)> {
        refused()
    }

    fn make(&self, _new: &New<'_>, _rdev: Rdev) -> FsResult<Attr> {
        refused()
    }

    fn symlink(&self, _new: &New<'_>, _target: &[u8]) -> FsResult<Attr> {
        refused()
    }

    fn link(&self, _ino: Ino, _parent: Ino, _name: &[u8]) -> FsResult<Attr> {
        refused()
    }

    fn unlink(&self, _parent: Ino, _name: &[u8]) -> FsResult<()> {
        refused()
    }

    fn rmdir(&self, _parent: Ino, _name: &[u8]) -> FsResult<()> {
        refused()
    }

    fn rename(&self, _from: (Ino, &[u8]), _to: (Ino, &[u8]), _flags: u32) -> FsResult<()> {
        refused()
    }

    fn setxattr(&self, _ino: Ino, _name: &[u8], _value: &[u8], _flags: u32) -> FsResult<()> {
        refused()
    }

    fn removexattr(&self, _ino: Ino, _name: &[u8]) -> FsResult<()> {
        refused()
    }
}

fn refused<T>() -> FsResult<T> {
    Err(FsError::Host(io::Error::from(Errno::PERM)))
}
