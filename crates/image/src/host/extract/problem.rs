//! Reasons why a file cannot be extracted.

use std::io;
use std::path::PathBuf;

use anteros_core::FileKind;
use anteros_format::Nid;

use crate::trail::Trail;
use crate::{Error, ImagePath};

/// Tells why a file could not be extracted.
#[derive(Debug, thiserror::Error)]
#[error("{path}: {problem}")]
pub struct ExtractError {
    /// The file.
    pub path: ImagePath,
    /// Tells why.
    pub problem: ExtractProblem,
}

/// Tells what can go wrong with a file.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ExtractProblem {
    /// The image could not be read.
    #[error(transparent)]
    Image(#[from] Error),
    /// The system refused something.
    #[error("cannot {action}: {source}")]
    Os {
        /// Holds what.
        action: &'static str,
        /// The error.
        source: io::Error,
    },
    /// The target could not be opened.
    #[error("cannot open the target {}: {source}", target.display())]
    Target {
        /// The target.
        target: PathBuf,
        /// The error.
        source: io::Error,
    },
    /// The target has this name already.
    #[error("it exists in the target; choose an empty target, or overwrite")]
    Exists,
    /// The name is that of a file that must not be replaced.
    #[error("the image that is extracted lies here, and is not replaced; choose another target")]
    Spared,
    /// A directory has this name in the target, and is no directory in the image.
    #[error("the target has a directory of this name, which is never replaced; remove it")]
    DirectoryInTheWay,
    /// A directory has two names: no tree has that, and a loop is one way to get there.
    #[error("directory inode {nid} has a second name, or contains itself")]
    DirectoryTwice {
        /// The inode.
        nid: Nid,
    },
    /// A directory entry says otherwise than its inode.
    #[error("the directory says that this is a {}, but it is a {}", .says.name(), .is.name())]
    Kind {
        /// Holds what the directory says.
        says: FileKind,
        /// Holds what the inode is.
        is: FileKind,
    },
    /// The name is one that no directory entry may have.
    #[error("a file cannot have this name")]
    Name,
    /// While it was to be linked, the first name of a file came to stand for another.
    #[error("somebody else replaced {first}, which this is a hard link to")]
    Replaced {
        /// The first name.
        first: ImagePath,
    },
    /// Before it had its data, it came to stand for another file.
    #[error("somebody else replaced it before its data were written")]
    Exchanged,
    /// So many parts of a large file could not be extracted that the rest was not tried.
    #[error("{PARTS_FAILED_MAX} parts of it cannot be extracted, and the rest was not tried")]
    Abandoned,
    /// The caller wished to stop.
    #[error("the extraction was cancelled here")]
    Cancelled,
}

/// A file is given up after so many parts that could not be extracted: an image of a few KiB can have
/// files of 2^60 bytes.
pub(super) const PARTS_FAILED_MAX: u32 = 256;

impl ExtractProblem {
    /// Returns whether the image itself is broken.
    pub const fn is_corrupt(&self) -> bool {
        match self {
            Self::Image(error) => error.is_corrupt(),
            Self::DirectoryTwice { .. } | Self::Kind { .. } | Self::Name => true,
            _ => false,
        }
    }
}

/// Says what was attempted when the system refuses.
pub(super) fn os<E: Into<io::Error>>(action: &'static str) -> impl Fn(E) -> ExtractProblem {
    move |source| ExtractProblem::Os {
        action,
        source: source.into(),
    }
}

pub(super) fn error_at(trail: &Trail, problem: ExtractProblem) -> ExtractError {
    ExtractError {
        path: trail.path(),
        problem,
    }
}
