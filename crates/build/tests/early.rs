//! Tests streams whose files are compressed while more of them comes: the same image as of the archive in place.
//!
//! Invariant B9 of `docs/design/building.md`.

mod common;
#[path = "common/tree.rs"]
mod tree;

use std::fs::{self, File};
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::Command;

use anteros_build::{
    Archive, Codec, Compression, Effort, Error, Input, Layer, Options, Quick, ReadRange,
};
use tempfile::TempDir;

use common::{Random, build, missing_judge};
use tree::tree;

/// A tree with files of one and of several segments, which shrink, shrink in parts, a little, or not at all.
fn archive(dir: &Path) -> Option<PathBuf> {
    let (source, archive) = (dir.join("source"), dir.join("tar"));
    fs::create_dir(&source).unwrap();
    tree(&source);
    let mut random = Random::new(3);
    let both = [
        random.text(400_000),
        random.bytes(700_000),
        random.text(300_000),
    ];
    let mut little = random.bytes(1_200_000);
    for block in little.chunks_mut(4096) {
        block[..200].fill(b'x');
    }
    let files = [
        ("text", random.text(1_500_000)),
        ("noise", random.bytes(900_001)),
        ("both", both.concat()),
        ("little-and-short", little[..70_000].to_vec()),
        ("little", little),
        ("zeros", vec![0; 600_000]),
        ("block", random.text(4096)),
        ("more", random.text(4097)),
    ];
    for (name, content) in files {
        fs::write(source.join(name), content).unwrap();
    }
    let options = [
        "--format=posix",
        "--sparse",
        "--xattrs",
        "--xattrs-include=*",
    ];
    let mut tar = Command::new("tar");
    tar.arg("-cf")
        .arg(&archive)
        .args(options)
        .arg("-C")
        .arg(&source);
    let Ok(done) = tar.arg(".").output() else {
        missing_judge("tar");
        return None;
    };
    assert!(done.status.success(), "{done:?}");
    Some(archive)
}

fn bytes<'a>(input: impl Into<Input<'a>>, options: &Options) -> Vec<u8> {
    let dir = TempDir::new().unwrap();
    let image = dir.path().join("image");
    build(&image, input, options).unwrap();
    fs::read(image).unwrap()
}

fn compressed(codec: impl Into<Codec>, pcluster_bytes: u32) -> Options {
    let mut compression = Compression::new(codec);
    compression.pcluster_bytes = pcluster_bytes;
    compression.segment_bytes = 256 << 10;
    Options {
        compression: Some(compression),
        ..Options::default()
    }
}

fn gaining(percent: u8, mut options: Options) -> Options {
    options.compression.as_mut().unwrap().min_gain_percent = percent;
    options
}

/// A part of a file.
fn read(path: &str) -> ReadRange {
    ReadRange {
        path: path.into(),
        offset: 500_000 % (100_000 * path.len() as u64),
        len: 70_000,
    }
}

/// Options under which extents become content again in each way that there is.
fn option_sets() -> Vec<Options> {
    let lz4 = |pcluster_bytes| compressed(Effort::Fast, pcluster_bytes);
    let deflate = || compressed(Codec::Deflate { level: 6 }, 16384);
    let zstd = |pcluster_bytes| {
        let codec = Codec::Zstd {
            level: 3,
            window_log: 16,
        };
        compressed(codec, pcluster_bytes)
    };
    let lzma = || {
        let codec = Codec::Lzma {
            level: 6,
            extreme: false,
            dict_bytes: 1 << 20,
        };
        compressed(codec, 65536)
    };
    let mut quick = zstd(65536);
    quick.compression.as_mut().unwrap().quick = Some(Quick {
        of_hot: false,
        codec: Some(Effort::High(9).into()),
        percent: 40,
    });
    let inline = |options| Options {
        inline_tails: true,
        ..options
    };
    let wide = |options| Options {
        wide: true,
        ..options
    };
    vec![
        lz4(4096),
        lz4(65536),
        inline(lz4(4096)),
        inline(lzma()),
        gaining(20, lz4(4096)),
        gaining(20, inline(zstd(4096))),
        gaining(60, lzma()),
        gaining(60, deflate()),
        gaining(30, quick.clone()),
        quick,
        wide(zstd(65536)),
        wide(inline(gaining(30, deflate()))),
        Options {
            inline_data: false,
            workers: 1,
            memory_bytes: 1 << 20,
            ..lz4(65536)
        },
        Options {
            block_bits: 9,
            ..lz4(4096)
        },
        Options {
            hot: ["more", "text", "both", "noise", "0/same"].map(read).into(),
            hot_cuts_permille: 1000,
            ..lz4(65536)
        },
    ]
}

#[test]
fn a_stream_gives_the_image_of_the_archive_in_place() {
    let dir = TempDir::new().unwrap();
    let Some(archive) = archive(dir.path()) else {
        return;
    };
    for options in option_sets() {
        let in_place = bytes(Archive::open(&archive).unwrap(), &options);
        let stream = Archive::from_reader("tar", File::open(&archive).unwrap());
        assert!(bytes(stream, &options) == in_place, "{options:?}");
    }
}

#[test]
fn layers_that_are_streams_give_the_image_of_those_in_place() {
    let dir = TempDir::new().unwrap();
    let Some(archive) = archive(dir.path()) else {
        return;
    };
    let options = compressed(Effort::Fast, 65536);
    let in_place = || Layer::Tar(Archive::open(&archive).unwrap());
    let stream = || Layer::Tar(Archive::from_reader("tar", File::open(&archive).unwrap()));
    let expected = bytes(vec![in_place(), in_place()], &options);
    assert!(bytes(vec![stream(), stream()], &options) == expected);
}

#[test]
fn a_stream_that_ends_within_a_file_is_refused() {
    let dir = TempDir::new().unwrap();
    let Some(archive) = archive(dir.path()) else {
        return;
    };
    let whole = fs::metadata(&archive).unwrap().len();
    for len in [whole / 2, whole / 3, whole / 5] {
        let stream = File::open(&archive).unwrap().take(len);
        let stream = Archive::from_reader("tar", stream);
        let image = dir.path().join("image");
        let refused = build(&image, stream, &compressed(Effort::High(9), 65536));
        assert!(matches!(refused, Err(Error::Archive { .. })), "{refused:?}");
        assert!(!image.exists());
    }
}
