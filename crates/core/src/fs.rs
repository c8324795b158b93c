//! Answers of a file system.

use std::io;
use std::ops::ControlFlow;
use std::os::fd::BorrowedFd;

use crate::Writable;

/// An inode number as the file system's user sees it. The root's is whatever
/// [`FileSystem::root`] says.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Ino(pub u64);

/// Tells what kind of file an inode is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum FileKind {
    /// A regular file.
    Regular,
    /// A directory.
    Directory,
    /// A symbolic link.
    Symlink,
    /// A character device.
    CharDevice,
    /// A block device.
    BlockDevice,
    /// A named pipe.
    Fifo,
    /// A Unix socket.
    Socket,
}

impl FileKind {
    /// The `S_IFMT` bits of `st_mode`.
    pub const fn mode_bits(self) -> u32 {
        match self {
            Self::Fifo => 0o010_000,
            Self::CharDevice => 0o020_000,
            Self::Directory => 0o040_000,
            Self::BlockDevice => 0o060_000,
            Self::Regular => 0o100_000,
            Self::Symlink => 0o120_000,
            Self::Socket => 0o140_000,
        }
    }

    /// The kind that an `st_mode` names, if any.
    pub const fn from_mode(mode: u32) -> Option<Self> {
        Some(match mode & 0o170_000 {
            0o010_000 => Self::Fifo,
            0o020_000 => Self::CharDevice,
            0o040_000 => Self::Directory,
            0o060_000 => Self::BlockDevice,
            0o100_000 => Self::Regular,
            0o120_000 => Self::Symlink,
            0o140_000 => Self::Socket,
            _ => return None,
        })
    }

    /// Returns whether inodes of this kind have content: files, directories and symbolic links.
    pub const fn may_have_data(self) -> bool {
        matches!(self, Self::Regular | Self::Directory | Self::Symlink)
    }

    /// One word for messages and listings.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Regular => "file",
            Self::Directory => "directory",
            Self::Symlink => "symlink",
            Self::CharDevice => "character device",
            Self::BlockDevice => "block device",
            Self::Fifo => "fifo",
            Self::Socket => "socket",
        }
    }
}

/// A device number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Rdev {
    /// The driver, 12 bits.
    pub major: u32,
    /// The unit, 20 bits.
    pub minor: u32,
}

/// Seconds and nanoseconds since 1970, seconds may be negative.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct Timestamp {
    /// Whole seconds.
    pub secs: i64,
    /// 0 to 999,999,999.
    pub nanos: u32,
}

/// Holds what `stat` says of an inode.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Attr {
    /// The inode.
    pub ino: Ino,
    /// Its kind.
    pub kind: FileKind,
    /// Permission, set-id and sticky bits (`0o7777`).
    pub perm: u16,
    /// Names that refer to it.
    pub nlink: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Device number of a device, else zero.
    pub rdev: Rdev,
    /// Size in bytes.
    pub size: u64,
    /// Space used, in units of 512 bytes.
    pub blocks: u64,
    /// Preferred I/O size in bytes.
    pub block_size: u32,
    /// Last access. A file system that keeps one time reports it for all three.
    pub atime: Timestamp,
    /// Last modification of the content.
    pub mtime: Timestamp,
    /// Last change of the inode.
    pub ctime: Timestamp,
}

/// An entry of a directory, lent for the length of a call.
#[derive(Debug, Clone, Copy)]
pub struct DirEntry<'a> {
    /// The inode it names.
    pub ino: Ino,
    /// The kind of that inode.
    pub kind: FileKind,
    /// Tells where to resume after this entry; stable while the file system is mounted.
    pub next: u64,
    /// The name: 1 to 255 bytes, without `/` or NUL.
    pub name: &'a [u8],
}

/// Tells what `lseek` looks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Seek {
    /// The first byte of data at or after the offset.
    Data,
    /// The first byte of a hole at or after the offset; the end of the file counts as one.
    Hole,
}

/// Holds what `statfs` says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StatFs {
    /// Unit of the counts, in bytes.
    pub block_size: u32,
    /// Blocks in all.
    pub blocks: u64,
    /// Blocks free.
    pub blocks_free: u64,
    /// Blocks free for those without privileges.
    pub blocks_available: u64,
    /// Inodes in all.
    pub files: u64,
    /// Inodes free.
    pub files_free: u64,
    /// Longest name in bytes.
    pub name_max: u32,
}

/// Tells why a file system could not answer. `errno` values are chosen at the FUSE edge alone.
#[derive(Debug, thiserror::Error)]
pub enum FsError {
    /// No such name, or no such inode.
    #[error("no such file or directory")]
    NotFound,
    /// The inode is not a directory.
    #[error("not a directory")]
    NotDirectory,
    /// The inode is a directory.
    #[error("is a directory")]
    IsDirectory,
    /// The call does not fit the inode or the arguments.
    #[error("invalid argument")]
    Invalid,
    /// No such extended attribute, or no data or hole at or after the offset.
    #[error("no data")]
    NoData,
    /// The offset lies at or beyond the end of the file.
    #[error("offset beyond the end of the file")]
    BeyondEnd,
    /// The file system cannot do this at all.
    #[error("not supported")]
    Unsupported,
    /// The name is taken.
    #[error("file exists")]
    Exists,
    /// The directory has entries.
    #[error("directory not empty")]
    NotEmpty,
    /// There is no room left.
    #[error("no space left on device")]
    NoSpace,
    /// The file would exceed the largest size.
    #[error("file too large")]
    TooLarge,
    /// The name is longer than any can be.
    #[error("file name too long")]
    NameTooLong,
    /// The inode has as many names as it can have.
    #[error("too many links")]
    TooManyLinks,
    /// Nothing can be changed, or nothing any more.
    #[error("read-only file system")]
    ReadOnly,
    /// Others keep it from being done for now, for as long as they like perhaps. Nothing was changed: the same call may be made
    /// again.
    #[error("resource temporarily unavailable")]
    Later,
    /// Broken content; the text says where and how.
    #[error("{0}")]
    Corrupt(String),
    /// The medium failed.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// Means what an operating system underneath said of the request: that is the answer, and no fault.
    #[error("{0}")]
    Host(io::Error),
}

/// The answer of a file system.
pub type FsResult<T> = Result<T, FsError>;

/// Answers of a file system. Calls may come from many threads at once.
pub trait FileSystem: Send + Sync {
    /// The inode of the root directory.
    fn root(&self) -> Ino;

    /// Finds `name` in the directory `parent`.
    fn lookup(&self, parent: Ino, name: &[u8]) -> FsResult<Attr>;

    /// The attributes of an inode.
    fn getattr(&self, ino: Ino) -> FsResult<Attr>;

    /// Returns when an inode was made, if that is known; `Unsupported` where it is of none.
    fn born(&self, ino: Ino) -> FsResult<Option<Timestamp>> {
        let _ = ino;
        Err(FsError::Unsupported)
    }

    /// The attributes of an inode that was met in a directory, if they can be had at once; whoever
    /// needs those of the others asks for them.
    fn getattr_listed(&self, ino: Ino, kind: FileKind) -> Option<Attr> {
        let _ = kind;
        self.getattr(ino).ok()
    }

    /// Calls `visit` for each entry of a directory, `.` and `..` included, from the position `from` on
    /// (0 for the beginning, else a [`DirEntry::next`]) until it breaks or the directory ends.
    fn readdir(
        &self,
        ino: Ino,
        from: u64,
        visit: &mut dyn FnMut(DirEntry<'_>) -> ControlFlow<()>,
    ) -> FsResult<()>;

    /// The target of a symbolic link.
    fn readlink(&self, ino: Ino) -> FsResult<Vec<u8>>;

    /// Fills `buf` from `offset` on, in place, and says how many bytes there were: fewer than asked
    /// only at the end of the file.
    fn read(&self, ino: Ino, offset: u64, buf: &mut [u8]) -> FsResult<usize>;

    /// Returns whether [`memory_file`](Self::memory_file) has anything to offer. A session that hears so pays
    /// for each opening of a file, which is free otherwise.
    fn has_memory_files(&self) -> bool {
        false
    }

    /// A file of the operating system that holds the whole content of `ino`, and nothing else: a
    /// session may have the kernel read from it, and `read` is not called then. The answer for an
    /// inode does not change while the file system is mounted, nor does the content.
    fn memory_file(&self, ino: Ino) -> Option<BorrowedFd<'_>> {
        let _ = ino;
        None
    }

    /// Finds data or a hole.
    fn seek(&self, ino: Ino, offset: u64, what: Seek) -> FsResult<u64>;

    /// Returns whether it is known that no inode has an extended attribute, nor ever gets one. A session then has the kernel
    /// ask for none any more.
    fn has_no_xattrs(&self) -> bool {
        false
    }

    /// The value of the extended attribute with this full name (`user.mime_type`).
    fn getxattr(&self, ino: Ino, name: &[u8]) -> FsResult<Vec<u8>>;

    /// The full names of the extended attributes.
    fn listxattr(&self, ino: Ino) -> FsResult<Vec<Vec<u8>>>;

    /// Space and inodes in all.
    fn statfs(&self) -> FsResult<StatFs>;

    /// The file system as one that can be written to; `None` for one that never changes.
    fn writable(&self) -> Option<&dyn Writable> {
        None
    }
}
