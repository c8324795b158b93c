//! Metrics and controls of a daemon that serves a log.
//!
//! Both go through extended attributes of the root: whoever may read the mount may read its numbers, and a write comes
//! with the user who asks, who needs neither a socket nor an open file. (An ioctl could answer more, but takes code for
//! each kernel interface; a signal cannot say when it is done.)

use std::fmt::Write;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{SyncSender, channel, sync_channel};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use anteros_core::{FileSystem, FsError, Ino};
use anteros_fuse::{AttributeOrder, Notifier, Session};
use anteros_log::{Cause, Class, ClassStatistics, Launches, Log};
use rustix::io::Errno;
use rustix::process::geteuid;

use super::compaction::{COMPACTION, Compactor, ESTIMATE};
use super::controls::{LOG_WRITING as WRITING, WRITE_ALL};
use super::exposition::{ATTRIBUTE, Exposition};
use super::faults::Faults;
use super::latencies::Latencies;
use super::usage::IdleCounts;
use super::work::{Work, lock};
use super::workers::Workers;
use crate::output;

/// The attribute that orders cleaning when it is set, and tells how far that is: [`Progress`](super::work::Progress).
pub const CLEANING: &str = "user.anteros.cleaning";
/// Value that orders the cleaning of all segments.
pub const CLEAN_ALL: &[u8] = b"all";

/// Begins the name of the attribute that has the states of segments: from the one on whose number ends it, each as four
/// hexadecimal digits.
pub const SEGMENTS: &str = "user.anteros.segments.";
/// So many at once fit into an attribute.
pub const SEGMENTS_MAX: usize = 16_000;

const BLOCK: u64 = 4096;

/// A number that there is of each class of content, under the name `log_class_NAME_total`.
type ClassNumber = (&'static str, fn(&ClassStatistics) -> f64);

/// All of them.
const CLASS_NUMBERS: [ClassNumber; 11] = [
    ("pages", |of| of.pages as f64),
    ("stored_bytes", |of| of.stored_bytes as f64),
    ("compressed_pages", |of| of.compressed_pages as f64),
    ("left_pages", |of| of.left_pages as f64),
    ("touched_blocks", |of| of.touched_blocks as f64),
    ("least_blocks", |of| of.least_blocks as f64),
    ("read_blocks", |of| of.read_blocks as f64),
    ("read_stored_pages", |of| of.read_stored_pages as f64),
    ("read_pages", |of| of.read_pages as f64),
    ("compressing_seconds", |of| of.compressing.as_secs_f64()),
    ("decompressing_seconds", |of| of.decompressing.as_secs_f64()),
];

/// Observer of a mounted log.
pub struct LogDaemon {
    started: Instant,
    log: Arc<Log>,
    memory_bytes_max: u64,
    workers: Workers,
    latencies: Latencies,
    faults: Arc<Faults>,
    cleaning: Mutex<Work<()>>,
    compaction: Arc<Compactor>,
    estimation: Arc<Compactor>,
    /// No work any more: the log is closed.
    stops: AtomicBool,
    /// It was told that nothing is written any more.
    told_failure: AtomicBool,
    /// Counts of what is done while nobody uses it.
    pub idle: IdleCounts,
}

impl LogDaemon {
    /// Creates the observer of a log that is mounted now.
    pub fn new(
        log: Arc<Log>,
        faults: Arc<Faults>,
        memory_bytes_max: u64,
        workers: Workers,
    ) -> Arc<Self> {
        Arc::new(Self {
            started: Instant::now(),
            compaction: Compactor::new(&log, &faults, false),
            estimation: Compactor::new(&log, &faults, true),
            log,
            memory_bytes_max,
            workers,
            latencies: Latencies::default(),
            faults,
            cleaning: Mutex::default(),
            stops: AtomicBool::new(false),
            told_failure: AtomicBool::new(false),
            idle: IdleCounts::default(),
        })
    }

    /// Listens to a session.
    pub fn listen(self: Arc<Self>, session: Session) -> Session {
        let (teller, cleaner) = (self.clone(), self.clone());
        session
            .on_answer(move |answered| self.latencies.note(answered))
            .on_attribute(move |asked| {
                let is_root = asked.ino == teller.log.root();
                let name = std::str::from_utf8(asked.name).ok().filter(|_| is_root)?;
                teller.attribute(name, asked.uid)
            })
            .on_order(move |order| LogDaemon::order(&cleaner, order))
    }

    /// Returns how many requests were answered.
    pub fn answers(&self) -> u64 {
        self.latencies.count()
    }

    /// Returns how many requests of those who use files were answered.
    pub fn uses(&self) -> u64 {
        self.latencies.uses()
    }

    /// Returns whether work that was ordered goes on.
    pub fn is_ordered(&self) -> bool {
        let compactors = [&self.compaction, &self.estimation];
        lock(&self.cleaning).progress.goes_on() || compactors.iter().any(|one| one.goes_on())
    }

    /// Ends all work, for the log will be closed.
    pub fn finish(&self) {
        self.stops.store(true, Ordering::Relaxed);
        let cleaner = lock(&self.cleaning).worker.take();
        cleaner.into_iter().for_each(|worker| drop(worker.join()));
        self.compaction.finish();
        self.estimation.finish();
    }

    /// Counts and tells, once, that nothing is written any more, and says why, if so.
    pub fn note_failure(&self) -> Option<String> {
        let why = self.log.failure()?;
        if !self.told_failure.swap(true, Ordering::Relaxed) {
            self.faults.note(format!("read-only from here on: {why}"));
        }
        Some(why)
    }

    fn attribute(&self, name: &str, uid: u32) -> Option<Vec<u8>> {
        match name {
            ATTRIBUTE => Some(self.text(uid).into_bytes()),
            CLEANING => Some(lock(&self.cleaning).progress.text().into_bytes()),
            WRITING => Some(self.note_failure().unwrap_or_default().into_bytes()),
            COMPACTION => Some(self.compaction.text().into_bytes()),
            ESTIMATE => Some(self.estimation.text().into_bytes()),
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

    fn order(self: &Arc<Self>, order: &AttributeOrder<'_>) -> Option<Result<(), Errno>> {
        if order.ino != self.log.root() {
            return None;
        }
        let name = std::str::from_utf8(order.name).ok()?;
        if ![CLEANING, COMPACTION, ESTIMATE, WRITING].contains(&name) {
            return None;
        }
        let may = order.uid == 0 || order.uid == geteuid().as_raw();
        Some(match (may, name) {
            (false, _) => Err(Errno::PERM),
            (_, CLEANING) => self.order_cleaning(order.value),
            (_, COMPACTION) => self.compaction.order(order.value),
            (_, ESTIMATE) => self.estimation.order(order.value),
            _ => self.order_writing(order.value),
        })
    }

    fn order_cleaning(self: &Arc<Self>, value: &[u8]) -> Result<(), Errno> {
        if value != CLEAN_ALL {
            return Err(Errno::INVAL);
        }
        let worker = self.clone();
        lock(&self.cleaning).begin("cleaner", move || worker.clean())
    }

    fn order_writing(self: &Arc<Self>, value: &[u8]) -> Result<(), Errno> {
        if value != WRITE_ALL {
            return Err(Errno::INVAL);
        }
        let written = self.log.checkpoint();
        match self.note_failure() {
            Some(_) => Err(Errno::IO),
            // A log that is mounted for reading has nothing to write.
            None => match written {
                Ok(()) | Err(FsError::ReadOnly) => Ok(()),
                Err(FsError::NoSpace) => Err(Errno::NOSPC),
                Err(_) => Err(Errno::IO),
            },
        }
    }

    /// Cleans until no order is left.
    fn clean(&self) {
        let mut order = lock(&self.cleaning).progress.orders;
        loop {
            let cleaned = self.log.clean_all(|_| !self.stops.load(Ordering::Relaxed));
            let counts = vec![*cleaned.as_ref().unwrap_or(&0)];
            match lock(&self.cleaning).end(order, counts, cleaned.err()) {
                Some(next) => order = next,
                None => return,
            }
        }
    }

    fn text(&self, uid: u32) -> String {
        self.note_failure();
        let condition = self.log.condition();
        let layout = self.log.layout();
        let launches = self.log.with_launches(Launches::counts);
        let [files, blocks, gathered] = launches.unwrap_or_default();
        let mut text = Exposition::default();
        let uuid = output::uuid(&layout.superblock.uuid);
        text.info(
            "log_info",
            &[("label", &layout.superblock.label), ("uuid", &uuid)],
        );
        text.gauge("up_seconds", self.started.elapsed().as_secs_f64());
        self.workers.tell(&mut text);
        for (name, value) in [
            ("log_memory_bytes", condition.memory_bytes),
            ("log_memory_max_bytes", self.memory_bytes_max),
            ("log_capacity_bytes", layout.capacity_blocks * BLOCK),
            ("log_used_bytes", layout.used_blocks * BLOCK),
            ("log_preallocated_bytes", layout.preallocated_blocks * BLOCK),
            ("log_inodes", layout.inodes.into()),
            ("log_nodes", layout.nodes.into()),
            ("log_segments", condition.segments.into()),
            ("log_free_segments", condition.free_segments.into()),
            ("log_prefree_segments", condition.prefree_segments.into()),
            ("log_packed_blocks", layout.packed_blocks),
            ("log_packed_slots", layout.packed_slots),
            ("log_launch_files", files),
            ("log_launch_bytes", blocks * BLOCK),
            ("log_launch_gathered_bytes", gathered * BLOCK),
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
            ("log_atomic_writes", statistics.atomic_writes),
            ("log_checkpoints", statistics.checkpoints),
            ("log_cleaned_segments", statistics.cleaned),
            ("log_threaded_segments", statistics.threaded),
            ("log_quarantined_segments", statistics.quarantined),
            ("log_prefetched_bytes", condition.prefetched_blocks * BLOCK),
            ("log_pushed_bytes", condition.pushed_bytes),
            ("log_scrubbed_bytes", condition.scrubbed_blocks * BLOCK),
        ] {
            text.counter(name, value);
        }
        for (name, value) in self.idle.counters() {
            text.counters(name, &[(&[], value)]);
        }
        let causes =
            Cause::ALL.map(|cause| ([("cause", cause.name())], statistics.blocks(cause) * BLOCK));
        let causes = causes
            .each_ref()
            .map(|(labels, bytes)| (labels.as_slice(), *bytes as f64));
        text.counters("log_device_bytes", &causes);
        for (name, value) in CLASS_NUMBERS {
            let classes =
                Class::ALL.map(|class| ([("class", class.name())], value(statistics.class(class))));
            let classes = classes
                .each_ref()
                .map(|(labels, value)| (labels.as_slice(), *value));
            text.counters(&format!("log_class_{name}"), &classes);
        }
        text.latencies(&self.latencies);
        text.finish(&self.faults, uid)
    }
}

/// Has the kernel forget what it has cached of files, from a thread of its own. Whoever asks waits, but not for ever: that
/// may need an answer to somebody else first, for which the one who asks is missing.
///
/// # Errors
///
/// When no thread can be begun.
pub fn forgetter(notifier: Notifier) -> io::Result<impl Fn(Ino) + Send + Sync> {
    const WAIT_MAX: Duration = Duration::from_secs(1);
    let (ask, asked) = channel::<(Ino, SyncSender<()>)>();
    let forget = move || {
        for (ino, done) in asked {
            // What the kernel does not know, it need not forget; and nobody may wait any more.
            let _ = notifier.invalidate(ino);
            let _ = done.try_send(());
        }
    };
    thread::Builder::new()
        .name("log-forget".into())
        .spawn(forget)?;
    Ok(move |ino| {
        let (done, is_done) = sync_channel(1);
        let _ = ask.send((ino, done));
        let _ = is_done.recv_timeout(WAIT_MAX);
    })
}
