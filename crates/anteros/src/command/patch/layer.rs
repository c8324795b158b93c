//! `anteros patch --layer`: what changes as an image of its own, beside the image that it is of.

use std::path::Path;
use std::sync::atomic::AtomicBool;

use anteros_build::{Appended, PatchLayer, SourceDevice};
use anteros_format::superblock::{MAGIC, SUPERBLOCK_OFFSET};
use anteros_image::{CheckOptions, Image, lower_tag};

use super::{base, export};
use crate::command::mkfs;
use crate::failure::Failure;

/// Checks an image, and returns the layer that is to be made of it.
pub fn layer(
    (path, image): (&Path, &Image),
    to: &Path,
    dry_run: bool,
    (workers, cancel): (usize, &AtomicBool),
) -> Result<PatchLayer, Failure> {
    base::refuse_form(image)?;
    let is_image =
        |start: &[u8]| start.get(SUPERBLOCK_OFFSET as usize..) == Some(&MAGIC.to_le_bytes());
    let bytes = SUPERBLOCK_OFFSET as usize + size_of_val(&MAGIC);
    export::check_target(path, to, ("image", bytes), is_image)?;
    let options = CheckOptions {
        data: false,
        workers,
        ..CheckOptions::default()
    };
    mkfs::check_metadata(image, &options, "no layer is made of", cancel)?;
    crate::interrupt::check(cancel)?;
    Ok(PatchLayer {
        device: SourceDevice {
            path: Some(path.to_owned()),
            bytes: image.recorded_bytes(),
            tag: lower_tag(&image.superblock().uuid),
        },
        dry_run,
    })
}

/// The image that a layer is made of, as a build knows it. It ends with the blocks that its superblock counts.
pub fn appended(image: &Image) -> Result<Appended, Failure> {
    Ok(Appended {
        end: image.recorded_bytes(),
        ..mkfs::appended(image)?
    })
}
