//! Tests what each feature of an image asks of Linux.

use zerocopy::{FromZeros, IntoBytes};

use super::*;
use crate::compr_cfg::AlgorithmSet;
use crate::superblock::{MAGIC, RawSuperblock};

/// The superblock of an image with these incompatible features, after `change`.
fn superblock(incompat: Incompat, change: impl FnOnce(&mut RawSuperblock)) -> Superblock {
    let mut raw = RawSuperblock::new_zeroed();
    raw.magic = MAGIC.into();
    raw.blkszbits = 12;
    raw.feature_incompat = incompat.bits().into();
    raw.sb_extslots = 1;
    raw.packed_nid = 40.into();
    change(&mut raw);
    let mut bytes = raw.as_bytes().to_vec();
    bytes.extend([0; 16]);
    Superblock::parse(&bytes).unwrap()
}

fn needs(incompat: Incompat, change: impl FnOnce(&mut RawSuperblock)) -> Needs {
    Needs::of(&superblock(incompat, change), &ComprCfgs::default())
}

/// The demands of an image with one algorithm.
fn of_algorithm(algorithm: Algorithm, cfgs: &ComprCfgs) -> Needs {
    let announced = Incompat::COMPR_CFGS | Incompat::ZERO_PADDING;
    let sb = superblock(announced, |raw| {
        raw.available_compr_algs = AlgorithmSet::of(algorithm).bits().into();
    });
    Needs::of(&sb, cfgs)
}

#[test]
fn the_table_is_in_the_order_of_the_features() {
    for (index, (feature, ..)) in TABLE.iter().enumerate() {
        assert_eq!(*feature as usize, index, "{feature:?}");
    }
    assert!(TABLE.is_sorted_by_key(|row| row.2));
}

#[test]
fn each_bit_asks_for_the_version_that_brought_it() {
    for (incompat, oldest) in [
        (Incompat::empty(), "5.4"),
        (Incompat::ZERO_PADDING, "5.4"),
        (Incompat::COMPR_CFGS, "5.13"),
        (Incompat::CHUNKED_FILE, "5.15"),
        (Incompat::DEVICE_TABLE, "5.16"),
        (Incompat::ZTAILPACKING, "5.17"),
        (Incompat::FRAGMENTS, "6.1"),
        (Incompat::XATTR_PREFIXES, "6.4"),
        (Incompat::FORTY_EIGHT_BIT, "6.15"),
        (Incompat::METABOX, "6.17"),
    ] {
        let found = needs(incompat, |_| {}).oldest();
        assert_eq!(found.to_string(), oldest, "{incompat:?}");
        // Beside older features.
        let beside = needs(incompat | Incompat::ZERO_PADDING, |_| {}).oldest();
        assert_eq!(beside, found, "{incompat:?}");
    }
    let all = needs(Incompat::all(), |_| {});
    assert_eq!(all.oldest(), Version::new(6, 17));
    assert_eq!(all.reasons().collect::<Vec<_>>(), [Feature::Metabox]);
}

#[test]
fn each_algorithm_asks_for_the_version_and_the_option_that_brought_it() {
    for (algorithm, oldest, option) in [
        // Configurations came with clusters of several blocks.
        (Algorithm::Lz4, "5.13", "CONFIG_EROFS_FS_ZIP"),
        (Algorithm::Lzma, "5.16", "CONFIG_EROFS_FS_ZIP_LZMA"),
        (Algorithm::Deflate, "6.6", "CONFIG_EROFS_FS_ZIP_DEFLATE"),
        (Algorithm::Zstd, "6.10", "CONFIG_EROFS_FS_ZIP_ZSTD"),
    ] {
        let needs = of_algorithm(algorithm, &ComprCfgs::default());
        assert_eq!(needs.oldest().to_string(), oldest, "{algorithm}");
        assert!(needs.options().contains(&option), "{algorithm}");
        assert!(needs.options().contains(&"CONFIG_EROFS_FS_ZIP"));
    }
}

#[test]
fn an_image_without_compression_asks_for_nothing_but_the_format() {
    let needs = needs(Incompat::empty(), |_| {});
    assert_eq!(needs.options(), ["CONFIG_EROFS_FS"]);
    assert_eq!(needs.reasons().count(), 0);
    assert_eq!((needs.decoder_bytes, needs.page_bytes), (0, 4096));
}

#[test]
fn blocks_below_a_page_ask_for_more_with_compression() {
    let of = |bits, incompat| needs(incompat, |raw| raw.blkszbits = bits);
    let oldest = |bits, incompat| of(bits, incompat).oldest().to_string();
    assert_eq!(oldest(9, Incompat::empty()), "6.4");
    assert_eq!(oldest(11, Incompat::ZERO_PADDING), "6.8");
    assert_eq!(oldest(12, Incompat::ZERO_PADDING), "5.4");
    assert_eq!(oldest(14, Incompat::ZERO_PADDING), "5.4");
    assert_eq!(of(14, Incompat::empty()).page_bytes, 16 << 10);
    assert_eq!(of(9, Incompat::empty()).page_bytes, 4 << 10);
}

#[test]
fn labels_without_nul_and_displaced_prefixes_ask_for_new_versions() {
    let full = needs(Incompat::empty(), |raw| raw.volume_name = [b'a'; 16]);
    assert_eq!(full.oldest(), Version::new(6, 15));
    let plain = |incompat| {
        let compat = Compat::PLAIN_XATTR_PFX.bits();
        needs(incompat, |raw| raw.feature_compat = compat.into()).oldest()
    };
    let prefixes = Incompat::XATTR_PREFIXES;
    assert_eq!(plain(prefixes), Version::new(6, 4));
    assert_eq!(plain(prefixes | Incompat::FRAGMENTS), Version::new(6, 17));
}

#[test]
fn decoders_take_what_their_configuration_says() {
    let cfgs = ComprCfgs {
        lz4_max_pcluster_blocks: 16,
        lzma_dict_bytes: 4 << 20,
        zstd_window_log: 17,
        ..ComprCfgs::default()
    };
    let bytes = |algorithm| of_algorithm(algorithm, &cfgs).decoder_bytes;
    assert_eq!(bytes(Algorithm::Lz4), 64 << 10);
    assert_eq!(bytes(Algorithm::Lzma), (4 << 20) + 32_592);
    assert_eq!(bytes(Algorithm::Deflate), 46_408);
    // What ZSTD_estimateDStreamSize of libzstd 1.5.4 says of a window of 128 KiB, and a page.
    assert_eq!(bytes(Algorithm::Zstd), 620_344 + 4096);
    let small = |log| {
        let cfgs = ComprCfgs {
            zstd_window_log: log,
            ..cfgs
        };
        of_algorithm(Algorithm::Zstd, &cfgs).decoder_bytes
    };
    assert_eq!([10, 20].map(small), [230_200 + 4096, 1_537_848 + 4096]);
}

#[test]
fn several_algorithms_take_memory_together() {
    let two = AlgorithmSet::of(Algorithm::Lz4).bits() | AlgorithmSet::of(Algorithm::Lzma).bits();
    let sb = superblock(Incompat::COMPR_CFGS, |raw| {
        raw.available_compr_algs = two.into();
    });
    let cfgs = ComprCfgs::default();
    let one = |algorithm| decoder_bytes(algorithm, &cfgs, 12);
    let together = one(Algorithm::Lz4) + one(Algorithm::Lzma);
    assert_eq!(Needs::of(&sb, &cfgs).decoder_bytes, together);
}

#[test]
fn versions_are_read_as_uname_writes_them() {
    let read = |text: &str| text.parse::<Version>();
    assert_eq!(read("5.15"), Ok(Version::new(5, 15)));
    assert_eq!(read("6.1.0-13-amd64"), Ok(Version::new(6, 1)));
    assert_eq!(read("6.18-rc3"), Ok(Version::new(6, 18)));
    assert!(Version::new(5, 15) < Version::new(6, 1));
    assert!(Version::new(6, 4) < Version::new(6, 10));
    for bad in [
        "", "5", "5.", ".4", "5.x", "x.4", "5.4x", "-5.4", "5.+4", "5.99999",
    ] {
        assert_eq!(read(bad), Err(NoVersion), "{bad}");
    }
}
