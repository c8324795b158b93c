//! Deals with what a check can find.

use std::fmt;

use anteros_core::{Algorithm, FileKind};
use anteros_format::Nid;

use crate::error::Block;
use crate::{Error, Place};

/// Tells how bad a finding is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// Good to know; nothing is wrong.
    Note,
    /// Readers will cope, but no sound writer does this.
    Warning,
    /// Something cannot be read, or reads differently from what was meant.
    Fault,
}

/// Something that is wrong with an image, or worth knowing.
#[derive(Debug)]
pub struct Finding {
    /// Tells where.
    pub place: Place,
    /// The path of the inode there, if it has one and it is at most 4,096 bytes long.
    pub path: Option<Vec<u8>>,
    /// Holds what.
    pub kind: FindingKind,
}

/// Tells what was found.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs)] // each message says what its fields are
#[non_exhaustive]
pub enum FindingKind {
    /// It cannot be read.
    #[error("{}", Reason(.0))]
    Error(Error),
    #[error("the link count is {recorded}, but the number of names {found}")]
    Links { recorded: u32, found: u64 },
    #[error("the link count is {recorded}, but should be {}, by the subdirectories", .subdirectories + 2)]
    DirectoryLinks { recorded: u32, subdirectories: u64 },
    #[error("the entry `{name}` is missing")]
    DotMissing { name: &'static str },
    #[error("the entry `{name}` leads to inode {found} instead of {expected}")]
    DotWrong {
        name: &'static str,
        found: Nid,
        expected: Nid,
    },
    #[error("the entry `.` is there, but the inode says that it is omitted")]
    DotNotOmitted,
    #[error("the entry `{name}` says {}, but inode {nid} is a {}", .says.name(), .is.name())]
    EntryKind {
        name: String,
        nid: Nid,
        says: FileKind,
        is: FileKind,
    },
    #[error("the entry `{name}` is a further name of directory {nid}")]
    DirectoryNamedTwice { name: String, nid: Nid },
    #[error("the root is a {}", .kind.name())]
    RootKind { kind: FileKind },
    #[error("the name filter excludes the attribute `{name}`, which is there")]
    NameFilter { name: String },
    #[error("the value of the attribute `{name}` {what}")]
    XattrValue { name: String, what: &'static str },
    #[error("the content has the SHA-256 {found}, but {recorded} is recorded of it")]
    Digest { recorded: String, found: String },
    #[error("no digest is recorded of the content")]
    DigestMissing,
    #[error("the digest of the content is `{value}`, and none of SHA-256")]
    DigestForm { value: String },
    #[error("digests are to be verified, but none are recorded")]
    NoDigests,
    #[error("the owner or the group is 4294967295, which is nobody")]
    Owner,
    #[error(
        "{count} long prefixes of attributes are recorded without the feature, and the kernel reads them"
    )]
    PrefixesWithoutFeature { count: u8 },
    #[error("the attribute `{name}` is there twice")]
    XattrTwice { name: String },
    #[error("shares {bytes} bytes at {at:#x} with {other}")]
    Overlap { at: u64, bytes: u64, other: Place },
    #[error("{recorded} inodes are recorded, but {found} were found")]
    InodeCount { recorded: u64, found: u64 },
    #[error("{recorded} bytes are recorded, but the device ends at {size}: the image is cut off")]
    CutOff { recorded: u64, size: u64 },
    #[error("{bytes} bytes follow the {recorded} that are recorded")]
    Longer { recorded: u64, bytes: u64 },
    #[error("extra devices {first} and {second} overlap in the unified address space")]
    DevicesOverlap { first: usize, second: usize },
    #[error("extra device {index} overlaps the primary one in the unified address space")]
    DeviceOverPrimary { index: usize },
    #[error("the volume name is not terminated by NUL, which older kernels refuse")]
    VolumeName,
    #[error("reserved bytes are not zero")]
    Reserved,
    #[error("{algorithm} is announced, but nothing is compressed by it")]
    AlgorithmUnused { algorithm: Algorithm },
    #[error("nothing refers to {bytes} bytes in {blocks} blocks")]
    Unreachable { bytes: u64, blocks: u64 },
    #[error("the rest was not checked: {limit} bytes of work, the most that is allowed, are done")]
    BudgetExhausted { limit: u64 },
    #[error("the rest of the directory was not read, {broken} of its blocks being broken")]
    DirectoryAbandoned { broken: u32 },
}

impl Finding {
    /// Returns how bad it is.
    pub const fn severity(&self) -> Severity {
        match self.kind {
            FindingKind::Longer { .. }
            | FindingKind::DigestMissing
            | FindingKind::AlgorithmUnused { .. }
            | FindingKind::Unreachable { .. } => Severity::Note,
            FindingKind::VolumeName
            | FindingKind::Reserved
            | FindingKind::DotNotOmitted
            | FindingKind::DevicesOverlap { .. }
            | FindingKind::DeviceOverPrimary { .. } => Severity::Warning,
            _ => Severity::Fault,
        }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.place)?;
        if let Some(path) = &self.path {
            write!(f, " (/{})", path.escape_ascii())?;
        }
        write!(f, ": {}", self.kind)
    }
}

/// An error without its place, which the finding tells itself.
struct Reason<'a>(&'a Error);

impl fmt::Display for Reason<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Error::Corrupt { fault, .. } => fault.fmt(f),
            Error::Unsupported { fault, .. } => fault.fmt(f),
            Error::Decode { fault, .. } => fault.fmt(f),
            Error::Io {
                device, at, source, ..
            } => write!(f, "{device}{}: {source}", Block(at)),
            error => error.fmt(f),
        }
    }
}
