//! A descriptor of VMDK, by which virtual machines take the image, and extra devices behind it, for one disk.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use crate::failure::Failure;

const SECTOR_BYTES: u64 = 512;
/// Most sectors of an extent of the form that is named in the descriptor.
const EXTENT_SECTORS_MAX: u64 = (2 << 30) / SECTOR_BYTES;
const HEADS: u64 = 16;
const SECTORS_OF_TRACK: u64 = 63;

/// A file that is a part of the disk.
pub struct Part {
    pub path: PathBuf,
    /// The byte at which it begins.
    pub start: u64,
    pub bytes: u64,
}

/// Writes the descriptor of a disk that these parts are, one behind the other.
pub fn write(descriptor: &Path, uuid: &[u8; 16], parts: &[Part]) -> Result<(), Failure> {
    let text = text(uuid, parts);
    std::fs::write(descriptor, text).map_err(|error| Failure::system(descriptor, &error))
}

fn text(uuid: &[u8; 16], parts: &[Part]) -> String {
    let mut extents = String::new();
    for part in parts {
        let name = part.path.display();
        let (mut at, mut left) = (part.start / SECTOR_BYTES, part.bytes / SECTOR_BYTES);
        while left > 0 {
            let count = left.min(EXTENT_SECTORS_MAX);
            let _ = writeln!(extents, "RW {count} FLAT \"{name}\" {at}");
            (at, left) = (at + count, left - count);
        }
    }
    let sectors: u64 = parts.iter().map(|part| part.bytes / SECTOR_BYTES).sum();
    let cylinders = sectors.div_ceil(SECTORS_OF_TRACK * HEADS);
    format!(
        "# Disk DescriptorFile\nversion=1\nCID={:x}\nparentCID=ffffffff\n\
         createType=\"twoGbMaxExtentFlat\"\n\n# Extent description\n{extents}\n\
         # The Disk Data Base\n#DDB\n\nddb.virtualHWVersion = \"4\"\n\
         ddb.geometry.cylinders = \"{cylinders}\"\nddb.geometry.heads = \"{HEADS}\"\n\
         ddb.geometry.sectors = \"{SECTORS_OF_TRACK}\"\nddb.adapterType = \"ide\"\n",
        content_id(uuid)
    )
}

/// The number by which a disk tells that it has changed: the words of the UUID together.
fn content_id(uuid: &[u8; 16]) -> u32 {
    let words = uuid.chunks_exact(4).map(|word| {
        let word: [u8; 4] = word.try_into().expect("4 bytes");
        u32::from_le_bytes(word)
    });
    words.fold(0, |id, word| id ^ word)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn extents_have_two_gibibytes_at_most() {
        let parts = [
            Part {
                path: "a.erofs".into(),
                start: 1024,
                bytes: (5 << 30) + 4096,
            },
            Part {
                path: "blob".into(),
                start: 0,
                bytes: 512,
            },
        ];
        let text = text(&[1, 0, 0, 0, 2, 0, 0, 0, 4, 0, 0, 0, 0, 0, 0, 0xf0], &parts);
        let expected = "CID=f0000007\nparentCID=ffffffff\n";
        assert!(text.contains(expected), "{text}");
        let expected = "RW 4194304 FLAT \"a.erofs\" 2\nRW 4194304 FLAT \"a.erofs\" 4194306\n\
                        RW 2097160 FLAT \"a.erofs\" 8388610\nRW 1 FLAT \"blob\" 0\n";
        assert!(text.contains(expected), "{text}");
        assert!(text.contains("cylinders = \"10403\""), "{text}");
    }
}
