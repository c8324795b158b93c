//! One segment: its state, and which of its blocks are valid.

use crate::layout::SEGMENT_CONTENT;
use crate::layout::checkpoint::HeadKind;
use crate::layout::table::SitEntry;

/// A bit for each block of a segment.
pub(super) type Bitmap = [u64; 8];

/// Use of a segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Use {
    /// Nothing: it may be opened.
    Free,
    /// A head fills it, or will do so next.
    Open,
    /// Its blocks, or some of them, are valid.
    Full,
    /// No block is valid any more, but the last checkpoint may name some.
    Prefree,
}

/// Time at which content was written. Content that cleaning moves keeps its time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Moment {
    /// Blocks that had been written before; see [`Segments::clock`](crate::store::segments::Segments::clock).
    pub(crate) clock: u64,
    /// The time of day.
    pub(crate) seconds: u64,
}

/// A segment of the main area.
#[derive(Debug, Clone)]
pub(crate) struct Segment {
    pub(crate) state: Use,
    pub(crate) valid: u16,
    pub(crate) kind: u8,
    pub(crate) serial: u32,
    /// Time of the last change of one of its blocks, in seconds.
    pub(crate) seconds: u64,
    /// Time of that change by the clock of the writes.
    pub(crate) changed: u64,
    /// Average write time of its blocks, by that clock.
    pub(crate) born: u64,
    pub(super) bits: Bitmap,
}

impl Segment {
    pub(super) fn new(entry: &SitEntry) -> Self {
        let mut bits = [0; 8];
        for (word, bytes) in bits.iter_mut().zip(entry.bits.chunks_exact(8)) {
            *word = bytes
                .iter()
                .rev()
                .fold(0, |word, &byte| word << 8 | u64::from(byte));
        }
        Self {
            state: if entry.valid == 0 {
                Use::Free
            } else {
                Use::Full
            },
            valid: entry.valid,
            kind: entry.kind,
            serial: entry.serial,
            seconds: entry.seconds,
            changed: 0,
            born: 0,
            bits,
        }
    }

    /// Returns whether a head of this kind filled it.
    pub(crate) fn is_of(&self, kind: HeadKind) -> bool {
        self.kind == kind.to_raw()
    }

    /// Write time, for content that is moved out of it.
    pub(crate) fn moment(&self) -> Moment {
        Moment {
            clock: self.born,
            seconds: self.seconds,
        }
    }

    /// Takes a block that was written at some moment, after `count` others.
    pub(super) fn mix(&mut self, moment: Moment, count: u16) {
        let mix = |mean: u64, new: u64| {
            let count = u128::from(count);
            ((u128::from(mean) * count + u128::from(new)) / (count + 1)) as u64
        };
        self.born = mix(self.born, moment.clock);
        self.seconds = mix(self.seconds, moment.seconds);
    }

    pub(super) fn entry(&self) -> SitEntry {
        let mut bits = [0; 64];
        for (bytes, word) in bits.chunks_exact_mut(8).zip(&self.bits) {
            bytes.copy_from_slice(&word.to_le_bytes());
        }
        SitEntry {
            valid: self.valid,
            kind: self.kind,
            serial: self.serial,
            seconds: self.seconds,
            bits,
        }
    }

    /// Returns whether its blocks name their owners themselves.
    pub(crate) fn is_packed(&self) -> bool {
        HeadKind::from_raw(self.kind).is_some_and(HeadKind::is_packed)
    }

    /// Returns whether its blocks hold plain content.
    pub(super) fn has_plain_data(&self) -> bool {
        HeadKind::from_raw(self.kind).is_some_and(HeadKind::has_plain_data)
    }

    pub(crate) fn is_valid(&self, index: u16) -> bool {
        let word = self.bits.get(usize::from(index / 64));
        word.is_some_and(|word| word >> (index % 64) & 1 == 1)
    }

    /// The blocks that are valid, by their place in the segment.
    pub(crate) fn valid_blocks(&self) -> impl Iterator<Item = u16> + '_ {
        (0..SEGMENT_CONTENT as u16).filter(|&index| self.is_valid(index))
    }

    /// Says whether it was otherwise before.
    pub(super) fn set_valid(&mut self, index: u16, is_valid: bool) -> bool {
        let Some(word) = self.bits.get_mut(usize::from(index / 64)) else {
            return false;
        };
        let bit = 1 << (index % 64);
        let changed = (*word & bit != 0) != is_valid;
        if changed {
            *word ^= bit;
            self.valid = if is_valid {
                self.valid + 1
            } else {
                self.valid - 1
            };
        }
        changed
    }
}
