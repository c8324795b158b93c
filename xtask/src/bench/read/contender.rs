//! Participants: an image with a way to mount it.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use rustix::mount::MountFlags;

use super::format::Format;
use crate::bench::contest;
use crate::bench::device::LoopDevice;
use crate::bench::mounted::{Daemon, Mounted, mount};
use crate::outcome::Outcome;
use crate::peers;

/// A daemon that has zeros in the place of content.
pub(super) const ZEROS: &str = "daemon of zeros";

/// A way to read a corpus.
#[derive(Clone)]
pub(super) struct Contender {
    pub(super) name: String,
    pub(super) format: Format,
    pub(super) how: How,
}

/// Tells how an image is mounted.
#[derive(Clone)]
pub(super) enum How {
    /// By a daemon: its command, but for the image and the directory, which come last.
    Fuse(Vec<OsString>),
    /// By the kernel, from the file itself.
    File,
    /// By the kernel, from a loop device.
    Loop,
}

/// A contender's mount, until dropped.
pub(super) struct Served {
    // In the order in which they must end.
    daemon: Option<Daemon>,
    _mounted: Option<Mounted>,
    device: Option<LoopDevice>,
    directory: PathBuf,
}

impl Contender {
    /// Anteros with further arguments, as `anteros ARGUMENTS`.
    pub(super) fn anteros(program: &Path, arguments: &[&str], format: Format) -> Self {
        let mut words: Vec<OsString> = vec![program.into()];
        words.extend(["mount", "--fuse", "--foreground"].map(OsString::from));
        words.extend(arguments.iter().map(OsString::from));
        let name = std::iter::once("anteros").chain(arguments.iter().copied());
        Self {
            name: name.collect::<Vec<_>>().join(" "),
            format,
            how: How::Fuse(words),
        }
    }

    /// A daemon of the peers' tree.
    ///
    /// # Errors
    /// When the tree does not have it.
    pub(super) fn peer(program: &str, name: &str, format: Format) -> Outcome<Self> {
        let command = peers::command(program)?;
        let mut words = vec![command.get_program().to_owned()];
        words.extend(command.get_args().map(ToOwned::to_owned));
        words.push("-f".into());
        Ok(Self {
            name: name.to_owned(),
            format,
            how: How::Fuse(words),
        })
    }

    /// A daemon of the names in an image, whose files are all zeros.
    ///
    /// # Errors
    /// When this program is not found any more.
    pub(super) fn zeros(format: Format) -> Outcome<Self> {
        let program = std::env::current_exe()?;
        Ok(Self {
            name: ZEROS.to_owned(),
            format,
            how: How::Fuse(vec![program.into(), "hollow".into()]),
        })
    }

    /// A daemon that the machine has.
    pub(super) fn installed(program: &str, format: Format) -> Self {
        let words = [program, "-f"].map(OsString::from).to_vec();
        Self {
            name: program.to_owned(),
            format,
            how: How::Fuse(words),
        }
    }

    /// The kernel, by file or by loop device.
    pub(super) fn kernel(name: &str, format: Format, how: How) -> Self {
        Self {
            name: name.to_owned(),
            format,
            how,
        }
    }

    /// Mounts an image; a loop device passes the image's page cache by if told to.
    ///
    /// # Errors
    /// When it cannot be mounted.
    pub(super) fn mount(&self, image: &Path, directory: &Path, directly: bool) -> Outcome<Served> {
        fs::create_dir_all(directory)?;
        let mut served = Served {
            daemon: None,
            _mounted: None,
            device: None,
            directory: directory.to_owned(),
        };
        match &self.how {
            How::Fuse(words) => {
                let mut command = Command::new(&words[0]);
                command.args(&words[1..]).arg(image).arg(directory);
                served.daemon = Some(Daemon::start(&mut command, directory)?);
            }
            How::File => served._mounted = Some(self.by_kernel(image, directory)?),
            How::Loop => {
                let device = LoopDevice::attach(image, directly, false)?;
                served._mounted = Some(self.by_kernel(device.node(), directory)?);
                served.device = Some(device);
            }
        }
        Ok(served)
    }

    fn by_kernel(&self, source: &Path, directory: &Path) -> Outcome<Mounted> {
        mount(
            source,
            directory,
            self.format.kernel_name(),
            MountFlags::RDONLY,
            None,
        )
    }
}

impl contest::Contender for Contender {
    fn name(&self) -> &str {
        &self.name
    }

    fn command(&self) -> String {
        let kind = self.format.kernel_name();
        match &self.how {
            How::Fuse(_) if self.name == ZEROS => "cargo xtask hollow IMAGE DIR".to_owned(),
            How::Fuse(words) => {
                let words: Vec<_> = words.iter().map(|word| word.to_string_lossy()).collect();
                format!("{} IMAGE DIR", words.join(" "))
            }
            How::File => {
                format!("mount -i -t {kind} -o ro IMAGE DIR (by mount(2), no loop device)")
            }
            How::Loop => format!("mount -t {kind} -o ro,loop IMAGE DIR"),
        }
    }
}

impl Served {
    /// Returns where it is mounted.
    pub(super) fn directory(&self) -> &Path {
        &self.directory
    }

    /// The loop device of the mount, if it has one.
    pub(super) fn device(&self) -> Option<&LoopDevice> {
        self.device.as_ref()
    }

    /// The most memory that the daemon held at a time, in bytes.
    ///
    /// # Errors
    /// When there is no daemon, or it has ended.
    pub(super) fn memory_peak(&self) -> Outcome<u64> {
        self.daemon
            .as_ref()
            .ok_or("no daemon serves this mount")?
            .memory_peak()
    }
}
