//! Paths that lead to what is open.

use std::os::fd::{AsFd, AsRawFd};

/// A path by which system calls that take no descriptor reach a name in an open directory, or with
/// an empty name what is open itself.
pub(crate) fn descriptor_path(fd: impl AsFd, name: &[u8]) -> Vec<u8> {
    let mut path = format!("/proc/self/fd/{}", fd.as_fd().as_raw_fd()).into_bytes();
    if !name.is_empty() {
        path.push(b'/');
        path.extend_from_slice(name);
    }
    path
}
