//! From a device to a mounted log: the newest checkpoint, and the groups behind it.

#![deny(clippy::indexing_slicing)]

use std::sync::Arc;

use anteros_core::{FsError, FsResult, WritableDevice};

use crate::compress::policy::Policy;
use crate::durable::Groups;
use crate::durable::recover::replay::Replay;
use crate::error::LogError;
use crate::layout::checkpoint::Checkpoint;
use crate::layout::superblock::INCOMPAT_PACKED;
use crate::layout::table::SitEntry;
use crate::layout::{Corrupt, Superblock};
use crate::nodes::Nodes;
use crate::nodes::nat::Nat;
use crate::options::Options;
use crate::state::State;
use crate::store::packs::{newest_checkpoint, segment_table};
use crate::store::segments::Segments;
use crate::store::slots::Slots;
use crate::store::space::Space;
use crate::store::superblock::{agree, read_superblock};
use crate::store::table::{CopiedTable, SIT_JOURNAL_MAX, SegmentTable};
use crate::store::{Parts, Store};

mod chain;
mod damaged;
mod heads;
mod replay;

pub(crate) use chain::{Group, groups};
pub(crate) use damaged::{Patient, as_is, open_to_repair};

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

/// Why a log cannot be opened.
enum OpenError {
    /// It cannot be read.
    Read(LogError),
    /// It could be read, but not written to.
    Begin(LogError),
}

impl<E: Into<LogError>> From<E> for OpenError {
    fn from(error: E) -> Self {
        Self::Read(error.into())
    }
}

/// Opens a log, and replays what is newer than its checkpoint.
pub(crate) fn open(
    device: Arc<dyn WritableDevice>,
    options: Options,
) -> Result<(State, Recovery), LogError> {
    open_either(device, options).map_err(|error| match error {
        OpenError::Read(error) | OpenError::Begin(error) => error,
    })
}

/// As [`open`]; but a log that can be read, and not be written to as the device is full or fails, is opened for reading alone, and
/// complains of it.
pub(crate) fn open_as_possible(
    device: Arc<dyn WritableDevice>,
    options: Options,
) -> Result<(State, Recovery), LogError> {
    let read_only = options.clone().reading();
    let error = match open_either(device.clone(), options) {
        Ok(opened) => return Ok(opened),
        Err(OpenError::Read(error)) => return Err(error),
        Err(OpenError::Begin(error)) => error,
    };
    let is_of_device = matches!(
        error,
        LogError::Device(_) | LogError::Fs(FsError::NoSpace | FsError::Io(_))
    );
    if !is_of_device {
        return Err(error);
    }
    let Ok((mut state, recovery)) = open(device, read_only) else {
        return Err(error);
    };
    let why = match &error {
        LogError::Fs(FsError::NoSpace) => "the file system that it lies on is full".into(),
        error => error.to_string(),
    };
    let text = format!("read-only, as it cannot be written to: {why}");
    state.store.complain(text);
    Ok((state, recovery))
}

fn open_either(
    device: Arc<dyn WritableDevice>,
    options: Options,
) -> Result<(State, Recovery), OpenError> {
    let superblock = read_superblock(&*device)?;
    if !options.read_only {
        superblock.check_writable()?;
    }
    let checkpoint = newest_checkpoint(&*device, &superblock)?;
    let entries = segment_table(&*device, &superblock, &checkpoint)?;
    let mut segments = Segments::new(&superblock, &entries, checkpoint.serial);
    segments.open_heads(&checkpoint.heads, &checkpoint.summaries)?;
    for (segment, owners) in &checkpoint.rewritten {
        segments.rewrite(*segment, owners.clone());
    }
    if segments.valid() != checkpoint.used_blocks {
        return Err(Corrupt::Count {
            what: "valid blocks",
            stated: checkpoint.used_blocks,
            counted: segments.valid(),
        }
        .into());
    }
    let mut state = state_of(device, superblock, &checkpoint, segments, options)?;
    if !state.store.options().read_only {
        state.store.slots().check_readable()?;
    }
    let mut recovery = Recovery {
        was_clean: checkpoint.clean,
        ..Recovery::default()
    };
    let mut replay = Replay::default();
    // What is deleted gives its room back at the end alone.
    let most = 4 * state.store.superblock().content_blocks();
    state.store.space_mut().stretch(most);
    replay.run(&mut state, &checkpoint, &mut recovery)?;
    state.store.space_mut().relax();
    if !state.store.options().read_only {
        if let Err(error) = begin(&mut state, &replay, &entries) {
            return Err(OpenError::Begin(error));
        }
    }
    Ok((state, recovery))
}

/// Makes a log one to write to.
fn begin(state: &mut State, replay: &Replay, entries: &[SitEntry]) -> Result<(), LogError> {
    let State { store, nodes, .. } = &mut *state;
    store.take_room(|| nodes.nat_mut().begin_backing())?;
    replay.go_on(state, entries)?;
    state.store.back_open()?;
    admit_packed(state)?;
    // Another version: a group that did not arrive whole will never be taken for one of ours.
    state.checkpoint(false)?;
    agree(&mut state.store)
}

/// Says in the superblock that content may be compressed, before any is.
fn admit_packed(state: &mut State) -> Result<(), LogError> {
    let store = &mut state.store;
    let is_admitted = store.superblock().incompat & INCOMPAT_PACKED != 0;
    match store.options().policy == Policy::None || is_admitted {
        true => Ok(()),
        false => store.admit(INCOMPAT_PACKED),
    }
}

/// Builds the state of a checkpoint with these segments.
fn state_of(
    device: Arc<dyn WritableDevice>,
    superblock: Superblock,
    checkpoint: &Checkpoint,
    segments: Segments,
    options: Options,
) -> FsResult<State> {
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
        slots: Slots::load(
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
    let nodes = Nodes::new(nat, checkpoint.inodes);
    let groups = Groups::new(checkpoint.next_sequence);
    Ok(State::new(store, nodes, groups))
}
