//! Counters of the kernel while something is written.

use std::fs;
use std::path::Path;

use crate::bench::device::{LoopDevice, Traffic};
use crate::outcome::Outcome;

/// Counts so far, or between two moments.
#[derive(Clone, Copy)]
pub(super) struct Counters {
    /// Context switches of the whole system.
    pub(super) switches: u64,
    pub(super) daemon: Threads,
    pub(super) device: Traffic,
}

/// Holds what the threads of a process did, as far as they live.
#[derive(Clone, Copy, Default)]
pub(super) struct Threads {
    pub(super) switches: u64,
    pub(super) processor_seconds: f64,
}

impl Counters {
    /// The counts so far; without a daemon it did nothing.
    ///
    /// # Errors
    /// When the kernel does not tell.
    pub(super) fn read(device: &LoopDevice, daemon: Option<u32>) -> Outcome<Self> {
        let stat = fs::read_to_string("/proc/stat")?;
        Ok(Self {
            switches: value(&stat, "ctxt").ok_or("/proc/stat: no ctxt")?,
            daemon: daemon.map(Threads::of).transpose()?.unwrap_or_default(),
            device: device.traffic()?,
        })
    }

    /// Returns what was counted since an earlier moment.
    pub(super) fn since(&self, before: &Self) -> Self {
        let (daemon, device) = (&before.daemon, &before.device);
        Self {
            switches: self.switches - before.switches,
            daemon: Threads {
                switches: self.daemon.switches.saturating_sub(daemon.switches),
                processor_seconds: self.daemon.processor_seconds - daemon.processor_seconds,
            },
            device: Traffic {
                reads: self.device.reads - device.reads,
                bytes_read: self.device.bytes_read - device.bytes_read,
                writes: self.device.writes - device.writes,
                bytes_written: self.device.bytes_written - device.bytes_written,
            },
        }
    }
}

impl Threads {
    fn of(process: u32) -> Outcome<Self> {
        let mut sum = Self::default();
        for thread in fs::read_dir(format!("/proc/{process}/task"))? {
            let thread = Self::one(&thread?.path())?;
            sum.switches += thread.switches;
            sum.processor_seconds += thread.processor_seconds;
        }
        Ok(sum)
    }

    fn one(thread: &Path) -> Outcome<Self> {
        let status = fs::read_to_string(thread.join("status"))?;
        let count = |name| value(&status, name).unwrap_or(0);
        let run = fs::read_to_string(thread.join("schedstat"))?;
        let nanoseconds = run.split_ascii_whitespace().next().map(str::parse::<u64>);
        Ok(Self {
            switches: count("voluntary_ctxt_switches:") + count("nonvoluntary_ctxt_switches:"),
            processor_seconds: nanoseconds.transpose()?.unwrap_or(0) as f64 / 1e9,
        })
    }
}

/// The number that follows a name at the beginning of a line.
fn value(text: &str, name: &str) -> Option<u64> {
    let mut lines = text.lines();
    let value = lines.find_map(|line| line.strip_prefix(name))?;
    value.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_whole_and_values_numbers() {
        let text = "nonvoluntary_ctxt_switches:\t7\nvoluntary_ctxt_switches:\t5\nctxt 9\n";
        assert_eq!(value(text, "voluntary_ctxt_switches:"), Some(5));
        assert_eq!(value(text, "ctxt"), Some(9));
        assert_eq!(value(text, "cpu"), None);
    }

    #[test]
    fn this_process_has_threads_that_ran() {
        let mut work = 0_u64;
        (0..10_000_000).for_each(|number| work = std::hint::black_box(work ^ number));
        assert!(Threads::of(std::process::id()).unwrap().processor_seconds > 0.0);
    }
}
