//! From anything that answers as a file system, such as an image, to a [`Tree`].
//!
//! Its answers are hostile like the bytes of an archive: names are checked, and a directory that is met
//! a second time is refused, so that every tree ends.

use std::collections::{HashMap, HashSet};
use std::ops::{ControlFlow, Range};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use anteros_core::{Attr, FileKind, FileSystem, FsError, Ino};
use anteros_format::dirent::NAME_BYTES_MAX;
use anteros_format::inode::{SYMLINK_BYTES_MAX, encode_rdev};

use crate::options::join;
use crate::source::seam::{AnsweredFile, Answering};
use crate::source::{Gaps, Scanned, Source};
use crate::sparse::Allocation;
use crate::tar::attributes::has_place;
use crate::tar::draft::{FILES_BYTES_MAX, allocated};
use crate::tree::{Entry, Fingerprint, Node, NodeId, Tree};
use crate::xattr::Xattr;
use crate::{Error, Observer, Options};

/// Scans a file system. `path` stands for it in messages.
pub(crate) fn scan(
    fs: Arc<dyn FileSystem>,
    path: PathBuf,
    options: &Options,
    observer: &dyn Observer,
    cancel: &AtomicBool,
) -> Result<Scanned, Error> {
    let mut scan = Scan {
        fs: &*fs,
        source: &path,
        options,
        observer,
        cancel,
        warnings: 0,
        bytes: 0,
        linked: HashMap::new(),
        entered: HashSet::new(),
        inodes: Vec::new(),
        tree: Tree::default(),
    };
    let root = fs.root();
    scan.add(root, 0, b"", b"")?;
    if scan.tree.node(0).kind != FileKind::Directory {
        return Err(scan.unstorable(b"", "its root is no directory".into()));
    }
    let mut directories = vec![0];
    while let Some(directory) = directories.pop() {
        let subdirectories = scan.directory(directory)?;
        directories.extend(subdirectories.into_iter().rev());
    }
    let Scan {
        tree,
        inodes,
        warnings,
        ..
    } = scan;
    Ok(Scanned {
        source: Source::FileSystem(Answering::new(fs, path, inodes)),
        tree,
        warnings,
        gaps: Gaps::default(),
    })
}

struct Scan<'a> {
    fs: &'a dyn FileSystem,
    source: &'a Path,
    options: &'a Options,
    observer: &'a dyn Observer,
    cancel: &'a AtomicBool,
    warnings: u64,
    /// Bytes of all regular files.
    bytes: u64,
    /// Files with several names.
    linked: HashMap<Ino, NodeId>,
    /// Directories that were met.
    entered: HashSet<Ino>,
    /// The inode of each node.
    inodes: Vec<Ino>,
    tree: Tree,
}

impl Scan<'_> {
    /// Adds the children of a directory; answers which of them are directories.
    fn directory(&mut self, id: NodeId) -> Result<Vec<NodeId>, Error> {
        let path = self.tree.path(id);
        let names = self.list(id, &path)?;
        let start = self.tree.entries.len() as u32;
        let mut subdirectories = Vec::new();
        for (name, ino) in names {
            if self.options.is_excluded(&path, &name) {
                continue;
            }
            let (node, is_new) = self.entry(id, &path, &name, ino)?;
            if is_new && self.tree.node(node).kind == FileKind::Directory {
                subdirectories.push(node);
            }
        }
        let end = self.tree.entries.len() as u32;
        let node = &mut self.tree.nodes[id as usize];
        node.entries = start..end;
        node.nlink = 2 + subdirectories.len() as u32;
        Ok(subdirectories)
    }

    /// Lists a directory by name.
    fn list(&self, id: NodeId, path: &[u8]) -> Result<Vec<(Vec<u8>, Ino)>, Error> {
        if self.cancel.load(Ordering::Relaxed) {
            return Err(Error::Cancelled);
        }
        let mut names = Vec::new();
        let listed = self.fs.readdir(self.inodes[id as usize], 0, &mut |entry| {
            if !matches!(entry.name, b"." | b"..") {
                names.push((entry.name.to_vec(), entry.ino));
            }
            match self.cancel.load(Ordering::Relaxed) {
                true => ControlFlow::Break(()),
                false => ControlFlow::Continue(()),
            }
        });
        listed.map_err(|cause| self.error(path, "list the directory", cause))?;
        names.sort_unstable();
        let same = names.windows(2).find(|two| two[0].0 == two[1].0);
        if let Some([(name, _), _]) = same {
            let text = "the directory has this name twice";
            return Err(self.unstorable(&join(path, name), text.into()));
        }
        Ok(names)
    }

    /// Adds an entry, and its node unless that is known by another name.
    fn entry(
        &mut self,
        parent: NodeId,
        path: &[u8],
        name: &[u8],
        ino: Ino,
    ) -> Result<(NodeId, bool), Error> {
        let is_name = (1..=NAME_BYTES_MAX).contains(&name.len());
        if !is_name || name.iter().any(|byte| matches!(byte, b'/' | 0)) {
            let text = format!("`{}` is no name of a file", name.escape_ascii());
            return Err(self.unstorable(path, text));
        }
        if self.tree.entries.len() as u64 >= u64::from(u32::MAX) - 1 {
            let text = "more names than 32 bits can count";
            return Err(self.unstorable(b"", text.into()));
        }
        let (node, is_new) = match self.linked.get(&ino) {
            Some(&node) => {
                self.tree.nodes[node as usize].nlink += 1;
                (node, false)
            }
            None => (self.add(ino, parent, path, name)?, true),
        };
        let name = match is_new {
            true => self.tree.node(node).name,
            false => self.tree.intern(name),
        };
        self.tree.entries.push(Entry { name, node });
        Ok((node, is_new))
    }

    fn add(
        &mut self,
        ino: Ino,
        parent: NodeId,
        directory: &[u8],
        name: &[u8],
    ) -> Result<NodeId, Error> {
        let path = join(directory, name);
        let attr = (self.fs.getattr(ino)).map_err(|cause| self.error(&path, "stat", cause))?;
        if attr.kind == FileKind::Directory && !self.entered.insert(ino) {
            let text = "a directory that has another name as well";
            return Err(self.unstorable(&path, text.into()));
        }
        let id = self.tree.nodes.len() as NodeId;
        let target = match attr.kind {
            FileKind::Symlink => self.target(ino, &path)?,
            _ => Vec::new(),
        };
        let (size, allocation) = match attr.kind {
            FileKind::Regular => self.content(&attr, ino, &path)?,
            _ => (target.len() as u64, Allocation::Whole),
        };
        let owner = self.options.owner_of((attr.uid, attr.gid));
        let (uid, gid) = owner.map_err(|reason| self.unstorable(&path, reason))?;
        let node = Node {
            kind: attr.kind,
            perm: attr.perm & 0o7777,
            uid,
            gid,
            nlink: 1,
            size,
            allocation,
            mtime: self.options.time_of(attr.mtime),
            rdev: self.rdev(&attr, &path)?,
            parent,
            name: self.tree.intern(name),
            xattrs: self.xattrs(ino, &path)?,
            fingerprint: Fingerprint::default(),
            entries: 0..0,
            target: self.tree.intern(&target),
        };
        let may_be_linked = attr.kind != FileKind::Directory && attr.nlink > 1;
        if may_be_linked && !self.options.hard_dereference {
            self.linked.insert(ino, id);
        }
        self.tree.nodes.push(node);
        self.inodes.push(ino);
        Ok(id)
    }

    fn target(&self, ino: Ino, path: &[u8]) -> Result<Vec<u8>, Error> {
        let target = self.fs.readlink(ino);
        let target = target.map_err(|cause| self.error(path, "read the link", cause))?;
        match target.len() as u64 {
            1..=SYMLINK_BYTES_MAX if !target.contains(&0) => Ok(target),
            len => {
                let text = format!(
                    "a target of {len} bytes; 1 to {SYMLINK_BYTES_MAX} are possible, no NUL among them"
                );
                Err(self.unstorable(path, text))
            }
        }
    }

    /// Returns the size of a regular file, and how much of it is data: of compressed files, space would tell something else.
    fn content(&mut self, attr: &Attr, ino: Ino, path: &[u8]) -> Result<(u64, Allocation), Error> {
        self.bytes = self.bytes.saturating_add(attr.size);
        if self.bytes > FILES_BYTES_MAX {
            let text = format!(
                "all files together have {} bytes with their holes; {FILES_BYTES_MAX} are the most",
                self.bytes
            );
            return Err(self.unstorable(path, text));
        }
        let file = AnsweredFile { fs: self.fs, ino };
        let ranges = file.data_ranges(attr.size);
        let ranges = ranges.map_err(|cause| self.error(path, "look for holes", cause))?;
        let data = allocated(ranges.into_iter());
        Ok((attr.size, Allocation::of(attr.size, data)))
    }

    fn rdev(&self, attr: &Attr, path: &[u8]) -> Result<u32, Error> {
        if !matches!(attr.kind, FileKind::CharDevice | FileKind::BlockDevice) {
            return Ok(0);
        }
        encode_rdev(attr.rdev).ok_or_else(|| {
            let (major, minor) = (attr.rdev.major, attr.rdev.minor);
            let reason = format!("device {major}:{minor}; 4095:1048575 is the last");
            self.unstorable(path, reason)
        })
    }

    fn xattrs(&mut self, ino: Ino, path: &[u8]) -> Result<Range<u32>, Error> {
        if self.options.xattr_share_above.is_none() {
            return Ok(0..0);
        }
        let fail = |cause| self.error(path, "read the attributes", cause);
        let mut names = match self.fs.listxattr(ino) {
            Err(FsError::Unsupported) => Vec::new(),
            names => names.map_err(fail)?,
        };
        names.sort_unstable();
        names.dedup();
        let mut kept = Vec::new();
        let mut skipped = Vec::new();
        for name in names {
            if !has_place(&name) {
                skipped.push(name);
                continue;
            }
            let value = self.fs.getxattr(ino, &name).map_err(fail)?;
            let xattr = Xattr::new(&name, &value);
            kept.push(xattr.map_err(|reason| self.unstorable(path, reason))?);
        }
        for name in skipped {
            let text = format!("the attribute {} cannot be stored", name.escape_ascii());
            self.observer.warn(&self.full(path), &text);
            self.warnings += 1;
        }
        Ok(self.tree.xattrs.add(kept))
    }

    fn full(&self, path: &[u8]) -> PathBuf {
        use std::os::unix::ffi::OsStrExt;
        self.source.join(std::ffi::OsStr::from_bytes(path))
    }

    fn error(&self, path: &[u8], action: &'static str, cause: FsError) -> Error {
        Error::FileSystem {
            path: self.full(path),
            action,
            cause,
        }
    }

    fn unstorable(&self, path: &[u8], reason: String) -> Error {
        Error::Unstorable {
            path: self.full(path),
            reason,
        }
    }
}
