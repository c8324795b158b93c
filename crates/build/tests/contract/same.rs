//! Equal images: one source gives the same bytes and the same UUID each time.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use anteros_build::{Fragments, Options, Order, ReadRange, UuidChoice};
use tempfile::TempDir;

use crate::common::{Random, build};
use crate::{DEFLATE, lz4, superblock, tree};

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
