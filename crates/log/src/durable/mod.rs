//! Durability: what survives a crash, and how a mount finds it again.
//!
//! This floor is asked to make changes durable: an fsync writes a group of records ([`commit`]), a checkpoint writes
//! everything and says which places count ([`checkpoint`]). A mount reads the newest checkpoint and replays the groups
//! behind it ([`recover`]); the summaries of segments say whose a block is ([`owners`]). It uses `files` and what lies
//! below.

pub(crate) mod checkpoint;
pub(crate) mod commit;
pub(crate) mod owners;
pub(crate) mod recover;

use anteros_core::Timestamp;

use crate::files::Files;

/// State of a mounted log that survives a crash: its groups and checkpoints, and the files of which they are.
pub(crate) struct Durable {
    pub(crate) files: Files,
    pub(crate) groups: Groups,
}

stands_on!(Durable { files: Files });

impl Durable {
    /// Files of which nothing is newer than the checkpoint, whose next group has this number.
    pub(crate) fn new(files: Files, next_sequence: u64) -> Self {
        Self {
            files,
            groups: Groups::new(next_sequence),
        }
    }
}

/// Groups and checkpoints of a mounted log.
pub(crate) struct Groups {
    /// The next group.
    sequence: u64,
    /// All groups below are on the device for sure.
    durable: u64,
    /// The first group behind the checkpoint.
    checkpointed: u64,
    /// Time of the checkpoint.
    checkpoint_time: Timestamp,
}

impl Groups {
    /// Nothing is newer than the checkpoint, whose next group has this number.
    fn new(sequence: u64) -> Self {
        Self {
            sequence,
            durable: sequence,
            checkpointed: sequence,
            checkpoint_time: Timestamp::default(),
        }
    }

    /// Number of the next group.
    pub(crate) fn sequence(&self) -> u64 {
        self.sequence
    }

    /// Returns whether a group is on the device for sure.
    pub(crate) fn has(&self, sequence: u64) -> bool {
        self.durable > sequence
    }

    /// Notes that all groups below one are on the device.
    pub(crate) fn reached(&mut self, sequence: u64) {
        self.durable = self.durable.max(sequence);
    }

    /// Time of the checkpoint.
    pub(crate) fn checkpoint_time(&self) -> Timestamp {
        self.checkpoint_time
    }
}
