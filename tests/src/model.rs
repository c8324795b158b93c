//! Operations drawn at random, done to two directories that are to say the same and become the same: one that is
//! tested, and a plain one.
//!
//! A path is walked a component at a time without following links, as the kernel walks a mount.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use anteros_core::{FileKind, Seek};
use rustix::fs::{
    AtFlags, CWD, FallocateFlags, Mode, OFlags, RenameFlags, SeekFrom, Timespec, Timestamps,
    XattrFlags,
};
use rustix::io::Errno;

use crate::trees::Random;

/// States how many files may be open at a time.
pub const SLOTS: usize = 6;

const FILE_MAX: u64 = 64 << 10;

/// States where copies of ranges go.
pub const SHARED_PLACE: u64 = 4096;

/// Names from the root on.
pub type PathNames = Vec<&'static str>;

/// Tells what is done.
#[derive(Debug, Clone)]
#[allow(missing_docs)] // the fields are what the call of that name takes
pub enum Op {
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
    Sync {
        slot: usize,
    },
    Stat {
        path: PathNames,
    },
}

/// Tells what an operation said, in a form that can be compared.
#[derive(Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Said {
    Done,
    Number(u64),
    Bytes(Vec<u8>),
    Names(Vec<(Vec<u8>, FileKind)>),
    /// Kind, permissions, links, owner, group, size unless a directory, time of last modification
    /// if it was set by hand.
    Stat(FileKind, u32, u64, u32, u32, u64),
    Time(i64),
}

/// Holds what it said, or the error.
pub type Outcome = Result<Said, Errno>;

/// Draws operations from a seed.
pub struct Ops {
    random: Random,
    collapses: bool,
    sets_ids: bool,
    preallocates: bool,
    seeks: bool,
}

impl Ops {
    /// All operations.
    pub fn new(seed: u64) -> Self {
        Self {
            random: Random(seed),
            collapses: true,
            sets_ids: true,
            preallocates: true,
            seeks: true,
        }
    }

    /// Without those that collapse a range of a file: FUSE has no request for that.
    #[must_use]
    pub fn without_collapsing(self) -> Self {
        Self {
            collapses: false,
            ..self
        }
    }

    /// Without allocating what is not written. Whether that is a hole may depend on what the kernel has
    /// cached of it, and so on how far it reads ahead.
    #[must_use]
    pub fn without_preallocating(self) -> Self {
        Self {
            preallocates: false,
            ..self
        }
    }

    /// Without looking for holes.
    #[must_use]
    pub fn without_seeking(self) -> Self {
        Self {
            seeks: false,
            ..self
        }
    }

    /// Without modes that make a file run as somebody else.
    #[must_use]
    pub fn without_set_ids(self) -> Self {
        Self {
            sets_ids: false,
            ..self
        }
    }

    fn next(&mut self) -> u64 {
        self.random.next()
    }

    fn below(&mut self, end: u64) -> u64 {
        self.random.below(end)
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

    /// Always enough for the owner, so that who is not root can compare the trees. A set-group-id bit comes
    /// with execution by the group: file systems differ in when it goes without.
    fn mode(&mut self) -> u32 {
        let mode = 0o700 | self.below(0o7777 + 1) as u32;
        let mode = mode | (mode & 0o2000) >> 7;
        match self.sets_ids {
            true => mode,
            false => mode & !0o6000,
        }
    }

    /// The next one.
    pub fn op(&mut self) -> Op {
        let (path, slot) = (self.path(), self.below(SLOTS as u64) as usize);
        let offset = self.below(FILE_MAX);
        let name = self.pick(&["user.a", "user.b", "unheard.of"]);
        match self.below(35) {
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
                mode: match self.pick(&[0, 1, 3, 3, 16, 8]) {
                    8 if !self.collapses => 3,
                    0 | 1 | 16 if !self.preallocates => 3,
                    mode => mode,
                },
            },
            25 if !self.seeks => Op::Close { slot },
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
            33 => Op::Sync { slot },
            _ => Op::Stat { path },
        }
    }
}

/// A side of the comparison.
pub trait World {
    /// Does it.
    fn apply(&mut self, op: &Op) -> Outcome;
}

/// The side that is right by definition.
pub struct Plain {
    dir: PathBuf,
    slots: [Option<OwnedFd>; SLOTS],
}

impl Plain {
    /// Model of a directory, by the calls of the kernel.
    pub fn new(dir: &Path) -> Self {
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
            Op::Sync { slot } => rustix::fs::fsync(self.slot(*slot)?)?,
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

/// Compares two trees.
///
/// # Panics
///
/// If they differ, with the seed and the step.
pub fn compare_trees(seed: u64, step: u32, through: &Path, plain: &Path) {
    let (through, plain) = (tree(through), tree(plain));
    let names = |tree: &BTreeMap<_, _>| tree.keys().cloned().collect::<Vec<PathBuf>>();
    assert_eq!(names(&through), names(&plain), "seed {seed}, step {step}");
    for (path, one) in &through {
        let other = &plain[path];
        let whence = format!("seed {seed}, step {step}: {}", path.display());
        let about = |whole: &Whole| format!("{:?}", (&whole.stat, &whole.xattrs, &whole.same_as));
        assert_eq!(about(one), about(other), "{whence}");
        let differs = |(one, other): (&u8, &u8)| one != other;
        let at = one.content.iter().zip(&other.content).position(differs);
        assert_eq!(at, None, "{whence}: where the content differs");
    }
}

/// Does the same on both sides, and compares what they say, and now and then the trees.
///
/// # Panics
///
/// If anything differs, or nearly all operations failed.
pub fn compare(
    seed: u64,
    steps: u32,
    mut ops: Ops,
    (tested, tested_dir): (&mut dyn World, &Path),
    plain_dir: &Path,
) {
    let mut plain = Plain::new(plain_dir);
    let mut succeeded = 0;
    for step in 0..steps {
        let op = ops.op();
        let (said, expected) = (tested.apply(&op), plain.apply(&op));
        assert_eq!(said, expected, "seed {seed}, step {step}: {op:?}");
        succeeded += u32::from(said.is_ok());
        if step % 500 == 0 {
            compare_trees(seed, step, tested_dir, plain_dir);
        }
    }
    compare_trees(seed, steps, tested_dir, plain_dir);
    // A model that fails at everything compares nothing.
    assert!(
        succeeded > steps / 4,
        "seed {seed}: {succeeded} of {steps} succeeded"
    );
}
