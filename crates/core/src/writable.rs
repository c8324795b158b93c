//! Calls of a file system that can be written to.
//!
//! It is a [`FileSystem`] that also opens files, changes them, and makes and removes names. Where
//! Linux has numbers for a request (the flags of `open`, `renameat2`, `fallocate` and `setxattr`), they
//! are carried as they are: no other set of words would fit all of them.

use std::io::IoSlice;
use std::ops::{ControlFlow, Range};
use std::os::fd::OwnedFd;
use std::time::Duration;

use crate::{Attr, DirEntry, FileSystem, FsError, FsResult, Ino, Rdev, Seek, Timestamp};

/// Caller of an operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Caller {
    /// The user, as the file system counts them.
    pub uid: u32,
    /// The group.
    pub gid: u32,
    /// The process; 0 if there is none to name.
    pub pid: u32,
    /// Another group that they are in: that of the directory, where something is made.
    pub also_in: Option<u32>,
}

/// A file or directory that someone has open.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct OpenFile {
    /// Number of the inode.
    pub ino: Ino,
    /// Handle from [`Writable::open`], [`Writable::create`] or [`Writable::open_dir`].
    pub handle: u64,
}

/// A name that is to be made.
#[derive(Debug, Clone, Copy)]
pub struct New<'a> {
    /// The directory.
    pub parent: Ino,
    /// The name in it: 1 to 255 bytes, without `/` or NUL.
    pub name: &'a [u8],
    /// Kind and permission bits as the caller gave them.
    pub mode: u32,
    /// The caller's `umask`, not yet applied: a default ACL of the directory takes its place.
    pub umask: u32,
    /// Owner of the new inode.
    pub caller: Caller,
}

/// Value to set a time to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SetTime {
    /// The moment of the change.
    Now,
    /// This one.
    At(Timestamp),
}

/// The attributes to change; what is `None` stays.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Changes {
    /// Permission, set-id and sticky bits (`0o7777`).
    pub perm: Option<u16>,
    /// Owner.
    pub uid: Option<u32>,
    /// Group.
    pub gid: Option<u32>,
    /// Size in bytes: content is cut off, or a hole added.
    pub size: Option<u64>,
    /// Last access.
    pub atime: Option<SetTime>,
    /// Last modification.
    pub mtime: Option<SetTime>,
    /// Tells whether set-id bits and file capabilities go, as after a write by someone without privileges. A directory
    /// keeps them.
    pub drops_privileges: bool,
}

/// Content to be written, in a buffer on loan: whoever gets it may keep the buffer in exchange for
/// another one.
#[derive(Debug)]
pub struct Payload<'a> {
    buffer: &'a mut Vec<u8>,
    content: Range<usize>,
    writer: u32,
}

impl<'a> Payload<'a> {
    /// Content in this part of a buffer.
    ///
    /// # Panics
    ///
    /// When the buffer does not reach so far.
    pub fn new(buffer: &'a mut Vec<u8>, content: Range<usize>) -> Self {
        assert!(content.start <= content.end && content.end <= buffer.len());
        Self {
            buffer,
            content,
            writer: 0,
        }
    }

    /// As written by this process.
    #[must_use]
    pub fn by(self, writer: u32) -> Self {
        Self { writer, ..self }
    }

    /// The process that writes it; 0 if there is none to name.
    pub fn writer(&self) -> u32 {
        self.writer
    }

    /// The content.
    pub fn bytes(&self) -> &[u8] {
        &self.buffer[self.content.clone()]
    }

    /// Bytes that the buffer takes.
    pub fn capacity(&self) -> usize {
        self.buffer.capacity()
    }

    /// Takes the buffer, which ends with the content, and says where that begins. Another one of the same
    /// [capacity](Self::capacity) has to be given for it.
    pub fn exchange(self, other: Vec<u8>) -> (Vec<u8>, usize) {
        let mut buffer = std::mem::replace(self.buffer, other);
        buffer.truncate(self.content.end);
        (buffer, self.content.start)
    }
}

/// Source or destination of [`Writable::copy_range`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FilePosition {
    /// The file.
    pub file: OpenFile,
    /// The first byte.
    pub offset: u64,
}

/// A step of writing to a file atomically.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AtomicStep {
    /// Stages all writes to the file from here on.
    Begin,
    /// Applies all staged writes, so that they survive power loss. On an error none is applied, and they stay staged.
    /// Without staged writes, this is an fsync.
    Commit,
    /// Drops staged writes. Releasing the open file that began does so too.
    Abort,
}

/// File system that can be written to. Calls may come from many threads at once.
///
/// An inode is *known* from the [`lookup`](FileSystem::lookup), [`lookup_listed`](Self::lookup_listed),
/// [`create`](Self::create), [`make`](Self::make), [`symlink`](Self::symlink), [`link`](Self::link) or
/// [`create_unnamed`](Self::create_unnamed) that returned its attributes, each of which counts, until
/// as many are [forgotten](Self::forget); as long as it is known, its number means it and nothing else,
/// also when its last name is gone.
pub trait Writable: FileSystem {
    /// For how long attributes and names may be believed without asking again.
    fn trusted_for(&self) -> Duration;

    /// Returns whether cached content of a file is still valid when it is opened again: it changes through this file
    /// system only.
    fn keeps_cached(&self) -> bool {
        false
    }

    /// Returns whether the listing of a directory that somebody has cached is valid until a name in it changes through this
    /// file system. A kernel that caches listings opens no directory then: [`open_dir`](Self::open_dir) and
    /// [`release_dir`](Self::release_dir) are not called, and the handle of each directory is 0.
    fn keeps_listings(&self) -> bool {
        false
    }

    /// Tells whether an inode that is there is found by its number also when it was forgotten, or this is another mount: by a lookup of
    /// `.`. Its [`generation`](Self::generation) tells it from others that had the number.
    fn finds_forgotten(&self) -> bool {
        false
    }

    /// The generation of an inode: it tells apart those that ever had its number.
    fn generation(&self, _ino: Ino) -> u32 {
        0
    }

    /// Returns whether a file is read at random, and given related content unasked. The kernel's own readahead would be
    /// mostly useless.
    fn is_read_in_jumps(&self, _ino: Ino) -> bool {
        false
    }

    /// Takes back so many of the times that an inode became known.
    fn forget(&self, ino: Ino, times: u64);

    /// Opens a file with the flags of `open(2)`.
    fn open(&self, ino: Ino, flags: u32) -> FsResult<u64>;

    /// Makes a regular file and opens it. It must not be there if `flags` hold `O_EXCL`.
    fn create(&self, new: &New<'_>, flags: u32) -> FsResult<(Attr, u64)>;

    /// Makes and opens a regular file without a name in the directory `new.parent`.
    fn create_unnamed(&self, new: &New<'_>, flags: u32) -> FsResult<(Attr, u64)>;

    /// The last user of an open file has gone.
    fn release(&self, file: OpenFile);

    /// As [`FileSystem::read`], through an open file.
    fn read_open(&self, file: OpenFile, offset: u64, buf: &mut [u8]) -> FsResult<usize>;

    /// Writes `data` at `offset`, or at the end if the file was opened with `O_APPEND`, and says how
    /// many bytes: fewer only if there is no room for more. With `drops_privileges`, set-id bits and
    /// file capabilities go.
    fn write(
        &self,
        file: OpenFile,
        offset: u64,
        data: &[u8],
        drops_privileges: bool,
    ) -> FsResult<usize>;

    /// As [`write`](Self::write), of content whose buffer may be kept.
    fn write_payload(
        &self,
        file: OpenFile,
        offset: u64,
        payload: Payload<'_>,
        drops_privileges: bool,
    ) -> FsResult<usize> {
        self.write(file, offset, payload.bytes(), drops_privileges)
    }

    /// As [`write_payload`](Self::write_payload), of what the kernel has kept for a while, of whoever wrote it: through any file that
    /// is open for writing, and at `offset`, also if that one was opened with `O_APPEND`. With `keeps_mtime`, the time
    /// of modification stays where that can be: the kernel tells it by itself, perhaps before this write comes.
    fn write_kept(
        &self,
        file: OpenFile,
        offset: u64,
        payload: Payload<'_>,
        drops_privileges: bool,
        _keeps_mtime: bool,
    ) -> FsResult<usize> {
        self.write_payload(file, offset, payload, drops_privileges)
    }

    /// Called by whoever has answered a write to an inode, if nobody waits for that thread: now there is time to hand
    /// on what was accepted.
    fn hand_on(&self, _ino: Ino) {}

    /// As [`write`](Self::write), of content in several pieces, one behind the other. It may stop between
    /// two of them, or within one.
    fn write_pieces(
        &self,
        file: OpenFile,
        offset: u64,
        pieces: &[IoSlice<'_>],
        drops_privileges: bool,
    ) -> FsResult<usize> {
        match pieces.iter().find(|piece| !piece.is_empty()) {
            Some(piece) => self.write(file, offset, piece, drops_privileges),
            None => Ok(0),
        }
    }

    /// A descriptor of the open file is being closed. An error of an earlier write that nobody was
    /// told of through this open file is told now. [`FsError::Unsupported`]: there never is one.
    fn flush(&self, file: OpenFile) -> FsResult<()>;

    /// All that was written survives power loss when this returns; with `data_only`, times may not.
    fn fsync(&self, file: OpenFile, data_only: bool) -> FsResult<()>;

    /// Makes the last write through an open file survive power loss, as `O_DSYNC` wants it, or with all attributes
    /// `O_SYNC`. A file system whose writes do so by themselves has nothing left to do.
    fn sync_written(&self, file: OpenFile, data_only: bool) -> FsResult<()> {
        self.fsync(file, data_only)
    }

    /// As [`FileSystem::seek`], through an open file.
    fn seek_open(&self, file: OpenFile, offset: u64, what: Seek) -> FsResult<u64>;

    /// Changes the space of a file as `fallocate(2)` does in this mode.
    fn allocate(&self, file: OpenFile, offset: u64, len: u64, mode: u32) -> FsResult<()>;

    /// Copies bytes from one file to another, and says how many.
    fn copy_range(&self, from: FilePosition, to: FilePosition, len: u64) -> FsResult<u64>;

    /// Changes attributes, through an open file if there is one, and returns what they are then.
    fn change(&self, ino: Ino, file: Option<OpenFile>, changes: &Changes) -> FsResult<Attr>;

    /// Makes a directory, device, named pipe, socket or regular file, as the kind in `new.mode` says.
    fn make(&self, new: &New<'_>, rdev: Rdev) -> FsResult<Attr>;

    /// Makes a symbolic link.
    fn symlink(&self, new: &New<'_>, target: &[u8]) -> FsResult<Attr>;

    /// Gives an inode another name.
    fn link(&self, ino: Ino, parent: Ino, name: &[u8]) -> FsResult<Attr>;

    /// Removes the name of something that is no directory.
    fn unlink(&self, parent: Ino, name: &[u8]) -> FsResult<()>;

    /// Removes an empty directory.
    fn rmdir(&self, parent: Ino, name: &[u8]) -> FsResult<()>;

    /// Renames as `renameat2(2)` does with these flags.
    fn rename(&self, from: (Ino, &[u8]), to: (Ino, &[u8]), flags: u32) -> FsResult<()>;

    /// As [`unlink`](Self::unlink), by a caller. The kernel has checked that they may, by what it knows of the name; it may
    /// mean something else by now that is not theirs to remove.
    fn unlink_as(&self, parent: Ino, name: &[u8], _caller: Caller) -> FsResult<()> {
        self.unlink(parent, name)
    }

    /// As [`rmdir`](Self::rmdir), by a caller as [`unlink_as`](Self::unlink_as).
    fn rmdir_as(&self, parent: Ino, name: &[u8], _caller: Caller) -> FsResult<()> {
        self.rmdir(parent, name)
    }

    /// As [`rename`](Self::rename), by a caller as [`unlink_as`](Self::unlink_as). What is left in the old place, if the flags
    /// want something there, is theirs.
    fn rename_as(
        &self,
        from: (Ino, &[u8]),
        to: (Ino, &[u8]),
        flags: u32,
        _caller: Caller,
    ) -> FsResult<()> {
        self.rename(from, to, flags)
    }

    /// Sets an extended attribute as `setxattr(2)` does with these flags.
    fn setxattr(&self, ino: Ino, name: &[u8], value: &[u8], flags: u32) -> FsResult<()>;

    /// As [`setxattr`](Self::setxattr), of an access list by a caller who is not in the group of the file: the
    /// set-group-id bit goes. If the list cannot be set, both stay as they are, where that can be.
    fn setxattr_by_outsider(
        &self,
        ino: Ino,
        name: &[u8],
        value: &[u8],
        flags: u32,
        _caller: Caller,
    ) -> FsResult<()> {
        const SETGID: u16 = 0o2000;
        self.setxattr(ino, name, value, flags)?;
        let perm = self.getattr(ino)?.perm;
        if perm & SETGID != 0 {
            let changes = Changes {
                perm: Some(perm & !SETGID),
                ..Changes::default()
            };
            self.change(ino, None, &changes)?;
        }
        Ok(())
    }

    /// Removes an extended attribute.
    fn removexattr(&self, ino: Ino, name: &[u8]) -> FsResult<()>;

    /// Opens a directory.
    fn open_dir(&self, ino: Ino) -> FsResult<u64>;

    /// The last user of an open directory has gone.
    fn release_dir(&self, dir: OpenFile);

    /// As [`FileSystem::readdir`], through an open directory.
    fn read_dir(
        &self,
        dir: OpenFile,
        from: u64,
        visit: &mut dyn FnMut(DirEntry<'_>) -> ControlFlow<()>,
    ) -> FsResult<()>;

    /// As [`FileSystem::lookup`], of a name that was just listed, if that can be done at once and there is
    /// room to know one more inode; who needs the others looks them up.
    fn lookup_listed(&self, parent: Ino, name: &[u8]) -> Option<Attr> {
        let _ = (parent, name);
        None
    }

    /// Returns whether a directory is listed with attributes from its first entry on. The kernel asks for them there before
    /// anybody has shown to want them; behind that it asks where somebody has.
    fn lists_first_attributes(&self) -> bool {
        false
    }

    /// The names in a directory survive power loss when this returns.
    fn fsync_dir(&self, dir: OpenFile) -> FsResult<()>;

    /// Returns whether writes to a file can be staged, and applied as a whole.
    fn has_atomic_writes(&self) -> bool {
        false
    }

    /// Does a step of that, through an open file. What waits is read already, by everyone; the size of the file can be changed by
    /// writing alone meanwhile.
    fn write_atomically(&self, file: OpenFile, step: AtomicStep) -> FsResult<()> {
        let _ = (file, step);
        Err(FsError::Unsupported)
    }

    /// A descriptor that names the file which holds exactly the content of this open one (`O_PATH` does), for a kernel
    /// that opens it, with the flags of each user, to read and write there without asking; `None` if there is none. The answer stays the
    /// same as long as anyone has the inode open.
    fn backing(&self, file: OpenFile) -> Option<OwnedFd> {
        let _ = file;
        None
    }
}
