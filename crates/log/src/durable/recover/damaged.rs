//! Logs that are opened although something is wrong with them: to be shown as they are, or to be repaired.

#![deny(clippy::indexing_slicing)]

use std::sync::Arc;

use anteros_core::{FsError, FsResult, WritableDevice};

use crate::durable::Durable;
use crate::durable::recover::roll_forward::RollForward;
use crate::durable::recover::state::{Recovery, state_of};
use crate::error::LogError;
use crate::layout::checkpoint::Checkpoint;
use crate::layout::table::{SIT_PER_BLOCK, SitEntry};
use crate::layout::{Corrupt, Superblock};
use crate::options::Options;
use crate::store::packs::{RawTable, newest_checkpoint, newest_pack, raw_segment_table};
use crate::store::segments::Segments;
use crate::store::space::Space;
use crate::store::superblock::read_superblock;

/// Versions that are not used again where an older checkpoint has to do; even, so that the damaged pack is the next.
const VERSIONS_LEFT_OUT: u64 = 1 << 20;

/// Builds the read-only state of a checkpoint, whatever is wrong with its segments, without the groups behind it.
pub(crate) fn as_is(
    device: Arc<dyn WritableDevice>,
    superblock: &Superblock,
    checkpoint: &Checkpoint,
    options: Options,
) -> FsResult<Durable> {
    let mut entries = raw_segment_table(&*device, superblock, checkpoint).entries;
    entries.iter_mut().for_each(SitEntry::make_sane);
    let segments = Segments::new(superblock, &entries, checkpoint.serial);
    state_of(
        device,
        superblock.clone(),
        checkpoint,
        segments,
        options.reading(),
    )
}

/// A log that is to be repaired.
pub(crate) struct Patient {
    pub(crate) state: Durable,
    pub(crate) checkpoint: Checkpoint,
    pub(crate) recovery: Recovery,
    /// Faults of the segment table, which are repaired in memory.
    pub(crate) faults: Vec<Corrupt>,
}

/// Opens a log that is to be repaired, the groups behind its checkpoint included; nothing is written yet. All segments
/// that were open count as filled. With `goes_back`, the checkpoint may be one that is out of date.
pub(crate) fn open_to_repair(
    device: Arc<dyn WritableDevice>,
    options: Options,
    goes_back: bool,
) -> Result<Patient, LogError> {
    let superblock = read_superblock(&*device)?;
    let checkpoint = match goes_back {
        true => newest_pack(&*device, &superblock)?.0,
        false => newest_checkpoint(&*device, &superblock)?,
    };
    let RawTable {
        mut entries,
        unreadable,
    } = raw_segment_table(&*device, &superblock, &checkpoint);
    let (mut faults, mut corrected) = (Vec::new(), Vec::new());
    let mut lost = Vec::new();
    for (index, error) in unreadable {
        lost.push(format!("segment table: {error}"));
        let first = index * SIT_PER_BLOCK;
        corrected.extend(first..superblock.segments.min(first + SIT_PER_BLOCK));
    }
    for (segment, entry) in (0..).zip(&mut entries) {
        if let Err(fault) = entry.check(segment) {
            entry.make_sane();
            faults.push(fault);
            corrected.push(segment);
        }
    }
    let mut segments = Segments::new(&superblock, &entries, checkpoint.serial);
    for segment in corrected {
        segments.note_changed(segment);
    }
    if segments.valid() != checkpoint.used_blocks {
        let counted = segments.valid();
        faults.push(Corrupt::Count {
            what: "valid blocks",
            stated: checkpoint.used_blocks,
            counted,
        });
    }
    let as_stated = Segments::new(&superblock, &entries, checkpoint.serial)
        .open_heads(&checkpoint.heads, &checkpoint.summaries);
    faults.extend(as_stated.err());
    for head in &checkpoint.heads {
        segments.keep(head.segment);
        head.next_segment
            .into_iter()
            .for_each(|next| segments.keep(next));
    }
    let mut state = state_of(device, superblock, &checkpoint, segments, options.reading())?;
    // What is really used is counted later.
    let room = state.store.superblock().content_blocks();
    let space = Space::new(room, 0, checkpoint.reserved_blocks);
    state.store.recount_space(space);
    let mut recovery = Recovery {
        was_clean: checkpoint.clean,
        ..Recovery::default()
    };
    lost.extend(
        state
            .store
            .bst()
            .check_readable()
            .err()
            .map(|error| error.to_string()),
    );
    if !lost.is_empty() {
        // What replaces a block that cannot be read lies elsewhere.
        state.store.keep_no_journal();
    }
    match RollForward::default().run(&mut state, &checkpoint, &mut recovery) {
        Err(LogError::Fs(error @ FsError::Io(_))) => {
            lost.push(format!("records behind the checkpoint: {error}"));
        }
        done => done?,
    }
    lost.into_iter().for_each(|text| state.store.warn(text));
    if checkpoint.superseded {
        // Of versions that there were, there may be groups: none must be taken for one that is still to come.
        let version = state.store.version() + VERSIONS_LEFT_OUT;
        state.store.set_version(version);
    }
    Ok(Patient {
        state,
        checkpoint,
        recovery,
        faults,
    })
}
