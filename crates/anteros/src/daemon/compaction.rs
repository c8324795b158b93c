//! Compression in the background because somebody orders it, and estimates of what it would gain.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use anteros_core::{FsResult, Ino};
use anteros_log::{Compacted, FileReads, Log, Mark};
use rustix::io::Errno;

use super::faults::Faults;
use super::tally::Tally;
use super::work::{Work, lock};

/// The attribute that orders compression in the background: `add` with the numbers of inodes, then `go` with the most bytes of
/// content in a second, if there is to be a most; `stop` ends it early. It tells how far that is: [`Progress`](super::work::Progress). Before `go`,
/// `read` tells what launches read of a file, in the place of what was recorded: its inode, the number of launches, and for each
/// range its first logical block and the one behind the last, how many launches read it, and its place in their order.
pub const COMPACTION: &str = "user.anteros.compaction";
/// The attribute that orders an estimate of what that would gain, by the same values: behind `go`, one of how many windows is
/// looked at. [`COUNT_ALL`] asks how the content of all files lies. It tells how far that is, with
/// the numbers of a [`Tally`].
pub const ESTIMATE: &str = "user.anteros.estimate";

/// Value that orders a count of what all files take.
pub const COUNT_ALL: &[u8] = b"all";

/// The most files that an order has.
const FILES_MAX: usize = 1 << 20;
/// The most logical blocks that it says to be read: 4 GiB.
const READ_MAX: u64 = 1 << 20;

const BLOCK: u64 = 4096;

/// Interval at which long work looks whether it is to stop.
const LOOKS_EVERY: Duration = Duration::from_millis(100);

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
    /// Tells whether all files are meant.
    is_all: bool,
    /// Bytes of content in a second, at most; of an estimate, one of how many windows is looked at.
    number: Option<u64>,
    /// Orders up to this one are to end now.
    stopped: u64,
}

impl Compaction {
    fn add(&mut self, files: Vec<Ino>) -> Result<(), Errno> {
        if self.files.len() + files.len() > FILES_MAX {
            return Err(Errno::NOSPC);
        }
        self.files.extend(files);
        Ok(())
    }

    fn add_reads(&mut self, ino: Ino, rounds: u8, ranges: Ranges) -> Result<(), Errno> {
        let lengths = ranges.iter().map(|(range, _)| range.len() as u64);
        let blocks = self.read_blocks + lengths.sum::<u64>();
        if blocks > READ_MAX {
            return Err(Errno::NOSPC);
        }
        self.read_blocks = blocks;
        let reads = self.reads.entry(ino).or_default();
        reads.0 = rounds;
        reads.1.extend(ranges);
        Ok(())
    }

    /// Takes out what was ordered until now.
    fn take(&mut self) -> Self {
        let stopped = self.stopped;
        let taken = std::mem::take(self);
        self.stopped = stopped;
        taken
    }
}

/// Values of the attributes.
#[derive(Debug, PartialEq, Eq)]
enum Order {
    Add(Vec<Ino>),
    Read(Ino, u8, Ranges),
    /// Of all files.
    All,
    Go(Option<u64>),
    Stop,
}

impl Order {
    fn parse(text: &[u8]) -> Option<Self> {
        if text == COUNT_ALL {
            return Some(Self::All);
        }
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

/// Compression of a log because somebody orders it, or an estimate of it.
pub struct Compactor {
    log: Arc<Log>,
    faults: Arc<Faults>,
    work: Mutex<Work<Compaction>>,
    /// Tells whether nothing is to be changed.
    is_trial: bool,
    /// No work any more: the log is closed.
    stops: AtomicBool,
}

impl Compactor {
    /// The one that [`COMPACTION`] asks, or with `is_trial` [`ESTIMATE`].
    pub fn new(log: &Arc<Log>, faults: &Arc<Faults>, is_trial: bool) -> Arc<Self> {
        Arc::new(Self {
            log: log.clone(),
            faults: faults.clone(),
            work: Mutex::default(),
            is_trial,
            stops: AtomicBool::new(false),
        })
    }

    /// Value of the attribute.
    pub fn text(&self) -> String {
        lock(&self.work).progress.text()
    }

    /// Tells whether an order is not done.
    pub fn goes_on(&self) -> bool {
        lock(&self.work).progress.goes_on()
    }

    /// Ends all work.
    pub fn finish(&self) {
        self.stops.store(true, Ordering::Relaxed);
        let worker = lock(&self.work).worker.take();
        worker.into_iter().for_each(|worker| drop(worker.join()));
    }

    /// Takes an order.
    pub fn order(self: &Arc<Self>, value: &[u8]) -> Result<(), Errno> {
        let mut work = lock(&self.work);
        match Order::parse(value).ok_or(Errno::INVAL)? {
            Order::Add(files) => work.what.add(files),
            Order::Read(ino, rounds, ranges) => work.what.add_reads(ino, rounds, ranges),
            Order::All if self.is_trial => {
                work.what.is_all = true;
                self.begin(&mut work)
            }
            Order::All => Err(Errno::INVAL),
            Order::Go(_) if !self.log.compresses() => Err(Errno::OPNOTSUPP),
            Order::Go(number) => {
                work.what.number = number;
                self.begin(&mut work)
            }
            Order::Stop => {
                let stopped = work.progress.orders;
                work.what = Compaction {
                    stopped,
                    ..Compaction::default()
                };
                Ok(())
            }
        }
    }

    fn begin(self: &Arc<Self>, work: &mut Work<Compaction>) -> Result<(), Errno> {
        let worker = self.clone();
        work.begin("compactor", move || worker.run())
    }

    /// Works until no order is left.
    fn run(&self) {
        let mut work = lock(&self.work);
        let mut order = work.progress.orders;
        loop {
            let what = work.what.take();
            drop(work);
            let done = match self.is_trial {
                true => self.estimate(order, &what),
                false => self.compact(order, &what),
            };
            work = lock(&self.work);
            let (numbers, failure) = match done {
                Ok(numbers) => (numbers, None),
                Err(error) => (work.progress.counts.clone(), Some(error)),
            };
            match work.end(order, numbers, failure) {
                Some(next) => order = next,
                None => return,
            }
        }
    }

    fn is_stopped(&self, order: u64) -> bool {
        lock(&self.work).what.stopped >= order || self.stops.load(Ordering::Relaxed)
    }

    /// Returns what launches read of a file: as it was told, or else recorded.
    fn reads(&self, what: &Compaction, ino: Ino) -> Option<FileReads> {
        match what.reads.get(&ino) {
            Some((rounds, ranges)) => Some(FileReads::of_profile(*rounds, ranges)),
            None => self.log.launch_reads(ino),
        }
    }

    fn warn(&self, warnings: &[String]) {
        let warnings = warnings.iter();
        warnings.for_each(|warning| self.faults.note(warning.clone()));
    }

    fn compact(&self, order: u64, what: &Compaction) -> FsResult<Vec<u64>> {
        let start = Instant::now();
        let goes_on = |done: &Compacted| {
            lock(&self.work).progress.counts = counts(done);
            let is_stopped = || self.is_stopped(order);
            pause(start, done.seen * BLOCK, what.number, is_stopped);
            !is_stopped()
        };
        let reads = |ino| self.reads(what, ino);
        let done = self.log.compact(&what.files, reads, goes_on)?;
        self.log.checkpoint()?;
        self.warn(&done.warnings);
        Ok(counts(&done))
    }

    fn estimate(&self, order: u64, what: &Compaction) -> FsResult<Vec<u64>> {
        if what.is_all {
            let usage = self.log.usage(|| !self.is_stopped(order))?;
            self.warn(&usage.warnings);
            return Ok(Tally::of_usage(&usage).numbers());
        }
        let goes_on = |done: &Compacted| {
            lock(&self.work).progress.counts = Tally::of_progress(done).numbers();
            !self.is_stopped(order)
        };
        let stride = what.number.unwrap_or(1);
        let reads = |ino| self.reads(what, ino);
        let estimate = self.log.estimate(&what.files, reads, stride, goes_on)?;
        self.warn(&estimate.warnings);
        Ok(Tally::of_estimate(&estimate).numbers())
    }
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
    fn orders_to_compress_are_read_whole_or_not_at_all() {
        let cases: [(&[u8], _); 15] = [
            (b"add 3 4", Some(Order::Add(vec![Ino(3), Ino(4)]))),
            (b"add", Some(Order::Add(vec![]))),
            (
                b"read 3 5 0 9 5 70 12 13 1 80",
                Some(Order::Read(
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
            (b"go", Some(Order::Go(None))),
            (b"go 512", Some(Order::Go(Some(512)))),
            (b"stop", Some(Order::Stop)),
            (b"all", Some(Order::All)),
            (b"stop now", None),
            (b"add x", None),
            (b"", None),
            (b"\xff", None),
        ];
        for (text, order) in cases {
            assert_eq!(Order::parse(text), order, "{text:?}");
        }
    }
}
