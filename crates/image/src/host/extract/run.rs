//! State that all threads of an extraction share: what is wanted, what was done, what went wrong.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex};

use anteros_core::{FileKind, unpoisoned};
use anteros_format::inode::Inode;

use super::options::ExtractOptions;
use super::problem::{ExtractError, ExtractProblem, PARTS_FAILED_MAX, error_at};
use super::report::{ERRORS_KEPT, ExtractObserver, ExtractSummary, Omitted, Warning};
use crate::Image;
use crate::trail::Trail;

/// State that the threads share.
pub(super) struct Run<'a> {
    pub(super) image: &'a Image,
    pub(super) options: &'a ExtractOptions,
    pub(super) observer: &'a dyn ExtractObserver,
    cancel: &'a AtomicBool,
    /// The directory of the target.
    pub(super) root: OwnedFd,
    /// Set by the first error that ends the run.
    stop: AtomicBool,
    summary: Mutex<ExtractSummary>,
}

/// A file that was just created.
pub(super) struct Created<'a> {
    pub(super) fd: OwnedFd,
    pub(super) inode: &'a Inode,
    pub(super) trail: &'a Arc<Trail>,
    pub(super) inherits_acl: bool,
}

/// A file that was created and waits for its data.
pub(super) struct OpenFile {
    pub(super) fd: OwnedFd,
    pub(super) inode: Inode,
    pub(super) trail: Arc<Trail>,
    pub(super) inherits_acl: bool,
    /// Tells how many parts of its data could not be had; if any, it is left as it is.
    pub(super) parts_failed: AtomicU32,
}

impl<'a> Run<'a> {
    pub(super) fn new(
        image: &'a Image,
        options: &'a ExtractOptions,
        observer: &'a dyn ExtractObserver,
        cancel: &'a AtomicBool,
        root: OwnedFd,
    ) -> Self {
        Self {
            image,
            options,
            observer,
            cancel,
            root,
            stop: AtomicBool::new(false),
            summary: Mutex::default(),
        }
    }

    pub(super) fn finish(self) -> Result<ExtractSummary, ExtractError> {
        let mut summary = unpoisoned(self.summary.into_inner());
        match self.stop.into_inner() {
            true => Err(summary.errors.swap_remove(0)),
            false => Ok(summary),
        }
    }

    pub(super) fn count(&self, count: impl FnOnce(&mut ExtractSummary)) {
        let mut summary = unpoisoned(self.summary.lock());
        count(&mut summary);
    }

    pub(super) fn fail(&self, trail: &Trail, problem: ExtractProblem) {
        let ends = !self.options.keep_going || matches!(problem, ExtractProblem::Cancelled);
        let error = error_at(trail, problem);
        self.count(|summary| {
            // The error that ends the run is the first, and is there before others see the end.
            match ends && !self.stop.swap(true, Ordering::Relaxed) {
                true => summary.errors.insert(0, error),
                false if summary.errors.len() < ERRORS_KEPT => summary.errors.push(error),
                false => {}
            }
            summary.error_count += 1;
        });
    }

    pub(super) fn warn(&self, trail: &Trail, omitted: Omitted, source: io::Error) {
        self.count(|summary| match omitted {
            Omitted::Device => summary.devices_omitted += 1,
            Omitted::Xattr(_) => summary.xattrs_omitted += 1,
        });
        self.observer.warning(&Warning {
            path: trail.path(),
            omitted,
            source,
        });
    }

    pub(super) fn check_cancel(&self) -> Result<(), ExtractProblem> {
        match self.cancel.load(Ordering::Relaxed) {
            true => Err(ExtractProblem::Cancelled),
            false => Ok(()),
        }
    }

    pub(super) fn stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    /// Fails when there is no use in further parts of a file.
    pub(super) fn may_go_on_with(&self, file: &OpenFile) -> Result<(), ExtractProblem> {
        self.check_cancel()?;
        if self.stopped() {
            return Err(ExtractProblem::Cancelled);
        }
        match file.parts_failed.load(Ordering::Relaxed) {
            PARTS_FAILED_MAX.. => Err(ExtractProblem::Abandoned),
            _ => Ok(()),
        }
    }

    /// Tells the observer of a name that was created.
    pub(super) fn report(&self, trail: &Trail, kind: FileKind) {
        if self.observer.wants_names() {
            self.observer.created(&trail.path(), kind);
        }
    }
}
