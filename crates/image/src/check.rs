//! Checking a whole image.
//!
//! Two passes. The first visits everything that describes data: one thread walks the directories
//! (each once) and hands every inode that it meets for the first time to the workers, which check
//! its attributes, its index and every extent, and note which bytes of which device each of these
//! takes. The notes of all workers, sorted by address, are then the map of the image: what overlaps
//! stands side by side, and so does what is shared. The second pass goes over that map in the order
//! of the addresses and decodes each encoded extent and reads each run of plain bytes once, however
//! many files share it.
//!
//! A fault is noted and the rest goes on; the only ways to end early are the caller's `cancel` and
//! [`CheckOptions::work_bytes_max`], and both are told in the report. Paths are looked up afterwards,
//! for the findings alone.
//!
//! Memory is bounded by [`CheckOptions::memory_bytes`] and the buffers of the workers, whatever an
//! image claims. Notes beyond it are sorted in a temporary file (`TMPDIR`), which is proportional to
//! the number of different inodes and extents: extents of many files on the same bytes are one entry
//! of the map, a directory that repeats itself is given up, and of findings
//! [`CheckOptions::findings_max`] are kept. Time is not bounded: an index may truly have so many
//! entries, and `work_bytes_max` is there for those who will not wait.
//!
//! | module | job |
//! |---|---|
//! | `header` | superblock, configurations, devices |
//! | `walk` | directories, links, the tree |
//! | `pending` | the directories that are still to be read |
//! | `names` | the names of each inode |
//! | `inspect` | one inode: attributes, index, extents |
//! | `values` | attributes that the kernel reads itself |
//! | `space`, `stored` | the map of the image: overlaps, unreachable blocks |
//! | `data` | decoding |
//! | `digest` | digests of content that files have as attributes |
//! | `paths` | paths of findings |

mod data;
mod digest;
mod finding;
mod header;
mod inspect;
mod names;
mod paths;
mod pending;
mod space;
mod stored;
mod values;
mod walk;

use std::io;
use std::sync::atomic::{AtomicBool, AtomicU16, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use anteros_core::Sorter;

pub use finding::{Finding, FindingKind, Severity};

use crate::{Error, Image, Place};

/// Holds what to check, and how hard to work.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CheckOptions {
    /// Threads that check, besides the caller's, which walks the directories; 0 means one for each
    /// processor.
    pub workers: usize,
    /// Tells whether to decode and read all data, instead of only checking where it lies.
    pub data: bool,
    /// Tells whether to compare the content of each file with the digest that the image has of it, which takes a further
    /// look at all of it.
    pub digests: bool,
    /// Tells how many findings are kept; the others are only counted.
    pub findings_max: usize,
    /// Tells how many bytes of metadata and decoded data are looked at before the check gives up.
    pub work_bytes_max: u64,
    /// Tells how many bytes of notes are kept in memory; more are written to a temporary file.
    pub memory_bytes: usize,
}

impl Default for CheckOptions {
    /// All data, on all processors, 10,000 findings, however long it takes, with 8 MiB for notes.
    fn default() -> Self {
        Self {
            workers: 0,
            data: true,
            digests: false,
            findings_max: 10_000,
            work_bytes_max: u64::MAX,
            memory_bytes: 8 << 20,
        }
    }
}

/// Describes how far a check has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CheckProgress {
    /// Inodes checked.
    pub inodes: u64,
    /// Inodes in all, as the superblock says.
    pub inodes_total: u64,
    /// Bytes of data decoded or read.
    pub data_bytes: u64,
    /// Bytes of data in all; 0 until all inodes are checked.
    pub data_bytes_total: u64,
}

/// Describes who wants to know how far a check has come.
pub trait CheckObserver: Sync {
    /// Called from any worker, many times a second.
    fn progress(&self, progress: CheckProgress);
}

/// Nobody.
impl CheckObserver for () {
    fn progress(&self, _: CheckProgress) {}
}

/// Holds what a check found.
#[derive(Debug)]
pub struct CheckReport {
    /// By place; at most [`CheckOptions::findings_max`].
    pub findings: Vec<Finding>,
    /// Findings beyond those.
    pub findings_omitted: u64,
    /// The severity of the worst of all findings, omitted ones included.
    pub worst: Option<Severity>,
    /// Tells whether the caller ended the check.
    pub cancelled: bool,
    /// Inodes checked.
    pub inodes: u64,
    /// Extents found, holes not counted.
    pub extents: u64,
    /// Bytes of data decoded or read; what files share counts once.
    pub data_bytes: u64,
    /// Bytes in blocks of the primary device that nothing refers to.
    pub unreachable_bytes: u64,
}

impl CheckReport {
    /// Returns whether nothing worse than a note was found, and the check was not ended early.
    pub fn is_clean(&self) -> bool {
        !self.cancelled && self.worst.is_none_or(|worst| worst == Severity::Note)
    }
}

/// Checks a whole image. It is best opened without verifying the checksum: that is done here, and so
/// the other faults are found as well.
pub fn check(
    image: &Image,
    options: &CheckOptions,
    observer: &dyn CheckObserver,
    cancel: &AtomicBool,
) -> CheckReport {
    let run = Run::new(image, options, observer, cancel);
    if options.digests && image.superblock().digest_prefix.is_none() {
        run.note(Place::Superblock, FindingKind::NoDigests);
    }
    run.take_parts(&mut header::check(&run));
    let names = walk::walk(&run);
    let unreachable_bytes = check_space(&run);
    run.finish(names.as_ref(), unreachable_bytes)
}

/// Checks the map of the image, and the data on it.
fn check_space(run: &Run<'_>) -> u64 {
    let empty = Sorter::new(0);
    let gathered = std::mem::replace(&mut *lock(&run.parts), empty);
    let Some(parts) = run.scratch(gathered.finish()) else {
        return 0;
    };
    let unreachable_bytes = space::check(run, &parts);
    if run.options.data {
        data::check(run, &parts);
    }
    unreachable_bytes
}

/// Holds what all parts of a check share.
struct Run<'a> {
    image: &'a Image,
    options: &'a CheckOptions,
    observer: &'a dyn CheckObserver,
    cancel: &'a AtomicBool,
    findings: Mutex<Findings>,
    parts: Mutex<Sorter<space::Part>>,
    exhausted: AtomicBool,
    /// Tells whether the medium has failed somewhere: what is missing may lie there, and is no fault of the image.
    unread: AtomicBool,
    work_bytes: AtomicU64,
    inodes: AtomicU64,
    extents: AtomicU64,
    data_bytes: AtomicU64,
    data_bytes_total: AtomicU64,
    /// The algorithms that extents use, as the superblock's bitmap.
    algorithms: AtomicU16,
}

#[derive(Default)]
struct Findings {
    kept: Vec<Finding>,
    omitted: u64,
    worst: Option<Severity>,
}

impl<'a> Run<'a> {
    fn new(
        image: &'a Image,
        options: &'a CheckOptions,
        observer: &'a dyn CheckObserver,
        cancel: &'a AtomicBool,
    ) -> Self {
        Self {
            image,
            options,
            observer,
            cancel,
            findings: Mutex::default(),
            parts: Mutex::new(Sorter::new(options.memory_bytes / 2)),
            exhausted: AtomicBool::new(false),
            unread: AtomicBool::new(false),
            work_bytes: AtomicU64::new(0),
            inodes: AtomicU64::new(0),
            extents: AtomicU64::new(0),
            data_bytes: AtomicU64::new(0),
            data_bytes_total: AtomicU64::new(0),
            algorithms: AtomicU16::new(0),
        }
    }

    fn workers(&self) -> usize {
        match self.options.workers {
            0 => std::thread::available_parallelism().map_or(1, usize::from),
            workers => workers,
        }
    }

    fn note(&self, place: Place, kind: FindingKind) {
        let finding = Finding {
            place,
            path: None,
            kind,
        };
        let mut findings = lock(&self.findings);
        findings.worst = findings.worst.max(Some(finding.severity()));
        if findings.kept.len() < self.options.findings_max {
            findings.kept.push(finding);
        } else {
            findings.omitted += 1;
        }
    }

    fn note_error(&self, error: Error) {
        if matches!(error, Error::Io { .. }) {
            self.unread.store(true, Ordering::Relaxed);
        }
        self.note(error.place(), FindingKind::Error(error));
    }

    /// Notes an error, or returns the value.
    fn ok<T>(&self, result: crate::Result<T>) -> Option<T> {
        result.map_err(|error| self.note_error(error)).ok()
    }

    /// Takes the parts that a worker gathered.
    fn take_parts(&self, parts: &mut Vec<space::Part>) {
        let mut all = lock(&self.parts);
        let taken = parts.drain(..).try_for_each(|part| all.push(part));
        drop(all);
        self.scratch(taken);
    }

    /// Ends the check if its temporary file fails, or returns the value.
    fn scratch<T>(&self, result: io::Result<T>) -> Option<T> {
        let failed = |source| {
            if !self.exhausted.swap(true, Ordering::Relaxed) {
                let device = format!("temporary file in {}", std::env::temp_dir().display());
                self.note_error(Error::Io {
                    place: Place::Image,
                    device,
                    at: None,
                    source,
                });
            }
        };
        result.map_err(failed).ok()
    }

    fn is_ended(&self) -> bool {
        self.cancel.load(Ordering::Relaxed) || self.exhausted.load(Ordering::Relaxed)
    }

    /// Returns whether all that leads to others was read, up to now.
    fn is_all_read(&self) -> bool {
        !self.unread.load(Ordering::Relaxed)
    }

    /// Takes so many bytes from the budget; `false` when there is no reason to go on.
    fn spend(&self, bytes: u64) -> bool {
        if self.is_ended() {
            return false;
        }
        let spent = self
            .work_bytes
            .fetch_add(bytes, Ordering::Relaxed)
            .saturating_add(bytes);
        if spent <= self.options.work_bytes_max {
            return true;
        }
        if !self.exhausted.swap(true, Ordering::Relaxed) {
            let limit = self.options.work_bytes_max;
            self.note(Place::Image, FindingKind::BudgetExhausted { limit });
        }
        false
    }

    fn report_progress(&self) {
        self.observer.progress(CheckProgress {
            inodes: self.inodes.load(Ordering::Relaxed),
            inodes_total: self.image.superblock().inodes,
            data_bytes: self.data_bytes.load(Ordering::Relaxed),
            data_bytes_total: self.data_bytes_total.load(Ordering::Relaxed),
        });
    }

    fn finish(self, names: Option<&names::Names>, unreachable_bytes: u64) -> CheckReport {
        let findings = self
            .findings
            .into_inner()
            .unwrap_or_else(PoisonError::into_inner);
        let mut kept = findings.kept;
        // The same fault may have been met on two ways.
        kept.sort_by_cached_key(|finding| (finding.place, finding.kind.to_string()));
        kept.dedup_by_key(|finding| (finding.place, finding.kind.to_string()));
        if let Some(names) = names {
            // Findings without paths are better than none.
            let _ = paths::fill_in(self.image, names, &mut kept);
        }
        CheckReport {
            findings: kept,
            findings_omitted: findings.omitted,
            worst: findings.worst,
            cancelled: self.cancel.load(Ordering::Relaxed),
            inodes: self.inodes.into_inner(),
            extents: self.extents.into_inner(),
            data_bytes: self.data_bytes.into_inner(),
            unreachable_bytes,
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
