//! Extents of compressed files: runs of a file, and where they lie.

/// A run of a file and the blocks it is stored in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Extent {
    /// Bytes of the file.
    pub len: u32,
    /// Bytes of the image; none if it lies elsewhere.
    pub stored: u32,
    /// Tells whether it is stored as it is.
    pub plain: bool,
    /// Tells whether it is compressed by the quick codec.
    pub quick: bool,
    /// Tells whether its blocks belong to an earlier part of the tree.
    pub share: Share,
}

/// Tells how much of an earlier pcluster an extent is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Share {
    /// The pcluster is its own.
    #[default]
    None,
    /// All of it.
    Whole,
    /// The front of what it decodes to.
    Front,
}

/// Extents that lie behind each other, and the byte of the image at which the first one does.
pub(crate) type Run<'a> = (u64, &'a [Extent]);

/// Tells where the last extent of a compressed file lies.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Tail {
    /// In blocks, like the others.
    #[default]
    Blocks,
    /// In so many bytes behind the index.
    Inline(u16),
    /// At this byte of the packed inode.
    Fragment(u64),
}

impl Tail {
    /// Bytes behind the index.
    pub fn inline_bytes(self) -> u64 {
        match self {
            Self::Inline(bytes) => bytes.into(),
            Self::Blocks | Self::Fragment(_) => 0,
        }
    }
}
