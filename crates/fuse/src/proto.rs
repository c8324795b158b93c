//! The kernel protocol, version 7, as `linux/fuse.h` defines it: native byte order, every struct
//! padded to 8 bytes.
//!
//! ```text
//! request: | InHeader (40) | arguments of the opcode | names and data |
//! reply:   | OutHeader (16) | payload of the opcode   |
//! ```
//!
//! Only what this crate sends or understands is listed. The names are the kernel's without their
//! `fuse_` prefix.

pub mod notify;
pub mod own;

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// The major version; it never changes without a new protocol.
pub const MAJOR: u32 = 7;
/// The newest minor version whose meaning this crate knows.
pub const MINOR: u32 = 45;
/// The oldest minor version it works with: Linux 5.4.
pub const MINOR_MIN: u32 = 31;

/// The node number of the root directory.
pub const ROOT_ID: u64 = 1;

/// Opcodes.
pub mod op {
    pub const LOOKUP: u32 = 1;
    pub const FORGET: u32 = 2;
    pub const GETATTR: u32 = 3;
    pub const SETATTR: u32 = 4;
    pub const READLINK: u32 = 5;
    pub const SYMLINK: u32 = 6;
    pub const MKNOD: u32 = 8;
    pub const MKDIR: u32 = 9;
    pub const UNLINK: u32 = 10;
    pub const RMDIR: u32 = 11;
    pub const RENAME: u32 = 12;
    pub const LINK: u32 = 13;
    pub const OPEN: u32 = 14;
    pub const READ: u32 = 15;
    pub const WRITE: u32 = 16;
    pub const STATFS: u32 = 17;
    pub const RELEASE: u32 = 18;
    pub const FSYNC: u32 = 20;
    pub const SETXATTR: u32 = 21;
    pub const GETXATTR: u32 = 22;
    pub const LISTXATTR: u32 = 23;
    pub const REMOVEXATTR: u32 = 24;
    pub const FLUSH: u32 = 25;
    pub const INIT: u32 = 26;
    pub const OPENDIR: u32 = 27;
    pub const READDIR: u32 = 28;
    pub const RELEASEDIR: u32 = 29;
    pub const FSYNCDIR: u32 = 30;
    pub const CREATE: u32 = 35;
    pub const INTERRUPT: u32 = 36;
    pub const DESTROY: u32 = 38;
    pub const IOCTL: u32 = 39;
    pub const NOTIFY_REPLY: u32 = 41;
    pub const BATCH_FORGET: u32 = 42;
    pub const FALLOCATE: u32 = 43;
    pub const READDIRPLUS: u32 = 44;
    pub const RENAME2: u32 = 45;
    pub const LSEEK: u32 = 46;
    pub const COPY_FILE_RANGE: u32 = 47;
    pub const TMPFILE: u32 = 51;
    pub const STATX: u32 = 52;
    pub const COPY_FILE_RANGE_64: u32 = 53;
}

/// Flags by which a file is opened.
pub mod open_flag {
    /// Nothing of it is cached.
    pub const DIRECT_IO: u32 = 1 << 0;
    /// Keeps valid what is cached of the file.
    pub const KEEP_CACHE: u32 = 1 << 1;
    /// Closing it is not to be told; only its last close.
    pub const NOFLUSH: u32 = 1 << 5;
    /// The kernel reads from the file of the backing id. Goes with `NOFLUSH`, not with `KEEP_CACHE`.
    pub const PASSTHROUGH: u32 = 1 << 7;
}

/// Flags of the handshake. Those from bit 32 on travel in a field of their own, which `INIT_EXT`
/// announces.
pub mod init_flag {
    pub const ASYNC_READ: u64 = 1 << 0;
    pub const EXPORT_SUPPORT: u64 = 1 << 4;
    pub const BIG_WRITES: u64 = 1 << 5;
    pub const DONT_MASK: u64 = 1 << 6;
    pub const AUTO_INVAL_DATA: u64 = 1 << 12;
    pub const DO_READDIRPLUS: u64 = 1 << 13;
    pub const READDIRPLUS_AUTO: u64 = 1 << 14;
    pub const ASYNC_DIO: u64 = 1 << 15;
    pub const WRITEBACK_CACHE: u64 = 1 << 16;
    pub const NO_OPEN_SUPPORT: u64 = 1 << 17;
    pub const PARALLEL_DIROPS: u64 = 1 << 18;
    pub const POSIX_ACL: u64 = 1 << 20;
    pub const MAX_PAGES: u64 = 1 << 22;
    pub const CACHE_SYMLINKS: u64 = 1 << 23;
    pub const NO_OPENDIR_SUPPORT: u64 = 1 << 24;
    pub const HANDLE_KILLPRIV_V2: u64 = 1 << 28;
    pub const SETXATTR_EXT: u64 = 1 << 29;
    pub const INIT_EXT: u64 = 1 << 30;
    pub const CREATE_SUPP_GROUP: u64 = 1 << 34;
    pub const PASSTHROUGH: u64 = 1 << 37;
    pub const OVER_IO_URING: u64 = 1 << 41;
}

/// Fields of [`SetattrIn`] that count, and how.
pub mod setattr {
    pub const MODE: u32 = 1 << 0;
    pub const UID: u32 = 1 << 1;
    pub const GID: u32 = 1 << 2;
    pub const SIZE: u32 = 1 << 3;
    pub const ATIME: u32 = 1 << 4;
    pub const MTIME: u32 = 1 << 5;
    pub const FH: u32 = 1 << 6;
    pub const ATIME_NOW: u32 = 1 << 7;
    pub const MTIME_NOW: u32 = 1 << 8;
    pub const LOCK_OWNER: u32 = 1 << 9;
    pub const CTIME: u32 = 1 << 10;
    pub const KILL_SUIDGID: u32 = 1 << 11;
}

/// Of CREATE: set-id bits go, for the file is cut off.
pub const OPEN_KILL_SUIDGID: u32 = 1 << 0;
/// Of WRITE: the content comes from the kernel's cache, some time after it was written.
pub const WRITE_CACHE: u32 = 1 << 0;
/// Of WRITE: set-id bits go.
pub const WRITE_KILL_SUIDGID: u32 = 1 << 2;
/// Of SETXATTR, with an access list: the set-group-id bit goes, for the caller is not in the file's group.
pub const SETXATTR_ACL_KILL_SGID: u32 = 1 << 0;
/// Of FSYNC and FSYNCDIR: times may wait.
pub const FSYNC_DATA_ONLY: u32 = 1 << 0;

/// `lseek`'s `SEEK_DATA`.
pub const SEEK_DATA: u32 = 3;
/// `lseek`'s `SEEK_HOLE`.
pub const SEEK_HOLE: u32 = 4;

/// Holds what every request begins with.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct InHeader {
    /// Bytes of the request, this header included.
    pub len: u32,
    pub opcode: u32,
    /// Names the request in its reply.
    pub unique: u64,
    pub nodeid: u64,
    pub uid: u32,
    pub gid: u32,
    pub pid: u32,
    pub total_extlen: u16,
    pub padding: u16,
}

/// The kind of an [`Extension`] that names further groups of the caller: their number, and each.
pub const EXTENSION_GROUPS: u32 = 32;

/// Holds what each of the extensions begins with that follow a request's arguments: so many units of 8 bytes as its
/// [`InHeader::total_extlen`] says.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Extension {
    /// Bytes, with this and what fills it up to 8.
    pub size: u32,
    pub kind: u32,
}

/// Holds what every reply begins with.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct OutHeader {
    /// Bytes of the reply, this header included.
    pub len: u32,
    /// 0, or a negative `errno` above -512; the kernel refuses anything else. Where `unique` is 0, and
    /// thus no request answered, what is notified of.
    pub error: i32,
    pub unique: u64,
}

/// Attributes of an inode.
#[derive(Debug, Clone, Copy, PartialEq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct RawAttr {
    pub ino: u64,
    pub size: u64,
    pub blocks: u64,
    pub atime: u64,
    pub mtime: u64,
    pub ctime: u64,
    pub atimensec: u32,
    pub mtimensec: u32,
    pub ctimensec: u32,
    pub mode: u32,
    pub nlink: u32,
    pub uid: u32,
    pub gid: u32,
    /// As [`rdev`] packs it.
    pub rdev: u32,
    pub blksize: u32,
    pub flags: u32,
}

/// Reply to LOOKUP, and the head of each record of READDIRPLUS. A `nodeid` of 0 says that the name
/// is known to be missing.
#[derive(Debug, Clone, Copy, PartialEq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct EntryOut {
    pub nodeid: u64,
    pub generation: u64,
    /// Seconds for which the name may be cached.
    pub entry_valid: u64,
    /// Seconds for which the attributes may be cached.
    pub attr_valid: u64,
    pub entry_valid_nsec: u32,
    pub attr_valid_nsec: u32,
    pub attr: RawAttr,
}

/// Reply to GETATTR.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct AttrOut {
    pub attr_valid: u64,
    pub attr_valid_nsec: u32,
    pub padding: u32,
    pub attr: RawAttr,
}

/// Arguments of READ, READDIR and READDIRPLUS.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct ReadIn {
    pub fh: u64,
    pub offset: u64,
    pub size: u32,
    pub read_flags: u32,
    pub lock_owner: u64,
    pub flags: u32,
    pub padding: u32,
}

/// A record of READDIR, followed by the name and padding to a multiple of 8 bytes.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Dirent {
    pub ino: u64,
    /// Tells where to resume after this record.
    pub off: u64,
    pub namelen: u32,
    /// A `DT_` value.
    pub kind: u32,
}

/// Reply to OPEN.
#[derive(Debug, Clone, Copy, PartialEq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct OpenOut {
    pub fh: u64,
    pub open_flags: u32,
    pub backing_id: i32,
}

/// Arguments of OPEN and OPENDIR.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct OpenIn {
    /// Of `open(2)`.
    pub flags: u32,
    pub open_flags: u32,
}

/// Arguments of CREATE and TMPFILE, followed by the name.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct CreateIn {
    pub flags: u32,
    pub mode: u32,
    pub umask: u32,
    pub open_flags: u32,
}

/// Arguments of RELEASE and RELEASEDIR.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct ReleaseIn {
    pub fh: u64,
    pub flags: u32,
    pub release_flags: u32,
    pub lock_owner: u64,
}

/// Arguments of FLUSH.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct FlushIn {
    pub fh: u64,
    pub unused: u32,
    pub padding: u32,
    pub lock_owner: u64,
}

/// Arguments of FSYNC and FSYNCDIR.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct FsyncIn {
    pub fh: u64,
    pub flags: u32,
    pub padding: u32,
}

/// Arguments of WRITE, followed by the content.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct WriteIn {
    pub fh: u64,
    pub offset: u64,
    pub size: u32,
    pub write_flags: u32,
    pub lock_owner: u64,
    pub flags: u32,
    pub padding: u32,
}

/// States where in a request the content begins that WRITE brings.
pub const WRITE_HEAD_LEN: usize = size_of::<InHeader>() + size_of::<WriteIn>();

/// Reply to WRITE and COPY_FILE_RANGE.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct WriteOut {
    pub size: u32,
    pub padding: u32,
}

/// A time in the reply to STATX.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct StatxTime {
    pub secs: i64,
    pub nanos: u32,
    pub reserved: i32,
}

/// Reply to STATX: the fields of `statx(2)`.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct StatxOut {
    pub attr_valid: u64,
    pub attr_valid_nsec: u32,
    pub flags: u32,
    pub spare: [u64; 2],
    pub mask: u32,
    pub blksize: u32,
    pub attributes: u64,
    pub nlink: u32,
    pub uid: u32,
    pub gid: u32,
    pub mode: u16,
    pub spare0: u16,
    pub ino: u64,
    pub size: u64,
    pub blocks: u64,
    pub attributes_mask: u64,
    pub atime: StatxTime,
    pub btime: StatxTime,
    pub ctime: StatxTime,
    pub mtime: StatxTime,
    pub rdev_major: u32,
    pub rdev_minor: u32,
    pub dev_major: u32,
    pub dev_minor: u32,
    pub spare2: [u64; 14],
}

const _: () = assert!(size_of::<StatxOut>() == 288);

/// Parts of [`StatxOut`] that are there (`STATX_BASIC_STATS`, `STATX_BTIME`).
pub mod statx {
    pub const BASIC_STATS: u32 = 0x7ff;
    pub const BTIME: u32 = 0x800;
}

/// Arguments of FALLOCATE.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct FallocateIn {
    pub fh: u64,
    pub offset: u64,
    pub length: u64,
    pub mode: u32,
    pub padding: u32,
}

/// Arguments of COPY_FILE_RANGE and COPY_FILE_RANGE_64. The latter replies with a u64.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct CopyFileRangeIn {
    pub fh_in: u64,
    pub off_in: u64,
    pub nodeid_out: u64,
    pub fh_out: u64,
    pub off_out: u64,
    pub len: u64,
    pub flags: u64,
}

/// Arguments of SETATTR.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct SetattrIn {
    /// Of [`setattr`].
    pub valid: u32,
    pub padding: u32,
    pub fh: u64,
    pub size: u64,
    pub lock_owner: u64,
    pub atime: u64,
    pub mtime: u64,
    pub ctime: u64,
    pub atimensec: u32,
    pub mtimensec: u32,
    pub ctimensec: u32,
    pub mode: u32,
    pub unused4: u32,
    pub uid: u32,
    pub gid: u32,
    pub unused5: u32,
}

/// Arguments of MKNOD, followed by the name.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct MknodIn {
    pub mode: u32,
    pub rdev: u32,
    pub umask: u32,
    pub padding: u32,
}

/// Arguments of MKDIR, followed by the name.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct MkdirIn {
    pub mode: u32,
    pub umask: u32,
}

/// Arguments of RENAME2, followed by the old name and the new one. RENAME has no flags.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Rename2In {
    pub newdir: u64,
    pub flags: u32,
    pub padding: u32,
}

/// Holds what FORGET and each record of BATCH_FORGET say.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct ForgetOne {
    pub nodeid: u64,
    pub nlookup: u64,
}

/// Reply to STATFS.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct StatfsOut {
    pub blocks: u64,
    pub bfree: u64,
    pub bavail: u64,
    pub files: u64,
    pub ffree: u64,
    pub bsize: u32,
    pub namelen: u32,
    pub frsize: u32,
    pub padding: u32,
    pub spare: [u32; 6],
}

/// Arguments of GETXATTR (a name follows) and LISTXATTR, and the reply to either when it only asks
/// for the size.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct XattrSize {
    pub size: u32,
    pub padding: u32,
}

/// Arguments of SETXATTR, followed by the name and the value. Where `SETXATTR_EXT` was not agreed upon, the last two are
/// not there.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct SetxattrIn {
    pub size: u32,
    /// Of `setxattr(2)`.
    pub flags: u32,
    pub setxattr_flags: u32,
    pub padding: u32,
}

/// Arguments of IOCTL; what the command says of itself follows.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct IoctlIn {
    pub fh: u64,
    pub flags: u32,
    pub cmd: u32,
    pub arg: u64,
    pub in_size: u32,
    pub out_size: u32,
}

/// Reply to IOCTL; what the command returns follows.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct IoctlOut {
    pub result: i32,
    pub flags: u32,
    pub in_iovs: u32,
    pub out_iovs: u32,
}

/// The commands of F2FS for writing atomically (`linux/f2fs.h`).
pub mod f2fs {
    /// `F2FS_IOC_START_ATOMIC_WRITE`
    pub const START_ATOMIC_WRITE: u32 = 0xf501;
    /// `F2FS_IOC_COMMIT_ATOMIC_WRITE`
    pub const COMMIT_ATOMIC_WRITE: u32 = 0xf502;
    /// `F2FS_IOC_ABORT_ATOMIC_WRITE`
    pub const ABORT_ATOMIC_WRITE: u32 = 0xf505;
    /// `F2FS_IOC_GET_FEATURES`: returns 32 bits.
    pub const GET_FEATURES: u32 = 0x8004_f50c;
    /// `F2FS_FEATURE_ATOMIC_WRITE`: the one of them that is told.
    pub const FEATURE_ATOMIC_WRITE: u32 = 4;
}

/// Arguments of LSEEK.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct LseekIn {
    pub fh: u64,
    pub offset: u64,
    pub whence: u32,
    pub padding: u32,
}

/// Reply to LSEEK.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct LseekOut {
    pub offset: u64,
}

/// Arguments of INIT that every kernel sends. With `INIT_EXT` among the flags, the flags from bit 32
/// on follow; newer kernels add more behind.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct InitIn {
    pub major: u32,
    pub minor: u32,
    pub max_readahead: u32,
    pub flags: u32,
}

/// Reply to INIT.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct InitOut {
    pub major: u32,
    pub minor: u32,
    pub max_readahead: u32,
    pub flags: u32,
    pub max_background: u16,
    pub congestion_threshold: u16,
    pub max_write: u32,
    pub time_gran: u32,
    pub max_pages: u16,
    pub map_alignment: u16,
    /// Flags from bit 32 on.
    pub flags2: u32,
    /// Tells how many file systems may lie on top of each other, this one included; 0 says that
    /// none of its files is another's.
    pub max_stack_depth: u32,
    pub unused: [u32; 6],
}

const _: () = {
    assert!(size_of::<InHeader>() == 40);
    assert!(size_of::<OutHeader>() == 16);
    assert!(size_of::<RawAttr>() == 88);
    assert!(size_of::<EntryOut>() == 128);
    assert!(size_of::<AttrOut>() == 104);
    assert!(size_of::<ReadIn>() == 40);
    assert!(size_of::<Dirent>() == 24);
    assert!(size_of::<OpenOut>() == 16);
    assert!(size_of::<CreateIn>() == 16);
    assert!(size_of::<ReleaseIn>() == 24);
    assert!(size_of::<FlushIn>() == 24);
    assert!(size_of::<FsyncIn>() == 16);
    assert!(size_of::<WriteIn>() == 40);
    assert!(size_of::<FallocateIn>() == 32);
    assert!(size_of::<CopyFileRangeIn>() == 56);
    assert!(size_of::<SetattrIn>() == 88);
    assert!(size_of::<MknodIn>() == 16);
    assert!(size_of::<Rename2In>() == 16);
    assert!(size_of::<StatfsOut>() == 80);
    assert!(size_of::<XattrSize>() == 8);
    assert!(size_of::<LseekIn>() == 24);
    assert!(size_of::<LseekOut>() == 8);
    assert!(size_of::<InitIn>() == 16);
    assert!(size_of::<InitOut>() == 64);
};

/// Packs a device number as the protocol carries it; bits that have no place are dropped.
///
/// ```text
/// bit 31           20 19         8 7          0
///     | minor 19..8  | major 11..0 | minor 7..0 |
/// ```
pub const fn rdev(major: u32, minor: u32) -> u32 {
    (minor & 0xfff00) << 12 | (major & 0xfff) << 8 | minor & 0xff
}

/// The device number that was packed so: major and minor.
pub const fn unpack_rdev(rdev: u32) -> (u32, u32) {
    (rdev >> 8 & 0xfff, rdev >> 12 & 0xf_ff00 | rdev & 0xff)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn device_numbers_pack_as_the_kernel_unpacks_them() {
        for (major, minor, packed) in [
            (1, 3, 0x0103),
            (259, 0x12345, 0x1231_0345),
            (0xfff, 0xf_ffff, u32::MAX),
        ] {
            assert_eq!(rdev(major, minor), packed, "{major}:{minor}");
            assert_eq!(unpack_rdev(packed), (major, minor));
        }
    }

    #[test]
    fn fields_lie_where_the_kernel_looks() {
        assert_eq!(std::mem::offset_of!(InHeader, unique), 8);
        assert_eq!(std::mem::offset_of!(InHeader, nodeid), 16);
        assert_eq!(std::mem::offset_of!(OutHeader, error), 4);
        assert_eq!(std::mem::offset_of!(RawAttr, mode), 60);
        assert_eq!(std::mem::offset_of!(RawAttr, rdev), 76);
        assert_eq!(std::mem::offset_of!(EntryOut, attr), 40);
        assert_eq!(std::mem::offset_of!(ReadIn, size), 16);
        assert_eq!(std::mem::offset_of!(Dirent, namelen), 16);
        assert_eq!(std::mem::offset_of!(StatfsOut, frsize), 48);
        assert_eq!(std::mem::offset_of!(LseekIn, whence), 16);
        assert_eq!(std::mem::offset_of!(InitOut, max_write), 20);
        assert_eq!(std::mem::offset_of!(InitOut, max_pages), 28);
        assert_eq!(std::mem::offset_of!(InitOut, flags2), 32);
        assert_eq!(std::mem::offset_of!(InitOut, max_stack_depth), 36);
        assert_eq!(std::mem::offset_of!(OpenOut, backing_id), 12);
    }
}
