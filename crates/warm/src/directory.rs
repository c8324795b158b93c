//! Files below a directory.

use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use rustix::fs::{FileType, Mode, OFlags, fstat, openat};

/// A directory whose files are looked for by their paths.
#[derive(Debug)]
pub struct Directory(OwnedFd);

impl Directory {
    /// Opens a directory.
    ///
    /// # Errors
    ///
    /// If it cannot be opened, or is none.
    pub fn open(path: &Path) -> io::Result<Self> {
        let file = File::open(path)?;
        match file.metadata()?.is_dir() {
            true => Ok(Self(file.into())),
            false => Err(io::ErrorKind::NotADirectory.into()),
        }
    }

    /// Opens a regular file: neither by a link, nor by `..`, which would lead out of the directory. What is no regular file is
    /// not opened: a device or a pipe would answer to that.
    ///
    /// # Errors
    ///
    /// If there is none, or it cannot be opened.
    pub fn find(&self, path: &[u8]) -> io::Result<File> {
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let mut place = None;
        for name in path.split(|byte| *byte == b'/') {
            if matches!(name, b"" | b".") {
                continue;
            }
            if name == b".." || name.contains(&0) {
                return Err(io::ErrorKind::NotFound.into());
            }
            let above = place.as_ref().unwrap_or(&self.0);
            let found = openat(above, OsStr::from_bytes(name), flags, Mode::empty())?;
            place = Some(found);
        }
        let no_file = || io::Error::other("no regular file");
        let place = place.ok_or_else(no_file)?;
        match FileType::from_raw_mode(fstat(&place)?.st_mode) {
            FileType::RegularFile => File::open(format!("/proc/self/fd/{}", place.as_raw_fd())),
            _ => Err(no_file()),
        }
    }
}

impl AsFd for Directory {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn files_are_found_below_a_directory_alone() {
        let top = tempfile::tempdir().unwrap();
        let at = |name: &str| top.path().join(name);
        fs::create_dir_all(at("tree/a/b")).unwrap();
        fs::write(at("outside"), "x").unwrap();
        fs::write(at("tree/a/b/c"), "content").unwrap();
        symlink("../outside", at("tree/link")).unwrap();
        symlink("a", at("tree/way")).unwrap();
        let directory = Directory::open(&at("tree")).unwrap();
        let size = |path: &str| {
            Some(
                directory
                    .find(path.as_bytes())
                    .ok()?
                    .metadata()
                    .unwrap()
                    .len(),
            )
        };
        assert_eq!(size("/a/b/c"), Some(7));
        assert_eq!(size("a/./b//c"), Some(7));
        for path in [
            "../outside",
            "link",
            "way/b/c",
            "a/b",
            "",
            "a/b/c/d",
            "a/b/c\0",
            "none",
        ] {
            assert_eq!(size(path), None, "{path}");
        }
        Directory::open(&at("outside")).unwrap_err();
    }
}
