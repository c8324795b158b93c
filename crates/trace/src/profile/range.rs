//! A profile in memory.

use super::digest::Digest;

/// Ranges that are read, in the order in which they are read first.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Profile {
    /// Tells how many rounds of a program were recorded.
    pub rounds: u64,
    /// The ranges, in the order of the text.
    pub ranges: Vec<Range>,
}

/// A range of a file that is read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Range {
    /// The path in the image or mount, as bytes, with a slash in front.
    pub path: Vec<u8>,
    /// Tells where the range begins, in bytes.
    pub offset: u64,
    /// Tells how long it is, in bytes. Bytes behind the end of the file do not count, so `u64::MAX` means the rest of it.
    pub len: u64,
    /// Tells how many rounds read it.
    pub count: u64,
    /// The digest of its content, as far as the file goes.
    pub digest: Option<Digest>,
}

impl Profile {
    /// Returns whether all rounds read a range: it belongs to the core set (FPC paper, 3.3).
    pub fn is_core(&self, range: &Range) -> bool {
        range.count >= self.rounds
    }

    /// Returns the ranges that all rounds read.
    pub fn core(&self) -> impl Iterator<Item = &Range> {
        self.ranges.iter().filter(|range| self.is_core(range))
    }
}

impl Range {
    /// Returns the offset behind the last byte; `u64::MAX` if there is no such number.
    pub fn end(&self) -> u64 {
        self.offset.saturating_add(self.len)
    }
}
