//! Content that is stored once, or together with other content.

use std::cell::Cell;
use std::fs;
use std::sync::atomic::AtomicBool;

use anteros_build::{Fragments, Observer, Options, Order, Progress};
use tempfile::TempDir;

use crate::common::{Random, build};
use crate::lz4;

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
