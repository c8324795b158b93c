//! Failures of the device: what has failed, and what is told of it.

use anteros_core::{FsError, FsResult};

use crate::store::blocks::Store;

impl Store {
    /// Refuses what would change anything when that cannot be.
    pub(crate) fn check_writable(&self) -> FsResult<()> {
        match self.failed {
            Some(_) => Err(FsError::ReadOnly),
            None if self.options.read_only => Err(FsError::ReadOnly),
            None => Ok(()),
        }
    }

    /// Takes what is wrong with the device and takes nothing away.
    pub(crate) fn take_notes(&mut self) -> Vec<String> {
        std::mem::take(&mut self.notes)
    }

    /// Notes that the device did not take a block.
    pub(crate) fn note_failure(&mut self) {
        if let Some(error) = self.writer.failure() {
            self.fail("a write to the device failed", &error);
        }
    }

    /// Nothing is changed from here on: what is on the device is whole, what is in memory may not be.
    pub(crate) fn fail(&mut self, what: &str, error: &FsError) {
        if self.failed.is_none() {
            self.failed = Some(format!("{what}: {error}"));
        }
    }

    /// Reason why nothing can be changed any more, if there is one.
    pub(crate) fn failed(&self) -> Option<&String> {
        self.failed.as_ref()
    }

    /// Takes the warnings that were not taken yet, and what there was to note.
    pub(crate) fn take_warnings(&mut self) -> Vec<String> {
        let mut warnings = std::mem::take(&mut self.warnings);
        warnings.append(&mut self.notes);
        warnings
    }

    /// Keeps a warning until it is taken.
    pub(crate) fn warn(&mut self, text: String) {
        self.warnings.push(text);
    }

    /// Keeps a trouble of the device that takes nothing away, until it is told.
    pub(crate) fn note(&mut self, text: String) {
        self.notes.push(text);
    }
}
