//! From a directory to a [`Tree`].
//!
//! One directory is open at a time, so neither depth nor width meets a limit of the process. What
//! is excluded is not looked at.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use anteros_core::{FileKind, Rdev, Timestamp};
use anteros_format::dirent::NAME_BYTES_MAX;
use anteros_format::inode::{SYMLINK_BYTES_MAX, encode_rdev};
use rustix::fs::{AtFlags, CWD, RawDir, Statx};

use crate::options::join;
use crate::output::parent;
use crate::source::directory::{Directory, fingerprint, identity, stat};
use crate::source::{Gaps, Scanned, Source};
use crate::sparse::Allocation;
use crate::tree::{Entry, NameRef, Node, NodeId, Tree};
use crate::xattr::{self, ReadXattrs};
use crate::{Error, Observer, Options};

/// Bytes for `getdents`.
const LISTING_BYTES: usize = 32 << 10;

/// Scans a directory.
pub(crate) fn scan(
    path: &Path,
    image: &Path,
    options: &Options,
    observer: &dyn Observer,
    cancel: &AtomicBool,
) -> Result<Scanned, Error> {
    let source = Directory::open(path)?;
    let mut scan = Scan {
        source: &source,
        image,
        image_parent: image_parent(image),
        options,
        observer,
        warnings: 0,
        xattrs: ReadXattrs::new(),
        linked: HashMap::new(),
        tree: Tree::default(),
    };
    scan.add_root()?;
    let mut directories = vec![0];
    while let Some(directory) = directories.pop() {
        if cancel.load(Ordering::Relaxed) {
            return Err(Error::Cancelled);
        }
        let subdirectories = scan.directory(directory)?;
        directories.extend(subdirectories.into_iter().rev());
    }
    let Scan { tree, warnings, .. } = scan;
    Ok(Scanned {
        source: Source::Directory(source),
        tree,
        warnings,
        gaps: Gaps::default(),
    })
}

struct Scan<'a> {
    source: &'a Directory,
    image: &'a Path,
    /// Device and inode of the directory that the image will be in.
    image_parent: Option<(u64, u64)>,
    options: &'a Options,
    observer: &'a dyn Observer,
    warnings: u64,
    xattrs: ReadXattrs,
    /// Files with several names, by device and inode.
    linked: HashMap<(u64, u64), NodeId>,
    tree: Tree,
}

/// A directory that is being scanned.
struct Open {
    id: NodeId,
    fd: OwnedFd,
    path: Vec<u8>,
}

impl Scan<'_> {
    fn add_root(&mut self) -> Result<(), Error> {
        let root = Open {
            id: 0,
            fd: self.open(0, b"")?,
            path: Vec::new(),
        };
        let found = stat(&root.fd, b"", AtFlags::EMPTY_PATH)
            .map_err(|e| self.error(&root, b"", "stat", e))?;
        let name = self.tree.intern(b"");
        self.add_node(&root, name, &found)?;
        Ok(())
    }

    /// Adds the children of a directory; answers which of them are directories.
    fn directory(&mut self, id: NodeId) -> Result<Vec<NodeId>, Error> {
        let path = self.tree.path(id);
        let directory = Open {
            id,
            fd: self.open(id, &path)?,
            path,
        };
        self.refuse_image_in(&directory)?;
        let mut names = self.list(&directory)?;
        names.sort_unstable();
        let start = self.tree.entries.len() as u32;
        let mut subdirectories = Vec::new();
        for name in names {
            if self.options.is_excluded(&directory.path, &name) {
                continue;
            }
            let (node, is_new) = self.entry(&directory, &name)?;
            if is_new && self.tree.node(node).kind == FileKind::Directory {
                subdirectories.push(node);
            }
        }
        let links = 2 + subdirectories.len() as u32;
        let end = self.tree.entries.len() as u32;
        let node = &mut self.tree.nodes[id as usize];
        node.entries = start..end;
        node.nlink = links;
        Ok(subdirectories)
    }

    fn list(&self, directory: &Open) -> Result<Vec<Vec<u8>>, Error> {
        let mut buffer = vec![MaybeUninit::uninit(); LISTING_BYTES];
        let mut listing = RawDir::new(&directory.fd, &mut buffer);
        let mut names = Vec::new();
        while let Some(entry) = listing.next() {
            let entry =
                entry.map_err(|e| self.error(directory, b"", "list the directory", e.into()))?;
            let name = entry.file_name().to_bytes();
            if name != b"." && name != b".." {
                names.push(name.to_vec());
            }
        }
        Ok(names)
    }

    /// Adds an entry, and its node unless that is known by another name.
    fn entry(&mut self, directory: &Open, name: &[u8]) -> Result<(NodeId, bool), Error> {
        if name.len() > NAME_BYTES_MAX {
            let reason = format!(
                "a name of {} bytes; {NAME_BYTES_MAX} is the most",
                name.len()
            );
            return Err(self.unstorable(directory, name, reason));
        }
        let found = stat(&directory.fd, name, AtFlags::empty())
            .map_err(|e| self.error(directory, name, "stat", e))?;
        let name = self.tree.intern(name);
        let (node, is_new) = match self.known(&found) {
            Some(node) => {
                self.tree.nodes[node as usize].nlink += 1;
                (node, false)
            }
            None => (self.add_node(directory, name, &found)?, true),
        };
        self.tree.entries.push(Entry { name, node });
        Ok((node, is_new))
    }

    fn known(&self, found: &Statx) -> Option<NodeId> {
        self.linked.get(&identity(found)).copied()
    }

    fn add_node(&mut self, parent: &Open, name: NameRef, found: &Statx) -> Result<NodeId, Error> {
        let id = self.tree.nodes.len() as NodeId;
        let bare = self.tree.name(name).to_vec();
        let kind = FileKind::from_mode(found.stx_mode.into()).ok_or_else(|| {
            let reason = format!("mode {:#o} is of no known kind of file", found.stx_mode);
            self.unstorable(parent, &bare, reason)
        })?;
        let target = match kind {
            FileKind::Symlink => self.read_link(parent, &bare)?,
            _ => Box::default(),
        };
        let mtime = Timestamp {
            secs: found.stx_mtime.tv_sec,
            nanos: found.stx_mtime.tv_nsec,
        };
        let size = match kind {
            FileKind::Regular => found.stx_size,
            _ => target.len() as u64,
        };
        let owner = (found.stx_uid, found.stx_gid);
        let (uid, gid) = (self.options.owner_of(owner))
            .map_err(|reason| self.unstorable(parent, &bare, reason))?;
        let node = Node {
            kind,
            perm: found.stx_mode & 0o7777,
            uid,
            gid,
            nlink: 1,
            size,
            allocation: Allocation::of(size, found.stx_blocks.saturating_mul(512)),
            mtime: self.options.time_of(mtime),
            rdev: self.rdev(parent, &bare, kind, found)?,
            parent: parent.id,
            name,
            xattrs: self.read_xattrs(parent, &bare)?,
            fingerprint: fingerprint(found),
            entries: 0..0,
            target: self.tree.intern(&target),
        };
        let may_be_linked = kind != FileKind::Directory && found.stx_nlink > 1;
        if may_be_linked && !self.options.hard_dereference {
            self.linked.insert(identity(found), id);
        }
        self.tree.nodes.push(node);
        Ok(id)
    }

    fn read_link(&self, parent: &Open, name: &[u8]) -> Result<Box<[u8]>, Error> {
        let target = rustix::fs::readlinkat(&parent.fd, OsStr::from_bytes(name), Vec::new())
            .map_err(|e| self.error(parent, name, "read the link", e.into()))?;
        let target = target.into_bytes();
        if target.is_empty() || target.len() as u64 > SYMLINK_BYTES_MAX {
            let reason = format!(
                "a target of {} bytes; 1 to {SYMLINK_BYTES_MAX} are possible",
                target.len()
            );
            return Err(self.unstorable(parent, name, reason));
        }
        Ok(target.into())
    }

    fn rdev(
        &self,
        parent: &Open,
        name: &[u8],
        kind: FileKind,
        found: &Statx,
    ) -> Result<u32, Error> {
        if !matches!(kind, FileKind::CharDevice | FileKind::BlockDevice) {
            return Ok(0);
        }
        let rdev = Rdev {
            major: found.stx_rdev_major,
            minor: found.stx_rdev_minor,
        };
        encode_rdev(rdev).ok_or_else(|| {
            let reason = format!(
                "device {}:{}; 4095:1048575 is the last",
                rdev.major, rdev.minor
            );
            self.unstorable(parent, name, reason)
        })
    }

    fn read_xattrs(&mut self, parent: &Open, name: &[u8]) -> Result<std::ops::Range<u32>, Error> {
        if self.options.xattr_share_above.is_none() {
            return Ok(0..0);
        }
        let path = xattr::Place {
            directory: parent.fd.as_fd().as_raw_fd(),
            name,
            full: &self.path_of(parent, name),
        };
        let found = self.xattrs.read(&path)?;
        for skipped in found.skipped {
            self.warnings += 1;
            let text = format!("the attribute {} cannot be stored", skipped.escape_ascii());
            self.observer.warn(path.full, &text);
        }
        Ok(self.tree.xattrs.add(found.kept))
    }

    /// The image must not be packed into itself.
    fn refuse_image_in(&self, directory: &Open) -> Result<(), Error> {
        let Some(image_parent) = self.image_parent else {
            return Ok(());
        };
        let found = stat(&directory.fd, b"", AtFlags::EMPTY_PATH)
            .map_err(|e| self.error(directory, b"", "stat", e))?;
        if image_parent != identity(&found) {
            return Ok(());
        }
        Err(Error::ImageInsideSource {
            image: self.image.to_owned(),
            directory: self.path_of(directory, b""),
        })
    }

    fn open(&self, id: NodeId, path: &[u8]) -> Result<OwnedFd, Error> {
        let full = self.source.path().join(OsStr::from_bytes(path));
        debug_assert!(id == 0 || !path.is_empty());
        self.source
            .open_directory(path)
            .map_err(|cause| Error::Source {
                path: full,
                action: "open the directory",
                cause,
            })
    }

    fn path_of(&self, parent: &Open, name: &[u8]) -> PathBuf {
        self.source
            .path()
            .join(OsStr::from_bytes(&join(&parent.path, name)))
    }

    fn error(
        &self,
        parent: &Open,
        name: &[u8],
        action: &'static str,
        cause: std::io::Error,
    ) -> Error {
        Error::Source {
            path: self.path_of(parent, name),
            action,
            cause,
        }
    }

    fn unstorable(&self, parent: &Open, name: &[u8], reason: String) -> Error {
        Error::Unstorable {
            path: self.path_of(parent, name),
            reason,
        }
    }
}

/// Returns which directory the image will be in; `None` if it is no file, and takes no room there.
fn image_parent(image: &Path) -> Option<(u64, u64)> {
    if std::fs::metadata(image).is_ok_and(|found| !found.is_file()) {
        return None;
    }
    let parent = parent(image).as_os_str().as_bytes();
    Some(identity(&stat(CWD, parent, AtFlags::empty()).ok()?))
}
