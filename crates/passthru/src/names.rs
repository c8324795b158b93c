//! Names: looked up, given, changed and removed.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use anteros_core::{Attr, Caller, FileKind, FsError, FsResult, Ino};
use rustix::fs::{
    AtFlags, Mode, OFlags, RenameFlags, linkat, openat, readlinkat, renameat_with, statat, unlinkat,
};
use rustix::io::Errno;

use crate::attr;
use crate::host::{self, refused};
use crate::mirror::HostFs;
use crate::table::{Key, Node};

/// The longest name in bytes.
pub(crate) const NAME_MAX: usize = 255;

/// A name that means an entry of the directory it is used in, and cannot mean anything else.
pub(crate) fn checked(name: &[u8]) -> FsResult<&[u8]> {
    let is_entry = !matches!(name, b"" | b"." | b"..");
    if !is_entry || name.iter().any(|byte| matches!(byte, 0 | b'/')) {
        return Err(FsError::Invalid);
    }
    if name.len() > NAME_MAX {
        return Err(refused(Errno::NAMETOOLONG));
    }
    Ok(name)
}

pub(crate) fn lookup(fs: &HostFs, parent: Ino, name: &[u8]) -> FsResult<Attr> {
    let parent = fs.table.get(parent)?;
    let (_, attr) = look_up(fs, &parent, checked(name)?)?;
    Ok(attr)
}

/// Looks up what was listed, as long as there are descriptors enough: nobody has asked for it, and to wait
/// for one would be in the way of those who have inodes of this directory forgotten.
pub(crate) fn lookup_listed(fs: &HostFs, parent: Ino, name: &[u8]) -> Option<Attr> {
    if fs.table.is_crowded() {
        return None;
    }
    let parent = fs.table.get(parent).ok()?;
    let (_, attr) = find(fs, &parent, checked(name).ok()?, |open| open()).ok()?;
    Some(attr)
}

/// Finds a name that was [checked]; the node is known once more by that.
pub(crate) fn look_up(fs: &HostFs, parent: &Node, name: &[u8]) -> FsResult<(Arc<Node>, Attr)> {
    find(fs, parent, name, |open| fs.with_room(open))
}

/// Finds a name, with a descriptor that `get` gets.
fn find(
    fs: &HostFs,
    parent: &Node,
    name: &[u8],
    get: impl FnOnce(&dyn Fn() -> rustix::io::Result<OwnedFd>) -> rustix::io::Result<OwnedFd>,
) -> FsResult<(Arc<Node>, Attr)> {
    let not_found = |errno| match errno {
        Errno::NOENT => FsError::NotFound,
        errno => refused(errno),
    };
    let no_follow = AtFlags::SYMLINK_NOFOLLOW | AtFlags::NO_AUTOMOUNT;
    let stat = || statat(parent, name, no_follow);
    if let Some(node) = fs.table.meet(Key::of(&stat().map_err(not_found)?)) {
        // Before it was held, its number may have passed from the inode with this name to another.
        match stat() {
            Ok(stat) if Key::of(&stat) == node.key => {
                let attr = attr::from_stat(node.ino, &stat)?;
                return Ok((node, attr));
            }
            _ => fs.table.forget(node.ino, 1),
        }
    }
    // The name may mean something else by now, so what was opened says what it is.
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let fd = get(&|| openat(parent, name, flags, Mode::empty())).map_err(not_found)?;
    let stat = host::stat_of(fd.as_fd()).map_err(refused)?;
    let node = fs.table.add(fd, &stat)?;
    let attr = attr::from_stat(node.ino, &stat)?;
    Ok((node, attr))
}

pub(crate) fn readlink(fs: &HostFs, ino: Ino) -> FsResult<Vec<u8>> {
    let node = fs.table.get(ino)?;
    if node.kind != FileKind::Symlink {
        return Err(FsError::Invalid);
    }
    let target = readlinkat(&*node, c"", Vec::new()).map_err(refused)?;
    Ok(target.into_bytes())
}

pub(crate) fn link(fs: &HostFs, ino: Ino, parent: Ino, name: &[u8]) -> FsResult<Attr> {
    let node = fs.table.get(ino)?;
    let parent = fs.table.get(parent)?;
    let name = checked(name)?;
    // What an entry of `/proc/self/fd` leads to is linked as it is, a symbolic link included.
    linkat(
        fs.proc_fds.dir(),
        host::entry(node.as_fd()),
        &*parent,
        name,
        AtFlags::SYMLINK_FOLLOW,
    )
    .map_err(refused)?;
    let stat = host::stat_of(node.as_fd()).map_err(refused)?;
    // It is known already, and held: this counts once more.
    let node = fs.table.meet(node.key).ok_or(FsError::NotFound)?;
    attr::from_stat(node.ino, &stat)
}

pub(crate) fn unlink(fs: &HostFs, parent: Ino, name: &[u8]) -> FsResult<()> {
    let parent = fs.table.get(parent)?;
    unlinkat(&*parent, checked(name)?, AtFlags::empty()).map_err(refused)
}

pub(crate) fn rmdir(fs: &HostFs, parent: Ino, name: &[u8]) -> FsResult<()> {
    let parent = fs.table.get(parent)?;
    unlinkat(&*parent, checked(name)?, AtFlags::REMOVEDIR).map_err(refused)
}

pub(crate) fn rename(
    fs: &HostFs,
    (from_dir, from): (Ino, &[u8]),
    (to_dir, to): (Ino, &[u8]),
    flags: u32,
) -> FsResult<()> {
    let from_dir = fs.table.get(from_dir)?;
    let to_dir = fs.table.get(to_dir)?;
    renameat_with(
        &*from_dir,
        checked(from)?,
        &*to_dir,
        checked(to)?,
        RenameFlags::from_bits_retain(flags),
    )
    .map_err(refused)
}

/// Calls what removes or changes names in directories. In a sticky one that is for the owner of what has the name now, and the
/// kernel has only looked at what had it when it last asked: the host is to look itself. What is `made` besides is the caller's.
pub(crate) fn acting_on<const N: usize>(
    fs: &HostFs,
    dirs: [Ino; N],
    caller: Caller,
    made: bool,
    call: impl FnOnce() -> FsResult<()>,
) -> FsResult<()> {
    if caller.uid == 0 || !fs.identity.is_root() {
        return call();
    }
    let mut is_sticky = false;
    for dir in dirs {
        let mode = host::stat_of(fs.table.get(dir)?.as_fd())
            .map_err(refused)?
            .st_mode;
        is_sticky |= Mode::from_raw_mode(mode).contains(Mode::SVTX);
    }
    let _assumed = match (is_sticky, made) {
        (false, false) => None,
        (true, _) => Some(fs.identity.assume_on_names(caller).map_err(refused)?),
        (false, true) => Some(fs.identity.assume_wholly(caller).map_err(refused)?),
    };
    call()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_mean_no_entry_are_refused() {
        for name in [&b""[..], b".", b"..", b"a/b", b"/", b"a\0b"] {
            assert!(matches!(checked(name), Err(FsError::Invalid)), "{name:?}");
        }
        assert!(matches!(checked(&[b'a'; 256]), Err(FsError::Host(_))));
        for name in [&b"..."[..], b".a", &[b'a'; 255], b"\xff"] {
            assert!(checked(name).is_ok(), "{name:?}");
        }
    }
}
