//! Speed of a device, as flushes show it.

#![deny(clippy::indexing_slicing)]

use std::io;
use std::time::{Duration, Instant};

/// Bytes that must have been written since the flush before: of fewer, the time says nothing.
const BYTES_MIN: u64 = 1 << 20;

/// Bytes in a second below which a device is slow: so many can be compressed in that time.
const SLOW: f64 = 500e6;

/// Tells whether a device is slow, by its last flush of much.
#[derive(Debug, Default)]
pub(super) struct Speed {
    /// Bytes that had been written before the last flush began.
    before: u64,
    is_slow: Option<bool>,
}

impl Speed {
    /// Flushes a device that has taken so many bytes since it was opened.
    pub(super) fn time(
        &mut self,
        taken: u64,
        flush: impl FnOnce() -> io::Result<()>,
    ) -> io::Result<()> {
        let begun = Instant::now();
        let flushed = flush();
        if flushed.is_ok() {
            self.note(taken, begun.elapsed());
        }
        flushed
    }

    fn note(&mut self, taken: u64, took: Duration) {
        let bytes = self.unflushed(taken);
        self.before = taken;
        if bytes >= BYTES_MIN {
            self.is_slow = Some(bytes as f64 / SLOW < took.as_secs_f64());
        }
    }

    /// Bytes of those that the device has taken that were not flushed.
    pub(super) fn unflushed(&self, taken: u64) -> u64 {
        taken.saturating_sub(self.before)
    }

    /// Tells whether the device is slow, if that is known.
    pub(super) fn is_slow(&self) -> Option<bool> {
        self.is_slow
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flushes_of_much_show_whether_a_device_is_slow() {
        let mut speed = Speed::default();
        speed.note(1000, Duration::from_secs(1));
        assert_eq!(speed.is_slow(), None);
        speed.note(10 << 20, Duration::from_millis(100));
        assert_eq!(speed.is_slow(), Some(true));
        speed.note(11 << 20, Duration::from_millis(1));
        assert_eq!(speed.is_slow(), Some(false));
        speed.note(11 << 20, Duration::from_secs(1));
        assert_eq!(speed.is_slow(), Some(false));
    }
}
