//! POSIX access control lists: what a new inode inherits, and how a list and the mode follow each other.
//!
//! A list is stored as the kernel passes it: a version (u32, 2), then entries of a tag (u16), permissions (u16) and
//! an id (u32), in the order of the tags.

use anteros_core::{FileKind, FsError, FsResult, New};
use rustix::io::Errno;

use crate::files::Files;

/// The list that decides about access.
pub(crate) const ACCESS: &[u8] = b"system.posix_acl_access";
/// Of a directory: the list that what is made in it inherits.
pub(crate) const DEFAULT: &[u8] = b"system.posix_acl_default";

const VERSION: u32 = 2;
const USER_OBJ: u16 = 0x01;
const USER: u16 = 0x02;
const GROUP_OBJ: u16 = 0x04;
const GROUP: u16 = 0x08;
const MASK: u16 = 0x10;
const OTHER: u16 = 0x20;

/// This attribute cannot be had for this inode. (`FsError::Unsupported` would say: none for any.)
pub(crate) fn not_here() -> FsError {
    FsError::Host(Errno::OPNOTSUPP.into())
}

/// An entry of a list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Entry {
    tag: u16,
    perm: u16,
    id: u32,
}

/// A list that keeps the rules: one entry for the owner, the group and the others, sorted, and a mask if it names
/// anyone.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Acl(Vec<Entry>);

impl Acl {
    fn parse(bytes: &[u8]) -> FsResult<Self> {
        let (version, rest) = bytes.split_first_chunk::<4>().ok_or(FsError::Invalid)?;
        if u32::from_le_bytes(*version) != VERSION || rest.len() % 8 != 0 {
            return Err(FsError::Invalid);
        }
        let half = |bytes: &[u8]| u16::from_le_bytes([bytes[0], bytes[1]]);
        let entries = rest.chunks_exact(8).map(|raw| Entry {
            tag: half(raw),
            perm: half(&raw[2..]),
            id: u32::from_le_bytes([raw[4], raw[5], raw[6], raw[7]]),
        });
        let acl = Self(entries.collect());
        if acl.is_valid() {
            Ok(acl)
        } else {
            Err(FsError::Invalid)
        }
    }

    fn is_valid(&self) -> bool {
        let count = |tag| self.0.iter().filter(|entry| entry.tag == tag).count();
        let names_someone = count(USER) + count(GROUP) > 0;
        let known = [USER_OBJ, USER, GROUP_OBJ, GROUP, MASK, OTHER];
        self.0
            .iter()
            .all(|entry| known.contains(&entry.tag) && entry.perm <= 7)
            && self.0.is_sorted_by_key(|entry| entry.tag)
            && [USER_OBJ, GROUP_OBJ, OTHER]
                .iter()
                .all(|&tag| count(tag) == 1)
            && count(MASK) <= 1
            && (!names_someone || count(MASK) == 1)
    }

    fn encode(&self) -> Vec<u8> {
        let mut bytes = VERSION.to_le_bytes().to_vec();
        for entry in &self.0 {
            bytes.extend(entry.tag.to_le_bytes());
            bytes.extend(entry.perm.to_le_bytes());
            bytes.extend(entry.id.to_le_bytes());
        }
        bytes
    }

    fn entry(&mut self, tag: u16) -> Option<&mut Entry> {
        self.0.iter_mut().find(|entry| entry.tag == tag)
    }

    /// The entry that the group's bits of the mode stand for.
    fn group_class(&mut self) -> Option<&mut Entry> {
        let tag = if self.entry(MASK).is_some() {
            MASK
        } else {
            GROUP_OBJ
        };
        self.entry(tag)
    }

    /// The permission bits that say the same, as far as they can.
    fn mode(&mut self) -> u16 {
        let owner = self.entry(USER_OBJ).map_or(0, |entry| entry.perm);
        let group = self.group_class().map_or(0, |entry| entry.perm);
        let other = self.entry(OTHER).map_or(0, |entry| entry.perm);
        owner << 6 | group << 3 | other
    }

    /// Returns whether the permission bits say all of it.
    fn is_mode_alone(&self) -> bool {
        self.0.len() == 3
    }

    /// Has the list say what the permission bits say.
    fn set_mode(&mut self, mode: u16) {
        for (entry, shift) in [(USER_OBJ, 6), (OTHER, 0)] {
            if let Some(entry) = self.entry(entry) {
                entry.perm = mode >> shift & 7;
            }
        }
        if let Some(entry) = self.group_class() {
            entry.perm = mode >> 3 & 7;
        }
    }

    /// Takes away what the permission bits do not allow.
    fn restrict(&mut self, mode: u16) {
        let allowed = self.mode() & mode;
        self.set_mode(allowed);
    }
}

/// Holds what a new inode gets from the directory that it is made in.
pub(crate) struct Inherited {
    pub(crate) perm: u16,
    pub(crate) xattrs: Vec<(&'static [u8], Vec<u8>)>,
}

/// Returns what is made as `new` inherits from the directory `parent`.
pub(crate) fn inherit(
    files: &mut Files,
    parent: u32,
    new: &New<'_>,
    kind: FileKind,
) -> FsResult<Inherited> {
    let asked = (new.mode & 0o7777) as u16;
    let default = if kind == FileKind::Symlink {
        None
    } else {
        list(files, parent, DEFAULT)?
    };
    let Some(mut acl) = default else {
        return Ok(Inherited {
            perm: asked & !(new.umask as u16 & 0o777),
            xattrs: Vec::new(),
        });
    };
    let mut xattrs = Vec::new();
    if kind == FileKind::Directory {
        xattrs.push((DEFAULT, acl.encode()));
    }
    acl.restrict(asked);
    if !acl.is_mode_alone() {
        xattrs.push((ACCESS, acl.encode()));
    }
    Ok(Inherited {
        perm: asked & !0o777 | acl.mode(),
        xattrs,
    })
}

fn list(files: &mut Files, ino: u32, name: &[u8]) -> FsResult<Option<Acl>> {
    match files.xattr(ino, name) {
        Ok(bytes) => Acl::parse(&bytes).map(Some),
        Err(FsError::NoData) => Ok(None),
        Err(error) => Err(error),
    }
}

/// The mode of an inode was set: its list says the same from here on.
pub(crate) fn follow_mode(files: &mut Files, ino: u32, perm: u16) -> FsResult<()> {
    if let Some(mut acl) = list(files, ino, ACCESS)? {
        acl.set_mode(perm & 0o777);
        files.set_xattr(ino, ACCESS, &acl.encode())?;
    }
    Ok(())
}

/// Sets an attribute that is a list, and the mode with it, in which the bits of `lost` go; `false` for any other attribute,
/// which is left alone. Where there is no room for the list, the mode stays as it is.
pub(crate) fn set(
    files: &mut Files,
    ino: u32,
    name: &[u8],
    value: &[u8],
    lost: u16,
) -> FsResult<bool> {
    if name != ACCESS && name != DEFAULT {
        return Ok(false);
    }
    let kind = files.live(ino)?.kind();
    if kind == FileKind::Symlink || name == DEFAULT && kind != FileKind::Directory {
        return Err(not_here());
    }
    let mut acl = Acl::parse(value)?;
    if name == DEFAULT || !acl.is_mode_alone() {
        files.set_xattr(ino, name, value)?;
    } else if files.xattrs(ino)?.get(ACCESS).is_some() {
        files.remove_xattr(ino, ACCESS)?;
    }
    if name == ACCESS {
        let (mode, now) = (acl.mode(), files.store.now());
        let attributes = files.live(ino)?.attributes();
        attributes.perm = attributes.perm & !0o777 & !lost | mode;
        attributes.ctime = now;
        files.unrecorded.touch(ino);
    }
    Ok(true)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn acl(entries: &[(u16, u16, u32)]) -> Acl {
        Acl(entries
            .iter()
            .map(|&(tag, perm, id)| Entry { tag, perm, id })
            .collect())
    }

    #[test]
    fn a_list_comes_back_and_broken_ones_are_refused() {
        let full = acl(&[
            (USER_OBJ, 7, u32::MAX),
            (USER, 5, 1000),
            (GROUP_OBJ, 5, u32::MAX),
            (MASK, 7, u32::MAX),
            (OTHER, 0, u32::MAX),
        ]);
        assert_eq!(Acl::parse(&full.encode()).unwrap(), full);
        let broken = [
            acl(&[]),
            acl(&[(USER_OBJ, 7, 0), (GROUP_OBJ, 5, 0)]),
            acl(&[
                (USER_OBJ, 7, 0),
                (USER, 5, 1000),
                (GROUP_OBJ, 5, 0),
                (OTHER, 0, 0),
            ]),
            acl(&[(GROUP_OBJ, 5, 0), (USER_OBJ, 7, 0), (OTHER, 0, 0)]),
            acl(&[(USER_OBJ, 8, 0), (GROUP_OBJ, 5, 0), (OTHER, 0, 0)]),
        ];
        for list in broken {
            assert!(Acl::parse(&list.encode()).is_err(), "{list:?}");
        }
        for bytes in [&b""[..], b"\x02\0\0\0\0", b"\x03\0\0\0"] {
            assert!(Acl::parse(bytes).is_err());
        }
    }

    #[test]
    fn the_mode_speaks_for_the_mask() {
        let mut list = acl(&[
            (USER_OBJ, 7, 0),
            (USER, 7, 1000),
            (GROUP_OBJ, 7, 0),
            (MASK, 6, 0),
            (OTHER, 4, 0),
        ]);
        assert_eq!(list.mode(), 0o764);
        list.restrict(0o640);
        assert_eq!(list.mode(), 0o640);
        list.set_mode(0o751);
        assert_eq!(list.mode(), 0o751);
        assert_eq!(list.entry(GROUP_OBJ).unwrap().perm, 7);
    }
}
