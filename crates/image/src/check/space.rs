//! The map of the image: which bytes are taken by what.

use std::cmp::Reverse;

use anteros_core::Sorted;
use anteros_format::Nid;

use crate::Place;
use crate::map::{Encoding, Location};

use super::{FindingKind, Run};

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

    fn is_inline(&self) -> bool {
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
    fn may_share(&self, other: &Self) -> bool {
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

/// Notes all overlaps, and returns how many bytes lie in blocks that nothing refers to.
pub(super) fn check(run: &Run<'_>, parts: &Parts) -> u64 {
    let sb = run.image.superblock();
    let mut furthest: Option<Part> = None;
    let mut reached_block = 0;
    let mut used_blocks = 0;
    let known = parts.iter().map_while(|part| run.scratch(part));
    for part in known.filter(|part| !part.is_inline()) {
        let before = furthest.filter(|before| before.device() == part.device());
        if let Some(before) = before.filter(|before| before.end() > part.location.address()) {
            note_overlap(run, &before, &part);
        }
        if before.is_none_or(|before| before.end() <= part.end()) {
            furthest = Some(part);
        }
        if part.device() == Some(0) {
            let first = (part.location.address() >> sb.block_bits).max(reached_block);
            let end = part.end().div_ceil(sb.block_bytes().into());
            used_blocks += end.saturating_sub(first);
            reached_block = reached_block.max(end);
        }
    }
    note_unreachable(run, used_blocks)
}

fn note_overlap(run: &Run<'_>, before: &Part, part: &Part) {
    if before.may_share(part) {
        return;
    }
    let at = part.location.address();
    let bytes = before.end().min(part.end()) - at;
    run.note(
        part.place,
        FindingKind::Overlap {
            at,
            bytes,
            other: before.place,
        },
    );
}

fn note_unreachable(run: &Run<'_>, used_blocks: u64) -> u64 {
    let sb = run.image.superblock();
    let present = run.image.primary_size() >> sb.block_bits;
    let blocks = sb.blocks.min(present).saturating_sub(used_blocks);
    let bytes = blocks << sb.block_bits;
    if blocks > 0 && !run.is_ended() && run.is_all_read() {
        run.note(Place::Image, FindingKind::Unreachable { bytes, blocks });
    }
    bytes
}

#[cfg(test)]
mod tests {
    use anteros_core::Sorter;

    use super::*;

    fn part(address: u64, nid: u64, what: What) -> Part {
        Part {
            location: Location::Device { device: 0, address },
            bytes: 4096,
            place: Place::Inode(Nid(nid)),
            what,
        }
    }

    #[test]
    fn plain_extents_may_be_blocks_of_flat_files() {
        let encoded = |encoding| {
            What::Encoded(Encoded {
                len: 4096,
                encoding,
                partial: false,
                inline: false,
            })
        };
        let flat = Part {
            bytes: 12_000,
            ..part(4096, 1, What::Flat)
        };
        let plain = part(8192, 2, encoded(Encoding::Plain));
        let lz4 = Encoding::Compressed(anteros_core::Algorithm::Lz4);
        assert!(flat.may_share(&plain) && plain.may_share(&flat));
        assert!(!flat.may_share(&part(8192, 2, encoded(lz4))));
    }

    #[test]
    fn what_files_share_is_kept_once() {
        let encoded = |len, encoding| {
            What::Encoded(Encoded {
                len,
                encoding,
                partial: false,
                inline: false,
            })
        };
        let whole = encoded(9000, Encoding::Compressed(anteros_core::Algorithm::Lz4));
        let shorter = encoded(8000, Encoding::Compressed(anteros_core::Algorithm::Lz4));
        let other = encoded(9000, Encoding::Compressed(anteros_core::Algorithm::Zstd));
        let mut sorter = Sorter::new(0);
        for nid in [3, 1, 2] {
            for what in [whole, other, shorter, What::Chunk, What::Flat] {
                sorter.push(part(4096, nid, what)).unwrap();
            }
        }
        let parts = sorter.finish().unwrap();
        let parts = parts.iter().map(Result::unwrap);
        let kept: Vec<_> = parts.map(|part| (part.what, part.nid())).collect();
        let first = Some(Nid(1));
        let expected = [
            (whole, first),
            (other, first),
            (shorter, first),
            (What::Flat, first),
            (What::Chunk, first),
        ];
        assert_eq!(kept, expected);
    }
}
