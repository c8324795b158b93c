//! Inodes of a draft.

use std::collections::BTreeMap;
use std::ops::Range;

use anteros_core::{FileKind, Rdev, Timestamp};
use anteros_format::inode::{SYMLINK_BYTES_MAX, encode_rdev};

use super::fault::Fault;
use super::whiteout;
use crate::source::Link;
use crate::sparse::Allocation;

/// The number of an inode of a draft.
pub(crate) type InodeId = u32;

pub(crate) const ROOT: InodeId = 0;

/// An inode.
pub(crate) struct Inode {
    pub body: Body,
    pub perm: u16,
    pub uid: u32,
    pub gid: u32,
    pub mtime: Timestamp,
    pub xattrs: Range<u32>,
    /// Tells whether no member names it, but only what lies in it.
    pub is_implied: bool,
    /// Tells whether it is a directory that hides what lower layers have in it.
    pub is_opaque: bool,
}

/// Kind of an inode, with what is particular to it.
pub(crate) enum Body {
    Directory(BTreeMap<Box<[u8]>, InodeId>),
    Regular {
        bytes: u64,
        allocation: Allocation,
        /// Its extents, or the number by which its content is known elsewhere.
        extents: Range<u32>,
    },
    Symlink(Box<[u8]>),
    Special(FileKind, u32),
    /// A hard link to a file that only a lower layer may have.
    Below(Link),
}

impl Body {
    pub fn symlink(target: &[u8]) -> Result<Self, Fault> {
        match target.len() as u64 {
            1..=SYMLINK_BYTES_MAX => Ok(Self::Symlink(target.into())),
            len => Err(Fault::Unstorable(format!(
                "a target of {len} bytes; 1 to {SYMLINK_BYTES_MAX} are possible"
            ))),
        }
    }

    pub fn device(kind: FileKind, major: u32, minor: u32) -> Result<Self, Fault> {
        match encode_rdev(Rdev { major, minor }) {
            Some(rdev) => Ok(Self::Special(kind, rdev)),
            None => Err(Fault::Unstorable(format!(
                "device {major}:{minor}; 4095:1048575 is the last"
            ))),
        }
    }

    pub const fn kind(&self) -> FileKind {
        match self {
            Self::Directory(_) => FileKind::Directory,
            Self::Regular { .. } | Self::Below(_) => FileKind::Regular,
            Self::Symlink(_) => FileKind::Symlink,
            Self::Special(kind, _) => *kind,
        }
    }
}

impl Inode {
    pub const fn is_directory(&self) -> bool {
        matches!(self.body, Body::Directory(_))
    }

    /// Returns whether it is a whiteout of overlayfs.
    pub const fn is_whiteout(&self) -> bool {
        match self.body {
            Body::Special(kind, rdev) => whiteout::is_whiteout(kind, rdev),
            _ => false,
        }
    }
}
