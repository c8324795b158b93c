//! The few ways to reach the host that all modules share.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use anteros_core::FsError;
use rustix::fs::{AtFlags, CWD, Mode, OFlags, Stat, openat, readlinkat, statat};
use rustix::io::{Errno, retry_on_intr};
use rustix::path::DecInt;

use crate::table::Key;

/// The answer to a request that the host refused. A medium that failed is another matter: somebody
/// is to be told.
pub(crate) fn refused(errno: Errno) -> FsError {
    match errno {
        Errno::IO => FsError::Io(errno.into()),
        _ => FsError::Host(errno.into()),
    }
}

/// As [`refused`], of opening a file with these flags: where a lease is in the way, it is to be tried again, unless that is not
/// wanted.
pub(crate) fn not_opened(errno: Errno, flags: OFlags) -> FsError {
    match errno {
        Errno::AGAIN if !flags.contains(OFlags::NONBLOCK) => FsError::Later,
        errno => refused(errno),
    }
}

/// `fstat`, for descriptors of any kind.
pub(crate) fn stat_of(fd: BorrowedFd<'_>) -> rustix::io::Result<Stat> {
    statat(fd, c"", AtFlags::EMPTY_PATH)
}

/// The directory `/proc/self/fd`, whose entries lead to the very inodes that descriptors are of,
/// symbolic links and deleted files included. Calls that do not take an `O_PATH` descriptor take one
/// of its names.
#[derive(Debug)]
pub(crate) struct ProcFds(OwnedFd);

impl ProcFds {
    pub fn open() -> io::Result<Self> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        match openat(CWD, "/proc/self/fd", flags, Mode::empty()) {
            Ok(dir) => Ok(Self(dir)),
            Err(errno) => {
                let kind = io::Error::from(errno).kind();
                Err(io::Error::new(kind, format!("/proc/self/fd: {errno}")))
            }
        }
    }

    /// Opens the inode of a descriptor anew. Should somebody have a lease of it, they are told, and this fails with EAGAIN: it
    /// may take as long as they like, up to `/proc/sys/fs/lease-break-time`.
    pub fn reopen(&self, fd: BorrowedFd<'_>, flags: OFlags) -> rustix::io::Result<OwnedFd> {
        let name = DecInt::from_fd(fd);
        let flags = flags | OFlags::NONBLOCK;
        retry_on_intr(|| {
            openat(
                &self.0,
                name.as_c_str(),
                flags | OFlags::CLOEXEC,
                Mode::empty(),
            )
        })
    }

    /// Returns where a descriptor leads, as an absolute path. Of a deleted inode it is the last one.
    pub fn path(&self, fd: BorrowedFd<'_>) -> rustix::io::Result<Vec<u8>> {
        const DELETED: &[u8] = b" (deleted)";
        let mut path = readlinkat(&self.0, entry(fd), Vec::new())?.into_bytes();
        // Names may end so, too.
        if path.ends_with(DELETED) && !leads_to(&path, fd) {
            path.truncate(path.len() - DELETED.len());
        }
        Ok(path)
    }

    /// The directory, to use with [`entry`].
    pub fn dir(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// Returns whether an inode has this path.
fn leads_to(path: &[u8], fd: BorrowedFd<'_>) -> bool {
    let there = statat(CWD, path, AtFlags::SYMLINK_NOFOLLOW);
    match (there, stat_of(fd)) {
        (Ok(there), Ok(wanted)) => Key::of(&there) == Key::of(&wanted),
        _ => false,
    }
}

/// Returns what leads from one absolute path to another, with a slash in front.
pub(crate) fn below<'a>(root: &[u8], path: &'a [u8]) -> Option<&'a [u8]> {
    if root == b"/" {
        return Some(path);
    }
    match path.strip_prefix(root)? {
        b"" => Some(b"/"),
        rest => rest.starts_with(b"/").then_some(rest),
    }
}

/// The name of a descriptor in [`ProcFds::dir`].
pub(crate) fn entry(fd: BorrowedFd<'_>) -> DecInt {
    DecInt::from_fd(fd)
}

/// Path of a descriptor, for the calls that know no directories.
pub(crate) fn proc_path(fd: BorrowedFd<'_>) -> String {
    format!("/proc/self/fd/{}", fd.as_raw_fd())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_lies_below_begins_behind_the_root() {
        for (root, path, wanted) in [
            ("/a/b", "/a/b/c", Some("/c")),
            ("/a/b", "/a/b", Some("/")),
            ("/", "/c", Some("/c")),
            ("/a/b", "/a/bc", None),
            ("/a/b", "/a", None),
        ] {
            let found = below(root.as_bytes(), path.as_bytes());
            assert_eq!(found, wanted.map(str::as_bytes), "{root} {path}");
        }
    }
}
