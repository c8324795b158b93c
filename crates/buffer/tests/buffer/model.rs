//! A file system in memory that fails, waits and panics when it is told to, and counts.

use std::collections::{BTreeMap, HashMap};
use std::io::{self, IoSlice};
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anteros_core::{
    Attr, Changes, DirEntry, FileKind, FilePosition, FileSystem, FsError, FsResult, Ino, New,
    OpenFile, Rdev, Seek, SetTime, StatFs, Timestamp, Writable,
};
use rustix::fs::OFlags;

pub const ROOT: Ino = Ino(1);
pub const EIO: i32 = 5;
pub const ENOSPC: i32 = 28;
pub const APPEND: OFlags = OFlags::RDWR.union(OFlags::APPEND);

#[derive(Default, Clone)]
struct File {
    data: Vec<u8>,
    perm: u16,
    mtime: i64,
    known: i64,
    xattrs: BTreeMap<Vec<u8>, Vec<u8>>,
}

#[derive(Default)]
struct State {
    files: BTreeMap<u64, File>,
    names: BTreeMap<Vec<u8>, u64>,
    opens: HashMap<u64, (u64, OFlags)>,
    next: u64,
    clock: i64,
    /// After so many more bytes, writes fail with this number; as often as said.
    failure: Option<(usize, i32, u32)>,
    writing: Vec<u64>,
}

#[derive(Default)]
pub struct Model {
    state: Mutex<State>,
    shut: Mutex<bool>,
    opened: Condvar,
    /// Free bytes; `u64::MAX / 2` for plenty.
    pub free: AtomicU64,
    pub panics: AtomicBool,
    pub writes: Arc<AtomicU64>,
    pub fsyncs: AtomicU64,
    pub stats: AtomicU64,
    pub short: AtomicBool,
    /// Writes that wait at the gate, or are through.
    pub entered: AtomicU64,
    /// Tells where in memory what was written lay, and how long it was.
    pieces: Mutex<Vec<(usize, usize)>>,
}

pub fn host(number: i32) -> FsError {
    FsError::Host(io::Error::from_raw_os_error(number))
}

pub fn number<T: std::fmt::Debug>(result: FsResult<T>) -> i32 {
    match result {
        Err(FsError::Host(error)) => error.raw_os_error().unwrap(),
        other => panic!("no error of the host: {other:?}"),
    }
}

impl Model {
    pub fn new() -> Self {
        let model = Self::default();
        model.free.store(1 << 40, Ordering::SeqCst);
        model.state().next = 2;
        model
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Writes wait from now on, or go on.
    pub fn gate(&self, shut: bool) {
        *self.shut.lock().unwrap() = shut;
        self.opened.notify_all();
    }

    pub fn fail(&self, after: usize, number: i32, times: u32) {
        self.state().failure = Some((after, number, times));
    }

    pub fn content(&self, ino: Ino) -> Vec<u8> {
        self.state().files[&ino.0].data.clone()
    }

    pub fn perm(&self, ino: Ino) -> u16 {
        self.state().files[&ino.0].perm
    }

    pub fn known(&self, ino: Ino) -> i64 {
        self.state().files[&ino.0].known
    }

    pub fn pieces(&self) -> Vec<(usize, usize)> {
        self.pieces.lock().unwrap().clone()
    }

    pub fn write_count(&self) -> u64 {
        self.writes.load(Ordering::SeqCst)
    }

    /// Changes a file from outside.
    pub fn grow_outside(&self, ino: Ino, data: &[u8]) {
        let mut state = self.state();
        state
            .files
            .get_mut(&ino.0)
            .unwrap()
            .data
            .extend_from_slice(data);
    }
}

impl State {
    fn attr(&self, ino: u64) -> FsResult<Attr> {
        let file = self.files.get(&ino).ok_or(FsError::NotFound)?;
        let time = Timestamp {
            secs: file.mtime,
            nanos: 0,
        };
        Ok(Attr {
            ino: Ino(ino),
            kind: FileKind::Regular,
            perm: file.perm,
            nlink: 1,
            uid: 0,
            gid: 0,
            rdev: Rdev::default(),
            size: file.data.len() as u64,
            blocks: (file.data.len() as u64).div_ceil(512),
            block_size: 4096,
            atime: time,
            mtime: time,
            ctime: time,
        })
    }

    fn touch(&mut self, ino: u64) -> &mut File {
        self.clock += 1;
        let clock = self.clock;
        let file = self.files.get_mut(&ino).unwrap();
        file.mtime = clock;
        file
    }

    fn named(&mut self, name: &[u8]) -> FsResult<Attr> {
        let ino = *self.names.get(name).ok_or(FsError::NotFound)?;
        self.files.get_mut(&ino).unwrap().known += 1;
        self.attr(ino)
    }

    fn add_open(&mut self, ino: u64, flags: OFlags) -> u64 {
        if flags.contains(OFlags::TRUNC) {
            self.touch(ino).data.clear();
        }
        self.next += 1;
        self.opens.insert(self.next, (ino, flags));
        self.next
    }

    /// Returns how many of so many bytes go well, before an injected failure.
    fn allowed(&mut self, len: usize) -> FsResult<usize> {
        let Some((after, number, times)) = &mut self.failure else {
            return Ok(len);
        };
        if *after > 0 {
            let allowed = len.min(*after);
            *after -= allowed;
            return Ok(allowed);
        }
        let error = host(*number);
        *times -= 1;
        if *times == 0 {
            self.failure = None;
        }
        Err(error)
    }
}

impl FileSystem for Model {
    fn root(&self) -> Ino {
        ROOT
    }

    fn lookup(&self, _parent: Ino, name: &[u8]) -> FsResult<Attr> {
        self.state().named(name)
    }

    fn getattr(&self, ino: Ino) -> FsResult<Attr> {
        self.stats.fetch_add(1, Ordering::SeqCst);
        self.state().attr(ino.0)
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

    fn read(&self, ino: Ino, offset: u64, buf: &mut [u8]) -> FsResult<usize> {
        let state = self.state();
        let data = &state.files[&ino.0].data;
        let rest = data.get(offset as usize..).unwrap_or_default();
        let len = rest.len().min(buf.len());
        buf[..len].copy_from_slice(&rest[..len]);
        Ok(len)
    }

    fn seek(&self, ino: Ino, offset: u64, what: Seek) -> FsResult<u64> {
        let size = self.state().files[&ino.0].data.len() as u64;
        match what {
            _ if offset >= size => Err(FsError::BeyondEnd),
            Seek::Data => Ok(offset),
            Seek::Hole => Ok(size),
        }
    }

    fn getxattr(&self, ino: Ino, name: &[u8]) -> FsResult<Vec<u8>> {
        let state = self.state();
        let value = state.files[&ino.0].xattrs.get(name);
        value.cloned().ok_or(FsError::NoData)
    }

    fn listxattr(&self, ino: Ino) -> FsResult<Vec<Vec<u8>>> {
        Ok(self.state().files[&ino.0].xattrs.keys().cloned().collect())
    }

    fn statfs(&self) -> FsResult<StatFs> {
        let free = self.free.load(Ordering::SeqCst) / 4096;
        Ok(StatFs {
            block_size: 4096,
            blocks: 1 << 40,
            blocks_free: free,
            blocks_available: free,
            files: 0,
            files_free: 0,
            name_max: 255,
        })
    }

    fn writable(&self) -> Option<&dyn Writable> {
        Some(self)
    }
}

impl Writable for Model {
    fn lookup_listed(&self, parent: Ino, name: &[u8]) -> Option<Attr> {
        self.lookup(parent, name).ok()
    }

    fn trusted_for(&self) -> Duration {
        Duration::from_secs(1)
    }

    fn forget(&self, ino: Ino, times: u64) {
        self.state().files.get_mut(&ino.0).unwrap().known -= times as i64;
    }

    fn open(&self, ino: Ino, flags: u32) -> FsResult<u64> {
        let mut state = self.state();
        state.attr(ino.0)?;
        Ok(state.add_open(ino.0, OFlags::from_bits_retain(flags)))
    }

    fn create(&self, new: &New<'_>, flags: u32) -> FsResult<(Attr, u64)> {
        let mut state = self.state();
        if !state.names.contains_key(new.name) {
            state.next += 1;
            let ino = state.next;
            state.names.insert(new.name.to_vec(), ino);
            let perm = new.mode as u16;
            state.files.insert(
                ino,
                File {
                    perm,
                    ..File::default()
                },
            );
        }
        let ino = state.named(new.name)?.ino;
        let handle = state.add_open(ino.0, OFlags::from_bits_retain(flags));
        Ok((state.attr(ino.0)?, handle))
    }

    fn create_unnamed(&self, _new: &New<'_>, _flags: u32) -> FsResult<(Attr, u64)> {
        Err(FsError::Unsupported)
    }

    fn release(&self, file: OpenFile) {
        let open = self.state().opens.remove(&file.handle);
        assert_eq!(open.map(|(ino, _)| ino), Some(file.ino.0));
    }

    fn read_open(&self, file: OpenFile, offset: u64, buf: &mut [u8]) -> FsResult<usize> {
        assert!(self.state().opens.contains_key(&file.handle));
        self.read(file.ino, offset, buf)
    }

    fn write_pieces(
        &self,
        file: OpenFile,
        offset: u64,
        pieces: &[IoSlice<'_>],
        drops_privileges: bool,
    ) -> FsResult<usize> {
        let places = pieces.iter().map(|p| (p.as_ptr().addr(), p.len()));
        self.pieces.lock().unwrap().extend(places);
        let data: Vec<u8> = pieces.iter().flat_map(|piece| piece.to_vec()).collect();
        self.write(file, offset, &data, drops_privileges)
    }

    fn write(
        &self,
        file: OpenFile,
        offset: u64,
        data: &[u8],
        drops_privileges: bool,
    ) -> FsResult<usize> {
        {
            let mut state = self.state();
            assert!(!state.writing.contains(&file.ino.0), "two writes at once");
            state.writing.push(file.ino.0);
        }
        self.entered.fetch_add(1, Ordering::SeqCst);
        let shut = self.shut.lock().unwrap();
        drop(self.opened.wait_while(shut, |shut| *shut).unwrap());
        self.writes.fetch_add(1, Ordering::SeqCst);
        let mut state = self.state();
        state.writing.retain(|&ino| ino != file.ino.0);
        if self.panics.load(Ordering::SeqCst) {
            drop(state);
            panic!("told to");
        }
        let (ino, flags) = state.opens[&file.handle];
        assert_eq!(ino, file.ino.0);
        if !flags.intersects(OFlags::WRONLY | OFlags::RDWR) {
            return Err(host(9));
        }
        let mut len = state.allowed(data.len())?;
        if self.short.load(Ordering::SeqCst) {
            len = len.min(1000);
        }
        let free = self.free.load(Ordering::SeqCst);
        let file = state.touch(ino);
        let start = if flags.contains(OFlags::APPEND) {
            file.data.len()
        } else {
            offset as usize
        };
        let grows = (start + len).saturating_sub(file.data.len()) as u64;
        if grows > free {
            return Err(host(ENOSPC));
        }
        self.free.fetch_sub(grows, Ordering::SeqCst);
        if file.data.len() < start + len {
            file.data.resize(start + len, 0);
        }
        file.data[start..start + len].copy_from_slice(&data[..len]);
        if drops_privileges {
            file.perm &= 0o777;
            file.xattrs.remove(&b"security.capability"[..]);
        }
        Ok(len)
    }

    fn flush(&self, _file: OpenFile) -> FsResult<()> {
        Ok(())
    }

    fn fsync(&self, _file: OpenFile, _data_only: bool) -> FsResult<()> {
        self.fsyncs.fetch_add(1, Ordering::SeqCst);
        Ok(())
    }

    fn seek_open(&self, file: OpenFile, offset: u64, what: Seek) -> FsResult<u64> {
        self.seek(file.ino, offset, what)
    }

    /// Adds zeros at the end, or nothing with `FALLOC_FL_KEEP_SIZE`.
    fn allocate(&self, file: OpenFile, offset: u64, len: u64, mode: u32) -> FsResult<()> {
        let mut state = self.state();
        let file = state.touch(file.ino.0);
        let end = (offset + len) as usize;
        if mode == 0 && file.data.len() < end {
            file.data.resize(end, 0);
        }
        Ok(())
    }

    fn copy_range(&self, from: FilePosition, to: FilePosition, len: u64) -> FsResult<u64> {
        let mut state = self.state();
        let source = &state.files[&from.file.ino.0].data;
        let rest = source.get(from.offset as usize..).unwrap_or_default();
        let copied = rest[..rest.len().min(len as usize)].to_vec();
        let target = &mut state.touch(to.file.ino.0).data;
        let start = to.offset as usize;
        if !copied.is_empty() && target.len() < start + copied.len() {
            target.resize(start + copied.len(), 0);
        }
        if !copied.is_empty() {
            target[start..start + copied.len()].copy_from_slice(&copied);
        }
        Ok(copied.len() as u64)
    }

    fn change(&self, ino: Ino, file: Option<OpenFile>, changes: &Changes) -> FsResult<Attr> {
        let mut state = self.state();
        if let Some(file) = file {
            assert_eq!(state.opens[&file.handle].0, ino.0);
        }
        let file = state.touch(ino.0);
        if let Some(size) = changes.size {
            file.data.resize(size as usize, 0);
        }
        if let Some(perm) = changes.perm {
            file.perm = perm;
        }
        if let Some(SetTime::At(time)) = changes.mtime {
            file.mtime = time.secs;
        }
        state.attr(ino.0)
    }

    fn make(&self, _new: &New<'_>, _rdev: Rdev) -> FsResult<Attr> {
        Err(FsError::Unsupported)
    }

    fn symlink(&self, _new: &New<'_>, _target: &[u8]) -> FsResult<Attr> {
        Err(FsError::Unsupported)
    }

    fn link(&self, ino: Ino, _parent: Ino, name: &[u8]) -> FsResult<Attr> {
        let mut state = self.state();
        state.names.insert(name.to_vec(), ino.0);
        state.named(name)
    }

    fn unlink(&self, _parent: Ino, name: &[u8]) -> FsResult<()> {
        // The inode stays: someone may have it open.
        let removed = self.state().names.remove(name);
        removed.map(drop).ok_or(FsError::NotFound)
    }

    fn rmdir(&self, _parent: Ino, _name: &[u8]) -> FsResult<()> {
        Err(FsError::Unsupported)
    }

    fn rename(&self, from: (Ino, &[u8]), to: (Ino, &[u8]), _flags: u32) -> FsResult<()> {
        let mut state = self.state();
        let ino = state.names.remove(from.1).ok_or(FsError::NotFound)?;
        state.names.insert(to.1.to_vec(), ino);
        Ok(())
    }

    fn setxattr(&self, ino: Ino, name: &[u8], value: &[u8], _flags: u32) -> FsResult<()> {
        let mut state = self.state();
        let file = state.files.get_mut(&ino.0).unwrap();
        file.xattrs.insert(name.to_vec(), value.to_vec());
        Ok(())
    }

    fn removexattr(&self, ino: Ino, name: &[u8]) -> FsResult<()> {
        let mut state = self.state();
        let removed = state.files.get_mut(&ino.0).unwrap().xattrs.remove(name);
        removed.map(drop).ok_or(FsError::NoData)
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
}

/// Makes a file, or opens the one that is there.
pub fn create(fs: &impl Writable, name: &str, flags: OFlags) -> OpenFile {
    let new = New {
        parent: ROOT,
        name: name.as_bytes(),
        mode: 0o644,
        umask: 0,
        caller: Default::default(),
    };
    let (attr, handle) = fs.create(&new, flags.bits()).unwrap();
    OpenFile {
        ino: attr.ino,
        handle,
    }
}

pub fn open(fs: &impl Writable, ino: Ino, flags: OFlags) -> OpenFile {
    let handle = fs.open(ino, flags.bits()).unwrap();
    OpenFile { ino, handle }
}

/// Numbers from a seed, Xorshift (Marsaglia 2003).
pub struct Numbers(pub u64);

impl Numbers {
    /// Below `limit`.
    pub fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % limit
    }

    pub fn bytes(&mut self, len: usize) -> Vec<u8> {
        (0..len).map(|_| self.below(256) as u8).collect()
    }
}
