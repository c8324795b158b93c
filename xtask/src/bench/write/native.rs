//! Native file systems on devices of their own.

use std::ffi::CStr;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use rustix::fs::{FallocateFlags, fallocate};
use rustix::mount::MountFlags;

use crate::bench::device::LoopDevice;
use crate::bench::mounted::{Mounted, mount};
use crate::bench::place::Place;
use crate::bench::throttle::{Speed, Throttle};
use crate::outcome::Outcome;
use crate::run::output;

/// The size of the device.
const DEVICE_BYTES: u64 = 3 << 30;

/// A kind of native file system.
pub(in crate::bench) struct Kind {
    pub(in crate::bench) name: &'static str,
    /// Holds what makes one, which leaves nothing to be done later and discards nothing.
    mkfs: &'static [&'static str],
    options: Option<&'static CStr>,
}

/// Those of the paper.
pub(in crate::bench) const KINDS: [Kind; 5] = [
    Kind {
        name: "ext4",
        mkfs: &[
            "mkfs.ext4",
            "-q",
            "-F",
            "-E",
            "nodiscard,lazy_itable_init=0,lazy_journal_init=0",
        ],
        options: None,
    },
    Kind {
        name: "xfs",
        mkfs: &["mkfs.xfs", "-q", "-f", "-K"],
        options: None,
    },
    Kind {
        name: "btrfs",
        mkfs: &["mkfs.btrfs", "-q", "-f", "-K"],
        options: Some(c"nodiscard"),
    },
    Kind {
        name: "f2fs",
        mkfs: &["mkfs.f2fs", "-q", "-f", "-t", "0"],
        options: Some(c"nodiscard"),
    },
    Kind {
        name: "nilfs2",
        mkfs: &["mkfs.nilfs2", "-q", "-f", "-K"],
        options: None,
    },
];

/// Makes sure that file systems of all these names are known here.
///
/// # Errors
/// When one is not.
pub(in crate::bench) fn check_names(names: &[String]) -> Outcome {
    let known = KINDS.map(|kind| kind.name);
    match names.iter().find(|name| !known.contains(&name.as_str())) {
        Some(unknown) => {
            let known = known.join(", ");
            Err(format!("no file system {unknown}; there are: {known}").into())
        }
        None => Ok(()),
    }
}

impl Kind {
    /// Makes one.
    ///
    /// # Errors
    /// When its program fails.
    pub(in crate::bench) fn make(&self, place: &Path) -> Outcome {
        let (program, arguments) = (self.mkfs[0], &self.mkfs[1..]);
        output(Command::new(program).args(arguments).arg(place)).map(drop)
    }

    /// Mounts one.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub(in crate::bench) fn mount(&self, node: &Path, directory: &Path) -> Outcome<Mounted> {
        self.mount_with(node, directory, None)
    }

    /// Mounts one, with options in place of those it has else.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub(in crate::bench) fn mount_with(
        &self,
        node: &Path,
        directory: &Path,
        options: Option<&'static CStr>,
    ) -> Outcome<Mounted> {
        let options = options.or(self.options);
        mount(node, directory, self.name, MountFlags::empty(), options)
    }

    /// Returns why it cannot take part, if so.
    pub(in crate::bench) fn missing(&self) -> Option<String> {
        load(self.name);
        let known = fs::read_to_string("/proc/filesystems").unwrap_or_default();
        let mut names = known
            .lines()
            .filter_map(|line| line.split('\t').next_back());
        if !names.any(|name| name == self.name) {
            return Some("the kernel does not have it".to_owned());
        }
        let program = self.mkfs[0];
        let quiet = || Stdio::null();
        let mut command = Command::new(program);
        let starts = command.arg("-V").stdout(quiet()).stderr(quiet()).status();
        starts.err().map(|error| format!("{program}: {error}"))
    }
}

/// A file system on a loop device, until dropped.
pub(super) struct Native {
    pub(super) kind: &'static Kind,
    // Dropped in this order.
    _mounted: Mounted,
    device: LoopDevice,
    _throttle: Option<Throttle>,
    _memory: Mounted,
    directory: PathBuf,
}

impl Native {
    /// On a device over memory.
    ///
    /// # Errors
    /// When it cannot be made or mounted.
    pub(super) fn in_memory(place: &Place, kind: &'static Kind) -> Outcome<Self> {
        let memory = Memory::new(place, Some(kind))?;
        let device = LoopDevice::attach(&memory.file, false, true)?;
        Self::on(place, kind, device, memory, None)
    }

    /// On a device that writes no faster than the paper's.
    ///
    /// # Errors
    /// When it cannot be made or mounted.
    pub(super) fn throttled(place: &Place, kind: &'static Kind) -> Outcome<Self> {
        let memory = Memory::new(place, Some(kind))?;
        let throttle = Throttle::mount(
            &memory.directory,
            &place.directory("throttle")?,
            Speed::PAPER,
        )?;
        let device = LoopDevice::attach(&throttle.directory().join(FILE), true, true)?;
        Self::on(place, kind, device, memory, Some(throttle))
    }

    fn on(
        place: &Place,
        kind: &'static Kind,
        device: LoopDevice,
        memory: Memory,
        throttle: Option<Throttle>,
    ) -> Outcome<Self> {
        let directory = place.directory("native")?;
        Ok(Self {
            kind,
            _mounted: kind.mount(device.node(), &directory)?,
            device,
            _throttle: throttle,
            _memory: memory.mounted,
            directory,
        })
    }

    /// Returns where it is mounted.
    pub(super) fn directory(&self) -> &Path {
        &self.directory
    }

    pub(super) fn device(&self) -> &LoopDevice {
        &self.device
    }
}

/// The file that a device lies on.
pub(in crate::bench) const FILE: &str = "device";

/// Memory for a device.
pub(in crate::bench) struct Memory {
    mounted: Mounted,
    pub(in crate::bench) directory: PathBuf,
    pub(in crate::bench) file: PathBuf,
}

impl Memory {
    /// All of it is taken now, so that nobody's turn pays for that; perhaps there is a file system on it.
    ///
    /// # Errors
    /// When it cannot be had or the file system not be made.
    pub(super) fn new(place: &Place, kind: Option<&Kind>) -> Outcome<Self> {
        let memory = Self::sparse(place, DEVICE_BYTES)?;
        if let Some(kind) = kind {
            kind.make(&memory.file)?;
        }
        memory.take(DEVICE_BYTES)?;
        Ok(memory)
    }

    /// So many bytes, all of them taken now.
    ///
    /// # Errors
    /// When they cannot be had.
    pub(in crate::bench) fn full(place: &Place, bytes: u64) -> Outcome<Self> {
        let memory = Self::sparse(place, bytes)?;
        memory.take(bytes)?;
        Ok(memory)
    }

    /// So many bytes, which are taken as they are written.
    ///
    /// # Errors
    /// When the file cannot be made.
    pub(in crate::bench) fn sparse(place: &Place, bytes: u64) -> Outcome<Self> {
        let directory = place.directory("memory")?;
        let flags = MountFlags::empty();
        let mounted = mount(Path::new("none"), &directory, "tmpfs", flags, None)?;
        let path = directory.join(FILE);
        File::create(&path)?.set_len(bytes)?;
        Ok(Self {
            mounted,
            directory,
            file: path,
        })
    }

    fn take(&self, bytes: u64) -> Outcome {
        let file = File::options().write(true).open(&self.file)?;
        Ok(fallocate(&file, FallocateFlags::empty(), 0, bytes)?)
    }
}

/// Has the kernel load a file system, if it is a module; whether it has it then is another question.
fn load(name: &str) {
    let quiet = || Stdio::null();
    let mut command = Command::new("modprobe");
    let _ = command.arg(name).stdout(quiet()).stderr(quiet()).status();
}
