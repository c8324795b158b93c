//! The threads that answer requests.

use anteros_fuse::{NoIoUring, Session};

use super::exposition::Exposition;

/// The number whose label says whether requests come over io_uring, or why not.
pub const IO_URING_INFO: &str = "io_uring_info";

/// The threads that answer requests.
#[derive(Debug, Clone, Copy)]
pub struct Workers {
    count: usize,
    over_io_uring: Result<(), NoIoUring>,
}

impl Workers {
    /// Workers of a mount.
    pub fn of(session: &Session) -> Self {
        Self {
            count: session.workers(),
            over_io_uring: session.over_io_uring(),
        }
    }

    /// Adds what `anteros stat` shows of them.
    pub fn tell(&self, text: &mut Exposition) {
        text.gauge("workers", self.count as f64);
        let over_io_uring = if self.over_io_uring.is_ok() { 1.0 } else { 0.0 };
        text.gauge("over_io_uring", over_io_uring);
        let word = self.over_io_uring.map_or_else(word, |()| "on");
        text.info(IO_URING_INFO, &[("io_uring", word)]);
    }
}

/// A reason in one word, which `anteros stat` explains.
const fn word(reason: NoIoUring) -> &'static str {
    match reason {
        NoIoUring::Unwanted => "unwanted",
        NoIoUring::NotOffered => "not_offered",
        NoIoUring::Off => "off",
        NoIoUring::Refused => "refused",
        NoIoUring::FewWorkers => "few_workers",
        NoIoUring::Guarded => "guarded",
    }
}
