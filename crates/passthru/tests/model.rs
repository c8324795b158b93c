//! The same operations, drawn at random, on one directory through `HostFs` and on another by plain
//! calls: each must say the same, and both trees must be the same in the end.
//!
//! A path is walked a component at a time without following links, as the kernel walks a mount.

mod support;

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::ops::ControlFlow;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use anteros_core::{
    Changes, FileKind, FilePosition, FileSystem, FsError, Ino, New, OpenFile, Rdev, Seek, SetTime,
    Timestamp, Writable,
};
use anteros_passthru::HostFs;
use rustix::fs::{
    AtFlags, CWD, FallocateFlags, Mode, OFlags, RenameFlags, SeekFrom, Timespec, Timestamps,
    XattrFlags,
};
use rustix::io::Errno;

use crate::support::{errno, myself};

const SEEDS: u64 = 8;
const STEPS: u32 = 4000;
const SLOTS: usize = 4;
const FILE_MAX: u64 = 64 << 10;
const SHARED_PLACE: u64 = 4096;

/// Names from the root on.
type PathNames = Vec<&'static str>;

#[derive(Debug, Clone)]
enum Op {
    Create {
        path: PathNames,
        mode: u32,
        exclusive: bool,
        slot: usize,
    },
    Open {
        path: PathNames,
        append: bool,
        slot: usize,
    },
    Unnamed {
        path: PathNames,
        slot: usize,
    },
    Close {
        slot: usize,
    },
    Mkdir {
        path: PathNames,
        mode: u32,
    },
    Symlink {
        path: PathNames,
        target: &'static str,
    },
    Link {
        from: PathNames,
        to: PathNames,
    },
    LinkOpen {
        slot: usize,
        to: PathNames,
    },
    Unlink {
        path: PathNames,
    },
    Rmdir {
        path: PathNames,
    },
    Rename {
        from: PathNames,
        to: PathNames,
        flags: u32,
    },
    Write {
        slot: usize,
        offset: u64,
        data: Vec<u8>,
    },
    Read {
        slot: usize,
        offset: u64,
        len: usize,
    },
    Truncate {
        path: PathNames,
        size: u64,
    },
    TruncateOpen {
        slot: usize,
        size: u64,
    },
    Allocate {
        slot: usize,
        offset: u64,
        len: u64,
        mode: u32,
    },
    Seek {
        slot: usize,
        offset: u64,
        what: Seek,
    },
    Copy {
        from: usize,
        to: usize,
        offset: u64,
        len: u64,
    },
    Chmod {
        path: PathNames,
        mode: u32,
    },
    Utimes {
        path: PathNames,
        secs: i64,
    },
    SetXattr {
        path: PathNames,
        name: &'static str,
        value: Vec<u8>,
        flags: u32,
    },
    GetXattr {
        path: PathNames,
        name: &'static str,
    },
    RemoveXattr {
        path: PathNames,
        name: &'static str,
    },
    Readlink {
        path: PathNames,
    },
    List {
        path: PathNames,
    },
    Stat {
        path: PathNames,
    },
}

/// What an operation said, in a form that can be compared.
#[derive(Debug, PartialEq, Eq)]
enum Said {
    Done,
    Number(u64),
    Bytes(Vec<u8>),
    Names(Vec<(Vec<u8>, FileKind)>),
    /// Kind, permissions, links, owner, group, size unless a directory, time of last modification
    /// if it was set by hand.
    Stat(FileKind, u32, u64, u32, u32, u64),
    Time(i64),
}

type Outcome = Result<Said, Errno>;

/// Numbers that look random and are the same for the same seed.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }

    fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.below(from.len() as u64) as usize]
    }

    fn path(&mut self) -> PathNames {
        let len = self.pick(&[1, 1, 2, 2, 2, 3]);
        (0..len).map(|_| self.pick(&["a", "b", "c", "d"])).collect()
    }

    fn bytes(&mut self, max: u64) -> Vec<u8> {
        let byte = self.next() as u8;
        vec![byte; self.below(max) as usize]
    }

    /// Always enough for the owner, so that who is not root can compare the trees.
    fn mode(&mut self) -> u32 {
        0o700 | self.below(0o7777 + 1) as u32
    }

    fn op(&mut self) -> Op {
        let (path, slot) = (self.path(), self.below(SLOTS as u64) as usize);
        let offset = self.below(FILE_MAX);
        let name = self.pick(&["user.a", "user.b", "unheard.of"]);
        match self.below(34) {
            0..4 => Op::Create {
                path,
                mode: self.mode(),
                exclusive: self.below(2) == 0,
                slot,
            },
            4 => Op::Open {
                path,
                append: self.below(2) == 0,
                slot,
            },
            5 => Op::Unnamed { path, slot },
            6 => Op::Close { slot },
            7..10 => Op::Mkdir {
                path,
                mode: self.mode(),
            },
            10 => Op::Symlink {
                path,
                target: self.pick(&["a", "../b", "/nowhere", ""]),
            },
            11 => Op::Link {
                from: path,
                to: self.path(),
            },
            12 => Op::LinkOpen { slot, to: path },
            13 => Op::Unlink { path },
            14 => Op::Rmdir { path },
            15..18 => Op::Rename {
                from: path,
                to: self.path(),
                flags: self.pick(&[0, 0, 0, 1, 2, 3]),
            },
            18..21 => Op::Write {
                slot,
                offset,
                data: self.bytes(8000),
            },
            21 => Op::Read {
                slot,
                offset,
                len: self.below(10_000) as usize,
            },
            22 => Op::Truncate { path, size: offset },
            23 => Op::TruncateOpen { slot, size: offset },
            24 => Op::Allocate {
                slot,
                offset,
                len: self.below(20_000),
                // Plain, keeping the size, punching, zeroing, collapsing (often refused).
                mode: self.pick(&[0, 1, 3, 3, 16, 8]),
            },
            25 => Op::Seek {
                slot,
                offset,
                what: self.pick(&[Seek::Data, Seek::Hole]),
            },
            26 => {
                let to = self.below(SLOTS as u64) as usize;
                Op::Copy {
                    from: slot,
                    to,
                    offset,
                    len: self.below(20_000),
                }
            }
            27 => Op::Chmod {
                path,
                mode: self.mode(),
            },
            28 => Op::Utimes {
                path,
                secs: self.below(1 << 32) as i64,
            },
            29 => Op::SetXattr {
                path,
                name,
                value: self.bytes(300),
                flags: self.pick(&[0, 0, 1, 2]),
            },
            30 => match self.below(2) {
                0 => Op::GetXattr { path, name },
                _ => Op::RemoveXattr { path, name },
            },
            31 => Op::Readlink { path },
            32 => Op::List { path },
            _ => Op::Stat { path },
        }
    }
}

/// A side of the comparison.
trait World {
    fn apply(&mut self, op: &Op) -> Outcome;
}

/// The side under test.
struct Through {
    fs: HostFs,
    slots: [Option<OpenFile>; SLOTS],
}

impl Through {
    fn new(dir: &Path) -> Self {
        Self {
            fs: HostFs::new(dir).unwrap(),
            slots: [None; SLOTS],
        }
    }

    /// Walks to an inode; it is known once more then.
    fn walk(&self, path: &[&str]) -> Result<Ino, FsError> {
        let mut at = self.fs.root();
        for name in path {
            let next = self.fs.lookup(at, name.as_bytes());
            self.fs.forget(at, 1);
            at = next?.ino;
        }
        Ok(at)
    }

    /// Has something done to the inode that a path leads to.
    fn with<T>(
        &self,
        path: &[&str],
        act: impl FnOnce(Ino) -> Result<T, FsError>,
    ) -> Result<T, FsError> {
        let ino = self.walk(path)?;
        let result = act(ino);
        self.fs.forget(ino, 1);
        result
    }

    /// As `with`, for the directory and the last name.
    fn with_parent<T>(
        &self,
        path: &[&'static str],
        act: impl FnOnce(Ino, &'static [u8]) -> Result<T, FsError>,
    ) -> Result<T, FsError> {
        let (name, parent) = path.split_last().unwrap();
        self.with(parent, |ino| act(ino, name.as_bytes()))
    }

    fn slot(&self, slot: usize) -> Result<OpenFile, FsError> {
        self.slots[slot].ok_or(FsError::Host(Errno::BADF.into()))
    }

    /// The slot takes over the one time that the inode became known.
    fn put(&mut self, slot: usize, file: OpenFile) {
        self.close(slot);
        self.slots[slot] = Some(file);
    }

    fn close(&mut self, slot: usize) {
        if let Some(file) = self.slots[slot].take() {
            self.fs.release(file);
            self.fs.forget(file.ino, 1);
        }
    }

    fn new_at(parent: Ino, name: &[u8], mode: u32) -> New<'_> {
        New {
            parent,
            name,
            mode,
            umask: 0,
            caller: myself(),
        }
    }

    fn change(&self, path: &[&str], changes: Changes) -> Result<Said, FsError> {
        self.with(path, |ino| self.fs.change(ino, None, &changes))?;
        Ok(Said::Done)
    }

    fn run(&mut self, op: &Op) -> Result<Said, FsError> {
        let fs = &self.fs;
        match op {
            Op::Create {
                path,
                mode,
                exclusive,
                slot,
            } => {
                let flags = OFlags::RDWR
                    | if *exclusive {
                        OFlags::EXCL
                    } else {
                        OFlags::empty()
                    };
                let (attr, handle) = self.with_parent(path, |parent, name| {
                    fs.create(&Self::new_at(parent, name, *mode), flags.bits())
                })?;
                self.put(
                    *slot,
                    OpenFile {
                        ino: attr.ino,
                        handle,
                    },
                );
            }
            Op::Open { path, append, slot } => {
                let append = if *append {
                    OFlags::APPEND
                } else {
                    OFlags::empty()
                };
                let ino = self.walk(path)?;
                match fs.open(ino, (OFlags::RDWR | append).bits()) {
                    Ok(handle) => self.put(*slot, OpenFile { ino, handle }),
                    Err(error) => {
                        fs.forget(ino, 1);
                        return Err(error);
                    }
                }
            }
            Op::Unnamed { path, slot } => {
                let (attr, handle) = self.with(path, |parent| {
                    fs.create_unnamed(&Self::new_at(parent, b"/", 0o600), OFlags::RDWR.bits())
                })?;
                self.put(
                    *slot,
                    OpenFile {
                        ino: attr.ino,
                        handle,
                    },
                );
            }
            Op::Close { slot } => self.close(*slot),
            Op::Mkdir { path, mode } => {
                let attr = self.with_parent(path, |parent, name| {
                    let mode = FileKind::Directory.mode_bits() | mode;
                    fs.make(&Self::new_at(parent, name, mode), Rdev::default())
                })?;
                fs.forget(attr.ino, 1);
            }
            Op::Symlink { path, target } => {
                let attr = self.with_parent(path, |parent, name| {
                    fs.symlink(&Self::new_at(parent, name, 0), target.as_bytes())
                })?;
                fs.forget(attr.ino, 1);
            }
            Op::Link { from, to } => {
                let link = |ino| self.with_parent(to, |parent, name| fs.link(ino, parent, name));
                let attr = self.with(from, link)?;
                fs.forget(attr.ino, 1);
            }
            Op::LinkOpen { slot, to } => {
                let ino = self.slot(*slot)?.ino;
                let attr = self.with_parent(to, |parent, name| fs.link(ino, parent, name))?;
                fs.forget(attr.ino, 1);
            }
            Op::Unlink { path } => self.with_parent(path, |dir, name| fs.unlink(dir, name))?,
            Op::Rmdir { path } => self.with_parent(path, |dir, name| fs.rmdir(dir, name))?,
            Op::Rename { from, to, flags } => self.with_parent(from, |from_dir, from| {
                self.with_parent(to, |to_dir, to| {
                    fs.rename((from_dir, from), (to_dir, to), *flags)
                })
            })?,
            Op::Write { slot, offset, data } => {
                let len = fs.write(self.slot(*slot)?, *offset, data, false)?;
                return Ok(Said::Number(len as u64));
            }
            Op::Read { slot, offset, len } => {
                let mut buf = vec![0; *len];
                let len = fs.read_open(self.slot(*slot)?, *offset, &mut buf)?;
                buf.truncate(len);
                return Ok(Said::Bytes(buf));
            }
            Op::Truncate { path, size } => {
                return self.change(
                    path,
                    Changes {
                        size: Some(*size),
                        ..Changes::default()
                    },
                );
            }
            Op::TruncateOpen { slot, size } => {
                let file = self.slot(*slot)?;
                let changes = Changes {
                    size: Some(*size),
                    ..Changes::default()
                };
                fs.change(file.ino, Some(file), &changes)?;
            }
            Op::Allocate {
                slot,
                offset,
                len,
                mode,
            } => {
                fs.allocate(self.slot(*slot)?, *offset, *len, *mode)?;
            }
            Op::Seek { slot, offset, what } => {
                let found = fs.seek_open(self.slot(*slot)?, *offset, *what);
                return found.map(Said::Number).map_err(|error| match error {
                    FsError::NoData => FsError::BeyondEnd,
                    error => error,
                });
            }
            Op::Copy {
                from,
                to,
                offset,
                len,
            } => {
                let from = FilePosition {
                    file: self.slot(*from)?,
                    offset: *offset,
                };
                let to = FilePosition {
                    file: self.slot(*to)?,
                    offset: SHARED_PLACE,
                };
                return Ok(Said::Number(fs.copy_range(from, to, *len)?));
            }
            Op::Chmod { path, mode } => {
                return self.change(
                    path,
                    Changes {
                        perm: Some(*mode as u16),
                        ..Changes::default()
                    },
                );
            }
            Op::Utimes { path, secs } => {
                let time = Some(SetTime::At(Timestamp {
                    secs: *secs,
                    nanos: 5,
                }));
                let changes = Changes {
                    mtime: time,
                    atime: Some(SetTime::Now),
                    ..Changes::default()
                };
                let attr = self.with(path, |ino| fs.change(ino, None, &changes))?;
                return Ok(Said::Time(attr.mtime.secs));
            }
            Op::SetXattr {
                path,
                name,
                value,
                flags,
            } => {
                let name = name.as_bytes();
                self.with(path, |ino| fs.setxattr(ino, name, value, *flags))?;
            }
            Op::GetXattr { path, name } => {
                let value = self.with(path, |ino| fs.getxattr(ino, name.as_bytes()))?;
                return Ok(Said::Bytes(value));
            }
            Op::RemoveXattr { path, name } => {
                self.with(path, |ino| fs.removexattr(ino, name.as_bytes()))?;
            }
            Op::Readlink { path } => {
                return Ok(Said::Bytes(self.with(path, |ino| fs.readlink(ino))?));
            }
            Op::List { path } => {
                let mut names = Vec::new();
                self.with(path, |ino| {
                    fs.readdir(ino, 0, &mut |entry| {
                        names.push((entry.name.to_vec(), entry.kind));
                        ControlFlow::Continue(())
                    })
                })?;
                names.sort();
                return Ok(Said::Names(names));
            }
            Op::Stat { path } => {
                let attr = self.with(path, |ino| fs.getattr(ino))?;
                let size = if attr.kind == FileKind::Directory {
                    0
                } else {
                    attr.size
                };
                let (perm, nlink) = (attr.perm.into(), attr.nlink.into());
                return Ok(Said::Stat(attr.kind, perm, nlink, attr.uid, attr.gid, size));
            }
        }
        Ok(Said::Done)
    }
}

impl World for Through {
    fn apply(&mut self, op: &Op) -> Outcome {
        self.run(op).map_err(|error| errno(&error))
    }
}

/// The side that is right by definition.
struct Plain {
    dir: PathBuf,
    slots: [Option<OwnedFd>; SLOTS],
}

impl Plain {
    fn new(dir: &Path) -> Self {
        Self {
            dir: dir.to_owned(),
            slots: Default::default(),
        }
    }

    fn walk(&self, path: &[&str]) -> Result<OwnedFd, Errno> {
        let flags = OFlags::PATH | OFlags::NOFOLLOW;
        let mut at = rustix::fs::open(&self.dir, flags, Mode::empty())?;
        for name in path {
            at = rustix::fs::openat(&at, *name, flags, Mode::empty())?;
        }
        Ok(at)
    }

    fn parent(&self, path: &[&'static str]) -> Result<(OwnedFd, &'static str), Errno> {
        let (name, parent) = path.split_last().unwrap();
        Ok((self.walk(parent)?, name))
    }

    /// The whole path of what is there, without links on the way.
    fn full(&self, path: &[&str]) -> Result<PathBuf, Errno> {
        self.walk(path)?;
        let mut full = self.dir.clone();
        full.extend(path);
        Ok(full)
    }

    fn slot(&self, slot: usize) -> Result<&OwnedFd, Errno> {
        self.slots[slot].as_ref().ok_or(Errno::BADF)
    }

    fn is_symlink(path: &Path) -> bool {
        path.symlink_metadata().unwrap().is_symlink()
    }
}

fn kind_of(mode: u32) -> FileKind {
    FileKind::from_mode(mode).unwrap()
}

impl World for Plain {
    fn apply(&mut self, op: &Op) -> Outcome {
        match op {
            Op::Create {
                path,
                mode,
                exclusive,
                slot,
            } => {
                let (parent, name) = self.parent(path)?;
                let mut flags = OFlags::RDWR | OFlags::CREATE | OFlags::NOFOLLOW;
                if *exclusive {
                    flags |= OFlags::EXCL;
                }
                let mode = Mode::from_raw_mode(*mode);
                self.slots[*slot] = Some(rustix::fs::openat(parent, name, flags, mode)?);
            }
            Op::Open { path, append, slot } => {
                let append = if *append {
                    OFlags::APPEND
                } else {
                    OFlags::empty()
                };
                let flags = OFlags::RDWR | OFlags::NOFOLLOW | append;
                let file = rustix::fs::open(self.full(path)?, flags, Mode::empty())?;
                self.slots[*slot] = Some(file);
            }
            Op::Unnamed { path, slot } => {
                let flags = OFlags::RDWR | OFlags::TMPFILE;
                let dir = self.walk(path)?;
                let mode = Mode::from_raw_mode(0o600);
                self.slots[*slot] = Some(rustix::fs::openat(dir, ".", flags, mode)?);
            }
            Op::Close { slot } => self.slots[*slot] = None,
            Op::Mkdir { path, mode } => {
                let (parent, name) = self.parent(path)?;
                rustix::fs::mkdirat(parent, name, Mode::from_raw_mode(*mode))?;
            }
            Op::Symlink { path, target } => {
                let (parent, name) = self.parent(path)?;
                rustix::fs::symlinkat(*target, parent, name)?;
            }
            Op::Link { from, to } => {
                let from = self.full(from)?;
                let (parent, name) = self.parent(to)?;
                rustix::fs::linkat(CWD, from, parent, name, AtFlags::empty())?;
            }
            Op::LinkOpen { slot, to } => {
                let file = self.slot(*slot)?;
                let (parent, name) = self.parent(to)?;
                let from = rustix::path::DecInt::from_fd(file);
                let from = Path::new("/proc/self/fd").join(from.as_ref());
                rustix::fs::linkat(CWD, from, parent, name, AtFlags::SYMLINK_FOLLOW)?;
            }
            Op::Unlink { path } => {
                let (parent, name) = self.parent(path)?;
                rustix::fs::unlinkat(parent, name, AtFlags::empty())?;
            }
            Op::Rmdir { path } => {
                let (parent, name) = self.parent(path)?;
                rustix::fs::unlinkat(parent, name, AtFlags::REMOVEDIR)?;
            }
            Op::Rename { from, to, flags } => {
                let (from_dir, from) = self.parent(from)?;
                let (to_dir, to) = self.parent(to)?;
                let flags = RenameFlags::from_bits_retain(*flags);
                rustix::fs::renameat_with(from_dir, from, to_dir, to, flags)?;
            }
            Op::Write { slot, offset, data } => {
                let len = rustix::io::pwrite(self.slot(*slot)?, data, *offset)?;
                return Ok(Said::Number(len as u64));
            }
            Op::Read { slot, offset, len } => {
                let mut buf = vec![0; *len];
                let len = rustix::io::pread(self.slot(*slot)?, &mut buf[..], *offset)?;
                buf.truncate(len);
                return Ok(Said::Bytes(buf));
            }
            Op::Truncate { path, size } => {
                let path = self.full(path)?;
                if Self::is_symlink(&path) {
                    return Err(Errno::INVAL);
                }
                let file = rustix::fs::open(path, OFlags::WRONLY, Mode::empty())?;
                rustix::fs::ftruncate(file, *size)?;
            }
            Op::TruncateOpen { slot, size } => rustix::fs::ftruncate(self.slot(*slot)?, *size)?,
            Op::Allocate {
                slot,
                offset,
                len,
                mode,
            } => {
                let mode = FallocateFlags::from_bits_retain(*mode);
                rustix::fs::fallocate(self.slot(*slot)?, mode, *offset, *len)?;
            }
            Op::Seek { slot, offset, what } => {
                let from = match what {
                    Seek::Data => SeekFrom::Data(*offset),
                    Seek::Hole => SeekFrom::Hole(*offset),
                };
                return Ok(Said::Number(rustix::fs::seek(self.slot(*slot)?, from)?));
            }
            Op::Copy {
                from,
                to,
                offset,
                len,
            } => {
                let (from, to) = (self.slot(*from)?, self.slot(*to)?);
                let (mut offset, mut place) = (*offset, SHARED_PLACE);
                let (offset, place) = (Some(&mut offset), Some(&mut place));
                let copied = rustix::fs::copy_file_range(from, offset, to, place, *len as usize)?;
                return Ok(Said::Number(copied as u64));
            }
            Op::Chmod { path, mode } => {
                let path = self.full(path)?;
                if Self::is_symlink(&path) {
                    return Err(Errno::OPNOTSUPP);
                }
                rustix::fs::chmod(path, Mode::from_raw_mode(*mode))?;
            }
            Op::Utimes { path, secs } => {
                let path = self.full(path)?;
                let times = Timestamps {
                    last_access: Timespec {
                        tv_sec: 0,
                        tv_nsec: rustix::fs::UTIME_NOW,
                    },
                    last_modification: Timespec {
                        tv_sec: *secs,
                        tv_nsec: 5,
                    },
                };
                rustix::fs::utimensat(CWD, &path, &times, AtFlags::SYMLINK_NOFOLLOW)?;
                return Ok(Said::Time(path.symlink_metadata().unwrap().mtime()));
            }
            Op::SetXattr {
                path,
                name,
                value,
                flags,
            } => {
                let flags = XattrFlags::from_bits_retain(*flags);
                rustix::fs::lsetxattr(self.full(path)?, *name, value, flags)?;
            }
            Op::GetXattr { path, name } => {
                return Ok(Said::Bytes(xattr(&self.full(path)?, name)?));
            }
            Op::RemoveXattr { path, name } => {
                rustix::fs::lremovexattr(self.full(path)?, *name)?;
            }
            Op::Readlink { path } => {
                let target = rustix::fs::readlink(self.full(path)?, Vec::new())?;
                return Ok(Said::Bytes(target.into_bytes()));
            }
            Op::List { path } => {
                let path = self.full(path)?;
                let directory = OFlags::DIRECTORY | OFlags::NOFOLLOW;
                rustix::fs::open(&path, directory, Mode::empty())?;
                let mut names: Vec<_> = [&b"."[..], b".."]
                    .map(|name| (name.to_vec(), FileKind::Directory))
                    .into();
                for entry in std::fs::read_dir(path).unwrap() {
                    let entry = entry.unwrap();
                    let name = entry.file_name().as_bytes().to_vec();
                    names.push((name, kind_of(entry.metadata().unwrap().mode())));
                }
                names.sort();
                return Ok(Said::Names(names));
            }
            Op::Stat { path } => return Ok(stat(&self.full(path)?)),
        }
        Ok(Said::Done)
    }
}

fn stat(path: &Path) -> Said {
    let meta = path.symlink_metadata().unwrap();
    let size = if meta.is_dir() { 0 } else { meta.size() };
    let perm = meta.mode() & 0o7777;
    Said::Stat(
        kind_of(meta.mode()),
        perm,
        meta.nlink(),
        meta.uid(),
        meta.gid(),
        size,
    )
}

fn xattr(path: &Path, name: &str) -> Result<Vec<u8>, Errno> {
    let mut value = vec![0; 1000];
    let len = rustix::fs::lgetxattr(path, name, &mut value[..])?;
    value.truncate(len);
    Ok(value)
}

/// All about a file that can be compared.
#[derive(Debug, PartialEq, Eq)]
struct Whole {
    stat: Said,
    content: Vec<u8>,
    xattrs: [Result<Vec<u8>, Errno>; 2],
    /// The first path of the same inode.
    same_as: PathBuf,
}

fn tree(root: &Path) -> BTreeMap<PathBuf, Whole> {
    let (mut found, mut first) = (BTreeMap::new(), BTreeMap::new());
    let mut pending = vec![root.to_owned()];
    while let Some(dir) = pending.pop() {
        let entries = std::fs::read_dir(dir).unwrap();
        let mut paths: Vec<_> = entries.map(|entry| entry.unwrap().path()).collect();
        paths.sort();
        for path in paths {
            let meta = path.symlink_metadata().unwrap();
            let relative = path.strip_prefix(root).unwrap().to_owned();
            let same_as = first.entry(meta.ino()).or_insert_with(|| relative.clone());
            let content = match kind_of(meta.mode()) {
                FileKind::Regular => std::fs::read(&path).unwrap(),
                FileKind::Symlink => OsStr::as_bytes(path.read_link().unwrap().as_ref()).to_vec(),
                _ => Vec::new(),
            };
            let whole = Whole {
                stat: stat(&path),
                content,
                xattrs: ["user.a", "user.b"].map(|name| xattr(&path, name)),
                same_as: same_as.clone(),
            };
            found.insert(relative, whole);
            if meta.is_dir() {
                pending.push(path);
            }
        }
    }
    found
}

fn compare_trees(seed: u64, step: u32, through: &Path, plain: &Path) {
    let (through, plain) = (tree(through), tree(plain));
    let names = |tree: &BTreeMap<_, _>| tree.keys().cloned().collect::<Vec<PathBuf>>();
    assert_eq!(names(&through), names(&plain), "seed {seed}, step {step}");
    for (path, whole) in &through {
        let is_same = *whole == plain[path];
        assert!(
            is_same,
            "seed {seed}, step {step}: {} differs",
            path.display()
        );
    }
}

#[test]
fn everything_is_as_without_it() {
    for seed in 0..SEEDS {
        eprintln!("seed {seed}");
        let dir = tempfile::tempdir().unwrap();
        let [through_dir, plain_dir] = ["through", "plain"].map(|name| dir.path().join(name));
        std::fs::create_dir(&through_dir).unwrap();
        std::fs::create_dir(&plain_dir).unwrap();
        let mut through = Through::new(&through_dir);
        let mut plain = Plain::new(&plain_dir);
        let mut random = Random(seed);
        let mut succeeded = 0;
        for step in 0..STEPS {
            let op = random.op();
            let (said, expected) = (through.apply(&op), plain.apply(&op));
            assert_eq!(said, expected, "seed {seed}, step {step}: {op:?}");
            succeeded += u32::from(said.is_ok());
            if step % 500 == 0 {
                compare_trees(seed, step, &through_dir, &plain_dir);
            }
        }
        compare_trees(seed, STEPS, &through_dir, &plain_dir);
        // A model that fails at everything compares nothing.
        assert!(
            succeeded > STEPS / 4,
            "seed {seed}: {succeeded} of {STEPS} succeeded"
        );
    }
}
