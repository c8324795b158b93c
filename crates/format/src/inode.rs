//! Inodes.
//!
//! An inode is 32 bytes (compact) or 64 (extended). Behind it lie, in this order, the xattr region,
//! the chunk table or compression index, and inline data. A compact inode never crosses a block,
//! an extended one may.

use anteros_core::{FileKind, Rdev, Timestamp};
use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::chunk::ChunkFormat;
use crate::superblock::Superblock;
use crate::xattr;
use crate::{Corrupt, Fault, Nid, Unsupported};

/// A compact inode.
///
/// ```text
///        0        2        4        6        8            c
/// 0x00 | format | xattrs |  mode  |   nb   |    size    |   mtime    |
/// 0x10 |     i_u         |      ino        | uid | gid  |  reserved  |
/// ```
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
#[allow(missing_docs)] // the specification's own names, drawn above
pub struct RawCompactInode {
    pub i_format: U16,
    pub i_xattr_icount: U16,
    pub i_mode: U16,
    /// Link count, or with [`FORMAT_NLINK_1`] bits 32 to 47 of an address.
    pub i_nb: U16,
    pub i_size: U32,
    pub i_mtime: U32,
    pub i_u: U32,
    pub i_ino: U32,
    pub i_uid: U16,
    pub i_gid: U16,
    pub i_reserved: U32,
}

/// An extended inode.
///
/// ```text
///        0        2        4        6        8            c
/// 0x00 | format | xattrs |  mode  |   nb   |         size            |
/// 0x10 |     i_u         |      ino        |    uid     |    gid     |
/// 0x20 |             mtime                 | mtime_nsec |   nlink    |
/// 0x30 |                        reserved                             |
/// ```
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
#[allow(missing_docs)] // the specification's own names, drawn above
pub struct RawExtendedInode {
    pub i_format: U16,
    pub i_xattr_icount: U16,
    pub i_mode: U16,
    pub i_nb: U16,
    pub i_size: U64,
    pub i_u: U32,
    pub i_ino: U32,
    pub i_uid: U32,
    pub i_gid: U32,
    pub i_mtime: U64,
    pub i_mtime_nsec: U32,
    pub i_nlink: U32,
    pub i_reserved2: [u8; 16],
}

/// Bytes of a compact inode.
pub const COMPACT_BYTES: usize = 32;
/// Bytes of an extended inode.
pub const EXTENDED_BYTES: usize = 64;

const _: () = assert!(size_of::<RawCompactInode>() == COMPACT_BYTES);
const _: () = assert!(size_of::<RawExtendedInode>() == EXTENDED_BYTES);

/// Format bit: the inode is extended.
pub const FORMAT_EXTENDED: u16 = 1;
/// States where the data layout begins in the format.
pub const FORMAT_LAYOUT_SHIFT: u16 = 1;
/// Format bit of a compact inode that is no directory: the link count is 1 and `i_nb` is an address.
pub const FORMAT_NLINK_1: u16 = 1 << 4;
/// Format bit of a directory: it has no `.` entry.
pub const FORMAT_DOT_OMITTED: u16 = 1 << 4;

/// Longest symlink target in bytes.
pub const SYMLINK_BYTES_MAX: u64 = 4096;

/// Largest directory in bytes: more than 2^36 names.
pub const DIRECTORY_BYTES_MAX: u64 = 1 << 44;

/// Tells how an inode's data is stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum DataLayout {
    /// Consecutive blocks.
    FlatPlain = 0,
    /// Compressed, with 8-byte indexes or encoded extents.
    CompressedFull = 1,
    /// Consecutive blocks, the last part behind the inode.
    FlatInline = 2,
    /// Compressed, with packed indexes.
    CompressedCompact = 3,
    /// Chunks that lie anywhere.
    ChunkBased = 4,
}

impl DataLayout {
    const fn from_format(i_format: u16) -> Option<Self> {
        Some(match i_format >> FORMAT_LAYOUT_SHIFT & 7 {
            0 => Self::FlatPlain,
            1 => Self::CompressedFull,
            2 => Self::FlatInline,
            3 => Self::CompressedCompact,
            4 => Self::ChunkBased,
            _ => return None,
        })
    }

    /// Returns whether the data is compressed.
    pub const fn is_compressed(self) -> bool {
        matches!(self, Self::CompressedFull | Self::CompressedCompact)
    }

    /// The specification's name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::FlatPlain => "flat plain",
            Self::CompressedFull => "compressed full",
            Self::FlatInline => "flat inline",
            Self::CompressedCompact => "compressed compact",
            Self::ChunkBased => "chunk based",
        }
    }
}

/// An inode that may be relied on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Inode {
    /// Tells where it lies.
    pub nid: Nid,
    /// Tells whether it takes 64 bytes instead of 32.
    pub extended: bool,
    /// Tells how its data is stored.
    pub layout: DataLayout,
    /// Holds what kind of file it is.
    pub kind: FileKind,
    /// Permission, set-id and sticky bits.
    pub perm: u16,
    /// Names that refer to it.
    pub nlink: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Size in bytes, below 2^63.
    pub size: u64,
    /// Last modification.
    pub mtime: Timestamp,
    /// A serial number, for 32-bit `stat` alone.
    pub serial: u32,
    /// Bytes of the xattr region; 0 if there is none.
    pub xattr_bytes: u32,
    /// A directory without `.` entry.
    pub dot_omitted: bool,
    /// Device number of a device.
    pub rdev: Rdev,
    /// First block of flat data; `None` for a file that is one hole.
    pub start_block: Option<u64>,
    /// Blocks that compressed data takes, for information.
    pub compressed_blocks: u64,
    /// Of a chunk-based inode.
    pub chunk_format: Option<ChunkFormat>,
}

impl Inode {
    /// Returns how many bytes [`parse`](Self::parse) needs, told by the first two.
    pub const fn bytes_needed(i_format: [u8; 2]) -> usize {
        if u16::from_le_bytes(i_format) & FORMAT_EXTENDED != 0 {
            EXTENDED_BYTES
        } else {
            COMPACT_BYTES
        }
    }

    /// Checks the bytes of an inode.
    ///
    /// # Errors
    ///
    /// The first rule that is broken. That the data lies inside the image is for the reader to see.
    ///
    /// # Panics
    ///
    /// If there are fewer bytes than [`bytes_needed`](Self::bytes_needed).
    pub fn parse(nid: Nid, bytes: &[u8], sb: &Superblock) -> Result<Self, Fault> {
        let fields = match Self::bytes_needed([bytes[0], bytes[1]]) {
            EXTENDED_BYTES => Fields::extended(bytes),
            _ => Fields::compact(bytes, sb),
        };
        fields.check(nid, sb)
    }

    /// Bytes of the inode proper.
    pub const fn body_bytes(&self) -> u64 {
        if self.extended {
            EXTENDED_BYTES as u64
        } else {
            COMPACT_BYTES as u64
        }
    }

    /// Bytes of the inode and its xattr region: where indexes, tables and inline data begin.
    pub const fn head_bytes(&self) -> u64 {
        self.body_bytes() + self.xattr_bytes as u64
    }
}

/// Holds what both forms have in common.
struct Fields {
    i_format: u16,
    i_xattr_icount: u16,
    i_mode: u16,
    size: u64,
    i_u: u32,
    address_hi: Option<u16>,
    serial: u32,
    uid: u32,
    gid: u32,
    nlink: u32,
    mtime: Timestamp,
}

impl Fields {
    fn compact(bytes: &[u8], sb: &Superblock) -> Self {
        let (raw, _) = RawCompactInode::read_from_prefix(bytes).expect("32 bytes");
        let i_format = raw.i_format.get();
        let is_dir = FileKind::from_mode(raw.i_mode.get().into()) == Some(FileKind::Directory);
        let one_link = i_format & FORMAT_NLINK_1 != 0 && !is_dir;
        Self {
            i_format,
            i_xattr_icount: raw.i_xattr_icount.get(),
            i_mode: raw.i_mode.get(),
            size: raw.i_size.get().into(),
            i_u: raw.i_u.get(),
            address_hi: one_link.then_some(raw.i_nb.get()),
            serial: raw.i_ino.get(),
            uid: raw.i_uid.get().into(),
            gid: raw.i_gid.get().into(),
            nlink: if one_link { 1 } else { raw.i_nb.get().into() },
            mtime: Timestamp {
                secs: sb.epoch.saturating_add(raw.i_mtime.get().into()),
                nanos: sb.fixed_nsec,
            },
        }
    }

    fn extended(bytes: &[u8]) -> Self {
        let (raw, _) = RawExtendedInode::read_from_prefix(bytes).expect("64 bytes");
        Self {
            i_format: raw.i_format.get(),
            i_xattr_icount: raw.i_xattr_icount.get(),
            i_mode: raw.i_mode.get(),
            size: raw.i_size.get(),
            i_u: raw.i_u.get(),
            // Zero without 48-bit addresses, but for holes, whose address is all ones.
            address_hi: Some(raw.i_nb.get()),
            serial: raw.i_ino.get(),
            uid: raw.i_uid.get(),
            gid: raw.i_gid.get(),
            nlink: raw.i_nlink.get(),
            mtime: Timestamp {
                secs: raw.i_mtime.get() as i64,
                nanos: raw.i_mtime_nsec.get(),
            },
        }
    }

    fn check(self, nid: Nid, sb: &Superblock) -> Result<Inode, Fault> {
        let i_format = self.i_format;
        let layout = DataLayout::from_format(i_format).filter(|_| i_format >> 5 == 0);
        let layout = layout.ok_or(Unsupported::InodeFormat { i_format })?;
        let mode = self.i_mode;
        let kind = FileKind::from_mode(mode.into()).ok_or(Corrupt::Mode { mode })?;
        self.check_size(kind)?;
        if self.mtime.nanos >= 1_000_000_000 {
            return Err(Corrupt::Nanoseconds {
                nanos: self.mtime.nanos,
            }
            .into());
        }
        let is_device = matches!(kind, FileKind::CharDevice | FileKind::BlockDevice);
        let has_data = kind.may_have_data();
        let chunked = has_data && layout == DataLayout::ChunkBased;
        let format = self.i_u as u16; // the low half
        Ok(Inode {
            nid,
            extended: i_format & FORMAT_EXTENDED != 0,
            layout,
            kind,
            perm: mode & 0o7777,
            nlink: self.nlink,
            uid: self.uid,
            gid: self.gid,
            size: self.size,
            mtime: self.mtime,
            serial: self.serial,
            xattr_bytes: xattr::region_bytes(self.i_xattr_icount)?,
            dot_omitted: kind == FileKind::Directory && i_format & FORMAT_DOT_OMITTED != 0,
            rdev: if is_device {
                decode_rdev(self.i_u)
            } else {
                Rdev::default()
            },
            start_block: self
                .start_block(layout)
                .filter(|_| has_data && !layout.is_compressed()),
            compressed_blocks: if layout.is_compressed() {
                self.address()
            } else {
                0
            },
            chunk_format: chunked
                .then(|| ChunkFormat::parse(format, sb.block_bits))
                .transpose()?,
        })
    }

    fn check_size(&self, kind: FileKind) -> Result<(), Corrupt> {
        let limit = match kind {
            FileKind::Symlink => SYMLINK_BYTES_MAX,
            FileKind::Directory => DIRECTORY_BYTES_MAX,
            _ => i64::MAX as u64,
        };
        if self.size > limit || (kind == FileKind::Symlink && self.size == 0) {
            return Err(Corrupt::Size {
                size: self.size,
                kind,
            });
        }
        Ok(())
    }

    /// All ones, in as many bits as the address has, means that a plain file is one hole.
    fn start_block(&self, layout: DataLayout) -> Option<u64> {
        let hole = if self.address_hi.is_some() {
            (1 << 48) - 1
        } else {
            u64::from(u32::MAX)
        };
        let block = self.address();
        (layout != DataLayout::FlatPlain || block != hole).then_some(block)
    }

    fn address(&self) -> u64 {
        u64::from(self.i_u) | u64::from(self.address_hi.unwrap_or(0)) << 32
    }
}

/// Reads a device number: minor bits 0 to 7, then 12 bits of major, then the rest of minor.
pub const fn decode_rdev(raw: u32) -> Rdev {
    Rdev {
        major: raw >> 8 & 0xfff,
        minor: raw & 0xff | raw >> 12 & 0xfff00,
    }
}

/// The inverse of [`decode_rdev`]; `None` if the major number exceeds 12 bits or the minor 20.
pub const fn encode_rdev(rdev: Rdev) -> Option<u32> {
    let Rdev { major, minor } = rdev;
    if major > 0xfff || minor > 0xf_ffff {
        return None;
    }
    Some(minor & 0xff | major << 8 | (minor & 0xfff00) << 12)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn device_numbers_survive() {
        for (major, minor) in [(1, 3), (8, 255), (8, 256), (0xfff, 0xf_ffff), (0, 0)] {
            let rdev = Rdev { major, minor };
            assert_eq!(decode_rdev(encode_rdev(rdev).unwrap()), rdev);
        }
        assert_eq!(
            encode_rdev(Rdev {
                major: 0x1000,
                minor: 0
            }),
            None
        );
        assert_eq!(encode_rdev(Rdev { major: 1, minor: 5 }), Some(0x105));
    }
}
