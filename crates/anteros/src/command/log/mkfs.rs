//! `anteros log mkfs`

use std::fs::{self, File};
use std::io::Read;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};

use anteros_core::{Caller, parse_size};
use anteros_log::{Options, Shape, system_clock};
use rustix::process::{getegid, geteuid};

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

    /// Overwrite what lies there
    #[arg(long)]
    force: bool,
}

impl Args {
    pub fn run(self) -> Outcome {
        self.check()?;
        let is_new = self.make_file()?;
        let made = self.make_log();
        if made.is_err() && is_new {
            // What nobody can use need not lie about.
            let _ = fs::remove_file(&self.device);
        }
        made
    }

    /// Refuses to destroy anything unasked.
    fn check(&self) -> Result<(), Failure> {
        if self.force || !self.device.exists() {
            return Ok(());
        }
        let mut head = [0; 4096];
        let mut file = File::open(&self.device).map_err(|e| Failure::system(&self.device, &e))?;
        let mut found = 0;
        while let Ok(count @ 1..) = file.read(&mut head[found..]) {
            found += count;
        }
        if head.iter().all(|&byte| byte == 0) {
            return Ok(());
        }
        let message = format!("{}: holds something already", self.device.display());
        Err(Failure::new(Kind::Usage, message).hint("--force overwrites it"))
    }

    /// Makes the file if that is asked for; says whether it was not there before.
    fn make_file(&self) -> Result<bool, Failure> {
        let fail = |e| Failure::system(&self.device, &e);
        let is_new = !self.device.exists();
        let Some(size) = self.size else {
            return match is_new {
                true => {
                    let message = format!("{}: does not exist", self.device.display());
                    Err(Failure::new(Kind::Usage, message).hint("--size BYTES makes the file"))
                }
                false => Ok(false),
            };
        };
        if is_block_device(&self.device) {
            let message = format!(
                "{}: a block device has the size that it has",
                self.device.display()
            );
            return Err(Failure::new(Kind::Usage, message).hint("leave --size away"));
        }
        let file = File::options()
            .write(true)
            .create(true)
            .truncate(false)
            .open(&self.device)
            .map_err(fail)?;
        let grown = file.set_len(size);
        if grown.is_err() && is_new {
            let _ = fs::remove_file(&self.device);
        }
        grown.map_err(fail)?;
        Ok(is_new)
    }

    fn make_log(&self) -> Outcome {
        let device = super::open(&self.device)?;
        let random = random().map_err(|e| Failure::system(Path::new("/dev/urandom"), &e))?;
        let (uuid, hash_seed) = random;
        let shape = Shape {
            segments_per_section: self.section,
            label: self.label.clone(),
            uuid,
            hash_seed,
            ..Shape::default()
        };
        let owner = Caller {
            uid: geteuid().as_raw(),
            gid: getegid().as_raw(),
            pid: 0,
        };
        anteros_log::mkfs(&device, &shape, owner, &Options::new(system_clock))
            .map_err(|error| super::failure(self.device.display(), &error))?;
        Ok(Verdict::Good)
    }
}

fn is_block_device(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|found| found.file_type().is_block_device())
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
