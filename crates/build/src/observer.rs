//! News that a build tells while it runs, and when it is done.

use std::path::Path;

use anteros_format::linux::Needs;

use crate::{SourceDevice, Verity};

/// Describes how far a build is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Progress {
    /// Regular files whose content has been stored.
    pub files_done: u64,
    /// Regular files in all.
    pub files: u64,
    /// Bytes of file content that have been stored.
    pub bytes_done: u64,
    /// Bytes of file content in all.
    pub bytes: u64,
}

/// Hears of a running build. All calls come from the thread that called [`build`](crate::build).
pub trait Observer {
    /// The source has been scanned; this is how much there is to do.
    fn scanned(&self, _progress: &Progress) {}

    /// Some content has been stored.
    fn progressed(&self, _progress: &Progress) {}

    /// Something of this file is not in the image.
    fn warn(&self, _path: &Path, _text: &str) {}
}

/// Hears nothing.
impl Observer for () {}

/// Holds what has been built.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct Summary {
    /// Regular files, hard links counted once.
    pub files: u64,
    /// Directories, the root included.
    pub directories: u64,
    /// Symbolic links.
    pub symlinks: u64,
    /// Devices, pipes and sockets.
    pub specials: u64,
    /// Further names of files that have several.
    pub hard_links: u64,
    /// Regular files that are compressed.
    pub compressed_files: u64,
    /// Regular files that lie wholly in the packed inode.
    pub packed_files: u64,
    /// Regular files in chunks.
    pub chunked_files: u64,
    /// Regular files wholly or partly behind their inodes.
    pub inline_files: u64,
    /// Regular files in blocks of their own, as they are.
    pub flat_files: u64,
    /// Bytes of all regular files.
    pub input_bytes: u64,
    /// Bytes of those that lie in extents of other parts of files that are equal, whole equal files left out.
    pub shared_bytes: u64,
    /// Bytes of the image.
    pub image_bytes: u64,
    /// Bytes of all extra devices that the image speaks of; none without one.
    pub device_bytes: u64,
    /// These devices, in their order.
    pub devices: Vec<SourceDevice>,
    /// Bytes of the blocks with inodes, directories, attributes and inline data.
    pub metadata_bytes: u64,
    /// Extended attributes that are stored once for several inodes.
    pub shared_xattrs: u64,
    /// The image's UUID.
    pub uuid: [u8; 16],
    /// The hash tree behind the image, if one was wanted.
    pub verity: Option<Verity>,
    /// The demands of the image on the Linux that mounts it.
    pub linux: Needs,
    /// Warnings that the observer heard.
    pub warnings: u64,
}
