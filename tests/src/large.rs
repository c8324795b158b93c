//! Images with long extents, for which the fixtures are too small.

use std::path::Path;
use std::sync::atomic::AtomicBool;

use anteros_build::{Codec, Compression, Effort, Fragments, Options};
use tempfile::TempDir;

use crate::mount::run;
use crate::peers::Peers;
use crate::trees::{Tree, mixed, words};

/// States what LZ4 streams of ours are cut to, in bytes: extents of some pages, of some hundred KiB, of some MiB.
pub const PCLUSTER_BYTES: [u32; 3] = [4096, 64 << 10, 1 << 20];

/// The codecs that only `mkfs.erofs` encodes, as it likes to be told of them.
pub const THEIR_CODECS: [&str; 3] = ["lzma,level=1", "deflate,level=1", "zstd,level=1"];

/// Text, what compresses very well, and all kinds of data in turn: 5 MiB.
pub fn tree() -> Tree {
    let tree = Tree::new();
    tree.write("text", &words(1, 2_500_000));
    tree.write("repeated", &words(2, 5000).repeat(400));
    tree.write("mixed", &mixed(3, 700_001));
    tree
}

/// An image of ours, LZ4 in streams of a length.
///
/// # Panics
///
/// If it cannot be built.
pub fn ours(tree: &Path, pcluster_bytes: u32) -> Vec<u8> {
    let options = Options {
        compression: Some(Compression {
            pcluster_bytes,
            ..Compression::new(Effort::Fast)
        }),
        ..Options::default()
    };
    built(tree, &options)
}

/// Images of ours whose files are all packed in streams of a MiB, each with its name.
///
/// # Panics
///
/// If one cannot be built.
pub fn packed() -> [(&'static str, Vec<u8>); 3] {
    let tree = many_files();
    let zstd = Codec::Zstd {
        level: 3,
        window_log: 18,
    };
    let lzma = Codec::Lzma {
        level: 1,
        extreme: false,
        dict_bytes: 1 << 20,
    };
    let deflate = Codec::Deflate { level: 1 };
    [("zstd", zstd), ("lzma", lzma), ("deflate", deflate)]
        .map(|(name, codec)| (name, packed_by(tree.path(), codec)))
}

fn packed_by(tree: &Path, codec: Codec) -> Vec<u8> {
    let options = Options {
        compression: Some(Compression {
            pcluster_bytes: 1 << 20,
            ..Compression::new(codec)
        }),
        fragments: Some(Fragments {
            all: true,
            pcluster_bytes: None,
        }),
        ..Options::default()
    };
    built(tree, &options)
}

/// A tree of many short texts, 6 MiB in all.
fn many_files() -> Tree {
    let tree = Tree::new();
    for n in 0..150 {
        tree.write(format!("text{n}"), &words(n, 20_000 + 300 * n as usize));
    }
    tree
}

/// An image of `mkfs.erofs`, in pclusters of up to so many bytes; `None` without the peers.
///
/// # Panics
///
/// If it cannot be made.
pub fn theirs(tree: &Path, codec: &str, pcluster_bytes: u32) -> Option<Vec<u8>> {
    let peers = Peers::find()?;
    Some(made(|image| {
        let mut command = peers.command("mkfs.erofs");
        command.args(["--quiet", &format!("-C{pcluster_bytes}")]);
        command.arg(format!("-z{codec}"));
        run(command.arg(image).arg(tree)).unwrap();
    }))
}

/// All of them, each with its name.
pub fn all() -> Vec<(String, Vec<u8>)> {
    let tree = tree();
    let ours = PCLUSTER_BYTES.map(|bytes| (format!("lz4 in {bytes}"), ours(tree.path(), bytes)));
    let theirs = THEIR_CODECS
        .iter()
        .filter_map(|codec| Some((codec.to_string(), theirs(tree.path(), codec, 1 << 20)?)));
    ours.into_iter().chain(theirs).collect()
}

/// An image of ours by these options.
fn built(tree: &Path, options: &Options) -> Vec<u8> {
    made(|image| {
        let never = AtomicBool::new(false);
        anteros_build::build(image, tree, options, &(), &never).unwrap();
    })
}

fn made(make: impl FnOnce(&Path)) -> Vec<u8> {
    let dir = TempDir::new().unwrap();
    let image = dir.path().join("image");
    make(&image);
    std::fs::read(image).unwrap()
}
