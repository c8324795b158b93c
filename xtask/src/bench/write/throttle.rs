//! A device that writes no faster than a phone's flash: the file below its loop device lies in a FUSE mount that
//! answers one request after the other, and none before the last one's bytes would have been written.
//!
//! The mount is our own library's and lives in this process, so that no other part of what is measured knows of it.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use anteros_fuse::{MountOptions, Operation, Session};
use anteros_passthru::HostFs;

use super::here::Here;
use crate::bench::place::Place;
use crate::outcome::Outcome;

/// States what the paper's device writes, in bytes per second.
pub(super) const PAPER_RATE: f64 = 40e6;

/// A mount of a directory that writes slowly, until dropped.
pub(super) struct Throttle {
    _served: Here,
    directory: PathBuf,
}

impl Throttle {
    /// Mounts.
    ///
    /// # Errors
    /// When the directory cannot be mirrored.
    pub(super) fn mount(place: &Place, source: &Path, rate: f64) -> Outcome<Self> {
        let directory = place.directory("throttle")?;
        let options = MountOptions {
            fs_name: "throttle".to_owned(),
            workers: 1,
            // The kernel would write by itself.
            passthrough: false,
            ..MountOptions::default()
        };
        let pace = Mutex::new(Pace::new(rate));
        let session = Session::mount(Arc::new(HostFs::new(source)?), &directory, &options)?
            .on_answer(move |answered| {
                if answered.operation == Operation::Write {
                    let due = pace
                        .lock()
                        .map(|mut pace| pace.due(answered.len, Instant::now()));
                    due.into_iter().for_each(sleep_until);
                }
            });
        Ok(Self {
            _served: Here::serve(session),
            directory,
        })
    }

    /// Returns where the files of the source are written slowly.
    pub(super) fn directory(&self) -> &Path {
        &self.directory
    }
}

/// Tells when what was written so far is done.
struct Pace {
    rate: f64,
    done: Instant,
}

impl Pace {
    fn new(rate: f64) -> Self {
        Self {
            rate,
            done: Instant::now(),
        }
    }

    /// Returns when some more bytes are done. Sleeping too long is made up for by the next ones, idling is not.
    fn due(&mut self, bytes: u64, now: Instant) -> Instant {
        let since = self.done.max(now - SLACK);
        self.done = since + Duration::from_secs_f64(bytes as f64 / self.rate);
        self.done
    }
}

/// States how much too long a sleep may be and still be made up for.
const SLACK: Duration = Duration::from_millis(20);

fn sleep_until(when: Instant) {
    thread::sleep(when.saturating_duration_since(Instant::now()));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_done_at_the_rate_and_idle_time_is_lost() {
        let mut pace = Pace::new(1e6);
        let start = pace.done;
        for _ in 0..10 {
            pace.due(100_000, start);
        }
        assert_eq!(pace.done - start, Duration::from_secs(1));
        let later = start + Duration::from_secs(60);
        assert!(pace.due(1_000_000, later) >= later + Duration::from_millis(980));
    }
}
