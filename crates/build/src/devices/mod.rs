//! Content that lies on an extra device: in a blob that is built with the image, or in the archive that it is an index of.
//!
//! | module | job |
//! |---|---|
//! | `blob` | files in chunks, each of which a blob has once |
//! | `archive` | files whose content stays in the archive |
//! | `referred` | files whose content stays in images that are sources |
//!
//! The UUID of an image follows from its bytes; that other blobs have other ones, a cookie in the table sees to.
//!
//! All of them are decided before any content of the image is written. The image has a table of devices then, and each chunk
//! of such a file names its device and the block on it. The devices have places behind the image as well, one after the
//! other, so that a single disk may hold them all.

mod archive;
mod blob;
mod referred;

use std::path::{Path, PathBuf};

use anteros_format::chunk::ChunkFormat;
use anteros_format::superblock::RawDeviceSlot;
use zerocopy::{FromZeros, IntoBytes};

use crate::look::Look;
use crate::output::{Beside, target};
use crate::places::SourceDevice;
use crate::plan::Plan;
use crate::source::Source;
use crate::{Content, Error, Options};

/// Bytes of an entry of the table of devices; it begins at a multiple of that.
pub(crate) const SLOT_BYTES: u64 = size_of::<RawDeviceSlot>() as u64;

/// Stands for a chunk of zeros.
const HOLE: u32 = u32::MAX;

/// A file on an extra device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Elsewhere {
    /// The number of the device, from 1 on.
    device: u16,
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

    /// Bytes of memory that it takes.
    pub fn memory_bytes(&self) -> u64 {
        (size_of::<Self>() + size_of_val(&*self.blocks)) as u64
    }

    /// Appends the table.
    pub fn encode(&self, out: &mut Vec<u8>) {
        out.resize(out.len().next_multiple_of(8), 0);
        for &block in &self.blocks {
            let device = if block == HOLE { 0 } else { self.device };
            out.extend_from_slice(&[0; 2]); // no high bits
            out.extend_from_slice(&device.to_le_bytes());
            out.extend_from_slice(&block.to_le_bytes());
        }
    }
}

/// An extra device of an image.
#[derive(Debug, Default)]
pub(crate) struct Slot {
    pub blocks: u32,
    /// Tells one blob from another; nothing for an archive, which is not read.
    tag: Vec<u8>,
    /// The path of one that is a source.
    pub path: Option<PathBuf>,
}

/// The extra devices of an image.
#[derive(Default)]
pub(crate) struct Devices {
    pub slots: Vec<Slot>,
    /// The file of the only one, if it is built with the image.
    blob: Option<Beside>,
}

impl Devices {
    /// Bytes of the table.
    pub fn table_bytes(&self) -> u64 {
        SLOT_BYTES * self.slots.len() as u64
    }

    /// The table of devices, with the places that they have behind an image of so many blocks, as far as blocks have numbers
    /// there.
    pub fn table(&self, image_blocks: u64) -> Vec<u8> {
        let mut start = image_blocks;
        let mut table = Vec::new();
        for slot in &self.slots {
            let end = start + u64::from(slot.blocks);
            let mut raw = RawDeviceSlot::new_zeroed();
            raw.blocks_lo = slot.blocks.into();
            raw.uniaddr_lo = match end < HOLE.into() {
                true => start as u32,
                false => 0, // nowhere
            }
            .into();
            raw.tag[..slot.tag.len()].copy_from_slice(&slot.tag);
            table.extend_from_slice(raw.as_bytes());
            start = end;
        }
        table
    }

    /// Gives the blob its name; answers what the devices are.
    pub fn place(self, options: &Options) -> Result<Vec<SourceDevice>, Error> {
        self.blob.map_or(Ok(()), |blob| blob.place(options.sync))?;
        let device = |slot: Slot| SourceDevice {
            path: slot.path,
            bytes: u64::from(slot.blocks) << options.block_bits,
            tag: slot.tag,
        };
        Ok(self.slots.into_iter().map(device).collect())
    }
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

/// Decides which files lie on extra devices, and writes the one that is a blob.
pub(crate) fn store(look: &Look<'_>, plan: &mut Plan) -> Result<Devices, Error> {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_names_the_device_but_for_holes() {
        let file = Elsewhere {
            device: 1,
            chunk_bits: 12,
            blocks: [7, HOLE].into(),
        };
        let mut out = vec![9; 36];
        file.encode(&mut out);
        assert_eq!(out.len() as u64, 36 + file.bytes_behind(36));
        let hole = [0, 0, 0, 0, 255, 255, 255, 255];
        assert_eq!(out[40..], [&[0, 0, 1, 0, 7, 0, 0, 0][..], &hole].concat());
    }

    #[test]
    fn devices_lie_behind_the_image_as_far_as_blocks_have_numbers() {
        let slot = |blocks| Slot {
            blocks,
            ..Slot::default()
        };
        let devices = Devices {
            slots: vec![slot(7), slot(u32::MAX - 30), slot(5)],
            blob: None,
        };
        let starts = |image| {
            let table = devices.table(image);
            let word = |at: usize| u32::from_le_bytes(table[at + 68..at + 72].try_into().unwrap());
            [0, 128, 256].map(word)
        };
        assert_eq!(starts(10), [10, 17, u32::MAX - 13]);
        assert_eq!(starts(19), [19, 26, 0]);
        assert_eq!(starts(24), [24, 0, 0]);
    }
}
