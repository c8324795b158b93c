//! Extents: runs of bytes of a file, and where they lie.

use anteros_core::Algorithm;
use anteros_format::DEVICE_BYTES_MAX;

/// Tells where bytes lie.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Location {
    /// At a byte of a device; device 0 is the primary one.
    Device {
        /// Tells which device.
        device: u16,
        /// Bytes from its start.
        address: u64,
    },
    /// At a byte of the metabox inode's content.
    Metabox {
        /// Bytes from its start.
        address: u64,
    },
}

impl Location {
    /// So many bytes further on; `None` on overflow.
    pub fn plus(self, bytes: u64) -> Option<Self> {
        let add = |address: u64| address.checked_add(bytes).filter(|&a| a < DEVICE_BYTES_MAX);
        Some(match self {
            Self::Device { device, address } => Self::Device {
                device,
                address: add(address)?,
            },
            Self::Metabox { address } => Self::Metabox {
                address: add(address)?,
            },
        })
    }

    /// Bytes from the start of the space it lies in.
    pub const fn address(self) -> u64 {
        match self {
            Self::Device { address, .. } | Self::Metabox { address } => address,
        }
    }

    pub(crate) const fn with_address(self, address: u64) -> Self {
        match self {
            Self::Device { device, .. } => Self::Device { device, address },
            Self::Metabox { .. } => Self::Metabox { address },
        }
    }
}

/// Tells how a pcluster holds its extent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Encoding {
    /// As it is, from the beginning of the pcluster on.
    Plain,
    /// As it is, but rotated so that each byte keeps its offset within a block.
    Interlaced,
    /// Compressed.
    Compressed(Algorithm),
}

/// The encoded form of an extent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Pcluster {
    /// Tells where it begins.
    pub location: Location,
    /// Its length.
    pub bytes: u32,
    /// Tells how it is encoded.
    pub encoding: Encoding,
    /// Tells whether the extent is only the front of what it decodes to.
    pub partial: bool,
    /// Tells whether it lies behind the index, as tails may.
    pub inline: bool,
}

/// Tells what an extent's bytes are made from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Source {
    /// Nothing: zeros.
    Hole,
    /// Bytes as they are.
    Raw(Location),
    /// An encoded pcluster.
    Pcluster(Pcluster),
    /// Bytes of the packed inode from this offset on.
    Fragment {
        /// The offset there.
        offset: u64,
    },
}

/// A run of bytes of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Extent {
    /// Tells where it begins in the file.
    pub offset: u64,
    /// Tells how long it is, at least one byte.
    pub len: u64,
    /// Holds what it is made from.
    pub source: Source,
}

impl Extent {
    /// Returns where it ends in the file.
    pub const fn end(&self) -> u64 {
        self.offset + self.len
    }

    /// The extent that this one and the next make together, if they are alike and adjacent.
    pub(super) fn join(&self, next: &Self) -> Option<Self> {
        let joined = match (self.source, next.source) {
            (Source::Hole, Source::Hole) => true,
            (Source::Raw(a), Source::Raw(b)) => a.plus(self.len) == Some(b),
            _ => false,
        };
        joined.then_some(Self {
            len: self.len + next.len,
            ..*self
        })
    }
}
