//! The fixed-output encoder: as much input as fits into a given number of bytes.
//!
//! EROFS cuts a file where a pcluster is full, not the other way round, so that no block is wasted.
//! liblz4 can do that by itself. This module adds three things: an early exit for input that LZ4
//! cannot make smaller, where liblz4 is slow (`probe.rs`); a quick encoder that needs none
//! (`greedy.rs`); and one that is as good as liblz4's best level in less time (`optimal/`).
//!
//! Invariant B6 of `docs/design/building.md`: a stream depends on its input alone, not on what was compressed before.

use std::ops::{Range, RangeInclusive};

use thiserror::Error;

use crate::encoded::Encoded;
use crate::greedy::Greedy;
use crate::lz4::{Method, State};
use crate::optimal::Optimal;
use crate::probe::Probe;

/// The largest ratio of an LZ4 block: one length byte stands for 255 bytes of a match.
const RATIO_MAX: usize = 255;

/// The levels of liblz4's HC compressor.
pub(crate) const HC_LEVELS: RangeInclusive<u8> = 1..=12;

/// Tells how hard an [`Lz4Encoder`] tries.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Effort {
    /// Our own greedy compressor.
    Fast,
    /// liblz4's greedy compressor.
    FastLiblz4,
    /// liblz4's HC compressor with a level of 1..=12; from 10 on it parses optimally.
    High(u8),
    /// Our own lazy parse, which looks at so many candidates for a match at most.
    Lazy(u16),
    /// Our own optimal parse, which looks at so many candidates for a match at most.
    Optimal(u16),
}

/// An HC level that liblz4 does not have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("LZ4 HC level {0} lies outside 1..=12")]
pub struct UnknownEffort(pub u8);

/// A fixed-output LZ4 compressor with reusable working memory, for one thread.
pub struct Lz4Encoder {
    compressor: Compressor,
    probe: Option<Probe>,
}

enum Compressor {
    Liblz4(State),
    Greedy(Greedy),
    Optimal(Box<Optimal>),
}

impl Lz4Encoder {
    /// An encoder of the given effort.
    ///
    /// # Errors
    ///
    /// [`UnknownEffort`] when there is no such HC level.
    pub fn new(effort: Effort) -> Result<Self, UnknownEffort> {
        let compressor = match effort {
            Effort::Fast => Compressor::Greedy(Greedy::new()),
            Effort::FastLiblz4 => Compressor::Liblz4(State::new(Method::Fast)),
            Effort::High(level) if HC_LEVELS.contains(&level) => {
                Compressor::Liblz4(State::new(Method::High(level)))
            }
            Effort::High(level) => return Err(UnknownEffort(level)),
            Effort::Lazy(candidates) => {
                Compressor::Optimal(Optimal::lazy(candidates.into()).into())
            }
            Effort::Optimal(candidates) => {
                Compressor::Optimal(Optimal::new(candidates.into()).into())
            }
        };
        // The greedy compressor itself gives up as early.
        let needs_probe = !matches!(compressor, Compressor::Greedy(_));
        Ok(Self {
            compressor,
            probe: needs_probe.then(Probe::default),
        })
    }

    /// Compresses every input from here on, hopeless or not.
    ///
    /// This is the plain path that the early exit is measured against.
    pub fn without_probe(self) -> Self {
        Self {
            probe: None,
            ..self
        }
    }

    /// Begins with other data: nothing is remembered of what came before.
    pub fn restart(&mut self) {
        match &mut self.compressor {
            Compressor::Liblz4(_) | Compressor::Greedy(_) => {}
            Compressor::Optimal(optimal) => optimal.restart(),
        }
    }

    /// Compresses as much of the front of `input` as fits into `out`, as one LZ4 block.
    ///
    /// The block lies at the front of `out` and never begins with a zero byte. `None` when it would
    /// be no shorter than the input it holds, which is then better stored as it is; `out` holds
    /// unspecified bytes in that case.
    pub fn encode(&mut self, input: &[u8], out: &mut [u8]) -> Option<Encoded> {
        self.restart();
        self.encode_next(input, 0..input.len(), out)
    }

    /// Compresses as much of the front of `data[input]` as fits into `out`, as [`encode`](Self::encode) does.
    ///
    /// Between two restarts the data is the same, and no input begins before the one of the last call. The block depends
    /// on its input alone.
    pub fn encode_next(
        &mut self,
        data: &[u8],
        input: Range<usize>,
        out: &mut [u8],
    ) -> Option<Encoded> {
        if !self.may_gain(&data[input.clone()], out.len()) {
            return None;
        }
        // No more than this can fit, so no more of it need be read.
        let reach = out.len().saturating_mul(RATIO_MAX).min(input.len());
        let encoded = match &mut self.compressor {
            Compressor::Liblz4(state) => state.compress(&data[input][..reach], out),
            Compressor::Greedy(greedy) => greedy.encode(&data[input][..reach], out),
            Compressor::Optimal(optimal) => {
                optimal.encode(data, input.start, input.start + reach, out)
            }
        };
        (encoded.written < encoded.consumed).then_some(encoded)
    }

    fn may_gain(&mut self, input: &[u8], budget: usize) -> bool {
        match &mut self.probe {
            Some(probe) => probe.may_gain(input, budget),
            None => true,
        }
    }
}
