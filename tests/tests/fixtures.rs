//! Theirs to ours: every image that `mkfs.erofs` made for us reads as the tree it was made from.
//! Needs no peer and no privilege: the images and their manifest stand in the repository.

use std::path::{Path, PathBuf};
use std::sync::Arc;

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
