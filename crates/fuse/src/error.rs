//! Errors around a mount, and what a person may do about it.

use std::io;
use std::path::PathBuf;

use anteros_core::FsError;
use rustix::io::Errno;

use crate::proto;

/// Tells why a file system could not be mounted.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum MountError {
    /// The mount point cannot be reached.
    #[error("{}: {source}", path.display())]
    Mountpoint {
        /// As it was given.
        path: PathBuf,
        /// Holds what the operating system said.
        source: io::Error,
    },
    /// The mount point is no directory.
    #[error("{}: not a directory", .0.display())]
    MountpointNotDirectory(PathBuf),
    /// The file system could not say what its root is.
    #[error("cannot read the root directory: {0}")]
    Root(#[source] FsError),
    /// The root of the file system is something else than a directory.
    #[error("the root inode is a {0}, not a directory")]
    RootNotDirectory(&'static str),
    /// The FUSE device cannot be opened.
    #[error("/dev/fuse: {0}")]
    Device(#[source] io::Error),
    /// The kernel refused the mount.
    #[error("cannot mount on {}: {source}", path.display())]
    Refused {
        /// The mount point, absolute.
        path: PathBuf,
        /// Holds what the operating system said.
        source: io::Error,
    },
    /// `fusermount3`, which mounts on behalf of users, could not be run.
    #[error("cannot run fusermount3: {0}")]
    HelperMissing(#[source] io::Error),
    /// `fusermount3` ran and refused.
    #[error("cannot mount on {}: {message}", path.display())]
    HelperRefused {
        /// The mount point, absolute.
        path: PathBuf,
        /// Its words.
        message: String,
    },
    /// The kernel speaks another version of the protocol.
    #[error(
        "the kernel speaks FUSE {major}.{minor}, but {}.{} or a later minor version is needed",
        proto::MAJOR,
        proto::MINOR_MIN
    )]
    KernelVersion {
        /// Its major version.
        major: u32,
        /// Its minor version.
        minor: u32,
    },
    /// The mount was made, and went away or broke before it was in use.
    #[error("the FUSE handshake failed: {0}")]
    Handshake(#[source] io::Error),
}

impl MountError {
    /// Returns what to do about it, where that is known.
    pub fn hint(&self) -> Option<&'static str> {
        match self {
            Self::Mountpoint { source, .. } => match Errno::from_io_error(source)? {
                Errno::NOENT => Some("create the directory first"),
                Errno::NOTCONN => {
                    Some("an earlier mount lost its server; unmount it first (`fusermount3 -u`)")
                }
                _ => None,
            },
            Self::Device(source) => match source.kind() {
                io::ErrorKind::NotFound => Some("load the kernel's FUSE module: `modprobe fuse`"),
                io::ErrorKind::PermissionDenied => {
                    Some("in a container, the device must be passed in and allowed")
                }
                _ => None,
            },
            Self::Refused { source, .. } => match Errno::from_io_error(source)? {
                Errno::PERM => Some("in a container, mounting needs CAP_SYS_ADMIN"),
                Errno::NODEV => Some("load the kernel's FUSE module: `modprobe fuse`"),
                _ => None,
            },
            Self::HelperMissing(_) => Some("install the package `fuse3`, or mount as root"),
            Self::HelperRefused { message, .. } if message.contains("allow_other") => Some(
                "add the line `user_allow_other` to /etc/fuse.conf, or mount for yourself only",
            ),
            Self::KernelVersion { .. } => Some("Linux 5.4 is the oldest that will do"),
            _ => None,
        }
    }
}

/// Tells why a mount could not be taken away.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum UnmountError {
    /// Nothing is mounted there.
    #[error("{}: not mounted", .0.display())]
    NotMounted(PathBuf),
    /// Files below it are open, or some process works in it.
    #[error("{}: in use", .0.display())]
    Busy(PathBuf),
    /// `fusermount3`, which unmounts on behalf of users, could not be run.
    #[error("cannot run fusermount3: {0}")]
    HelperMissing(#[source] io::Error),
    /// `fusermount3` ran and refused.
    #[error("cannot unmount {}: {message}", path.display())]
    HelperRefused {
        /// The mount point.
        path: PathBuf,
        /// Its words.
        message: String,
    },
    /// Anything else the operating system said.
    #[error("cannot unmount {}: {source}", path.display())]
    Os {
        /// The mount point.
        path: PathBuf,
        /// Holds what it said.
        source: io::Error,
    },
}

impl UnmountError {
    /// Returns what to do about it, where that is known.
    pub fn hint(&self) -> Option<&'static str> {
        match self {
            Self::Busy(_) => Some("`fuser -vm` with the mount point lists who uses it"),
            Self::HelperMissing(_) => Some("install the package `fuse3`, or unmount as root"),
            _ => None,
        }
    }
}
