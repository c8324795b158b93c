//! Paths of an image as arguments tell them.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

/// A path without what says nothing: slashes around it, and `.`.
pub fn plain(path: &OsStr) -> Vec<u8> {
    let names = path.as_bytes().split(|byte| *byte == b'/');
    let names: Vec<_> = names.filter(|name| !matches!(*name, b"" | b".")).collect();
    names.join(&b'/')
}

/// Returns whether a path is another one, or lies below it.
pub fn is_within(path: &[u8], other: &[u8]) -> bool {
    path.strip_prefix(other)
        .is_some_and(|rest| rest.is_empty() || rest[0] == b'/')
}
