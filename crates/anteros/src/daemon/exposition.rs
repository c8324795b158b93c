//! Numbers that a daemon tells of itself: one text, in the format that Prometheus reads.
//!
//! `anteros stat` gets it from the root of the mount as an extended attribute, so that whoever may
//! read the mount may read its numbers, without a socket or a file to find.

use std::fmt::Write;

use rustix::process::geteuid;

use super::faults::Faults;
use super::latencies::Latencies;

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
        for (field, name) in [
            ("VmRSS", "resident_bytes"),
            ("VmHWM", "resident_peak_bytes"),
        ] {
            if let Some(bytes) = process_bytes(field) {
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

/// A field of the process's status that counts kilobytes.
fn process_bytes(field: &str) -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find(|line| line.starts_with(field))?;
    let kilobytes: u64 = line.split_whitespace().nth(1)?.parse().ok()?;
    Some(kilobytes * 1024)
}
