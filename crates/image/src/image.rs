//! An open image.

mod devices;
mod lower;
mod metadata;
mod open;
mod packed;

use std::sync::Arc;

use anteros_core::Device;
use anteros_format::compr_cfg::ComprCfgs;
use anteros_format::inode::Inode;
use anteros_format::superblock::{DeviceSlot, Superblock};
use anteros_format::xattr::LongPrefix;

pub use lower::lower_tag;

use crate::cache::Cache;
use crate::map::Map;
use crate::serve::serving::{Serve, Strategy};

/// Options for opening an image.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OpenOptions {
    /// Makes a wrong superblock checksum an error.
    pub verify_checksum: bool,
    /// The most bytes that caches of data and metadata, and decoding for reads of single pieces, may
    /// take together. What one read cannot do without is taken all the same
    /// ([`Image::cache_bytes_min`]).
    pub cache_bytes: usize,
    /// Threads that read at once; what each keeps for itself counts as well.
    pub readers: usize,
    /// The longest read that such a thread makes, in bytes.
    pub read_bytes: usize,
    /// Strategy for decoding pclusters for single reads.
    pub strategy: Strategy,
}

impl Default for OpenOptions {
    /// Checksums matter, and 16 MiB.
    fn default() -> Self {
        Self {
            verify_checksum: true,
            cache_bytes: 16 << 20,
            readers: 1,
            read_bytes: 1 << 20,
            strategy: Strategy::default(),
        }
    }
}

/// A device of the image.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeviceInfo {
    /// Name of it in messages.
    pub name: String,
    /// Its size in bytes.
    pub size: u64,
    /// Slot of the device table; the primary device has none.
    pub slot: Option<DeviceSlot>,
}

/// An open image. Shared by reference between threads.
pub struct Image {
    devices: Vec<Arc<dyn Device>>,
    sb: Superblock,
    cfgs: ComprCfgs,
    slots: Vec<DeviceSlot>,
    prefixes: Vec<LongPrefix>,
    /// Content of the metabox inode, and of the packed inode.
    metabox: Option<(Inode, Map)>,
    packed: Option<(Inode, Map)>,
    meta_cache: Cache<u64>,
    pub(crate) serve: Serve,
}

impl Image {
    /// The superblock.
    pub const fn superblock(&self) -> &Superblock {
        &self.sb
    }

    /// The compression configurations.
    pub const fn compr_cfgs(&self) -> &ComprCfgs {
        &self.cfgs
    }

    /// The long xattr name prefixes.
    pub fn xattr_prefixes(&self) -> &[LongPrefix] {
        &self.prefixes
    }

    /// The bytes that the superblock says are there.
    pub fn recorded_bytes(&self) -> u64 {
        let sb = &self.sb;
        sb.blocks.saturating_mul(sb.block_bytes().into())
    }
}
