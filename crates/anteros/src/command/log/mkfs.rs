//! `anteros log mkfs`

use std::fs::{self, File, OpenOptions};
use std::io::{ErrorKind, Read};
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anteros_core::{Caller, Device, FileDevice, WritableDevice, parse_size};
use anteros_log::layout::{BLOCK_BYTES, Superblock};
use anteros_log::{Options, Shape, system_clock};
use rustix::process::{getegid, geteuid};

use super::open;
use crate::failure::{Failure, Kind, Outcome, Verdict};

/// Make an empty log
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The file or block device
    device: PathBuf,

    /// Make the file, so large (K, M, G); it takes space only as it is filled
    #[arg(long, value_name = "BYTES", value_parser = parse_size)]
    size: Option<u64>,

    /// A name for the log, at most 64 bytes
    #[arg(long, value_name = "NAME", default_value = "", value_parser = label)]
    label: String,

    /// Segments of 2 MiB that are filled and freed together, as devices want it that erase much at once
    #[arg(long, value_name = "COUNT", default_value = "1", value_parser = clap::value_parser!(u16).range(1..=64))]
    section: u16,

    /// Overwrite what lies there, whatever it is
    #[arg(long)]
    force: bool,
}

impl Args {
    pub fn run(self) -> Outcome {
        let shape = self.shape()?;
        match (fs::symlink_metadata(&self.device), self.size) {
            (Err(error), Some(size)) if error.kind() == ErrorKind::NotFound => {
                self.make_new(size, &shape)
            }
            (Err(error), None) if error.kind() == ErrorKind::NotFound => {
                let message = format!("{}: does not exist", self.device.display());
                Err(Failure::new(Kind::Usage, message).hint("--size BYTES makes the file"))
            }
            _ => self.make_over(&shape),
        }
    }

    /// Makes the file, and the log in it.
    fn make_new(&self, size: u64, shape: &Shape) -> Outcome {
        self.plan(size, shape)?;
        let device = FileDevice::create_writable(&self.device).map_err(Failure::os)?;
        let made = self
            .set_len(&device, size)
            .and_then(|()| self.make_log(device, shape));
        if made.is_err() {
            // What nobody can use need not lie about.
            let _ = fs::remove_file(&self.device);
        }
        made
    }

    /// Makes a log where something is. Nothing of that is changed before it is clear that it may be, that nobody else makes use of
    /// it, and that there will be a log.
    fn make_over(&self, shape: &Shape) -> Outcome {
        let found = fs::metadata(&self.device).map_err(|e| Failure::system(&self.device, &e))?;
        let is_device = found.file_type().is_block_device();
        if is_device && self.size.is_some() {
            let message = format!(
                "{}: a block device has the size that it has",
                self.device.display()
            );
            return Err(Failure::new(Kind::Usage, message).hint("leave --size away"));
        }
        let device = FileDevice::open_writable(&self.device).map_err(Failure::os)?;
        self.refuse_occupied(&device)?;
        let size = self.size.unwrap_or(device.size());
        self.plan(size, shape)?;
        let made = match size == device.size() {
            true => Ok(()),
            false => self.set_len(&device, size),
        };
        let made = made.and_then(|()| self.make_log(device, shape));
        if made.is_err() && found.is_file() && size > found.len() {
            // Nor is it larger than it was.
            let file = OpenOptions::new().write(true).open(&self.device);
            let _ = file.and_then(|file| file.set_len(found.len()));
        }
        made
    }

    /// Refuses to destroy anything unasked.
    fn refuse_occupied(&self, device: &FileDevice) -> Result<(), Failure> {
        if self.force {
            return Ok(());
        }
        let fail = |e| Failure::system(&self.device, &e);
        let Some(occupant) = device.occupant().map_err(fail)? else {
            return Ok(());
        };
        let message = format!(
            "{}: holds something already: {occupant}",
            self.device.display()
        );
        Err(Failure::new(Kind::Usage, message).hint("--force overwrites it"))
    }

    /// Refuses what is too small.
    fn plan(&self, size: u64, shape: &Shape) -> Result<(), Failure> {
        let planned = Superblock::plan(size / BLOCK_BYTES as u64, shape);
        planned
            .map(|_| ())
            .map_err(|error| open::failure(self.device.display(), &error.into()))
    }

    fn set_len(&self, device: &FileDevice, size: u64) -> Result<(), Failure> {
        let set = device.set_len(size);
        set.map_err(|e| Failure::system(&self.device, &e))
    }

    fn shape(&self) -> Result<Shape, Failure> {
        let random = random().map_err(|e| Failure::system(Path::new("/dev/urandom"), &e))?;
        let (uuid, hash_seed) = random;
        Ok(Shape {
            segments_per_section: self.section,
            label: self.label.clone(),
            uuid,
            hash_seed,
            ..Shape::default()
        })
    }

    fn make_log(&self, device: FileDevice, shape: &Shape) -> Outcome {
        let device: Arc<dyn WritableDevice> = Arc::new(device);
        let owner = Caller {
            uid: geteuid().as_raw(),
            gid: getegid().as_raw(),
            ..Caller::default()
        };
        anteros_log::mkfs(&device, shape, owner, &Options::new(system_clock))
            .map_err(|error| open::failure(self.device.display(), &error))?;
        Ok(Verdict::Good)
    }
}

/// A UUID (version 4), and a key that nobody knows.
fn random() -> std::io::Result<([u8; 16], [u8; 16])> {
    let (mut uuid, mut key) = ([0; 16], [0; 16]);
    let mut source = File::open("/dev/urandom")?;
    source.read_exact(&mut uuid)?;
    source.read_exact(&mut key)?;
    uuid[6] = uuid[6] & 0x0f | 0x40;
    uuid[8] = uuid[8] & 0x3f | 0x80;
    Ok((uuid, key))
}

fn label(text: &str) -> Result<String, String> {
    match text.len() {
        0..=64 => Ok(text.into()),
        len => Err(format!("{len} bytes, but a name has at most 64")),
    }
}
