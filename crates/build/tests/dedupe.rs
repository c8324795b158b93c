//! Equal parts of files: what sharing them is worth.

#[expect(dead_code, reason = "other tests use more of it")]
mod common;

use std::fs;

use anteros_build::{Compression, Effort, Options};
use common::{Random, build};
use tempfile::TempDir;

/// Sizes of the image of a file, with its equal parts stored twice and once.
fn image_bytes(content: &[u8]) -> (u64, u64) {
    let dir = TempDir::new().unwrap();
    let source = dir.path().join("source");
    fs::create_dir(&source).unwrap();
    fs::write(source.join("file"), content).unwrap();
    let image = dir.path().join("image");
    let bytes = |dedupe| {
        let options = Options {
            compression: Some(Compression::new(Effort::Fast)),
            dedupe,
            workers: 2,
            ..Options::default()
        };
        build(&image, &source, &options).unwrap().image_bytes
    };
    (bytes(false), bytes(true))
}

/// An index that says where each cluster lies is longer by 12 KiB for a file of 8 MiB.
#[test]
fn a_part_that_saves_less_than_a_longer_index_takes_is_stored_twice() {
    let mut random = Random::new(3);
    let mut content = random.text(8 << 20);
    content.extend_from_within(1 << 20..(1 << 20) + 20_000);
    let (twice, once) = image_bytes(&content);
    assert_eq!(once, twice);
    content.extend_from_within(3 << 20..4 << 20);
    let (twice, once) = image_bytes(&content);
    assert!(once < twice, "{once} and {twice} bytes");
}
