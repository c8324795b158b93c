//! Failures of a build, and what they leave.

use std::io;
use std::path::Path;

use anteros_build::Error;
use anteros_core::FsError;

use crate::failure::{Failure, Kind};

/// The target before the image is there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Before {
    Nothing,
    /// A file that stays until the new one is complete.
    File,
    /// A target that is written in place.
    Place,
}

impl Before {
    pub fn of(image: &Path, options: &anteros_build::Options) -> Self {
        match std::fs::metadata(image).map(|found| found.is_file()) {
            Err(_) => Self::Nothing,
            Ok(true) if options.offset == 0 => Self::File,
            Ok(_) => Self::Place,
        }
    }

    /// Says what is left after a build that came to no end.
    pub const fn left(self) -> &'static str {
        match self {
            Self::Nothing => "there is no image",
            Self::File => "the file that was there before is as it was",
            Self::Place => "no image is left where it was being written",
        }
    }
}

/// The failure that an error of the builder is.
pub fn failure(image: &Path, before: Before, error: &Error) -> Failure {
    let kind = match error {
        Error::Option(_) | Error::Occupied { .. } | Error::ImageInsideSource { .. } => Kind::Usage,
        Error::Archive { .. } | Error::Manifest { .. } => Kind::Corrupt,
        Error::Unstorable { .. } | Error::TooLarge { .. } => Kind::Unsupported,
        Error::FileSystem { cause, .. } => match cause {
            FsError::Corrupt(_) => Kind::Corrupt,
            FsError::Unsupported => Kind::Unsupported,
            _ => Kind::System,
        },
        Error::Source { cause, .. } if cause.kind() == io::ErrorKind::Unsupported => {
            Kind::Unsupported
        }
        Error::Cancelled => {
            let message = format!("{}: interrupted; {}", image.display(), before.left());
            return Failure::new(Kind::Interrupted, message);
        }
        _ => Kind::System,
    };
    let failure = Failure::new(kind, error);
    match error {
        Error::Changed { .. } => failure.hint("pack a snapshot, or a tree that nobody writes to"),
        Error::Occupied { .. } => failure.hint("--force overwrites it"),
        Error::Archive { .. } => failure.hint("`tar -tvf`, or `cpio -tv`, lists what an archive holds"),
        Error::Manifest { reason, .. } if reason.contains("name the directory") => {
            failure.hint("--content-root DIR names it")
        }
        Error::FileSystem {
            cause: FsError::Corrupt(_),
            ..
        } => failure.hint("`anteros check` lists every fault of an image, `anteros log check` of a log"),
        Error::Spool { .. } | Error::SpoolImage { .. } => failure.hint("TMPDIR names another directory"),
        Error::Image { cause, .. } if cause.kind() == io::ErrorKind::StorageFull => {
            failure.hint(match before {
                Before::File => {
                    "the new image needs its place beside the old one, which is as it was, until it is complete"
                }
                _ => before.left(),
            })
        }
        _ => failure,
    }
}
