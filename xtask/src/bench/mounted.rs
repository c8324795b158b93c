//! Mounts that end when they are dropped, and a sweep for those that could not.

use std::ffi::CStr;
use std::fs;
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::mount::{MountFlags, UnmountFlags, unmount};

use crate::outcome::Outcome;
use crate::run::words;

/// States how long a daemon may take until its mount stands, and until it has ended.
const PATIENCE: Duration = Duration::from_secs(20);
/// States how often we look.
const PAUSE: Duration = Duration::from_millis(2);

/// A mount, until dropped.
pub(super) struct Mounted {
    directory: PathBuf,
}

/// Mounts by `mount(2)`.
///
/// # Errors
/// When the kernel refuses.
pub(super) fn mount(
    source: &Path,
    directory: &Path,
    kind: &str,
    flags: MountFlags,
    data: Option<&CStr>,
) -> Outcome<Mounted> {
    rustix::mount::mount(source, directory, kind, flags, data)
        .map_err(|error| format!("mount of {} as {kind}: {error}", source.display()))?;
    Ok(Mounted {
        directory: directory.to_owned(),
    })
}

/// Shows a file in the place of another.
///
/// # Errors
/// When the kernel refuses.
pub(super) fn bind(source: &Path, place: &Path) -> Outcome<Mounted> {
    rustix::mount::mount_bind(source, place).map_err(|error| {
        format!(
            "mount of {} on {}: {error}",
            source.display(),
            place.display()
        )
    })?;
    Ok(Mounted {
        directory: place.to_owned(),
    })
}

impl Drop for Mounted {
    fn drop(&mut self) {
        if let Err(error) = release(&self.directory) {
            eprintln!("bench: umount of {}: {error}", self.directory.display());
        }
    }
}

/// Unmounts, waiting a while for those who still use it; then it is only taken out of sight.
fn release(directory: &Path) -> rustix::io::Result<()> {
    let start = Instant::now();
    loop {
        match unmount(directory, UnmountFlags::empty()) {
            Err(Errno::BUSY) if start.elapsed() < PATIENCE => thread::sleep(PAUSE),
            Err(Errno::BUSY) => return unmount(directory, UnmountFlags::DETACH),
            // The daemon did it itself.
            Err(Errno::INVAL) => return Ok(()),
            outcome => return outcome,
        }
    }
}

/// A daemon that serves a mount, until dropped.
pub(super) struct Daemon {
    mounted: Option<Mounted>,
    child: Child,
}

impl Daemon {
    /// Starts a daemon and waits until its mount stands.
    ///
    /// # Errors
    /// When it ends before that, or takes too long.
    pub(super) fn start(command: &mut Command, directory: &Path) -> Outcome<Self> {
        let before = device_of(directory)?;
        let child = command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(|error| format!("{}: {error}", words(command)))?;
        let mut daemon = Self {
            mounted: None,
            child,
        };
        let start = Instant::now();
        while device_of(directory).is_ok_and(|device| device == before) {
            if let Some(status) = daemon.child.try_wait()? {
                return Err(format!("{status}: {}", daemon.complaint()).into());
            }
            if start.elapsed() > PATIENCE {
                return Err(format!("no mount after {PATIENCE:?}: {}", words(command)).into());
            }
            thread::sleep(PAUSE);
        }
        daemon.mounted = Some(Mounted {
            directory: directory.to_owned(),
        });
        Ok(daemon)
    }

    /// The number of its process.
    pub(super) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// The most memory it held at a time, in bytes.
    ///
    /// # Errors
    /// When the kernel does not tell, for one because it has ended.
    pub(super) fn memory_peak(&self) -> Outcome<u64> {
        let path = format!("/proc/{}/status", self.child.id());
        let status = fs::read_to_string(&path)?;
        Ok(high_water_mark(&status).ok_or("no VmHWM: the daemon has ended")?)
    }

    /// Unmounts, and waits until it has ended.
    ///
    /// # Errors
    /// When it does not end, or not well.
    pub(super) fn end(mut self) -> Outcome {
        self.unmount();
        match self.child.try_wait()? {
            Some(status) if status.success() => Ok(()),
            Some(status) => Err(format!("the daemon: {status}: {}", self.complaint()).into()),
            None => Err(format!("the daemon still runs {PATIENCE:?} after its mount").into()),
        }
    }

    /// Kills it, as a power cut would, and unmounts then.
    pub(super) fn kill(mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// Unmounts, and gives it time to end.
    fn unmount(&mut self) {
        let served = self.mounted.take().is_some();
        let start = Instant::now();
        while served && start.elapsed() < PATIENCE {
            if matches!(self.child.try_wait(), Ok(Some(_)) | Err(_)) {
                return;
            }
            thread::sleep(PAUSE);
        }
    }

    /// Returns what it wrote to its standard error, once it has ended.
    fn complaint(&mut self) -> String {
        let mut complaint = Vec::new();
        if let Some(stderr) = &mut self.child.stderr {
            let _ = stderr.read_to_end(&mut complaint);
        }
        String::from_utf8_lossy(&complaint)
            .trim()
            .replace('\n', "; ")
    }
}

impl Drop for Daemon {
    /// Unmounts, which ends the daemon; one that lives on is killed.
    fn drop(&mut self) {
        self.unmount();
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn device_of(directory: &Path) -> io::Result<u64> {
    fs::metadata(directory).map(|metadata| metadata.dev())
}

/// `VmHWM` of `/proc/PID/status`, in bytes.
fn high_water_mark(status: &str) -> Option<u64> {
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("VmHWM:"))?;
    let kib: u64 = line.trim().strip_suffix(" kB")?.trim().parse().ok()?;
    Some(kib * 1024)
}

/// Ends every mount below a directory and every loop device on a file below it: what an interrupted run left.
pub(super) fn sweep(scratch: &Path) {
    // Before their files are out of sight.
    let devices = loop_devices_below(scratch);
    let mounts = fs::read_to_string("/proc/self/mounts").unwrap_or_default();
    for directory in mounts_below(&mounts, scratch) {
        let _ = unmount(directory, UnmountFlags::DETACH);
    }
    for node in devices {
        let _ = Command::new("losetup").arg("-d").arg(node).status();
    }
}

/// The loop devices on files below a directory.
fn loop_devices_below(directory: &Path) -> Vec<PathBuf> {
    let devices = fs::read_dir("/sys/block").into_iter().flatten().flatten();
    let lies_below = |device: &fs::DirEntry| {
        let file = fs::read_to_string(device.path().join("loop/backing_file"));
        file.is_ok_and(|file| Path::new(file.trim_end()).starts_with(directory))
    };
    let node = |device: fs::DirEntry| Path::new("/dev").join(device.file_name());
    devices.filter(lies_below).map(node).collect()
}

/// Removes a directory with all that is in it, once nothing is mounted there.
///
/// # Errors
/// When something is, or it cannot be removed.
pub(super) fn clear(scratch: &Path) -> Outcome {
    sweep(scratch);
    let mounts = fs::read_to_string("/proc/self/mounts")?;
    if let Some(left) = mounts_below(&mounts, scratch).first() {
        return Err(format!("{} is still mounted", left.display()).into());
    }
    Ok(fs::remove_dir_all(scratch)?)
}

/// The mount points below a directory, the innermost first.
fn mounts_below<'a>(mounts: &'a str, directory: &Path) -> Vec<&'a Path> {
    let points = mounts.lines().filter_map(|line| line.split(' ').nth(1));
    let mut below: Vec<&Path> = points
        .map(Path::new)
        .filter(|point| point.starts_with(directory))
        .collect();
    below.reverse();
    below
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_high_water_mark_is_in_bytes() {
        assert_eq!(
            high_water_mark("VmPeak:\t 9 kB\nVmHWM:\t    5 kB\n"),
            Some(5120)
        );
        assert_eq!(high_water_mark("VmPeak:\t 9 kB\n"), None);
    }

    #[test]
    fn a_sweep_takes_inner_mounts_first_and_no_others() {
        let mounts =
            "a / ext4 rw 0 0\nb /s/store ext4 rw 0 0\nc /s/store/m erofs ro 0 0\nd /sx x ro 0 0\n";
        let below = mounts_below(mounts, Path::new("/s"));
        assert_eq!(below, [Path::new("/s/store/m"), Path::new("/s/store")]);
    }

    #[test]
    fn a_daemon_that_ends_at_once_tells_why() {
        let mut command = Command::new("sh");
        command.args(["-c", "echo no such thing >&2; exit 3"]);
        let Err(error) = Daemon::start(&mut command, Path::new("/")) else {
            panic!("it mounts nothing");
        };
        assert!(error.to_string().contains("no such thing"), "{error}");
    }
}
