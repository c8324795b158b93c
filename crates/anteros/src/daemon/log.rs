//! Metrics and controls of a daemon that serves a log.
//!
//! Both go through extended attributes of the root: whoever may read the mount may read its numbers, and a write comes
//! with the user who asks, who needs neither a socket nor an open file. (An ioctl could answer more, but takes code for
//! each kernel interface; a signal cannot say when it is done.) Cleaning takes long, and the kernel locks
//! a directory while an attribute of it is set, so the order is taken at once, and whoever gave it asks for the end.

use std::collections::HashMap;
use std::fmt::Write;
use std::io;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{SyncSender, channel, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use anteros_core::{FileSystem, FsError, Ino, unpoisoned};
use anteros_fuse::{AttributeOrder, Notifier, Session};
use anteros_log::{Cause, Class, ClassStatistics, Compacted, FileReads, Log, Mark};
use rustix::io::Errno;
use rustix::process::geteuid;

use super::controls::{LOG_WRITING as WRITING, WRITE_ALL};
use super::exposition::{ATTRIBUTE, Exposition};
use super::faults::Faults;
use super::latencies::Latencies;
use super::usage::IdleCounts;
use super::workers::Workers;
use crate::output;

/// The attribute that orders cleaning when it is set, and tells how far that is: [`Progress`].
pub const CLEANING: &str = "user.anteros.cleaning";
/// Value that orders the cleaning of all segments.
pub const CLEAN_ALL: &[u8] = b"all";

/// The attribute that orders compression in the background: `add` with the numbers of inodes, then `go` with the most bytes of
/// content in a second, if there is to be a most; `stop` ends it early. It tells how far that is: [`Progress`]. Before `go`,
/// `read` tells what launches read of a file, in the place of what was recorded: its inode, the number of launches, and for each
/// range its first logical block and the one behind the last, how many launches read it, and its place in their order.
pub const COMPACTION: &str = "user.anteros.compaction";
/// The most files that an order has.
const FILES_MAX: usize = 1 << 20;
/// The most logical blocks that it says to be read: 4 GiB.
const READ_MAX: u64 = 1 << 20;

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

/// Interval at which long work looks whether it is to stop.
const LOOKS_EVERY: Duration = Duration::from_millis(100);

/// Progress of ordered work.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Progress {
    /// Number of orders.
    pub orders: u64,
    /// Orders up to this one are done.
    pub done: u64,
    /// Results of the last order, or those so far.
    pub counts: Vec<u64>,
    /// Why it failed the last time.
    pub failure: Option<String>,
}

/// Observer of a mounted log.
pub struct LogDaemon {
    started: Instant,
    log: Arc<Log>,
    memory_bytes_max: u64,
    workers: Workers,
    latencies: Latencies,
    faults: Arc<Faults>,
    cleaning: Mutex<Work<()>>,
    compaction: Mutex<Work<Compaction>>,
    /// No work any more: the log is closed.
    stops: AtomicBool,
    /// It was told that nothing is written any more.
    told_failure: AtomicBool,
    /// Counts of what is done while nobody uses it.
    pub idle: IdleCounts,
}

/// Work that is ordered, and done by a thread of its own.
#[derive(Default)]
struct Work<T> {
    progress: Progress,
    what: T,
    worker: Option<JoinHandle<()>>,
}

/// Ranges of logical blocks that launches read.
type Ranges = Vec<(Range<u32>, Mark)>;

/// Files to compress.
#[derive(Default)]
struct Compaction {
    files: Vec<Ino>,
    /// The number of launches that a profile is of, and what they read of some files.
    reads: HashMap<Ino, (u8, Ranges)>,
    /// Logical blocks of all these.
    read_blocks: u64,
    /// Bytes of content in a second, at most.
    rate: Option<u64>,
    /// Orders up to this one are to end now.
    stopped: u64,
}

/// Values of [`COMPACTION`].
#[derive(Debug, PartialEq, Eq)]
enum CompactionOrder {
    Add(Vec<Ino>),
    Read(Ino, u8, Ranges),
    Go(Option<u64>),
    Stop,
}

impl CompactionOrder {
    fn parse(text: &[u8]) -> Option<Self> {
        let text = std::str::from_utf8(text).ok()?;
        let mut words = text.split_ascii_whitespace();
        let order = match words.next()? {
            "add" => {
                let inos: Result<_, _> = words.by_ref().map(|word| word.parse().map(Ino)).collect();
                Self::Add(inos.ok()?)
            }
            "read" => {
                let ino = Ino(words.next()?.parse().ok()?);
                let rounds = words.next()?.parse().ok()?;
                let mut ranges = Vec::new();
                while let Some(start) = words.next() {
                    let range = start.parse().ok()?..words.next()?.parse().ok()?;
                    let launches = words.next()?.parse().ok()?;
                    let order = words.next()?.parse().ok()?;
                    ranges.push((range, Mark { order, launches }));
                }
                Self::Read(ino, rounds, ranges)
            }
            "go" => Self::Go(words.next().map(str::parse).transpose().ok()?),
            "stop" => Self::Stop,
            _ => return None,
        };
        words.next().is_none().then_some(order)
    }
}

impl Progress {
    fn text(&self) -> String {
        let Self {
            orders,
            done,
            counts,
            failure,
        } = self;
        let mut text = format!("{orders} {done}");
        for count in counts {
            let _ = write!(text, " {count}");
        }
        let _ = write!(text, "\n{}", failure.as_deref().unwrap_or_default());
        text
    }

    /// Parses the value of [`CLEANING`] or [`COMPACTION`].
    pub fn parse(text: &str) -> Option<Self> {
        let (numbers, failure) = text.split_once('\n')?;
        let numbers: Result<Vec<u64>, _> = numbers.split(' ').map(str::parse).collect();
        let (&[orders, done], counts) = numbers.as_ref().ok()?.split_first_chunk()?;
        Some(Self {
            orders,
            done,
            counts: counts.to_vec(),
            failure: Some(failure.to_owned()).filter(|failure| !failure.is_empty()),
        })
    }

    fn goes_on(&self) -> bool {
        self.done < self.orders
    }

    /// One of the counts; zero as long as there is none.
    pub fn count(&self, which: usize) -> u64 {
        self.counts.get(which).copied().unwrap_or(0)
    }
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
            log,
            memory_bytes_max,
            workers,
            latencies: Latencies::default(),
            faults,
            cleaning: Mutex::default(),
            compaction: Mutex::default(),
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
        lock(&self.cleaning).progress.goes_on() || lock(&self.compaction).progress.goes_on()
    }

    /// Ends all work, for the log will be closed.
    pub fn finish(&self) {
        self.stops.store(true, Ordering::Relaxed);
        let cleaner = lock(&self.cleaning).worker.take();
        let compactor = lock(&self.compaction).worker.take();
        for worker in [cleaner, compactor].into_iter().flatten() {
            let _ = worker.join();
        }
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
            COMPACTION => Some(lock(&self.compaction).progress.text().into_bytes()),
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
        let take = match std::str::from_utf8(order.name) {
            Ok(CLEANING) => Self::order_cleaning,
            Ok(COMPACTION) => Self::order_compaction,
            Ok(WRITING) => Self::order_writing,
            _ => return None,
        };
        let may = order.uid == 0 || order.uid == geteuid().as_raw();
        Some(match may {
            true => take(self, order.value),
            false => Err(Errno::PERM),
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

    fn order_compaction(self: &Arc<Self>, value: &[u8]) -> Result<(), Errno> {
        let mut work = lock(&self.compaction);
        match CompactionOrder::parse(value).ok_or(Errno::INVAL)? {
            CompactionOrder::Add(files) if work.what.files.len() + files.len() > FILES_MAX => {
                Err(Errno::NOSPC)
            }
            CompactionOrder::Add(files) => {
                work.what.files.extend(files);
                Ok(())
            }
            CompactionOrder::Read(ino, rounds, ranges) => {
                let blocks = ranges
                    .iter()
                    .map(|(range, _)| range.len() as u64)
                    .sum::<u64>();
                if work.what.read_blocks + blocks > READ_MAX {
                    return Err(Errno::NOSPC);
                }
                work.what.read_blocks += blocks;
                let reads = work.what.reads.entry(ino).or_default();
                reads.0 = rounds;
                reads.1.extend(ranges);
                Ok(())
            }
            CompactionOrder::Go(_) if !self.log.compresses() => Err(Errno::OPNOTSUPP),
            CompactionOrder::Go(rate) => {
                work.what.rate = rate;
                let worker = self.clone();
                work.begin("compactor", move || worker.compact())
            }
            CompactionOrder::Stop => {
                work.what.files.clear();
                work.what.reads.clear();
                work.what.read_blocks = 0;
                work.what.stopped = work.progress.orders;
                Ok(())
            }
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

    /// Compresses until no order is left.
    fn compact(&self) {
        let mut work = lock(&self.compaction);
        let mut order = work.progress.orders;
        loop {
            let files = std::mem::take(&mut work.what.files);
            let told = std::mem::take(&mut work.what.reads);
            work.what.read_blocks = 0;
            let rate = work.what.rate;
            drop(work);
            let start = Instant::now();
            let is_stopped = || {
                let is_stopped = lock(&self.compaction).what.stopped >= order;
                is_stopped || self.stops.load(Ordering::Relaxed)
            };
            let goes_on = |done: &Compacted| {
                lock(&self.compaction).progress.counts = counts(done);
                pause(start, done.seen * BLOCK, rate, is_stopped);
                !is_stopped()
            };
            let reads = |ino| match told.get(&ino) {
                Some((rounds, ranges)) => Some(FileReads::of_profile(*rounds, ranges)),
                None => self.log.launch_reads(ino),
            };
            let compacted = self.log.compact(&files, reads, goes_on);
            let compacted = compacted.and_then(|done| self.log.checkpoint().map(|()| done));
            if let Ok(done) = &compacted {
                done.warnings
                    .iter()
                    .for_each(|warning| self.faults.note(warning.clone()));
            }
            work = lock(&self.compaction);
            let told = match &compacted {
                Ok(done) => counts(done),
                Err(_) => work.progress.counts.clone(),
            };
            match work.end(order, told, compacted.err()) {
                Some(next) => order = next,
                None => return,
            }
        }
    }

    fn text(&self, uid: u32) -> String {
        self.note_failure();
        let condition = self.log.condition();
        let layout = self.log.layout();
        let mut text = Exposition::default();
        let uuid = output::uuid(&layout.superblock.uuid);
        text.info(
            "log_info",
            &[("label", &layout.superblock.label), ("uuid", &uuid)],
        );
        text.gauge("up_seconds", self.started.elapsed().as_secs_f64());
        for (name, value) in self.workers.gauges() {
            text.gauge(name, value);
        }
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

impl<T> Work<T> {
    /// Takes an order, and begins the thread that does it if there is none.
    fn begin(&mut self, name: &str, work: impl FnOnce() + Send + 'static) -> Result<(), Errno> {
        // Who works already sees the order before it ends, for it asks under the same lock.
        if self.progress.orders == self.progress.done {
            let begun = thread::Builder::new().name(name.into()).spawn(work);
            let begun = begun.map_err(|e| Errno::from_io_error(&e).unwrap_or(Errno::AGAIN))?;
            self.worker = Some(begun);
        }
        self.progress.orders += 1;
        Ok(())
    }

    /// An order is done, and those before. The next one, if there is any.
    fn end(&mut self, order: u64, counts: Vec<u64>, failure: Option<FsError>) -> Option<u64> {
        let progress = &mut self.progress;
        progress.done = order;
        progress.counts = counts;
        progress.failure = failure.map(|error| error.to_string());
        (progress.orders > order).then_some(progress.orders)
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

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    unpoisoned(mutex.lock())
}

/// Numbers that [`COMPACTION`] shows of a compaction: files, files that are left alone, logical blocks looked at,
/// compressed ones, their bytes, warnings, and logical blocks of all files and those of them that were passed.
fn counts(done: &Compacted) -> Vec<u64> {
    let Compacted {
        files,
        others,
        total,
        passed,
        seen,
        blocks,
        bytes,
        processor: _,
        warnings,
    } = done;
    vec![
        *files,
        *others,
        *seen,
        *blocks,
        *bytes,
        warnings.len() as u64,
        *total,
        *passed,
    ]
}

/// Waits until so many bytes since `start` are no more than so many in a second, or somebody has it stop.
fn pause(start: Instant, bytes: u64, rate: Option<u64>, is_stopped: impl Fn() -> bool) {
    let Some(rate) = rate else { return };
    let due = Duration::from_secs_f64(bytes as f64 / rate.max(1) as f64);
    while start.elapsed() < due && !is_stopped() {
        thread::sleep(due.saturating_sub(start.elapsed()).min(LOOKS_EVERY));
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
            counts: vec![7, 0],
            failure: Some("a b".into()),
        };
        for progress in [failed, Progress::default()] {
            assert_eq!(Progress::parse(&progress.text()), Some(progress));
        }
        assert_eq!(Progress::parse("1\n"), None);
        assert_eq!(Progress::parse("1 x\n"), None);
    }

    #[test]
    fn orders_to_compress_are_read_whole_or_not_at_all() {
        let cases: [(&[u8], _); 14] = [
            (b"add 3 4", Some(CompactionOrder::Add(vec![Ino(3), Ino(4)]))),
            (b"add", Some(CompactionOrder::Add(vec![]))),
            (
                b"read 3 5 0 9 5 70 12 13 1 80",
                Some(CompactionOrder::Read(
                    Ino(3),
                    5,
                    vec![
                        (
                            0..9,
                            Mark {
                                order: 70,
                                launches: 5,
                            },
                        ),
                        (
                            12..13,
                            Mark {
                                order: 80,
                                launches: 1,
                            },
                        ),
                    ],
                )),
            ),
            (b"read 3", None),
            (b"read 3 5 0 9 5", None),
            (b"read 3 5 0 9 256 1", None),
            (b"read 3 5 0 4294967296 5 1", None),
            (b"go", Some(CompactionOrder::Go(None))),
            (b"go 512", Some(CompactionOrder::Go(Some(512)))),
            (b"stop", Some(CompactionOrder::Stop)),
            (b"stop now", None),
            (b"add x", None),
            (b"", None),
            (b"\xff", None),
        ];
        for (text, order) in cases {
            assert_eq!(CompactionOrder::parse(text), order, "{text:?}");
        }
    }
}
