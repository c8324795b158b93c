//! Distance that the kernel reads ahead of a process: a number of the mount that root may change.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use anteros_core::unpoisoned;
use rustix::fs::{AtFlags, CWD, StatxFlags, statx};

/// States what the kernel reads of a file in which whoever opens it jumps about: a page, in KiB.
const SHORT_KIB: u64 = 4;

/// Sets the readahead of the mount whose root is `root`, if `wanted` (bytes), and returns what it is
/// then, in bytes; `None` if that cannot be found out. The mount need not be served yet.
///
/// The handshake can only lower the number; raising it beyond the kernel's default takes root.
pub fn set(root: &Path, wanted: Option<usize>) -> Option<u64> {
    let knob = knob(root)?;
    if let Some(len) = wanted {
        // A wish: whether it came true is what the file says next.
        let _ = fs::write(&knob, (len >> 10).to_string());
    }
    let kib: u64 = fs::read_to_string(&knob).ok()?.trim().parse().ok()?;
    kib.checked_mul(1 << 10)
}

/// The file that holds the readahead in KiB. Only the device number is asked for, and of what the
/// kernel has cached: a request would wait for an answer for ever.
fn knob(root: &Path) -> Option<PathBuf> {
    let stat = statx(CWD, root, AtFlags::STATX_DONT_SYNC, StatxFlags::empty()).ok()?;
    let (major, minor) = (stat.stx_dev_major, stat.stx_dev_minor);
    Some(format!("/sys/class/bdi/{major}:{minor}/read_ahead_kb").into())
}

/// A readahead for each file. An open file keeps the number that the mount has when the kernel hears that it is open, so
/// that is set before. Of two that are opened at the same moment one may get the number of the other, which costs time alone.
pub struct ByFile {
    knob: File,
    usual_kib: u64,
    kib: Mutex<u64>,
}

impl ByFile {
    /// Of the mount whose root is `root`, where the readahead is `usual` bytes; `None` for who may not change it.
    pub fn new(root: &Path, usual: u64) -> Option<Self> {
        let usual_kib = usual >> 10;
        let knob = File::options().write(true).open(knob(root)?).ok()?;
        Some(Self {
            knob,
            usual_kib,
            kib: Mutex::new(usual_kib),
        })
    }

    /// Has the file that is about to be open read ahead of as it is fit for it.
    pub fn suit(&self, is_read_in_jumps: bool) {
        let wanted = match is_read_in_jumps {
            true => SHORT_KIB.min(self.usual_kib),
            false => self.usual_kib,
        };
        let mut kib = unpoisoned(self.kib.lock());
        if *kib == wanted {
            return;
        }
        let wanted_text = wanted.to_string();
        if self.knob.write_all_at(wanted_text.as_bytes(), 0).is_ok() {
            *kib = wanted;
        }
    }
}
