//! State of what was created: how it is read, and how it is changed.

use std::os::fd::BorrowedFd;

use anteros_core::Timestamp;
use anteros_format::inode::Inode;
use rustix::fs::{AtFlags, Gid, Mode, OFlags, Stat, Timespec, Timestamps, Uid, XattrFlags};
use rustix::io::Errno;

use crate::Xattr;
use crate::host::descriptor::descriptor_path;

/// Something that was created: an open file, or a name in a directory.
#[derive(Clone, Copy)]
pub(super) enum Object<'a> {
    Open(BorrowedFd<'a>),
    Named(BorrowedFd<'a>, &'a [u8]),
}

impl Object<'_> {
    pub(super) fn stat(self) -> rustix::io::Result<Stat> {
        match self {
            Self::Open(fd) => rustix::fs::fstat(fd),
            Self::Named(dir, name) => rustix::fs::statat(dir, name, AtFlags::SYMLINK_NOFOLLOW),
        }
    }

    pub(super) fn truncate(self, size: u64) -> rustix::io::Result<()> {
        match self {
            Self::Open(fd) => rustix::fs::ftruncate(fd, size),
            Self::Named(..) => Err(Errno::INVAL),
        }
    }

    pub(super) fn chown(self, inode: &Inode) -> rustix::io::Result<()> {
        // The system takes the highest number for `no change`.
        if inode.uid == u32::MAX || inode.gid == u32::MAX {
            return Err(Errno::INVAL);
        }
        let owner = (
            Some(Uid::from_raw(inode.uid)),
            Some(Gid::from_raw(inode.gid)),
        );
        match self {
            Self::Open(fd) => rustix::fs::fchown(fd, owner.0, owner.1),
            Self::Named(dir, name) => {
                rustix::fs::chownat(dir, name, owner.0, owner.1, AtFlags::SYMLINK_NOFOLLOW)
            }
        }
    }

    pub(super) fn chmod(self, perm: u16) -> rustix::io::Result<()> {
        let mode = Mode::from_raw_mode(perm.into());
        match self {
            Self::Open(fd) => rustix::fs::fchmod(fd, mode),
            Self::Named(dir, name) => {
                // There is no way to change the mode of a name without following it.
                let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
                let node = rustix::fs::openat(dir, name, flags, Mode::empty())?;
                rustix::fs::chmod(descriptor_path(&node, b""), mode)
            }
        }
    }

    pub(super) fn set_xattr(self, xattr: &Xattr) -> rustix::io::Result<()> {
        let Xattr { name, value } = xattr;
        let flags = XattrFlags::empty();
        match self {
            Self::Open(fd) => rustix::fs::fsetxattr(fd, name, value, flags),
            Self::Named(dir, of) => {
                rustix::fs::lsetxattr(descriptor_path(dir, of), name, value, flags)
            }
        }
    }

    pub(super) fn remove_acls(self) -> rustix::io::Result<()> {
        for name in ["system.posix_acl_access", "system.posix_acl_default"] {
            let removed = match self {
                Self::Open(fd) => rustix::fs::fremovexattr(fd, name),
                Self::Named(dir, of) => rustix::fs::lremovexattr(descriptor_path(dir, of), name),
            };
            match removed {
                Ok(()) | Err(Errno::NODATA | Errno::OPNOTSUPP | Errno::ACCESS) => {}
                error => return error,
            }
        }
        Ok(())
    }

    pub(super) fn set_times(self, mtime: Timestamp) -> rustix::io::Result<()> {
        let time = Timespec {
            tv_sec: mtime.secs,
            tv_nsec: mtime.nanos.into(),
        };
        let times = Timestamps {
            last_access: time,
            last_modification: time,
        };
        match self {
            Self::Open(fd) => rustix::fs::futimens(fd, &times),
            Self::Named(dir, name) => {
                rustix::fs::utimensat(dir, name, &times, AtFlags::SYMLINK_NOFOLLOW)
            }
        }
    }
}
