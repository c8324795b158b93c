//! One decoder for all codecs.
//!
//! A [`Decoder`] belongs to one thread. It creates the working memory of a codec when it first meets
//! it and keeps it, so decoding many small pclusters does not allocate.

use std::ops::Range;

use crate::deflate::{self, DeflateDecoder};
use crate::lzma::{self, LzmaDecoder};
use crate::zstd::{self, ZstdDecoder};
use crate::{Algorithm, DecodeError, Fault, in_place, lz4};

/// Tells what the output's length says about the stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Length {
    /// The stream holds exactly as many bytes as the output, and ends where the input ends.
    Exact,
    /// The stream holds at least as many bytes as the output; what comes after them does not
    /// matter and is not looked at. This is what a partial reference to a shared pcluster asks for.
    ///
    /// A stream that is shorter is refused, but for LZMA: nothing marks its end, so its last bytes
    /// may pass for a few symbols more.
    AtLeast,
}

/// Holds what an image says about its streams: limits on the memory that decoding them may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Params {
    /// LZMA dictionary in bytes, at most [`Params::LZMA_DICT_BYTES_MAX`]; that much memory is
    /// taken, or as much as is decoded if that is less.
    pub lzma_dict_bytes: u32,
    /// Base-2 logarithm of the largest Zstandard window, within 10..=20. A frame that needs a larger
    /// window is refused where a window is needed, which is for [`Length::AtLeast`].
    pub zstd_window_log: u8,
}

impl Params {
    /// The largest LZMA dictionary of the format: 8 MiB.
    pub const LZMA_DICT_BYTES_MAX: u32 = 8 << 20;
    /// Base-2 logarithm of the largest window of DEFLATE: 32 KiB.
    pub const DEFLATE_WINDOW_BITS: u8 = 15;
    /// The smallest Zstandard window of the format: 1 KiB.
    pub const ZSTD_WINDOW_LOG_MIN: u8 = 10;
    /// The largest Zstandard window of the format: 1 MiB.
    pub const ZSTD_WINDOW_LOG_MAX: u8 = 20;

    /// The most memory that a [`Decoder`] keeps for a codec, or a [`Stream`](crate::Stream) for its
    /// own, when at most `longest` bytes are decoded at once.
    ///
    /// | codec | bytes |
    /// |---|---|
    /// | LZ4 | none |
    /// | LZMA | the dictionary or `longest`, the smaller of them but no less than 4 KiB, and 48 KiB |
    /// | DEFLATE | 48 KiB, of which 32 KiB are the window |
    /// | Zstandard | the window, three blocks of 128 KiB or of the window's size if that is less, and 128 KiB |
    ///
    /// What the heap adds to this is not counted.
    pub fn memory_bytes(&self, algorithm: Algorithm, longest: usize) -> usize {
        match algorithm {
            Algorithm::Lz4 => 0,
            Algorithm::Lzma => lzma::memory_bytes(self.lzma_dict_bytes, longest),
            Algorithm::Deflate => deflate::MEMORY_BYTES,
            Algorithm::Zstd => zstd::memory_bytes(self.zstd_window_log),
        }
    }
}

/// The largest sizes that the format allows: they decode every valid image.
impl Default for Params {
    fn default() -> Self {
        Self {
            lzma_dict_bytes: Self::LZMA_DICT_BYTES_MAX,
            zstd_window_log: Self::ZSTD_WINDOW_LOG_MAX,
        }
    }
}

/// The reusable working memory of all codecs, for one thread.
#[derive(Default)]
pub struct Decoder {
    lzma: Option<LzmaDecoder>,
    deflate: Option<DeflateDecoder>,
    zstd: Option<ZstdDecoder>,
}

impl Decoder {
    /// A decoder that holds no memory yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Decodes a stream until `out` is full.
    ///
    /// `stream` is what [`strip_zero_padding`](crate::strip_zero_padding) left of a pcluster. With
    /// [`Length::Exact`] the end of the decoded bytes, of the stream and of `stream` must coincide;
    /// with [`Length::AtLeast`] only the front of the stream is decoded.
    ///
    /// Every byte of `out` comes from the stream then, whatever `out` held before and whoever made the
    /// stream.
    ///
    /// # Errors
    ///
    /// A [`DecodeError`] when `out` could not be filled, or not by all of the stream where that was
    /// asked for. `out` then holds unspecified bytes. The decoder can be used again.
    pub fn decode(
        &mut self,
        algorithm: Algorithm,
        params: &Params,
        stream: &[u8],
        out: &mut [u8],
        length: Length,
    ) -> Result<(), DecodeError> {
        let wanted = out.len();
        match algorithm {
            Algorithm::Lz4 => lz4::decode(stream, out, length),
            Algorithm::Lzma => self.lzma.get_or_insert_default().decode(
                params.lzma_dict_bytes,
                stream,
                out,
                length,
            ),
            Algorithm::Deflate => self
                .deflate
                .get_or_insert_default()
                .decode(stream, out, length),
            Algorithm::Zstd => ZstdDecoder::get_or_create(&mut self.zstd)
                .and_then(|zstd| zstd.decode(params.zstd_window_log, stream, out, length)),
        }
        .map_err(|fault| DecodeError {
            algorithm,
            stream_len: stream.len(),
            wanted,
            fault,
        })
    }

    /// Decodes a stream over itself: what lies at `buf[stream]` becomes the first `wanted` bytes of
    /// `buf`.
    ///
    /// Otherwise this is [`Decoder::decode`] with [`Length::Exact`]. The rest of `buf` holds
    /// unspecified bytes after it. A stream that does not hold exactly `wanted` bytes may overtake
    /// itself, and then need not be noticed.
    ///
    /// # Errors
    ///
    /// A [`DecodeError`] when the stream is malformed; and before anything is decoded, for any codec
    /// but LZ4, or when not [`fits_in_place`](crate::fits_in_place).
    pub fn decode_in_place(
        &mut self,
        algorithm: Algorithm,
        buf: &mut [u8],
        stream: Range<usize>,
        wanted: usize,
    ) -> Result<(), DecodeError> {
        let stream_len = stream.len();
        in_place::decode(algorithm, buf, stream, wanted).map_err(|fault| DecodeError {
            algorithm,
            stream_len,
            wanted,
            fault,
        })
    }
}

/// Checks that a decoder filled its output.
pub(crate) fn expect_full(wanted: usize, got: usize) -> Result<(), Fault> {
    if got == wanted {
        Ok(())
    } else {
        Err(Fault::Short { got })
    }
}

/// Checks that no input is left behind a stream of which all was wanted.
pub(crate) fn expect_consumed(stream_len: usize, consumed: usize) -> Result<(), Fault> {
    match stream_len - consumed {
        0 => Ok(()),
        left => Err(Fault::Trailing { left }),
    }
}
