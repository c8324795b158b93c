//! The directory in which an extraction begins.

use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;

/// Opens the target for the content of a directory. That the caller names it by symbolic links is
/// their own wish.
pub(super) fn open_target_dir(target: &Path) -> io::Result<OwnedFd> {
    match rustix::fs::mkdir(target, Mode::RWXU) {
        Ok(()) | Err(Errno::EXIST) => {}
        Err(error) => return Err(error.into()),
    }
    open_given_dir(target)
}

/// The directory, and the name in it, of a target that is a single file.
pub(super) fn open_target_parent(target: &Path, from: &[u8]) -> io::Result<(OwnedFd, Vec<u8>)> {
    if target.is_dir() {
        let mut names = from.split(|&b| b == b'/').filter(|name| !name.is_empty());
        let name = names.next_back().ok_or(io::ErrorKind::InvalidInput)?;
        return Ok((open_given_dir(target)?, name.to_vec()));
    }
    let name = target.file_name().ok_or(io::ErrorKind::InvalidInput)?;
    let parent = target
        .parent()
        .filter(|parent| !parent.as_os_str().is_empty());
    let parent = open_given_dir(parent.unwrap_or(Path::new(".")))?;
    Ok((parent, name.as_bytes().to_vec()))
}

fn open_given_dir(path: &Path) -> io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    Ok(rustix::fs::open(path, flags, Mode::empty())?)
}
