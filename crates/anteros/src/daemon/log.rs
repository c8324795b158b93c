//! What a daemon that serves a log counts and tells, and what it can be told to do.
//!
//! Both go through extended attributes of the root: whoever may read the mount may read its numbers, and a write comes
//! with the user who asks, who needs neither a socket nor an open file. (An ioctl could answer more, but takes code for
//! each kernel interface; a signal cannot say when it is done.) Cleaning takes long, and the kernel locks
//! a directory while an attribute of it is set, so the order is taken at once, and whoever gave it asks for the end.

use std::fmt::Write;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Instant;

use anteros_core::FileSystem;
use anteros_fuse::{AttributeOrder, Session};
use anteros_log::{Cause, Log};
use rustix::io::Errno;
use rustix::process::geteuid;

use super::exposition::{ATTRIBUTE, Exposition};
use super::faults::Faults;
use super::latencies::Latencies;
use crate::output;

/// The attribute that orders cleaning when it is set, and tells how far that is: [`Progress`].
pub const CLEANING: &str = "user.anteros.cleaning";
/// What it is set to.
pub const CLEAN_ALL: &[u8] = b"all";

/// Begins the name of the attribute that has the states of segments: from the one on whose number ends it, each as four
/// hexadecimal digits.
pub const SEGMENTS: &str = "user.anteros.segments.";
/// So many at once fit into an attribute.
pub const SEGMENTS_MAX: usize = 16_000;

const BLOCK: u64 = 4096;

/// How far cleaning is.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Progress {
    /// How often it was ordered.
    pub orders: u64,
    /// Orders up to this one are done.
    pub done: u64,
    /// Segments that were cleaned the last time.
    pub cleaned: u64,
    /// Why it failed the last time.
    pub failure: Option<String>,
}

/// What watches a mounted log.
pub struct LogDaemon {
    started: Instant,
    log: Arc<Log>,
    memory_bytes_max: u64,
    workers: usize,
    latencies: Latencies,
    faults: Arc<Faults>,
    cleaning: Mutex<Cleaning>,
    /// No cleaning any more: the log is closed.
    stops: AtomicBool,
}

#[derive(Default)]
struct Cleaning {
    progress: Progress,
    cleaner: Option<JoinHandle<()>>,
}

impl Progress {
    fn text(&self) -> String {
        let Self {
            orders,
            done,
            cleaned,
            failure,
        } = self;
        let mut text = format!("{orders} {done} {cleaned}\n");
        let _ = write!(text, "{}", failure.as_deref().unwrap_or_default());
        text
    }

    /// What [`CLEANING`] tells.
    pub fn parse(text: &str) -> Option<Self> {
        let (numbers, failure) = text.split_once('\n')?;
        let mut numbers = numbers.split(' ').map_while(|number| number.parse().ok());
        Some(Self {
            orders: numbers.next()?,
            done: numbers.next()?,
            cleaned: numbers.next()?,
            failure: Some(failure.to_owned()).filter(|failure| !failure.is_empty()),
        })
    }
}

impl LogDaemon {
    /// What watches a log that is mounted now.
    pub fn new(
        log: Arc<Log>,
        faults: Arc<Faults>,
        memory_bytes_max: u64,
        workers: usize,
    ) -> Arc<Self> {
        Arc::new(Self {
            started: Instant::now(),
            log,
            memory_bytes_max,
            workers,
            latencies: Latencies::default(),
            faults,
            cleaning: Mutex::default(),
            stops: AtomicBool::new(false),
        })
    }

    /// Listens to a session.
    pub fn listen(self: Arc<Self>, session: Session) -> Session {
        let (teller, cleaner) = (self.clone(), self.clone());
        session
            .on_answer(move |answered| self.latencies.note(answered))
            .on_attribute(move |asked| {
                let is_root = asked.ino == teller.log.root();
                teller.attribute(std::str::from_utf8(asked.name).ok().filter(|_| is_root)?)
            })
            .on_order(move |order| LogDaemon::order(&cleaner, order))
    }

    /// Ends cleaning, for the log will be closed.
    pub fn finish(&self) {
        self.stops.store(true, Ordering::Relaxed);
        let cleaner = self.cleaning().cleaner.take();
        if let Some(cleaner) = cleaner {
            let _ = cleaner.join();
        }
    }

    fn attribute(&self, name: &str) -> Option<Vec<u8>> {
        match name {
            ATTRIBUTE => Some(self.text().into_bytes()),
            CLEANING => Some(self.cleaning().progress.text().into_bytes()),
            _ => self.segments(name.strip_prefix(SEGMENTS)?.parse().ok()?),
        }
    }

    fn segments(&self, first: usize) -> Option<Vec<u8>> {
        let layout = self.log.layout();
        let segments = layout.segments.get(first..)?.iter().take(SEGMENTS_MAX);
        let mut text = String::new();
        for segment in segments {
            let _ = write!(text, "{:04x}", segment.to_bits());
        }
        Some(text.into_bytes())
    }

    fn cleaning(&self) -> MutexGuard<'_, Cleaning> {
        self.cleaning.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn order(self: &Arc<Self>, order: &AttributeOrder<'_>) -> Option<Result<(), Errno>> {
        if order.ino != self.log.root() || order.name != CLEANING.as_bytes() {
            return None;
        }
        if order.uid != 0 && order.uid != geteuid().as_raw() {
            return Some(Err(Errno::PERM));
        }
        if order.value != CLEAN_ALL {
            return Some(Err(Errno::INVAL));
        }
        let mut cleaning = self.cleaning();
        cleaning.progress.orders += 1;
        // One that runs sees the order before it ends, for it asks under this lock.
        let is_idle = cleaning.progress.orders == cleaning.progress.done + 1;
        if is_idle {
            let worker = self.clone();
            match thread::Builder::new()
                .name("cleaner".into())
                .spawn(move || worker.clean())
            {
                Ok(cleaner) => cleaning.cleaner = Some(cleaner),
                Err(error) => {
                    cleaning.progress.orders -= 1;
                    return Some(Err(Errno::from_io_error(&error).unwrap_or(Errno::AGAIN)));
                }
            }
        }
        Some(Ok(()))
    }

    /// Cleans until no order is left.
    fn clean(&self) {
        let mut order = self.cleaning().progress.orders;
        loop {
            let cleaned = self.log.clean_all(|_| !self.stops.load(Ordering::Relaxed));
            let mut cleaning = self.cleaning();
            let progress = &mut cleaning.progress;
            progress.done = order;
            progress.cleaned = *cleaned.as_ref().unwrap_or(&0);
            progress.failure = cleaned.err().map(|error| error.to_string());
            if progress.orders == progress.done {
                return;
            }
            order = progress.orders;
        }
    }

    fn text(&self) -> String {
        let condition = self.log.condition();
        let layout = self.log.layout();
        let mut text = Exposition::default();
        let uuid = output::uuid(&layout.superblock.uuid);
        text.info(
            "log_info",
            &[("label", &layout.superblock.label), ("uuid", &uuid)],
        );
        text.gauge("up_seconds", self.started.elapsed().as_secs_f64());
        for (name, value) in [
            ("workers", self.workers as u64),
            ("log_memory_bytes", condition.memory_bytes),
            ("log_memory_max_bytes", self.memory_bytes_max),
            ("log_capacity_bytes", layout.capacity_blocks * BLOCK),
            ("log_used_bytes", layout.used_blocks * BLOCK),
            ("log_promised_bytes", layout.promised_blocks * BLOCK),
            ("log_inodes", layout.inodes.into()),
            ("log_nodes", layout.nodes.into()),
            ("log_segments", condition.segments.into()),
            ("log_free_segments", condition.free_segments.into()),
            ("log_emptied_segments", condition.emptied_segments.into()),
        ] {
            text.gauge(name, value as f64);
        }
        text.process();
        let statistics = condition.statistics;
        for (name, value) in [
            ("faults", self.faults.count()),
            ("log_user_bytes", statistics.user_bytes),
            ("log_syncs", condition.syncs),
            ("log_flushes", condition.flushes),
            ("log_groups", statistics.groups),
            ("log_checkpoints", statistics.checkpoints),
            ("log_cleaned_segments", statistics.cleaned),
            ("log_set_aside_segments", statistics.set_aside),
        ] {
            text.counter(name, value);
        }
        let causes =
            Cause::ALL.map(|cause| ([("cause", cause.name())], statistics.blocks(cause) * BLOCK));
        let causes = causes
            .each_ref()
            .map(|(labels, bytes)| (labels.as_slice(), *bytes));
        text.counters("log_device_bytes", &causes);
        text.latencies(&self.latencies);
        text.finish(&self.faults)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn progress_is_told_as_it_is() {
        let failed = Progress {
            orders: 3,
            done: 2,
            cleaned: 7,
            failure: Some("a b".into()),
        };
        for progress in [failed, Progress::default()] {
            assert_eq!(Progress::parse(&progress.text()), Some(progress));
        }
        assert_eq!(Progress::parse("1 2\n"), None);
    }
}
