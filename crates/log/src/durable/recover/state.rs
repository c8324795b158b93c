//! State of a log as a checkpoint has it.

#![deny(clippy::indexing_slicing)]

use std::sync::Arc;

use anteros_core::{FsResult, WritableDevice};

use crate::durable::Durable;
use crate::files::Files;
use crate::layout::Superblock;
use crate::layout::checkpoint::Checkpoint;
use crate::nodes::Nodes;
use crate::nodes::nat::Nat;
use crate::options::Options;
use crate::packing::Packer;
use crate::store::bst::BlockStateTable;
use crate::store::segments::Segments;
use crate::store::space::Space;
use crate::store::table::{CopiedTable, SIT_JOURNAL_MAX, SegmentTable};
use crate::store::{Parts, Store};

/// Result of recovery when a log is opened.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Recovery {
    /// Tells whether it had been unmounted.
    pub was_clean: bool,
    /// Groups behind the checkpoint that were replayed.
    pub groups: u64,
    /// Tells whether an incomplete group was found. No fsync had returned for it.
    pub dropped: bool,
}

/// Builds the state of a checkpoint with these segments.
pub(super) fn state_of(
    device: Arc<dyn WritableDevice>,
    superblock: Superblock,
    checkpoint: &Checkpoint,
    segments: Segments,
    options: Options,
) -> FsResult<Durable> {
    let used = segments.valid() + checkpoint.reserved_blocks;
    let nat = Nat::new(
        device.clone(),
        &superblock,
        checkpoint.nat_bits.clone(),
        checkpoint.nat_journal.iter().copied(),
        checkpoint.next_nid,
        checkpoint.nodes,
    );
    let store = Store::new(Parts {
        bst: BlockStateTable::load(
            device.clone(),
            &superblock,
            checkpoint.bst_bits.clone(),
            &checkpoint.bst_journal,
            segments.packed(),
        )?,
        space: Space::new(superblock.capacity(), used, checkpoint.reserved_blocks),
        sit: SegmentTable {
            table: CopiedTable::new(
                superblock.sit_start,
                superblock.sit_blocks,
                checkpoint.sit_bits.clone(),
            ),
            newer: checkpoint
                .sit_journal
                .iter()
                .map(|(segment, _)| *segment)
                .collect(),
            journal_max: SIT_JOURNAL_MAX,
        },
        device,
        superblock,
        options,
        segments,
        version: checkpoint.version,
    });
    let nodes = Nodes::new(store, nat, checkpoint.inodes);
    let mut files = Files::new(Packer::new(nodes));
    files.set_record_ino(checkpoint.record_ino);
    Ok(Durable::new(files, checkpoint.next_sequence))
}
