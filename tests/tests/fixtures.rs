//! Theirs to ours: every image that `mkfs.erofs` made for us reads as the tree it was made from.
//! Needs no peer and no privilege: the images and their manifest stand in the repository.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use anteros_image::ImageFs;
use anteros_tests::{fixtures_dir, manifest::manifest, open};

#[test]
fn every_fixture_reads_as_its_tree() {
    let expected = std::fs::read_to_string(fixtures_dir().join("tree.manifest")).unwrap();
    let images = images();
    assert!(images.len() >= 24, "only {} fixtures", images.len());
    let wrong: Vec<_> = images
        .iter()
        .filter(|path| !reads_as(path, &expected))
        .collect();
    assert!(wrong.is_empty(), "{wrong:?}");
}

fn images() -> Vec<PathBuf> {
    let paths = std::fs::read_dir(fixtures_dir())
        .unwrap()
        .map(|entry| entry.unwrap().path());
    paths
        .filter(|path| path.extension().is_some_and(|e| e == "erofs"))
        .collect()
}

fn reads_as(path: &Path, expected: &str) -> bool {
    let blob = path.with_extension("blob");
    let extra = if blob.exists() {
        vec![blob]
    } else {
        Vec::new()
    };
    let image = Arc::new(open(path, &extra));
    let fs = ImageFs::new(image.clone());
    let found = match manifest(&fs) {
        Ok(found) => found,
        Err(error) => {
            eprintln!("{}: {error}", path.display());
            return false;
        }
    };
    // With 48-bit addresses mkfs.erofs 1.9.4 keeps no nanoseconds, and times before its epoch only
    // modulo 2^32; the kernel shows them so too.
    let expected = match image.superblock().has_48bit() {
        true => expected
            .replace("\t-86400.", "\t4294880896.")
            .replace(".123456789\t", ".000000000\t"),
        false => expected.to_owned(),
    };
    let differs = found
        .lines()
        .zip(expected.lines())
        .find(|(found, expected)| found != expected);
    if let Some((found, expected)) = differs {
        eprintln!(
            "{}:\n  found    {found}\n  expected {expected}",
            path.display()
        );
    }
    found == expected
}
