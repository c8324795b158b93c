//! Parts that the tests of this crate share.

#![allow(dead_code)]

use std::ops::ControlFlow;

use anteros_core::{Attr, Writable};
use anteros_core::{Caller, FileKind, FileSystem, FsError, FsResult, Ino, New, OpenFile, Rdev};
use anteros_passthru::HostFs;
use rustix::io::Errno;
use tempfile::TempDir;

pub const RDONLY: u32 = 0;
pub const WRONLY: u32 = 1;
pub const RDWR: u32 = 2;
pub const EXCL: u32 = rustix::fs::OFlags::EXCL.bits();
pub const APPEND: u32 = rustix::fs::OFlags::APPEND.bits();

/// A file system on a directory of its own.
pub fn host_fs() -> (TempDir, HostFs) {
    let dir = tempfile::tempdir().unwrap();
    let fs = HostFs::new(dir.path()).unwrap();
    (dir, fs)
}

/// Returns whether the test runs as root. If not, says what is left out.
pub fn is_root_or_says(left_out: &str) -> bool {
    let is_root = rustix::process::geteuid().is_root();
    if !is_root {
        eprintln!("not root, left out: {left_out}");
    }
    is_root
}

/// The process itself.
pub fn myself() -> Caller {
    Caller {
        uid: rustix::process::geteuid().as_raw(),
        gid: rustix::process::getegid().as_raw(),
        ..Caller::default()
    }
}

pub fn new_by(caller: Caller, parent: Ino, name: &[u8], mode: u32) -> New<'_> {
    New {
        parent,
        name,
        mode,
        umask: 0,
        caller,
    }
}

pub fn new(parent: Ino, name: &[u8], mode: u32) -> New<'_> {
    new_by(myself(), parent, name, mode)
}

pub fn mkdir(fs: &HostFs, parent: Ino, name: &[u8]) -> Attr {
    let mode = FileKind::Directory.mode_bits() | 0o755;
    fs.make(&new(parent, name, mode), Rdev::default()).unwrap()
}

pub fn create(fs: &HostFs, parent: Ino, name: &[u8]) -> (Attr, OpenFile) {
    let (attr, handle) = fs.create(&new(parent, name, 0o644), RDWR).unwrap();
    (
        attr,
        OpenFile {
            ino: attr.ino,
            handle,
        },
    )
}

pub fn open(fs: &HostFs, ino: Ino, flags: u32) -> OpenFile {
    let handle = fs.open(ino, flags).unwrap();
    OpenFile { ino, handle }
}

pub fn content(fs: &HostFs, ino: Ino) -> Vec<u8> {
    let mut buf = vec![0; 1 << 16];
    let len = fs.read(ino, 0, &mut buf).unwrap();
    buf.truncate(len);
    buf
}

/// The `errno` a caller would see.
pub fn errno(error: &FsError) -> Errno {
    match error {
        FsError::NotFound => Errno::NOENT,
        FsError::NotDirectory => Errno::NOTDIR,
        FsError::IsDirectory => Errno::ISDIR,
        FsError::Invalid => Errno::INVAL,
        FsError::NoData => Errno::NODATA,
        FsError::BeyondEnd => Errno::NXIO,
        FsError::Unsupported => Errno::OPNOTSUPP,
        FsError::Corrupt(_) => Errno::UCLEAN,
        FsError::Io(_) => Errno::IO,
        FsError::Host(error) => Errno::from_io_error(error).expect("the host's own errno"),
        other => panic!("a mirror has a host to say: {other}"),
    }
}

#[track_caller]
pub fn assert_errno<T: std::fmt::Debug>(result: FsResult<T>, expected: Errno) {
    match result {
        Ok(value) => panic!("{value:?} instead of {expected:?}"),
        Err(error) => assert_eq!(errno(&error), expected),
    }
}

/// A directory entry of its own.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Entry {
    pub name: Vec<u8>,
    pub ino: Ino,
    pub kind: FileKind,
    pub next: u64,
}

/// Returns what a directory lists from a position on, at most `count` entries.
pub fn list_some(fs: &HostFs, dir: OpenFile, from: u64, count: usize) -> Vec<Entry> {
    let mut entries = Vec::new();
    fs.read_dir(dir, from, &mut |entry| {
        if entries.len() == count {
            return ControlFlow::Break(());
        }
        entries.push(Entry {
            name: entry.name.to_vec(),
            ino: entry.ino,
            kind: entry.kind,
            next: entry.next,
        });
        ControlFlow::Continue(())
    })
    .unwrap();
    entries
}

/// All entries of a directory.
pub fn list(fs: &HostFs, ino: Ino) -> Vec<Entry> {
    let dir = OpenFile {
        ino,
        handle: fs.open_dir(ino).unwrap(),
    };
    let entries = list_some(fs, dir, 0, usize::MAX);
    fs.release_dir(dir);
    entries
}
