//! Feature bits of the superblock.

bitflags::bitflags! {
    /// Features that a reader may ignore.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub struct Compat: u32 {
        /// The superblock carries a checksum.
        const SB_CHKSUM = 0x01;
        /// Inode times are modification times; every current writer sets it.
        const MTIME = 0x02;
        /// Xattr headers carry a bloom filter over the names.
        const XATTR_FILTER = 0x04;
        /// Shared xattrs lie in the metabox.
        const SHARED_EA_IN_METABOX = 0x08;
        /// The long xattr prefixes lie on the device itself.
        const PLAIN_XATTR_PFX = 0x10;
        /// Inodes carry content digests, for sharing the page cache.
        const ISHARE_XATTRS = 0x20;
    }
}

bitflags::bitflags! {
    /// Features that a reader must know. Some bits have two meanings, on purpose: both came with
    /// the same kernel.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub struct Incompat: u32 {
        /// Compressed streams are right-aligned in their pclusters (Linux 5.4).
        const ZERO_PADDING = 0x001;
        /// Compression configurations and big pclusters (5.13).
        const COMPR_CFGS = 0x002;
        /// Chunk-based files (5.15).
        const CHUNKED_FILE = 0x004;
        /// A device table, or a second algorithm per inode (5.16).
        const DEVICE_TABLE = 0x008;
        /// Tail pclusters inside the metadata (5.17).
        const ZTAILPACKING = 0x010;
        /// Fragments in the packed inode, or partial references (6.1).
        const FRAGMENTS = 0x020;
        /// Long xattr name prefixes (6.4).
        const XATTR_PREFIXES = 0x040;
        /// 48-bit block addresses and encoded extents (6.15).
        const FORTY_EIGHT_BIT = 0x080;
        /// Metadata inside a compressed inode (6.17).
        const METABOX = 0x100;
    }
}

impl Incompat {
    /// The names people and other tools know, one or two for each bit.
    pub fn names(self) -> Vec<&'static str> {
        const NAMES: [(Incompat, &[&str]); 9] = [
            (Incompat::ZERO_PADDING, &["0padding"]),
            (Incompat::COMPR_CFGS, &["compr_cfgs", "big_pcluster"]),
            (Incompat::CHUNKED_FILE, &["chunked_file"]),
            (Incompat::DEVICE_TABLE, &["device_table", "compr_head2"]),
            (Incompat::ZTAILPACKING, &["ztailpacking"]),
            (Incompat::FRAGMENTS, &["fragments", "dedupe"]),
            (Incompat::XATTR_PREFIXES, &["xattr_prefixes"]),
            (Incompat::FORTY_EIGHT_BIT, &["48bit"]),
            (Incompat::METABOX, &["metabox"]),
        ];
        let set = NAMES.iter().filter(|(bit, _)| self.contains(*bit));
        set.flat_map(|(_, names)| *names).copied().collect()
    }
}

impl Compat {
    /// The names people and other tools know.
    pub fn names(self) -> Vec<&'static str> {
        const NAMES: [(Compat, &str); 6] = [
            (Compat::SB_CHKSUM, "sb_csum"),
            (Compat::MTIME, "mtime"),
            (Compat::XATTR_FILTER, "xattr_filter"),
            (Compat::SHARED_EA_IN_METABOX, "shared_ea_in_metabox"),
            (Compat::PLAIN_XATTR_PFX, "plain_xattr_pfx"),
            (Compat::ISHARE_XATTRS, "ishare_xattrs"),
        ];
        NAMES
            .iter()
            .filter(|(bit, _)| self.contains(*bit))
            .map(|(_, name)| *name)
            .collect()
    }
}
