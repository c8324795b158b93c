//! Tests what a build promises besides a good image: the same bytes, no half images, errors that say what.

mod common;

use std::cell::Cell;
use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use anteros_build::{
    Codec, Compression, Effort, Error, Exclude, Fragments, Holes, InodeForm, Observer, Options,
    Order, Progress, ReadRange, Setting, UuidChoice,
};
use anteros_format::features::{Compat, Incompat};
use anteros_format::superblock::{SUPERBLOCK_OFFSET, Superblock, checksum, checksum_len};
use rustix::fs::{CWD, FileType, Mode, mknodat};
use tempfile::TempDir;

use common::{Random, build, is_root, missing_judge};

fn lz4(segment_bytes: u32) -> Options {
    let mut compression = Compression::new(Effort::High(3));
    compression.segment_bytes = segment_bytes;
    compression.pcluster_bytes = 16384;
    Options {
        compression: Some(compression),
        fixed_time: Some(0),
        ..Options::default()
    }
}

const DEFLATE: Setting = Setting {
    codec: Codec::Deflate { level: 6 },
    pcluster_bytes: 8192,
    quick: None,
};

/// A few dozen files in a few directories, created in an order that `seed` shuffles.
fn tree(dir: &Path, seed: u64) {
    let mut paths: Vec<String> = (0..60)
        .map(|n| format!("{}/{}/file-{n}", n % 3, n % 5))
        .collect();
    let mut shuffle = Random::new(seed);
    for last in (1..paths.len()).rev() {
        paths.swap(last, shuffle.below(last as u64 + 1) as usize);
    }
    for path in paths {
        let seed = path.bytes().fold(7, |sum, b| sum * 31 + u64::from(b));
        let mut random = Random::new(seed);
        let len = random.below(if seed % 5 == 0 { 700_000 } else { 9000 }) as usize;
        let path = dir.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, random.mixture(len)).unwrap();
    }
}

/// Files that have parts in common.
fn add_equal_parts(dir: &Path) {
    let text = Random::new(9).text(300_000);
    for n in 0..4 {
        let own = Random::new(n).text(20_000 + n as usize);
        let parts = [&own[..], &text[n as usize * 30_000..], &own].concat();
        fs::write(dir.join(format!("{}/parts-{n}", n % 3)), parts).unwrap();
    }
}

/// Ranges of files of the tree, and of one that is not there.
fn hot() -> Arc<[ReadRange]> {
    let file = |n: u64| format!("/{}/{}/file-{n}", n % 3, n % 5).into_bytes();
    let range = |n: u64| ReadRange {
        path: file(n % 62),
        offset: n * 7000 % 90_000,
        len: 5000 + n * 100,
    };
    (0..200).rev().map(range).collect()
}

/// The names in a directory.
fn names(dir: &Path) -> Vec<String> {
    let entries = fs::read_dir(dir).unwrap();
    entries
        .map(|e| e.unwrap().file_name().into_string().unwrap())
        .collect()
}

fn superblock(image: &Path) -> Superblock {
    let bytes = fs::read(image).unwrap();
    Superblock::parse(&bytes[SUPERBLOCK_OFFSET as usize..]).unwrap()
}

/// Invariant B1 of `docs/design/building.md`.
#[test]
fn the_same_bytes_however_it_is_built() {
    let dir = TempDir::new().unwrap();
    let image = dir.path().join("image");
    let all = Fragments {
        all: true,
        pcluster_bytes: Some(65536),
    };
    for options in [
        Options {
            fixed_time: Some(0),
            ..Options::default()
        },
        // The longest files have longer segments.
        lz4(16 << 10),
        lz4(64 << 10),
        lz4(4 << 20),
        Options {
            inline_tails: true,
            ..lz4(64 << 10)
        },
        Options {
            fragments: Some(Fragments::default()),
            ..lz4(64 << 10)
        },
        Options {
            fragments: Some(all),
            order: Order::Name,
            first: vec![b"sub".to_vec()],
            ..lz4(256 << 10)
        },
        Options {
            dedupe: true,
            order: Order::Kind,
            ..lz4(64 << 10)
        },
        Options {
            dedupe: true,
            inline_tails: true,
            fragments: Some(Fragments::default()),
            ..lz4(4 << 20)
        },
        Options {
            metabox: Some(DEFLATE),
            inline_tails: true,
            ..lz4(16 << 10)
        },
        Options {
            dedupe: true,
            hot: hot(),
            ..lz4(64 << 10)
        },
        Options {
            fragments: Some(all),
            hot: hot(),
            hot_cuts_permille: 1000,
            ..lz4(64 << 10)
        },
        Options {
            compress_directories: true,
            ..lz4(64 << 10)
        },
        Options {
            metabox: Some(DEFLATE),
            dot_omitted: true,
            fragments: Some(Fragments::default()),
            compress_directories: true,
            ..lz4(64 << 10)
        },
    ] {
        let mut expected: Option<Vec<u8>> = None;
        for seed in 1..=3 {
            let source = TempDir::new().unwrap();
            tree(source.path(), seed);
            add_equal_parts(source.path());
            for workers in 1..=4 {
                let memory_bytes = if workers % 2 == 0 { 1 } else { 64 << 20 };
                let options = Options {
                    workers,
                    memory_bytes,
                    ..options.clone()
                };
                build(&image, source.path(), &options).unwrap();
                let bytes = fs::read(&image).unwrap();
                let expected = expected.get_or_insert_with(|| bytes.clone());
                assert!(bytes == *expected, "seed {seed}, {workers} workers");
            }
        }
    }
}

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

#[test]
fn equal_fragments_are_stored_once() {
    let dir = TempDir::new().unwrap();
    let image = dir.path().join("image");
    let options = Options {
        fragments: Some(Fragments::default()),
        ..lz4(64 << 10)
    };
    let mut random = Random::new(1);
    let small = random.bytes(10_000);
    let data_bytes = |copies: u64| {
        let source = TempDir::new().unwrap();
        for n in 0..copies {
            fs::write(source.path().join(format!("small-{n}")), &small).unwrap();
        }
        let summary = build(&image, source.path(), &options).unwrap();
        assert_eq!(summary.packed_files, copies);
        summary.image_bytes - summary.metadata_bytes
    };
    assert_eq!(data_bytes(30), data_bytes(1));
}

#[test]
fn the_ends_of_equal_files_take_a_block_at_most() {
    let dir = TempDir::new().unwrap();
    let image = dir.path().join("image");
    let noise = Random::new(1).bytes(3 * 4096 + 3000);
    let text = b"a line of a text that shrinks\n".repeat(200);
    let image_bytes = |content: &[u8], copies: u32, options: &Options| {
        let source = TempDir::new().unwrap();
        for n in 0..copies {
            fs::write(source.path().join(n.to_string()), content).unwrap();
        }
        build(&image, source.path(), options).unwrap().image_bytes
    };
    let flat = Options {
        dedupe: true,
        ..lz4(64 << 10)
    };
    let tails = Options {
        inline_tails: true,
        ..flat.clone()
    };
    let packed = Options {
        fragments: Some(Fragments::default()),
        ..flat.clone()
    };
    for (options, content) in [flat, tails, packed]
        .iter()
        .flat_map(|options| [(options, &noise), (options, &text)])
    {
        let [one, two, many] = [1, 2, 40].map(|copies| image_bytes(content, copies, options));
        // Inodes of 40 files, with their names and indexes.
        assert!(
            two <= one + 4096 && many <= one + 2 * 4096,
            "{one}, {two}, {many}"
        );
    }
}

#[test]
fn what_does_not_fill_a_cluster_is_packed() {
    let dir = TempDir::new().unwrap();
    let source = TempDir::new().unwrap();
    let image = dir.path().join("image");
    let lines = |from: u32, to| {
        let lines = (from..to).map(|n| format!("line {} of a long list\n", n * 7919 % 100_003));
        lines.collect::<String>()
    };
    for n in 0..20 {
        let content = lines(n * 1000, n * 1000 + 1500);
        assert!(content.len() > 2 * 16384, "larger than a cluster");
        fs::write(source.path().join(format!("file-{n}")), content).unwrap();
    }
    fs::write(source.path().join("large"), lines(0, 60_000)).unwrap();
    let packed = Options {
        fragments: Some(Fragments::default()),
        ..lz4(4 << 20)
    };
    let data_bytes = |options: &Options| {
        let summary = build(&image, source.path(), options).unwrap();
        let files = (summary.packed_files, summary.compressed_files);
        (files, summary.image_bytes - summary.metadata_bytes)
    };
    let (files, bytes) = data_bytes(&packed);
    assert_eq!(files, (20, 1));
    let (files, unpacked) = data_bytes(&lz4(4 << 20));
    assert_eq!(files, (0, 21));
    assert!(bytes < unpacked * 9 / 10, "{bytes} and {unpacked} bytes");
}

#[test]
fn namesakes_help_each_other_if_they_lie_together() {
    let dir = TempDir::new().unwrap();
    let source = TempDir::new().unwrap();
    let image = dir.path().join("image");
    for n in 0..10 {
        let parent = source.path().join(format!("{n}"));
        fs::create_dir(&parent).unwrap();
        for name in ["one", "other", "thirty"] {
            // More than LZ4 looks back lies between namesakes, unless they lie together.
            let mut content = Random::new(name.len() as u64).bytes(50_000);
            content.push(n);
            fs::write(parent.join(name), content).unwrap();
        }
    }
    let data_bytes = |order| {
        let options = Options {
            order,
            fragments: Some(Fragments {
                all: true,
                pcluster_bytes: Some(65536),
            }),
            ..lz4(4 << 20)
        };
        let summary = build(&image, source.path(), &options).unwrap();
        summary.image_bytes - summary.metadata_bytes
    };
    let (path, name) = (data_bytes(Order::Path), data_bytes(Order::Name));
    assert!(name < path / 3, "{name} and {path} bytes");
}

#[test]
fn files_with_the_same_content_are_stored_once() {
    let dir = TempDir::new().unwrap();
    let image = dir.path().join("image");
    let all = Fragments {
        all: true,
        pcluster_bytes: None,
    };
    let deduped = Options {
        dedupe: true,
        ..Options::default()
    };
    let compressed = Options {
        dedupe: true,
        ..lz4(64 << 10)
    };
    let tails = Options {
        inline_tails: true,
        ..compressed.clone()
    };
    let packed = Options {
        fragments: Some(Fragments::default()),
        ..lz4(64 << 10)
    };
    let all_packed = Options {
        fragments: Some(all),
        ..lz4(64 << 10)
    };
    let mut random = Random::new(5);
    let contents = [random.mixture(200_000), random.mixture(2_000_000)];
    let mut other = contents[0].clone();
    *other.last_mut().unwrap() ^= 1;
    for options in [deduped, compressed, tails, packed, all_packed] {
        let data_bytes = |copies: u64| {
            let source = TempDir::new().unwrap();
            for (n, content) in contents.iter().enumerate() {
                for copy in 0..copies {
                    fs::write(source.path().join(format!("{n}-{copy}")), content).unwrap();
                }
            }
            fs::write(source.path().join("other"), &other).unwrap();
            let watched = Watched::default();
            let never = AtomicBool::new(false);
            let summary = anteros_build::build(&image, source.path(), &options, &watched, &never);
            let summary = summary.unwrap();
            let last = watched.0.get();
            assert_eq!((last.files_done, last.bytes_done), (last.files, last.bytes));
            summary.image_bytes - summary.metadata_bytes
        };
        let (many, one) = (data_bytes(4), data_bytes(1));
        // An end that would lie behind one inode, but not behind four, is in a block.
        let ends = 4096 * contents.len() as u64;
        assert!(many <= one + ends, "{many}, {one}, {options:?}");
    }
}

#[test]
fn equal_parts_of_files_are_stored_once() {
    let dir = TempDir::new().unwrap();
    let image = dir.path().join("image");
    let mut random = Random::new(6);
    let text = random.text(1_000_000);
    let noise = random.bytes(1_000_000);
    let front = random.text(50_000);
    let insertion = [&text[..400_000], b"something else", &text[400_000..]].concat();
    let header = [&front[..512], &text, &front[..512], &noise].concat();
    let twice = [&front[..], &front[..30_001], &front[..]].concat();
    // What lies at a block can be shared even if it is stored as it is; each of the others has all of a first one.
    for (first, second) in [
        (&text, &insertion),
        (&text, &[&front[..], &text].concat()),
        (&text, &[&text[..], &front].concat()),
        (&text, &text[..800_000].to_vec()),
        (&insertion, &header),
        (&noise, &[&front[..40_960], &noise].concat()),
        (&front, &twice),
    ] {
        for pcluster_bytes in [4096, 65536] {
            for segment_bytes in [128 << 10, 4 << 20] {
                let mut options = lz4(segment_bytes);
                options.compression.as_mut().unwrap().pcluster_bytes = pcluster_bytes;
                let data_bytes = |dedupe: bool, contents: &[&Vec<u8>]| {
                    let source = TempDir::new().unwrap();
                    for (n, content) in contents.iter().enumerate() {
                        fs::write(source.path().join(n.to_string()), content).unwrap();
                    }
                    let options = Options {
                        dedupe,
                        ..options.clone()
                    };
                    let watched = Watched::default();
                    let never = AtomicBool::new(false);
                    let summary =
                        anteros_build::build(&image, source.path(), &options, &watched, &never);
                    let summary = summary.unwrap();
                    let last = watched.0.get();
                    assert_eq!((last.files_done, last.bytes_done), (last.files, last.bytes));
                    summary.image_bytes - summary.metadata_bytes
                };
                let alone = data_bytes(true, &[first]);
                let without = data_bytes(false, &[first, second]);
                let with = data_bytes(true, &[first, second]);
                let saved = without - with;
                let case = (first.len(), second.len(), pcluster_bytes, segment_bytes);
                assert!(
                    saved > alone / 2,
                    "{case:?}: {without} - {with}, {alone} alone"
                );
            }
        }
    }
}

/// Remembers how far a build is.
#[derive(Default)]
struct Watched(Cell<Progress>);

impl Observer for Watched {
    fn progressed(&self, progress: &Progress) {
        self.0.set(*progress);
    }
}

#[test]
fn the_uuid_is_made_from_the_content() {
    let source = TempDir::new().unwrap();
    let dir = TempDir::new().unwrap();
    let image = dir.path().join("image");
    tree(source.path(), 1);
    let first = build(&image, source.path(), &lz4(1 << 20)).unwrap().uuid;
    assert_eq!(superblock(&image).uuid, first);
    assert_eq!(
        (first[6] >> 4, first[8] >> 6),
        (8, 2),
        "version 8 of the usual variant"
    );
    fs::write(source.path().join("0/0/more"), "more").unwrap();
    let second = build(&image, source.path(), &lz4(1 << 20)).unwrap().uuid;
    assert_ne!(first, second);
    let labelled = Options {
        label: b"label".to_vec(),
        ..lz4(1 << 20)
    };
    assert_ne!(
        build(&image, source.path(), &labelled).unwrap().uuid,
        second
    );
    let given = Options {
        uuid: UuidChoice::Given([5; 16]),
        ..lz4(1 << 20)
    };
    build(&image, source.path(), &given).unwrap();
    assert_eq!(superblock(&image).uuid, [5; 16]);
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
fn times_owners_and_links_as_asked() {
    let source = TempDir::new().unwrap();
    let dir = TempDir::new().unwrap();
    let image = dir.path().join("image");
    fs::write(source.path().join("a"), vec![1; 9000]).unwrap();
    fs::hard_link(source.path().join("a"), source.path().join("b")).unwrap();
    let once = build(&image, source.path(), &Options::default()).unwrap();
    assert_eq!(
        (once.files, once.hard_links, once.input_bytes),
        (1, 1, 9000)
    );
    let twice = Options {
        hard_dereference: true,
        ..Options::default()
    };
    let twice = build(&image, source.path(), &twice).unwrap();
    assert_eq!(
        (twice.files, twice.hard_links, twice.input_bytes),
        (2, 0, 18000)
    );

    let clamped = Options {
        clamp_time: Some(1000),
        ..Options::default()
    };
    build(&image, source.path(), &clamped).unwrap();
    assert_eq!(
        (superblock(&image).epoch, superblock(&image).fixed_nsec),
        (1000, 0)
    );

    let far = Options {
        force_uid: Some(u32::MAX),
        uid_offset: 1,
        ..Options::default()
    };
    let error = build(&image, source.path(), &far).unwrap_err();
    assert!(error.to_string().contains("4294967295 plus 1"), "{error}");

    let huge = Options {
        force_gid: Some(65_536),
        inode_form: InodeForm::Compact,
        ..Options::default()
    };
    let error = build(&image, source.path(), &huge).unwrap_err();
    assert!(
        matches!(&error, Error::Unstorable { path, .. } if path == source.path()),
        "{error}"
    );
}

#[test]
fn what_is_excluded_is_not_there() {
    let source = TempDir::new().unwrap();
    let dir = TempDir::new().unwrap();
    let image = dir.path().join("image");
    for path in ["a/keep", "a/x.o", "b/c/d", "b/e"] {
        let path = source.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, "x").unwrap();
    }
    let count = |exclude: Vec<Exclude>| {
        let options = Options {
            exclude,
            ..Options::default()
        };
        let summary = build(&image, source.path(), &options).unwrap();
        (summary.files, summary.directories)
    };
    assert_eq!(count(vec![]), (4, 4));
    assert_eq!(count(vec![Exclude::Path(b"/b/c/".to_vec())]), (3, 3));
    assert_eq!(
        count(vec![Exclude::Path(b"c".to_vec())]),
        (4, 4),
        "whole paths only"
    );
    assert_eq!(
        count(vec![
            Exclude::pattern(r"\.o$").unwrap(),
            Exclude::pattern("^b").unwrap()
        ]),
        (1, 2)
    );
    assert!(matches!(Exclude::pattern("("), Err(Error::Option(_))));
}

#[test]
fn impossible_options_are_refused() {
    let dir = TempDir::new().unwrap();
    let image = dir.path().join("image");
    let source = dir.path().join("source");
    fs::create_dir(&source).unwrap();
    let with = |change: fn(&mut Compression)| {
        let mut options = lz4(1 << 20);
        change(options.compression.as_mut().unwrap());
        options
    };
    for options in [
        Options {
            block_bits: 8,
            ..Options::default()
        },
        Options {
            block_bits: 17,
            ..Options::default()
        },
        Options {
            label: vec![b'x'; 16],
            ..Options::default()
        },
        Options {
            label: vec![0],
            ..Options::default()
        },
        Options {
            workers: 0,
            ..Options::default()
        },
        Options {
            offset: 100,
            ..Options::default()
        },
        Options {
            chunk_bytes: Some(12_288),
            ..Options::default()
        },
        Options {
            chunk_bytes: Some(2048),
            ..Options::default()
        },
        with(|c| c.pcluster_bytes = 0),
        with(|c| c.pcluster_bytes = 5000),
        with(|c| c.pcluster_bytes = 2 << 20),
        with(|c| c.segment_bytes = 5000),
        with(|c| c.window_bytes = 100),
        with(|c| c.min_gain_percent = 101),
        with(|c| c.codec = Effort::High(13).into()),
    ] {
        let error = build(&image, &source, &options).unwrap_err();
        assert!(matches!(error, Error::Option(_)), "{error} for {options:?}");
        assert_eq!(names(dir.path()), ["source"]);
    }
}

/// Does something to the source when it has been scanned, but not yet read.
struct Meddler<F>(F);

impl<F: Fn()> Observer for Meddler<F> {
    fn scanned(&self, _: &Progress) {
        (self.0)();
    }
}

/// Ways in which a file changes, and those in which it is no longer there to be read.
const CHANGES: [fn(&Path); 3] = [
    |path| {
        let mut file = File::options().append(true).open(path).unwrap();
        file.write_all(b"x").unwrap();
    },
    |path| {
        File::options()
            .write(true)
            .open(path)
            .unwrap()
            .set_len(3)
            .unwrap()
    },
    |path| {
        let content = fs::read(path).unwrap();
        fs::rename(path, path.with_extension("old")).unwrap();
        fs::write(path, content).unwrap();
    },
];
const LOSSES: [fn(&Path); 3] = [
    |path| fs::remove_file(path).unwrap(),
    |path| {
        fs::rename(path, path.with_extension("old")).unwrap();
        std::os::unix::fs::symlink(path.with_extension("old"), path).unwrap();
    },
    |path| {
        fs::remove_file(path).unwrap();
        mknodat(CWD, path, FileType::Fifo, Mode::from(0o600), 0).unwrap();
    },
];

/// Returns how a build fails if something happens to a file of `len` bytes; the file's path comes with it.
fn meddled(len: usize, meddle: fn(&Path)) -> (Error, PathBuf) {
    let source = TempDir::new().unwrap();
    let dir = TempDir::new().unwrap();
    let image = dir.path().join("image");
    fs::write(&image, "the image of yesterday").unwrap();
    let victim = source.path().join("victim");
    fs::write(&victim, Random::new(1).mixture(len)).unwrap();
    let meddler = Meddler(|| meddle(&victim));
    let never = AtomicBool::new(false);
    let options = Options {
        overwrite: true,
        ..lz4(64 << 10)
    };
    let result = anteros_build::build(&image, source.path(), &options, &meddler, &never);
    assert_eq!(names(dir.path()), ["image"]);
    assert_eq!(fs::read(&image).unwrap(), b"the image of yesterday");
    (result.unwrap_err(), victim)
}

/// Invariant B3 of `docs/design/building.md`.
#[test]
fn a_file_that_changes_meanwhile_is_named() {
    for len in [100, 10_000, 600_000] {
        for change in CHANGES {
            let (error, victim) = meddled(len, change);
            assert!(
                matches!(&error, Error::Changed { path } if *path == victim),
                "{error}"
            );
        }
        for loss in LOSSES {
            let (error, victim) = meddled(len, loss);
            assert!(
                matches!(&error, Error::Source { path, .. } if *path == victim),
                "{error}"
            );
        }
    }
}

/// Invariant B2 of `docs/design/building.md`.
#[test]
fn a_full_disk_is_told_and_left_as_it_was() {
    if !is_root() {
        return missing_judge("a full disk: mounting one needs root");
    }
    let source = TempDir::new().unwrap();
    let disk = TempDir::new().unwrap();
    tree(source.path(), 1);
    let mount = |args: &[&str]| {
        assert!(
            Command::new(args[0])
                .args(&args[1..])
                .status()
                .unwrap()
                .success()
        )
    };
    let path = disk.path().to_str().unwrap();
    mount(&["mount", "-t", "tmpfs", "-o", "size=128k", "tmpfs", path]);
    let image = disk.path().join("image");
    let results: Vec<_> = [Options::default(), lz4(64 << 10)]
        .iter()
        .map(|options| (build(&image, source.path(), options), names(disk.path())))
        .collect();
    mount(&["umount", path]);
    for (result, left) in results {
        match result {
            Err(Error::Image { path, cause, .. }) => {
                assert_eq!(path, image);
                assert_eq!(cause.kind(), std::io::ErrorKind::StorageFull);
            }
            other => panic!("{other:?}"),
        }
        assert!(left.is_empty(), "{left:?}");
    }
}

/// Cancels after some calls.
struct Impatient<'a> {
    patience: Cell<u32>,
    cancel: &'a AtomicBool,
}

impl Impatient<'_> {
    fn called(&self) {
        match self.patience.get() {
            0 => self.cancel.store(true, Ordering::Relaxed),
            n => self.patience.set(n - 1),
        }
    }
}

impl Observer for Impatient<'_> {
    fn scanned(&self, _: &Progress) {
        self.called();
    }

    fn progressed(&self, _: &Progress) {
        self.called();
    }
}

/// Invariant B2 of `docs/design/building.md`.
#[test]
fn a_cancelled_build_leaves_nothing() {
    let source = TempDir::new().unwrap();
    let dir = TempDir::new().unwrap();
    tree(source.path(), 1);
    let image = dir.path().join("image");
    for patience in 0..4 {
        let cancel = AtomicBool::new(false);
        let observer = Impatient {
            patience: Cell::new(patience),
            cancel: &cancel,
        };
        let options = Options {
            memory_bytes: 1,
            ..lz4(64 << 10)
        };
        let result = anteros_build::build(&image, source.path(), &options, &observer, &cancel);
        assert!(
            matches!(result, Err(Error::Cancelled)),
            "{result:?} after {patience}"
        );
        assert!(names(dir.path()).is_empty());
    }
    let result = anteros_build::build(
        &image,
        source.path(),
        &lz4(1 << 20),
        &(),
        &AtomicBool::new(true),
    );
    assert!(matches!(result, Err(Error::Cancelled)), "{result:?}");
}

#[test]
fn an_image_is_not_packed_into_itself() {
    let source = TempDir::new().unwrap();
    let out = source.path().join("out");
    fs::create_dir(&out).unwrap();
    fs::write(source.path().join("file"), "x").unwrap();
    for (image, directory) in [
        (out.join("image"), out.clone()),
        (source.path().join("image"), source.path().into()),
    ] {
        let error = build(&image, source.path(), &Options::default()).unwrap_err();
        let expected: PathBuf = directory;
        assert!(
            matches!(&error, Error::ImageInsideSource { directory, .. } if *directory == expected),
            "{error}"
        );
        assert!(!image.exists());
    }
    let exclude = vec![Exclude::Path(b"out".to_vec())];
    build(
        &out.join("image"),
        source.path(),
        &Options {
            exclude,
            ..Options::default()
        },
    )
    .unwrap();
}

#[test]
fn an_image_inside_a_file() {
    let source = TempDir::new().unwrap();
    let dir = TempDir::new().unwrap();
    tree(source.path(), 1);
    let alone = dir.path().join("alone");
    build(&alone, source.path(), &lz4(1 << 20)).unwrap();
    let alone = fs::read(alone).unwrap();
    let image = dir.path().join("firmware");
    let options = Options {
        offset: 8192,
        overwrite: true,
        ..lz4(1 << 20)
    };
    for existing in [None, Some(100_000), Some(10 << 20)] {
        if let Some(bytes) = existing {
            fs::write(&image, vec![9; bytes]).unwrap();
        }
        build(&image, source.path(), &options).unwrap();
        let bytes = fs::read(&image).unwrap();
        let front = if existing.is_some() { 9 } else { 0 };
        assert!(bytes[..8192] == [front; 8192]);
        assert!(bytes[8192..] == alone);
        fs::remove_file(&image).unwrap();
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

#[test]
fn progress_ends_where_it_should() {
    struct Last(Cell<Progress>);
    impl Observer for Last {
        fn progressed(&self, progress: &Progress) {
            let before = self.0.replace(*progress);
            assert!(
                before.bytes_done <= progress.bytes_done
                    && before.files_done <= progress.files_done
            );
        }
    }
    let source = TempDir::new().unwrap();
    let dir = TempDir::new().unwrap();
    tree(source.path(), 1);
    File::create(source.path().join("empty")).unwrap();
    File::create(source.path().join("hole"))
        .unwrap()
        .set_len(1 << 20)
        .unwrap();
    let comb = File::create(source.path().join("comb")).unwrap();
    for offset in [0, 100_000, 300_000] {
        comb.write_all_at(b"tooth", offset).unwrap();
    }
    for options in [Options::default(), lz4(64 << 10)] {
        let last = Last(Cell::default());
        let never = AtomicBool::new(false);
        anteros_build::build(
            &dir.path().join("image"),
            source.path(),
            &options,
            &last,
            &never,
        )
        .unwrap();
        let last = last.0.get();
        assert_eq!((last.files, last.bytes), (last.files_done, last.bytes_done));
        assert_eq!(last.files, 63);
    }
}

#[test]
fn only_files_and_block_devices_become_images() {
    let source = TempDir::new().unwrap();
    let dir = TempDir::new().unwrap();
    let fifo = dir.path().join("fifo");
    let mkfifo = Command::new("mkfifo").arg(&fifo).status();
    assert!(mkfifo.unwrap().success());
    for path in [&fifo, dir.path()] {
        let before = fs::symlink_metadata(path).unwrap().ino();
        let error = build(path, source.path(), &Options::default()).unwrap_err();
        assert!(error.to_string().contains("neither a file"), "{error}");
        assert_eq!(fs::symlink_metadata(path).unwrap().ino(), before);
    }

    let (link, file) = (dir.path().join("link"), dir.path().join("file"));
    fs::write(&file, "").unwrap();
    std::os::unix::fs::symlink("file", &link).unwrap();
    build(&link, source.path(), &Options::default()).unwrap();
    assert!(link.is_symlink());
    assert!(fs::metadata(&file).unwrap().len() > 0);
    assert_eq!(names(dir.path()).len(), 3);
}

#[test]
fn a_missing_source_is_named() {
    let dir = TempDir::new().unwrap();
    let error = build(
        &dir.path().join("image"),
        &dir.path().join("nowhere"),
        &Options::default(),
    )
    .unwrap_err();
    assert!(
        matches!(&error, Error::Source { path, .. } if path.ends_with("nowhere")),
        "{error}"
    );
    fs::write(dir.path().join("file"), "x").unwrap();
    let error = build(
        &dir.path().join("image"),
        &dir.path().join("file"),
        &Options::default(),
    )
    .unwrap_err();
    assert!(
        matches!(&error, Error::Source { path, .. } if path.ends_with("file")),
        "{error}"
    );
}
