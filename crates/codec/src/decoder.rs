//! One decoder for all codecs.
//!
//! A [`Decoder`] belongs to one thread. It creates the working memory of a codec when it first meets
//! it and keeps it, so decoding many small pclusters does not allocate.

use std::ops::Range;

use crate::deflate::{self, DeflateDecoder};
use crate::lzma::{self, LzmaDecoder};
use crate::params::{Length, Params};
use crate::zstd::{self, ZstdDecoder};
use crate::{Algorithm, DecodeError, in_place, lz4};

impl Params {
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
