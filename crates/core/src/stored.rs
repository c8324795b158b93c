//! The places of content in an image, for those who build another one from it.

use crate::Algorithm;

/// A run of bytes of a file, and where they lie.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StoredRun {
    /// Its first byte in the file.
    pub offset: u64,
    /// Its length, at least one byte.
    pub len: u64,
    /// The place of these bytes.
    pub place: StoredPlace,
}

impl StoredRun {
    /// The end in the file.
    pub const fn end(&self) -> u64 {
        self.offset.saturating_add(self.len)
    }
}

/// A place of bytes in an image.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StoredPlace {
    /// Nowhere: they are zeros.
    Hole,
    /// In blocks as they are, from this byte of the image on.
    Blocks(u64),
    /// In a stream of its own.
    Stream {
        /// The byte of the image at which it begins.
        address: u64,
        /// Its length.
        bytes: u32,
        /// The algorithm; `None` if it holds the bytes as they are.
        algorithm: Option<Algorithm>,
        /// Tells whether it decodes to more than the run.
        partial: bool,
    },
    /// In the packed inode, from this byte of it on.
    Packed(u64),
    /// Behind an inode, or in a form that belongs to its place.
    Elsewhere,
}
