//! Records of what is read from and written to a mount, and what they say; access profiles.
//!
//! ```text
//! requests ──▶ Recorder: queue ──▶ thread: names, blocks ──▶ file
//!     file ──▶ read: blocks, checked ──▶ Analysis ──▶ Report ──▶ figure
//! ```
//!
//! A record is compact: some twenty bytes for each access. `docs/trace.md` describes every one of them. Whoever
//! records is not held up: what comes faster than it can be written is dropped, and the record says how much. Whoever
//! reads a record trusts nothing in it: lengths, sums, numbers and names are checked, and an [`Error`] says where
//! something is wrong.
//!
//! - `record`: bytes of a record to items and back.
//! - `recorder`: the thread that writes one.
//! - `analysis`: the characteristics that section 3.1 of the bFUSE paper (Jeong and Won, IJES 2014) is about.
//! - `figure`: they as a drawing.
//! - [`profile`]: which parts of which files are read, as text.
//! - `resident`: which pages of a file are in memory; needs `unsafe`.

mod analysis;
mod figure;
pub mod profile;
mod record;
mod recorder;
mod report;
#[allow(unsafe_code)]
mod resident;

use std::time::Duration;

pub use analysis::Analysis;
pub use figure::{escape, figure};
pub use record::{Ending, Error, Fault, Header, Item, MAGIC, read};
pub use recorder::{Counts, Names, Recorder};
pub use report::{
    CLASS_NAMES, CLASSES, Class, FileReport, Flow, Latencies, ProcessReport, Report, Syncs, Tally,
    Usage, top,
};
pub use resident::resident;

/// Tells what was asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Operation {
    /// Content of a file.
    Read,
    /// Content for a file.
    Write,
    /// A promise that content is on the device.
    Fsync,
}

/// Bits that tell how a file was opened. They are the same on all machines, which those of `open(2)` are not.
pub mod mode {
    /// With `O_SYNC` or `O_DSYNC`.
    pub const SYNC: u32 = 1;
    /// With `O_DIRECT`.
    pub const DIRECT: u32 = 2;
}

/// One request that was answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Access {
    /// Tells when it came, since the record was begun.
    pub at: Duration,
    /// Tells how long the answer took.
    pub took: Duration,
    /// Holds what was asked for.
    pub operation: Operation,
    /// Tells which file: its inode for the [`Recorder`], the number that the record gives it for who reads that.
    pub file: u64,
    /// Names who asked; 0 for the kernel.
    pub pid: u32,
    /// The first byte.
    pub offset: u64,
    /// Tells how many bytes were asked for.
    pub len: u64,
    /// Tells how the file was opened, in the bits of [`mode`].
    pub modes: u32,
    /// The error number that it was answered with, or 0.
    pub error: u32,
}
