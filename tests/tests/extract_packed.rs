//! Extraction of files that are packed together in large extents: each extent is decoded once, and the tree is the same.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use anteros_build::{Codec, Compression, Fragments, Options};
use anteros_core::FileDevice;
use anteros_image::{ExtractOptions, ExtractSummary, Image, OpenOptions, extract};
use anteros_tests::built::same;
use anteros_tests::host::HostFs;
use anteros_tests::manifest::manifest;
use anteros_tests::trees::{Tree, noise, words};
use anteros_tests::{nobody, scratch};
use tempfile::TempDir;

/// An image with all files packed, in extents of a MiB and more.
fn image(tree: &Path, place: &Path) -> Image {
    let mut compression = Compression::new(Codec::Zstd {
        level: 3,
        window_log: 20,
    });
    compression.pcluster_bytes = 1 << 20;
    let options = Options {
        compression: Some(compression),
        fragments: Some(Fragments {
            all: true,
            pcluster_bytes: None,
        }),
        dedupe: true,
        sync: false,
        ..Options::default()
    };
    let path = place.join("image");
    anteros_build::build(&path, tree, &options, &(), &AtomicBool::new(false)).unwrap();
    let image = open(&path);
    assert!(image.packs_large_extents());
    image
}

fn open(path: &Path) -> Image {
    let device = Arc::new(FileDevice::open(path).unwrap());
    Image::open(device, Vec::new(), OpenOptions::default()).unwrap()
}

fn extracted(image: &Image, target: &Path, options: &ExtractOptions) -> ExtractSummary {
    extract(image, b"", target, options, &(), &AtomicBool::new(false)).unwrap()
}

fn workers(workers: usize) -> ExtractOptions {
    ExtractOptions {
        workers,
        ..ExtractOptions::default()
    }
}

fn comes_back(tree: &Tree) {
    let expected = manifest(&HostFs::new(tree.path())).unwrap();
    let place = TempDir::new_in(scratch()).unwrap();
    let image = image(tree.path(), place.path());
    for count in [1, 3] {
        let target = place.path().join(count.to_string());
        let summary = extracted(&image, &target, &workers(count));
        assert!(summary.is_complete());
        let found = manifest(&HostFs::new(&target)).unwrap();
        same("what was extracted", &found, &expected).unwrap();
    }
}

/// One of everything, and files that lie in several extents.
#[test]
fn the_tree_is_the_same() {
    let tree = Tree::everything();
    for n in 0..6 {
        tree.write(format!("long/{n}"), &words(n, 1_500_000));
        tree.write(format!("noise/{n}"), &noise(n, 700_000));
    }
    // More files than may be open at a time lie in the same extents.
    for n in 0..300 {
        tree.write(format!("equal/{n}"), &words(7, 2_000_000));
    }
    comes_back(&tree);
}

#[test]
fn more_files_than_are_noted_at_a_time() {
    let tree = Tree::new_in(&scratch());
    tree.write("long", &words(1, 5_000_000));
    for n in 0..33_000_u32 {
        tree.write(format!("many/{}/{n}", n % 40), &n.to_le_bytes());
    }
    comes_back(&tree);
}

#[test]
fn a_broken_extent_takes_no_other_along() {
    let tree = Tree::new();
    for n in 0..60 {
        tree.write(format!("files/{n}"), &words(100 + n, 100_000));
        tree.write(format!("texts/{n}"), &words(n, 100_000));
    }
    let place = TempDir::new().unwrap();
    drop(image(tree.path(), place.path()));
    let path = place.path().join("image");
    let mut bytes = fs::read(&path).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle..middle + 30_000].fill(0x55);
    fs::write(&path, bytes).unwrap();

    let options = ExtractOptions {
        keep_going: true,
        ..workers(2)
    };
    let target = TempDir::new().unwrap();
    let summary = extracted(&open(&path), target.path(), &options);
    assert!((1..60).contains(&summary.error_count), "{summary:?}");
    let broken = |name: &str| {
        let mut errors = summary.errors.iter();
        errors.any(|error| error.path.as_bytes() == name.as_bytes())
    };
    for name in (0..60).flat_map(|n| [format!("files/{n}"), format!("texts/{n}")]) {
        let is_same =
            fs::read(target.path().join(&name)).unwrap() == fs::read(tree.at(&name)).unwrap();
        assert!(
            is_same || broken(&name),
            "{name} is wrong, and nothing says so"
        );
    }
}

/// Files are opened once more to be written, also where their modes would not let their owner do that.
#[test]
fn a_user_gets_files_that_are_only_to_be_read() {
    let test = "a_user_gets_files_that_are_only_to_be_read";
    let Some(place) = nobody::place(test, &[]) else {
        return;
    };
    let tree = Tree::new_in(&place);
    let mode = |name: &str, mode| {
        fs::set_permissions(tree.at(name), Permissions::from_mode(mode)).unwrap()
    };
    for n in 0..20 {
        let name = format!("files/{n}");
        tree.write(&name, &words(n, 200_000));
        mode(&name, 0o400 + 4 * n as u32);
    }
    mode("files", 0o555);
    let image = image(tree.path(), &place);
    let expected = manifest(&HostFs::new(tree.path())).unwrap();
    let target = place.join("target");
    let summary = extracted(&image, &target, &workers(2));
    assert!(summary.is_complete());
    let found = manifest(&HostFs::new(&target)).unwrap();
    same("what was extracted", &found, &expected).unwrap();
    mode("files", 0o755);
    fs::set_permissions(target.join("files"), Permissions::from_mode(0o755)).unwrap();
}
