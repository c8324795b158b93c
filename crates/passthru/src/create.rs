//! New inodes.

use std::os::fd::AsFd;

use anteros_core::{Attr, FileKind, FsError, FsResult, New, Rdev};
use rustix::fs::{FileType, Mode, OFlags, makedev, mkdirat, mknodat, openat, symlinkat};
use rustix::io::{Errno, retry_on_intr};

use crate::file::HostFile;
use crate::host::{self, refused};
use crate::mirror::HostFs;
use crate::names::{checked, look_up};
use crate::open::kept_flags;
use crate::table::Node;
use crate::{attr, xattr};

/// States how often a name may come and go under our hands before the last error is the answer.
const RACES_MAX: u32 = 8;

pub(crate) fn create(fs: &HostFs, new: &New<'_>, flags: u32) -> FsResult<(Attr, HostFile)> {
    let parent = fs.table.get(new.parent)?;
    let name = checked(new.name)?;
    let may_exist = !OFlags::from_bits_retain(flags).contains(OFlags::EXCL);
    let mut races = 0;
    loop {
        match create_exclusive(fs, &parent, name, new, flags) {
            Err(Errno::EXIST) if may_exist => {}
            result => return known(fs, result.map_err(refused)?),
        }
        // Whatever is there is opened by the same way as any other: by its inode.
        match open_existing(fs, &parent, name, flags) {
            Err(FsError::NotFound) if races < RACES_MAX => races += 1,
            result => return result,
        }
    }
}

fn create_exclusive(
    fs: &HostFs,
    parent: &Node,
    name: &[u8],
    new: &New<'_>,
    flags: u32,
) -> rustix::io::Result<HostFile> {
    let flags = kept_flags(flags) | OFlags::CREATE | OFlags::EXCL;
    let mode = masked(parent, new);
    let open = || openat(parent, name, flags | OFlags::CLOEXEC, mode);
    let fd = fs.with_room(|| act_as(fs, new, open))?;
    Ok(HostFile::new(fd, flags))
}

fn open_existing(
    fs: &HostFs,
    parent: &Node,
    name: &[u8],
    flags: u32,
) -> FsResult<(Attr, HostFile)> {
    let (node, _) = look_up(fs, parent, name)?;
    let opened =
        crate::open::open_node(fs, &node, flags).and_then(|file| Ok((attr::of(&node)?, file)));
    if opened.is_err() {
        fs.table.forget(node.ino, 1);
    }
    opened
}

/// Creates a file without a name, as `O_TMPFILE` does; with `O_EXCL`, it never gets one.
pub(crate) fn create_unnamed(fs: &HostFs, new: &New<'_>, flags: u32) -> FsResult<(Attr, HostFile)> {
    let parent = fs.table.get(new.parent)?;
    let never_named = OFlags::from_bits_retain(flags) & OFlags::EXCL;
    let flags = kept_flags(flags) | OFlags::TMPFILE | never_named;
    let mode = masked(&parent, new);
    let open = || openat(&*parent, c".", flags | OFlags::CLOEXEC, mode);
    let fd = fs.with_room(|| act_as(fs, new, open)).map_err(refused)?;
    known(fs, HostFile::new(fd, flags))
}

/// Enters a file that was just opened into the table.
fn known(fs: &HostFs, file: HostFile) -> FsResult<(Attr, HostFile)> {
    let held = fs.with_room(|| fs.proc_fds.reopen(file.fd(), OFlags::PATH));
    let held = held.map_err(refused)?;
    let stat = host::stat_of(held.as_fd()).map_err(refused)?;
    let node = fs.table.add(held, &stat)?;
    Ok((attr::from_stat(node.ino, &stat)?, file))
}

pub(crate) fn make(fs: &HostFs, new: &New<'_>, rdev: Rdev) -> FsResult<Attr> {
    let parent = fs.table.get(new.parent)?;
    let name = checked(new.name)?;
    let mode = masked(&parent, new);
    let file_type = match new.mode & 0o170_000 {
        // As for `mknod`.
        0 => FileType::RegularFile,
        bits => match FileKind::from_mode(bits) {
            Some(FileKind::Symlink) | None => return Err(FsError::Invalid),
            Some(_) => FileType::from_raw_mode(bits),
        },
    };
    act_as(fs, new, || match file_type {
        FileType::Directory => mkdirat(&*parent, name, mode),
        _ => {
            let device = makedev(rdev.major, rdev.minor);
            mknodat(&*parent, name, file_type, mode, device)
        }
    })
    .map_err(refused)?;
    let (_, attr) = look_up(fs, &parent, name)?;
    Ok(attr)
}

pub(crate) fn symlink(fs: &HostFs, new: &New<'_>, target: &[u8]) -> FsResult<Attr> {
    let parent = fs.table.get(new.parent)?;
    let name = checked(new.name)?;
    act_as(fs, new, || symlinkat(target, &*parent, name)).map_err(refused)?;
    let (_, attr) = look_up(fs, &parent, name)?;
    Ok(attr)
}

/// Makes one call as the one who asked.
fn act_as<T>(
    fs: &HostFs,
    new: &New<'_>,
    call: impl Fn() -> rustix::io::Result<T>,
) -> rustix::io::Result<T> {
    let _assumed = fs.identity.assume(new.caller)?;
    retry_on_intr(call)
}

/// The permission bits to make something with. The process has no `umask`, so what goes is taken off
/// here, unless the directory has a default ACL, which the host applies in its place.
fn masked(parent: &Node, new: &New<'_>) -> Mode {
    let perm = new.mode & 0o7777;
    let masked = perm & !(new.umask & 0o777);
    let has_default_acl = masked != perm && xattr::has_default_acl(parent);
    Mode::from_raw_mode(if has_default_acl { perm } else { masked })
}
