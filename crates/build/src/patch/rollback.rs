//! Going back to a former state of an image, by appending a record.

use std::path::Path;
use std::sync::Arc;

use anteros_core::WritableDevice;
use anteros_format::patch::{self, Change, FREE_MAX, PatchRecord, superblock_crc, with_blocks};
use anteros_format::superblock::{SUPERBLOCK_BYTES, SUPERBLOCK_OFFSET};

use super::appended;
use crate::output::{Output, Store};
use crate::{Error, Options};

/// A former state that an image is to have again.
#[derive(Debug, Clone)]
pub struct Rollback {
    /// Its number.
    pub number: u32,
    /// The superblock that it had.
    pub superblock: [u8; SUPERBLOCK_BYTES],
}

/// Gives an image a former state again, as [`Options::append`] and [`Options::patch`] describe the image and the state that is
/// made. Returns the bytes of the image.
///
/// # Errors
///
/// If the image could not be written; it is as it was then.
pub fn roll_back(image: &Path, rollback: &Rollback, options: &Options) -> Result<u64, Error> {
    write(Store::open(image, options)?, rollback, options)
}

/// As [`roll_back`], on a device with room behind the image.
///
/// # Errors
///
/// As there.
pub fn roll_back_device(
    device: Arc<dyn WritableDevice>,
    rollback: &Rollback,
    options: &Options,
) -> Result<u64, Error> {
    write(Store::on(device, appended(options)?)?, rollback, options)
}

fn write(store: Store, rollback: &Rollback, options: &Options) -> Result<u64, Error> {
    let append = appended(options)?;
    let Some(patch) = &options.patch else {
        return Err(Error::Option("there is no state to make".into()));
    };
    if patch.number > patch::STATES_MAX {
        return Err(super::too_many());
    }
    let mut output = Output::append(store, options, append.end);
    let end = append.end + patch::room(options.block_bytes());
    output.block_of(end)?;
    let (former, rest) = append.superblock.split_at(SUPERBLOCK_BYTES);
    let superblock = with_blocks(&rollback.superblock, end >> options.block_bits, rest);
    let mut free = patch.free.clone();
    free.drain(..free.len().saturating_sub(FREE_MAX));
    let record = PatchRecord {
        number: patch.number,
        change: Change::Rollback(rollback.number),
        time: patch.time,
        start: append.end,
        end,
        previous: patch.previous,
        root: None,
        former: former.try_into().expect("128 bytes"),
        superblock: superblock_crc(&superblock),
        free,
    };
    output.write(&record.encode())?;
    output.pad_to(end)?;
    output.complete(SUPERBLOCK_OFFSET, &superblock, None)?;
    output.finish(options.sync)?;
    Ok(end)
}
