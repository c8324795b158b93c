//! Parts of files, as workers are given them.

use crate::parts::Shared;
use crate::tree::NodeId;

/// Tells how a file is to be stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Form {
    /// In blocks as it is.
    Raw,
    /// Compressed, if that saves enough.
    Compressed,
    /// In the packed inode.
    Packed,
}

/// Tells when a part is stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Turn {
    /// When it is its file's turn.
    Usual,
    /// In the sweep, while the rest of its file waits.
    Ahead,
    /// In the sweep, and now it is its file's turn.
    Before,
}

/// A part of a file.
#[derive(Debug, Clone, Copy)]
pub(super) struct Piece {
    pub node: NodeId,
    pub offset: u64,
    pub len: u64,
    pub form: Form,
    /// The file has no further part.
    pub is_last: bool,
    /// The part is all of the file, and it is judged at once whether compression saves enough.
    pub is_whole: bool,
    /// It is stored as another part, as far as that can be.
    pub shared: Option<Shared>,
    pub turn: Turn,
    /// It is known to be read.
    pub is_hot: bool,
}

impl Piece {
    /// Returns whether its content is in the image when it is its turn.
    pub fn is_stored(&self) -> bool {
        self.shared.is_some() || self.turn == Turn::Before
    }

    /// Bytes that are read.
    pub fn cost(&self) -> u64 {
        match self.is_stored() {
            true => 0,
            false => self.len,
        }
    }
}
