//! A small device with a file system on it, mounted for as long as a value lives: a file behind a loop device.
//!
//! [`Disk::copy`] is what a machine finds that loses its power: all that has reached the device, and nothing else.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use tempfile::TempDir;

use crate::judge;
use crate::mount::{run, undo};

/// States how long to wait for the last user of a mount.
const PATIENCE: Duration = Duration::from_secs(60);

/// A file system of the kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// ext4.
    Ext4,
    /// XFS.
    Xfs,
    /// btrfs.
    Btrfs,
}

impl Kind {
    /// Returns what `mount` and `mkfs` call it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Ext4 => "ext4",
            Self::Xfs => "xfs",
            Self::Btrfs => "btrfs",
        }
    }

    /// The size of a device: not much more than the least that `mkfs` accepts.
    const fn bytes(self) -> u64 {
        match self {
            Self::Ext4 => 32 << 20,
            Self::Xfs => 320 << 20,
            Self::Btrfs => 128 << 20,
        }
    }
}

/// A device with a file system on it.
pub struct Disk {
    kind: Kind,
    dir: TempDir,
    is_mounted: bool,
}

impl Disk {
    /// Makes one and mounts it. Says so if that cannot be: only root can, and each kind needs its tools.
    pub fn new(kind: Kind) -> Option<Self> {
        Self::with_options(kind, &[])
    }

    /// As [`new`](Self::new), with options of the mount.
    ///
    /// # Panics
    ///
    /// If `mkfs` or `mount` fails.
    pub fn with_options(kind: Kind, options: &[&str]) -> Option<Self> {
        let name = kind.name();
        if !judge::is_root() {
            judge::missing("a device of the test's own (only root can mount)");
            return None;
        }
        let mkfs = format!("mkfs.{name}");
        if !judge::has_program(&mkfs) || !judge::has_file_system(name) {
            return None;
        }
        let disk = Self::unmounted(kind);
        let file = fs::File::create(disk.file()).unwrap();
        file.set_len(kind.bytes()).unwrap();
        run(Command::new(mkfs).arg("-q").arg(disk.file())).unwrap();
        Some(disk.mounted(options).unwrap())
    }

    fn unmounted(kind: Kind) -> Self {
        let dir = TempDir::new_in(crate::scratch()).unwrap();
        fs::create_dir(dir.path().join("mounted")).unwrap();
        Self {
            kind,
            dir,
            is_mounted: false,
        }
    }

    fn mounted(mut self, options: &[&str]) -> io::Result<Self> {
        let options = [&["loop"][..], options].concat().join(",");
        run(Command::new("mount")
            .args(["-t", self.kind.name(), "-o", &options])
            .arg(self.file())
            .arg(self.path()))?;
        self.is_mounted = true;
        Ok(self)
    }

    /// The file behind the device.
    fn file(&self) -> PathBuf {
        self.dir.path().join("device")
    }

    /// Returns where it is mounted.
    pub fn path(&self) -> PathBuf {
        self.dir.path().join("mounted")
    }

    /// A new directory.
    ///
    /// # Panics
    ///
    /// If there is one of that name.
    pub fn directory(&self, name: &str) -> PathBuf {
        let path = self.path().join(name);
        fs::create_dir(&path).unwrap();
        path
    }

    /// A new directory, all below which may take so many bytes, whoever writes. That is for btrfs.
    ///
    /// # Panics
    ///
    /// If it cannot be had.
    pub fn limited_directory(&self, name: &str, bytes: u64) -> PathBuf {
        let path = self.path().join(name);
        let btrfs = |args: &[&str], path: &Path| {
            run(Command::new("btrfs").args(args).arg(path)).unwrap();
        };
        btrfs(&["quota", "enable"], &self.path());
        btrfs(&["subvolume", "create"], &path);
        btrfs(&["qgroup", "limit", &bytes.to_string()], &path);
        path
    }

    /// Returns how often the device was told to make lasting what it has taken.
    ///
    /// # Panics
    ///
    /// If the kernel does not say.
    pub fn flushes(&self) -> u64 {
        let mounts = fs::read_to_string("/proc/self/mounts").unwrap();
        let here = format!(" {} ", self.path().display());
        let device = mounts.lines().find(|line| line.contains(&here)).unwrap();
        let device = device.split(' ').next().unwrap().replace("/dev/", "");
        let stat = fs::read_to_string(format!("/sys/block/{device}/stat")).unwrap();
        // The last field but one.
        let flushes = stat.split_whitespace().rev().nth(1).unwrap();
        flushes.parse().unwrap()
    }

    /// A copy of what the device holds at this moment.
    ///
    /// # Panics
    ///
    /// If it cannot be made.
    pub fn copy(&self) -> Copied {
        let copy = Self::unmounted(self.kind);
        let mut cp = Command::new("cp");
        cp.args(["--reflink=never", "--sparse=always"])
            .args([self.file(), copy.file()]);
        run(&mut cp).unwrap();
        Copied(copy)
    }

    /// Unmounts it, and has the program for that look for faults of the file system.
    ///
    /// # Errors
    ///
    /// What the program says.
    pub fn check(mut self) -> io::Result<String> {
        self.unmount()?;
        let (program, options) = match self.kind {
            Kind::Ext4 => ("e2fsck", &["-fn"][..]),
            Kind::Xfs => ("xfs_repair", &["-n"][..]),
            Kind::Btrfs => ("btrfs", &["check", "--readonly"][..]),
        };
        run(Command::new(program).args(options).arg(self.file()))
    }

    fn unmount(&mut self) -> io::Result<()> {
        let start = Instant::now();
        while self.is_mounted {
            // A child of another thread may hold files of ours open until it has started.
            match run(Command::new("umount").arg(self.path())) {
                Ok(_) => self.is_mounted = false,
                Err(error) if start.elapsed() > PATIENCE => return Err(error),
                Err(_) => std::thread::sleep(Duration::from_millis(10)),
            }
        }
        self.wait_until_detached(start)
    }

    /// Waits until the file system has gone. A process in a mount namespace of its own may have a copy of the mount, and
    /// then all is not written yet when `umount` returns. The loop device goes with the last of them.
    fn wait_until_detached(&self, since: Instant) -> io::Result<()> {
        while !run(Command::new("losetup").arg("-j").arg(self.file()))?.is_empty() {
            if since.elapsed() > PATIENCE {
                let name = self.file().display().to_string();
                return Err(io::Error::other(format!("{name}: still on a loop device")));
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        Ok(())
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        if self.is_mounted {
            undo(Command::new("umount").arg("--lazy").arg(self.path()));
        }
    }
}

/// A copy of a device. While the original is mounted, some file systems take it for the same.
pub struct Copied(Disk);

impl Copied {
    /// Mounts it, now that the original is away.
    ///
    /// # Errors
    ///
    /// If the kernel does not take it.
    pub fn mount(self, mut original: Disk) -> io::Result<Disk> {
        original.unmount()?;
        drop(original);
        self.0.mounted(&[])
    }
}
