//! Versions of Linux that mount an image, and the memory that its decoders take there.
//!
//! `docs/format/erofs.md` says where that is known from: sections 4 and 5. The memory is what the kernel's code asks for on a
//! 64-bit machine, an estimate.

use std::fmt;
use std::str::FromStr;

use anteros_core::Algorithm;

use crate::compr_cfg::ComprCfgs;
use crate::features::{Compat, Incompat};
use crate::superblock::Superblock;

/// A version of Linux.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Version {
    /// The first number.
    pub major: u16,
    /// The second number.
    pub minor: u16,
}

impl Version {
    /// The version with these numbers.
    pub const fn new(major: u16, minor: u16) -> Self {
        Self { major, minor }
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.major, self.minor)
    }
}

/// The text is no version of Linux.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NoVersion;

impl fmt::Display for NoVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a version of Linux looks like 5.15")
    }
}

impl FromStr for Version {
    type Err = NoVersion;

    /// Reads `5.15`, and whatever `uname -r` says, such as `6.1.0-13-amd64`.
    fn from_str(text: &str) -> Result<Self, NoVersion> {
        let number = |digits: &str| match digits.bytes().all(|b| b.is_ascii_digit()) {
            true => digits.parse().map_err(|_| NoVersion),
            false => Err(NoVersion),
        };
        let (major, rest) = text.split_once('.').ok_or(NoVersion)?;
        let end = rest.find(['.', '-', '+']).unwrap_or(rest.len());
        Ok(Self::new(number(major)?, number(&rest[..end])?))
    }
}

/// A part of the format that not every Linux reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Feature {
    /// The format itself.
    Erofs,
    /// Compressed files.
    Compression,
    /// Pclusters of several blocks, and configurations of algorithms.
    BigPclusters,
    /// Files in chunks.
    Chunks,
    /// Further devices, or a second algorithm in one file.
    Devices,
    /// LZMA.
    Lzma,
    /// Tails of compressed files behind their inodes.
    InlineTails,
    /// Fragments in the packed inode, or partial references.
    Fragments,
    /// Blocks smaller than a page, without compression.
    SmallBlocks,
    /// Long prefixes of attributes.
    LongPrefixes,
    /// DEFLATE.
    Deflate,
    /// Blocks smaller than a page, with compression.
    SmallCompressedBlocks,
    /// Zstandard.
    Zstd,
    /// Addresses of 48 bits, or encoded extents.
    Wide,
    /// A label without NUL at its end.
    FullLabel,
    /// Metadata in a compressed inode.
    Metabox,
    /// Long prefixes of attributes that are on the device beside a packed inode.
    PlainPrefixes,
}

/// All features: what people call each, the first version that has it, and the option that the kernel is built with. The
/// comments name the tag that brought it to Linux.
const TABLE: [(Feature, &str, Version, &str); 17] = {
    use Feature::*;
    const ZIP: &str = "CONFIG_EROFS_FS_ZIP";
    const fn v(major: u16, minor: u16) -> Version {
        Version::new(major, minor)
    }
    [
        // The move from drivers/staging to fs/erofs.
        (Erofs, "EROFS", v(5, 4), "CONFIG_EROFS_FS"),
        (Compression, "compression", v(5, 4), ZIP),
        // erofs-for-5.13-rc1
        (BigPclusters, "clusters of several blocks", v(5, 13), ZIP),
        // erofs-for-5.15-rc1
        (Chunks, "files in chunks", v(5, 15), ""),
        // erofs-for-5.16-rc1
        (Devices, "several devices or algorithms", v(5, 16), ""),
        (Lzma, "lzma", v(5, 16), "CONFIG_EROFS_FS_ZIP_LZMA"),
        // erofs-for-5.17-rc1
        (InlineTails, "ztailpacking", v(5, 17), ZIP),
        // erofs-for-6.1-rc1
        (Fragments, "fragments or dedupe", v(6, 1), ZIP),
        // erofs-for-6.4-rc1
        (SmallBlocks, "blocks below 4K", v(6, 4), ""),
        (LongPrefixes, "prefixes of attributes", v(6, 4), ""),
        // erofs-for-6.6-rc1
        (Deflate, "deflate", v(6, 6), "CONFIG_EROFS_FS_ZIP_DEFLATE"),
        // erofs-for-6.8-rc1-2
        (
            SmallCompressedBlocks,
            "compression in blocks below 4K",
            v(6, 8),
            ZIP,
        ),
        // erofs-for-6.10-rc1
        (Zstd, "zstd", v(6, 10), "CONFIG_EROFS_FS_ZIP_ZSTD"),
        // erofs-for-6.15-rc1
        (Wide, "48bit", v(6, 15), ""),
        (FullLabel, "a label of 16 bytes", v(6, 15), ""),
        // erofs-for-6.17-rc1
        (Metabox, "metabox", v(6, 17), ZIP),
        // Commit 1fcf686def19, in 6.17-rc6.
        (PlainPrefixes, "plain prefixes of attributes", v(6, 17), ""),
    ]
};

impl Feature {
    /// The name that people know.
    pub const fn name(self) -> &'static str {
        TABLE[self as usize].1
    }

    /// The first version that has it.
    pub const fn since(self) -> Version {
        TABLE[self as usize].2
    }

    /// The option that a kernel with it is built with, unless it comes with the format.
    pub fn option(self) -> Option<&'static str> {
        Some(TABLE[self as usize].3).filter(|option| !option.is_empty())
    }

    /// The feature that an algorithm is.
    pub const fn of(algorithm: Algorithm) -> Self {
        match algorithm {
            Algorithm::Lz4 => Self::Compression,
            Algorithm::Lzma => Self::Lzma,
            Algorithm::Deflate => Self::Deflate,
            Algorithm::Zstd => Self::Zstd,
        }
    }

    /// The features that blocks of so many bits ask of a machine with pages of 4 KiB.
    pub const fn of_blocks(block_bits: u8, is_compressed: bool) -> Option<Self> {
        match (block_bits, is_compressed) {
            (PAGE_BITS.., _) => None,
            (_, false) => Some(Self::SmallBlocks),
            (_, true) => Some(Self::SmallCompressedBlocks),
        }
    }
}

/// Pages of most machines have two to this bytes.
const PAGE_BITS: u8 = 12;

/// Holds what an image asks of the Linux that mounts it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Needs {
    /// The features that it has, in the order of [`Feature`].
    pub features: Vec<Feature>,
    /// The smallest pages of memory that will do, in bytes.
    pub page_bytes: u32,
    /// Bytes that its decoders allocate for each processor.
    pub decoder_bytes: u64,
}

impl Needs {
    /// The demands of an image, by what its superblock announces.
    pub fn of(sb: &Superblock, cfgs: &ComprCfgs) -> Self {
        let algorithms = || algorithms(sb);
        let is_compressed = algorithms().next().is_some();
        let mut features = Vec::new();
        features.extend(is_compressed.then_some(Feature::Compression));
        features.extend(algorithms().map(Feature::of));
        features.extend(incompat_features(sb.incompat));
        features.extend(Feature::of_blocks(sb.block_bits, is_compressed));
        features.extend((!sb.volume_name.contains(&0)).then_some(Feature::FullLabel));
        features.extend(has_displaced_prefixes(sb).then_some(Feature::PlainPrefixes));
        let decoders = algorithms().map(|a| decoder_bytes(a, cfgs, sb.block_bits));
        Self::new(features, sb.block_bits, decoders.sum())
    }

    /// The demands of features, of blocks of two to this bytes, and of decoders.
    pub fn new(
        features: impl IntoIterator<Item = Feature>,
        block_bits: u8,
        decoder_bytes: u64,
    ) -> Self {
        let mut features: Vec<_> = features.into_iter().chain([Feature::Erofs]).collect();
        features.sort_unstable();
        features.dedup();
        Self {
            features,
            page_bytes: 1 << block_bits.max(PAGE_BITS),
            decoder_bytes,
        }
    }

    /// The oldest version that has all of it.
    pub fn oldest(&self) -> Version {
        let since = self.features.iter().map(|feature| feature.since());
        since.max().unwrap_or(Feature::Erofs.since())
    }

    /// The features because of which no older version will do; none where that is the format itself.
    pub fn reasons(&self) -> impl Iterator<Item = Feature> {
        let oldest = self.oldest();
        let is_reason = move |f: &Feature| f.since() == oldest && oldest > Feature::Erofs.since();
        self.features.iter().copied().filter(is_reason)
    }

    /// The options that the kernel is built with.
    pub fn options(&self) -> Vec<&'static str> {
        let mut options: Vec<_> = self.features.iter().filter_map(|f| f.option()).collect();
        options.sort_unstable();
        options.dedup();
        options
    }
}

/// The algorithms that a kernel sets up decoders for. Images without a list may have LZ4.
fn algorithms(sb: &Superblock) -> impl Iterator<Item = Algorithm> + use<> {
    let announced = Incompat::COMPR_CFGS | Incompat::ZERO_PADDING;
    let is_any = sb.incompat.intersects(announced);
    sb.algorithms.iter().filter(move |_| is_any)
}

fn incompat_features(incompat: Incompat) -> impl Iterator<Item = Feature> {
    const OF_BITS: [(Incompat, Feature); 9] = [
        (Incompat::ZERO_PADDING, Feature::Compression),
        (Incompat::COMPR_CFGS, Feature::BigPclusters),
        (Incompat::CHUNKED_FILE, Feature::Chunks),
        (Incompat::DEVICE_TABLE, Feature::Devices),
        (Incompat::ZTAILPACKING, Feature::InlineTails),
        (Incompat::FRAGMENTS, Feature::Fragments),
        (Incompat::XATTR_PREFIXES, Feature::LongPrefixes),
        (Incompat::FORTY_EIGHT_BIT, Feature::Wide),
        (Incompat::METABOX, Feature::Metabox),
    ];
    let set = OF_BITS.into_iter();
    set.filter(move |(bit, _)| incompat.contains(*bit))
        .map(|(_, feature)| feature)
}

/// Returns whether older kernels would look for the long prefixes in the packed inode.
fn has_displaced_prefixes(sb: &Superblock) -> bool {
    sb.incompat.contains(Incompat::XATTR_PREFIXES)
        && sb.compat.contains(Compat::PLAIN_XATTR_PFX)
        && sb.packed.is_some()
}

/// Bytes of a page of input that LZMA, DEFLATE and Zstandard set aside in each stream.
const BOUNCE_BYTES: u64 = 4096;
/// The kernel's state of an LZMA decoder beside its dictionary.
const LZMA_STATE_BYTES: u64 = 28_496;
/// The kernel's state of a DEFLATE decoder, with its window of 32 KiB.
const DEFLATE_STATE_BYTES: u64 = 42_312;
/// The state of a Zstandard decoder beside window and blocks.
const ZSTD_STATE_BYTES: u64 = 95_992 + (128 << 10) + 64;
/// The largest block of Zstandard.
const ZSTD_BLOCK_BYTES: u64 = 128 << 10;

/// Bytes that the kernel allocates for each processor to decode what an algorithm has written.
pub fn decoder_bytes(algorithm: Algorithm, cfgs: &ComprCfgs, block_bits: u8) -> u64 {
    match algorithm {
        // A buffer for a pcluster that lies where its content will.
        Algorithm::Lz4 => u64::from(cfgs.lz4_max_pcluster_blocks) << block_bits,
        Algorithm::Lzma => u64::from(cfgs.lzma_dict_bytes) + LZMA_STATE_BYTES + BOUNCE_BYTES,
        // The window has its largest size, whatever the image says.
        Algorithm::Deflate => DEFLATE_STATE_BYTES + BOUNCE_BYTES,
        Algorithm::Zstd => {
            let window = 1 << cfgs.zstd_window_log;
            window + 2 * window.min(ZSTD_BLOCK_BYTES) + ZSTD_STATE_BYTES + BOUNCE_BYTES
        }
    }
}

#[cfg(test)]
mod tests;
