//! From a device to a mounted log: the newest checkpoint, and the groups behind it.
//!
//! Invariant L4 of `docs/design/log.md`: a crash while a mount recovers changes nothing.

#![deny(clippy::indexing_slicing)]

use std::sync::Arc;

use anteros_core::{FsError, WritableDevice};

use crate::compress::policy::Policy;
use crate::durable::Durable;
use crate::durable::recover::roll_forward::RollForward;
use crate::durable::recover::state::state_of;
use crate::error::LogError;
use crate::layout::Corrupt;
use crate::layout::superblock::{
    INCOMPAT_CHECKSUMS, INCOMPAT_LONG_CHUNKS, INCOMPAT_PACKED, INCOMPAT_PACKED_INODES,
};
use crate::layout::table::SitEntry;
use crate::options::Options;
use crate::store::packs::{newest_checkpoint, segment_table};
use crate::store::segments::Segments;
use crate::store::superblock::{agree, read_superblock};

mod chain;
mod damaged;
mod heads;
mod roll_forward;
mod state;

pub(crate) use chain::{Group, groups};
pub(crate) use damaged::{Patient, as_is, open_to_repair};
pub use state::Recovery;

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
) -> Result<(Durable, Recovery), LogError> {
    open_either(device, options).map_err(|error| match error {
        OpenError::Read(error) | OpenError::Begin(error) => error,
    })
}

/// As [`open`]; but a log that can be read, and not be written to as the device is full or fails, is opened for reading alone, and
/// complains of it.
pub(crate) fn open_as_possible(
    device: Arc<dyn WritableDevice>,
    options: Options,
) -> Result<(Durable, Recovery), LogError> {
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
    state.store.warn(text);
    Ok((state, recovery))
}

fn open_either(
    device: Arc<dyn WritableDevice>,
    options: Options,
) -> Result<(Durable, Recovery), OpenError> {
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
        state.store.bst().check_readable()?;
    }
    let mut recovery = Recovery {
        was_clean: checkpoint.clean,
        ..Recovery::default()
    };
    let mut roll_forward = RollForward::default();
    // What is deleted gives its room back at the end alone.
    let most = 4 * state.store.superblock().content_blocks();
    state.store.space_mut().stretch(most);
    roll_forward.run(&mut state, &checkpoint, &mut recovery)?;
    state.store.space_mut().relax();
    if !state.store.options().read_only {
        if let Err(error) = begin(&mut state, &roll_forward, &entries) {
            return Err(OpenError::Begin(error));
        }
    }
    Ok((state, recovery))
}

/// Makes a log one to write to.
fn begin(
    state: &mut Durable,
    roll_forward: &RollForward,
    entries: &[SitEntry],
) -> Result<(), LogError> {
    state.take_room()?;
    roll_forward.go_on(state, entries)?;
    state.store.back_open()?;
    admit_features(state)?;
    // Another version: a group that did not arrive whole will never be taken for one of ours.
    state.checkpoint(false)?;
    agree(&mut state.store)
}

/// Says in the superblock that pointers may have checksums, and content and inodes may be compressed, before any has or is.
fn admit_features(state: &mut Durable) -> Result<(), LogError> {
    let store = &mut state.store;
    let wanted = match store.options().policy {
        Policy::None => INCOMPAT_CHECKSUMS,
        Policy::Comp | Policy::FpcN => INCOMPAT_CHECKSUMS | INCOMPAT_PACKED,
        Policy::Paper => INCOMPAT_CHECKSUMS | INCOMPAT_PACKED | INCOMPAT_PACKED_INODES,
        Policy::Record | Policy::Force => {
            INCOMPAT_CHECKSUMS | INCOMPAT_PACKED | INCOMPAT_PACKED_INODES | INCOMPAT_LONG_CHUNKS
        }
    };
    match store.superblock().incompat & wanted == wanted {
        true => Ok(()),
        false => store.admit(|superblock| superblock.incompat |= wanted),
    }
}
