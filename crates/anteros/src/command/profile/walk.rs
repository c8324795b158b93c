//! Names of files below a directory.

use std::collections::HashMap;
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;

use anteros_core::FileKind;
use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags, openat, statat};

/// Bytes of a path at most.
const PATH_BYTES_MAX: usize = 4096;

/// A path of each regular file below a directory, with a slash in front, by inode number, if it is `wanted`. What lies on
/// another device is left out, and so is what cannot be read.
pub fn paths(root: impl AsFd, wanted: impl Fn(u64) -> bool) -> HashMap<u64, Vec<u8>> {
    let mut paths = HashMap::new();
    let root = root.as_fd();
    let Ok(device) = rustix::fs::fstat(root).map(|stat| stat.st_dev) else {
        return paths;
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
            let is_file = entry.file_type() == FileType::RegularFile;
            if is_file && wanted(entry.ino()) {
                paths.entry(entry.ino()).or_insert(path);
                continue;
            }
            if is_file {
                continue;
            }
            let Ok(stat) = statat(&fd, entry.file_name(), AtFlags::SYMLINK_NOFOLLOW) else {
                continue;
            };
            let ino = stat.st_ino;
            match FileKind::from_mode(stat.st_mode) {
                _ if stat.st_dev != device => {}
                Some(FileKind::Directory) => pending.push(path),
                Some(FileKind::Regular) if wanted(ino) => {
                    paths.entry(ino).or_insert(path);
                }
                _ => {}
            }
        }
    }
    paths
}
