//! Faults of a stream.

use std::ops::RangeInclusive;

use thiserror::Error;

use crate::Algorithm;

/// A stream that did not decode to what was wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("{algorithm} stream of {stream_len} bytes, {wanted} bytes wanted of it: {fault}")]
pub struct DecodeError {
    /// The codec.
    pub algorithm: Algorithm,
    /// Bytes of compressed input that were given.
    pub stream_len: usize,
    /// Bytes of output that were asked for.
    pub wanted: usize,
    /// Holds what went wrong.
    pub fault: Fault,
}

/// The reason why a stream did not decode.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum Fault {
    /// The bytes break a rule of the codec, in the words of the library that decodes it.
    #[error("{0}")]
    Malformed(&'static str),
    /// The stream ends before the wanted length.
    #[error("it ends after {got} bytes")]
    Short {
        /// Bytes that it holds.
        got: usize,
    },
    /// The stream should be exactly as long as wanted and goes on after that.
    #[error("it goes on beyond them")]
    Long,
    /// The stream ends before its input does.
    #[error("{left} bytes follow its end")]
    Trailing {
        /// Input bytes after the end of the stream.
        left: usize,
    },
    /// A parameter is outside what this codec can be asked for; nothing was decoded.
    #[error("{what} {value} lies outside {min}..={max}")]
    Unsupported {
        /// The parameter.
        what: &'static str,
        /// Its value.
        value: u64,
        /// The smallest value that is allowed.
        min: u64,
        /// The largest value that is allowed.
        max: u64,
    },
    /// The codec does not go with this way of decoding; nothing was decoded.
    #[error("this codec cannot be decoded {0}")]
    NoSuchWay(
        /// Means how it was to be decoded.
        &'static str,
    ),
    /// A buffer is larger than the library can be told.
    #[error("buffers beyond {max} bytes cannot be handed to the decoder")]
    TooLarge {
        /// The longest buffer in bytes.
        max: usize,
    },
    /// The decoder's working memory could not be had.
    #[error("out of memory")]
    OutOfMemory,
}

impl Fault {
    /// Checks a parameter that is a number of bytes, or a place.
    pub(crate) fn unless_within(
        what: &'static str,
        value: usize,
        allowed: RangeInclusive<usize>,
    ) -> Result<(), Self> {
        if allowed.contains(&value) {
            return Ok(());
        }
        Err(Self::Unsupported {
            what,
            value: value as u64,
            min: *allowed.start() as u64,
            max: *allowed.end() as u64,
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
