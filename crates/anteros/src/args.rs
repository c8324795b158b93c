//! Arguments that several commands take.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use anteros_core::{Device, FileDevice, Occupant, Window, parse_size};
use anteros_format::Corrupt;
use anteros_fuse::MountOptions;
use anteros_image::{Error, Image, OpenOptions, Place};
use anteros_verity::{CACHE_BYTES, Digest, Verified};
use clap::Args;

use crate::failure::{Failure, Kind};
use crate::output;
use crate::patch_file::PatchFile;

/// An image to read.
#[derive(Debug, Args)]
pub struct ImageArgs {
    /// The image: a file or a block device
    pub image: PathBuf,

    /// An extra device of a multi-device image; repeat it for each, in order
    #[arg(long = "device", value_name = "FILE")]
    pub devices: Vec<PathBuf>,

    /// Byte of the file at which the image begins (K, M, G)
    #[arg(long, value_name = "BYTES", default_value = "0", value_parser = parse_size)]
    pub offset: u64,

    /// Do not refuse an image whose superblock checksum is wrong
    #[arg(long)]
    pub no_checksum: bool,

    /// Verify each block that is read by the hash tree behind the image, which has this root hash: nothing is read that was
    /// changed
    #[arg(long, value_name = "ROOT HASH", conflicts_with = "devices")]
    pub verity: Option<Digest>,

    /// Byte of the image at which the superblock of its hash tree begins; behind the image, if not told (K, M, G)
    #[arg(long, value_name = "BYTES", requires = "verity", value_parser = parse_size)]
    pub hash_offset: Option<u64>,

    /// Tells that the command has no option for extra devices.
    #[arg(skip)]
    pub is_alone: bool,

    /// Lay a patch (`anteros patch --export`) over the image, and read what both make; nothing is written
    #[arg(long, value_name = "FILE", conflicts_with_all = ["verity", "devices"])]
    pub patch: Option<PathBuf>,

    /// Most memory that caches of the image take, and decoding pieces of it (K, M, G). The default is 16M. It is 64M
    /// for an image whose files are packed together in large clusters, as by `mkfs --small`, and up to that for one whose
    /// decoders look back a MiB or more
    #[arg(long, value_name = "BYTES", value_parser = parse_size)]
    pub memory: Option<u64>,
}

/// Bytes to a multiple of which a hash tree begins behind its image.
const HASH_BLOCK_BYTES: u64 = 4096;

/// Memory for an image, in bytes.
const MEMORY: u64 = 16 << 20;
/// Memory for an image whose files are packed together in large extents, or that is decoded far back: for many of these
/// extents, or for decoders of eight files that are read in order at the same time.
const LARGE_MEMORY: u64 = 64 << 20;

impl ImageArgs {
    /// An image in a file, for a command that has no option for extra devices.
    pub fn alone(path: &Path) -> Self {
        Self {
            is_alone: true,
            ..Self::usual(path)
        }
    }

    /// An image in a file, read as usual.
    pub fn usual(path: &Path) -> Self {
        Self {
            is_alone: false,
            image: path.into(),
            devices: Vec::new(),
            offset: 0,
            no_checksum: false,
            verity: None,
            hash_offset: None,
            patch: None,
            memory: None,
        }
    }

    /// Opens the image, and warns if its end is missing.
    pub fn open(&self) -> Result<Arc<Image>, Failure> {
        let mut image = self.open_with(self.options(self.memory()))?;
        if let Some(memory) = self.memory_wanted(&image) {
            image = self.open_with(self.options(memory))?;
        }
        self.warn_if_cut_off(&image);
        Ok(image)
    }

    /// Bytes of memory, as told or as usual.
    pub fn memory(&self) -> u64 {
        self.memory.unwrap_or(MEMORY)
    }

    /// Returns the memory that an image needs to be read quickly, if that is more than usual and no option told it.
    pub fn memory_wanted(&self, image: &Image) -> Option<u64> {
        let is_large = image.packs_large_extents() || image.looks_far_back();
        (self.memory.is_none() && is_large).then_some(LARGE_MEMORY)
    }

    /// Says so if the end of an image is missing: what is found of it may be enough, or not.
    pub fn warn_if_cut_off(&self, image: &Image) {
        let (recorded, size) = (image.recorded_bytes(), image.primary_size());
        if recorded > size {
            let name = self.image.display();
            let text = format!("{name}: the image is cut off: it has {size} bytes of {recorded}");
            output::complain("warning", text);
        }
    }

    /// Returns how to open the image within so much memory, as far as these arguments say.
    pub fn options(&self, memory: u64) -> OpenOptions {
        let memory = memory.saturating_sub(self.hash_tree_bytes() as u64);
        OpenOptions {
            verify_checksum: !self.no_checksum,
            cache_bytes: usize::try_from(memory).unwrap_or(usize::MAX),
            ..OpenOptions::default()
        }
    }

    /// Returns the memory that verifying takes of what the image may have, in bytes.
    pub fn hash_tree_bytes(&self) -> usize {
        self.verity.map_or(0, |_| CACHE_BYTES)
    }

    /// The files that the image lies in, by device and inode.
    pub fn files(&self) -> Vec<(u64, u64)> {
        let paths = std::iter::once(&self.image)
            .chain(&self.devices)
            .chain(&self.patch);
        let found = paths.filter_map(|path| std::fs::metadata(path).ok());
        found.map(|found| (found.dev(), found.ino())).collect()
    }

    /// Opens the image in a certain way.
    pub fn open_with(&self, options: OpenOptions) -> Result<Arc<Image>, Failure> {
        self.open_on(options, |_| {})
    }

    /// As [`open_with`](Self::open_with); `prepare` gets each device first.
    pub fn open_on(
        &self,
        options: OpenOptions,
        prepare: impl Fn(&FileDevice),
    ) -> Result<Arc<Image>, Failure> {
        let device = |path: &PathBuf| {
            let device = FileDevice::open(path).map_err(|e| open_failure(path, &e))?;
            prepare(&device);
            Ok::<_, Failure>(device)
        };
        let primary = self.verified(Arc::new(Window::new(device(&self.image)?, self.offset)))?;
        let primary = self.patched(primary, options)?;
        let extra = self
            .devices
            .iter()
            .map(|path| Ok(Arc::new(device(path)?) as Arc<dyn Device>));
        let extra = extra.collect::<Result<_, Failure>>()?;
        let image = Image::open(primary, extra, options);
        Ok(Arc::new(image.map_err(|e| self.opening(&e))?))
    }

    /// A device that verifies what is read, if that was asked for.
    fn verified(&self, device: Arc<dyn Device>) -> Result<Arc<dyn Device>, Failure> {
        Ok(match self.verity {
            Some(_) => Arc::new(self.hash_tree(device)?),
            None => device,
        })
    }

    /// A device that a patch lies over, if one was told.
    fn patched(
        &self,
        device: Arc<dyn Device>,
        options: OpenOptions,
    ) -> Result<Arc<dyn Device>, Failure> {
        let Some(patch) = &self.patch else {
            return Ok(device);
        };
        // What is no image has better words for that.
        let image = Image::open(device.clone(), Vec::new(), options);
        image.map_err(|e| self.opening(&e))?;
        let patch = PatchFile::open(patch, &AtomicBool::new(false))?;
        Ok(Arc::new(patch.over_verified(device)?))
    }

    /// The image and the hash tree behind it.
    pub fn hash_tree(&self, device: Arc<dyn Device>) -> Result<Verified<Arc<dyn Device>>, Failure> {
        let root = self.verity.expect("whoever wants one tells the root hash");
        let start = match self.hash_offset {
            Some(start) => start,
            None => self.end_of_image(device.clone())?,
        };
        Verified::open(device, start, root).map_err(|error| match error.kind() {
            std::io::ErrorKind::InvalidData => Failure::new(Kind::Corrupt, error),
            _ => Failure::system(&self.image, &error),
        })
    }

    /// The byte behind an image, where its hash tree begins. What the image says of that need not be trusted: no other tree
    /// has the root hash.
    fn end_of_image(&self, device: Arc<dyn Device>) -> Result<u64, Failure> {
        let options = OpenOptions {
            verify_checksum: false,
            ..OpenOptions::default()
        };
        let image = Image::open(device, Vec::new(), options).map_err(|e| self.opening(&e))?;
        Ok(image.recorded_bytes().next_multiple_of(HASH_BLOCK_BYTES))
    }

    /// An error of opening the image: if it is none, what it is instead.
    fn opening(&self, error: &Error) -> Failure {
        let failure = Failure::opening(self.image.display(), error);
        if self.is_alone && matches!(error, Error::Devices { .. }) {
            return failure.hint(
                "this command takes no extra devices; `anteros mkfs NEW DIR` makes an image without",
            );
        }
        let is_image = !matches!(
            error,
            Error::Corrupt {
                fault: Corrupt::Magic { .. } | Corrupt::OutOfBounds { .. },
                place: Place::Superblock,
            }
        );
        let Some(device) = FileDevice::open(&self.image).ok().filter(|_| !is_image) else {
            return failure;
        };
        let name = self.image.display();
        let is = |what: &str| Failure::new(Kind::Corrupt, format_args!("{name}: {what}"));
        match device.occupant_from(self.offset) {
            _ if device.size() == 0 => is("an empty file is no EROFS image"),
            Ok(Some(Occupant::Log)) => is("a log, and no EROFS image").hint(format_args!(
                "`anteros log mount {name} DIRECTORY` mounts it, the other commands of `anteros log` look at it"
            )),
            Ok(Some(Occupant::Sparse)) => is("a sparse image of Android, and no EROFS image")
                .hint(format_args!("`simg2img {name} IMAGE` makes an image of it")),
            Ok(Some(Occupant::Other(what))) => is(&format!("{what}, and no EROFS image")),
            Ok(None) => is("holds nothing but zeros, and no EROFS image")
                .hint("an image that begins further on needs --offset BYTES"),
            _ => failure,
        }
    }

    /// Refuses a directory where an image is expected, if the other argument is none: they were swapped.
    pub fn check_order(&self, other: &Path, usage: &str) -> Result<(), Failure> {
        match self.image.is_dir() && !other.is_dir() {
            true => Err(swapped(&self.image, usage)),
            false => Ok(()),
        }
    }
}

/// The failure where a directory stands in the place of an image.
pub fn swapped(directory: &Path, usage: &str) -> Failure {
    let message = format!("{}: is a directory, not an image", directory.display());
    Failure::new(Kind::Usage, message).hint(format_args!("the image comes first: anteros {usage}"))
}

fn open_failure(path: &Path, error: &std::io::Error) -> Failure {
    let failure = Failure::new(Kind::System, error);
    match error.kind() {
        std::io::ErrorKind::IsADirectory => failure.hint(format_args!(
            "an image is a file; `anteros mkfs IMAGE {}` makes one of it",
            path.display()
        )),
        _ => failure,
    }
}

/// More workers of a mount than this only wait for each other.
const MOUNT_WORKERS_MAX: usize = 64;

/// Reads a number of seconds.
pub fn seconds(text: &str) -> Result<u32, String> {
    let most = u32::MAX;
    text.parse()
        .map_err(|_| format!("whole seconds from 0 to {most} are wanted"))
}

/// A number as C writes it: decimal, `0x…` or `0…`, with a sign or without.
pub fn c_number(text: &str) -> Result<i128, String> {
    let (sign, digits) = match text.strip_prefix('-') {
        Some(digits) => (-1, digits),
        None => (1, text),
    };
    let hexadecimal = digits
        .strip_prefix("0x")
        .or_else(|| digits.strip_prefix("0X"));
    let (radix, digits) = match hexadecimal {
        Some(digits) => (16, digits),
        None if digits.starts_with('0') => (8, digits),
        None => (10, digits),
    };
    let number = u64::from_str_radix(digits, radix).map_err(|error| error.to_string())?;
    Ok(sign * i128::from(number))
}

/// Describes how many threads work.
#[derive(Debug, Default, Args)]
pub struct WorkerArgs {
    /// Threads that work; all cores by default, for a mount at least 4
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u16).range(1..=1024))]
    workers: Option<u16>,
}

impl WorkerArgs {
    /// Returns how many threads to use.
    pub fn count(&self) -> usize {
        let cores = || std::thread::available_parallelism().map_or(1, usize::from);
        self.count_or_else(cores)
    }

    fn count_or_else(&self, default: impl FnOnce() -> usize) -> usize {
        self.workers.map_or_else(default, usize::from)
    }
}

/// Describes the form of a report.
#[derive(Debug, Args)]
pub struct ReportArgs {
    /// As JSON
    #[arg(long)]
    pub json: bool,
}

/// Describes how requests of a mount are answered.
#[derive(Debug, Args)]
pub struct RequestArgs {
    #[command(flatten)]
    workers: WorkerArgs,

    /// Take requests from /dev/fuse also where the kernel has FUSE over io_uring enabled
    #[arg(long)]
    no_io_uring: bool,
}

impl RequestArgs {
    /// The options of a mount with these, and else as they are by default.
    pub fn options(&self) -> MountOptions {
        let defaults = MountOptions::default();
        MountOptions {
            workers: self
                .workers
                .count_or_else(|| defaults.workers)
                .min(MOUNT_WORKERS_MAX),
            io_uring: !self.no_io_uring,
            guardian: true,
            ..defaults
        }
    }
}
