//! The place of the image that a layer is a patch of, as inodes of the layer refer to it.

use anteros_format::superblock::Superblock;
use anteros_format::{Fault, moved};

use crate::{Error, Options};

/// The image that a layer is a patch of.
#[derive(Debug)]
pub(crate) struct Lower {
    /// The block at which it has its place: nothing of the layer lies there.
    pub place: u32,
    pub(super) sb: Superblock,
}

impl Lower {
    /// Has an inode of the image, with all that follows it, refer to where the image has its place.
    pub fn refer_to(&self, record: &mut [u8]) -> Result<(), Fault> {
        moved::move_content(record, &self.sb, self.place)
    }

    /// Makes sure that a layer ends in front of it.
    pub fn check_behind(&self, end: u64, options: &Options) -> Result<(), Error> {
        match end <= u64::from(self.place) << options.block_bits {
            true => Ok(()),
            false => Err(Error::Option(format!(
                "the layer has {end} bytes, and block {} is where the image has its place",
                self.place
            ))),
        }
    }
}
