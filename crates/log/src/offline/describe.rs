//! Use of a log, for whoever wants to see it: segment by segment.

use std::sync::Arc;

use anteros_core::WritableDevice;

use crate::durable::Durable;
use crate::durable::recover::{self, Recovery};
use crate::error::LogError;
use crate::layout::checkpoint::HeadKind;
use crate::layout::{SEGMENT_CONTENT, Superblock};
use crate::mount::log::Log;
use crate::options::Options;
use crate::store::segments::Use;

/// Classes of a [`Layout::histogram`].
pub const TENTHS: usize = 10;

/// Describes how the blocks and the segments of a log are used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Layout {
    /// Holds what it is.
    pub superblock: Superblock,
    /// The last checkpoint.
    pub version: u64,
    /// Blocks that users may fill.
    pub capacity_blocks: u64,
    /// Blocks that are spoken for, the preallocated ones included.
    pub used_blocks: u64,
    /// Blocks that are preallocated and hold nothing yet.
    pub preallocated_blocks: u64,
    /// Inodes.
    pub inodes: u32,
    /// Nodes, inodes included.
    pub nodes: u32,
    /// Packed blocks of which something is valid.
    pub packed_blocks: u64,
    /// Their valid slots.
    pub packed_slots: u64,
    /// All segments of the main area.
    pub segments: Vec<SegmentState>,
}

/// Holds what a segment is used for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SegmentState {
    /// The head that filled it, or fills it; of a free one the last that did.
    pub kind: HeadKind,
    /// Tells whether anything in it counts.
    pub state: Use,
    /// Tells how many of its 511 blocks are valid.
    pub valid: u16,
}

impl Use {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Free, Self::Open, Self::Full, Self::Prefree];

    /// In a word.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Free => "free",
            Self::Open => "open",
            Self::Full => "full",
            Self::Prefree => "prefree",
        }
    }
}

impl SegmentState {
    /// The share of its blocks that are valid, from 0 to 1.
    pub fn share(&self) -> f64 {
        f64::from(self.valid) / f64::from(SEGMENT_CONTENT)
    }

    /// As one number, for who sends many of them.
    pub fn to_bits(self) -> u16 {
        u16::from(self.kind.to_raw()) << 11 | (self.state as u16) << 9 | self.valid & 0x1ff
    }

    /// Returns what [`to_bits`](Self::to_bits) gave; `None` for other numbers.
    pub fn from_bits(bits: u16) -> Option<Self> {
        Some(Self {
            kind: HeadKind::from_raw((bits >> 11) as u8)?,
            state: Use::ALL[usize::from(bits >> 9 & 3)],
            valid: bits & 0x1ff,
        })
    }
}

impl Layout {
    fn of(state: &Durable) -> Self {
        let segments = (0..state.store.segments().count()).map(|segment| {
            let found = state.store.segments().segment(segment);
            // The kind was checked when the table was read.
            let kind = HeadKind::from_raw(found.kind).unwrap_or(HeadKind::WarmData);
            SegmentState {
                kind,
                state: found.state,
                valid: found.valid,
            }
        });
        let (packed_blocks, packed_slots) = state.store.bst().occupancy();
        let mut layout = Self {
            packed_blocks,
            packed_slots,
            version: state.store.version(),
            capacity_blocks: state.store.space().capacity(),
            used_blocks: state.store.space().used(),
            preallocated_blocks: state.store.space().preallocated(),
            inodes: state.nodes.inode_count(),
            nodes: state.nodes.nat().used(),
            segments: segments.collect(),
            superblock: state.store.superblock().clone(),
        };
        for next in state
            .store
            .segments()
            .heads()
            .0
            .iter()
            .filter_map(|head| head.next_segment)
        {
            // Where the packed log goes on there is nothing yet.
            layout.segments[next as usize].kind = HeadKind::Packed;
        }
        layout
    }

    /// Segments of a kind in a state; of free ones nobody asks what they held.
    pub fn count(&self, kind: HeadKind, state: Use) -> u32 {
        let of_both = |segment: &&SegmentState| segment.kind == kind && segment.state == state;
        self.segments.iter().filter(of_both).count() as u32
    }

    /// Segments in a state.
    pub fn count_of(&self, state: Use) -> u32 {
        self.segments
            .iter()
            .filter(|segment| segment.state == state)
            .count() as u32
    }

    /// Valid blocks in segments of a kind.
    pub fn valid_blocks(&self, kind: HeadKind) -> u64 {
        self.segments
            .iter()
            .filter(|segment| segment.kind == kind)
            .map(|segment| u64::from(segment.valid))
            .sum()
    }

    /// Full segments by the share of their blocks that are valid: below a tenth, below two tenths, and so on.
    pub fn histogram(&self) -> [u32; TENTHS] {
        let mut counts = [0; TENTHS];
        for segment in self
            .segments
            .iter()
            .filter(|segment| segment.state == Use::Full)
        {
            let tenth = usize::from(segment.valid) * TENTHS / SEGMENT_CONTENT as usize;
            counts[tenth.min(TENTHS - 1)] += 1;
        }
        counts
    }
}

/// Returns how the log on a device is used, as a mount would find it, and what that would have to replay. Nothing is
/// changed.
///
/// # Errors
///
/// When there is no log that a mount could open.
pub fn describe(
    device: Arc<dyn WritableDevice>,
    options: Options,
) -> Result<(Layout, Recovery), LogError> {
    let (state, recovery) = recover::open(device, options.reading())?;
    Ok((Layout::of(&state), recovery))
}

impl Log {
    /// Returns how it is used at this moment.
    pub fn layout(&self) -> Layout {
        Layout::of(&self.lock())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_segment_comes_back_from_its_number() {
        for kind in HeadKind::ALL {
            for state in Use::ALL {
                for valid in [0, 1, 300, 511] {
                    let segment = SegmentState { kind, state, valid };
                    assert_eq!(SegmentState::from_bits(segment.to_bits()), Some(segment));
                }
            }
        }
        assert_eq!(SegmentState::from_bits(10 << 11), None);
    }
}
