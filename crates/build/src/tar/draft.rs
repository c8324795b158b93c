//! The tree as members make it, in whatever order they come.
//!
//! Members do what extracting them one after the other does. The last one of a name wins: a directory
//! that is there already gets its properties, anything else takes the place of what was there, unless
//! that is a directory that is not empty. A hard link is a further name of the inode that its target
//! is at that moment. Parents that no member names are made.
//!
//! With layers below, a hard link whose target is not there stands for a file of one of them.
//!
//! A whiteout of AUFS is about the layers below: an entry of its name in the same archive stays, and if
//! that is a directory, it is opaque.

use std::collections::BTreeMap;
use std::ops::Range;

use anteros_core::{FileKind, Timestamp};
use anteros_format::dirent::NAME_BYTES_MAX;

use super::acl::Accounts;
use super::attributes;
use super::fault::{Fault, broken};
use super::inode::{Body, Inode, InodeId, ROOT};
use super::members::{Content, Kind, Member, Numbered};
use super::whiteout::Mark;
use crate::Options;
use crate::source::Link;
use crate::source::archive::Extent;
use crate::sparse::Allocation;
use crate::xattr::XattrTable;

/// Permissions of directories that no member names.
const IMPLIED_PERM: u16 = 0o755;
/// Most bytes of all files together, 256 TiB: holes cost nothing in an archive, but tables of chunks in an image do.
pub(crate) const FILES_BYTES_MAX: u64 = 1 << 48;
/// File systems allocate blocks of so many bytes, which tells how much of a sparse file they would.
const HOST_BLOCK_BYTES: u64 = 4096;

/// The tree as far as members have made it.
pub(crate) struct Draft<'a> {
    pub options: &'a Options,
    /// Tells whether layers lie below the archive.
    has_lower: bool,
    pub inodes: Vec<Inode>,
    pub extents: Vec<Extent>,
    pub xattrs: XattrTable,
    accounts: Accounts,
    /// Bytes of all regular files.
    bytes: u64,
    members: u64,
    /// Things that people should know, to be told as warnings.
    pub warnings: Vec<String>,
}

impl<'a> Draft<'a> {
    pub fn new(options: &'a Options, has_lower: bool) -> Result<Self, Fault> {
        let mut draft = Self {
            options,
            has_lower,
            inodes: Vec::new(),
            extents: Vec::new(),
            xattrs: XattrTable::default(),
            accounts: Accounts::default(),
            bytes: 0,
            members: 0,
            warnings: Vec::new(),
        };
        let root = draft.implied()?;
        draft.inodes.push(root);
        Ok(draft)
    }

    /// Does what extracting the member does.
    pub fn put(&mut self, member: Member) -> Result<(), Fault> {
        // No more names than can be counted: one of each member, and those of directories that none names.
        self.members += 1;
        if self.members + self.inodes.len() as u64 >= u32::MAX.into() {
            return Err(too_many("members"));
        }
        let path = components(&member.name)?;
        let Some((name, parents)) = path.split_last() else {
            return self.put_root(&member);
        };
        let parent = self.parent(parents)?;
        if let Some(mark) = Mark::of(name).filter(|_| self.options.aufs_whiteouts) {
            return self.mark(parent, &mark, &member);
        }
        let there = self.child(parent, name);
        if let Kind::HardLink(target) | Kind::Refilled(target, _) = &member.kind {
            let target = self.target(target, &member)?;
            if let Kind::Refilled(_, content) = &member.kind {
                self.refill(target, content)?;
            }
            return match there {
                Some(there) if there == target => Ok(()),
                there => self.replace(parent, name, there, target),
            };
        }
        let mut inode = self.inode(&member)?;
        inode.is_opaque = inode.is_directory() && there.is_some_and(|there| self.is_mark(there));
        match there {
            Some(there) if inode.is_directory() && self.inodes[there as usize].is_directory() => {
                self.update(there, inode);
                Ok(())
            }
            there => {
                let new = self.add(inode)?;
                self.replace(parent, name, there, new)
            }
        }
    }

    /// Returns whether something at a path was told of.
    pub fn is_told(&self, path: &[u8]) -> bool {
        self.find(path)
            .is_some_and(|there| !self.inodes[there as usize].is_implied)
    }

    fn find(&self, path: &[u8]) -> Option<InodeId> {
        let mut names = path.split(|byte| *byte == b'/');
        names.try_fold(ROOT, |at, name| match name {
            b"" => Some(at),
            _ => self.child(at, name),
        })
    }

    /// Takes a mark of AUFS into a directory.
    fn mark(&mut self, directory: InodeId, mark: &Mark<'_>, member: &Member) -> Result<(), Fault> {
        let name = match mark {
            Mark::Opaque => {
                self.inodes[directory as usize].is_opaque = true;
                return Ok(());
            }
            Mark::Gone(name) => name,
        };
        if let Some(there) = self.child(directory, name) {
            let there = &mut self.inodes[there as usize];
            there.is_opaque = there.is_directory();
            return Ok(());
        }
        let mut whiteout = self.made(member, Body::Special(FileKind::CharDevice, 0), 0..0)?;
        whiteout.perm = 0; // as overlayfs makes them
        let whiteout = self.add(whiteout)?;
        self.insert(directory, name, whiteout);
        Ok(())
    }

    fn put_root(&mut self, member: &Member) -> Result<(), Fault> {
        if !matches!(member.kind, Kind::Directory) {
            return broken("only a directory can be the root".into());
        }
        let inode = self.inode(member)?;
        self.update(ROOT, inode);
        Ok(())
    }

    /// Gives a directory the properties of another.
    fn update(&mut self, directory: InodeId, properties: Inode) {
        let there = &mut self.inodes[directory as usize];
        let body = std::mem::replace(&mut there.body, Body::Directory(BTreeMap::new()));
        *there = Inode {
            body,
            is_opaque: there.is_opaque || properties.is_opaque,
            ..properties
        };
    }

    /// The directory at a path, made as far as it is not there.
    fn parent(&mut self, path: &[&[u8]]) -> Result<InodeId, Fault> {
        let mut at = ROOT;
        for name in path {
            at = match self.child(at, name) {
                Some(there) if self.inodes[there as usize].is_directory() => there,
                Some(there) if self.is_mark(there) => {
                    let new = self.implied()?;
                    let new = self.add(Inode {
                        is_opaque: true,
                        ..new
                    })?;
                    self.insert(at, name, new);
                    new
                }
                Some(there) => {
                    let kind = self.inodes[there as usize].body.kind().name();
                    let name = name.escape_ascii();
                    return broken(format!("it lies in `{name}`, which is a {kind}"));
                }
                None => {
                    let inode = self.implied()?;
                    let new = self.add(inode)?;
                    self.insert(at, name, new);
                    new
                }
            };
        }
        Ok(at)
    }

    /// Returns whether an inode says that a name is gone below.
    fn is_mark(&self, inode: InodeId) -> bool {
        self.options.aufs_whiteouts && self.inodes[inode as usize].is_whiteout()
    }

    fn child(&self, directory: InodeId, name: &[u8]) -> Option<InodeId> {
        match &self.inodes[directory as usize].body {
            Body::Directory(entries) => entries.get(name).copied(),
            _ => None,
        }
    }

    /// The inode that a hard link is to be a further name of.
    fn target(&mut self, target: &[u8], link: &Member) -> Result<InodeId, Fault> {
        let path = components(target)?;
        let step = |at, name: &&[u8]| self.child(at, name);
        let found = path.iter().try_fold(ROOT, step);
        if found.is_none() && self.has_lower {
            let target = path.join(&b'/').into();
            let offset = link.offset;
            let body = Body::Below(Link { target, offset });
            let below = self.made(link, body, 0..0)?;
            return self.add(below);
        }
        let target = target.escape_ascii();
        match found {
            None => broken(format!(
                "it is a hard link to `{target}`, which no member before it is"
            )),
            Some(found) if self.inodes[found as usize].is_directory() => {
                broken(format!("it is a hard link to `{target}`, a directory"))
            }
            Some(found) => Ok(found),
        }
    }

    /// Gives a name to an inode, and takes it from the one that has it.
    fn replace(
        &mut self,
        parent: InodeId,
        name: &[u8],
        there: Option<InodeId>,
        new: InodeId,
    ) -> Result<(), Fault> {
        let there = there.map(|there| &self.inodes[there as usize].body);
        if matches!(there, Some(Body::Directory(entries)) if !entries.is_empty()) {
            return broken("it would take the place of a directory that is not empty".into());
        }
        self.insert(parent, name, new);
        Ok(())
    }

    fn insert(&mut self, directory: InodeId, name: &[u8], inode: InodeId) {
        if let Body::Directory(entries) = &mut self.inodes[directory as usize].body {
            entries.insert(name.into(), inode);
        }
    }

    fn add(&mut self, inode: Inode) -> Result<InodeId, Fault> {
        let id = InodeId::try_from(self.inodes.len()).map_err(|_| too_many("members"))?;
        self.inodes.push(inode);
        Ok(id)
    }

    /// A directory that no member names; it gets its time when all others are known.
    fn implied(&self) -> Result<Inode, Fault> {
        let (uid, gid) = self.options.owner_of((0, 0)).map_err(Fault::Unstorable)?;
        Ok(Inode {
            body: Body::Directory(BTreeMap::new()),
            perm: IMPLIED_PERM,
            uid,
            gid,
            mtime: Timestamp::default(),
            xattrs: 0..0,
            is_implied: true,
            is_opaque: false,
        })
    }

    /// The inode that a member which is no hard link makes.
    fn inode(&mut self, member: &Member) -> Result<Inode, Fault> {
        let body = match &member.kind {
            Kind::Directory => Body::Directory(BTreeMap::new()),
            Kind::Regular(content) => self.regular(content)?,
            Kind::Numbered(content) => self.numbered(*content)?,
            Kind::Symlink(target) => Body::symlink(target)?,
            Kind::CharDevice(major, minor) => Body::device(FileKind::CharDevice, *major, *minor)?,
            Kind::BlockDevice(major, minor) => Body::device(FileKind::BlockDevice, *major, *minor)?,
            Kind::Fifo => Body::Special(FileKind::Fifo, 0),
            Kind::Socket => Body::Special(FileKind::Socket, 0),
            Kind::HardLink(_) | Kind::Refilled(..) => unreachable!("it makes no inode"),
        };
        let mut xattrs = 0..0;
        if self.options.xattr_share_above.is_some() {
            let found = attributes::of(&member.records, body.kind(), &self.accounts)?;
            let skipped = found.skipped.iter().map(|name| name.escape_ascii());
            let warnings = skipped.map(|name| format!("the attribute {name} cannot be stored"));
            self.warnings.extend(warnings);
            xattrs = self.xattrs.add(found.kept);
        }
        self.made(member, body, xattrs)
    }

    /// Gives a regular file other content.
    fn refill(&mut self, inode: InodeId, content: &Content) -> Result<(), Fault> {
        let kind = self.inodes[inode as usize].body.kind();
        if !matches!(self.inodes[inode as usize].body, Body::Regular { .. }) {
            return broken(format!(
                "it has content, but is a further name of a {}",
                kind.name()
            ));
        }
        let body = self.regular(content)?;
        self.inodes[inode as usize].body = body;
        Ok(())
    }

    fn made(&self, member: &Member, body: Body, xattrs: Range<u32>) -> Result<Inode, Fault> {
        let owner = (member.uid, member.gid);
        let (uid, gid) = self.options.owner_of(owner).map_err(Fault::Unstorable)?;
        Ok(Inode {
            // Links have no permissions of their own.
            perm: match body {
                Body::Symlink(_) => 0o777,
                _ => member.perm,
            },
            body,
            uid,
            gid,
            mtime: self.options.time_of(member.mtime),
            xattrs,
            is_implied: false,
            is_opaque: false,
        })
    }

    fn count(&mut self, bytes: u64) -> Result<(), Fault> {
        let sum = self.bytes.saturating_add(bytes);
        if sum > FILES_BYTES_MAX {
            return broken(format!(
                "all files together have {sum} bytes with their holes; {FILES_BYTES_MAX} are the most"
            ));
        }
        self.bytes = sum;
        Ok(())
    }

    fn numbered(&mut self, content: Numbered) -> Result<Body, Fault> {
        self.count(content.bytes)?;
        Ok(Body::Regular {
            bytes: content.bytes,
            allocation: content.allocation,
            extents: content.number..content.number + 1,
        })
    }

    fn regular(&mut self, content: &Content) -> Result<Body, Fault> {
        self.count(content.bytes)?;
        let start = self.extents.len();
        let mut place = content.place;
        for part in &content.parts {
            self.extents.push(Extent {
                start: part.start,
                bytes: part.bytes,
                place,
            });
            place = place.behind(part.bytes);
        }
        let ranges = content.parts.iter();
        let allocated = allocated(ranges.map(|part| (part.start, part.start + part.bytes)));
        let number = |count| u32::try_from(count).map_err(|_| too_many("parts of files"));
        Ok(Body::Regular {
            bytes: content.bytes,
            allocation: Allocation::of(content.bytes, allocated),
            extents: number(start)?..number(self.extents.len())?,
        })
    }
}

/// Bytes that a file system would allocate for data in these ranges.
pub(crate) fn allocated(ranges: impl Iterator<Item = (u64, u64)>) -> u64 {
    ranges.fold(0, |sum, (start, end)| {
        let start = start / HOST_BLOCK_BYTES * HOST_BLOCK_BYTES;
        let end = end.next_multiple_of(HOST_BLOCK_BYTES);
        sum.saturating_add(end - start)
    })
}

fn too_many(what: &str) -> Fault {
    Fault::Broken(format!(
        "the archive has more {what} than 32 bits can count"
    ))
}

/// Splits a name into those of directories and its last; none for the root.
fn components(name: &[u8]) -> Result<Vec<&[u8]>, Fault> {
    let names = name.split(|byte| *byte == b'/');
    let names = names.filter(|name| !matches!(*name, b"" | b"."));
    let checked = names.map(|name| match name {
        b".." => broken("`..` in a name leads out of the archive".into()),
        _ if name.len() > NAME_BYTES_MAX => Err(Fault::Unstorable(format!(
            "a name of {} bytes; {NAME_BYTES_MAX} is the most",
            name.len()
        ))),
        _ => Ok(name),
    });
    match checked.collect::<Result<Vec<_>, _>>() {
        Ok(names) if names.is_empty() && name.is_empty() => broken("it has no name".into()),
        names => names,
    }
}
