//! Names of files below a directory.

use std::collections::HashMap;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::ffi::OsStrExt;

use anteros_core::FileKind;
use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags, openat, statat};

/// Bytes of a path at most.
const PATH_BYTES_MAX: usize = 4096;

/// A path of each regular file below a directory, with a slash in front, by inode number, if it is `wanted`. What lies on
/// another device is left out, and so is what cannot be read.
pub fn paths(root: impl AsFd, wanted: impl Fn(u64) -> bool) -> HashMap<u64, Vec<u8>> {
    let mut paths = HashMap::new();
    visit(root.as_fd(), &mut |kind, ino, path| {
        if kind == FileKind::Regular && wanted(ino) {
            paths.entry(ino).or_insert_with(|| path.to_vec());
        }
    });
    paths
}

/// The paths of all directories below one, itself included, whose path is empty.
pub fn directories(root: impl AsFd) -> Vec<Vec<u8>> {
    let mut paths = vec![Vec::new()];
    visit(root.as_fd(), &mut |kind, _, path| {
        if kind == FileKind::Directory {
            paths.push(path.to_vec());
        }
    });
    paths
}

/// Shows kind, inode and path of all regular files and directories below one.
fn visit(root: BorrowedFd<'_>, show: &mut dyn FnMut(FileKind, u64, &[u8])) {
    let Ok(device) = rustix::fs::fstat(root).map(|stat| stat.st_dev) else {
        return;
    };
    let mut pending = vec![Vec::new()];
    while let Some(directory) = pending.pop() {
        let name = std::ffi::OsStr::from_bytes(match &directory[..] {
            [] => b".",
            [_, below @ ..] => below,
        });
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let Ok(fd) = openat(root, name, flags, Mode::empty()) else {
            continue;
        };
        let Ok(entries) = Dir::read_from(&fd) else {
            continue;
        };
        for entry in entries.map_while(Result::ok) {
            let name = entry.file_name().to_bytes();
            let path = [&directory[..], b"/", name].concat();
            if matches!(name, b"." | b"..") || path.len() > PATH_BYTES_MAX {
                continue;
            }
            if entry.file_type() == FileType::RegularFile {
                show(FileKind::Regular, entry.ino(), &path);
                continue;
            }
            let Ok(stat) = statat(&fd, entry.file_name(), AtFlags::SYMLINK_NOFOLLOW) else {
                continue;
            };
            let kind = FileKind::from_mode(stat.st_mode);
            let Some(kind) = kind.filter(|_| stat.st_dev == device) else {
                continue;
            };
            if matches!(kind, FileKind::Regular | FileKind::Directory) {
                show(kind, stat.st_ino, &path);
            }
            if kind == FileKind::Directory {
                pending.push(path);
            }
        }
    }
}
