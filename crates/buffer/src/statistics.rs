//! Counters of the layer.

use std::sync::atomic::{AtomicU64, Ordering};

/// Counts since the layer was made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Statistics {
    /// Writes that were asked for.
    pub writes_in: u64,
    /// Their bytes.
    pub bytes_in: u64,
    /// Writes that the file system below was asked for.
    pub writes_out: u64,
    /// Bytes it took.
    pub bytes_out: u64,
    /// Of the writes that were asked for, those that were not buffered.
    pub writes_through: u64,
    /// Flushes of an inode that had something buffered.
    pub flushes: Flushes,
    /// Times that a writer had to wait for memory.
    pub waits: u64,
    /// Bytes that are buffered or being written now.
    pub buffered_bytes: u64,
    /// The most there were.
    pub buffered_bytes_peak: u64,
    /// Memory for data now, with buffers that are kept for the next request.
    pub memory_bytes: u64,
    /// The most there was: never more than the limit.
    pub memory_bytes_peak: u64,
    /// Buffered writes that failed.
    pub errors: u64,
    /// Bytes that were given up because of that.
    pub bytes_lost: u64,
    /// Errors that no open file was told of, because the last one went first.
    pub errors_unreported: u64,
}

macro_rules! reasons {
    ($($(#[$doc:meta])* $reason:ident $field:ident,)*) => {
        /// Tells why something was flushed.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub(crate) enum Reason {
            $($(#[$doc])* $reason,)*
        }

        /// Flushes by what asked for them.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
        pub struct Flushes {
            $($(#[$doc])* pub $field: u64,)*
        }

        #[derive(Default)]
        struct FlushCounters {
            $($field: AtomicU64,)*
        }

        impl FlushCounters {
            fn of(&self, reason: Reason) -> &AtomicU64 {
                match reason {
                    $(Reason::$reason => &self.$field,)*
                }
            }

            fn snapshot(&self) -> Flushes {
                Flushes {
                    $($field: self.$field.load(Ordering::Relaxed),)*
                }
            }
        }
    };
}

reasons! {
    /// The interval was over.
    Interval interval,
    /// Much was buffered.
    Depth depth,
    /// A region was full.
    Full full,
    /// A writer found no memory.
    Room room,
    /// `fsync`.
    Sync sync,
    /// A descriptor was closed, or the last user of an open file had gone.
    Close close,
    /// Something read the data.
    Read read,
    /// Something asked for the attributes.
    Attributes attributes,
    /// Something other than a write changed the inode.
    Change change,
    /// A write that is not buffered.
    Through through,
    /// The layer was shut down.
    Shutdown shutdown,
}

#[derive(Default)]
pub(crate) struct Counters {
    pub(crate) writes_in: AtomicU64,
    pub(crate) bytes_in: AtomicU64,
    pub(crate) writes_out: AtomicU64,
    pub(crate) bytes_out: AtomicU64,
    pub(crate) writes_through: AtomicU64,
    pub(crate) waits: AtomicU64,
    pub(crate) errors: AtomicU64,
    pub(crate) bytes_lost: AtomicU64,
    pub(crate) errors_unreported: AtomicU64,
    buffered: AtomicU64,
    buffered_peak: AtomicU64,
    flushes: FlushCounters,
}

pub(crate) fn add(counter: &AtomicU64, by: u64) {
    counter.fetch_add(by, Ordering::Relaxed);
}

impl Counters {
    pub(crate) fn flushed(&self, reason: Reason) {
        add(self.flushes.of(reason), 1);
    }

    /// So many bytes more are buffered; says how many there are.
    pub(crate) fn buffer(&self, bytes: usize) {
        let bytes = bytes as u64;
        let now = self.buffered.fetch_add(bytes, Ordering::SeqCst) + bytes;
        self.buffered_peak.fetch_max(now, Ordering::Relaxed);
    }

    pub(crate) fn unbuffer(&self, bytes: usize) {
        self.buffered.fetch_sub(bytes as u64, Ordering::SeqCst);
    }

    pub(crate) fn buffered(&self) -> u64 {
        self.buffered.load(Ordering::SeqCst)
    }

    pub(crate) fn snapshot(&self, memory: (usize, usize)) -> Statistics {
        let of = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        Statistics {
            writes_in: of(&self.writes_in),
            bytes_in: of(&self.bytes_in),
            writes_out: of(&self.writes_out),
            bytes_out: of(&self.bytes_out),
            writes_through: of(&self.writes_through),
            flushes: self.flushes.snapshot(),
            waits: of(&self.waits),
            buffered_bytes: self.buffered(),
            buffered_bytes_peak: of(&self.buffered_peak),
            memory_bytes: memory.0 as u64,
            memory_bytes_peak: memory.1 as u64,
            errors: of(&self.errors),
            bytes_lost: of(&self.bytes_lost),
            errors_unreported: of(&self.errors_unreported),
        }
    }
}
