//! Why a log cannot be made or mounted.

use std::io;

use anteros_core::FsError;

use crate::layout::superblock::TooSmall;
use crate::layout::{Corrupt, Fault, Unsupported};

/// Why a log cannot be made or mounted. The device is named by whoever asked.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LogError {
    /// The device could not be read or written.
    #[error(transparent)]
    Device(#[from] io::Error),
    /// Corrupt metadata: it breaks a rule of the format.
    #[error(transparent)]
    Corrupt(#[from] Corrupt),
    /// The log needs something that this program does not know.
    #[error(transparent)]
    Unsupported(#[from] Unsupported),
    /// The device is smaller than the log that begins on it.
    #[error("the log has {blocks} blocks of 4,096 bytes, but the device has {bytes} bytes")]
    Truncated {
        /// Blocks that the superblock says.
        blocks: u64,
        /// Bytes that the device has.
        bytes: u64,
    },
    /// Neither checkpoint pack is whole.
    #[error("neither checkpoint is whole: {0}; {1}")]
    NoCheckpoint(Corrupt, Corrupt),
    /// The newest checkpoint is damaged, and what the other one names may have been overwritten.
    #[error(
        "the newest checkpoint is damaged ({fault}); checkpoint {version} is whole but out of date, and what it names may have been overwritten since"
    )]
    OutOfDate {
        /// The checkpoint before.
        version: u64,
        /// Fault of the newest checkpoint.
        fault: Corrupt,
    },
    /// The device is too small for a log.
    #[error(transparent)]
    TooSmall(#[from] TooSmall),
    /// There are not so many bytes on the device.
    #[error("{wanted} bytes are wanted, but the device has {bytes}")]
    BeyondDevice {
        /// Bytes that the log was to have.
        wanted: u64,
        /// Bytes that the device has.
        bytes: u64,
    },
    /// A log cannot shrink so far.
    #[error("{bytes} bytes are too few: what the log holds, and its tables, take at least {least}")]
    TooFull {
        /// Bytes that the log was to have.
        bytes: u64,
        /// Bytes that it needs.
        least: u64,
    },
    /// A log would have no segment more.
    #[error(
        "{bytes} bytes are too few to grow to: tables behind the new end take room as well, and only {least} bytes have any for files"
    )]
    GrowsTooLittle {
        /// Bytes that the log was to have.
        bytes: u64,
        /// Bytes with which it would grow.
        least: u64,
    },
    /// So much in the log is damaged that a repair would take more memory than it may.
    #[error(
        "so much is damaged in this log that a repair would take more than {} KiB of memory, and may take {} KiB",
        needed >> 10,
        memory >> 10
    )]
    Memory {
        /// Bytes that it would take.
        needed: u64,
        /// Bytes that it may take.
        memory: u64,
    },
    /// A step of the file system failed.
    #[error(transparent)]
    Fs(#[from] FsError),
}

impl From<Fault> for LogError {
    fn from(fault: Fault) -> Self {
        match fault {
            Fault::Corrupt(corrupt) => corrupt.into(),
            Fault::Unsupported(unsupported) => unsupported.into(),
        }
    }
}

impl LogError {
    /// Advice for the user, where there is any.
    pub fn hint(&self) -> Option<&'static str> {
        match self {
            Self::OutOfDate { .. } => Some(
                "copy the device first; then `anteros log check --repair --go-back` makes the most of the older checkpoint",
            ),
            Self::Corrupt(_) | Self::NoCheckpoint(..) | Self::Fs(FsError::Corrupt(_)) => {
                Some("`anteros log check` lists every fault")
            }
            Self::Truncated { .. } => {
                Some("copy the whole of it, or grow the file with `truncate -s`")
            }
            Self::Memory { .. } => Some("give it more with --memory"),
            Self::Unsupported(_) => Some("a newer anteros may know it"),
            _ => None,
        }
    }
}
