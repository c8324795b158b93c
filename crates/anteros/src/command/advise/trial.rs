//! One setting, tried on the sample: an image is built, read once, and removed.

use std::fs;
use std::path::Path;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use anteros_build::{Error, Options, Summary, build};
use anteros_core::FileKind;
use anteros_format::inode::Inode;
use anteros_format::linux::Needs;
use anteros_image::Image;

use super::sample::{Sample, room};
use crate::args::ImageArgs;
use crate::command::mkfs;
use crate::failure::{Failure, Kind};
use crate::interrupt;

/// Bytes of one read.
const READ_BYTES: usize = 128 << 10;

/// The outcome of a setting for the sample.
pub struct Trial {
    pub settings: &'static str,
    pub image_bytes: u64,
    pub build_time: Duration,
    /// Bytes per second at which one core read all files.
    pub read_rate: f64,
    pub linux: Needs,
}

impl Trial {
    /// Builds an image of the sample in `place`, and reads it.
    pub fn of(
        settings: &'static str,
        options: &Options,
        sample: &Sample,
        place: &Path,
        cancel: &AtomicBool,
    ) -> Result<Self, Failure> {
        let path = place.join("image");
        let options = Options {
            sync: false,
            ..options.clone()
        };
        let start = Instant::now();
        let built = build(&path, &sample.source, &options, &(), cancel);
        let build_time = start.elapsed();
        let Summary {
            image_bytes, linux, ..
        } = built.map_err(|error| failure(&path, &error))?;
        let read_rate = read_rate(&path, cancel)?;
        fs::remove_file(&path).map_err(|e| Failure::system(&path, &e))?;
        Ok(Self {
            settings,
            image_bytes,
            build_time,
            read_rate,
            linux,
        })
    }
}

fn failure(path: &Path, error: &Error) -> Failure {
    match error {
        Error::Cancelled => Failure::new(Kind::Interrupted, "interrupted"),
        Error::Image { path, cause, .. } => room(path, cause),
        _ => mkfs::failure(path, mkfs::Before::Nothing, error),
    }
}

/// Reads all files of an image in order, and tells how fast that went.
fn read_rate(path: &Path, cancel: &AtomicBool) -> Result<f64, Failure> {
    let fail = |error: &anteros_image::Error| Failure::image(path.display(), error);
    let image = ImageArgs::alone(path).open()?;
    let mut buffer = vec![0; READ_BYTES];
    let mut open = vec![image.root().map_err(|e| fail(&e))?];
    let mut bytes = 0;
    let start = Instant::now();
    while let Some(directory) = open.pop() {
        interrupt::check(cancel)?;
        for entry in image.read_dir(&directory).map_err(|e| fail(&e))? {
            if matches!(&entry.name[..], b"." | b"..") {
                continue;
            }
            let inode = image.inode(entry.nid).map_err(|e| fail(&e))?;
            match inode.kind {
                FileKind::Directory => open.push(inode),
                FileKind::Regular => {
                    bytes += read(&image, &inode, &mut buffer).map_err(|e| fail(&e))?;
                }
                _ => {}
            }
        }
    }
    Ok(bytes as f64 / start.elapsed().as_secs_f64().max(1e-9))
}

fn read(image: &Image, inode: &Inode, buffer: &mut [u8]) -> anteros_image::Result<u64> {
    let map = image.map(inode)?;
    let mut at = 0;
    while at < inode.size {
        at += image.read(inode, &map, at, buffer)? as u64;
    }
    Ok(at)
}
