//! Each codec that an image may have, and one fixed-output encoder for all of them.
//!
//! LZ4 and LZMA stop by themselves where the output is full. DEFLATE and Zstandard compress all of
//! their input, so the length that fits has to be searched for (`secant.rs`). For Zstandard that takes
//! one search for matches, since its sequences can be cut (`zstd_sequences.rs`).

use std::ops::Range;

use thiserror::Error;

use crate::deflate::DeflateEncoder;
use crate::encoded::{EncodeError, Encoded};
use crate::encoder::{Effort, HC_LEVELS, Lz4Encoder};
use crate::gauge::Gauge;
use crate::lzma::LzmaEncoder;
use crate::secant::{Secant, Whole};
use crate::zstd::FittingEncoder;
use crate::zstd_sequences::THOROUGH;
use crate::{Algorithm, Params};

/// A codec, and how hard its encoder tries.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Codec {
    /// LZ4.
    Lz4(Effort),
    /// MicroLZMA, by liblzma.
    Lzma {
        /// 0 to 9.
        level: u8,
        /// Takes more time for the same level.
        extreme: bool,
        /// The dictionary in bytes, 4 KiB to 8 MiB; decoders take that much memory.
        dict_bytes: u32,
    },
    /// DEFLATE with a window of 32 KiB, by libdeflate.
    Deflate {
        /// 1 to 12.
        level: u8,
    },
    /// Zstandard, by libzstd.
    Zstd {
        /// 1 to 22.
        level: u8,
        /// Base-2 logarithm of the largest window, 10 to 20; decoders take that much memory.
        window_log: u8,
    },
}

/// A setting that its codec does not have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("{what} {value}; {min} to {max} are possible")]
pub struct UnknownSetting {
    /// Tells what was set.
    pub what: &'static str,
    /// The value.
    pub value: u32,
    /// The smallest that is possible.
    pub min: u32,
    /// The largest that is possible.
    pub max: u32,
}

impl Codec {
    /// The smallest LZMA dictionary: 4 KiB.
    pub const LZMA_DICT_BYTES_MIN: u32 = 4096;

    /// The algorithm of its streams.
    pub const fn algorithm(&self) -> Algorithm {
        match self {
            Self::Lz4(_) => Algorithm::Lz4,
            Self::Lzma { .. } => Algorithm::Lzma,
            Self::Deflate { .. } => Algorithm::Deflate,
            Self::Zstd { .. } => Algorithm::Zstd,
        }
    }

    /// About the memory that an encoder takes.
    pub fn encoder_bytes(&self) -> u64 {
        const MIB: u64 = 1 << 20;
        match *self {
            // Chains and their heads, the positions of a stretch, and the sequences of a block.
            Self::Lz4(Effort::Lazy(_) | Effort::Optimal(_)) => 3 * MIB,
            Self::Lz4(_) => MIB,
            // A hash table and a binary tree over twice the dictionary.
            Self::Lzma { dict_bytes, .. } => 12 * u64::from(dict_bytes) + 2 * MIB,
            Self::Deflate { .. } => 2 * MIB,
            // Tables, and what was found in an input of some windows.
            Self::Zstd { window_log, .. } => (12 << window_log) + 4 * MIB,
        }
    }

    /// Checks the settings.
    ///
    /// # Errors
    ///
    /// [`UnknownSetting`] for a level or a window that the codec does not have.
    pub fn check(&self) -> Result<(), UnknownSetting> {
        match *self {
            Self::Lz4(Effort::High(level)) => {
                let (min, max) = HC_LEVELS.into_inner();
                within("LZ4 HC level", level, min.into(), max.into())
            }
            Self::Lz4(_) => Ok(()),
            Self::Lzma {
                level, dict_bytes, ..
            } => {
                let (min, max) = (Self::LZMA_DICT_BYTES_MIN, Params::LZMA_DICT_BYTES_MAX);
                within("LZMA level", level, 0, 9)
                    .and_then(|()| within("LZMA dictionary of bytes", dict_bytes, min, max))
            }
            Self::Deflate { level } => within("DEFLATE level", level, 1, 12),
            Self::Zstd { level, window_log } => {
                let (min, max) = (Params::ZSTD_WINDOW_LOG_MIN, Params::ZSTD_WINDOW_LOG_MAX);
                within("Zstandard level", level, 1, 22).and_then(|()| {
                    within("Zstandard window log", window_log, min.into(), max.into())
                })
            }
        }
    }
}

impl From<Effort> for Codec {
    fn from(effort: Effort) -> Self {
        Self::Lz4(effort)
    }
}

fn within(
    what: &'static str,
    value: impl Into<u32>,
    min: u32,
    max: u32,
) -> Result<(), UnknownSetting> {
    let value = value.into();
    match (min..=max).contains(&value) {
        true => Ok(()),
        false => Err(UnknownSetting {
            what,
            value,
            min,
            max,
        }),
    }
}

/// A fixed-output compressor of any codec with reusable working memory, for one thread.
///
/// Its streams depend on the data since the last restart alone, and on nothing else that it has done.
pub struct Encoder {
    kind: Kind,
    /// Looks at the input first, where the compressor is slow.
    gauge: Option<Gauge>,
}

enum Kind {
    Lz4(Box<Lz4Encoder>),
    Lzma(LzmaEncoder),
    Deflate(Searching),
    Zstd(Box<FittingEncoder>),
}

/// A compressor of DEFLATE that looks for how much fits, with a quick one as its ruler if it is slow itself.
struct Searching {
    compressor: DeflateEncoder,
    ruler: Option<DeflateEncoder>,
    secant: Secant,
}

/// Levels from here on are so slow that a ruler pays.
const SLOW_DEFLATE: u8 = 10;
/// The level of a ruler.
const QUICK: u8 = 1;

impl Encoder {
    /// An encoder of a codec.
    ///
    /// # Errors
    ///
    /// [`UnknownSetting`] as [`Codec::check`] finds it.
    pub fn new(codec: &Codec) -> Result<Self, UnknownSetting> {
        codec.check()?;
        let kind = match *codec {
            Codec::Lz4(effort) => {
                let encoder = Lz4Encoder::new(effort).expect("the level has been checked");
                Kind::Lz4(encoder.into())
            }
            Codec::Lzma {
                level,
                extreme,
                dict_bytes,
            } => Kind::Lzma(LzmaEncoder::new(level, extreme, dict_bytes)),
            Codec::Deflate { level } => Kind::Deflate(Searching::new(level)),
            Codec::Zstd { level, window_log } => {
                let encoder = FittingEncoder::new(level, window_log);
                Kind::Zstd(encoder.expect("there is memory for a context").into())
            }
        };
        let is_slow = match codec {
            Codec::Lz4(_) => false, // it has a glance of its own
            Codec::Zstd { level, .. } => *level >= THOROUGH,
            Codec::Lzma { .. } | Codec::Deflate { .. } => true,
        };
        Ok(Self {
            kind,
            gauge: is_slow.then(Gauge::default),
        })
    }

    /// Compresses every input from here on, hopeless or not.
    ///
    /// This is the plain path that the glance is measured against.
    pub fn without_glance(self) -> Self {
        Self {
            gauge: None,
            ..self
        }
    }

    /// Leaves up to a quarter of the output empty from here on, where that saves calls of a
    /// compressor that takes its input as a whole. It is meant for output of which the empty part
    /// is not stored.
    pub fn loosely(mut self) -> Self {
        match &mut self.kind {
            Kind::Lz4(_) | Kind::Lzma(_) => {}
            Kind::Deflate(searching) => searching.secant.loosen(),
            Kind::Zstd(encoder) => encoder.secant.loosen(),
        }
        self
    }

    /// Begins with other data: nothing is remembered of what came before.
    pub fn restart(&mut self) {
        match &mut self.kind {
            Kind::Lz4(encoder) => encoder.restart(),
            Kind::Lzma(_) => {}
            Kind::Deflate(searching) => searching.secant.restart(),
            Kind::Zstd(encoder) => encoder.secant.restart(),
        }
    }

    /// Compresses as much of the front of `data[input]` as fits into `out`, as one stream at the front of `out` that
    /// never begins with a zero byte. `None` when it would be no shorter than the input it holds, which is then better
    /// stored as it is; `out` holds unspecified bytes in that case.
    ///
    /// Between two restarts the data is the same, and no input begins before the one of the last call.
    ///
    /// # Errors
    ///
    /// [`EncodeError`] when there is no memory.
    pub fn encode_next(
        &mut self,
        data: &[u8],
        input: Range<usize>,
        out: &mut [u8],
    ) -> Result<Option<Encoded>, EncodeError> {
        if let Some(gauge) = &mut self.gauge {
            if !gauge.may_gain(&data[input.clone()], out.len()) {
                return Ok(None);
            }
        }
        let encoded = match &mut self.kind {
            Kind::Lz4(encoder) => return Ok(encoder.encode_next(data, input, out)),
            Kind::Lzma(encoder) => encoder.encode(&data[input], out)?,
            Kind::Deflate(searching) => searching.encode(&data[input], out)?,
            Kind::Zstd(encoder) => encoder.encode(&data[input], out)?,
        };
        Ok(Some(encoded).filter(|encoded| encoded.written < encoded.consumed))
    }

    /// Returns whether [`encode_next`](Self::encode_next) makes the stream of [`encode_all`](Self::encode_all) of an input
    /// that fits as a whole.
    pub const fn is_same_alone(&self) -> bool {
        matches!(self.kind, Kind::Lzma(_))
    }

    /// Compresses all of `input` to the front of `out`, as [`encode_next`](Self::encode_next) does after a restart, and
    /// says how long that is; `None` when it is longer than `out`, or no shorter than the input.
    ///
    /// # Errors
    ///
    /// [`EncodeError`] when there is no memory.
    pub fn encode_all(
        &mut self,
        input: &[u8],
        out: &mut [u8],
    ) -> Result<Option<usize>, EncodeError> {
        self.restart();
        if let Kind::Lz4(encoder) = &mut self.kind {
            let encoded = encoder.encode(input, out);
            return Ok(encoded
                .filter(|encoded| encoded.consumed == input.len())
                .map(|encoded| encoded.written));
        }
        // Compressors need some room to spare, and stop early where it is short.
        let mut scratch = vec![0; input.len() + SPARE_BYTES];
        let written = match &mut self.kind {
            Kind::Lz4(_) => None,
            Kind::Lzma(encoder) => {
                let encoded = encoder.encode(input, &mut scratch)?;
                (encoded.consumed == input.len()).then_some(encoded.written)
            }
            Kind::Deflate(searching) => searching.compressor.encode(input, &mut scratch)?,
            Kind::Zstd(encoder) => encoder.encode_all(input, &mut scratch)?,
        };
        let written = written.filter(|&written| written <= out.len() && written < input.len());
        if let Some(written) = written {
            out[..written].copy_from_slice(&scratch[..written]);
        }
        Ok(written)
    }
}

/// Room that a compressor is given beyond what is of use.
const SPARE_BYTES: usize = 1024;

impl Searching {
    fn new(level: u8) -> Self {
        Self {
            compressor: DeflateEncoder::new(level),
            ruler: (level >= SLOW_DEFLATE).then(|| DeflateEncoder::new(QUICK)),
            secant: Secant::default(),
        }
    }

    fn encode(&mut self, input: &[u8], out: &mut [u8]) -> Result<Encoded, EncodeError> {
        let ruler = self.ruler.as_mut();
        self.secant.encode(input, out, &mut self.compressor, ruler)
    }
}
