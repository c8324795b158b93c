//! `anteros mount`
//!
//! The kernel mounts where it may, from the file itself (Linux 6.12) or through a loop device. Else
//! a daemon serves the image by FUSE: this program starts itself again in the background, waits
//! until the child says that the mount stands, and leaves.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;

use anteros_fuse::{MountError, MountOptions, Session};
use anteros_image::ImageFs;
use rustix::mount::{MountFlags, mount};
use signal_hook::iterator::Signals;

use crate::args::{ImageArgs, WorkerArgs};
use crate::failure::{Failure, Kind, Outcome, Verdict};
use crate::{interrupt, output};

/// Mount an image read-only: through the kernel where it may be, else through FUSE
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(flatten)]
    image: ImageArgs,

    /// Where to mount it
    directory: PathBuf,

    /// Through the kernel or not at all
    #[arg(long, conflicts_with = "fuse")]
    kernel: bool,

    /// Through FUSE, even where the kernel could
    #[arg(long)]
    fuse: bool,

    /// FUSE: stay in the foreground
    #[arg(short, long)]
    foreground: bool,

    /// FUSE: let other users in (root always does)
    #[arg(long)]
    allow_other: bool,

    #[command(flatten)]
    workers: WorkerArgs,

    /// Report on standard output that the mount stands, then detach from the terminal
    #[arg(long, hide = true)]
    detach: bool,
}

/// What the background process says when the mount stands.
const READY: &str = "ready";

impl Args {
    pub fn run(self) -> Outcome {
        // Whoever mounts it, the image is one that we can read.
        let image = self.image.open()?;
        if !self.directory.is_dir() {
            let message = format!("{}: not a directory to mount on", self.directory.display());
            return Err(Failure::new(Kind::System, message));
        }
        if !self.fuse && !self.detach {
            match self.mount_by_kernel() {
                Ok(()) => return Ok(Verdict::Good),
                Err(failure) if self.kernel => return Err(failure),
                Err(_) => {}
            }
        }
        if self.foreground || self.detach {
            self.serve(ImageFs::new(image))
        } else {
            start_in_background(&self.image.image)
        }
    }

    fn mount_by_kernel(&self) -> Result<(), Failure> {
        let image = absolute(&self.image.image)?;
        let mut options: Vec<String> = Vec::new();
        for device in &self.image.devices {
            options.push(format!("device={}", absolute(device)?.display()));
        }
        let directly = self.mount_file(&image, &options);
        if directly.is_ok() || !self.image.devices.is_empty() {
            return directly.map_err(|e| kernel_failure(&image, &e.to_string()));
        }
        self.mount_loop(&image)
            .map_err(|text| kernel_failure(&image, &text))
    }

    /// Mounts the file itself, without a loop device.
    fn mount_file(&self, image: &Path, options: &[String]) -> io::Result<()> {
        if self.image.offset != 0 {
            return Err(io::ErrorKind::Unsupported.into());
        }
        let options = std::ffi::CString::new(options.join(","))?;
        let flags = MountFlags::RDONLY;
        Ok(mount(
            image,
            &self.directory,
            "erofs",
            flags,
            Some(options.as_c_str()),
        )?)
    }

    fn mount_loop(&self, image: &Path) -> Result<(), String> {
        let options = format!("ro,loop,offset={}", self.image.offset);
        let mut command = Command::new("mount");
        command
            .args(["-i", "-t", "erofs", "-o", &options])
            .arg(image)
            .arg(&self.directory);
        let output = command
            .stdin(Stdio::null())
            .output()
            .map_err(|e| format!("mount: {e}"))?;
        match output.status.success() {
            true => Ok(()),
            false => Err(String::from_utf8_lossy(&output.stderr).trim().into()),
        }
    }

    fn serve(&self, fs: ImageFs) -> Outcome {
        let defaults = MountOptions::default();
        let options = MountOptions {
            fs_name: absolute(&self.image.image)?.display().to_string(),
            allow_other: self.allow_other || defaults.allow_other,
            default_permissions: self.allow_other || defaults.default_permissions,
            workers: self.workers.count().min(64),
            ..defaults
        };
        let session =
            Session::mount(Arc::new(fs), &self.directory, &options).map_err(mount_failure)?;
        let session =
            session.on_fault(|ino, error| output::complain(&format!("inode {}", ino.0), error));
        let unmounter = session.unmounter();
        let mut signals = Signals::new(interrupt::signals()).map_err(system)?;
        let handle = signals.handle();
        let waiter = std::thread::spawn(move || {
            for _ in &mut signals {
                if let Err(error) = unmounter.unmount() {
                    output::complain("error", error);
                }
            }
        });
        if self.detach {
            detach().map_err(system)?;
        }
        let served = session.run();
        handle.close();
        let _ = waiter.join();
        served.map_err(system)?;
        Ok(Verdict::Good)
    }
}

/// Runs this program again as a daemon and waits until the mount stands.
fn start_in_background(image: &Path) -> Outcome {
    let program = std::env::current_exe().map_err(|e| Failure::system(image, &e))?;
    let mut child = Command::new(program)
        .args(std::env::args_os().skip(1))
        .arg("--detach")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .map_err(system)?;
    let mut line = String::new();
    let stdout = child.stdout.take().expect("piped");
    BufReader::new(stdout)
        .read_line(&mut line)
        .map_err(system)?;
    if line.trim_end() == READY {
        return Ok(Verdict::Good);
    }
    // The child has told why.
    let status = child.wait().map_err(system)?;
    std::process::exit(status.code().unwrap_or(Kind::System as i32));
}

/// Tells the parent that the mount stands, and lets go of its terminal, streams and directory.
fn detach() -> io::Result<()> {
    let mut out = io::stdout();
    writeln!(out, "{READY}")?;
    out.flush()?;
    rustix::process::setsid()?;
    rustix::process::chdir("/")?;
    let null = File::options().read(true).write(true).open("/dev/null")?;
    rustix::stdio::dup2_stdin(&null)?;
    rustix::stdio::dup2_stdout(&null)?;
    rustix::stdio::dup2_stderr(&null)?;
    Ok(())
}

fn absolute(path: &Path) -> Result<PathBuf, Failure> {
    path.canonicalize().map_err(|e| Failure::system(path, &e))
}

fn system(error: io::Error) -> Failure {
    Failure::new(Kind::System, error)
}

fn kernel_failure(image: &Path, text: &str) -> Failure {
    let message = format!("{}: the kernel does not mount it: {text}", image.display());
    let hint = "`dmesg` may say more; without --kernel, FUSE is used where the kernel refuses";
    Failure::new(Kind::System, message).hint(hint)
}

fn mount_failure(error: MountError) -> Failure {
    Failure::new(Kind::System, &error).hint_if(error.hint())
}
