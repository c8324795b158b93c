//! `anteros mount`
//!
//! The kernel mounts where it may, from the file itself (Linux 6.12) or through a loop device. Else
//! a daemon serves the image by FUSE.

use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;

use anteros_core::{FileDevice, parse_size};
use anteros_fuse::MountOptions;
use anteros_image::{Image, ImageFs, OpenOptions, Strategy};
use clap::{Args as _, FromArgMatches};
use rustix::mount::{MountFlags, mount};

use crate::args::{ImageArgs, RequestArgs};
use crate::daemon::Daemon;
use crate::daemon::arguments::DaemonArgs;
use crate::daemon::background::{self, Told};
use crate::daemon::metrics::Metrics;
use crate::daemon::neighbours::{self, Neighbours};
use crate::daemon::recording::{self, ImageNames, Recording};
use crate::failure::{Failure, Kind, Outcome, Verdict};
use crate::loops::Loops;
use crate::options::OptionArgs;
use crate::{output, profiles};

/// Mount an image read-only: through the kernel where it may be, else through FUSE
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(flatten)]
    image: ImageArgs,

    /// Mount point
    directory: PathBuf,

    /// Through the kernel or not at all
    #[arg(long, conflicts_with_all = FUSE_ONLY)]
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
    options: OptionArgs,

    #[command(flatten)]
    requests: RequestArgs,

    /// FUSE: how far to read ahead of a process that reads in order; more than 128K needs root (K, M)
    #[arg(long, value_name = "BYTES", default_value = "512K", value_parser = parse_size)]
    readahead: u64,

    /// FUSE: decode what this access profile names as read most, and keep it in memory
    #[arg(long, value_name = "FILE")]
    profile: Option<PathBuf>,

    /// FUSE: how much of the memory the profile may take; half of it by default (K, M, G)
    #[arg(long, value_name = "BYTES", value_parser = parse_size, requires = "profile")]
    pin: Option<u64>,

    /// FUSE: what to hand the kernel of a file unasked, when a part of a pcluster is wanted
    #[arg(long, value_enum, value_name = "WHICH", default_value = "passed")]
    neighbours: Neighbours,

    /// FUSE: record every read in this file, for `anteros trace`
    #[arg(long, value_name = "FILE", requires = "fuse")]
    trace: Option<PathBuf>,

    /// FUSE: how data is decoded, for measurements [auto, vmap, buffer, rolling, in-place]
    #[arg(long, value_name = "NAME", default_value = "auto", value_parser = strategy)]
    strategy: Strategy,

    /// Mount also if the root is broken: who looks at it gets the error
    #[arg(long, hide = true, requires = "fuse")]
    any_root: bool,

    #[command(flatten)]
    daemon: DaemonArgs,

    /// The arguments of this program, if it was called by another name with others.
    #[arg(skip)]
    told: Option<Told>,
}

/// Options that have no meaning where the kernel mounts.
const FUSE_ONLY: [&str; 12] = [
    "fuse",
    "verity",
    "foreground",
    "allow_other",
    "memory",
    "workers",
    "no_io_uring",
    "readahead",
    "profile",
    "pin",
    "neighbours",
    "strategy",
];

/// The longest read that a worker answers at once, and its longest request.
const READ_BYTES: usize = 256 << 10;
const REQUEST_BYTES: usize = 64 << 10;

impl Args {
    /// Reads these arguments, which were told in other words.
    ///
    /// # Errors
    ///
    /// If there is something wrong with one.
    pub fn told(told: Told) -> Result<Self, clap::Error> {
        let command = Self::augment_args(clap::Command::new("mount"));
        let matches = command.try_get_matches_from(&told.arguments)?;
        let args = Self::from_arg_matches(&matches)?;
        let told = Some(told);
        Ok(Self { told, ..args })
    }

    pub fn run(mut self) -> Outcome {
        self.image
            .check_order(&self.directory, "mount IMAGE DIRECTORY")?;
        let common_options = self.options.sum();
        if common_options.read_only == Some(false) {
            let message = "-o rw: an image can only be read";
            return Err(Failure::new(Kind::Usage, message)
                .hint("`anteros log` makes what can be written to"));
        }
        if self.kernel && common_options.allow_other {
            let message = "-o allow_other is for FUSE: what the kernel mounts, all may enter";
            return Err(Failure::new(Kind::Usage, message));
        }
        if let Some(patch) = self.image.patch.as_ref().filter(|_| self.kernel) {
            let message = "--patch is for FUSE: the kernel reads an image as it lies there";
            let (image, patch) = (self.image.image.display(), patch.display());
            return Err(Failure::new(Kind::Usage, message).hint(format_args!(
                "`anteros patch {image} --apply {patch}` writes it to the image, or to a copy, which the kernel mounts"
            )));
        }
        // Whoever mounts it, the image is one that we can read.
        let image = self.open()?;
        if !self.daemon.detach {
            self.image.warn_if_cut_off(&image);
        }
        // Neither the kernel nor a daemon could say as well what is wrong with it.
        if let Err(error) = image.root() {
            self.complain(Failure::image(self.image.image.display(), &error))?;
        }
        if !self.directory.is_dir() {
            let message = format!("{}: not a directory to mount on", self.directory.display());
            return Err(Failure::new(Kind::System, message));
        }
        self.daemon.check_free(&self.directory)?;
        // The kernel has dm-verity for the one, of a device, and reads no patch.
        let needs_fuse = self.fuse || self.image.verity.is_some() || self.image.patch.is_some();
        if !needs_fuse && !self.daemon.detach {
            match self.mount_by_kernel() {
                Ok(()) => return Ok(Verdict::Good),
                Err(failure) if self.kernel => return Err(failure),
                Err(_) => {}
            }
        }
        if let Some(path) = &self.trace {
            recording::check_place(path, &absolute(&self.directory)?)?;
        }
        if self.foreground || self.daemon.detach {
            self.serve(ImageFs::new(image))
        } else {
            background::start(&self.image.image, self.told)
        }
    }

    /// Fails because of a broken root, or only warns of it.
    fn complain(&self, failure: Failure) -> Result<(), Failure> {
        if !self.any_root {
            return Err(failure);
        }
        if !self.daemon.detach {
            output::complain("warning", failure.message());
        }
        Ok(())
    }

    /// Opens the image for a daemon, with more memory than usual where that is wanted.
    fn open(&mut self) -> Result<Arc<Image>, Failure> {
        let (image, fits) = self.open_within_memory()?;
        let Some(memory) = self.image.memory_wanted(&image) else {
            return fits.map(|()| image);
        };
        self.image.memory = Some(memory);
        let (image, fits) = self.open_within_memory()?;
        fits.map(|()| image)
    }

    /// Opens the image for a daemon that stays within the memory it was given, and tells whether it can.
    fn open_within_memory(&self) -> Result<(Arc<Image>, Result<(), Failure>), Failure> {
        let (memory, workers) = (self.image.memory(), self.requests.options().workers);
        let queue = match self.neighbours {
            Neighbours::Off => 0,
            _ => neighbours::bytes_max(workers),
        };
        let buffers = workers * (READ_BYTES + REQUEST_BYTES) + queue;
        let options = OpenOptions {
            readers: workers,
            read_bytes: READ_BYTES,
            strategy: self.strategy,
            ..self.image.options(memory.saturating_sub(buffers as u64))
        };
        let image = self.image.open_on(options, FileDevice::expect_any_order)?;
        let needed = image.cache_bytes_min(workers, READ_BYTES);
        let fits = match options.cache_bytes < needed {
            true => {
                let message = format!("{memory} bytes of memory are too few for {workers} workers");
                Err(Failure::new(Kind::Usage, message).hint(format_args!(
                    "this image needs --memory {}M, or fewer --workers",
                    (needed + buffers + self.image.hash_tree_bytes()).div_ceil(1 << 20)
                )))
            }
            false => Ok(()),
        };
        Ok((image, fits))
    }

    fn mount_by_kernel(&self) -> Result<(), Failure> {
        let image = absolute(&self.image.image)?;
        let devices = self.image.devices.iter().map(|device| absolute(device));
        let devices = devices.collect::<Result<Vec<_>, _>>()?;
        if self.mount_file(&image, &devices).is_ok() {
            return Ok(());
        }
        let loops = Loops::over(&devices);
        loops
            .and_then(|loops| self.mount_loop(&image, loops.devices()))
            .map_err(|text| kernel_failure(&image, &text))
    }

    /// Mounts the file itself, without a loop device.
    fn mount_file(&self, image: &Path, devices: &[PathBuf]) -> io::Result<()> {
        if self.image.offset != 0 {
            return Err(io::ErrorKind::Unsupported.into());
        }
        let options = std::ffi::CString::new(device_options(devices).join(","))?;
        let attributes = self.options.sum().attributes();
        let each = [
            (!attributes.suid, MountFlags::NOSUID),
            (!attributes.dev, MountFlags::NODEV),
            (attributes.noexec, MountFlags::NOEXEC),
            (attributes.noatime, MountFlags::NOATIME),
        ];
        let set = each.into_iter().filter_map(|(on, flag)| on.then_some(flag));
        let flags = set.fold(MountFlags::RDONLY, |all, flag| all | flag);
        Ok(mount(
            image,
            &self.directory,
            "erofs",
            flags,
            Some(options.as_c_str()),
        )?)
    }

    fn mount_loop(&self, image: &Path, devices: &[PathBuf]) -> Result<(), String> {
        let attributes = anteros_fuse::Attributes {
            read_only: true,
            ..self.options.sum().attributes()
        };
        let words = attributes.words();
        let mut options = vec![format!("{words},loop,offset={}", self.image.offset)];
        options.extend(device_options(devices));
        let mut command = Command::new("mount");
        command
            .args(["-i", "-t", "erofs", "-o", &options.join(",")])
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

    fn serve(&self, mut fs: ImageFs) -> Outcome {
        anteros_codec::keep_heap_small();
        let defaults = self.requests.options();
        let options = MountOptions {
            fs_name: absolute(&self.image.image)?.display().to_string(),
            allow_other: self.allow_other || defaults.allow_other,
            default_permissions: self.allow_other || defaults.default_permissions,
            any_root: self.any_root,
            read_len_max: READ_BYTES,
            readahead: usize::try_from(self.readahead).ok(),
            ..defaults
        };
        let options = self.options.sum().apply(options);
        self.pin(&mut fs)?;
        let metrics = Metrics::new(self.image.memory());
        let fs = Arc::new(fs);
        let record = |path: &PathBuf| {
            let names = ImageNames::new(fs.clone());
            Recording::begin(path, names, metrics.faults.clone())
        };
        let recording = self.trace.as_ref().map(record).transpose()?;
        Daemon::new(fs, metrics, self.neighbours, recording).serve(
            &self.directory,
            &options,
            |metrics| self.daemon.stands(&metrics.faults),
        )
    }

    /// Pins what the profile names, and tells of names that mean nothing.
    fn pin(&self, fs: &mut ImageFs) -> Result<(), Failure> {
        let Some(path) = &self.profile else {
            return Ok(());
        };
        let profile = profiles::load(path)?;
        let budget = self.pin.unwrap_or(self.image.memory() / 2);
        let report = fs.pin(&profile, usize::try_from(budget).unwrap_or(usize::MAX));
        for (name, reason) in &report.missing {
            output::complain(
                "warning",
                format_args!("{}: {}: {reason}", path.display(), output::name(name)),
            );
        }
        if report.left_out > 0 {
            let text = format!(
                "{} ranges of the profile do not fit into {} bytes",
                report.left_out, report.bytes_max
            );
            output::complain("note", text);
        }
        Ok(())
    }
}

fn strategy(name: &str) -> Result<Strategy, String> {
    Ok(match name {
        "auto" => Strategy::Auto,
        "vmap" => Strategy::Vmap,
        "buffer" => Strategy::Buffer,
        "rolling" => Strategy::Rolling,
        "in-place" => Strategy::InPlace,
        _ => return Err("there are: auto, vmap, buffer, rolling, in-place".into()),
    })
}

fn absolute(path: &Path) -> Result<PathBuf, Failure> {
    path.canonicalize().map_err(|e| Failure::system(path, &e))
}

/// The options that name extra devices, in order.
fn device_options(devices: &[PathBuf]) -> Vec<String> {
    let option = |device: &PathBuf| format!("device={}", device.display());
    devices.iter().map(option).collect()
}

fn kernel_failure(image: &Path, text: &str) -> Failure {
    let message = format!("{}: the kernel does not mount it: {text}", image.display());
    let hint = "`dmesg` may say more; without --kernel, FUSE is used where the kernel refuses";
    Failure::new(Kind::System, message).hint(hint)
}
