//! Room that metadata takes, and the words of the superblock on it.

use std::fs::{self, File};

use anteros_build::{Codec, Compression, Effort, Fragments, Holes, Options, Setting};
use anteros_format::features::{Compat, Incompat};
use anteros_format::superblock::{SUPERBLOCK_OFFSET, checksum, checksum_len};
use tempfile::TempDir;

use crate::common::{Random, build};
use crate::{DEFLATE, lz4, names, superblock, tree};

#[test]
fn few_inodes_lie_in_the_block_of_the_superblock() {
    let dir = TempDir::new().unwrap();
    let image = dir.path().join("image");
    let source = TempDir::new().unwrap();
    let blocks = |options: &Options| {
        let summary = build(&image, source.path(), options).unwrap();
        let meta_block = superblock(&image).meta_block;
        (
            summary.image_bytes / u64::from(options.block_bytes()),
            meta_block,
        )
    };
    let usual = Options::default();
    assert_eq!(blocks(&usual), (1, 0));
    for name in ["a", "b", "c"] {
        fs::write(source.path().join(name), name.repeat(300)).unwrap();
    }
    assert_eq!(blocks(&usual), (1, 0));
    fs::write(source.path().join("blocks"), vec![7; 8192]).unwrap();
    assert_eq!(blocks(&usual), (3, 0));
    let small = Options {
        block_bits: 9,
        ..Options::default()
    };
    // Three blocks up to the end of the superblock's; what it leaves is too little.
    let (small_blocks, meta_block) = blocks(&small);
    assert!(small_blocks > 19 && meta_block >= 18, "{meta_block}");
    fs::write(source.path().join("much"), vec![7; 2500]).unwrap();
    assert_eq!(blocks(&usual), (4, 2));
}

#[test]
fn metadata_takes_less_in_a_metabox() {
    let dir = TempDir::new().unwrap();
    let image = dir.path().join("image");
    let source = TempDir::new().unwrap();
    tree(source.path(), 1);
    for n in 0..2000 {
        fs::write(source.path().join(format!("0/0/{n}")), format!("{n}")).unwrap();
    }
    let usual = Options {
        holes: Holes::Ignore,
        ..lz4(4 << 20)
    };
    let plain = build(&image, source.path(), &usual).unwrap();
    let metabox = Options {
        metabox: Some(DEFLATE),
        ..usual
    };
    let summary = build(&image, source.path(), &metabox).unwrap();
    let (found, before) = (summary.metadata_bytes, plain.metadata_bytes);
    assert!(found * 2 < before, "{found} of {before}");
    let found = superblock(&image);
    let expected = Incompat::FORTY_EIGHT_BIT | Incompat::METABOX | Incompat::COMPR_CFGS;
    assert!(found.incompat.contains(expected));
    assert_eq!((found.inodes, found.superblock_bytes), (2080, 144));
    assert!(found.root.in_metabox());
    assert_eq!(summary.linux, metabox.linux());
}

#[test]
fn directories_take_less_when_they_are_packed() {
    let dir = TempDir::new().unwrap();
    let image = dir.path().join("image");
    let source = TempDir::new().unwrap();
    for n in 0..4000 {
        let directory = source.path().join(format!("directory {}", n % 7));
        fs::create_dir_all(&directory).unwrap();
        fs::write(directory.join(format!("a file with the number {n}")), "").unwrap();
    }
    let usual = Options {
        holes: Holes::Ignore,
        ..lz4(4 << 20)
    };
    let packed = Options {
        compress_directories: true,
        ..usual.clone()
    };
    for metabox in [None, Some(DEFLATE)] {
        let options = |options: &Options| Options {
            metabox,
            ..options.clone()
        };
        let before = build(&image, source.path(), &options(&usual)).unwrap();
        let summary = build(&image, source.path(), &options(&packed)).unwrap();
        let (found, before) = (summary.metadata_bytes, before.metadata_bytes);
        assert!(found + 90_000 < before, "{found} of {before}");
        let incompat = superblock(&image).incompat;
        assert!(incompat.contains(Incompat::FRAGMENTS));
        assert_eq!(summary.linux, options(&packed).linux());
    }
    let refused = Options {
        compression: None,
        ..packed
    };
    let error = build(&image, source.path(), &refused).unwrap_err();
    assert!(error.to_string().contains("no compression"), "{error}");
}

#[test]
fn small_files_lie_in_the_metabox_as_they_are() {
    let dir = TempDir::new().unwrap();
    let image = dir.path().join("image");
    let source = TempDir::new().unwrap();
    for n in 0..500 {
        let lines = (0..100).map(|line| format!("line {line} of {n}\n"));
        let content: String = lines.collect();
        fs::write(source.path().join(format!("{n}")), content).unwrap();
    }
    let options = |metabox| Options {
        wide: true,
        metabox,
        ..lz4(4 << 20)
    };
    let apart = build(&image, source.path(), &options(None)).unwrap();
    let together = build(&image, source.path(), &options(Some(DEFLATE))).unwrap();
    assert!(apart.compressed_files > 400, "{apart:?}");
    assert_eq!(together.inline_files, 500);
    assert!(together.image_bytes < apart.image_bytes, "{together:?}");
}

#[test]
fn a_metabox_that_readers_would_distrust_is_refused() {
    let dir = TempDir::new().unwrap();
    let source = TempDir::new().unwrap();
    let file = File::create(source.path().join("hole")).unwrap();
    file.set_len(32 << 30).unwrap();
    let compression = Compression {
        pcluster_bytes: 512,
        ..Compression::new(Codec::Lzma {
            level: 0,
            extreme: false,
            dict_bytes: 32 << 10,
        })
    };
    let mut options = Options {
        block_bits: 9,
        chunk_bytes: Some(4096),
        compression: Some(compression),
        metabox: Some(Setting {
            codec: compression.codec,
            pcluster_bytes: 512,
            quick: None,
        }),
        ..Options::default()
    };
    let image = dir.path().join("image");
    let refused = build(&image, source.path(), &options).unwrap_err();
    let said = "bytes of metadata would be compressed into an image of";
    assert!(refused.to_string().contains(said), "{refused}");
    assert_eq!(names(dir.path()), [""; 0]);
    options.metabox = None;
    build(&image, source.path(), &options).unwrap();
}

/// Invariant B4 of `docs/design/building.md`.
#[test]
fn the_superblock_says_what_is_used_and_no_more() {
    let source = TempDir::new().unwrap();
    let dir = TempDir::new().unwrap();
    let image = dir.path().join("image");
    tree(source.path(), 1);
    let small = Options {
        compression: Some(Compression::new(Effort::Fast)),
        ..Options::default()
    };
    let tails = Options {
        inline_tails: true,
        ..small.clone()
    };
    let useless = Options {
        fragments: Some(Fragments::default()),
        ..Options::default()
    };
    let fragments = Options {
        fragments: Some(Fragments::default()),
        ..small.clone()
    };
    let chunks = Options {
        chunk_bytes: Some(4096),
        ..Options::default()
    };
    let labelled = Options {
        label: b"fifteen letters".to_vec(),
        checksum: false,
        ..Options::default()
    };
    for (options, incompat) in [
        (Options::default(), Incompat::empty()),
        (small, Incompat::ZERO_PADDING),
        (lz4(1 << 20), Incompat::ZERO_PADDING | Incompat::COMPR_CFGS),
        (tails, Incompat::ZERO_PADDING | Incompat::ZTAILPACKING),
        (fragments, Incompat::ZERO_PADDING | Incompat::FRAGMENTS),
        (useless, Incompat::empty()),
        (chunks, Incompat::CHUNKED_FILE),
        (labelled, Incompat::empty()),
    ] {
        let summary = build(&image, source.path(), &options).unwrap();
        let found = superblock(&image);
        assert_eq!(found.incompat, incompat);
        let mut compat = Compat::MTIME;
        compat.set(Compat::SB_CHKSUM, options.checksum);
        assert_eq!(found.compat, compat);
        assert_eq!(found.label(), options.label);
        let packed = u64::from(incompat.contains(Incompat::FRAGMENTS));
        assert_eq!(found.inodes, summary.files + summary.directories + packed);
        assert_eq!(found.blocks * 4096, summary.image_bytes);
        let bytes = fs::read(&image).unwrap();
        let covered = &bytes[SUPERBLOCK_OFFSET as usize..][..checksum_len(12)];
        assert_eq!(checksum(covered) == found.checksum, options.checksum);
    }
}

#[test]
fn what_saves_nothing_needs_no_decoder() {
    let source = TempDir::new().unwrap();
    let dir = TempDir::new().unwrap();
    let image = dir.path().join("image");
    fs::write(source.path().join("noise"), Random::new(1).bytes(100_000)).unwrap();
    let summary = build(&image, source.path(), &lz4(1 << 20)).unwrap();
    assert_eq!(summary.compressed_files, 0);
    assert_eq!(superblock(&image).incompat, Incompat::empty());
}
