//! Power cut everywhere: records what is written to a device, and makes each state in which the device may be found
//! when the power fails.
//!
//! ```text
//! Recorder ── a workload runs on it ──▶ Recording ── Plan ──▶ State ── device() ──▶ what recovery is tried on
//!                                            ▲                  │
//!                                            └──── state(id) ◀──┘  a failure is replayed by its id
//! ```
//!
//! The disk that is assumed: what was written before a flush is there when the flush has returned. Of the *open epoch*,
//! all that came after the last flush, any part may be there, in any order; of a single write, any part of its sectors.
//! A discard is a write of zeros that may be lost like any other.
//!
//! An oracle must know what was promised. [`Recorder::mark`] notes it ("fsync of f has returned") between the writes, and
//! [`State::marks`] gives the notes made before the power failed. Two states with the same bytes and different notes are
//! two states.
//!
//! A state costs what its open epoch has written: images are chunks that are shared until they are changed.

mod explore;
mod id;
mod image;
mod plan;
mod recorder;

pub use explore::{Explored, Failure};
pub use id::{BadStateId, Sectors, StateId};
pub use image::StateDevice;
pub use plan::{Plan, States};
pub use recorder::{Mark, Operation, Recorder, Recording, State};

/// States what a disk writes as a whole, or not at all.
pub const SECTOR_BYTES: u64 = 512;
