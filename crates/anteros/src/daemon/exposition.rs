//! Numbers that a daemon tells of itself: one text, in the format that Prometheus reads.
//!
//! `anteros stat` gets it from the root of the mount as an extended attribute, so that whoever may
//! read the mount may read its numbers, without a socket or a file to find.

use std::fmt::Write;

use rustix::process::geteuid;

use super::faults::Faults;
use super::latencies::Latencies;

/// Has the memory of the process as the kernel counts it.
const STATUS: &str = "/proc/self/status";

/// The attribute of the root directory whose value is the text.
pub const ATTRIBUTE: &str = "user.anteros.metrics";

/// The words that tell which process this is.
pub const PROCESS: &str = "process";

/// The text.
#[derive(Default)]
pub struct Exposition(String);

impl Exposition {
    /// Adds a number that goes up and down.
    pub fn gauge(&mut self, name: &str, value: f64) {
        self.family("gauge", name);
        self.sample(name, &[], value);
    }

    /// Adds a number that only grows. Its name ends with `_total`.
    pub fn counter(&mut self, name: &str, value: u64) {
        self.counters(name, &[([].as_slice(), value as f64)]);
    }

    /// Adds numbers that only grow, each with labels.
    pub fn counters(&mut self, name: &str, samples: &[(&[(&str, &str)], f64)]) {
        let name = format!("{name}_total");
        self.family("counter", &name);
        for (labels, value) in samples {
            self.sample(&name, labels, *value);
        }
    }

    /// Adds words, as labels of a number that is always 1.
    pub fn info(&mut self, name: &str, labels: &[(&str, &str)]) {
        self.family("gauge", name);
        self.sample(name, labels, 1.0);
    }

    /// Adds which process this is, and its memory.
    pub fn process(&mut self) {
        let pid = std::process::id().to_string();
        let namespace = pid_namespace().unwrap_or_default();
        self.info(PROCESS, &[("pid", &pid), ("namespace", &namespace)]);
        let resident = resident_bytes();
        // The kernel's counters lag behind a little, and it may be at its peak now.
        let peak = process_bytes(STATUS, "VmHWM:").max(resident);
        for (name, bytes) in [("resident_bytes", resident), ("resident_peak_bytes", peak)] {
            if let Some(bytes) = bytes {
                self.gauge(name, bytes as f64);
            }
        }
    }

    /// Adds how long answers took.
    pub fn latencies(&mut self, latencies: &Latencies) {
        let name = "answer_seconds";
        self.family("histogram", name);
        for histogram in latencies.histograms() {
            let op = ("op", histogram.operation);
            let mut count = 0;
            for (limit, answers) in histogram.within {
                let limit = match limit.is_finite() {
                    true => limit.to_string(),
                    false => "+Inf".into(),
                };
                let bucket = format!("{name}_bucket");
                self.sample(&bucket, &[op, ("le", &limit)], answers as f64);
                count = answers;
            }
            self.sample(&format!("{name}_sum"), &[op], histogram.sum);
            self.sample(&format!("{name}_count"), &[op], count as f64);
        }
    }

    /// The text for a user, with the last faults in words for those who may know: they have names of files, of which others
    /// may not be allowed to know that they are there.
    pub fn finish(mut self, faults: &Faults, uid: u32) -> String {
        let may_know = uid == 0 || uid == geteuid().as_raw();
        let faults = may_know.then(|| faults.latest());
        for fault in faults.unwrap_or_default() {
            let _ = writeln!(self.0, "# fault {}", fault.replace('\n', " "));
        }
        self.0
    }

    fn family(&mut self, kind: &str, name: &str) {
        let _ = writeln!(self.0, "# TYPE anteros_{name} {kind}");
    }

    fn sample(&mut self, name: &str, labels: &[(&str, &str)], value: f64) {
        let labels: Vec<_> = labels
            .iter()
            .map(|(name, value)| format!("{name}=\"{}\"", escape(value)))
            .collect();
        let labels = match labels.is_empty() {
            true => String::new(),
            false => format!("{{{}}}", labels.join(",")),
        };
        let _ = writeln!(self.0, "anteros_{name}{labels} {value}");
    }
}

/// The value of a label as the format wants it.
fn escape(value: &str) -> String {
    value
        .replace('\\', "\\\\")
        .replace('"', "\\\"")
        .replace('\n', "\\n")
}

/// The namespace in which this process's number means something.
pub fn pid_namespace() -> Option<String> {
    let name = std::fs::read_link("/proc/self/ns/pid").ok()?;
    Some(name.to_string_lossy().into_owned())
}

/// Memory of the process. A page that is mapped at several addresses, as those of a
/// [`RollingWindow`](anteros_codec::RollingWindow) are, counts once; `VmRSS` and `VmHWM` count each address.
fn resident_bytes() -> Option<u64> {
    let status = |field| process_bytes(STATUS, field);
    // Its share of each page: of one that nobody else has mapped, the page.
    let shared = process_bytes("/proc/self/smaps_rollup", "Pss_Shmem:");
    let shared = shared.or_else(|| status("RssShmem:"))?;
    Some(status("RssAnon:")? + status("RssFile:")? + shared)
}

/// A field that counts kilobytes.
fn process_bytes(file: &str, field: &str) -> Option<u64> {
    let status = std::fs::read_to_string(file).ok()?;
    let line = status.lines().find(|line| line.starts_with(field))?;
    let kilobytes: u64 = line.split_whitespace().nth(1)?.parse().ok()?;
    Some(kilobytes * 1024)
}

#[cfg(test)]
mod tests {
    use anteros_codec::{Effort, Lz4Encoder, RollingWindow};

    use super::*;

    #[test]
    fn pages_that_lie_at_several_addresses_count_once() {
        let content = vec![0; 32 << 20];
        let mut stream = vec![0; 256 << 10];
        let mut encoder = Lz4Encoder::new(Effort::Fast).unwrap();
        let block = encoder.encode(&content, &mut stream).unwrap();
        assert_eq!(block.consumed, content.len());
        stream.truncate(block.written);
        drop(content);
        let mut window = RollingWindow::new(32 << 20, stream.len()).unwrap();
        window
            .decode(&stream, (32 << 20) - 16, &mut [0; 16])
            .unwrap();
        let by_address = process_bytes(STATUS, "VmRSS:").unwrap();
        let by_page = resident_bytes().unwrap();
        assert!(
            by_page + (24 << 20) < by_address,
            "{by_page} of {by_address}"
        );
    }
}
