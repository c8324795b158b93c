//! The same operations, drawn at random, on one directory through `HostFs` and on another by plain
//! calls: each must say the same, and both trees must be the same in the end.

mod support;

use std::ops::ControlFlow;
use std::path::Path;

use anteros_core::{
    Changes, FileKind, FilePosition, FileSystem, FsError, Ino, New, OpenFile, Rdev, SetTime,
    Timestamp, Writable,
};
use anteros_passthru::HostFs;
use anteros_tests::model::{Op, Ops, Outcome, SHARED_PLACE, SLOTS, Said, World, compare};
use rustix::fs::OFlags;
use rustix::io::Errno;

use crate::support::{errno, myself};

const SEEDS: u64 = 8;
const STEPS: u32 = 4000;

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

    /// Calls `act` with the directory of a path and its last name.
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
            Op::Sync { slot } => fs.fsync(self.slot(*slot)?, false)?,
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

#[test]
fn everything_is_as_without_it() {
    for seed in 0..SEEDS {
        eprintln!("seed {seed}");
        let dir = tempfile::tempdir().unwrap();
        let [through_dir, plain_dir] = ["through", "plain"].map(|name| dir.path().join(name));
        std::fs::create_dir(&through_dir).unwrap();
        std::fs::create_dir(&plain_dir).unwrap();
        let mut through = Through::new(&through_dir);
        let ops = Ops::new(seed);
        compare(seed, STEPS, ops, (&mut through, &through_dir), &plain_dir);
    }
}
