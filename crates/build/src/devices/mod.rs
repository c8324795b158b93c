//! Content that lies on an extra device: in a blob that is built with the image, or in the archive that it is an index of.
//!
//! | module | job |
//! |---|---|
//! | `blob` | files in chunks, each of which a blob has once |
//! | `archive` | files whose content stays in the archive |
//!
//! The UUID of an image follows from its bytes; that other blobs have other ones, a cookie in the table sees to.
//!
//! Both are decided before any content of the image is written. The image has a table of one device then, and each chunk of
//! such a file names that device and the block on it.

mod archive;
mod blob;

use std::path::Path;

use anteros_format::chunk::ChunkFormat;
use anteros_format::superblock::RawDeviceSlot;
use zerocopy::{FromZeros, IntoBytes};

use crate::look::Look;
use crate::output::{Beside, target};
use crate::plan::Plan;
use crate::source::Source;
use crate::{Error, Options};

/// Bytes of an entry of the table of devices; it begins at a multiple of that.
pub(crate) const SLOT_BYTES: u64 = size_of::<RawDeviceSlot>() as u64;

/// The device: the only one, and the first.
const DEVICE: u16 = 1;

/// Stands for a chunk of zeros.
const HOLE: u32 = u32::MAX;

/// A file on the extra device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Elsewhere {
    chunk_bits: u32,
    /// The block of the device at which each chunk begins.
    blocks: Box<[u32]>,
}

impl Elsewhere {
    /// The low 16 bits of `i_u`.
    pub fn format(&self, block_bits: u8) -> u16 {
        let format = ChunkFormat {
            chunk_bits: self.chunk_bits,
            indexes: true,
            wide: false,
        };
        format.encode(block_bits)
    }

    /// Bytes from the end of inode and xattrs, which take `head_bytes`, to the end of the table.
    pub fn bytes_behind(&self, head_bytes: u64) -> u64 {
        head_bytes.next_multiple_of(8) - head_bytes + 8 * self.blocks.len() as u64
    }

    /// Appends the table.
    pub fn encode(&self, out: &mut Vec<u8>) {
        out.resize(out.len().next_multiple_of(8), 0);
        for &block in &self.blocks {
            let device = if block == HOLE { 0 } else { DEVICE };
            out.extend_from_slice(&[0; 2]); // no high bits
            out.extend_from_slice(&device.to_le_bytes());
            out.extend_from_slice(&block.to_le_bytes());
        }
    }
}

/// The extra device of an image.
pub(crate) struct Device {
    pub blocks: u32,
    /// Tells one blob from another; nothing for an archive, which is not read.
    cookie: Vec<u8>,
    /// The file, if it is built with the image.
    blob: Option<Beside>,
}

impl Device {
    /// The table of devices.
    pub fn table(&self) -> Vec<u8> {
        let mut slot = RawDeviceSlot::new_zeroed();
        slot.blocks_lo = self.blocks.into();
        slot.tag[..self.cookie.len()].copy_from_slice(&self.cookie);
        slot.as_bytes().to_vec()
    }

    /// Gives the blob its name.
    pub fn place(self, sync: bool) -> Result<(), Error> {
        self.blob.map_or(Ok(()), |blob| blob.place(sync))
    }
}

/// Returns whether an image with these options has an extra device.
pub(crate) fn is_wanted(options: &Options) -> bool {
    options.blob_device.is_some() || options.tar_index
}

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

/// Decides which files lie on the extra device, and writes it if it is a blob.
pub(crate) fn store(look: &Look<'_>, plan: &mut Plan) -> Result<Option<Device>, Error> {
    match (&look.options.blob_device, look.source) {
        (Some(path), _) => blob::store(look, plan, path).map(Some),
        (None, _) if !look.options.tar_index => Ok(None),
        (None, Source::Archive(contents)) if contents.is_in_place() => {
            archive::store(look, plan, contents).map(Some)
        }
        (None, _) => Err(Error::Option(
            "an index is of one archive in a file, and not compressed, for that stays where it is"
                .into(),
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_names_the_device_but_for_holes() {
        let file = Elsewhere {
            chunk_bits: 12,
            blocks: [7, HOLE].into(),
        };
        let mut out = vec![9; 36];
        file.encode(&mut out);
        assert_eq!(out.len() as u64, 36 + file.bytes_behind(36));
        let hole = [0, 0, 0, 0, 255, 255, 255, 255];
        assert_eq!(out[40..], [&[0, 0, 1, 0, 7, 0, 0, 0][..], &hole].concat());
    }
}
