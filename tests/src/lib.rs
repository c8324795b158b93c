//! What the judges share: manifests of file systems, and the peers.

pub mod manifest;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use anteros_core::{Device, FileDevice};
use anteros_image::{Image, OpenOptions};

/// The small images made by `mkfs.erofs` that stand in the repository.
pub fn fixtures_dir() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures")
}

/// Opens an image and its extra devices.
pub fn open(path: &Path, extra: &[PathBuf]) -> Image {
    let device = |path: &Path| -> Arc<dyn Device> { Arc::new(FileDevice::open(path).unwrap()) };
    let extra = extra.iter().map(|path| device(path)).collect();
    Image::open(device(path), extra, OpenOptions::default()).unwrap()
}
