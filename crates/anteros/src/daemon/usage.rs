//! Usage of the machine by what a daemon does while nobody uses a log.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use anteros_core::processor_time;
use anteros_log::Compacted;

const BLOCK: u64 = 4096;

/// Usage by some work.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Usage {
    /// Bytes of content that were read.
    pub read: u64,
    /// Bytes of content that were written.
    pub written: u64,
    /// Time of processors.
    pub processor: Duration,
}

impl Usage {
    /// Usage by a sweep that began when its thread had had a processor for so long.
    pub fn of(done: &Compacted, begun: Duration) -> Self {
        Self {
            read: done.seen * BLOCK,
            written: done.bytes,
            processor: done.processor + processor_time().saturating_sub(begun),
        }
    }

    /// Both together.
    pub fn with(self, more: Self) -> Self {
        Self {
            read: self.read + more.read,
            written: self.written + more.written,
            processor: self.processor + more.processor,
        }
    }
}

/// Counts since the mount.
#[derive(Debug, Default)]
pub struct IdleCounts {
    read_bytes: AtomicU64,
    written_bytes: AtomicU64,
    processor_nanos: AtomicU64,
    interruptions: AtomicU64,
}

impl IdleCounts {
    /// The counts, with their names.
    pub fn counters(&self) -> [(&'static str, f64); 4] {
        let value = |count: &AtomicU64| count.load(Ordering::Relaxed) as f64;
        let seconds = value(&self.processor_nanos) / 1e9;
        [
            ("log_idle_read_bytes", value(&self.read_bytes)),
            ("log_idle_written_bytes", value(&self.written_bytes)),
            ("log_idle_processor_seconds", seconds),
            ("log_idle_interruptions", value(&self.interruptions)),
        ]
    }

    /// Adds what was used.
    pub fn add(&self, used: Usage) {
        let nanos = u64::try_from(used.processor.as_nanos()).unwrap_or(u64::MAX);
        for (count, more) in [
            (&self.read_bytes, used.read),
            (&self.written_bytes, used.written),
            (&self.processor_nanos, nanos),
        ] {
            count.fetch_add(more, Ordering::Relaxed);
        }
    }

    /// Notes that somebody came.
    pub fn interrupted(&self) {
        self.interruptions.fetch_add(1, Ordering::Relaxed);
    }
}
