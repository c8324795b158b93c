//! A turn: a fresh directory, mounted in one way, something done with it, and its end.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use super::counters::Counters;
use super::harness::Bench;
use super::native::Native;
use super::way::Way;
use super::workload::{Workload, get_ready, in_turns};
use crate::bench::mounted::Daemon;
use crate::bench::place::Place;
use crate::outcome::Outcome;

/// States how long nothing is done before the time is taken: daemons go on starting when the mount stands, and those of
/// the turn before go on ending.
pub(super) const REST: Duration = Duration::from_millis(100);

/// A directory that is written to in some way, until dropped.
pub(super) struct Served {
    daemon: Option<Daemon>,
    /// Tells where one writes.
    pub(super) directory: PathBuf,
    /// Tells where it comes to lie.
    pub(super) source: PathBuf,
}

/// Shows a directory in one way.
///
/// # Errors
/// When the daemon does not start.
pub(super) fn served(place: &Place, source: &Path, way: &Way) -> Outcome<Served> {
    let point = place.directory("mount")?;
    let daemon = match way.daemon(source, &point) {
        Some(mut command) => Some(Daemon::start(&mut command, &point)?),
        None => None,
    };
    Ok(Served {
        directory: match daemon {
            Some(_) => point,
            None => source.to_owned(),
        },
        daemon,
        source: source.to_owned(),
    })
}

impl Served {
    /// The process of the daemon, if there is one.
    pub(super) fn pid(&self) -> Option<u32> {
        self.daemon.as_ref().map(Daemon::pid)
    }

    /// Brings all that was written onto the device: first what the kernel keeps for the mount.
    ///
    /// # Errors
    /// When it cannot be written.
    pub(super) fn sync(&self) -> Outcome {
        for directory in [&self.directory, &self.source] {
            rustix::fs::syncfs(File::open(directory)?)
                .map_err(|error| format!("syncfs of {}: {error}", directory.display()))?;
        }
        Ok(())
    }
}

impl Bench<'_> {
    /// Does something with a fresh directory that `prepare` fills and one way shows.
    ///
    /// # Errors
    /// When the way does not start, or what is done fails.
    pub(super) fn fresh<T>(
        &self,
        native: &Native,
        way: &Way,
        prepare: impl FnOnce(&Path) -> Outcome,
        work: impl FnOnce(&Served) -> Outcome<T>,
    ) -> Outcome<T> {
        let source = native.directory().join("source");
        if source.exists() {
            fs::remove_dir_all(&source)?;
        }
        fs::create_dir(&source)?;
        prepare(&source)?;
        rustix::fs::syncfs(File::open(&source)?)?;
        let done = work(&served(self.place, &source, way)?)?;
        fs::remove_dir_all(&source)?;
        rustix::fs::syncfs(File::open(native.directory())?)?;
        Ok(done)
    }

    /// One way's turn at a workload: the figures to the page cache and to the device.
    ///
    /// # Errors
    /// As [`fresh`](Self::fresh), and when not all lies there afterwards.
    pub(super) fn write(
        &self,
        native: &Native,
        way: &Way,
        workload: &Workload,
    ) -> Outcome<[f64; 2]> {
        self.fresh(native, way, workload.prepare, |served| {
            timed(served, workload)
        })
    }

    /// The same, with what the kernel counted meanwhile.
    ///
    /// # Errors
    /// As [`write`](Self::write).
    pub(super) fn counted(
        &self,
        native: &Native,
        way: &Way,
        workload: &Workload,
    ) -> Outcome<([f64; 2], Counters)> {
        self.fresh(native, way, workload.prepare, |served| {
            let before = Counters::read(native.device(), served.pid())?;
            let figures = timed(served, workload)?;
            let after = Counters::read(native.device(), served.pid())?;
            Ok((figures, after.since(&before)))
        })
    }
}

/// Does the work, and tells how fast it was.
///
/// # Errors
/// When it fails, or not all lies there afterwards.
pub(super) fn timed(served: &Served, workload: &Workload) -> Outcome<[f64; 2]> {
    get_ready();
    warm(&served.source.with_file_name("warm"), workload.leaves)?;
    thread::sleep(REST);
    let start = Instant::now();
    let amount = (workload.work)(&served.directory)?;
    let cached = start.elapsed().as_secs_f64();
    served.sync()?;
    let stored = start.elapsed().as_secs_f64();
    check(&served.source, workload.leaves)?;
    Ok([cached, stored].map(|seconds| amount / seconds))
}

/// Has the kernel take as much memory for a file as the turn will need, and give it back. Memory that a virtual machine has lent
/// to its host meanwhile comes back so slowly that nothing else of the turn would be seen.
fn warm(directory: &Path, bytes: u64) -> Outcome {
    fs::create_dir(directory)?;
    in_turns(directory, 1, 1 << 20, bytes)?;
    Ok(fs::remove_dir_all(directory)?)
}

/// Makes sure that a directory's files have so many bytes in all.
fn check(directory: &Path, bytes: u64) -> Outcome {
    let mut found = 0;
    for entry in fs::read_dir(directory)? {
        found += entry?.metadata()?.len();
    }
    match found == bytes {
        true => Ok(()),
        false => Err(format!("{found} bytes lie there, not {bytes}").into()),
    }
}
