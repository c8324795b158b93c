//! What a daemon tells of itself: one text, in the format that Prometheus reads.
//!
//! `anteros stat` gets it from the root of the mount as an extended attribute, so that whoever may
//! read the mount may read its numbers, without a socket or a file to find.

use std::fmt::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anteros_fuse::Operation;
use anteros_image::ImageFs;

use super::faults::Faults;

/// The attribute of the root directory whose value is the text.
pub const ATTRIBUTE: &str = "user.anteros.metrics";

/// Answers are sorted by time into classes: up to 1 µs, 2 µs, 4 µs … 2^24 µs (17 s), and above.
const CLASSES: usize = 26;

/// The operations, with their names in the text.
pub const OPERATIONS: [(Operation, &str); 7] = [
    (Operation::Lookup, "lookup"),
    (Operation::Getattr, "getattr"),
    (Operation::Readdir, "readdir"),
    (Operation::Read, "read"),
    (Operation::Readlink, "readlink"),
    (Operation::Xattr, "xattr"),
    (Operation::Other, "other"),
];

/// The numbers of a daemon.
pub struct Metrics {
    started: Instant,
    memory_bytes_max: u64,
    workers: usize,
    latencies: [Latencies; OPERATIONS.len()],
    pub faults: Arc<Faults>,
    /// Bytes handed to the kernel unasked.
    pub neighbour_bytes: AtomicU64,
}

#[derive(Default)]
struct Latencies {
    classes: [AtomicU64; CLASSES],
    micros: AtomicU64,
}

impl Metrics {
    /// Of a daemon that starts now, with so much memory and so many workers.
    pub fn new(memory_bytes_max: u64, workers: usize) -> Self {
        Self {
            started: Instant::now(),
            memory_bytes_max,
            workers,
            latencies: Default::default(),
            faults: Arc::default(),
            neighbour_bytes: AtomicU64::new(0),
        }
    }

    /// Notes an answer.
    pub fn answered(&self, operation: Operation, took: Duration) {
        let micros = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
        let index = OPERATIONS.iter().position(|(o, _)| *o == operation);
        let latencies = &self.latencies[index.unwrap_or(OPERATIONS.len() - 1)];
        latencies.classes[class(micros)].fetch_add(1, Ordering::Relaxed);
        latencies.micros.fetch_add(micros, Ordering::Relaxed);
    }

    /// The text.
    pub fn text(&self, fs: &ImageFs) -> String {
        let mut text = String::new();
        let mut metric = |kind: &str, name: &str, value: f64| {
            let _ = writeln!(text, "# TYPE anteros_{name} {kind}\nanteros_{name} {value}");
        };
        let stats = fs.image().read_statistics();
        metric("gauge", "up_seconds", self.started.elapsed().as_secs_f64());
        metric("gauge", "workers", self.workers as f64);
        metric("gauge", "memory_max_bytes", self.memory_bytes_max as f64);
        metric("gauge", "cache_bytes", stats.memory_bytes as f64);
        metric("gauge", "cache_peak_bytes", stats.memory_peak_bytes as f64);
        metric("gauge", "cache_max_bytes", stats.memory_max_bytes as f64);
        metric("gauge", "metadata_bytes", stats.metadata_bytes as f64);
        metric("gauge", "pinned_bytes", fs.pinned_bytes() as f64);
        for (field, name) in [
            ("VmRSS", "resident_bytes"),
            ("VmHWM", "resident_peak_bytes"),
        ] {
            if let Some(bytes) = process_bytes(field) {
                metric("gauge", name, bytes as f64);
            }
        }
        metric("counter", "faults_total", self.faults.count() as f64);
        let neighbours = self.neighbour_bytes.load(Ordering::Relaxed);
        metric("counter", "neighbour_bytes_total", neighbours as f64);
        metric("counter", "cohort_waits_total", stats.cohort_waits as f64);
        for (name, value) in stats.counters() {
            metric("counter", &format!("{name}_total"), value as f64);
        }
        self.latency_text(&mut text);
        for fault in self.faults.latest() {
            let _ = writeln!(text, "# fault {}", fault.replace('\n', " "));
        }
        text
    }

    fn latency_text(&self, text: &mut String) {
        let name = "anteros_answer_seconds";
        let _ = writeln!(text, "# TYPE {name} histogram");
        for ((_, operation), latencies) in OPERATIONS.iter().zip(&self.latencies) {
            let mut count = 0;
            for (class, answers) in latencies.classes.iter().enumerate() {
                count += answers.load(Ordering::Relaxed);
                let limit = match class {
                    class if class == CLASSES - 1 => "+Inf".into(),
                    class => ((1u64 << class) as f64 / 1e6).to_string(),
                };
                let labels = format!("op=\"{operation}\",le=\"{limit}\"");
                let _ = writeln!(text, "{name}_bucket{{{labels}}} {count}");
            }
            let seconds = latencies.micros.load(Ordering::Relaxed) as f64 / 1e6;
            let _ = writeln!(text, "{name}_sum{{op=\"{operation}\"}} {seconds}");
            let _ = writeln!(text, "{name}_count{{op=\"{operation}\"}} {count}");
        }
    }
}

/// The class of an answer: the smallest whose limit, 2^class µs, is not exceeded.
fn class(micros: u64) -> usize {
    let class = micros.max(1).next_power_of_two().trailing_zeros();
    (class as usize).min(CLASSES - 1)
}

/// A field of the process's status that counts kilobytes.
fn process_bytes(field: &str) -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find(|line| line.starts_with(field))?;
    let kilobytes: u64 = line.split_whitespace().nth(1)?.parse().ok()?;
    Some(kilobytes * 1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_fall_into_the_class_whose_limit_they_do_not_exceed() {
        for (micros, expected) in [(0, 0), (1, 0), (2, 1), (3, 2), (4, 2), (5, 3), (1024, 10)] {
            assert_eq!(class(micros), expected, "{micros} µs");
        }
        assert_eq!(class(1 << 24), 24);
        assert_eq!(class((1 << 24) + 1), 25);
        assert_eq!(class(1 << 62), 25);
    }
}
