//! Events of the kernel, counted by its tracing: how often, and nothing else of them is kept.

use std::fs;
use std::path::{Path, PathBuf};

use rustix::mount::MountFlags;

use crate::bench::mounted::{Mounted, mount};
use crate::bench::place::Place;
use crate::outcome::Outcome;

/// The tracing of the kernel, until dropped.
pub(in crate::bench) struct Tracing {
    _mounted: Mounted,
    directory: PathBuf,
}

impl Tracing {
    /// Makes it reachable.
    ///
    /// # Errors
    /// When the kernel does not have it.
    pub(in crate::bench) fn mount(place: &Place) -> Outcome<Self> {
        let directory = place.directory("tracing")?;
        let (none, flags) = (Path::new("none"), MountFlags::empty());
        Ok(Self {
            _mounted: mount(none, &directory, "tracefs", flags, None)?,
            directory,
        })
    }

    /// Counts events from now on, each where its filter holds, of one process or of all.
    ///
    /// # Errors
    /// When the kernel does not know an event.
    pub(in crate::bench) fn count(
        &self,
        events: &[(&str, String)],
        process: Option<u32>,
    ) -> Outcome<Tally> {
        let instance = self.directory.join("instances/anteros-bench");
        // What a killed run left.
        let _ = fs::remove_dir(&instance);
        fs::create_dir(&instance)?;
        let tally = Tally { instance };
        tally.set("buffer_size_kb", "64")?;
        if let Some(process) = process {
            tally.set("set_event_pid", &threads(process)?)?;
            tally.set("options/event-fork", "1")?;
        }
        for (event, filter) in events {
            if !filter.is_empty() {
                tally.set(&format!("events/{event}/filter"), filter)?;
            }
            tally.set(&format!("events/{event}/enable"), "1")?;
        }
        Ok(tally)
    }
}

/// The numbers of a process' threads, as the kernel wants to be told them.
fn threads(process: u32) -> Outcome<String> {
    let mut numbers = String::new();
    for thread in fs::read_dir(format!("/proc/{process}/task"))? {
        numbers += &thread?.file_name().to_string_lossy();
        numbers.push(' ');
    }
    Ok(numbers)
}

/// A count that goes on until dropped.
pub(in crate::bench) struct Tally {
    instance: PathBuf,
}

impl Tally {
    fn set(&self, what: &str, value: &str) -> Outcome {
        let path = self.instance.join(what);
        Ok(fs::write(&path, value).map_err(|error| format!("{}: {error}", path.display()))?)
    }

    /// Returns how many there were.
    ///
    /// # Errors
    /// When the kernel does not tell.
    pub(in crate::bench) fn so_far(&self) -> Outcome<u64> {
        let mut sum = 0;
        for processor in fs::read_dir(self.instance.join("per_cpu"))? {
            sum += recorded(&fs::read_to_string(processor?.path().join("stats"))?);
        }
        Ok(sum)
    }
}

impl Drop for Tally {
    fn drop(&mut self) {
        if let Err(error) = fs::remove_dir(&self.instance) {
            eprintln!("bench write: {}: {error}", self.instance.display());
        }
    }
}

/// The events that a processor recorded: those that are still in its buffer, and those that had to go.
fn recorded(stats: &str) -> u64 {
    let count = |line: &str| {
        let (name, value) = line.split_once(": ")?;
        let counts = ["entries", "overrun", "commit overrun", "dropped events"];
        counts
            .contains(&name)
            .then(|| value.trim().parse::<u64>().ok())?
    };
    stats.lines().filter_map(count).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_count_whether_or_not_they_were_kept() {
        let stats = "entries: 5\noverrun: 1000\ncommit overrun: 0\nbytes: 80\n\
                     oldest event ts:  4.2\ndropped events: 2\nread events: 9\n";
        assert_eq!(recorded(stats), 1007);
    }
}
