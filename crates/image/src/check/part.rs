//! Parts of an image: runs of bytes, and what takes them.

#[cfg(test)]
mod tests;

use std::cmp::Reverse;

use anteros_core::Sorted;
use anteros_format::Nid;

use crate::Place;
use crate::map::{Encoding, Location};

/// A run of bytes that something takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Part {
    pub(super) location: Location,
    pub(super) bytes: u64,
    pub(super) place: Place,
    pub(super) what: What,
}

/// Tells what takes a run of bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum What {
    /// The superblock, a table, or an inode with all that follows it.
    Metadata,
    /// A shared attribute: many inodes may refer to it.
    SharedXattr,
    /// Plain data of a file as a whole, which others with the same content may share.
    Flat,
    /// Plain data in chunks, which files may share.
    Chunk,
    /// An encoded extent, of so many bytes once decoded.
    Encoded(Encoded),
}

/// Describes how to decode an extent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Encoded {
    pub(super) len: u32,
    pub(super) encoding: Encoding,
    pub(super) partial: bool,
    /// It lies behind an index, whose own part covers it.
    pub(super) inline: bool,
}

impl Part {
    /// Sorts by address; of extents on the same bytes, those that need most of them come first.
    fn sort_key(&self) -> (Location, u64, Reverse<u32>, bool, What, Place) {
        let (len, partial) = match self.what {
            What::Encoded(encoded) => (encoded.len, encoded.partial),
            _ => (0, false),
        };
        (
            self.location,
            self.bytes,
            Reverse(len),
            partial,
            self.what,
            self.place,
        )
    }

    pub(super) const fn end(&self) -> u64 {
        self.location.address() + self.bytes
    }

    /// The device it lies on; `None` for the metabox.
    pub(super) const fn device(&self) -> Option<u16> {
        match self.location {
            Location::Device { device, .. } => Some(device),
            Location::Metabox { .. } => None,
        }
    }

    /// Returns whether it goes on where another one of its kind and file ends.
    pub(super) fn continues(&self, before: &Self) -> bool {
        let joinable = matches!(self.what, What::Flat | What::Chunk) && self.what == before.what;
        joinable
            && self.nid().is_some_and(|nid| before.nid() == Some(nid))
            && before.location.plus(before.bytes) == Some(self.location)
    }

    fn nid(&self) -> Option<Nid> {
        self.place.nid()
    }

    pub(super) fn is_inline(&self) -> bool {
        matches!(self.what, What::Encoded(Encoded { inline: true, .. }))
    }

    pub(super) fn is_on_same_bytes(&self, other: &Self) -> bool {
        (self.location, self.bytes) == (other.location, other.bytes)
    }

    /// Returns whether one of both is enough, as they say the same of the same bytes.
    pub(super) fn is_repeated_by(&self, other: &Self) -> bool {
        self.is_on_same_bytes(other) && self.what == other.what && self.may_share(other)
    }

    /// Returns whether both may lie on the same bytes.
    pub(super) fn may_share(&self, other: &Self) -> bool {
        let same = self.is_on_same_bytes(other);
        match (self.what, other.what) {
            (What::Chunk, What::Chunk) => true,
            (What::SharedXattr, What::SharedXattr)
            | (What::Encoded(_), What::Encoded(_))
            | (What::Flat, What::Flat) => same,
            // A plain extent is the block of a flat file that it lies on.
            (What::Flat, What::Encoded(extent)) | (What::Encoded(extent), What::Flat) => {
                extent.encoding == Encoding::Plain
            }
            _ => false,
        }
    }
}

/// The map of the image, by address. What several files share in the same way is kept once, with the
/// first of their places: however many extents an index claims, the map has no more parts than the
/// image has different ones.
pub(super) type Parts = Sorted<Part>;

impl Ord for Part {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.sort_key().cmp(&other.sort_key())
    }
}

impl PartialOrd for Part {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}
