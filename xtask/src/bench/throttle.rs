//! Devices that are no faster than a phone's flash: the file below a loop device lies in a FUSE mount that answers one
//! request after the other, and none before the device would have.
//!
//! The mount is our own library's and lives in this process, so that no other part of what is measured knows of it.

use std::hint;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use anteros_fuse::{MountOptions, Operation, Session};
use anteros_passthru::HostFs;

use super::device::{BYTES_A_SECOND, REQUEST_SECONDS};
use super::here::Here;
use crate::outcome::Outcome;

/// The speed of a device.
#[derive(Debug, Clone, Copy)]
pub(super) struct Speed {
    /// Requests that take their time.
    operations: &'static [Operation],
    bytes_a_second: f64,
    /// Time that each request takes beside its bytes.
    request: Duration,
    /// Idle time that is made up for, and so the time for which a sleep may be too long.
    slack: Duration,
}

impl Speed {
    /// Writes as the paper's device does, at 40 MB a second.
    pub(super) const PAPER: Self = Self {
        operations: &[Operation::Write],
        bytes_a_second: 40e6,
        request: Duration::ZERO,
        slack: Duration::from_millis(20),
    };

    /// Reads as a phone's storage does.
    pub(super) const PHONE: Self = Self {
        operations: &[Operation::Read],
        bytes_a_second: BYTES_A_SECOND,
        request: Duration::from_nanos((REQUEST_SECONDS * 1e9) as u64),
        slack: Duration::ZERO,
    };

    /// Reads and writes as a phone's storage does.
    pub(super) const PHONE_BOTH_WAYS: Self = Self {
        operations: &[Operation::Read, Operation::Write],
        ..Self::PHONE
    };
}

/// A mount of a directory that is slow, until dropped.
pub(super) struct Throttle {
    _served: Here,
    directory: PathBuf,
}

impl Throttle {
    /// Mounts.
    ///
    /// # Errors
    /// When the directory cannot be mirrored.
    pub(super) fn mount(source: &Path, directory: &Path, speed: Speed) -> Outcome<Self> {
        std::fs::create_dir_all(directory)?;
        let options = MountOptions {
            fs_name: "throttle".to_owned(),
            workers: 1,
            // The kernel would read and write by itself.
            passthrough: false,
            ..MountOptions::default()
        };
        let pace = Mutex::new(Pace::new(speed));
        let session = Session::mount(Arc::new(HostFs::new(source)?), directory, &options)?
            .on_answer(move |answered| {
                if speed.operations.contains(&answered.operation) {
                    let due = pace
                        .lock()
                        .map(|mut pace| pace.due(answered.len, Instant::now()));
                    due.into_iter().for_each(wait_until);
                }
            });
        Ok(Self {
            _served: Here::serve(session),
            directory: directory.to_owned(),
        })
    }

    /// Returns where the files of the source are slow.
    pub(super) fn directory(&self) -> &Path {
        &self.directory
    }
}

/// Tells when what was asked for so far is done.
struct Pace {
    speed: Speed,
    done: Instant,
}

impl Pace {
    fn new(speed: Speed) -> Self {
        Self {
            speed,
            done: Instant::now(),
        }
    }

    /// Returns when a request for some more bytes is done.
    fn due(&mut self, bytes: u64, now: Instant) -> Instant {
        let Speed {
            bytes_a_second,
            request,
            slack,
            ..
        } = self.speed;
        let since = self.done.max(now - slack);
        self.done = since + request + Duration::from_secs_f64(bytes as f64 / bytes_a_second);
        self.done
    }
}

/// The end of a wait that is not slept, for sleeps are too long.
const SPUN: Duration = Duration::from_micros(80);

fn wait_until(when: Instant) {
    let left = when.saturating_duration_since(Instant::now());
    thread::sleep(left.saturating_sub(SPUN));
    while Instant::now() < when {
        hint::spin_loop();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_done_at_the_rate_and_idle_time_is_lost() {
        let speed = Speed {
            bytes_a_second: 1e6,
            ..Speed::PAPER
        };
        let mut pace = Pace::new(speed);
        let start = pace.done;
        for _ in 0..10 {
            pace.due(100_000, start);
        }
        assert_eq!(pace.done - start, Duration::from_secs(1));
        let later = start + Duration::from_secs(60);
        assert!(pace.due(1_000_000, later) >= later + Duration::from_millis(980));
    }

    #[test]
    fn each_request_takes_its_time() {
        let mut pace = Pace::new(Speed::PHONE);
        let start = pace.done + Duration::from_secs(1);
        for _ in 0..10 {
            pace.due(25_000, start);
        }
        assert_eq!(pace.done - start, Duration::from_micros(2200));
    }
}
