//! Streams that are decoded piece by piece, in the memory of a window.
//!
//! A [`Decoder`](crate::Decoder) needs room for all that it decodes. A [`Stream`] is suspended
//! between pieces, with as much of the past as its codec can refer to: reading an extent from front
//! to end in small pieces costs one decoding of it, and no buffer of its size. LZ4 has
//! [`RollingWindow`](crate::RollingWindow) in its stead.
//!
//! A stream keeps none of its input. Each call is handed the same stream again, and goes on where
//! the last one stopped reading.

use crate::deflate::DeflateDecoder;
use crate::lzma::LzmaDecoder;
use crate::params::{Params, Step};
use crate::zstd::ZstdDecoder;
use crate::{Algorithm, DecodeError, Fault};

/// States what [`Stream::skip`] decodes at once.
const SKIPPED_AT_ONCE: usize = 8192;

/// A decoder in the middle of a stream.
enum Suspended {
    Lzma(LzmaDecoder),
    Deflate(DeflateDecoder),
    Zstd(ZstdDecoder),
}

/// A stream of LZMA, DEFLATE or Zstandard that is decoded from front to end, piece by piece.
///
/// As with [`Length::AtLeast`](crate::Length::AtLeast), what comes after the bytes that are asked
/// for is not looked at; here too, an LZMA stream that is too short may pass for a few bytes more.
pub struct Stream {
    algorithm: Algorithm,
    suspended: Suspended,
    memory_bytes: usize,
    longest: usize,
    consumed: usize,
    position: usize,
    /// Holds what a former call met; there is no way on from there.
    fault: Option<Fault>,
}

impl Stream {
    /// Gets ready for a stream of `stream_len` bytes, of which at most `longest` decoded bytes will
    /// be asked for.
    ///
    /// Asking for less saves memory: no byte refers to one before the first, so an LZMA dictionary
    /// need not be larger than that.
    ///
    /// A Zstandard frame whose window is larger than `params` allow is refused by the first call of
    /// [`Stream::next`]. That is what the format says; a whole decoding with
    /// [`Length::Exact`](crate::Length::Exact) needs no window and does not notice.
    ///
    /// # Errors
    ///
    /// A [`DecodeError`] for LZ4, for parameters outside the format, and when there is no memory.
    pub fn new(
        algorithm: Algorithm,
        params: &Params,
        stream_len: usize,
        longest: usize,
    ) -> Result<Self, DecodeError> {
        let suspended =
            Suspended::new(algorithm, params, stream_len, longest).map_err(|fault| {
                DecodeError {
                    algorithm,
                    stream_len,
                    wanted: longest,
                    fault,
                }
            })?;
        Ok(Self {
            algorithm,
            suspended,
            memory_bytes: params.memory_bytes(algorithm, longest),
            longest,
            consumed: 0,
            position: 0,
            fault: None,
        })
    }

    /// Decodes the next bytes until `out` is full.
    ///
    /// `stream` is the whole stream, the same in each call.
    ///
    /// # Errors
    ///
    /// A [`DecodeError`] when the stream is malformed or ends before, after which all calls give the
    /// same fault; and when more is asked for than the `longest` of [`Stream::new`], after which
    /// less can still be had. `out` then holds unspecified bytes.
    pub fn next(&mut self, stream: &[u8], out: &mut [u8]) -> Result<(), DecodeError> {
        let wanted = self.position.saturating_add(out.len());
        self.check(wanted)
            .and_then(|()| self.advance(stream, out))
            .map_err(|fault| DecodeError {
                algorithm: self.algorithm,
                stream_len: stream.len(),
                wanted,
                fault,
            })
    }

    /// Decodes the next `len` bytes and throws them away.
    ///
    /// # Errors
    ///
    /// As [`Stream::next`]; bytes before the fault may have been skipped.
    pub fn skip(&mut self, stream: &[u8], len: usize) -> Result<(), DecodeError> {
        let mut thrown_away = [0; SKIPPED_AT_ONCE];
        let mut left = len;
        while left > 0 {
            let piece = left.min(SKIPPED_AT_ONCE);
            self.next(stream, &mut thrown_away[..piece])?;
            left -= piece;
        }
        Ok(())
    }

    /// Bytes decoded so far: where in the decoded data the next piece begins.
    pub fn position(&self) -> usize {
        self.position
    }

    /// The most memory that this stream takes, as [`Params::memory_bytes`] said before.
    pub fn memory_bytes(&self) -> usize {
        self.memory_bytes
    }

    fn check(&self, wanted: usize) -> Result<(), Fault> {
        self.fault.map_or(Ok(()), Err)?;
        Fault::unless_within("length to decode", wanted, 0..=self.longest)
    }

    fn advance(&mut self, stream: &[u8], out: &mut [u8]) -> Result<(), Fault> {
        if out.is_empty() {
            return Ok(());
        }
        let rest = stream.get(self.consumed..).unwrap_or_default();
        let step = self.suspended.step(rest, out).and_then(|step| {
            self.consumed += step.consumed;
            self.position += step.got;
            let got = self.position;
            (step.got == out.len())
                .then_some(())
                .ok_or(Fault::Short { got })
        });
        self.fault = step.err();
        step
    }
}

impl Suspended {
    fn new(
        algorithm: Algorithm,
        params: &Params,
        stream_len: usize,
        longest: usize,
    ) -> Result<Self, Fault> {
        match algorithm {
            Algorithm::Lz4 => Err(Fault::NoSuchWay("piece by piece")),
            Algorithm::Lzma => {
                LzmaDecoder::at_start_of(params.lzma_dict_bytes, stream_len, longest)
                    .map(Self::Lzma)
            }
            Algorithm::Deflate => Ok(Self::Deflate(DeflateDecoder::default())),
            Algorithm::Zstd => ZstdDecoder::at_start(params.zstd_window_log).map(Self::Zstd),
        }
    }

    fn step(&mut self, rest: &[u8], out: &mut [u8]) -> Result<Step, Fault> {
        match self {
            Self::Lzma(decoder) => decoder.step(rest, out),
            Self::Deflate(decoder) => decoder.step(rest, out),
            Self::Zstd(decoder) => decoder.step(rest, out),
        }
    }
}
