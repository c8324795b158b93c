//! Images mounted by the kernel, and by us through FUSE, for as long as a value lives.

use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::thread::JoinHandle;

use anteros_core::FileSystem;
use anteros_fuse::{MountOptions, Session, Unmounter};
use tempfile::TempDir;

use crate::judge::say;

/// An image mounted by the kernel's EROFS.
pub struct KernelMount {
    dir: TempDir,
    is_mounted: bool,
    /// Loop devices of the extra devices.
    loops: Vec<PathBuf>,
}

impl KernelMount {
    /// Mounts an image and its extra devices through loop devices.
    ///
    /// # Errors
    ///
    /// What `mount` or `losetup` says.
    pub fn new(image: &Path, extra: &[PathBuf]) -> io::Result<Self> {
        Self::at_offset(image, 0, extra)
    }

    /// As [`new`](Self::new), for an image that begins at a byte of the file.
    ///
    /// # Errors
    ///
    /// What `mount` or `losetup` says.
    pub fn at_offset(image: &Path, offset: u64, extra: &[PathBuf]) -> io::Result<Self> {
        let mut mount = Self {
            dir: TempDir::new()?,
            is_mounted: false,
            loops: Vec::new(),
        };
        let mut options = format!("ro,loop,offset={offset}");
        for path in extra {
            let device = run(Command::new("losetup")
                .args(["--read-only", "--find", "--show"])
                .arg(path))?;
            options.push_str(",device=");
            options.push_str(device.trim());
            mount.loops.push(device.trim().into());
        }
        run(Command::new("mount")
            .args(["-t", "erofs", "-o", &options])
            .arg(image)
            .arg(mount.dir.path()))?;
        mount.is_mounted = true;
        Ok(mount)
    }

    /// The mount point.
    pub fn path(&self) -> &Path {
        self.dir.path()
    }
}

impl Drop for KernelMount {
    fn drop(&mut self) {
        if self.is_mounted {
            // Lazily: a child of another thread may hold files of ours open until it has started.
            undo(Command::new("umount").arg("--lazy").arg(self.dir.path()));
        }
        for device in &self.loops {
            undo(Command::new("losetup").arg("--detach").arg(device));
        }
    }
}

/// Runs a program that takes something away; if it cannot, says what stays.
pub(crate) fn undo(command: &mut Command) {
    if let Err(error) = run(command) {
        say(format_args!("left behind: {error}"));
    }
}

/// Runs a program and gives what it wrote, or its complaint.
///
/// # Errors
///
/// If it cannot be started, or fails.
pub fn run(command: &mut Command) -> io::Result<String> {
    let output = command.output()?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let said = [output.stdout, output.stderr].concat();
    let said = String::from_utf8_lossy(&said).trim().to_owned();
    Err(io::Error::other(format!(
        "{:?}: {}: {said}",
        command, output.status
    )))
}

/// A file system mounted through our FUSE session, served by threads of this process.
pub struct FuseMount {
    dir: TempDir,
    unmounter: Unmounter,
    server: Option<JoinHandle<io::Result<()>>>,
}

impl FuseMount {
    /// Mounts and begins to serve.
    ///
    /// # Panics
    ///
    /// If it cannot be mounted.
    pub fn new(fs: Arc<dyn FileSystem>) -> Self {
        let dir = TempDir::new().unwrap();
        let session = Session::mount(fs, dir.path(), &MountOptions::default()).unwrap();
        let unmounter = session.unmounter();
        let server = Some(std::thread::spawn(move || session.run()));
        Self {
            dir,
            unmounter,
            server,
        }
    }

    /// The mount point.
    pub fn path(&self) -> &Path {
        self.dir.path()
    }
}

impl Drop for FuseMount {
    fn drop(&mut self) {
        self.unmounter.unmount().unwrap();
        let ended = self.server.take().map(JoinHandle::join);
        assert!(
            std::thread::panicking() || matches!(ended, Some(Ok(Ok(())))),
            "{ended:?}"
        );
    }
}
