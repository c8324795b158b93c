//! Attributes.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use anteros_core::{
    Attr, Changes, FileKind, FsError, FsResult, Ino, OpenFile, Rdev, SetTime, StatFs, Timestamp,
};
use rustix::fs::{
    AtFlags, Gid, Mode, OFlags, Stat, StatxFlags, Timespec, Timestamps, UTIME_NOW, UTIME_OMIT, Uid,
    chmodat, chownat, fchmod, fgetxattr_query, fremovexattr, fstatvfs, ftruncate, major, minor,
    statx, utimensat,
};
use rustix::io::{Errno, retry_on_intr};

use crate::file::HostFile;
use crate::host::{self, refused};
use crate::identity::Identity;
use crate::mirror::HostFs;
use crate::table::Node;

const FILE_CAPABILITIES: &[u8] = b"security.capability";

pub(crate) fn of(node: &Node) -> FsResult<Attr> {
    from_stat(node.ino, &host::stat_of(node.as_fd()).map_err(refused)?)
}

pub(crate) fn from_stat(ino: Ino, stat: &Stat) -> FsResult<Attr> {
    let time = |secs, nanos| Timestamp {
        secs,
        nanos: nanos as u32,
    };
    Ok(Attr {
        ino,
        kind: FileKind::from_mode(stat.st_mode).ok_or(FsError::Invalid)?,
        perm: (stat.st_mode & 0o7777) as u16,
        nlink: stat.st_nlink as u32,
        uid: stat.st_uid,
        gid: stat.st_gid,
        rdev: Rdev {
            major: major(stat.st_rdev),
            minor: minor(stat.st_rdev),
        },
        size: stat.st_size as u64,
        blocks: stat.st_blocks as u64,
        block_size: stat.st_blksize as u32,
        atime: time(stat.st_atime, stat.st_atime_nsec),
        mtime: time(stat.st_mtime, stat.st_mtime_nsec),
        ctime: time(stat.st_ctime, stat.st_ctime_nsec),
    })
}

/// Returns when the file was made, if its file system knows.
pub(crate) fn born(node: &Node) -> FsResult<Option<Timestamp>> {
    let found =
        statx(node.as_fd(), c"", AtFlags::EMPTY_PATH, StatxFlags::BTIME).map_err(refused)?;
    let is_known = found.stx_mask & StatxFlags::BTIME.bits() != 0;
    Ok(is_known.then_some(Timestamp {
        secs: found.stx_btime.tv_sec,
        nanos: found.stx_btime.tv_nsec,
    }))
}

pub(crate) fn statfs(fs: &HostFs) -> FsResult<StatFs> {
    let stat = fstatvfs(fs.table.root()).map_err(refused)?;
    Ok(StatFs {
        block_size: stat.f_frsize as u32,
        blocks: stat.f_blocks,
        blocks_free: stat.f_bfree,
        blocks_available: stat.f_bavail,
        files: stat.f_files,
        files_free: stat.f_ffree,
        name_max: stat.f_namemax as u32,
    })
}

/// The owner goes first, because the host takes set-id bits away with it, and times last, because
/// everything else changes them.
pub(crate) fn change(
    fs: &HostFs,
    ino: Ino,
    file: Option<OpenFile>,
    changes: &Changes,
) -> FsResult<Attr> {
    let node = fs.table.get(ino)?;
    // Before anything is changed: it may have to be tried again.
    let cut = match changes.size {
        Some(size) => Some((to_cut(fs, &node, file)?, size)),
        None => None,
    };
    if changes.drops_privileges && node.kind == FileKind::Regular && fs.identity.is_root() {
        drop_privileges(&fs.identity, to_change(fs, &node, file)?.as_fd())?;
    }
    if changes.uid.is_some() || changes.gid.is_some() {
        change_owner(fs, &node, changes.uid, changes.gid)?;
    }
    if let Some((file, size)) = cut {
        // The C library has an error of its own for sizes that the kernel does not know.
        i64::try_from(size).map_err(|_| FsError::Invalid)?;
        retry_on_intr(|| ftruncate(file.as_fd(), size)).map_err(refused)?;
    }
    if let Some(perm) = changes.perm {
        change_mode(fs, &node, perm)?;
    }
    if changes.atime.is_some() || changes.mtime.is_some() {
        change_times(fs, &node, changes.atime, changes.mtime)?;
    }
    of(&node)
}

fn change_owner(fs: &HostFs, node: &Node, uid: Option<u32>, gid: Option<u32>) -> FsResult<()> {
    // That number means "no change" to the host, and nobody to anyone else.
    if uid == Some(u32::MAX) || gid == Some(u32::MAX) {
        return Err(FsError::Invalid);
    }
    chownat(
        fs.proc_fds.dir(),
        host::entry(node.as_fd()),
        uid.map(Uid::from_raw),
        gid.map(Gid::from_raw),
        AtFlags::empty(),
    )
    .map_err(refused)
}

fn change_mode(fs: &HostFs, node: &Node, perm: u16) -> FsResult<()> {
    // Some file systems would do it, and the kernel leaves them to.
    if node.kind == FileKind::Symlink {
        return Err(refused(Errno::OPNOTSUPP));
    }
    let mode = Mode::from_raw_mode(u32::from(perm & 0o7777));
    let name = host::entry(node.as_fd());
    chmodat(fs.proc_fds.dir(), name, mode, AtFlags::empty()).map_err(refused)
}

/// A file that is open.
enum Opened {
    Already(Arc<HostFile>),
    Now(OwnedFd),
}

impl AsFd for Opened {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Already(file) => file.fd(),
            Self::Now(fd) => fd.as_fd(),
        }
    }
}

/// Opens what is to be cut off. `open` with `O_RDONLY | O_TRUNC` arrives here with a file that was opened to be read alone, which
/// the host does not cut off through that descriptor.
fn to_cut(fs: &HostFs, node: &Node, file: Option<OpenFile>) -> FsResult<Opened> {
    match node.kind {
        FileKind::Regular => {}
        FileKind::Directory => return Err(FsError::IsDirectory),
        _ => return Err(FsError::Invalid),
    }
    if let Some(file) = file {
        let file = fs.files.get(file.handle)?;
        if file.is_writable() {
            return Ok(Opened::Already(file));
        }
    }
    opened(fs, node, OFlags::WRONLY).map(Opened::Now)
}

/// The file whose mode and attributes are to be changed, by the descriptor that there is, or another.
fn to_change(fs: &HostFs, node: &Node, file: Option<OpenFile>) -> FsResult<Opened> {
    match file {
        Some(file) => fs.files.get(file.handle).map(Opened::Already),
        None => opened(fs, node, OFlags::RDONLY).map(Opened::Now),
    }
}

fn opened(fs: &HostFs, node: &Node, flags: OFlags) -> FsResult<OwnedFd> {
    let fd = fs.proc_fds.reopen(node.as_fd(), flags);
    fd.map_err(|errno| host::not_opened(errno, flags))
}

fn change_times(
    fs: &HostFs,
    node: &Node,
    atime: Option<SetTime>,
    mtime: Option<SetTime>,
) -> FsResult<()> {
    let times = Timestamps {
        last_access: timespec(atime),
        last_modification: timespec(mtime),
    };
    let name = host::entry(node.as_fd());
    utimensat(fs.proc_fds.dir(), name, &times, AtFlags::empty()).map_err(refused)
}

fn timespec(time: Option<SetTime>) -> Timespec {
    let (tv_sec, tv_nsec) = match time {
        None => (0, UTIME_OMIT),
        Some(SetTime::Now) => (0, UTIME_NOW),
        Some(SetTime::At(time)) => (time.secs, time.nanos.into()),
    };
    Timespec { tv_sec, tv_nsec }
}

/// Takes from a regular file what makes it run as somebody else, as the host does when someone without
/// privileges writes to it. To the host it is the process that writes: if that has no privileges
/// itself, the host does it unasked.
pub(crate) fn drop_privileges(process: &Identity, fd: BorrowedFd<'_>) -> FsResult<()> {
    if !process.is_root() {
        return Ok(());
    }
    let stat = host::stat_of(fd).map_err(refused)?;
    let mode = Mode::from_raw_mode(stat.st_mode);
    // Without the right to execute for the group, the latter means something else, but it may get that right later. The host
    // leaves it to those who are in the group, and nobody knows here who is.
    let kept = mode - Mode::SUID - Mode::SGID;
    if kept != mode {
        fchmod(fd, kept).map_err(refused)?;
    }
    // To ask is cheaper than to remove what is not there.
    if fgetxattr_query(fd, FILE_CAPABILITIES).is_err() {
        return Ok(());
    }
    match fremovexattr(fd, FILE_CAPABILITIES) {
        Err(Errno::NODATA) => Ok(()),
        result => result.map_err(refused),
    }
}
