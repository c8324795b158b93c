//! Theirs to ours: every image that `mkfs.erofs` made for us reads as the tree it was made from.
//! Needs no peer and no privilege: the images and their manifest stand in the repository.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use anteros_format::linux::Needs;
use anteros_image::ImageFs;
use anteros_tests::manifest::{Column, difference, edit, manifest};
use anteros_tests::{fixtures, fixtures_dir, open, time_kept_by_48bit};

#[test]
fn every_fixture_reads_as_its_tree() {
    let expected = std::fs::read_to_string(fixtures_dir().join("tree.manifest")).unwrap();
    let images = fixtures();
    assert!(images.len() >= 24, "only {} fixtures", images.len());
    let wrong = images.iter().filter_map(|(path, extra)| {
        let difference = read(path, extra, &expected)?;
        Some(format!("{}: {difference}", path.display()))
    });
    let wrong: Vec<_> = wrong.collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn every_fixture_asks_for_the_linux_that_brought_its_features() {
    for (path, extra) in fixtures() {
        let name = path.file_stem().unwrap().to_str().unwrap();
        let oldest = match name {
            "plain" | "lz4" => "5.4",
            "lz4hc-64k" | "lz4hc-extended" | "lz4hc-full-16k" | "hints" => "5.13",
            "lzma" => "5.16",
            "ztailpacking" | "ztailpacking-full" => "5.17",
            "fragments" | "fragments-dedupe" | "all-fragments" | "directories" => "6.1",
            // Blocks of 512 bytes.
            "chunks" | "chunk-indexes" | "blobdev" => "6.4",
            "xattr-prefix" | "xattr-prefix-packed" => "6.4",
            "deflate" => "6.6",
            "lz4-512" => "6.8",
            "zstd" => "6.10",
            "48bit" | "48bit-fixed" | "dot-omitted" => "6.15",
            "metabox" | "metabox-lzma" => "6.17",
            _ => panic!("{name}: which Linux mounts it?"),
        };
        let image = open(&path, &extra);
        let needs = Needs::of(image.superblock(), image.compr_cfgs());
        assert_eq!(needs.oldest().to_string(), oldest, "{name}");
    }
}

/// Returns how the image differs from the tree.
fn read(path: &Path, extra: &[PathBuf], expected: &str) -> Option<String> {
    let image = Arc::new(open(path, extra));
    let expected = edit(expected, |columns| {
        let time = &mut columns[Column::Mtime as usize];
        if image.superblock().has_48bit() {
            *time = time_kept_by_48bit(time);
        }
        true
    });
    match manifest(&ImageFs::new(image)) {
        Ok(found) => difference(&found, &expected),
        Err(error) => Some(error.to_string()),
    }
}
