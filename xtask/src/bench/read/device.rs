//! Loop devices: mounting through one, and counting what is read from one.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;

use rustix::mount::MountFlags;

use super::mounted::{Mounted, mount};
use crate::Outcome;
use crate::run::{output, run};

/// The unit in which the kernel counts what a device reads.
const SECTOR: u64 = 512;
/// How far the kernel reads ahead on a device by default; a loop device may take more from the disk below it.
const READAHEAD_KB: &str = "128";

/// A file as a block device, until dropped.
pub(in crate::bench) struct LoopDevice {
    node: PathBuf,
}

impl LoopDevice {
    /// Attaches a file; directly means that the page cache of the file is passed by.
    ///
    /// # Errors
    /// When `losetup` fails.
    pub(in crate::bench) fn attach(file: &Path, directly: bool, writable: bool) -> Outcome<Self> {
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
        fs::write(device.facts().join("queue/read_ahead_kb"), READAHEAD_KB)?;
        Ok(device)
    }

    /// Where the kernel tells of the device.
    fn facts(&self) -> PathBuf {
        let name = self.node.file_name().unwrap_or_default();
        Path::new("/sys/block").join(name)
    }

    /// Such as `/dev/loop0`.
    pub(in crate::bench) fn node(&self) -> &Path {
        &self.node
    }

    /// The bytes that were read from it so far.
    ///
    /// # Errors
    /// When the kernel does not tell.
    pub(in crate::bench) fn bytes_read(&self) -> Outcome<u64> {
        let path = self.facts().join("stat");
        let stat = fs::read_to_string(&path)?;
        let sectors = sectors_read(&stat);
        Ok(sectors.ok_or_else(|| format!("{}: not understood: {stat}", path.display()))? * SECTOR)
    }
}

impl Drop for LoopDevice {
    fn drop(&mut self) {
        if let Err(error) = run(Command::new("losetup").arg("-d").arg(&self.node)) {
            eprintln!("bench read: {error}");
        }
    }
}

/// The third number of a device's `stat`.
fn sectors_read(stat: &str) -> Option<u64> {
    stat.split_ascii_whitespace().nth(2)?.parse().ok()
}

/// An ext4 on a loop device of its own that holds one image, so that the device tells what is read of the image.
pub(in crate::bench) struct Store {
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
    pub(in crate::bench) fn of(image: &Path, scratch: &Path) -> Outcome<Self> {
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

    /// Where the image lies within.
    pub(in crate::bench) fn image(&self) -> &Path {
        &self.image
    }

    /// The device below.
    pub(in crate::bench) fn device(&self) -> &LoopDevice {
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
    fn the_third_number_counts_sectors_read() {
        let stat = "    1234        5     8888       99        0        0\n";
        assert_eq!(sectors_read(stat), Some(8888));
        assert_eq!(sectors_read("1 2"), None);
    }
}
