//! How far the kernel reads ahead of a process: a number of the mount that root may change.

use std::fs;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD, StatxFlags, statx};

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
