//! Loop devices below files, where the kernel mounts only what is on block devices.

use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Block devices, some of which are loop devices that go away when nobody uses them.
pub struct Loops {
    devices: Vec<PathBuf>,
    /// Those that were made.
    made: Vec<PathBuf>,
}

impl Loops {
    /// A block device for each path: itself, or a loop device over the file that it is.
    ///
    /// # Errors
    ///
    /// Whatever losetup(8) said.
    pub fn over(paths: &[PathBuf]) -> Result<Self, String> {
        let mut loops = Self {
            devices: Vec::new(),
            made: Vec::new(),
        };
        for path in paths {
            let device = match is_block_device(path) {
                true => path.clone(),
                false => loops.make(path)?,
            };
            loops.devices.push(device);
        }
        Ok(loops)
    }

    pub fn devices(&self) -> &[PathBuf] {
        &self.devices
    }

    fn make(&mut self, file: &Path) -> Result<PathBuf, String> {
        let told = losetup(&[
            "--find".as_ref(),
            "--show".as_ref(),
            "--read-only".as_ref(),
            file,
        ])?;
        let device = PathBuf::from(told.trim());
        self.made.push(device.clone());
        Ok(device)
    }
}

impl Drop for Loops {
    /// Detaches loop devices, those in use when that ends.
    fn drop(&mut self) {
        for device in &self.made {
            let _ = losetup(&["--detach".as_ref(), device]);
        }
    }
}

fn is_block_device(path: &Path) -> bool {
    path.metadata()
        .is_ok_and(|found| found.file_type().is_block_device())
}

fn losetup(arguments: &[&Path]) -> Result<String, String> {
    let mut command = Command::new("losetup");
    let done = command.args(arguments).stdin(Stdio::null()).output();
    let done = done.map_err(|error| format!("losetup: {error}"))?;
    match done.status.success() {
        true => Ok(String::from_utf8_lossy(&done.stdout).into_owned()),
        false => Err(String::from_utf8_lossy(&done.stderr).trim().into()),
    }
}
