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

/// Bytes of an extent that is stored as it is, where each has an entry of its own in the index.
const PLAIN_BYTES: u32 = 64 << 10;

/// Encoded extents begin and end at multiples of so many bytes.
///
/// Linux looks for the end of a DEFLATE or LZMA stream only in the page from which the last byte of content came. The last
/// content of a stream comes from its last three bytes, so these have to lie in one page.
pub(crate) const UNIT_BYTES: u32 = 4;

impl Extent {
    /// The first extent of so many bytes that lie in blocks as they are: one block, or more if extents may lie anywhere.
    pub fn plain(bytes: u64, block_bytes: u32, anywhere: bool) -> Self {
        let (most, unit) = match anywhere {
            true => (PLAIN_BYTES, UNIT_BYTES),
            false => (block_bytes, block_bytes),
        };
        let len = bytes.min(most.into()) as u32;
        Self {
            len,
            stored: len.next_multiple_of(unit),
            plain: true,
            quick: false,
            share: Share::None,
        }
    }
}

/// Tells how much of an earlier pcluster an extent is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Share {
    /// The pcluster is its own.
    #[default]
    None,
    /// All of it, which the file had before it was patched; no other file has it.
    Kept,
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
