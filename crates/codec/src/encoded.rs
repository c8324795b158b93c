//! Terms of encoding, which every codec shares: what one call did, and why it failed.

use thiserror::Error;

use crate::Algorithm;

/// Holds what one call of [`Lz4Encoder::encode`](crate::Lz4Encoder::encode) did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Encoded {
    /// Bytes of input that the block holds.
    pub consumed: usize,
    /// Bytes of output that the block takes.
    pub written: usize,
}

/// Tells why an encoder gave up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum EncodeError {
    /// There is no memory for its tables.
    #[error("no memory for the encoder of {0}")]
    OutOfMemory(Algorithm),
    /// The library met what it never should.
    #[error("the encoder of {0} failed: {1}")]
    Library(Algorithm, &'static str),
}
