//! Tests what a build promises besides a good image: the same bytes, no half images, errors that say what.

#[path = "../common/mod.rs"]
mod common;
mod failures;
mod metadata;
mod once;
mod options;
mod same;

use std::fs;
use std::path::Path;

use anteros_build::{Codec, Compression, Effort, Options, Setting};
use anteros_format::superblock::{SUPERBLOCK_OFFSET, Superblock};

use common::Random;

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
