//! The target `extract`.

use std::fs::{self, Permissions};
use std::io;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use anteros_core::FileKind;
use anteros_image::{ExtractObserver, ExtractOptions, Image, ImagePath};
use tempfile::TempDir;

use super::image::open_image;

/// Names that are created before the extraction is cancelled, or a few more.
const NAMES_MAX: u64 = 200;
/// Bytes that are written before it is cancelled, or a piece more.
const WRITTEN_MAX: u64 = 4 << 20;
/// A path of this length is the last.
const PATH_BYTES_MAX: usize = 2000;

/// Extracts the image into a directory where links to what lies outside are in the way, twice: first what exists is
/// kept, then it is replaced. Nothing outside changes.
pub fn extract(input: &[u8]) {
    let Ok(image) = open_image(input) else { return };
    let place = Place::new().expect("a place to extract to");
    let before = place.outside().expect("what was just made");
    for overwrite in [false, true] {
        extract_to(&image, &place.target(), overwrite);
        let after = place.outside().expect("what nobody may remove");
        assert_eq!(after, before, "outside of the target");
    }
}

fn extract_to(image: &Image, target: &Path, overwrite: bool) {
    let options = ExtractOptions {
        workers: 1,
        overwrite,
        keep_going: true,
        ..ExtractOptions::default()
    };
    let limit = Limit::default();
    // Fails where the root is broken, or when it was cancelled.
    let _ = anteros_image::extract(image, b"", target, &options, &limit, &limit.reached);
}

/// Ends an extraction that becomes large.
#[derive(Default)]
struct Limit {
    names: AtomicU64,
    written: AtomicU64,
    reached: AtomicBool,
}

impl ExtractObserver for Limit {
    fn created(&self, path: &ImagePath, _: FileKind) {
        let names = self.names.fetch_add(1, Ordering::Relaxed);
        if names >= NAMES_MAX || path.as_bytes().len() >= PATH_BYTES_MAX {
            self.reached.store(true, Ordering::Relaxed);
        }
    }

    fn wrote(&self, bytes: u64) {
        if self.written.fetch_add(bytes, Ordering::Relaxed) >= WRITTEN_MAX {
            self.reached.store(true, Ordering::Relaxed);
        }
    }

    fn wants_names(&self) -> bool {
        true
    }
}

/// A directory that holds the target and, beside it, what must not change.
///
/// ```text
/// outside/   witness   linked
/// target/d -> ../outside    target/owner -> ../witness    target/xattr = linked
/// ```
///
/// The names in the target are those of a directory and of files of the images in the corpus; these have links of their
/// own that lead to `outside` and `witness`.
struct Place {
    directory: TempDir,
}

/// Holds what is known of the files beside the target.
type Outside = Vec<(PathBuf, [u64; 5], Vec<u8>)>;

impl Place {
    fn new() -> io::Result<Self> {
        let memory = Path::new("/dev/shm");
        let directory = match memory.is_dir() {
            true => tempfile::tempdir_in(memory)?,
            false => tempfile::tempdir()?,
        };
        let place = Self { directory };
        let path = place.path();
        let target = place.target();
        fs::create_dir(&target)?;
        fs::create_dir(path.join("outside"))?;
        fs::write(path.join("witness"), "untouched")?;
        fs::write(path.join("linked"), "untouched")?;
        symlink("../outside", target.join("d"))?;
        symlink("../witness", target.join("owner"))?;
        fs::hard_link(path.join("linked"), target.join("xattr"))?;
        Ok(place)
    }

    fn path(&self) -> &Path {
        self.directory.path()
    }

    fn target(&self) -> PathBuf {
        self.path().join("target")
    }

    /// All paths but the target's, with attributes and content. The times at which inodes changed are left out: they
    /// tell when `linked` loses its second name, as it may.
    fn outside(&self) -> io::Result<Outside> {
        let mut pending = vec![self.path().to_owned()];
        let mut found = Vec::new();
        while let Some(path) = pending.pop() {
            let state = fs::symlink_metadata(&path)?;
            let mut content = Vec::new();
            if state.is_dir() {
                let entries = fs::read_dir(&path)?;
                let paths = entries.map(|entry| entry.map(|entry| entry.path()));
                let paths = paths.collect::<io::Result<Vec<_>>>()?;
                pending.extend(paths.into_iter().filter(|path| *path != self.target()));
            } else {
                content = fs::read(&path)?;
            }
            let numbers = [
                state.mode().into(),
                state.uid().into(),
                state.gid().into(),
                state.mtime() as u64,
                state.mtime_nsec() as u64,
            ];
            found.push((path, numbers, content));
        }
        found.sort();
        Ok(found)
    }
}

impl Drop for Place {
    /// Lets the owner into all directories again, so that they can be removed.
    fn drop(&mut self) {
        let mut pending = vec![self.target()];
        while let Some(path) = pending.pop() {
            // What cannot be opened stays, and is seen in the place where it lies.
            let _ = fs::set_permissions(&path, Permissions::from_mode(0o700));
            let entries = fs::read_dir(&path).into_iter().flatten().flatten();
            let directories =
                entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
            pending.extend(directories.map(|entry| entry.path()));
        }
    }
}
