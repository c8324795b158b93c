//! The place of content that has been written.

use crate::body::Body;
use crate::extent::Tail;

/// Tells where the content of an inode has come to lie.
#[derive(Debug, Clone, Default)]
pub(crate) enum Stored {
    /// Nowhere.
    #[default]
    Nothing,
    /// In blocks as it is, the last bytes behind the inode.
    Flat { first_block: u32, inline: u64 },
    /// In compressed extents.
    Compressed { body: Box<Body>, tail: Tail },
    /// In the packed inode, from this byte on.
    Packed { offset: u64 },
    /// In chunks, those with data one behind the other.
    Chunked { first_block: u32 },
    /// On the extra device, as the plan says.
    Elsewhere,
    /// Inode of the image before, as the plan says.
    Kept,
}
