//! Tables on the device of which there are two copies.
//!
//! A block of such a table is never written over: the new one goes to its other copy, and the next checkpoint says by a
//! bit which copy counts. Entries that changed lately are in a journal of the checkpoint, until that is too long.

use std::collections::BTreeSet;

use crate::layout::bits::Bits;

/// The same of the segment table.
pub(crate) const SIT_JOURNAL_MAX: usize = 96;

/// State of a table as a checkpoint records it.
pub(crate) struct Stated<Newer> {
    /// Valid copy of each block of the table.
    pub(crate) bits: Bits,
    /// Entries that are newer.
    pub(crate) journal: Vec<Newer>,
    /// Blocks of it that were written.
    pub(crate) written: u64,
}

/// The segment table on the device.
pub(crate) struct Tables {
    pub(crate) sit_bits: Bits,
    /// Segments whose entries the table does not have.
    pub(crate) newer: BTreeSet<u32>,
    /// With more of them than this, they go there.
    pub(crate) journal_max: usize,
}
