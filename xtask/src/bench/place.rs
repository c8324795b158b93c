//! The directory that a benchmark mounts things in. One benchmark runs at a time, and nothing stays mounted: not when
//! it is interrupted, and what a killed one left the next one ends.

use std::fs::{self, File};
use std::path::{self, Path, PathBuf};
use std::process;
use std::thread;

use rustix::fs::FlockOperation;
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use super::mounted::{clear, sweep};
use crate::outcome::Outcome;

/// States where all benchmarks keep what they make.
const HOME: &str = "target/bench";

/// A place to mount in, for one who is alone.
pub(super) struct Place {
    scratch: PathBuf,
    /// Locked as long as it is open.
    _alone: File,
}

impl Place {
    /// Takes the place.
    ///
    /// # Errors
    /// When not run as root, or another benchmark runs.
    pub(super) fn take() -> Outcome<Self> {
        if !rustix::process::geteuid().is_root() {
            return Err("this benchmark mounts file systems: it must run as root".into());
        }
        fs::create_dir_all(HOME)?;
        let alone = File::open(HOME)?;
        rustix::fs::flock(&alone, FlockOperation::NonBlockingLockExclusive)
            .map_err(|error| format!("another benchmark runs: {HOME}: {error}"))?;
        let scratch = path::absolute(Path::new(HOME).join("mounts"))?;
        sweep(&scratch);
        sweep_on_interrupt(scratch.clone())?;
        fs::create_dir_all(&scratch)?;
        Ok(Self {
            scratch,
            _alone: alone,
        })
    }

    /// The directory, whose content is gone when the benchmark ends.
    pub(super) fn scratch(&self) -> &Path {
        &self.scratch
    }

    /// A directory of the place, made if need be.
    ///
    /// # Errors
    /// When it cannot be made.
    pub(super) fn directory(&self, name: &str) -> Outcome<PathBuf> {
        let directory = self.scratch.join(name);
        fs::create_dir_all(&directory)?;
        Ok(directory)
    }

    /// Removes what is there.
    ///
    /// # Errors
    /// When something is still mounted.
    pub(super) fn leave(self) -> Outcome {
        clear(&self.scratch)
    }
}

/// Cleans up when somebody asks to stop.
fn sweep_on_interrupt(scratch: PathBuf) -> Outcome {
    let mut signals = Signals::new([SIGINT, SIGTERM])?;
    thread::spawn(move || {
        if signals.forever().next().is_some() {
            eprintln!("bench: interrupted");
            sweep(&scratch);
            process::exit(130);
        }
    });
    Ok(())
}
