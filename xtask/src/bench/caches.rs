//! The caches of the kernel.

use std::fs;

use crate::outcome::Outcome;

/// Writes what is to be written, and empties the page cache and what else the kernel remembers of files.
///
/// # Errors
/// When the kernel refuses.
pub(super) fn drop_caches() -> Outcome {
    rustix::fs::sync();
    fs::write("/proc/sys/vm/drop_caches", "3").map_err(|error| format!("drop_caches: {error}"))?;
    Ok(())
}
