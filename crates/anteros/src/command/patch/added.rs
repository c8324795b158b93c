//! `anteros patch --add`: files of the host as a layer over the image.

use std::ffi::OsStr;
use std::fs::{self, File, Metadata};
use std::io::{self, Read};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use anteros_build::{Archive, Entry, EntryKind};
use anteros_core::Timestamp;
use rustix::fs::{lgetxattr, llistxattr, major, minor};
use rustix::io::Errno;

use super::names::plain;
use crate::failure::{Failure, Kind};

/// Bytes of an attribute's value, and of all names, as the kernel has them at most.
const XATTR_BYTES_MAX: usize = 64 << 10;

/// The layer of pairs: a file of the host, and where it is to be.
pub fn layer(pairs: &[(PathBuf, Vec<u8>)]) -> Archive<'static> {
    let pending = pairs.iter().rev().cloned().collect();
    Archive::from_entries("--add", Files { pending })
}

/// Reads pairs of arguments. A path that ends with a slash is that of the directory that the file goes into.
pub fn pairs(told: &[impl AsRef<OsStr>]) -> Result<Vec<(PathBuf, Vec<u8>)>, Failure> {
    let pair = |pair: &[&OsStr]| {
        let (file, path) = (Path::new(pair[0]), pair[1]);
        let mut names = plain(path);
        if path.as_bytes().ends_with(b"/") {
            let name = file.file_name().ok_or_else(|| {
                let text = format!("{}: has no name to add it by", file.display());
                Failure::new(Kind::Usage, text)
            })?;
            let has_parent = !names.is_empty();
            names.extend(b"/".iter().filter(|_| has_parent));
            names.extend(name.as_bytes());
        }
        fs::symlink_metadata(file).map_err(|e| Failure::system(file, &e))?;
        Ok((file.to_owned(), names))
    };
    let told: Vec<&OsStr> = told.iter().map(AsRef::as_ref).collect();
    told.chunks_exact(2).map(pair).collect()
}

/// Lists files, directories before what is in them.
struct Files {
    /// The next one is the last.
    pending: Vec<(PathBuf, Vec<u8>)>,
}

impl Iterator for Files {
    type Item = io::Result<Entry<'static>>;

    fn next(&mut self) -> Option<Self::Item> {
        let (file, path) = self.pending.pop()?;
        let named = |e: io::Error| io::Error::new(e.kind(), format!("{}: {e}", file.display()));
        Some(self.entry(&file, path).map_err(named))
    }
}

impl Files {
    fn entry(&mut self, file: &Path, path: Vec<u8>) -> io::Result<Entry<'static>> {
        let found = fs::symlink_metadata(file)?;
        let xattrs = xattrs(file)?;
        if found.is_dir() {
            self.enter(file, &path)?;
        }
        Ok(Entry {
            kind: kind(file, &found)?,
            path,
            perm: found.mode() as u16 & 0o7777,
            uid: found.uid(),
            gid: found.gid(),
            mtime: Timestamp {
                secs: found.mtime(),
                nanos: found.mtime_nsec() as u32, // below 10^9
            },
            xattrs,
        })
    }

    /// Notes what is in a directory.
    fn enter(&mut self, directory: &Path, path: &[u8]) -> io::Result<()> {
        let names = fs::read_dir(directory)?.map(|entry| entry.map(|entry| entry.file_name()));
        let mut names = names.collect::<io::Result<Vec<_>>>()?;
        names.sort_unstable();
        for name in names.iter().rev() {
            let below = match path {
                b"" => name.as_bytes().to_vec(),
                path => [path, name.as_bytes()].join(&b'/'),
            };
            self.pending.push((directory.join(name), below));
        }
        Ok(())
    }
}

fn kind(file: &Path, found: &Metadata) -> io::Result<EntryKind<'static>> {
    let of = found.file_type();
    let device = (major(found.rdev()), minor(found.rdev()));
    Ok(match () {
        () if of.is_dir() => EntryKind::Directory,
        () if of.is_symlink() => {
            EntryKind::Symlink(fs::read_link(file)?.as_os_str().as_bytes().to_vec())
        }
        () if of.is_file() => EntryKind::Regular {
            bytes: found.len(),
            content: Box::new(File::open(file)?.take(found.len())),
        },
        () if of.is_char_device() => EntryKind::CharDevice(device.0, device.1),
        () if of.is_block_device() => EntryKind::BlockDevice(device.0, device.1),
        () if of.is_fifo() => EntryKind::Fifo,
        () => EntryKind::Socket,
    })
}

fn xattrs(file: &Path) -> io::Result<Vec<(Vec<u8>, Vec<u8>)>> {
    let mut names = vec![0; XATTR_BYTES_MAX];
    let len = match llistxattr(file, &mut names[..]) {
        Err(Errno::NOTSUP) => 0,
        len => len?,
    };
    let names = names[..len].split(|byte| *byte == 0);
    let mut found = Vec::new();
    for name in names.filter(|name| !name.is_empty()) {
        let mut value = vec![0; XATTR_BYTES_MAX];
        match lgetxattr(file, OsStr::from_bytes(name), &mut value[..]) {
            Ok(len) => {
                value.truncate(len);
                found.push((name.to_vec(), value));
            }
            Err(Errno::NODATA) => {} // listed for form's sake
            Err(e) => return Err(e.into()),
        }
    }
    Ok(found)
}
