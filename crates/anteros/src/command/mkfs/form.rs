//! The form of an image, which patches of it and images in its room have as well.

use anteros_build::{Codec, Compression, Fragments, Holes, Options};
use anteros_core::Algorithm;
use anteros_format::PCLUSTER_BYTES_MAX;
use anteros_format::features::Incompat;
use anteros_format::inode::DataLayout;
use anteros_image::{Image, Statistics, statistics};

use super::compressor::{Compressor, LEVEL_9};
use crate::failure::{Failure, Kind};

/// Levels of encoders, which images do not tell. There is little to compress.
const LZMA_LEVEL: u8 = 9;
const DEFLATE_LEVEL: u8 = 9;
const ZSTD_LEVEL: u8 = 19;

/// Options by which new content takes the form of that in the image, but for what is told.
pub fn of_image(
    image: &Image,
    told: Option<Compressor>,
    cluster: Option<u64>,
    defaults: Options,
) -> Result<Options, Failure> {
    of_found(image, &found(image)?, told, cluster, defaults)
}

/// Options by which a patch takes that form: its files are packed together as those of the image are.
pub fn of_patch(
    image: &Image,
    told: Option<Compressor>,
    cluster: Option<u64>,
    defaults: Options,
) -> Result<Options, Failure> {
    let found = found(image)?;
    let options = of_found(image, &found, told, cluster, defaults)?;
    Ok(Options {
        fragments: fragments(image, &found, &options),
        ..options
    })
}

/// The way in which files of an image are packed together, if they are and anything is compressed.
fn fragments(image: &Image, found: &Statistics, options: &Options) -> Option<Fragments> {
    let (count, bytes) = found.fragments;
    let cluster = u64::from(options.compression?.pcluster_bytes);
    let packed = image.superblock().packed.filter(|_| count > 0);
    packed.map(|_| Fragments {
        // Ends of files are shorter on average.
        all: bytes / count > cluster,
        pcluster_bytes: None,
    })
}

fn found(image: &Image) -> Result<Statistics, Failure> {
    statistics(image).map_err(|e| Failure::image(image.name(), &e))
}

fn of_found(
    image: &Image,
    found: &Statistics,
    told: Option<Compressor>,
    cluster: Option<u64>,
    defaults: Options,
) -> Result<Options, Failure> {
    let sb = image.superblock();
    let compression = compression(image, found, told, cluster)?;
    let has = |feature| sb.incompat.contains(feature);
    let keeps_holes = has(Incompat::CHUNKED_FILE) || compression.is_none();
    Ok(Options {
        block_bits: sb.block_bits,
        wide: sb.has_48bit(),
        xattr_filter: sb.xattr_filter,
        compression,
        // Linux may be as old as the features of the image.
        inline_tails: has(Incompat::ZTAILPACKING),
        holes: match keeps_holes {
            true => Holes::Auto,
            false => Holes::Ignore,
        },
        ..defaults
    })
}

/// Options by which an image of the whole tree takes the form of this one, also in what is packed together and what files share.
pub fn of_whole(
    image: &Image,
    told: Option<Compressor>,
    cluster: Option<u64>,
    defaults: Options,
) -> Result<Options, Failure> {
    let sb = image.superblock();
    let found = found(image)?;
    let options = of_found(image, &found, told, cluster, defaults)?;
    Ok(Options {
        fragments: fragments(image, &found, &options),
        dedupe: sb.incompat.contains(Incompat::FRAGMENTS) && options.compression.is_some(),
        inline_data: found.layouts.contains_key(&DataLayout::FlatInline),
        ..options
    })
}

/// Returns what of the form of an image lets nothing of it stay in another one.
pub fn unfit(image: &Image) -> Option<&'static str> {
    let sb = image.superblock();
    let unfit = [
        (sb.metabox.is_some(), "compressed metadata"),
        (sb.extra_devices > 0, "extra devices"),
        (
            sb.digest_prefix.is_some(),
            "digests of content in attributes",
        ),
    ];
    let found = unfit.into_iter().find(|(is_so, _)| *is_so);
    found.map(|(_, what)| what)
}

fn compression(
    image: &Image,
    found: &Statistics,
    told: Option<Compressor>,
    cluster: Option<u64>,
) -> Result<Option<Compression>, Failure> {
    let block_bytes = image.superblock().block_bytes();
    let cluster = match cluster {
        Some(bytes) => u32::try_from(bytes)
            .map_err(|_| Failure::new(Kind::Usage, "clusters have at most 1M"))?,
        None => cluster_bytes(image, found),
    };
    let usual = found.algorithms.iter();
    let usual = usual.max_by_key(|(_, extents)| extents.stored_bytes);
    let codec = match told {
        Some(told) => told.codec(cluster),
        None => usual
            .filter(|(algorithm, _)| **algorithm != Algorithm::Lz4 || lz4_blocks(image) > 0)
            .map(|(algorithm, _)| codec(image, *algorithm)),
    };
    let Some(codec) = codec else {
        return Ok(None);
    };
    let has = |layout| found.layouts.contains_key(&layout);
    Ok(Some(Compression {
        pcluster_bytes: cluster.max(block_bytes),
        legacy_index: has(DataLayout::CompressedFull)
            && !has(DataLayout::CompressedCompact)
            && !image.superblock().has_48bit(),
        ..Compression::new(codec)
    }))
}

/// The largest cluster of the image, in whole blocks. The superblock says how large those of LZ4 may be.
fn cluster_bytes(image: &Image, found: &Statistics) -> u32 {
    let block_bytes = image.superblock().block_bytes();
    let largest = found.pclusters.keys().next_back().copied().unwrap_or(0);
    let most = match found.algorithms.contains_key(&Algorithm::Lz4) {
        true => lz4_blocks(image).saturating_mul(block_bytes),
        false => PCLUSTER_BYTES_MAX,
    };
    let largest = largest.next_multiple_of(block_bytes);
    largest.min(most).min(PCLUSTER_BYTES_MAX).max(block_bytes)
}

/// Most blocks of a cluster of LZ4, as the superblock says. With 48-bit addresses one begins within a block, and touches one more.
fn lz4_blocks(image: &Image) -> u32 {
    let touched = u32::from(image.compr_cfgs().lz4_max_pcluster_blocks);
    touched.saturating_sub(image.superblock().has_48bit().into())
}

/// The codec of an algorithm, which looks back as far as decoders of the image can.
fn codec(image: &Image, algorithm: Algorithm) -> Codec {
    let cfgs = image.compr_cfgs();
    match algorithm {
        Algorithm::Lz4 => LEVEL_9.into(),
        Algorithm::Lzma => Codec::Lzma {
            level: LZMA_LEVEL,
            extreme: false,
            dict_bytes: cfgs.lzma_dict_bytes,
        },
        Algorithm::Deflate => Codec::Deflate {
            level: DEFLATE_LEVEL,
        },
        Algorithm::Zstd => Codec::Zstd {
            level: ZSTD_LEVEL,
            window_log: cfgs.zstd_window_log,
        },
    }
}
