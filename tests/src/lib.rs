//! What the judges share.
//!
//! A judge compares two views of one tree: a directory it was made from, our reader, the kernel's mount, ours through
//! FUSE, what `fsck.erofs` extracts. Each view is an [`anteros_core::FileSystem`], and [`manifest`] turns it into
//! text. What a judge needs and the machine lacks is reported by [`judge`]; nothing passes silently.

pub mod host;
pub mod judge;
pub mod manifest;
pub mod mount;
pub mod peers;
pub mod trees;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use anteros_core::{Device, FileDevice};
use anteros_image::{Image, OpenOptions};

/// The small images made by `mkfs.erofs` that stand in the repository.
pub fn fixtures_dir() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures")
}

/// The images of [`fixtures_dir`], each with its extra devices.
pub fn fixtures() -> Vec<(PathBuf, Vec<PathBuf>)> {
    let paths = std::fs::read_dir(fixtures_dir()).unwrap();
    let mut images: Vec<_> = paths
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|e| e == "erofs"))
        .map(|path| {
            let blob = path.with_extension("blob");
            let extra = blob.exists().then_some(blob);
            (path, extra.into_iter().collect())
        })
        .collect();
    images.sort();
    images
}

/// Opens an image and its extra devices.
pub fn open(path: &Path, extra: &[PathBuf]) -> Image {
    let device = |path: &Path| -> Arc<dyn Device> { Arc::new(FileDevice::open(path).unwrap()) };
    let extra = extra.iter().map(|path| device(path)).collect();
    Image::open(device(path), extra, OpenOptions::default()).unwrap()
}

/// What mkfs.erofs 1.9.4 keeps of a time in an image with 48-bit addresses, unless the inode is an extended one: whole
/// seconds modulo 2^32. The kernel shows it so too.
pub fn time_kept_by_48bit(time: &str) -> String {
    let (secs, _) = time.split_once('.').unwrap();
    let secs: i64 = secs.parse().unwrap();
    format!("{}.000000000", secs.rem_euclid(1 << 32))
}
