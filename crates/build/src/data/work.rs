//! Work that workers are given, and results that they give back.

use super::piece::Piece;
use crate::extent::{Extent, Tail};
use crate::fragments::Key;
use crate::ordered::Ordered;
use crate::outbox;

/// A part of a file as it will be written: the next `blocks` bytes of those of its batch, and the next `fragment` ones of what goes
/// into the packed inode.
pub(super) struct PackedPiece {
    pub piece: Piece,
    pub blocks: usize,
    pub fragment: usize,
    pub key: Option<Key>,
    /// `None` if it is not compressed after all.
    pub extents: Option<Vec<Extent>>,
    pub tail: Tail,
}

/// Parts of files in a row, as they will be written.
pub(super) struct PackedBatch {
    pub bytes: Vec<u8>,
    pub fragments: Vec<u8>,
    pub pieces: Vec<PackedPiece>,
}

/// Work that workers are given: parts of files, or a segment of the packed inode.
pub(super) type Work = outbox::Work<Vec<Piece>>;
/// Results that they give back.
pub(super) type Done = outbox::Done<PackedBatch>;
/// The workers.
pub(super) type Pool = Ordered<Work, Done>;
