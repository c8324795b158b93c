//! Trees of files, as the benchmark finds them.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustix::fs::lstat;

use crate::outcome::Outcome;

/// States what an inode takes in ext4, at the most.
const INODE_BYTES: u64 = 4096;

/// Calls a function with each regular file that holds data, in the order in which directories list them. No file is asked for
/// its birth time, which the standard library does, and tar, cp and grep do not.
///
/// # Errors
/// When a directory cannot be read, or the function fails.
pub(super) fn walk(
    directory: &Path,
    file: &mut dyn FnMut(&Path, u64) -> io::Result<()>,
) -> io::Result<()> {
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        let kind = entry.file_type()?;
        if kind.is_dir() {
            walk(&entry.path(), file)?;
        } else if kind.is_file() {
            let bytes = lstat(entry.path())?.st_size as u64;
            if bytes > 0 {
                file(&entry.path(), bytes)?;
            }
        }
    }
    Ok(())
}

/// The regular files below a directory that hold data, sorted: paths within it, and sizes in bytes.
///
/// # Errors
/// When a directory cannot be read.
pub(crate) fn files(directory: &Path) -> io::Result<Vec<(PathBuf, u64)>> {
    let mut files = Vec::new();
    walk(directory, &mut |path, bytes| {
        let within = path.strip_prefix(directory).unwrap_or(path);
        files.push((within.to_owned(), bytes));
        Ok(())
    })?;
    files.sort();
    Ok(files)
}

/// The one regular file that a directory holds, as a name; nothing when it is a tree.
///
/// # Errors
/// When the directory cannot be read.
pub(super) fn single_file(directory: &Path) -> io::Result<Option<PathBuf>> {
    let mut entries = fs::read_dir(directory)?;
    let (Some(first), None) = (entries.next().transpose()?, entries.next()) else {
        return Ok(None);
    };
    let is_file = first.file_type()?.is_file();
    Ok(is_file.then(|| PathBuf::from(first.file_name())))
}

/// The bytes that a tree takes in a file system without compression: blocks of 4 KiB, and inodes.
///
/// # Errors
/// When a directory cannot be read.
pub(super) fn stored_bytes(directory: &Path) -> Outcome<u64> {
    let mut bytes = INODE_BYTES;
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        bytes += INODE_BYTES + entry.metadata()?.size().next_multiple_of(4096);
        if entry.file_type()?.is_dir() {
            bytes += stored_bytes(&entry.path())?;
        }
    }
    Ok(bytes)
}
