//! Content that lies on an extra device: in a blob that is built with the image, or in the archive that it is an index of.
//!
//! | module | job |
//! |---|---|
//! | `elsewhere` | where the chunks of a file lie |
//! | `table` | the devices, and the table of them |
//! | `blob` | files in chunks, each of which a blob has once |
//! | `archive` | files whose content stays in the archive |
//! | `layer` | the image that a layer is a patch of, on which the content lies of files that stay |
//! | `lower` | its place, as inodes refer to it |
//! | `referred` | files whose content stays in images that are sources |
//!
//! The UUID of an image follows from its bytes; that other blobs have other ones, a cookie in the table sees to.
//!
//! All of them are decided before any content of the image is written. The image has a table of devices then, and each chunk
//! of such a file names its device and the block on it. The devices have places behind the image as well, one after the
//! other, so that a single disk may hold them all.

mod archive;
mod blob;
mod elsewhere;
mod layer;
mod lower;
mod referred;
mod table;

use std::path::Path;

use crate::look::Look;
use crate::output::target;
use crate::plan::Plan;
use crate::source::Source;
use crate::{Content, Error, Options};

pub(crate) use elsewhere::Elsewhere;
pub(crate) use lower::Lower;
pub(crate) use table::{Devices, SLOT_BYTES};

/// Refuses a blob that is to be where the image is.
pub(crate) fn check(image: &Path, options: &Options) -> Result<(), Error> {
    let blob = options.blob_device.as_deref().map(target);
    match blob.is_some_and(|blob| blob == image) {
        false => Ok(()),
        true => Err(Error::Option(format!(
            "the blob and the image would be one file, {}",
            image.display()
        ))),
    }
}

/// Decides which files lie on extra devices, and writes the one that is a blob.
pub(crate) fn store(look: &Look<'_>, plan: &mut Plan) -> Result<Devices, Error> {
    if let Some(layer) = &look.options.patch_layer {
        return layer::store(look, layer, plan);
    }
    match (&look.options.blob_device, look.source) {
        _ if look.options.content == Content::Refer => referred::store(look, plan),
        (Some(path), _) => blob::store(look, plan, path),
        (None, _) if !look.options.tar_index => Ok(Devices::default()),
        (None, Source::Archive(contents)) if contents.is_in_place() => {
            archive::store(look, plan, contents)
        }
        (None, _) => Err(Error::Option(
            "an index is of one archive in a file, and not compressed, for that stays where it is"
                .into(),
        )),
    }
}
