//! Reasons why a member of an archive is not packed.

use std::io;
use std::path::{Path, PathBuf};

use anteros_codec::EncodeError;

use crate::Error;

/// Reasons why a member is not packed; where it lies is known to whoever reads it.
#[derive(Debug)]
pub(crate) enum Fault {
    /// It breaks a rule.
    Broken(String),
    /// It has a property that EROFS cannot keep.
    Unstorable(String),
    /// The archive ends within it.
    Truncated,
    Read(io::Error),
    Spool {
        directory: PathBuf,
        len: u64,
        cause: io::Error,
    },
    /// A file could not be compressed.
    Compress(EncodeError),
    /// The image could not be written.
    Image(Box<Error>),
    Cancelled,
}

impl Fault {
    /// The fault that an error of the image is.
    pub fn image(error: Error) -> Self {
        Self::Image(Box::new(error))
    }

    /// The error that it is: of the source, which was to be read, or at the place of what cannot be kept; `broken` names that of
    /// what breaks a rule.
    pub fn error(
        self,
        source: &Path,
        action: &'static str,
        truncated: &str,
        place: impl FnOnce() -> PathBuf,
        broken: impl FnOnce(String) -> Error,
    ) -> Error {
        match self {
            Self::Broken(reason) => broken(reason),
            Self::Truncated => broken(truncated.into()),
            Self::Unstorable(reason) => Error::Unstorable {
                path: place(),
                reason,
            },
            Self::Read(cause) => Error::Source {
                path: source.to_owned(),
                action,
                cause,
            },
            Self::Spool {
                directory,
                len,
                cause,
            } => Error::Spool {
                directory,
                kept_bytes: len,
                cause,
            },
            Self::Compress(cause) => Error::Compress {
                path: source.to_owned(),
                cause,
            },
            Self::Image(error) => *error,
            Self::Cancelled => Error::Cancelled,
        }
    }
}

pub(crate) fn broken<T>(reason: String) -> Result<T, Fault> {
    Err(Fault::Broken(reason))
}
