//! Bytes into fewer bytes, and back: the codecs of EROFS, without any I/O.
//!
//! A compressed extent of EROFS lies in a *physical cluster* (pcluster): one or more blocks that
//! hold a single stream, right-aligned, with zero bytes in front of it. So reading one takes two
//! steps: [`strip_zero_padding`], then [`Decoder::decode`] into a buffer of the length that the
//! index says. Writing one takes the opposite two: [`Encoder::encode_next`] puts as much input as
//! fits into a budget, [`right_align`] moves the result to the end of its pcluster. [`Lz4Encoder`] is
//! the one of LZ4 by itself. [`ZstdEncoder`] is for the log, not for images.
//!
//! ```
//! use anteros_codec::{Decoder, Effort, Length, Lz4Encoder, Params, right_align, strip_zero_padding};
//! use anteros_core::Algorithm;
//!
//! let input = b"all work and no play makes Jack a dull boy\n".repeat(100_000);
//! let mut pcluster = vec![0; 4096];
//! let encoded = Lz4Encoder::new(Effort::High(9))?
//!     .encode(&input, &mut pcluster)
//!     .expect("it is shorter");
//! right_align(&mut pcluster, encoded.written);
//!
//! let stream = strip_zero_padding(&pcluster, 4096).expect("it holds a stream");
//! let mut extent = vec![0; encoded.consumed];
//! let mut decoder = Decoder::new();
//! decoder.decode(Algorithm::Lz4, &Params::default(), stream, &mut extent, Length::Exact)?;
//! assert!(extent.len() > 500_000 && input.starts_with(&extent));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! A pcluster of few kilobytes may decode to megabytes, of which a reader may want few again. There
//! are four ways that spare memory, after the EROFS paper (Gao et al., USENIX ATC 2019, section 3.3);
//! all give the same bytes:
//!
//! | | decodes | memory besides the output |
//! |---|---|---|
//! | [`Decoder::decode_in_place`] | LZ4, all of it | none: the stream lies in the output |
//! | [`RollingWindow`] | LZ4, up to 128 KiB anywhere | 128 KiB, or as much as the stream if that is longer |
//! | [`Stream`] | the others, from front to end in pieces | [`Params::memory_bytes`] |
//! | [`Scratch`] | whatever else | all that is decoded, until it is dropped |
//!
//! What can be relied on:
//!
//! - Input is hostile. A decoder fills the whole output and says so, or returns a [`DecodeError`];
//!   it never panics, never loops without progress, and its memory is bounded by [`Params`].
//! - Encoders are pure functions of their input since the last restart, their settings and the budget.
//! - Unsafe code is where C is called, in `lz4.rs` and `lzma.rs`, where memory is mapped, in
//!   `mapping.rs` and `rolling.rs`, in the decoder of `lz4_block.rs`, in the quick encoder's
//!   `greedy/middle.rs`, and where vector registers are used, in `optimal/lanes.rs`, and nowhere else.

mod codec;
mod decoder;
mod deflate;
mod encoded;
mod encoder;
mod error;
mod gauge;
mod greedy;
mod in_place;
mod lz4;
mod lz4_block;
mod lzma;
mod mapping;
mod optimal;
mod padding;
mod params;
mod probe;
mod rolling;
mod secant;
mod sequences;
mod stream;
#[cfg(test)]
mod tests;
mod zstd;
mod zstd_blocks;
mod zstd_sequences;

pub use anteros_core::Algorithm;
pub use codec::{Codec, Encoder, UnknownSetting};
pub use decoder::Decoder;
pub use encoded::{EncodeError, Encoded};
pub use encoder::{Effort, Lz4Encoder, UnknownEffort};
pub use error::{DecodeError, Fault};
pub use in_place::{fits_in_place, in_place_margin};
pub use mapping::{Scratch, keep_heap_small, trim_heap};
pub use padding::{right_align, strip_zero_padding};
pub use params::{Length, Params};
pub use rolling::RollingWindow;
pub use stream::Stream;
pub use zstd::ZstdEncoder;
