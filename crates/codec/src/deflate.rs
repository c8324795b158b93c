//! Raw DEFLATE, decoded by way of zlib-rs and compressed by way of libdeflate.
//!
//! Distances up to 32 KiB are accepted, whatever window an image promises: the output itself is the
//! window, or zlib-rs has one of that size in its state, so a smaller promise saves nothing.

use libdeflater::{CompressionLvl, Compressor};
use zlib_rs::{Inflate, InflateError, InflateFlush, Status};

use crate::error::{expect_consumed, expect_full};
use crate::params::Step;
use crate::secant::Whole;
use crate::{EncodeError, Fault, Length, Params};

const WITH_ZLIB_HEADER: bool = false;

/// States what a decoder holds, rounded up: a window of 32 KiB, and some 10 KiB of code tables.
pub(crate) const MEMORY_BYTES: usize = 48 << 10;

/// zlib's state, reset before each stream.
pub(crate) struct DeflateDecoder(Inflate);

impl Default for DeflateDecoder {
    fn default() -> Self {
        Self(Inflate::new(WITH_ZLIB_HEADER, Params::DEFLATE_WINDOW_BITS))
    }
}

impl DeflateDecoder {
    /// See [`Decoder::decode`](crate::Decoder::decode).
    pub(crate) fn decode(
        &mut self,
        stream: &[u8],
        out: &mut [u8],
        length: Length,
    ) -> Result<(), Fault> {
        self.0.reset(WITH_ZLIB_HEADER);
        let status = self.inflate(stream, out, InflateFlush::Finish)?;
        // One call goes as far as the input and the output allow, so these are final.
        let (consumed, got) = (self.0.total_in() as usize, self.0.total_out() as usize);
        expect_full(out.len(), got)?;
        match (length, status) {
            (Length::AtLeast, _) => Ok(()),
            (Length::Exact, Status::StreamEnd) => expect_consumed(stream.len(), consumed),
            (Length::Exact, _) if consumed == stream.len() => {
                Err(Fault::Malformed("the stream is cut off before its end"))
            }
            (Length::Exact, _) => Err(Fault::Long),
        }
    }

    /// Decodes the next bytes.
    pub(crate) fn step(&mut self, rest: &[u8], out: &mut [u8]) -> Result<Step, Fault> {
        let (read_before, made_before) = (self.0.total_in(), self.0.total_out());
        self.inflate(rest, out, InflateFlush::NoFlush)?;
        Ok(Step {
            consumed: (self.0.total_in() - read_before) as usize,
            got: (self.0.total_out() - made_before) as usize,
        })
    }

    /// Decodes as far as it goes. `flush` says whether more calls follow, for which the window is
    /// kept up.
    fn inflate(
        &mut self,
        stream: &[u8],
        out: &mut [u8],
        flush: InflateFlush,
    ) -> Result<Status, Fault> {
        let max = u32::MAX as usize;
        if stream.len() > max || out.len() > max {
            return Err(Fault::TooLarge { max });
        }
        self.0
            .decompress(stream, out, flush)
            .map_err(|error| match error {
                InflateError::MemError => Fault::OutOfMemory,
                other => Fault::Malformed(self.0.error_message().unwrap_or(other.as_str())),
            })
    }
}

/// A stream that begins with a stored block begins with three zero bits, and five more that mean nothing. This is one
/// of those.
const MEANINGLESS_BIT: u8 = 0x10;

/// libdeflate's working memory. Its streams never begin with a zero byte.
pub(crate) struct DeflateEncoder(Compressor);

impl DeflateEncoder {
    /// One whose level has been checked.
    pub(crate) fn new(level: u8) -> Self {
        let level = CompressionLvl::new(level.into()).expect("libdeflate has this level");
        Self(Compressor::new(level))
    }
}

impl Whole for DeflateEncoder {
    fn encode(&mut self, input: &[u8], out: &mut [u8]) -> Result<Option<usize>, EncodeError> {
        let Ok(written) = self.0.deflate_compress(input, out) else {
            return Ok(None);
        };
        if let Some(first @ 0) = out.first_mut() {
            *first = MEANINGLESS_BIT;
        }
        Ok(Some(written))
    }
}
