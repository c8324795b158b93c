//! Words about a comparison: what an observer hears, what was found, why it could not be finished.

use std::io;

use rustix::io::Errno;

use super::difference::Difference;
use crate::{Error, ImagePath};

/// Hears how a comparison goes on, from several threads.
pub trait VerifyObserver: Sync {
    /// One more name was compared.
    fn compared_name(&self) {}

    /// So many more bytes were compared.
    fn compared_bytes(&self, _bytes: u64) {}
}

/// Hears nothing.
impl VerifyObserver for () {}

/// Holds what a comparison found.
#[derive(Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct VerifyReport {
    /// Names that both have, the root included.
    pub names: u64,
    /// Bytes of data compared.
    pub bytes: u64,
    /// The differences that were kept, sorted by path.
    pub differences: Vec<Difference>,
    /// All differences.
    pub difference_count: u64,
    /// Those among them that are [`Mismatch::Unreadable`](super::Mismatch::Unreadable).
    pub unreadable_count: u64,
}

/// Tells why a comparison could not be finished.
#[derive(Debug, thiserror::Error)]
#[error("{path}: {problem}")]
pub struct VerifyError {
    /// Tells where.
    pub path: ImagePath,
    /// Tells why.
    pub problem: VerifyProblem,
}

/// Tells what can stop a comparison, at its root or anywhere.
#[derive(Debug, thiserror::Error)]
pub enum VerifyProblem {
    /// The image could not be read.
    #[error(transparent)]
    Image(#[from] Error),
    /// The source could not be read.
    #[error("the source: {0}")]
    Source(#[from] io::Error),
    /// The caller wished to stop.
    #[error("the comparison was cancelled here")]
    Cancelled,
}

impl From<Errno> for VerifyProblem {
    fn from(error: Errno) -> Self {
        Self::Source(error.into())
    }
}
