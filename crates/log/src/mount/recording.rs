//! A record of launches while it goes on.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64};

use crate::cleaning::launches::Launches;
use crate::compress::kind::ContentKind;

/// Launches of a mounted log, and for whom they are recorded.
pub(super) struct Recording {
    pub(super) launches: Mutex<Launches>,
    /// Tells whether somebody asks for it: nothing is read ahead then, and each launch reads anew.
    pub(super) is_asked: bool,
    /// [`Launches::changes`] as the log keeps it.
    pub(super) kept: AtomicU64,
    /// Tells whether what is gone or has changed since was forgotten.
    pub(super) is_pruned: AtomicBool,
}

impl Recording {
    pub(super) fn new(launches: Launches, is_asked: bool) -> Self {
        Self {
            launches: Mutex::new(launches),
            is_asked,
            kept: AtomicU64::new(0),
            is_pruned: AtomicBool::new(false),
        }
    }

    /// Tells whether reads of such files are recorded: of all that is not written over and over, or of executables alone.
    pub(super) fn wants(&self, kind: ContentKind) -> bool {
        match self.is_asked {
            true => !kind.is_rewritten(),
            false => kind == ContentKind::Executable,
        }
    }
}
