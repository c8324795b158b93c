//! State that all threads of a comparison share: what is wanted, and what was found.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use anteros_core::unpoisoned;

use super::difference::{Difference, Mismatch, Side};
use super::options::VerifyOptions;
use super::report::{VerifyError, VerifyObserver, VerifyProblem, VerifyReport};
use crate::Image;
use crate::trail::Trail;

/// State that the threads share.
pub(super) struct Run<'a> {
    pub(super) image: &'a Image,
    pub(super) options: &'a VerifyOptions<'a>,
    pub(super) observer: &'a dyn VerifyObserver,
    pub(super) cancel: &'a AtomicBool,
    failed: AtomicBool,
    outcome: Mutex<(VerifyReport, Option<VerifyError>)>,
}

impl<'a> Run<'a> {
    pub(super) fn new(
        image: &'a Image,
        options: &'a VerifyOptions<'a>,
        observer: &'a dyn VerifyObserver,
        cancel: &'a AtomicBool,
    ) -> Self {
        Self {
            image,
            options,
            observer,
            cancel,
            failed: AtomicBool::new(false),
            outcome: Mutex::default(),
        }
    }

    pub(super) fn finish(self) -> Result<VerifyReport, VerifyError> {
        let outcome = unpoisoned(self.outcome.into_inner());
        let (mut report, error) = outcome;
        report.differences.sort_unstable();
        error.map_or(Ok(report), Err)
    }

    pub(super) fn count(&self, count: impl FnOnce(&mut VerifyReport)) {
        count(&mut unpoisoned(self.outcome.lock()).0);
    }

    pub(super) fn differ(&self, trail: &Trail, what: Mismatch) {
        let is_unreadable = matches!(what, Mismatch::Unreadable { .. });
        self.count(|report| {
            report.difference_count += 1;
            report.unreadable_count += u64::from(is_unreadable);
            let of_a_kind = match report.unreadable_count {
                unreadable if is_unreadable => unreadable,
                unreadable => report.difference_count - unreadable,
            };
            if of_a_kind <= self.options.differences_max as u64 {
                report.differences.push(Difference {
                    path: trail.path(),
                    what,
                });
            }
        });
    }

    pub(super) fn fail(&self, trail: &Trail, problem: VerifyProblem) {
        let mut outcome = unpoisoned(self.outcome.lock());
        outcome.1.get_or_insert_with(|| VerifyError {
            path: trail.path(),
            problem,
        });
        self.failed.store(true, Ordering::Relaxed);
    }

    /// Returns what could be read, and tells of what could not.
    pub(super) fn told<T>(
        &self,
        trail: &Trail,
        part: &'static str,
        result: Result<T, impl Into<VerifyProblem>>,
    ) -> Option<T> {
        let told = |problem: VerifyProblem| self.leave_out(trail, part, problem);
        result.map_err(Into::into).map_err(told).ok()
    }

    /// Tells of a part that cannot be read, and goes on, unless the caller wishes to stop.
    pub(super) fn leave_out(&self, trail: &Trail, part: &'static str, problem: VerifyProblem) {
        let (side, why) = match problem {
            VerifyProblem::Image(error) => (Side::Image, error.to_string()),
            VerifyProblem::Source(error) => (Side::Source, error.to_string()),
            VerifyProblem::Cancelled => return self.fail(trail, problem),
        };
        self.differ(trail, Mismatch::Unreadable { side, part, why });
    }

    pub(super) fn stopped(&self) -> bool {
        self.failed.load(Ordering::Relaxed)
    }

    pub(super) fn check_cancel(&self) -> Result<(), VerifyProblem> {
        match self.cancel.load(Ordering::Relaxed) {
            true => Err(VerifyProblem::Cancelled),
            false => Ok(()),
        }
    }
}
