//! State that all parts of a check share.

use std::io;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU16, AtomicU64, Ordering};

use anteros_core::{Sorter, unpoisoned};

use super::finding::{Finding, FindingKind, Severity};
use super::part::{Part, Parts};
use super::report::{CheckObserver, CheckOptions, CheckProgress, CheckReport, Unused};
use crate::{Error, Image, Place};

/// State of one check.
pub(super) struct Run<'a> {
    pub(super) image: &'a Image,
    pub(super) options: &'a CheckOptions,
    pub(super) observer: &'a dyn CheckObserver,
    pub(super) cancel: &'a AtomicBool,
    findings: Mutex<Findings>,
    parts: Mutex<Sorter<Part>>,
    exhausted: AtomicBool,
    /// Tells whether the medium has failed somewhere: what is missing may lie there, and is no fault of the image.
    unread: AtomicBool,
    work_bytes: AtomicU64,
    pub(super) inodes: AtomicU64,
    pub(super) extents: AtomicU64,
    pub(super) data_bytes: AtomicU64,
    pub(super) data_bytes_total: AtomicU64,
    /// The algorithms that extents use, as the superblock's bitmap.
    pub(super) algorithms: AtomicU16,
}

#[derive(Default)]
struct Findings {
    kept: Vec<Finding>,
    omitted: u64,
    worst: Option<Severity>,
}

impl<'a> Run<'a> {
    pub(super) fn new(
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

    pub(super) fn workers(&self) -> usize {
        match self.options.workers {
            0 => std::thread::available_parallelism().map_or(1, usize::from),
            workers => workers,
        }
    }

    pub(super) fn note(&self, place: Place, kind: FindingKind) {
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

    pub(super) fn note_error(&self, error: Error) {
        if matches!(error, Error::Io { .. }) {
            self.unread.store(true, Ordering::Relaxed);
        }
        self.note(error.place(), FindingKind::Error(error));
    }

    /// Notes an error, or returns the value.
    pub(super) fn ok<T>(&self, result: crate::Result<T>) -> Option<T> {
        result.map_err(|error| self.note_error(error)).ok()
    }

    /// Hands over all parts that were gathered.
    pub(super) fn all_parts(&self) -> Option<Parts> {
        let empty = Sorter::new(0);
        let gathered = std::mem::replace(&mut *lock(&self.parts), empty);
        self.scratch(gathered.finish())
    }

    /// Takes the parts that a worker gathered.
    pub(super) fn take_parts(&self, parts: &mut Vec<Part>) {
        let mut all = lock(&self.parts);
        let taken = parts.drain(..).try_for_each(|part| all.push(part));
        drop(all);
        self.scratch(taken);
    }

    /// Ends the check if its temporary file fails, or returns the value.
    pub(super) fn scratch<T>(&self, result: io::Result<T>) -> Option<T> {
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

    pub(super) fn is_ended(&self) -> bool {
        self.cancel.load(Ordering::Relaxed) || self.exhausted.load(Ordering::Relaxed)
    }

    /// Returns whether all that leads to others was read, up to now.
    pub(super) fn is_all_read(&self) -> bool {
        !self.unread.load(Ordering::Relaxed)
    }

    /// Takes so many bytes from the budget; `false` when there is no reason to go on.
    pub(super) fn spend(&self, bytes: u64) -> bool {
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

    pub(super) fn report_progress(&self) {
        self.observer.progress(CheckProgress {
            inodes: self.inodes.load(Ordering::Relaxed),
            inodes_total: self.image.superblock().inodes,
            data_bytes: self.data_bytes.load(Ordering::Relaxed),
            data_bytes_total: self.data_bytes_total.load(Ordering::Relaxed),
        });
    }

    pub(super) fn finish(self, unused: Unused) -> CheckReport {
        let findings = unpoisoned(self.findings.into_inner());
        let mut kept = findings.kept;
        // The same fault may have been met on two ways.
        kept.sort_by_cached_key(|finding| (finding.place, finding.kind.to_string()));
        kept.dedup_by_key(|finding| (finding.place, finding.kind.to_string()));
        CheckReport {
            findings: kept,
            findings_omitted: findings.omitted,
            worst: findings.worst,
            cancelled: self.cancel.load(Ordering::Relaxed),
            inodes: self.inodes.into_inner(),
            extents: self.extents.into_inner(),
            data_bytes: self.data_bytes.into_inner(),
            unreachable_bytes: unused.block_bytes,
            gaps: unused.gaps,
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    unpoisoned(mutex.lock())
}
