//! The tree as members make it, in whatever order they come, and its way to a [`Tree`].
//!
//! Members do what extracting them one after the other does. The last one of a name wins: a directory
//! that is there already gets its properties, anything else takes the place of what was there, unless
//! that is a directory that is not empty. A hard link is a further name of the inode that its target
//! is at that moment. Parents that no member names are made.
//!
//! A whiteout of AUFS is about the layers below: an entry of its name in the same archive stays, and if
//! that is a directory, it is opaque.

use std::collections::BTreeMap;
use std::ops::Range;

use anteros_core::{FileKind, Rdev, Timestamp};
use anteros_format::dirent::NAME_BYTES_MAX;
use anteros_format::inode::{SYMLINK_BYTES_MAX, encode_rdev};
use anteros_format::xattr::split_name;

use super::acl::{self, Accounts};
use super::members::{Content, Kind, Member};
use super::whiteout::{self, Mark};
use super::{Fault, broken};
use crate::Options;
use crate::source::archive::Extent;
use crate::sparse::Allocation;
use crate::times::Times;
use crate::tree::{Entry, Fingerprint, Node, NodeId, Tree};
use crate::xattr::{Xattr, XattrTable};

/// The number of an inode of a draft.
type InodeId = u32;

const ROOT: InodeId = 0;
/// Permissions of directories that no member names.
const IMPLIED_PERM: u16 = 0o755;
/// Most bytes of all files together, 256 TiB: holes cost nothing in an archive, but tables of chunks in an image do.
const FILES_BYTES_MAX: u64 = 1 << 48;
/// File systems allocate blocks of so many bytes, which tells how much of a sparse file they would.
const HOST_BLOCK_BYTES: u64 = 4096;

/// An inode.
struct Inode {
    body: Body,
    perm: u16,
    uid: u32,
    gid: u32,
    mtime: Timestamp,
    xattrs: Range<u32>,
    /// Tells whether no member names it, but only what lies in it.
    is_implied: bool,
    /// Tells whether it is a directory that hides what lower layers have in it.
    is_opaque: bool,
}

enum Body {
    Directory(BTreeMap<Box<[u8]>, InodeId>),
    Regular {
        bytes: u64,
        allocation: Allocation,
        extents: Range<u32>,
    },
    Symlink(Box<[u8]>),
    Special(FileKind, u32),
}

/// The tree as far as members have made it.
pub(super) struct Draft<'a> {
    options: &'a Options,
    inodes: Vec<Inode>,
    extents: Vec<Extent>,
    xattrs: XattrTable,
    accounts: Accounts,
    /// Bytes of all regular files.
    bytes: u64,
    /// Things that people should know, to be told as warnings.
    pub warnings: Vec<String>,
}

/// A tree with the places of its content.
pub(super) struct Finished {
    pub tree: Tree,
    pub extents: Vec<Extent>,
    /// The extents of each node.
    pub nodes: Vec<Range<u32>>,
}

impl<'a> Draft<'a> {
    pub fn new(options: &'a Options) -> Result<Self, Fault> {
        let mut draft = Self {
            options,
            inodes: Vec::new(),
            extents: Vec::new(),
            xattrs: XattrTable::default(),
            accounts: Accounts::default(),
            bytes: 0,
            warnings: Vec::new(),
        };
        let root = draft.implied()?;
        draft.inodes.push(root);
        Ok(draft)
    }

    /// Does what extracting the member does.
    pub fn put(&mut self, member: Member) -> Result<(), Fault> {
        let path = components(&member.name)?;
        let Some((name, parents)) = path.split_last() else {
            return self.put_root(&member);
        };
        let parent = self.parent(parents)?;
        if let Some(mark) = Mark::of(name).filter(|_| self.options.aufs_whiteouts) {
            return self.mark(parent, &mark, &member);
        }
        let there = self.child(parent, name);
        if let Kind::HardLink(target) = &member.kind {
            let target = self.target(target)?;
            return match there {
                Some(there) if there == target => Ok(()),
                there => self.replace(parent, name, there, target),
            };
        }
        let mut inode = self.inode(&member)?;
        inode.is_opaque = self.options.aufs_whiteouts
            && inode.is_directory()
            && there.is_some_and(|there| self.inodes[there as usize].is_whiteout());
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
        let owner = (member.uid, member.gid);
        let (uid, gid) = self.options.owner_of(owner).map_err(Fault::Unstorable)?;
        let whiteout = self.add(Inode {
            body: Body::Special(FileKind::CharDevice, 0),
            perm: member.perm,
            uid,
            gid,
            mtime: self.options.time_of(member.mtime),
            xattrs: 0..0,
            is_implied: false,
            is_opaque: false,
        })?;
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
                Some(there) => {
                    let kind = self.inodes[there as usize].kind().name();
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

    fn child(&self, directory: InodeId, name: &[u8]) -> Option<InodeId> {
        match &self.inodes[directory as usize].body {
            Body::Directory(entries) => entries.get(name).copied(),
            _ => None,
        }
    }

    /// The inode that a hard link is to be a further name of.
    fn target(&self, target: &[u8]) -> Result<InodeId, Fault> {
        let path = components(target)?;
        let step = |at, name: &&[u8]| self.child(at, name);
        let found = path.iter().try_fold(ROOT, step);
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
        // One less than there are numbers, so that the counts of entries fit as well.
        if self.inodes.len() >= u32::MAX as usize {
            return broken("there are more than 2^32 - 1 members".into());
        }
        self.inodes.push(inode);
        Ok(self.inodes.len() as InodeId - 1)
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
        let owner = (member.uid, member.gid);
        let (uid, gid) = self.options.owner_of(owner).map_err(Fault::Unstorable)?;
        let body = match &member.kind {
            Kind::Directory => Body::Directory(BTreeMap::new()),
            Kind::Regular(content) => self.regular(content)?,
            Kind::Symlink(target) => symlink(target)?,
            Kind::CharDevice(major, minor) => device(FileKind::CharDevice, *major, *minor)?,
            Kind::BlockDevice(major, minor) => device(FileKind::BlockDevice, *major, *minor)?,
            Kind::Fifo => Body::Special(FileKind::Fifo, 0),
            Kind::HardLink(_) => unreachable!("it makes no inode"),
        };
        let is_symlink = matches!(body, Body::Symlink(_));
        Ok(Inode {
            xattrs: self.xattrs(member, matches!(body, Body::Directory(_)))?,
            body,
            // Links have no permissions of their own.
            perm: if is_symlink { 0o777 } else { member.perm },
            uid,
            gid,
            mtime: self.options.time_of(member.mtime),
            is_implied: false,
            is_opaque: false,
        })
    }

    fn regular(&mut self, content: &Content) -> Result<Body, Fault> {
        let sum = self.bytes.saturating_add(content.bytes);
        if sum > FILES_BYTES_MAX {
            return broken(format!(
                "all files together have {sum} bytes with their holes; {FILES_BYTES_MAX} are the most"
            ));
        }
        self.bytes = sum;
        let start = self.extents.len();
        let mut place = content.place;
        let mut allocated = 0u64;
        for part in &content.parts {
            self.extents.push(Extent {
                start: part.start,
                bytes: part.bytes,
                place,
            });
            place += part.bytes;
            let end = (part.start + part.bytes).next_multiple_of(HOST_BLOCK_BYTES);
            allocated += end - part.start / HOST_BLOCK_BYTES * HOST_BLOCK_BYTES;
        }
        let number = |count| {
            u32::try_from(count)
                .map_err(|_| Fault::Broken("all files together have more than 2^32 parts".into()))
        };
        Ok(Body::Regular {
            bytes: content.bytes,
            allocation: Allocation::of(content.bytes, allocated),
            extents: number(start)?..number(self.extents.len())?,
        })
    }

    fn xattrs(&mut self, member: &Member, is_directory: bool) -> Result<Range<u32>, Fault> {
        if self.options.xattr_share_above.is_none() {
            return Ok(0..0);
        }
        let records = &member.records;
        let mut kept: BTreeMap<&[u8], &[u8]> = BTreeMap::new();
        for (name, value) in &records.xattrs {
            match split_name(name) {
                Some((_, rest)) if !rest.is_empty() || name.starts_with(b"system.") => {
                    kept.insert(name, value);
                }
                _ => self.warnings.push(format!(
                    "the attribute {} cannot be stored",
                    name.escape_ascii()
                )),
            }
        }
        let encode = |text: &Vec<u8>| acl::encode(text, &self.accounts).map_err(Fault::Broken);
        let access = records.acl.as_ref().map(encode).transpose()?;
        let default = records.default_acl.as_ref().map(encode).transpose()?;
        if let Some(value) = access.as_ref().filter(|value| !acl::is_mode(value)) {
            kept.insert(acl::ACCESS, value);
        }
        if let Some(value) = default.as_ref().filter(|_| is_directory) {
            kept.insert(acl::DEFAULT, value);
        }
        let xattrs = kept.iter().map(|(name, value)| Xattr::new(name, value));
        let xattrs = xattrs
            .collect::<Result<_, _>>()
            .map_err(Fault::Unstorable)?;
        Ok(self.xattrs.add(xattrs))
    }

    /// The tree, numbered as that of a directory is. `fingerprint` is that of its content.
    pub fn finish(self, fingerprint: Fingerprint) -> Finished {
        let mut walk = Walk {
            nodes_of: vec![None; self.inodes.len()],
            tree: Tree::default(),
            inodes: Vec::new(),
            fingerprint,
            draft: &self,
        };
        walk.add(ROOT, 0, b"");
        let mut directories = vec![0];
        while let Some(directory) = directories.pop() {
            let subdirectories = walk.directory(directory);
            directories.extend(subdirectories.into_iter().rev());
        }
        walk.time_implied();
        let extents = |inode: &InodeId| match &self.inodes[*inode as usize].body {
            Body::Regular { extents, .. } => extents.clone(),
            _ => 0..0,
        };
        let nodes = walk.inodes.iter().map(extents).collect();
        Finished {
            tree: walk.tree,
            nodes,
            extents: self.extents,
        }
    }
}

impl Inode {
    const fn is_directory(&self) -> bool {
        matches!(self.body, Body::Directory(_))
    }

    const fn is_whiteout(&self) -> bool {
        match self.body {
            Body::Special(kind, rdev) => whiteout::is_whiteout(kind, rdev),
            _ => false,
        }
    }

    const fn kind(&self) -> FileKind {
        match self.body {
            Body::Directory(_) => FileKind::Directory,
            Body::Regular { .. } => FileKind::Regular,
            Body::Symlink(_) => FileKind::Symlink,
            Body::Special(kind, _) => kind,
        }
    }
}

/// The way through a finished draft.
struct Walk<'a> {
    draft: &'a Draft<'a>,
    fingerprint: Fingerprint,
    tree: Tree,
    /// The node of each inode that has one, unless each name is a node of its own.
    nodes_of: Vec<Option<NodeId>>,
    /// The inode of each node.
    inodes: Vec<InodeId>,
}

impl Walk<'_> {
    /// Adds the children of a directory; answers which of them are directories.
    fn directory(&mut self, id: NodeId) -> Vec<NodeId> {
        let inode = self.inodes[id as usize];
        let Body::Directory(entries) = &self.draft.inodes[inode as usize].body else {
            unreachable!("only directories are entered");
        };
        let options = self.draft.options;
        let path = match options.exclude.is_empty() {
            true => Vec::new(),
            false => self.tree.path(id),
        };
        let start = self.tree.entries.len() as u32;
        let mut subdirectories = Vec::new();
        for (name, &inode) in entries {
            if options.is_excluded(&path, name) || self.is_hidden(inode, name) {
                continue;
            }
            let node = self.entry(inode, id, name);
            if self.tree.node(node).kind == FileKind::Directory {
                subdirectories.push(node);
            }
        }
        let end = self.tree.entries.len() as u32;
        let node = &mut self.tree.nodes[id as usize];
        node.entries = start..end;
        node.nlink = 2 + subdirectories.len() as u32;
        subdirectories
    }

    /// Returns whether an entry serves layers alone.
    fn is_hidden(&self, inode: InodeId, name: &[u8]) -> bool {
        let options = self.draft.options;
        options.aufs_whiteouts && whiteout::is_own(name)
            || options.strip_overlay && self.draft.inodes[inode as usize].is_whiteout()
    }

    fn entry(&mut self, inode: InodeId, parent: NodeId, name: &[u8]) -> NodeId {
        let known = self.nodes_of[inode as usize].filter(|_| !self.draft.options.hard_dereference);
        let node = match known {
            Some(node) => {
                self.tree.nodes[node as usize].nlink += 1;
                node
            }
            None => self.add(inode, parent, name),
        };
        let name = match known {
            Some(_) => self.tree.intern(name),
            None => self.tree.node(node).name,
        };
        self.tree.entries.push(Entry { name, node });
        node
    }

    fn add(&mut self, inode_id: InodeId, parent: NodeId, name: &[u8]) -> NodeId {
        let inode = &self.draft.inodes[inode_id as usize];
        let id = self.tree.nodes.len() as NodeId;
        let (size, allocation) = match &inode.body {
            Body::Regular {
                bytes, allocation, ..
            } => (*bytes, *allocation),
            Body::Symlink(target) => (target.len() as u64, Allocation::Whole),
            _ => (0, Allocation::Whole),
        };
        let (rdev, target) = match &inode.body {
            Body::Special(_, rdev) => (*rdev, &b""[..]),
            Body::Symlink(target) => (0, &target[..]),
            _ => (0, &b""[..]),
        };
        let xattrs = self.xattrs(inode);
        let node = Node {
            kind: inode.kind(),
            perm: inode.perm,
            uid: inode.uid,
            gid: inode.gid,
            nlink: 1,
            size,
            allocation,
            mtime: inode.mtime,
            rdev,
            parent,
            name: self.tree.intern(name),
            xattrs,
            fingerprint: self.fingerprint,
            entries: 0..0,
            target: self.tree.intern(target),
        };
        self.tree.nodes.push(node);
        self.inodes.push(inode_id);
        self.nodes_of[inode_id as usize] = Some(id);
        id
    }

    fn xattrs(&mut self, inode: &Inode) -> Range<u32> {
        let options = self.draft.options;
        let found = self.draft.xattrs.of(&inode.xattrs);
        let is_kept = |xattr: &&Xattr| match xattr.name() {
            whiteout::OPAQUE if inode.is_opaque => false,
            name => !(options.strip_overlay && whiteout::is_overlay(name)),
        };
        let mut kept: Vec<_> = found.filter(is_kept).cloned().collect();
        if inode.is_opaque && options.xattr_share_above.is_some() && !options.strip_overlay {
            let opaque = Xattr::new(whiteout::OPAQUE, whiteout::IS_OPAQUE);
            kept.push(opaque.expect("it is short"));
        }
        self.tree.xattrs.add(kept)
    }

    /// Gives directories that no member names the time of the image.
    fn time_implied(&mut self) {
        let draft = self.draft;
        let is_implied = |inode: InodeId| draft.inodes[inode as usize].is_implied;
        let named = (self.inodes.iter().zip(&self.tree.nodes))
            .filter(|(inode, _)| !is_implied(**inode))
            .map(|(_, node)| node.mtime);
        let image = Times::new(named, draft.options).image;
        for (inode, node) in self.inodes.iter().zip(&mut self.tree.nodes) {
            if is_implied(*inode) {
                node.mtime = image;
            }
        }
    }
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

fn symlink(target: &[u8]) -> Result<Body, Fault> {
    match target.len() as u64 {
        1..=SYMLINK_BYTES_MAX => Ok(Body::Symlink(target.into())),
        len => Err(Fault::Unstorable(format!(
            "a target of {len} bytes; 1 to {SYMLINK_BYTES_MAX} are possible"
        ))),
    }
}

fn device(kind: FileKind, major: u32, minor: u32) -> Result<Body, Fault> {
    match encode_rdev(Rdev { major, minor }) {
        Some(rdev) => Ok(Body::Special(kind, rdev)),
        None => Err(Fault::Unstorable(format!(
            "device {major}:{minor}; 4095:1048575 is the last"
        ))),
    }
}
