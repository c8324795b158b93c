//! Deals with what can go wrong with an image, and where.

use std::fmt;
use std::io;

use anteros_codec::DecodeError;
use anteros_format::{Corrupt, Fault, Nid, Unsupported};

/// Tells where in an image something was found.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Place {
    /// The superblock and its extensions.
    Superblock,
    /// The compression configurations behind the superblock.
    ComprCfgs,
    /// The table of extra devices.
    DeviceTable,
    /// The table of long xattr prefixes.
    XattrPrefixes,
    /// An inode.
    Inode(Nid),
    /// A block of a directory, counted from its beginning.
    Directory {
        /// The directory.
        nid: Nid,
        /// The block.
        block: u64,
    },
    /// The extended attributes of an inode.
    Xattrs(Nid),
    /// The data of a file, at a byte offset.
    Data {
        /// The file.
        nid: Nid,
        /// The offset.
        offset: u64,
    },
    /// The image as a whole.
    Image,
}

impl Place {
    /// The inode that the place belongs to, if any.
    pub const fn nid(&self) -> Option<Nid> {
        match *self {
            Self::Inode(nid)
            | Self::Directory { nid, .. }
            | Self::Xattrs(nid)
            | Self::Data { nid, .. } => Some(nid),
            _ => None,
        }
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Superblock => f.write_str("superblock"),
            Self::ComprCfgs => f.write_str("compression configurations"),
            Self::DeviceTable => f.write_str("device table"),
            Self::XattrPrefixes => f.write_str("xattr prefixes"),
            Self::Inode(nid) => write!(f, "inode {nid}"),
            Self::Directory { nid, block } => write!(f, "directory at inode {nid}, block {block}"),
            Self::Xattrs(nid) => write!(f, "xattrs of inode {nid}"),
            Self::Data { nid, offset } => write!(f, "data of inode {nid} at {offset}"),
            Self::Image => f.write_str("image"),
        }
    }
}

/// Tells why an image could not be read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A rule of the format is broken.
    #[error("{place}: {fault}")]
    Corrupt {
        /// Tells where.
        place: Place,
        /// Tells which rule, and by which value.
        fault: Corrupt,
    },
    /// Something newer, or stranger, than this code.
    #[error("{place}: {fault}")]
    Unsupported {
        /// Tells where.
        place: Place,
        /// Holds what.
        fault: Unsupported,
    },
    /// Compressed data does not decode.
    #[error("{place}: {fault}")]
    Decode {
        /// Tells where.
        place: Place,
        /// Tells how.
        fault: DecodeError,
    },
    /// The medium failed.
    #[error("{place}: {device}{}: {source}", Block(.at))]
    Io {
        /// Holds what was being read.
        place: Place,
        /// The device's name.
        device: String,
        /// Tells where on the device the first block begins that cannot be read, if it is one that fails.
        at: Option<u64>,
        /// The error of the operating system.
        source: io::Error,
    },
    /// The image names devices that were not given, or fewer.
    #[error("the image has {needed} extra devices, {given} were given{}", Next(.next))]
    Devices {
        /// Tells how many the image names.
        needed: u16,
        /// Tells how many there were.
        given: usize,
        /// Names the first that is missing, as far as the image does.
        next: Option<String>,
    },
    /// An extra device is smaller than the image says.
    #[error("extra device {index} ({name}) has {size} bytes, the image says {needed}")]
    DeviceSize {
        /// Counted from 1.
        index: usize,
        /// Its name.
        name: String,
        /// Its size in bytes.
        size: u64,
        /// Holds what the image says.
        needed: u64,
    },
    /// An extra device is another image than the one that this one is a layer on.
    #[error(
        "extra device {index} ({name}) is not the image that this one is a layer on: {found} instead of UUID {needed}"
    )]
    LowerImage {
        /// Counted from 1.
        index: usize,
        /// Its name.
        name: String,
        /// Holds what is there.
        found: String,
        /// The UUID of the image.
        needed: String,
    },
    /// No such name in a directory.
    #[error("no such file or directory")]
    NotFound,
    /// A component of a path is no directory.
    #[error("not a directory")]
    NotDirectory,
    /// An inode whose target was asked for is no symbolic link.
    #[error("not a symbolic link")]
    NotSymlink,
}

/// The block that cannot be read, behind the name of its device.
pub(crate) struct Block<'a>(pub &'a Option<u64>);

impl fmt::Display for Block<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0
            .map_or(Ok(()), |at| write!(f, ", block at byte {at:#x}"))
    }
}

/// The device that is missing.
pub(crate) struct Next<'a>(pub &'a Option<String>);

impl fmt::Display for Next<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let next = self.0.as_ref();
        next.map_or(Ok(()), |next| write!(f, "; the next is {next}"))
    }
}

/// The answer of an image.
pub type Result<T, E = Error> = std::result::Result<T, E>;

impl Error {
    /// Gives a fault of the format its place.
    pub(crate) fn at(place: Place) -> impl Fn(Fault) -> Self {
        move |fault| match fault {
            Fault::Corrupt(fault) => Self::Corrupt { place, fault },
            Fault::Unsupported(fault) => Self::Unsupported { place, fault },
        }
    }

    /// Gives a broken rule its place.
    pub(crate) fn corrupt(place: Place) -> impl Fn(Corrupt) -> Self {
        move |fault| Self::Corrupt { place, fault }
    }

    /// Returns where it was met; [`Place::Image`] for those that belong to no place.
    pub const fn place(&self) -> Place {
        match *self {
            Self::Corrupt { place, .. }
            | Self::Unsupported { place, .. }
            | Self::Decode { place, .. }
            | Self::Io { place, .. } => place,
            Self::Devices { .. } | Self::DeviceSize { .. } | Self::LowerImage { .. } => {
                Place::DeviceTable
            }
            _ => Place::Image,
        }
    }

    /// Returns whether the image itself is broken, rather than unknown or unreadable.
    pub const fn is_corrupt(&self) -> bool {
        matches!(
            self,
            Self::Corrupt { .. } | Self::Decode { .. } | Self::DeviceSize { .. }
        )
    }
}
