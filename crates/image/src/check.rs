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
//! Memory is proportional to the number of different inodes and extents, whatever an image claims:
//! extents of many files on the same bytes are one entry of the map, a directory that repeats itself
//! is given up, and of findings [`CheckOptions::findings_max`] are kept. Time is not: an index may
//! truly have so many entries, and `work_bytes_max` is there for those who will not wait.
//!
//! | module | job |
//! |---|---|
//! | `header` | superblock, configurations, devices |
//! | `walk` | directories, links, the tree |
//! | `inspect` | one inode: attributes, index, extents |
//! | `space` | the map of the image: overlaps, unreachable blocks |
//! | `data` | decoding |
//! | `paths` | paths of findings |

mod data;
mod finding;
mod header;
mod inspect;
mod paths;
mod space;
mod walk;

use std::sync::atomic::{AtomicBool, AtomicU16, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

pub use finding::{Finding, FindingKind, Severity};

use crate::{Error, Image, Place};

/// What to check, and how hard to work.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CheckOptions {
    /// Threads that check, besides the caller's, which walks the directories; 0 means one for each
    /// processor.
    pub workers: usize,
    /// Whether to decode and read all data, instead of only checking where it lies.
    pub data: bool,
    /// How many findings are kept; the others are only counted.
    pub findings_max: usize,
    /// How many bytes of metadata and decoded data are looked at before the check gives up.
    pub work_bytes_max: u64,
}

impl Default for CheckOptions {
    /// All data, on all processors, 10,000 findings, however long it takes.
    fn default() -> Self {
        Self {
            workers: 0,
            data: true,
            findings_max: 10_000,
            work_bytes_max: u64::MAX,
        }
    }
}

/// How far a check has come.
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

/// Who wants to know how far a check has come.
pub trait CheckObserver: Sync {
    /// Called from any worker, many times a second.
    fn progress(&self, progress: CheckProgress);
}

/// Nobody.
impl CheckObserver for () {
    fn progress(&self, _: CheckProgress) {}
}

/// What a check found.
#[derive(Debug)]
pub struct CheckReport {
    /// By place; at most [`CheckOptions::findings_max`].
    pub findings: Vec<Finding>,
    /// Findings beyond those.
    pub findings_omitted: u64,
    /// The severity of the worst of all findings, omitted ones included.
    pub worst: Option<Severity>,
    /// Whether the caller ended the check.
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
    /// Whether nothing worse than a note was found, and the check was not ended early.
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
    let mut parts = header::check(&run);
    let tree = walk::walk(&run, &mut parts);
    header::check_totals(&run, tree.len() as u64);
    space::sort(&mut parts);
    let unreachable_bytes = space::check(&run, &parts);
    if options.data {
        data::check(&run, &parts);
    }
    run.finish(&tree, unreachable_bytes)
}

/// What all parts of a check share.
struct Run<'a> {
    image: &'a Image,
    options: &'a CheckOptions,
    observer: &'a dyn CheckObserver,
    cancel: &'a AtomicBool,
    findings: Mutex<Findings>,
    exhausted: AtomicBool,
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
            exhausted: AtomicBool::new(false),
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
        let mut findings = self.findings.lock().unwrap_or_else(PoisonError::into_inner);
        findings.worst = findings.worst.max(Some(finding.severity()));
        if findings.kept.len() < self.options.findings_max {
            findings.kept.push(finding);
        } else {
            findings.omitted += 1;
        }
    }

    fn note_error(&self, error: Error) {
        self.note(error.place(), FindingKind::Error(error));
    }

    /// Notes an error, or returns the value.
    fn ok<T>(&self, result: crate::Result<T>) -> Option<T> {
        result.map_err(|error| self.note_error(error)).ok()
    }

    fn is_ended(&self) -> bool {
        self.cancel.load(Ordering::Relaxed) || self.exhausted.load(Ordering::Relaxed)
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

    fn finish(self, tree: &walk::Tree, unreachable_bytes: u64) -> CheckReport {
        let findings = self
            .findings
            .into_inner()
            .unwrap_or_else(PoisonError::into_inner);
        let mut kept = findings.kept;
        // The same fault may have been met on two ways.
        kept.sort_by_cached_key(|finding| (finding.place, finding.kind.to_string()));
        kept.dedup_by_key(|finding| (finding.place, finding.kind.to_string()));
        paths::fill_in(self.image, tree, &mut kept);
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
