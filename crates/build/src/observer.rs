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

    /// A patch changes this path.
    fn changed(&self, _path: &[u8], _how: Changed) {}

    /// Something of this file is not in the image.
    fn warn(&self, _path: &Path, _text: &str) {}
}

/// A change that a patch makes to a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Changed {
    /// It was not there.
    Added,
    /// Its content, or what kind of file it is.
    Replaced,
    /// Its owner, permissions, time, attributes or number of names.
    Edited,
    /// It is gone.
    Removed,
}

/// Holds what a patch has changed.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct PatchSummary {
    /// Paths that were not there.
    pub added: u64,
    /// Paths with other content.
    pub replaced: u64,
    /// Paths with the same content and other properties.
    pub edited: u64,
    /// Paths that are gone.
    pub removed: u64,
    /// Inodes that stay where they are.
    pub stay: u64,
    /// Inodes that are copied as they are: there is no free slot for the root, and they lie more than 2 MiB in front of its
    /// place.
    pub copied: u64,
    /// Bytes of files with other content that stay where they are.
    pub kept_bytes: u64,
    /// Bytes that were appended.
    pub bytes: u64,
}

impl PatchSummary {
    /// Returns whether nothing changes.
    pub const fn is_empty(&self) -> bool {
        self.added + self.replaced + self.edited + self.removed == 0
    }
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
    /// The changes of a patch.
    pub patch: Option<PatchSummary>,
}
