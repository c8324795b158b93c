//! Errors that were met after the write they belong to was answered.
//!
//! Invariant W7 of `docs/design/bfuse.md`: each open file is told of an error once, and what lies behind it is still
//! tried.

use std::io;

use anteros_core::{FsError, Ino};

/// An error of a buffered write that no open file was told of.
#[derive(Debug)]
pub struct Unreported {
    /// The inode whose data could not be written.
    pub ino: Ino,
    /// Tells how the file system below called the file when it was closed, if it said so
    /// ([`name_by`](crate::Buffered::name_by)).
    pub path: Option<Vec<u8>>,
    /// Tells why.
    pub error: FsError,
}

/// The last error of an inode and who was told of it, as the kernel's `errseq_t` does it.
///
/// Each open file keeps the number of the last error it knows of. A second error that comes before the
/// first is told takes its place: an open file learns that something failed, and how it failed last.
#[derive(Debug, Default)]
pub(crate) struct Errors {
    last: Option<FsError>,
    number: u64,
    told: u64,
}

impl Errors {
    pub(crate) fn record(&mut self, error: FsError) {
        self.last = Some(error);
        self.number += 1;
    }

    /// Returns what an open file knows of that is opened now: everything.
    pub(crate) fn number(&self) -> u64 {
        self.number
    }

    /// The error to tell an open file that knows of `seen`, which then knows of all.
    pub(crate) fn tell(&mut self, seen: &mut u64) -> Option<FsError> {
        if *seen == self.number {
            return None;
        }
        *seen = self.number;
        self.told = self.number;
        self.last.as_ref().map(duplicate)
    }

    /// The error to tell at the close of a descriptor, if its open file knows only of `seen`. It is not used
    /// up by that: a process that ends closes all it has and does not look at the answer, while others may
    /// have a copy of the descriptor.
    pub(crate) fn tell_closing(&mut self, seen: u64) -> Option<FsError> {
        let mut seen = seen;
        self.tell(&mut seen)
    }

    /// Takes the last error if nobody was told of it.
    pub(crate) fn take_untold(&mut self) -> Option<FsError> {
        if self.told == self.number {
            return None;
        }
        self.told = self.number;
        self.last.as_ref().map(duplicate)
    }
}

/// Copies an error. A number of the operating system stays what it is.
pub(crate) fn duplicate(error: &FsError) -> FsError {
    match error {
        FsError::NotFound => FsError::NotFound,
        FsError::NotDirectory => FsError::NotDirectory,
        FsError::IsDirectory => FsError::IsDirectory,
        FsError::Invalid => FsError::Invalid,
        FsError::NoData => FsError::NoData,
        FsError::BeyondEnd => FsError::BeyondEnd,
        FsError::Unsupported => FsError::Unsupported,
        FsError::Corrupt(text) => FsError::Corrupt(text.clone()),
        FsError::Io(error) => FsError::Io(duplicate_io(error)),
        FsError::Exists => FsError::Exists,
        FsError::NotEmpty => FsError::NotEmpty,
        FsError::NoSpace => FsError::NoSpace,
        FsError::TooLarge => FsError::TooLarge,
        FsError::NameTooLong => FsError::NameTooLong,
        FsError::TooManyLinks => FsError::TooManyLinks,
        FsError::ReadOnly => FsError::ReadOnly,
        FsError::Later => FsError::Later,
        FsError::Host(error) => FsError::Host(duplicate_io(error)),
    }
}

fn duplicate_io(error: &io::Error) -> io::Error {
    match error.raw_os_error() {
        Some(number) => io::Error::from_raw_os_error(number),
        None => io::Error::new(error.kind(), error.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_is_told_once_to_each() {
        let mut errors = Errors::default();
        let (mut first, mut second) = (errors.number(), errors.number());
        errors.record(FsError::Host(io::Error::from_raw_os_error(28)));
        let mut late = errors.number();
        for seen in [&mut first, &mut second] {
            let told = errors.tell(seen).unwrap();
            assert!(matches!(told, FsError::Host(e) if e.raw_os_error() == Some(28)));
            assert!(errors.tell(seen).is_none());
        }
        assert!(errors.tell(&mut late).is_none());
        assert!(errors.take_untold().is_none());
    }

    #[test]
    fn a_close_tells_and_leaves_the_error_to_the_copies() {
        let mut errors = Errors::default();
        let mut seen = errors.number();
        errors.record(FsError::Invalid);
        assert!(errors.tell_closing(seen).is_some());
        assert!(errors.take_untold().is_none(), "told");
        assert!(errors.tell_closing(seen).is_some());
        assert!(errors.tell(&mut seen).is_some());
        assert!(errors.tell_closing(seen).is_none());
    }

    #[test]
    fn an_error_nobody_was_told_of_is_known_as_such() {
        let mut errors = Errors::default();
        let mut seen = errors.number();
        errors.record(FsError::Invalid);
        errors.tell(&mut seen);
        errors.record(FsError::NoData);
        assert!(matches!(errors.take_untold(), Some(FsError::NoData)));
        assert!(errors.take_untold().is_none());
    }
}
