//! The few ways to reach the host that all modules share.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use anteros_core::FsError;
use rustix::fs::{AtFlags, CWD, Mode, OFlags, Stat, openat, statat};
use rustix::io::{Errno, retry_on_intr};
use rustix::path::DecInt;

/// The answer to a request that the host refused. A medium that failed is another matter: somebody
/// is to be told.
pub(crate) fn refused(errno: Errno) -> FsError {
    match errno {
        Errno::IO => FsError::Io(errno.into()),
        _ => FsError::Host(errno.into()),
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

    /// Opens the inode of a descriptor anew.
    pub fn reopen(&self, fd: BorrowedFd<'_>, flags: OFlags) -> rustix::io::Result<OwnedFd> {
        let name = DecInt::from_fd(fd);
        retry_on_intr(|| {
            openat(
                &self.0,
                name.as_c_str(),
                flags | OFlags::CLOEXEC,
                Mode::empty(),
            )
        })
    }

    /// The directory, to use with [`entry`].
    pub fn dir(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// The name of a descriptor in [`ProcFds::dir`].
pub(crate) fn entry(fd: BorrowedFd<'_>) -> DecInt {
    DecInt::from_fd(fd)
}

/// The same as a path, for the calls that know no directories.
pub(crate) fn proc_path(fd: BorrowedFd<'_>) -> String {
    format!("/proc/self/fd/{}", fd.as_raw_fd())
}
