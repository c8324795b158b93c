//! The places of content that stays where it is, in images that are sources.

use std::path::PathBuf;

use anteros_core::{FsResult, Ino};

/// Tells where the content of a file system's files lies, for an image that is to refer to it.
pub trait Places: Send + Sync {
    /// The devices that content lies on, in the order in which the image is to have them.
    fn devices(&self) -> Vec<SourceDevice>;

    /// Returns where the content of a regular file lies.
    ///
    /// # Errors
    ///
    /// If what tells that is broken, or cannot be read.
    fn place(&self, ino: Ino) -> FsResult<Placed>;
}

/// A device that an image refers to.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct SourceDevice {
    /// Its path, if that is known.
    pub path: Option<PathBuf>,
    /// Bytes of it.
    pub bytes: u64,
    /// A cookie of at most 64 bytes, by which it is known.
    pub tag: Vec<u8>,
}

/// The place of a file's content.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Placed {
    /// Parts of a device, ascending and apart in the file; zeros lie between them.
    On {
        /// The number of the device in [`Places::devices`], from 0 on.
        device: usize,
        /// The parts.
        parts: Vec<PlacedPart>,
    },
    /// Content of which some lies where an image cannot refer to it, such as behind an inode.
    Apart,
    /// Content in an encoded form.
    Encoded,
}

/// A part of a file, as it lies on a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PlacedPart {
    /// Byte of the file at which it begins.
    pub start: u64,
    /// Bytes of it.
    pub bytes: u64,
    /// Byte of the device at which it lies.
    pub place: u64,
}
