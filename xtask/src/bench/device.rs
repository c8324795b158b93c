//! Loop devices: mounting through one, and counting what is read from one and written to it.

use std::fs::{self, File};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use rustix::mount::MountFlags;

use super::mounted::{Mounted, mount};
use crate::outcome::Outcome;
use crate::run::{output, run};

/// The unit in which the kernel counts what a device reads.
const SECTOR: u64 = 512;
/// States how far the kernel reads ahead on a device by default; a loop device may take more from the disk below it.
const READAHEAD_KB: &str = "128";

/// Holds what a device did so far.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Traffic {
    /// Requests to read, as they reached the device.
    pub(super) reads: u64,
    pub(super) bytes_read: u64,
    /// Requests to write, as they reached the device.
    pub(super) writes: u64,
    pub(super) bytes_written: u64,
}

/// States what a request takes on a phone's storage (eMMC or UFS), in seconds, and the bytes that come or go in one of
/// them.
pub(super) const REQUEST_SECONDS: f64 = 120e-6;
pub(super) const BYTES_A_SECOND: f64 = 250e6;

impl Traffic {
    /// Returns how long a phone's storage would take for what has come since.
    pub(super) fn phone_seconds_since(&self, before: &Self) -> f64 {
        let requests = self.reads + self.writes - before.reads - before.writes;
        let bytes = self.bytes_read + self.bytes_written - before.bytes_read - before.bytes_written;
        requests as f64 * REQUEST_SECONDS + bytes as f64 / BYTES_A_SECOND
    }
}

/// A file as a block device, until dropped.
pub(super) struct LoopDevice {
    node: PathBuf,
}

impl LoopDevice {
    /// Attaches a file; directly means that the page cache of the file is passed by.
    ///
    /// # Errors
    /// When `losetup` fails.
    pub(super) fn attach(file: &Path, directly: bool, writable: bool) -> Outcome<Self> {
        let mut command = Command::new("losetup");
        command.args(["--find", "--show"]);
        command.arg(format!(
            "--direct-io={}",
            if directly { "on" } else { "off" }
        ));
        if !writable {
            command.arg("--read-only");
        }
        let node = output(command.arg(file))?;
        let device = Self {
            node: PathBuf::from(node.trim()),
        };
        device.set("read_ahead_kb", READAHEAD_KB)?;
        Ok(device)
    }

    /// Returns where the kernel tells of the device.
    fn facts(&self) -> PathBuf {
        let name = self.node.file_name().unwrap_or_default();
        Path::new("/sys/block").join(name)
    }

    /// Such as `/dev/loop0`.
    pub(super) fn node(&self) -> &Path {
        &self.node
    }

    /// Sets something of its queue, such as `scheduler`.
    ///
    /// # Errors
    /// When the kernel does not have it so.
    pub(super) fn set(&self, what: &str, value: &str) -> Outcome {
        let path = self.facts().join("queue").join(what);
        Ok(fs::write(&path, value).map_err(|error| format!("{}: {error}", path.display()))?)
    }

    /// The schedulers that it may have.
    pub(super) fn schedulers(&self) -> Vec<String> {
        let names = fs::read_to_string(self.facts().join("queue/scheduler")).unwrap_or_default();
        let names = names.split_ascii_whitespace();
        names
            .map(|name| name.trim_matches(['[', ']']).to_owned())
            .collect()
    }

    /// Its number, as the kernel has it.
    ///
    /// # Errors
    /// When the node is gone.
    pub(super) fn number(&self) -> Outcome<u64> {
        let number = fs::metadata(&self.node)?.rdev();
        let (major, minor) = (rustix::fs::major(number), rustix::fs::minor(number));
        Ok(u64::from(major) << 20 | u64::from(minor))
    }

    /// Returns what it did so far.
    ///
    /// # Errors
    /// When the kernel does not tell.
    pub(super) fn traffic(&self) -> Outcome<Traffic> {
        let path = self.facts().join("stat");
        let stat = fs::read_to_string(&path)?;
        let traffic = Traffic::parse(&stat);
        Ok(traffic.ok_or_else(|| format!("{}: not understood: {stat}", path.display()))?)
    }
}

impl Drop for LoopDevice {
    fn drop(&mut self) {
        if let Err(error) = run(Command::new("losetup").arg("-d").arg(&self.node)) {
            eprintln!("bench: {error}");
        }
    }
}

impl Traffic {
    /// The first, third, fifth and seventh number of a device's `stat`.
    fn parse(stat: &str) -> Option<Self> {
        let number = |index| {
            stat.split_ascii_whitespace()
                .nth(index)?
                .parse::<u64>()
                .ok()
        };
        Some(Self {
            reads: number(0)?,
            bytes_read: number(2)? * SECTOR,
            writes: number(4)?,
            bytes_written: number(6)? * SECTOR,
        })
    }
}

/// An ext4 on a loop device of its own that holds one image, so that the device tells what is read of the image.
pub(super) struct Store {
    // Dropped first.
    _mounted: Mounted,
    device: LoopDevice,
    image: PathBuf,
    file: PathBuf,
}

impl Store {
    /// Copies an image into a new store.
    ///
    /// # Errors
    /// When the store cannot be made.
    pub(super) fn of(image: &Path, scratch: &Path) -> Outcome<Self> {
        let (file, directory) = (scratch.join("store.ext4"), scratch.join("store"));
        let bytes = fs::metadata(image)?.len();
        File::create(&file)?.set_len(bytes + bytes / 16 + (32 << 20))?;
        run(Command::new("mkfs.ext4")
            .args(["-q", "-F", "-m", "0", "-O", "^has_journal"])
            .arg(&file))?;
        let device = LoopDevice::attach(&file, true, true)?;
        fs::create_dir_all(&directory)?;
        let mounted = mount(device.node(), &directory, "ext4", MountFlags::NOATIME, None)?;
        let stored = directory.join("image");
        fs::copy(image, &stored)?;
        rustix::fs::sync();
        Ok(Self {
            _mounted: mounted,
            device,
            image: stored,
            file,
        })
    }

    /// Returns where the image lies within.
    pub(super) fn image(&self) -> &Path {
        &self.image
    }

    /// The device below.
    pub(super) fn device(&self) -> &LoopDevice {
        &self.device
    }
}

impl Drop for Store {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.file);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sectors_and_requests_have_their_places() {
        let stat = "    1234        5     8888       99      17        3     4096  0\n";
        let traffic = Traffic {
            reads: 1234,
            bytes_read: 8888 * 512,
            writes: 17,
            bytes_written: 4096 * 512,
        };
        assert_eq!(Traffic::parse(stat), Some(traffic));
        assert_eq!(Traffic::parse("1 2"), None);
    }
}
