//! The EROFS on-disk format: raw bytes and checked values, no I/O.
//!
//! Every structure exists twice. `Raw…` types are the bytes as they lie on disk, with the field
//! names of the specification; the types without `Raw` are what those bytes mean, and can only be
//! had by a check. Whoever holds a checked value needs no further check of the fields it has.
//!
//! ```
//! use anteros_format::superblock::{SUPERBLOCK_OFFSET, Superblock};
//!
//! # let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/fixtures/lz4.erofs");
//! let image = std::fs::read(path)?;
//! let superblock = Superblock::parse(&image[SUPERBLOCK_OFFSET as usize..]).expect("it is EROFS");
//! assert_eq!(1u32 << superblock.block_bits, 4096); // bytes of a block
//! println!("{} inodes, the root is {}", superblock.inodes, superblock.root);
//!
//! let error = Superblock::parse(&image).unwrap_err();
//! println!("{error}"); // names the rule, and the value that breaks it
//! # Ok::<(), std::io::Error>(())
//! ```
//!
//! | module | structures |
//! |---|---|
//! | [`superblock`] | superblock, checksum, device slots |
//! | [`features`] | compat and incompat feature bits |
//! | [`compr_cfg`] | compression configurations |
//! | [`inode`] | compact and extended inodes, data layouts, chunk format |
//! | [`dirent`] | directory blocks |
//! | [`xattr`] | extended attributes, long prefixes, name filter |
//! | [`chunk`] | chunk tables |
//! | [`zmap`] | map header of compressed inodes |
//! | [`lcluster`] | full and compact indexes |
//! | [`extent`] | encoded extents |
//! | [`moved`] | addresses of content that lies at another place |
//! | [`patch`] | the record of a patch, which is ours alone |
//! | [`patch_file`] | a patch that is a file of its own, which is ours alone |
//! | [`linux`] | which Linux mounts an image, and the memory of its decoders |
//!
//! All integers are little endian. The prose, with pictures and sources, is `docs/format/erofs.md`.

pub mod chunk;
pub mod compr_cfg;
pub mod dirent;
pub mod extent;
pub mod features;
pub mod inode;
pub mod lcluster;
pub mod linux;
pub mod moved;
pub mod patch;
pub mod patch_file;
pub mod superblock;
pub mod xattr;
pub mod zmap;

mod fault;

pub use fault::{Corrupt, Fault, Unsupported};

use std::fmt;

/// Bytes of a metadata slot; node ids count these.
pub const SLOT_BYTES: u64 = 32;

/// Longest encoded pcluster in bytes.
pub const PCLUSTER_BYTES_MAX: u32 = 1 << 20;

/// Longest extent in bytes once decoded.
pub const EXTENT_BYTES_MAX: u64 = 12 << 20;

/// Addresses have 48 bits of blocks at the most; no byte address may exceed this.
pub const DEVICE_BYTES_MAX: u64 = 1 << 60;

/// A node id: where an inode lies, in slots of 32 bytes from the metadata origin; with bit 63 set,
/// in the decoded content of the metabox inode instead.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Nid(pub u64);

impl Nid {
    const METABOX: u64 = 1 << 63;

    /// The inode at a slot of the metabox.
    pub const fn of_metabox(slot: u64) -> Self {
        Self(slot | Self::METABOX)
    }

    /// Returns whether the inode lies in the metabox.
    pub const fn in_metabox(self) -> bool {
        self.0 & Self::METABOX != 0
    }

    /// The slot, without the metabox bit.
    pub const fn slot(self) -> u64 {
        self.0 & !Self::METABOX
    }
}

impl fmt::Display for Nid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.in_metabox() {
            write!(f, "metabox:{}", self.slot())
        } else {
            write!(f, "{}", self.0)
        }
    }
}

/// Rounds up to a multiple of a power of two; `None` on overflow.
pub fn align_up(value: u64, unit: u64) -> Option<u64> {
    debug_assert!(unit.is_power_of_two());
    Some(value.checked_add(unit - 1)? & !(unit - 1))
}
