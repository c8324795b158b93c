//! Reading ahead by the kernel, which is off while a source listens to pages: what it brings, nobody has asked for.

use std::fs;
use std::path::PathBuf;

use rustix::fs::{Dev, major, minor};

/// The read-ahead of a device, which is as before when this is dropped.
pub struct ReadAhead {
    path: PathBuf,
    before: String,
}

impl ReadAhead {
    /// Turns it off; `None` where the kernel does not let us.
    pub fn off(device: Dev) -> Option<Self> {
        let name = format!("{}:{}", major(device), minor(device));
        let path = PathBuf::from(format!("/sys/class/bdi/{name}/read_ahead_kb"));
        let before = fs::read_to_string(&path).ok()?;
        fs::write(&path, "0").ok()?;
        Some(Self { path, before })
    }
}

impl Drop for ReadAhead {
    fn drop(&mut self) {
        let _ = fs::write(&self.path, self.before.trim());
    }
}
