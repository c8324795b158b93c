//! The extra devices of an image, and the table that tells of them.

use std::path::PathBuf;

use anteros_format::superblock::RawDeviceSlot;
use zerocopy::{FromZeros, IntoBytes};

use super::elsewhere::HOLE;
use crate::output::Beside;
use crate::places::SourceDevice;
use crate::{Error, Options};

/// Bytes of an entry of the table of devices; it begins at a multiple of that.
pub(crate) const SLOT_BYTES: u64 = size_of::<RawDeviceSlot>() as u64;

/// An extra device of an image.
#[derive(Debug, Default)]
pub(crate) struct Slot {
    pub blocks: u32,
    /// Tells one blob from another; nothing for an archive, which is not read.
    pub(super) tag: Vec<u8>,
    /// The path of one that is a source.
    pub path: Option<PathBuf>,
}

/// The extra devices of an image.
#[derive(Default)]
pub(crate) struct Devices {
    pub slots: Vec<Slot>,
    /// The block at which the first one has its place; behind the image unless told.
    pub(super) place: Option<u32>,
    /// The file of the only one, if it is built with the image.
    pub(super) blob: Option<Beside>,
}

impl Devices {
    /// Bytes of the table.
    pub fn table_bytes(&self) -> u64 {
        SLOT_BYTES * self.slots.len() as u64
    }

    /// The table of devices, with the places that they have behind an image of so many blocks, as far as blocks have numbers
    /// there.
    pub fn table(&self, image_blocks: u64) -> Vec<u8> {
        let mut start = self.place.map_or(image_blocks, u64::from);
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn devices_lie_behind_the_image_as_far_as_blocks_have_numbers() {
        let slot = |blocks| Slot {
            blocks,
            ..Slot::default()
        };
        let devices = Devices {
            slots: vec![slot(7), slot(u32::MAX - 30), slot(5)],
            place: None,
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
