//! Mutants: a sound image with one or two fields changed, and its checksum made right again.

use std::collections::HashSet;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use anteros_core::FileKind;
use anteros_format::SLOT_BYTES;
use anteros_format::inode::Inode;
use anteros_format::superblock::{SUPERBLOCK_BYTES, SUPERBLOCK_OFFSET, checksum, checksum_len};
use anteros_image::{Image, Location, OpenOptions, Source};

use crate::outcome::Outcome;

/// Tells what a field belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Part {
    Superblock,
    Inode,
    Xattr,
    Index,
    Directory,
    Symlink,
    Data,
}

impl Part {
    pub(crate) const ALL: [Self; 7] = [
        Self::Superblock,
        Self::Inode,
        Self::Xattr,
        Self::Index,
        Self::Directory,
        Self::Symlink,
        Self::Data,
    ];

    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Superblock => "superblock",
            Self::Inode => "inode",
            Self::Xattr => "attributes",
            Self::Index => "index",
            Self::Directory => "directory",
            Self::Symlink => "symbolic link",
            Self::Data => "data",
        }
    }
}

/// A sound image, and where its fields lie.
pub(crate) struct Original {
    pub(crate) name: String,
    bytes: Vec<u8>,
    block_bits: u8,
    parts: Vec<(Part, Range<usize>)>,
}

/// A spoiled image.
pub(crate) struct Mutant {
    pub(crate) bytes: Vec<u8>,
    /// The part in which the first change was made.
    pub(crate) part: Part,
    /// Holds what was changed, for a person.
    pub(crate) changes: String,
}

/// A small generator of numbers, so that a seed replays a run.
pub(crate) struct Numbers(u64);

impl Numbers {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    /// Below `limit`.
    pub(crate) fn below(&mut self, limit: usize) -> usize {
        // Xorshift, Marsaglia 2003.
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % limit.max(1) as u64) as usize
    }
}

impl Original {
    /// Reads an image of a single device and finds its parts.
    ///
    /// # Errors
    /// When it cannot be read.
    pub(crate) fn read(path: &Path) -> Outcome<Self> {
        let bytes = std::fs::read(path)?;
        let name = path.file_stem().unwrap_or_default();
        let image = Image::open(Arc::new(bytes.clone()), Vec::new(), OpenOptions::default())?;
        let mut parts = Vec::new();
        let begin = SUPERBLOCK_OFFSET as usize;
        parts.push((Part::Superblock, begin..begin + SUPERBLOCK_BYTES + 32));
        gather(&image, &mut parts)?;
        parts.retain(|(_, range)| !range.is_empty() && range.end <= bytes.len());
        Ok(Self {
            name: name.to_string_lossy().into_owned(),
            block_bits: image.superblock().block_bits,
            bytes,
            parts,
        })
    }

    /// The image as it is.
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// The mutant with this seed.
    pub(crate) fn mutant(&self, seed: u64) -> Mutant {
        let mut numbers = Numbers::new(seed);
        let mut bytes = self.bytes.clone();
        let wanted = loop {
            let wanted = Part::ALL[numbers.below(Part::ALL.len())];
            if self.parts.iter().any(|(part, _)| *part == wanted) {
                break wanted;
            }
        };
        let mut changes = String::new();
        for _ in 0..1 + numbers.below(4) / 3 {
            let chosen: Vec<_> = self
                .parts
                .iter()
                .filter(|(part, _)| *part == wanted)
                .collect();
            let (_, range) = chosen[numbers.below(chosen.len())];
            let change = change(&mut bytes, range, &mut numbers);
            changes = format!("{changes}{} {change}; ", wanted.name());
        }
        seal(&mut bytes, self.block_bits);
        Mutant {
            bytes,
            part: wanted,
            changes,
        }
    }
}

/// Finds the parts of all inodes that have a name.
fn gather(image: &Image, parts: &mut Vec<(Part, Range<usize>)>) -> Outcome {
    let mut seen = HashSet::new();
    let mut pending = vec![image.root()?];
    while let Some(inode) = pending.pop() {
        if !seen.insert(inode.nid) {
            continue;
        }
        if !inode.nid.in_metabox() {
            heads(image, &inode, parts);
        }
        content(image, &inode, parts)?;
        if inode.kind == FileKind::Directory {
            for entry in image.read_dir(&inode)? {
                pending.push(image.inode(entry.nid)?);
            }
        }
    }
    let sb = image.superblock();
    // Attributes that inodes share, about: they are not told one by one.
    let shared = (sb.xattr_block as usize) << sb.block_bits;
    if shared != 0 {
        parts.push((Part::Xattr, shared..shared + 256));
    }
    Ok(())
}

/// The inode itself, its attributes and its index.
fn heads(image: &Image, inode: &Inode, parts: &mut Vec<(Part, Range<usize>)>) {
    let sb = image.superblock();
    let origin = (sb.meta_block as usize) << sb.block_bits;
    let at = origin + (inode.nid.0 * SLOT_BYTES) as usize;
    let body = at + inode.body_bytes() as usize;
    let head = at + inode.head_bytes() as usize;
    parts.push((Part::Inode, at..body));
    parts.push((Part::Xattr, body..head));
    if inode.layout.is_compressed() || inode.chunk_format.is_some() {
        let entries = 8 * inode.size.div_ceil(4096).min(16) as usize;
        let start = head.next_multiple_of(8);
        parts.push((Part::Index, start..start + 8 + entries));
    }
}

/// The place of the content.
fn content(image: &Image, inode: &Inode, parts: &mut Vec<(Part, Range<usize>)>) -> Outcome {
    let part = match inode.kind {
        FileKind::Directory => Part::Directory,
        FileKind::Symlink => Part::Symlink,
        FileKind::Regular if inode.layout.is_compressed() => Part::Data,
        _ => return Ok(()),
    };
    let map = image.map(inode)?;
    for extent in image.extents(inode, &map) {
        let extent = extent?;
        let (location, len) = match extent.source {
            Source::Raw(location) => (location, extent.len),
            Source::Pcluster(pcluster) => (pcluster.location, pcluster.bytes.into()),
            _ => continue,
        };
        if let Location::Device { device: 0, address } = location {
            parts.push((part, address as usize..(address + len) as usize));
        }
    }
    Ok(())
}

/// Changes a field somewhere in the range, and says how.
fn change(bytes: &mut [u8], range: &Range<usize>, numbers: &mut Numbers) -> String {
    /// Values in which a change is most often a change of meaning.
    const TELLING: [u64; 14] = [
        0,
        1,
        2,
        3,
        7,
        8,
        0x0c,
        0x10,
        0x20,
        0x7f,
        0x80,
        0xff,
        0xffff,
        u64::MAX,
    ];
    // Heads of directories and of data tell more than what is far behind.
    let reach = match numbers.below(3) {
        0 => range.len().min(64),
        _ => range.len(),
    };
    let width = [1, 1, 2, 4, 8][numbers.below(5)].min(range.len());
    let offset = numbers.below(reach) / width * width;
    let at = (range.start + offset).min(range.end - width);
    let mut old = [0; 8];
    old[..width].copy_from_slice(&bytes[at..at + width]);
    let old = u64::from_le_bytes(old);
    let new = match numbers.below(6) {
        0 | 1 => old ^ 1 << numbers.below(8 * width),
        2 => old.wrapping_add(1),
        3 => old.wrapping_sub(1),
        4 => TELLING[numbers.below(TELLING.len())],
        _ => numbers.below(usize::MAX) as u64,
    };
    bytes[at..at + width].copy_from_slice(&new.to_le_bytes()[..width]);
    format!("+{offset:#x}/{width} at {at:#x}: {old:#x} to {new:#x}")
}

/// Makes the checksum right.
fn seal(bytes: &mut [u8], block_bits: u8) {
    let start = SUPERBLOCK_OFFSET as usize;
    // What was made of the size of the blocks, the kernel goes by it.
    let bits = match bytes[start + 12] {
        bits @ 9..=16 => bits,
        _ => block_bits,
    };
    let Some(covered) = bytes.get(start..start + checksum_len(bits)) else {
        return;
    };
    let sum = checksum(covered);
    bytes[start + 4..start + 8].copy_from_slice(&sum.to_le_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    fn original() -> Original {
        let fixtures = crate::run::root().join("tests/fixtures");
        Original::read(&fixtures.join("lz4hc-full-16k.erofs")).unwrap()
    }

    #[test]
    fn a_seed_makes_the_same_mutant_again() {
        let original = original();
        for seed in 0..20 {
            let [one, other] = [(); 2].map(|()| original.mutant(seed));
            assert!(one.bytes == other.bytes && one.changes == other.changes);
        }
    }

    #[test]
    fn each_part_is_changed_and_little_else() {
        let original = original();
        let mut met = HashSet::new();
        for seed in 0..400 {
            let mutant = original.mutant(seed);
            assert_eq!(mutant.bytes.len(), original.bytes.len());
            let pairs = mutant.bytes.iter().zip(&original.bytes);
            // Two fields, and the checksum.
            assert!(pairs.filter(|(a, b)| a != b).count() <= 2 * 8 + 4);
            met.insert(mutant.part.name());
        }
        assert_eq!(met.len(), Part::ALL.len(), "{met:?}");
    }

    #[test]
    fn checksums_are_right() {
        let original = original();
        let start = SUPERBLOCK_OFFSET as usize;
        for seed in 0..100 {
            let bytes = original.mutant(seed).bytes;
            if bytes[start + 12] != original.block_bits {
                continue;
            }
            let covered = &bytes[start..start + checksum_len(original.block_bits)];
            let stored = u32::from_le_bytes(bytes[start + 4..start + 8].try_into().unwrap());
            assert_eq!(checksum(covered), stored, "{seed}");
        }
    }
}
