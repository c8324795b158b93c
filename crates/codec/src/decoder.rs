//! One decoder for all codecs.
//!
//! A [`Decoder`] belongs to one thread. It creates the working memory of a codec when it first meets
//! it and keeps it, so decoding many small pclusters does not allocate.

use crate::deflate::DeflateDecoder;
use crate::lz4;
use crate::lzma::LzmaDecoder;
use crate::zstd::ZstdDecoder;
use crate::{Algorithm, DecodeError, Fault};

/// What the output's length says about the stream.
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

/// What an image says about its streams: limits on the memory that decoding them may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Params {
    /// LZMA dictionary in bytes, at most [`Params::LZMA_DICT_BYTES_MAX`]; that much memory is
    /// taken.
    pub lzma_dict_bytes: u32,
    /// Base-2 logarithm of the largest Zstandard window, within 10..=20. A frame that needs a larger
    /// window is refused where a window is needed, which is for [`Length::AtLeast`].
    pub zstd_window_log: u8,
}

impl Params {
    /// The largest LZMA dictionary of the format: 8 MiB.
    pub const LZMA_DICT_BYTES_MAX: u32 = 8 << 20;
    /// The smallest Zstandard window of the format: 1 KiB.
    pub const ZSTD_WINDOW_LOG_MIN: u8 = 10;
    /// The largest Zstandard window of the format: 1 MiB.
    pub const ZSTD_WINDOW_LOG_MAX: u8 = 20;
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
