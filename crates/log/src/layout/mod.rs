//! The bytes of the log's structures, and no I/O.
//!
//! A module for each section of `docs/format/log.md`. What is read is checked before it is handed on: a value
//! that breaks a rule of the page becomes a [`Corrupt`] with its place, whoever made the bytes.

pub mod bits;
pub mod checkpoint;
pub mod checksum;
pub mod dir;
pub mod fault;
mod head;
pub mod node;
pub mod packed;
pub mod paper;
pub mod pointer;
pub mod record;
pub mod summary;
pub mod superblock;
pub mod table;
pub mod xattr;

pub use fault::{Corrupt, Fault, Unsupported};
pub use superblock::{Shape, Superblock, TooSmall};

/// Bytes of a block.
pub const BLOCK_BYTES: usize = 4096;
/// Blocks of a segment.
pub const SEGMENT_BLOCKS: u32 = 512;
/// Blocks of a segment that hold content; the last one is its summary.
pub const SEGMENT_CONTENT: u32 = 511;
/// The most blocks of a device.
pub const BLOCKS_MAX: u64 = 1 << 40;
/// The inode number of the root directory.
pub const ROOT: u32 = 1;

/// The bytes of a block.
pub type Block = [u8; BLOCK_BYTES];

/// CRC-32C of bytes.
pub(crate) fn crc(bytes: &[u8]) -> u32 {
    crc32c::crc32c(bytes)
}

/// CRC-32C of a block whose checksum lies at `crc_at`; those four bytes count as zero.
pub(crate) fn block_crc(block: &Block, crc_at: usize) -> u32 {
    crc_around(block, crc_at)
}

/// CRC-32C of bytes whose checksum lies at `crc_at`; those four bytes count as zero.
pub(crate) fn crc_around(bytes: &[u8], crc_at: usize) -> u32 {
    let before = crc(&bytes[..crc_at]);
    let field = crc32c::crc32c_append(before, &[0; 4]);
    crc32c::crc32c_append(field, &bytes[crc_at + 4..])
}

/// CRC-32C of bytes that follow each other.
fn crc_of(parts: &[&[u8]]) -> u32 {
    parts
        .iter()
        .fold(0, |crc, part| crc32c::crc32c_append(crc, part))
}

/// Writes the checksum of `bytes` to its place.
pub(crate) fn seal(bytes: &mut [u8], crc_at: usize) {
    let crc = crc_around(bytes, crc_at);
    bytes[crc_at..crc_at + 4].copy_from_slice(&crc.to_le_bytes());
}

/// Returns whether a name may stand in a directory.
fn is_name(name: &[u8]) -> bool {
    let is_special = matches!(name, b"" | b"." | b"..");
    name.len() <= 255 && !is_special && !name.iter().any(|byte| matches!(byte, 0 | b'/'))
}

/// Returns whether a file type of a directory entry is that of some file.
fn is_file_type(file_type: u8) -> bool {
    file_type < 16 && anteros_core::FileKind::from_mode(u32::from(file_type) << 12).is_some()
}

/// A word of the message, and the change that has to be refused with it.
#[cfg(test)]
type Broken<T> = (&'static str, fn(&mut T));

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_checksum_takes_its_own_field_as_zero() {
        let mut bytes = *b"123456789....tail";
        bytes[9..13].fill(0);
        let plain = crc(&bytes);
        seal(&mut bytes, 9);
        assert_eq!(bytes[9..13], plain.to_le_bytes());
        assert_eq!(crc_around(&bytes, 9), plain);
        // The check value of CRC-32C.
        assert_eq!(crc(b"123456789"), 0xe306_9283);
    }
}
