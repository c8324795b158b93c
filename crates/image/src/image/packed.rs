//! The packed inode, which holds fragments of many files.

use anteros_format::inode::Inode;
use anteros_format::{Corrupt, Nid};

use super::Image;
use crate::error::{Error, Place, Result};
use crate::map::{Extent, Map};

/// Extents from this length on are large.
const LARGE_EXTENT_BYTES: u64 = 1 << 20;

impl Image {
    /// The size of the packed inode in bytes, 0 if there is none.
    pub fn packed_bytes(&self) -> u64 {
        self.packed.as_ref().map_or(0, |(inode, _)| inode.size)
    }

    /// Returns whether files are packed together in extents of a MiB and more. The files of one directory may lie in many of
    /// these. A cache that is too small for them has each decoded again and again.
    pub fn packs_large_extents(&self) -> bool {
        let Some((inode, map)) = self.packed.as_ref().filter(|(inode, _)| inode.size > 0) else {
            return false;
        };
        let is_large = |offset| match self.extent_at(inode, map, offset) {
            Ok(extent) => extent.len >= LARGE_EXTENT_BYTES,
            Err(_) => false,
        };
        let part = inode.size / 4;
        (0..4).any(|n| is_large(n * part))
    }

    /// The extent of the packed inode that holds the byte `offset`; `None` if it is not there, or broken.
    pub(crate) fn packed_extent_at(&self, offset: u64) -> Option<Extent> {
        let (inode, map) = self.packed.as_ref()?;
        let is_there = offset < inode.size;
        let extent = is_there.then(|| self.extent_at(inode, map, offset));
        let extent = extent?.ok()?;
        (extent.offset..extent.end())
            .contains(&offset)
            .then_some(extent)
    }

    /// Checks that a fragment lies inside the packed inode, and returns that.
    pub(crate) fn check_fragment(
        &self,
        place: Place,
        offset: u64,
        len: u64,
    ) -> Result<&(Inode, Map)> {
        let Some(packed) = &self.packed else {
            return Err(Error::corrupt(place)(Corrupt::FragmentWithoutPacked));
        };
        let packed_size = packed.0.size;
        if offset.checked_add(len).is_none_or(|end| end > packed_size) {
            let fault = Corrupt::Fragment {
                offset,
                len,
                packed_size,
            };
            return Err(Error::Corrupt { place, fault });
        }
        Ok(packed)
    }

    /// Returns whether the inode holds fragments or metadata.
    pub(crate) fn is_special(&self, nid: Nid) -> bool {
        self.sb.packed == Some(nid) || self.sb.metabox == Some(nid)
    }

    /// Returns whether the inode is the packed inode, which may use no fragments itself.
    pub(crate) fn is_packed(&self, nid: Nid) -> bool {
        self.sb.packed == Some(nid)
    }
}
