//! `anteros patch --compact`: a new image of the current state takes the place of the old one.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use anteros_build::{Input, Layer, Observer, Options, UuidChoice, build};
use anteros_format::features::Compat;
use anteros_image::{CheckOptions, Image, ImageFs};

use super::base;
use crate::command::mkfs::{self, Before};
use crate::failure::{Failure, Kind};

/// An image that was made anew.
pub struct Compacted {
    /// Bytes of the old image, and of the new one.
    pub before: u64,
    pub after: u64,
}

/// Makes sure that an image is one that can be made anew in its place.
pub fn check(path: &Path, image: &Image, work: (usize, &AtomicBool)) -> Result<(), Failure> {
    base::refuse(image)?;
    let found = std::fs::metadata(path).map_err(|e| Failure::system(path, &e))?;
    let name = image.name();
    if !found.is_file() {
        let message = format!("{name}: only an image in a regular file can be compacted");
        let hint =
            format!("`anteros mkfs NEW {name}` makes a file of it, to be written to the device");
        return Err(Failure::new(Kind::Unsupported, message).hint(hint));
    }
    let (workers, cancel) = work;
    let options = CheckOptions {
        data: false,
        workers,
        ..CheckOptions::default()
    };
    mkfs::check_metadata(image, &options, "nothing is made of", cancel)?;
    crate::interrupt::check(cancel)
}

/// Builds an image of the current state beside the old one, which it replaces when it is complete. UUID and label stay.
pub fn compact(
    path: &Path,
    image: Arc<Image>,
    options: &Options,
    observer: &dyn Observer,
    cancel: &AtomicBool,
) -> Result<Compacted, Failure> {
    let sb = image.superblock();
    let before = image.recorded_bytes();
    let options = Options {
        uuid: UuidChoice::Given(sb.uuid),
        label: sb.label().to_vec(),
        checksum: sb.compat.contains(Compat::SB_CHKSUM),
        ..options.clone()
    };
    let fs = Arc::new(ImageFs::new(image));
    let input = Input::One(Layer::FileSystem(fs, PathBuf::from(path)));
    let built = build(path, input, &options, observer, cancel);
    let summary = built.map_err(|e| mkfs::failure(path, Before::File, &e))?;
    Ok(Compacted {
        before,
        after: summary.image_bytes,
    })
}
