//! A patch that was made elsewhere, of the same image: its bytes go to the places that they had there.

use std::io;
use std::path::Path;
use std::sync::Arc;

use anteros_core::{Device, WritableDevice};
use anteros_format::superblock::{SUPERBLOCK_BYTES, SUPERBLOCK_OFFSET};

use super::appended;
use crate::output::Store;
use crate::{Error, Options};

/// Bytes that are copied at once.
const BUFFER_BYTES: u64 = 1 << 20;

/// The bytes that a patch gives to an image.
pub struct Difference<'a> {
    /// The bytes behind the image, where a block begins.
    pub start: u64,
    /// The new bytes from there on, whole blocks.
    pub bytes: &'a dyn Device,
    /// Roots in slots of the image where zeros lie, and where each of them begins.
    pub roots: Vec<(u64, Vec<u8>)>,
    /// The new superblock, which counts all of that.
    pub superblock: [u8; SUPERBLOCK_BYTES],
}

/// Gives an image what a patch changes, in the order of all patches: all bytes, a flush, the superblock, a flush.
/// [`Options::append`] describes the image. Whoever calls has made sure that the patch is of this image.
///
/// # Errors
///
/// If the image could not be written; it is as it was then.
pub fn apply(image: &Path, difference: &Difference<'_>, options: &Options) -> Result<(), Error> {
    write(Store::open(image, options)?, difference, options.sync)
}

/// As [`apply`], on a device with room behind the image.
///
/// # Errors
///
/// As there.
pub fn apply_to_device(
    device: Arc<dyn WritableDevice>,
    difference: &Difference<'_>,
    options: &Options,
) -> Result<(), Error> {
    let store = Store::on(device, appended(options)?)?;
    write(store, difference, options.sync)
}

fn write(store: Store, difference: &Difference<'_>, sync: bool) -> Result<(), Error> {
    let bytes = difference.bytes.size();
    let end = difference.start.checked_add(bytes);
    let end = end.ok_or_else(|| Error::Option("the patch is longer than any image".into()))?;
    copy(&store, difference).map_err(|e| store.error("write", end, e))?;
    let mut prepared = Ok(());
    for (at, root) in &difference.roots {
        let written = store.write_at(root, *at);
        prepared = prepared.and(written.map_err(|e| store.error("write", end, e)));
    }
    if let Err(error) = prepared.and_then(|()| store.prepare(end)) {
        for (at, root) in &difference.roots {
            // There is an error already; if this fails as well, a slot is lost.
            let _ = store.write_at(&vec![0; root.len()], *at);
        }
        return Err(error);
    }
    let written = store.write_at(&difference.superblock, SUPERBLOCK_OFFSET);
    written.map_err(|e| store.error("write", end, e))?;
    store.finish(end, sync)
}

/// Copies all bytes behind the image.
fn copy(store: &Store, difference: &Difference<'_>) -> io::Result<()> {
    let bytes = difference.bytes.size();
    let mut buffer = vec![0; BUFFER_BYTES.min(bytes) as usize];
    let mut at = 0;
    while at < bytes {
        let part = &mut buffer[..BUFFER_BYTES.min(bytes - at) as usize];
        difference.bytes.read_at(at, part)?;
        store.write_at(part, difference.start + at)?;
        at += part.len() as u64;
    }
    Ok(())
}
