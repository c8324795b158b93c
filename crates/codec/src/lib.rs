//! Bytes into fewer bytes, and back: the codecs of EROFS, without any I/O.
//!
//! A compressed extent of EROFS lies in a *physical cluster* (pcluster): one or more blocks that
//! hold a single stream, right-aligned, with zero bytes in front of it. So reading one takes two
//! steps: [`strip_zero_padding`], then [`Decoder::decode`] into a buffer of the length that the
//! index says. Writing one takes the opposite two: [`Lz4Encoder::encode`] puts as much input as
//! fits into a budget, [`right_align`] moves the result to the end of its pcluster.
//!
//! What can be relied on:
//!
//! - Input is hostile. A decoder fills the whole output and says so, or returns a [`DecodeError`];
//!   it never panics, never loops without progress, and its memory is bounded by [`Params`].
//! - The encoder is a pure function of its input, its effort and the budget.
//! - Unsafe code is where C is called, in `lz4.rs` and `lzma.rs`, and nowhere else.

mod decoder;
mod deflate;
mod encoder;
mod error;
mod lz4;
mod lzma;
mod padding;
mod probe;
#[cfg(test)]
mod tests;
mod zstd;

pub use anteros_core::Algorithm;
pub use decoder::{Decoder, Length, Params};
pub use encoder::{Effort, Encoded, Lz4Encoder, UnknownEffort};
pub use error::{DecodeError, Fault};
pub use padding::{right_align, strip_zero_padding};
