//! Writers at the same time.
//!
//! Answering a write before it is written below lets the writer go on meanwhile, on another processor. Where each of them has a
//! writer of its own, nobody is idle who could, and all that comes of it is that content leaves the caches before it is copied.

use std::sync::Mutex;
use std::thread::available_parallelism;
use std::time::{Duration, Instant};

use crate::lock::lock;

/// States how long somebody counts who has written.
const RECENT: Duration = Duration::from_millis(5);

/// Those who have written of late.
pub(crate) struct Crowd {
    /// As many as that take all processors.
    processors: usize,
    writers: Mutex<Vec<(u32, Instant)>>,
}

impl Crowd {
    /// On this machine. One writer is no crowd, even where there is but one processor.
    pub(crate) fn new() -> Self {
        Self::of(available_parallelism().map_or(2, usize::from).max(2))
    }

    fn of(processors: usize) -> Self {
        Self {
            processors,
            writers: Mutex::default(),
        }
    }

    /// Notes that a process writes now, and says whether there are as many as processors.
    pub(crate) fn is_joined_by(&self, writer: u32, now: Instant) -> bool {
        let mut writers = lock(&self.writers);
        writers.retain(|(who, at)| *who != writer && now.saturating_duration_since(*at) < RECENT);
        writers.push((writer, now));
        writers.len() >= self.processors
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_crowd_is_of_as_many_writers_as_processors() {
        let (crowd, start) = (Crowd::of(2), Instant::now());
        let joins =
            |writer, millis| crowd.is_joined_by(writer, start + Duration::from_millis(millis));
        assert!(!joins(7, 0));
        assert!(!joins(7, 1));
        assert!(joins(8, 2));
        assert!(joins(7, 6));
        // The other one has not written since.
        assert!(!joins(7, 7));
        assert!(!joins(9, 20));
    }
}
