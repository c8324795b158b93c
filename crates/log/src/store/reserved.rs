//! Room of the device that is reserved.

use std::collections::BTreeSet;

/// The room of the device that is reserved.
#[derive(Debug, Default)]
pub(crate) struct Room {
    /// Tells whether there is anything to reserve.
    pub(super) is_active: bool,
    /// Tells whether the device had no more when it was asked last.
    pub(super) is_full: bool,
    /// Blocks of the segment table and of the block state table with both their copies.
    pub(super) segment_table: BTreeSet<u32>,
    pub(super) slot_table: BTreeSet<u32>,
    /// Segments that heads filled when the log was opened.
    pub(super) heads: BTreeSet<u32>,
}
