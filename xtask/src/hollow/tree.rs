//! Names and attributes of a file system in memory.

use std::collections::{BTreeMap, HashMap};
use std::ops::ControlFlow;
use std::time::{SystemTime, UNIX_EPOCH};

use anteros_core::{
    Attr, Changes, DirEntry, FileKind, FsError, FsResult, Ino, New, Rdev, SetTime, Timestamp,
};

pub(super) const ROOT: Ino = Ino(1);

/// Inodes, and the names in those that are directories.
pub(super) struct Tree {
    nodes: HashMap<Ino, Node>,
    /// Number for the next inode, or entry of a directory.
    next: u64,
}

pub(super) struct Node {
    pub(super) attr: Attr,
    /// Target of a symbolic link.
    pub(super) target: Vec<u8>,
    parent: Ino,
    /// Entries of a directory, each with the place that it is listed at.
    names: HashMap<Vec<u8>, u64>,
    entries: BTreeMap<u64, (Vec<u8>, Ino)>,
}

impl Default for Tree {
    fn default() -> Self {
        let root = Node::new(ROOT, ROOT, FileKind::Directory);
        Self {
            nodes: HashMap::from([(ROOT, root)]),
            // 1 and 2 are the places of `.` and `..`.
            next: 3,
        }
    }
}

impl Tree {
    pub(super) fn node(&self, ino: Ino) -> FsResult<&Node> {
        self.nodes.get(&ino).ok_or(FsError::NotFound)
    }

    fn node_mut(&mut self, ino: Ino) -> FsResult<&mut Node> {
        self.nodes.get_mut(&ino).ok_or(FsError::NotFound)
    }

    pub(super) fn lookup(&self, parent: Ino, name: &[u8]) -> FsResult<Attr> {
        let directory = self.node(parent)?;
        let place = directory.names.get(name).ok_or(FsError::NotFound)?;
        self.node(directory.entries[place].1).map(|node| node.attr)
    }

    pub(super) fn make(&mut self, new: &New<'_>, rdev: Rdev, target: &[u8]) -> FsResult<Attr> {
        let kind = FileKind::from_mode(new.mode).ok_or(FsError::Invalid)?;
        let ino = Ino(self.number());
        let mut node = Node::new(ino, new.parent, kind);
        node.attr.perm = (new.mode & !new.umask & 0o7777) as u16;
        (node.attr.uid, node.attr.gid) = (new.caller.uid, new.caller.gid);
        (node.attr.rdev, node.attr.size) = (rdev, target.len() as u64);
        target.clone_into(&mut node.target);
        self.nodes.insert(ino, node);
        self.link(ino, new.parent, new.name)
    }

    /// Gives an inode a name.
    pub(super) fn link(&mut self, ino: Ino, parent: Ino, name: &[u8]) -> FsResult<Attr> {
        let place = self.number();
        let directory = self.node_mut(parent)?;
        if directory.names.contains_key(name) {
            return Err(FsError::Exists);
        }
        directory.names.insert(name.to_owned(), place);
        directory.entries.insert(place, (name.to_owned(), ino));
        let node = self.node_mut(ino)?;
        node.attr.nlink += 1;
        node.parent = parent;
        Ok(node.attr)
    }

    /// Takes a name away.
    pub(super) fn remove(&mut self, parent: Ino, name: &[u8]) -> FsResult<()> {
        let ino = self.lookup(parent, name)?.ino;
        if !self.node(ino)?.entries.is_empty() {
            return Err(FsError::NotEmpty);
        }
        let directory = self.node_mut(parent)?;
        let place = directory.names.remove(name).ok_or(FsError::NotFound)?;
        directory.entries.remove(&place);
        self.node_mut(ino)?.attr.nlink -= 1;
        Ok(())
    }

    /// Calls a function for each entry of a directory from a place on, until it breaks.
    pub(super) fn list(
        &self,
        ino: Ino,
        from: u64,
        visit: &mut dyn FnMut(DirEntry<'_>) -> ControlFlow<()>,
    ) -> FsResult<()> {
        let directory = self.node(ino)?;
        let dots = [(1, &b"."[..], ino), (2, b"..", directory.parent)];
        let entries = directory.entries.range(from + 1..);
        let entries = entries.map(|(place, (name, ino))| (*place, &name[..], *ino));
        for (place, name, ino) in dots.into_iter().filter(|dot| dot.0 > from).chain(entries) {
            let entry = DirEntry {
                ino,
                kind: self.node(ino)?.attr.kind,
                next: place,
                name,
            };
            if visit(entry).is_break() {
                break;
            }
        }
        Ok(())
    }

    /// Makes a file as long as it has to be for content that ends there.
    pub(super) fn grow(&mut self, ino: Ino, end: u64) -> FsResult<()> {
        let attr = &mut self.node_mut(ino)?.attr;
        attr.size = attr.size.max(end);
        Ok(())
    }

    pub(super) fn change(&mut self, ino: Ino, changes: &Changes) -> FsResult<Attr> {
        let attr = &mut self.node_mut(ino)?.attr;
        attr.perm = changes.perm.unwrap_or(attr.perm);
        attr.uid = changes.uid.unwrap_or(attr.uid);
        attr.gid = changes.gid.unwrap_or(attr.gid);
        attr.size = changes.size.unwrap_or(attr.size);
        attr.atime = changes.atime.map_or(attr.atime, moment);
        attr.mtime = changes.mtime.map_or(attr.mtime, moment);
        Ok(*attr)
    }

    fn number(&mut self) -> u64 {
        self.next += 1;
        self.next - 1
    }
}

impl Node {
    /// A node without a name. A directory has one more in itself.
    fn new(ino: Ino, parent: Ino, kind: FileKind) -> Self {
        let now = moment(SetTime::Now);
        let attr = Attr {
            ino,
            kind,
            perm: 0o755,
            nlink: u32::from(kind == FileKind::Directory),
            uid: 0,
            gid: 0,
            rdev: Rdev::default(),
            size: 0,
            blocks: 0,
            block_size: 4096,
            atime: now,
            mtime: now,
            ctime: now,
        };
        Self {
            attr,
            target: Vec::new(),
            parent,
            names: HashMap::new(),
            entries: BTreeMap::new(),
        }
    }
}

fn moment(time: SetTime) -> Timestamp {
    match time {
        SetTime::At(time) => time,
        SetTime::Now => {
            let now = SystemTime::now().duration_since(UNIX_EPOCH);
            let now = now.unwrap_or_default();
            Timestamp {
                secs: now.as_secs() as i64,
                nanos: now.subsec_nanos(),
            }
        }
    }
}
