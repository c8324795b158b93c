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
}

impl Piece {
    /// Bytes that are read.
    pub fn cost(&self) -> u64 {
        match self.shared {
            Some(_) => 0,
            None => self.len,
        }
    }
}
