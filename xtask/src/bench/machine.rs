//! The machine that a benchmark ran on.

use std::fmt;
use std::fs;
use std::thread::available_parallelism;

use serde_json::{Value, json};

use super::io_uring;

/// Holds what one must know of a machine to read its figures.
pub(super) struct Machine {
    processor: String,
    cores: usize,
    memory: String,
    kernel: String,
    io_uring: bool,
}

impl Machine {
    /// Reads `/proc`; what it does not tell is called unknown.
    pub(super) fn read() -> Self {
        let kernel = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
        Self {
            processor: field("/proc/cpuinfo", "model name"),
            cores: available_parallelism().map_or(1, usize::from),
            memory: field("/proc/meminfo", "MemTotal"),
            kernel: kernel.trim().to_owned(),
            io_uring: io_uring::is_on(),
        }
    }

    pub(super) fn json(&self) -> Value {
        json!({
            "processor": self.processor,
            "cores": self.cores,
            "memory": self.memory,
            "kernel": self.kernel,
            "fuse_over_io_uring": self.io_uring,
        })
    }
}

impl fmt::Display for Machine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            processor,
            cores,
            memory,
            kernel,
            io_uring,
        } = self;
        let on = if *io_uring { "on" } else { "off" };
        write!(
            f,
            "{processor}, {cores} cores, {memory} of memory, Linux {kernel}, FUSE over io_uring {on}"
        )
    }
}

/// The first value of a field in a file of lines `field : value`.
fn field(path: &str, name: &str) -> String {
    let text = fs::read_to_string(path).unwrap_or_default();
    let value = text
        .lines()
        .find_map(|line| line.strip_prefix(name)?.trim_start().strip_prefix(':'));
    value.map_or("unknown", str::trim).to_owned()
}
