//! A small file system in memory with something of everything, for the tests and the example. Each of
//! them uses a part of it.
#![allow(dead_code)]

use std::collections::BTreeMap;
use std::io;
use std::ops::{ControlFlow, Range};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Condvar, Mutex};

use anteros_core::{
    Attr, DirEntry, FileKind, FileSystem, FsError, FsResult, Ino, Rdev, Seek, StatFs, Timestamp,
};

/// The root; the kernel's own name for it, 1, belongs to a file here.
pub const ROOT: Ino = Ino(36);
/// The first file of the directory `crowd`.
const CROWD: u64 = 1_000_000;
/// Positions in a directory are multiples of this: far apart, and beyond 32 bits in a large one.
pub const STEP: u64 = 1 << 20;
const NO_HOLE: Range<u64> = 0..0;
/// An ACL: owner rw, user 65534 read, group none, mask read, others none.
pub const ACL: &[u8] = b"\x02\0\0\0\
    \x01\0\x06\0\xff\xff\xff\xff\
    \x02\0\x04\0\xfe\xff\0\0\
    \x04\0\0\0\xff\xff\xff\xff\
    \x10\0\x04\0\xff\xff\xff\xff\
    \x20\0\0\0\xff\xff\xff\xff";

enum Content {
    /// Bytes, of which this range, unless it is empty, is a hole.
    File(Vec<u8>, Range<u64>),
    Directory(Vec<(Vec<u8>, Ino)>, BTreeMap<Vec<u8>, Ino>),
    Symlink(Vec<u8>),
    Device(Rdev),
    /// Reading it fails with this error.
    Broken(fn() -> FsError),
    /// Reading it panics.
    Bug,
    /// Reading it waits at the gate; it is empty.
    Gated,
}

struct Node {
    content: Content,
    perm: u16,
    xattrs: Vec<(Vec<u8>, Vec<u8>)>,
}

/// A tree of nodes, and counts of what was asked.
pub struct MemoryFs {
    nodes: BTreeMap<Ino, Node>,
    /// Calls of `lookup`.
    pub lookups: AtomicUsize,
    /// Calls of `read`.
    pub reads: AtomicUsize,
    /// The most bytes that a `read` asked for.
    pub read_len_max: AtomicUsize,
    /// Tells where readers of `gated` wait.
    pub gate: Gate,
    /// Holds what `big` contains, if the file system has memory files.
    lent: Option<OwnedFd>,
    /// Has it say that there are no extended attributes.
    pub hides_xattrs: AtomicBool,
}

/// A gate, open at first, and those who wait before it.
#[derive(Default)]
pub struct Gate {
    state: Mutex<(bool, usize)>,
    changed: Condvar,
}

impl Gate {
    /// Closes or opens it.
    pub fn close(&self, closed: bool) {
        self.state.lock().unwrap().0 = closed;
        self.changed.notify_all();
    }

    /// Returns when so many wait.
    pub fn await_waiting(&self, count: usize) {
        let state = self.state.lock().unwrap();
        drop(
            self.changed
                .wait_while(state, |state| state.1 != count)
                .unwrap(),
        );
    }

    fn pass(&self) {
        let mut state = self.state.lock().unwrap();
        state.1 += 1;
        self.changed.notify_all();
        state = self.changed.wait_while(state, |state| state.0).unwrap();
        state.1 -= 1;
    }
}

impl MemoryFs {
    /// The tree of which the tests know every leaf, with `crowd` files in the directory `crowd`.
    pub fn sample(crowd: u64) -> Self {
        let mut fs = Self {
            nodes: BTreeMap::new(),
            lookups: AtomicUsize::new(0),
            reads: AtomicUsize::new(0),
            read_len_max: AtomicUsize::new(0),
            gate: Gate::default(),
            lent: None,
            hides_xattrs: AtomicBool::new(false),
        };
        let names = [
            ("hello", 1),
            ("zero", 0),
            ("high", 1 << 63 | 5),
            ("big", 40),
            ("sparse", 41),
            ("link", 42),
            ("null", 43),
            ("corrupt", 44),
            ("unreadable", 45),
            ("bug", 46),
            ("secret", 47),
            ("lost", 404),
            ("tail", 48),
            ("gated", 49),
            ("crowd", 50),
            ("nowhere", u64::MAX),
        ];
        fs.directory(
            ROOT,
            ROOT,
            names.map(|(name, ino)| (name.into(), Ino(ino))).into(),
        );
        fs.add(1, 0o640, Content::File(b"hello, world\n".into(), NO_HOLE));
        fs.add(0, 0o644, Content::File(b"ino 0\n".into(), NO_HOLE));
        fs.add(
            1 << 63 | 5,
            0o644,
            Content::File(b"bit 63\n".into(), NO_HOLE),
        );
        fs.add(40, 0o4755, Content::File(pattern(5_000_001), NO_HOLE));
        let mut sparse = pattern(3 << 19);
        sparse[64 << 10..1 << 20].fill(0);
        fs.add(41, 0o644, Content::File(sparse, 64 << 10..1 << 20));
        fs.add(48, 0o644, Content::File(vec![0; 8192], 4096..8192));
        fs.add(42, 0o777, Content::Symlink(b"crowd/../hello".into()));
        fs.add(43, 0o666, Content::Device(Rdev { major: 1, minor: 3 }));
        fs.add(
            44,
            0o644,
            Content::Broken(|| FsError::Corrupt("inode 44: of course".into())),
        );
        fs.add(
            45,
            0o644,
            Content::Broken(|| io::Error::from(io::ErrorKind::UnexpectedEof).into()),
        );
        fs.add(46, 0o644, Content::Bug);
        fs.add(49, 0o644, Content::Gated);
        fs.add(47, 0o600, Content::File(b"for root\n".into(), NO_HOLE));
        fs.add(u64::MAX, 0o644, Content::File(vec![], NO_HOLE));
        let crowd: Vec<_> = (0..crowd)
            .map(|i| (crowd_name(i), Ino(CROWD + i)))
            .collect();
        for (_, ino) in &crowd {
            fs.add(
                ino.0,
                0o644,
                Content::File(ino.0.to_string().into(), NO_HOLE),
            );
        }
        fs.directory(Ino(50), ROOT, crowd);
        fs.nodes.get_mut(&Ino(1)).unwrap().xattrs = vec![
            (b"user.colour".into(), b"blue".into()),
            (b"user.empty".into(), vec![]),
            (b"system.posix_acl_access".into(), ACL.into()),
        ];
        fs
    }

    /// The sample, with the content of `big` in a memory file.
    pub fn lending(crowd: u64) -> Self {
        let file = rustix::fs::memfd_create("big", rustix::fs::MemfdFlags::CLOEXEC).unwrap();
        rustix::io::write(&file, &pattern(5_000_001)).unwrap();
        Self {
            lent: Some(file),
            ..Self::sample(crowd)
        }
    }

    fn add(&mut self, ino: u64, perm: u16, content: Content) {
        self.nodes.insert(
            Ino(ino),
            Node {
                content,
                perm,
                xattrs: vec![],
            },
        );
    }

    fn directory(&mut self, ino: Ino, parent: Ino, names: Vec<(Vec<u8>, Ino)>) {
        let index = names.iter().cloned().collect();
        let dots = [(b".".to_vec(), ino), (b"..".to_vec(), parent)];
        let listing = dots.into_iter().chain(names).collect();
        self.add(ino.0, 0o755, Content::Directory(listing, index));
    }

    fn node(&self, ino: Ino) -> FsResult<&Node> {
        self.nodes.get(&ino).ok_or(FsError::NotFound)
    }

    fn file(&self, ino: Ino) -> FsResult<(&[u8], &Range<u64>)> {
        match &self.node(ino)?.content {
            Content::File(bytes, hole) => Ok((bytes, hole)),
            Content::Broken(error) => Err(error()),
            Content::Bug => panic!("inode 46 does this"),
            Content::Gated => Ok((&[], &NO_HOLE)),
            Content::Directory(..) => Err(FsError::IsDirectory),
            _ => Err(FsError::Invalid),
        }
    }

    fn kind(&self, ino: Ino) -> FileKind {
        match self.node(ino).map(|node| &node.content) {
            Ok(Content::Directory(..)) => FileKind::Directory,
            Ok(Content::Symlink(_)) => FileKind::Symlink,
            Ok(Content::Device(_)) => FileKind::CharDevice,
            _ => FileKind::Regular,
        }
    }
}

/// The name of the `i`th file in `crowd`.
pub fn crowd_name(i: u64) -> Vec<u8> {
    format!("file-{i:06}{}", "~".repeat((i % 97) as usize)).into()
}

/// Bytes that say where they are.
pub fn pattern(len: u32) -> Vec<u8> {
    (0..len)
        .map(|i| (i.wrapping_mul(2_654_435_761) >> 24) as u8)
        .collect()
}

impl FileSystem for MemoryFs {
    fn root(&self) -> Ino {
        ROOT
    }

    fn lookup(&self, parent: Ino, name: &[u8]) -> FsResult<Attr> {
        self.lookups.fetch_add(1, Ordering::Relaxed);
        match &self.node(parent)?.content {
            Content::Directory(_, index) => {
                self.getattr(*index.get(name).ok_or(FsError::NotFound)?)
            }
            _ => Err(FsError::NotDirectory),
        }
    }

    fn getattr(&self, ino: Ino) -> FsResult<Attr> {
        let node = self.node(ino)?;
        let (size, rdev) = match &node.content {
            Content::File(bytes, _) => (bytes.len() as u64, Rdev::default()),
            Content::Directory(listing, _) => (listing.len() as u64, Rdev::default()),
            Content::Symlink(target) => (target.len() as u64, Rdev::default()),
            Content::Device(rdev) => (0, *rdev),
            Content::Broken(_) | Content::Bug | Content::Gated => (4096, Rdev::default()),
        };
        let time = Timestamp {
            secs: -1,
            nanos: 250_000_000,
        };
        Ok(Attr {
            ino,
            kind: self.kind(ino),
            perm: node.perm,
            nlink: 1,
            uid: 0,
            gid: 0,
            rdev,
            size,
            blocks: size.div_ceil(512),
            block_size: 4096,
            atime: time,
            mtime: time,
            ctime: time,
        })
    }

    fn readdir(
        &self,
        ino: Ino,
        from: u64,
        visit: &mut dyn FnMut(DirEntry<'_>) -> ControlFlow<()>,
    ) -> FsResult<()> {
        let Content::Directory(listing, _) = &self.node(ino)?.content else {
            return Err(FsError::NotDirectory);
        };
        let first = (from / STEP) as usize;
        for (i, (name, ino)) in listing.iter().enumerate().skip(first) {
            let next = (i as u64 + 1) * STEP;
            if visit(DirEntry {
                ino: *ino,
                kind: self.kind(*ino),
                next,
                name,
            })
            .is_break()
            {
                break;
            }
        }
        Ok(())
    }

    fn readlink(&self, ino: Ino) -> FsResult<Vec<u8>> {
        match &self.node(ino)?.content {
            Content::Symlink(target) => Ok(target.clone()),
            _ => Err(FsError::Invalid),
        }
    }

    fn read(&self, ino: Ino, offset: u64, buf: &mut [u8]) -> FsResult<usize> {
        self.reads.fetch_add(1, Ordering::Relaxed);
        self.read_len_max.fetch_max(buf.len(), Ordering::Relaxed);
        if matches!(self.node(ino)?.content, Content::Gated) {
            self.gate.pass();
        }
        let (bytes, _) = self.file(ino)?;
        let rest = bytes.get(offset as usize..).unwrap_or_default();
        let len = rest.len().min(buf.len());
        buf[..len].copy_from_slice(&rest[..len]);
        Ok(len)
    }

    fn has_no_xattrs(&self) -> bool {
        self.hides_xattrs.load(Ordering::Relaxed)
    }

    fn has_memory_files(&self) -> bool {
        self.lent.is_some()
    }

    fn memory_file(&self, ino: Ino) -> Option<BorrowedFd<'_>> {
        self.lent
            .as_ref()
            .filter(|_| ino == Ino(40))
            .map(AsFd::as_fd)
    }

    fn seek(&self, ino: Ino, offset: u64, what: Seek) -> FsResult<u64> {
        let (bytes, hole) = self.file(ino)?;
        let end = bytes.len() as u64;
        if offset >= end {
            return Err(FsError::BeyondEnd);
        }
        match what {
            Seek::Data if !hole.contains(&offset) => Ok(offset),
            Seek::Data if hole.end == end => Err(FsError::NoData),
            Seek::Data => Ok(hole.end),
            Seek::Hole if hole.contains(&offset) => Ok(offset),
            Seek::Hole if offset < hole.start => Ok(hole.start),
            Seek::Hole => Ok(end),
        }
    }

    fn getxattr(&self, ino: Ino, name: &[u8]) -> FsResult<Vec<u8>> {
        let xattrs = &self.node(ino)?.xattrs;
        let found = xattrs.iter().find(|(known, _)| known == name);
        found.map(|(_, value)| value.clone()).ok_or(FsError::NoData)
    }

    fn listxattr(&self, ino: Ino) -> FsResult<Vec<Vec<u8>>> {
        Ok(self
            .node(ino)?
            .xattrs
            .iter()
            .map(|(name, _)| name.clone())
            .collect())
    }

    fn statfs(&self) -> FsResult<StatFs> {
        Ok(StatFs {
            block_size: 4096,
            blocks: 1234,
            blocks_free: 0,
            blocks_available: 0,
            files: self.nodes.len() as u64,
            files_free: 0,
            name_max: 255,
        })
    }
}
