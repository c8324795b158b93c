//! The threads that answer requests.

use anteros_fuse::MountOptions;

/// The threads that answer requests.
#[derive(Debug, Clone, Copy)]
pub struct Workers {
    count: usize,
    over_io_uring: bool,
}

impl Workers {
    /// Workers of a mount.
    pub fn of(options: &MountOptions) -> Self {
        Self {
            count: options.workers,
            over_io_uring: options.over_io_uring(),
        }
    }

    /// Returns what `anteros stat` shows of them.
    pub fn gauges(&self) -> [(&'static str, f64); 2] {
        let over_io_uring = if self.over_io_uring { 1.0 } else { 0.0 };
        [
            ("workers", self.count as f64),
            ("over_io_uring", over_io_uring),
        ]
    }
}
