//! Parts that the judges share.
//!
//! A judge compares two views of one tree: a directory it was made from, our reader, the kernel's mount, ours through
//! FUSE, what `fsck.erofs` extracts. Each view is an [`anteros_core::FileSystem`], and [`manifest`] turns it into
//! text. What a judge needs and the machine lacks is reported by [`judge`]; nothing passes silently.
//!
//! What is written to a device is judged by cutting the power: [`crash`] makes all that the device may hold then, [`ace`]
//! and [`recorded`] have what to run meanwhile, and [`faulty`] is a device that fails. [`medium`] is one for processes.

pub mod ace;
pub mod built;
pub mod callers;
pub mod combine;
pub mod crash;
pub mod disk;
pub mod faulty;
pub mod host;
pub mod judge;
pub mod large;
pub mod manifest;
pub mod medium;
pub mod model;
pub mod mount;
pub mod names;
pub mod nobody;
pub mod peers;
pub mod recorded;
pub mod trees;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use anteros_core::{Device, FileDevice, Window};
use anteros_image::{Image, OpenOptions};
use rustix::fs::XattrFlags;

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
///
/// # Panics
///
/// If it cannot be opened.
pub fn open(path: &Path, extra: &[PathBuf]) -> Image {
    try_open(path, 0, extra).unwrap()
}

/// Opens an image that begins at a byte of a file, and its extra devices.
///
/// # Errors
///
/// What our reader says of the image.
pub fn try_open(path: &Path, offset: u64, extra: &[PathBuf]) -> anteros_image::Result<Image> {
    let open = |path: &Path| FileDevice::open(path).unwrap();
    let primary = Arc::new(Window::new(open(path), offset));
    let extra = extra
        .iter()
        .map(|path| Arc::new(open(path)) as Arc<dyn Device>);
    Image::open(primary, extra.collect(), OpenOptions::default())
}

/// Free bytes that the trees and images of a test may need.
const SCRATCH_BYTES: u64 = 4 << 30;

/// Returns where to keep trees and images that come and go: in memory, if there is room for them and attributes stick
/// there. Then files can have more names and times than on ext4, too.
pub fn scratch() -> PathBuf {
    memory().unwrap_or_else(std::env::temp_dir)
}

/// A file system in memory, if there is one as described for [`scratch`].
pub fn memory() -> Option<PathBuf> {
    let path = std::env::var_os("ANTEROS_MEMORY").map_or("/dev/shm".into(), PathBuf::from);
    let path = path.as_path();
    let space = rustix::fs::statvfs(path).ok()?;
    let probe = tempfile::NamedTempFile::new_in(path).ok()?;
    let keeps = rustix::fs::lsetxattr(probe.path(), "user.probe", b"1", XattrFlags::empty());
    let fits = space.f_bavail * space.f_frsize >= SCRATCH_BYTES && keeps.is_ok();
    fits.then(|| path.to_owned())
}

/// Returns what mkfs.erofs 1.9.4 keeps of a time in an image with 48-bit addresses, unless the inode is an extended
/// one: whole seconds modulo 2^32. The kernel shows it so too.
pub fn time_kept_by_48bit(time: &str) -> String {
    let (secs, _) = time.split_once('.').unwrap();
    let secs: i64 = secs.parse().unwrap();
    format!("{}.000000000", secs.rem_euclid(1 << 32))
}
