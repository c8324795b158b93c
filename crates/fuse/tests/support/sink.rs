//! A file system with one file, which takes what is written and looks at how it came.

use std::ops::ControlFlow;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use anteros_core::{
    Attr, Changes, DirEntry, FileKind, FilePosition, FileSystem, FsError, FsResult, Ino, New,
    OpenFile, Payload, Rdev, Seek, StatFs, Timestamp, Writable,
};

const ROOT: Ino = Ino(1);
const FILE: Ino = Ino(2);

/// A write as it came: where it goes, where in memory it lay, and what it was.
#[derive(Debug, Clone)]
pub struct Arrival {
    pub offset: u64,
    pub addr: usize,
    pub content: Vec<u8>,
}

/// The file is called `sink`. Every other buffer is kept, as a write buffer would.
#[derive(Default)]
pub struct Sink {
    pub arrivals: Mutex<Vec<Arrival>>,
    /// Tells how often it was told that a write had been answered.
    pub handed_on: AtomicUsize,
    /// Bytes that the file seems to have, all of them zero.
    pub size: u64,
    /// Tells how many writes had come when it was last told to make them durable.
    pub durable: AtomicUsize,
    /// Tells of each write of what the kernel had kept whether the time of modification is to stay.
    pub keeps_mtime: Mutex<Vec<bool>>,
    kept: Mutex<Vec<Vec<u8>>>,
}

impl FileSystem for Sink {
    fn root(&self) -> Ino {
        ROOT
    }

    fn lookup(&self, _parent: Ino, name: &[u8]) -> FsResult<Attr> {
        match name {
            b"sink" => self.getattr(FILE),
            _ => Err(FsError::NotFound),
        }
    }

    fn getattr(&self, ino: Ino) -> FsResult<Attr> {
        let kind = match ino {
            ROOT => FileKind::Directory,
            _ => FileKind::Regular,
        };
        let never = Timestamp { secs: 0, nanos: 0 };
        Ok(Attr {
            ino,
            kind,
            perm: 0o755,
            nlink: 1,
            uid: 0,
            gid: 0,
            rdev: Rdev::default(),
            size: self.size,
            blocks: 0,
            block_size: 4096,
            atime: never,
            mtime: never,
            ctime: never,
        })
    }

    fn readdir(
        &self,
        _ino: Ino,
        _from: u64,
        _visit: &mut dyn FnMut(DirEntry<'_>) -> ControlFlow<()>,
    ) -> FsResult<()> {
        Ok(())
    }

    fn readlink(&self, _ino: Ino) -> FsResult<Vec<u8>> {
        Err(FsError::Invalid)
    }

    fn read(&self, _ino: Ino, offset: u64, buf: &mut [u8]) -> FsResult<usize> {
        let left = self.size.saturating_sub(offset);
        let len = buf.len().min(left as usize);
        buf[..len].fill(0);
        Ok(len)
    }

    fn seek(&self, _ino: Ino, _offset: u64, _what: Seek) -> FsResult<u64> {
        Err(FsError::Unsupported)
    }

    fn getxattr(&self, _ino: Ino, _name: &[u8]) -> FsResult<Vec<u8>> {
        Err(FsError::NoData)
    }

    fn listxattr(&self, _ino: Ino) -> FsResult<Vec<Vec<u8>>> {
        Ok(Vec::new())
    }

    fn statfs(&self) -> FsResult<StatFs> {
        Err(FsError::Unsupported)
    }

    fn writable(&self) -> Option<&dyn Writable> {
        Some(self)
    }
}

impl Writable for Sink {
    fn trusted_for(&self) -> Duration {
        Duration::ZERO
    }

    fn forget(&self, _ino: Ino, _times: u64) {}

    fn open(&self, _ino: Ino, _flags: u32) -> FsResult<u64> {
        Ok(0)
    }

    fn release(&self, _file: OpenFile) {}

    fn write_payload(
        &self,
        _file: OpenFile,
        offset: u64,
        payload: Payload<'_>,
        _drops_privileges: bool,
    ) -> FsResult<usize> {
        let mut arrivals = self.arrivals.lock().unwrap();
        let content = payload.bytes().to_vec();
        let written = content.len();
        arrivals.push(Arrival {
            offset,
            addr: payload.bytes().as_ptr().addr(),
            content,
        });
        if arrivals.len() % 2 == 0 {
            let other = Vec::with_capacity(payload.capacity());
            self.kept.lock().unwrap().push(payload.exchange(other).0);
        }
        Ok(written)
    }

    fn write_kept(
        &self,
        file: OpenFile,
        offset: u64,
        payload: Payload<'_>,
        drops_privileges: bool,
        keeps_mtime: bool,
    ) -> FsResult<usize> {
        self.keeps_mtime.lock().unwrap().push(keeps_mtime);
        self.write_payload(file, offset, payload, drops_privileges)
    }

    fn hand_on(&self, ino: Ino) {
        assert_eq!(ino, FILE);
        self.handed_on.fetch_add(1, Ordering::SeqCst);
    }

    fn flush(&self, _file: OpenFile) -> FsResult<()> {
        Ok(())
    }

    fn change(&self, ino: Ino, _file: Option<OpenFile>, _changes: &Changes) -> FsResult<Attr> {
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

    fn write(&self, _: OpenFile, _: u64, _: &[u8], _: bool) -> FsResult<usize> {
        Err(FsError::Unsupported)
    }

    fn create(&self, _new: &New<'_>, _flags: u32) -> FsResult<(Attr, u64)> {
        Err(FsError::Unsupported)
    }

    fn create_unnamed(&self, _new: &New<'_>, _flags: u32) -> FsResult<(Attr, u64)> {
        Err(FsError::Unsupported)
    }

    fn read_open(&self, file: OpenFile, offset: u64, buf: &mut [u8]) -> FsResult<usize> {
        self.read(file.ino, offset, buf)
    }

    fn fsync(&self, _file: OpenFile, _data_only: bool) -> FsResult<()> {
        let count = self.arrivals.lock().unwrap().len();
        self.durable.fetch_max(count, Ordering::SeqCst);
        Ok(())
    }

    fn seek_open(&self, _file: OpenFile, _offset: u64, _what: Seek) -> FsResult<u64> {
        Err(FsError::Unsupported)
    }

    fn allocate(&self, _file: OpenFile, _offset: u64, _len: u64, _mode: u32) -> FsResult<()> {
        Err(FsError::Unsupported)
    }

    fn copy_range(&self, _from: FilePosition, _to: FilePosition, _len: u64) -> FsResult<u64> {
        Err(FsError::Unsupported)
    }

    fn make(&self, _new: &New<'_>, _rdev: Rdev) -> FsResult<Attr> {
        Err(FsError::Unsupported)
    }

    fn symlink(&self, _new: &New<'_>, _target: &[u8]) -> FsResult<Attr> {
        Err(FsError::Unsupported)
    }

    fn link(&self, _ino: Ino, _parent: Ino, _name: &[u8]) -> FsResult<Attr> {
        Err(FsError::Unsupported)
    }

    fn unlink(&self, _parent: Ino, _name: &[u8]) -> FsResult<()> {
        Err(FsError::Unsupported)
    }

    fn rmdir(&self, _parent: Ino, _name: &[u8]) -> FsResult<()> {
        Err(FsError::Unsupported)
    }

    fn rename(&self, _from: (Ino, &[u8]), _to: (Ino, &[u8]), _flags: u32) -> FsResult<()> {
        Err(FsError::Unsupported)
    }

    fn setxattr(&self, _ino: Ino, _name: &[u8], _value: &[u8], _flags: u32) -> FsResult<()> {
        Err(FsError::Unsupported)
    }

    fn removexattr(&self, _ino: Ino, _name: &[u8]) -> FsResult<()> {
        Err(FsError::Unsupported)
    }

    fn fsync_dir(&self, _dir: OpenFile) -> FsResult<()> {
        Ok(())
    }
}
