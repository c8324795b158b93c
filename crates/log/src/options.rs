//! Options of a mount.

use std::time::Duration;

use anteros_core::Timestamp;

use crate::compress::codec::Codec;
use crate::compress::policy::Policy;

/// Tells which of the data and the records of a group goes first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Order {
    /// Neither: both leave together, and checksums tell whether all of it arrived. One flush.
    #[default]
    Together,
    /// The data, and a flush, before the records name it (FPC, 3.2.3). Two flushes.
    DataFirst,
}

/// Tells where content goes (F2FS, FAST'15, 2.6).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Mode {
    /// To free segments, and where these are dear, to the holes of others.
    #[default]
    Adaptive,
    /// To free segments alone: what is written follows each other on the device.
    Lfs,
    /// To holes wherever there are any.
    Threaded,
}

impl Mode {
    /// All of them, with the names they are asked for by.
    pub const ALL: [(&'static str, Self); 3] = [
        ("adaptive", Self::Adaptive),
        ("lfs", Self::Lfs),
        ("threaded", Self::Threaded),
    ];

    /// The one with this name.
    pub fn named(name: &str) -> Option<Self> {
        let found = Self::ALL.iter().find(|(known, _)| *known == name);
        found.map(|(_, mode)| *mode)
    }
}

/// Describes how a log is mounted.
#[derive(Debug, Clone)]
pub struct Options {
    /// Bytes of memory for content that is not yet written, nodes and directories.
    pub memory_bytes: usize,
    /// Nothing is written, not even a checkpoint after a crash.
    pub read_only: bool,
    /// See [`Order`].
    pub order: Order,
    /// Holds what is compressed, and how.
    pub policy: Policy,
    /// Tells whether files of which neither name nor content says what they are are compressed by how they are used.
    pub learns: bool,
    /// By what, as it is written.
    pub codec: Codec,
    /// By what, in the background.
    pub background_codec: Codec,
    /// Tells whether files can be written to atomically.
    pub atomic_writes: bool,
    /// Bytes of packed blocks that are kept which were read before anyone asked; see [`Log::prefetch`](crate::Log::prefetch).
    pub prefetch_bytes: usize,
    /// See [`Mode`].
    pub mode: Mode,
    /// Tells how long changes may wait for a checkpoint.
    pub checkpoint_interval: Duration,
    /// Tells whether a thread of its own takes content to the device while others go on. Else whoever made it necessary
    /// does.
    pub writes_behind: bool,
    /// All that is clean leaves memory after each operation. For tests: what was not marked as changed is lost then.
    #[doc(hidden)]
    pub evicts_always: bool,
    /// The time of day.
    pub clock: fn() -> Timestamp,
}

impl Options {
    /// Turns them into options for reading alone.
    pub(crate) fn reading(self) -> Self {
        Self {
            read_only: true,
            ..self
        }
    }

    /// As one mounts that is told nothing, with this clock.
    pub fn new(clock: fn() -> Timestamp) -> Self {
        Self {
            memory_bytes: 32 << 20,
            read_only: false,
            order: Order::default(),
            policy: Policy::default(),
            learns: false,
            codec: Codec::default(),
            background_codec: Codec::default(),
            atomic_writes: true,
            prefetch_bytes: 4 << 20,
            mode: Mode::default(),
            checkpoint_interval: Duration::from_secs(60),
            writes_behind: false,
            evicts_always: false,
            clock,
        }
    }
}
