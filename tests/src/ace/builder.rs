//! Preparation of an operation: directories, files, content.

use std::collections::BTreeMap;

use super::operation::{Operation, Persistence, Place, is_directory, is_within, parent};
use super::step::{ALIGNED, Falloc, Program, ROOT, Step};

/// States how much content a file must have to be overwritten.
const OVERWRITTEN: u64 = 8 << 10;
/// States what one `write` appends.
const APPENDED: u64 = 32 << 10;

/// The steps of some operations, each with what it needs, and what is persisted after it.
pub(super) fn build(operations: &[(Operation, Persistence)]) -> Program {
    let mut builder = Builder::default();
    for (operation, persistence) in operations {
        builder.operate(*operation);
        builder.persist(*operation, persistence);
    }
    builder.steps
}

/// Holds what a program has done so far, to know what its next operation still needs.
#[derive(Default)]
struct Builder {
    steps: Program,
    /// All names but the root, by what they lead to.
    names: BTreeMap<String, usize>,
    /// Files, and directories as if they were files.
    inodes: Vec<Inode>,
    /// The byte of the last write.
    fill: u8,
    /// The last write to a mapping.
    mapped: (u64, u64),
}

#[derive(Default)]
struct Inode {
    size: u64,
    has_xattr: bool,
}

impl Builder {
    /// Does an operation, and before that, what it needs.
    fn operate(&mut self, operation: Operation) {
        match operation {
            Operation::Creat(path) | Operation::Mkdir(path) => {
                self.take_away(path);
                self.need(path);
            }
            Operation::Falloc(path, mode, place) => self.falloc(path, mode, place),
            Operation::Write(path, place) => {
                let (offset, len) = self.place(path, place);
                self.write(path, offset, len);
            }
            Operation::DirectWrite(path, place) => self.write_direct(path, place),
            Operation::MmapWrite(path, place) => self.write_mapped(path, place),
            Operation::Link(from, to) => self.link(from, to),
            Operation::Unlink(path) => {
                self.need(path);
                self.names.remove(path);
                self.push(Step::Unlink { path: path.into() });
            }
            Operation::Remove(path) => {
                self.need(path);
                self.empty(path);
                self.names.remove(path);
                self.push(Step::Remove { path: path.into() });
            }
            Operation::Rename(from, to) => self.rename(from, to),
            Operation::SetXattr(path) => self.set_xattr(path),
            Operation::RemoveXattr(path) => {
                self.need(path);
                if !self.inode(path).has_xattr {
                    self.set_xattr(path);
                }
                self.inode(path).has_xattr = false;
                self.push(Step::RemoveXattr { path: path.into() });
            }
            Operation::Truncate(path, size) => {
                self.need_content(path);
                self.inode(path).size = size;
                let path = path.into();
                self.push(Step::Truncate { path, size });
            }
        }
    }

    fn persist(&mut self, operation: Operation, persistence: &Persistence) {
        match *persistence {
            Persistence::Nothing => {}
            Persistence::Sync => self.push(Step::Sync),
            Persistence::Fsync(path) => {
                self.need(path);
                self.push(Step::Fsync { path: path.into() });
            }
            Persistence::Fdatasync(path) => {
                self.need(path);
                self.push(Step::Fdatasync { path: path.into() });
            }
            Persistence::Msync => {
                let path = operation.paths()[0].into();
                let (offset, len) = self.mapped;
                self.push(Step::Msync { path, offset, len });
            }
        }
    }

    fn push(&mut self, step: Step) {
        self.steps.push(step);
    }

    fn inode(&mut self, path: &str) -> &mut Inode {
        &mut self.inodes[self.names[path]]
    }

    /// Makes an empty file or directory, unless it is there.
    fn need(&mut self, path: &str) {
        if path == ROOT || self.names.contains_key(path) {
            return;
        }
        self.need(parent(path));
        self.names.insert(path.into(), self.inodes.len());
        self.inodes.push(Inode::default());
        let is_directory = is_directory(path);
        let path = path.into();
        self.push(if is_directory {
            Step::Mkdir { path }
        } else {
            Step::Creat { path }
        });
    }

    /// Makes a file that is long enough to be overwritten.
    fn need_content(&mut self, path: &str) {
        self.need(path);
        let size = self.inode(path).size;
        if size < OVERWRITTEN {
            self.write(path, size, APPENDED);
        }
    }

    /// Sees to it that a path is free, and that there is a directory for it.
    fn take_away(&mut self, path: &str) {
        self.need(parent(path));
        self.empty(path);
        if self.names.remove(path).is_some() {
            let is_directory = is_directory(path);
            let path = path.into();
            self.push(if is_directory {
                Step::Rmdir { path }
            } else {
                Step::Unlink { path }
            });
        }
    }

    /// Takes away what lies below a path.
    fn empty(&mut self, path: &str) {
        let names = self.names.keys().rev();
        let below = names.filter(|name| *name != path && is_within(name, path));
        for name in below.cloned().collect::<Vec<_>>() {
            self.take_away(&name);
        }
    }

    /// Returns where in a file, which is there and has what it needs.
    fn place(&mut self, path: &str, place: Place) -> (u64, u64) {
        match place {
            Place::Append => self.need(path),
            Place::Start | Place::Extend => self.need_content(path),
        }
        let size = self.inode(path).size;
        match place {
            Place::Append => (size, APPENDED),
            Place::Start => (0, 5000),
            Place::Extend => (size - 2000, 5000),
        }
    }

    /// As [`Self::place`], aligned; what is appended may leave a gap.
    fn aligned_place(&mut self, path: &str, place: Place) -> (u64, u64) {
        let (offset, len) = self.place(path, place);
        let offset = offset.next_multiple_of(ALIGNED);
        (offset, len.next_multiple_of(ALIGNED))
    }

    fn grow(&mut self, path: &str, end: u64) {
        let inode = self.inode(path);
        inode.size = inode.size.max(end);
    }

    fn next_fill(&mut self) -> u8 {
        self.fill += 1;
        self.fill
    }

    fn write(&mut self, path: &str, offset: u64, len: u64) {
        self.grow(path, offset + len);
        let fill = self.next_fill();
        let path = path.into();
        self.push(Step::Write {
            path,
            offset,
            len,
            fill,
        });
    }

    fn write_direct(&mut self, path: &str, place: Place) {
        let (offset, len) = self.aligned_place(path, place);
        self.grow(path, offset + len);
        let fill = self.next_fill();
        let path = path.into();
        self.push(Step::DirectWrite {
            path,
            offset,
            len,
            fill,
        });
    }

    fn write_mapped(&mut self, path: &str, place: Place) {
        let (offset, len) = self.aligned_place(path, place);
        if self.inode(path).size < offset + len {
            self.allocate(path, Falloc::Allocate, offset, len);
        }
        self.mapped = (offset, len);
        let fill = self.next_fill();
        let path = path.into();
        self.push(Step::MmapWrite {
            path,
            offset,
            len,
            fill,
        });
    }

    fn falloc(&mut self, path: &str, mode: Falloc, place: Place) {
        self.need_content(path);
        let (offset, len) = self.place(path, place);
        self.allocate(path, mode, offset, len);
    }

    fn allocate(&mut self, path: &str, mode: Falloc, offset: u64, len: u64) {
        if mode.extends() {
            self.grow(path, offset + len);
        }
        let path = path.into();
        self.push(Step::Falloc {
            path,
            mode,
            offset,
            len,
        });
    }

    fn set_xattr(&mut self, path: &str) {
        self.need(path);
        self.inode(path).has_xattr = true;
        self.push(Step::SetXattr { path: path.into() });
    }

    fn link(&mut self, from: &str, to: &str) {
        self.need(from);
        self.take_away(to);
        self.names.insert(to.into(), self.names[from]);
        let (from, to) = (from.into(), to.into());
        self.push(Step::Link { from, to });
    }

    fn rename(&mut self, from: &str, to: &str) {
        self.need(from);
        self.need(parent(to));
        // A directory gives way only when it is empty.
        self.empty(to);
        // Between two names of one file, nothing happens.
        if self.names.get(from) != self.names.get(to) {
            self.move_names(from, to);
        }
        let (from, to) = (from.into(), to.into());
        self.push(Step::Rename { from, to });
    }

    fn move_names(&mut self, from: &str, to: &str) {
        let names = self.names.keys();
        let moved = names.filter(|name| is_within(name, from));
        for name in moved.cloned().collect::<Vec<_>>() {
            let inode = self.names.remove(&name).unwrap();
            let name = format!("{to}{}", &name[from.len()..]);
            self.names.insert(name, inode);
        }
    }
}
