//! Opening of what is known.

use std::os::fd::{AsFd, OwnedFd};

use anteros_core::{FileKind, FsError, FsResult, Ino, OpenFile};
use rustix::fs::OFlags;
use rustix::io::Errno;

use crate::dir::OpenDir;
use crate::file::HostFile;
use crate::host::{not_opened, refused};
use crate::mirror::HostFs;
use crate::table::Node;

/// The part of `open`'s flags that concerns an inode which was found already.
///
/// `O_DIRECT` goes as well: the host would demand of our buffers what only the caller's fulfil.
pub(crate) fn kept_flags(flags: u32) -> OFlags {
    let tmpfile = OFlags::TMPFILE.difference(OFlags::DIRECTORY);
    OFlags::from_bits_retain(flags)
        .difference(OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | tmpfile)
        .difference(OFlags::PATH | OFlags::ASYNC | OFlags::DIRECT)
        .union(OFlags::NOCTTY)
}

pub(crate) fn open(fs: &HostFs, ino: Ino, flags: u32) -> FsResult<HostFile> {
    open_node(fs, &*fs.table.get(ino)?, flags)
}

/// Opens a regular file anew. All other kinds are either not opened this way or not by us: opening
/// a device or a pipe does something, and the kernel does it itself.
pub(crate) fn open_node(fs: &HostFs, node: &Node, flags: u32) -> FsResult<HostFile> {
    match node.kind {
        FileKind::Regular => {}
        FileKind::Directory => return Err(FsError::IsDirectory),
        FileKind::Symlink => return Err(refused(Errno::LOOP)),
        _ => return Err(refused(Errno::NXIO)),
    }
    let flags = kept_flags(flags);
    let fd = fs.with_room(|| fs.proc_fds.reopen(node.as_fd(), flags));
    let fd = fd.map_err(|errno| not_opened(errno, flags))?;
    Ok(HostFile::new(fd, flags))
}

/// A file opened for as long as it takes to answer one question.
pub(crate) fn to_read(fs: &HostFs, ino: Ino) -> FsResult<HostFile> {
    open(fs, ino, OFlags::RDONLY.bits())
}

/// Opens a directory.
pub(crate) fn directory(fs: &HostFs, ino: Ino) -> FsResult<OpenDir> {
    let node = fs.table.get(ino)?;
    let flags = OFlags::RDONLY | OFlags::DIRECTORY;
    let fd = fs.with_room(|| fs.proc_fds.reopen(node.as_fd(), flags));
    let fd = fd.map_err(refused)?;
    Ok(OpenDir::new(fd, &node))
}

/// A descriptor that names the file, to be opened by the kernel as each user did.
pub(crate) fn backing(fs: &HostFs, file: OpenFile) -> Option<OwnedFd> {
    let node = fs.table.get(file.ino).ok()?;
    let is_regular = node.kind == FileKind::Regular;
    let named = || node.as_fd().try_clone_to_owned().ok();
    is_regular.then(named).flatten()
}
