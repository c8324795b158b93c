//! FUSE over io_uring: a setting of the kernel, which only root changes and which holds for every mount that is made.

use std::fs;

use crate::outcome::Outcome;

const SETTING: &str = "/sys/module/fuse/parameters/enable_uring";

/// The setting as a benchmark wants it; it is what it was when this is dropped.
pub(super) struct IoUring {
    before: String,
}

impl IoUring {
    /// Sets it.
    ///
    /// # Errors
    /// When `wanted` is neither `on` nor `off`, or the kernel does not have it or lets us.
    pub(super) fn set(wanted: &str) -> Outcome<Self> {
        let value = match wanted {
            "on" => "Y",
            "off" => "N",
            _ => return Err(format!("bench: --io-uring is on or off, not {wanted}").into()),
        };
        let failed = |error| format!("{SETTING} (FUSE over io_uring, Linux 6.14): {error}");
        let before = fs::read_to_string(SETTING).map_err(failed)?;
        fs::write(SETTING, value).map_err(failed)?;
        Ok(Self { before })
    }
}

impl Drop for IoUring {
    fn drop(&mut self) {
        // There is nobody to tell.
        let _ = fs::write(SETTING, self.before.trim());
    }
}

/// Returns whether mounts that are made now may have it.
pub(super) fn is_on() -> bool {
    fs::read_to_string(SETTING).is_ok_and(|value| value.trim() == "Y")
}
