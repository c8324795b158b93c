//! LZ4 over itself: the stream lies at the end of the buffer that its bytes are decoded into.
//!
//! ```text
//! before   |                       stream |   |
//! after    | decoded bytes                |   |
//!          0                         wanted   stream.end
//! ```
//!
//! The output grows towards the input from behind, and must not catch up with what is yet to be
//! read. It is ahead of itself by what the decoder writes beyond the end of a copy, 32 bytes at most; and
//! it gains on the input wherever a sequence takes more bytes than it stands for, which only long
//! literals do: one byte in 256. So a gap of that many bytes is enough between the two ends, whatever
//! the stream. lz4.h says the same under LZ4_DECOMPRESS_INPLACE_MARGIN; the EROFS paper (section
//! 3.3) tries each stream when the image is built instead.
//!
//! Invariant S5 of `docs/design/serving.md`: a stream is decoded over itself only with the margin, whatever the
//! stream.

use std::ops::Range;

use crate::{Algorithm, Fault, lz4};

/// Returns how far beyond the decoded bytes a stream must end to be decoded over itself.
///
/// `None` for a codec that cannot be decoded this way, which is any but LZ4.
pub fn in_place_margin(algorithm: Algorithm, stream_len: usize) -> Option<usize> {
    match algorithm {
        Algorithm::Lz4 => Some((stream_len >> 8) + 32),
        Algorithm::Lzma | Algorithm::Deflate | Algorithm::Zstd => None,
    }
}

/// Returns whether a stream that lies at `stream` of a buffer can be decoded over itself into the
/// first `wanted` bytes.
pub fn fits_in_place(algorithm: Algorithm, stream: &Range<usize>, wanted: usize) -> bool {
    in_place_margin(algorithm, stream.len())
        .and_then(|margin| wanted.checked_add(margin))
        .is_some_and(|end_min| end_min <= stream.end)
}

/// See [`Decoder::decode_in_place`](crate::Decoder::decode_in_place).
pub(crate) fn decode(
    algorithm: Algorithm,
    buf: &mut [u8],
    stream: Range<usize>,
    wanted: usize,
) -> Result<(), Fault> {
    let margin = in_place_margin(algorithm, stream.len()).ok_or(Fault::NoSuchWay("in place"))?;
    let end_min = wanted.saturating_add(margin);
    Fault::unless_within("end of the stream", stream.end, end_min..=buf.len())?;
    Fault::unless_within("start of the stream", stream.start, 0..=stream.end)?;
    lz4::decode_in_place(buf, stream, wanted)
}
