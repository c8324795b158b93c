//! Words about a check: what is wanted, how far it has come, what it found.

use std::ops::Range;

use super::finding::{Finding, Severity};

/// Holds what to check, and how hard to work.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CheckOptions {
    /// Threads that check, besides the caller's, which walks the directories; 0 means one for each
    /// processor.
    pub workers: usize,
    /// Tells whether to decode and read all data, instead of only checking where it lies.
    pub data: bool,
    /// Tells whether to compare the content of each file with the digest that the image has of it, which takes a further
    /// look at all of it.
    pub digests: bool,
    /// Tells how many findings are kept; the others are only counted.
    pub findings_max: usize,
    /// Tells how many bytes of metadata and decoded data are looked at before the check gives up.
    pub work_bytes_max: u64,
    /// Tells how many bytes of notes are kept in memory; more are written to a temporary file.
    pub memory_bytes: usize,
    /// Ranges of bytes of the primary device in which to look for gaps that nothing refers to.
    pub gaps_in: Vec<Range<u64>>,
}

impl Default for CheckOptions {
    /// All data, on all processors, 10,000 findings, however long it takes, with 8 MiB for notes.
    fn default() -> Self {
        Self {
            workers: 0,
            data: true,
            digests: false,
            findings_max: 10_000,
            work_bytes_max: u64::MAX,
            memory_bytes: 8 << 20,
            gaps_in: Vec::new(),
        }
    }
}

/// Describes how far a check has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CheckProgress {
    /// Inodes checked.
    pub inodes: u64,
    /// Inodes in all, as the superblock says.
    pub inodes_total: u64,
    /// Bytes of data decoded or read.
    pub data_bytes: u64,
    /// Bytes of data in all; 0 until all inodes are checked.
    pub data_bytes_total: u64,
}

/// Describes who wants to know how far a check has come.
pub trait CheckObserver: Sync {
    /// Called from any worker, many times a second.
    fn progress(&self, progress: CheckProgress);
}

/// Nobody.
impl CheckObserver for () {
    fn progress(&self, _: CheckProgress) {}
}

/// Holds what a check found.
#[derive(Debug)]
#[non_exhaustive]
pub struct CheckReport {
    /// By place; at most [`CheckOptions::findings_max`].
    pub findings: Vec<Finding>,
    /// Findings beyond those.
    pub findings_omitted: u64,
    /// The severity of the worst of all findings, omitted ones included.
    pub worst: Option<Severity>,
    /// Tells whether the caller ended the check.
    pub cancelled: bool,
    /// Inodes checked.
    pub inodes: u64,
    /// Extents found, holes not counted.
    pub extents: u64,
    /// Bytes of data decoded or read; what files share counts once.
    pub data_bytes: u64,
    /// Bytes in blocks of the primary device that nothing refers to.
    pub unreachable_bytes: u64,
    /// Ranges of bytes of the primary device that nothing refers to, as far as [`CheckOptions::gaps_in`] asks for them, and the
    /// check found no fault. The last block of plain or encoded data counts as used to its end.
    pub gaps: Vec<Range<u64>>,
}

impl CheckReport {
    /// Returns whether nothing worse than a note was found, and the check was not ended early.
    pub fn is_clean(&self) -> bool {
        !self.cancelled && self.worst.is_none_or(|worst| worst == Severity::Note)
    }
}

/// Bytes that nothing refers to.
#[derive(Debug, Default)]
pub(super) struct Unused {
    /// Bytes in blocks of which no byte is used.
    pub(super) block_bytes: u64,
    /// Ranges of bytes, as far as they were asked for.
    pub(super) gaps: Vec<Range<u64>>,
}
