//! The inodes that somebody knows.
//!
//! An inode is found by the host's device and inode number. The host cannot give that pair to another
//! inode while a descriptor is held, so an entry means one inode for as long as it is here, deleted or
//! not, and its number with it.

use std::collections::HashMap;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::SyncSender;
use std::sync::{Arc, RwLock, RwLockReadGuard, RwLockWriteGuard};

use anteros_core::{FileKind, FsError, FsResult, Ino, unpoisoned};
use rustix::fs::Stat;

/// Set in the numbers of inodes that cannot have the host's number: those of other devices.
const FOREIGN: u64 = 1 << 63;

/// Describes how the host tells inodes apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Key {
    pub device: u64,
    pub inode: u64,
}

impl Key {
    pub fn of(stat: &Stat) -> Self {
        Self {
            device: stat.st_dev,
            inode: stat.st_ino,
        }
    }
}

/// An inode of the host, held.
#[derive(Debug)]
pub(crate) struct Node {
    fd: OwnedFd,
    pub ino: Ino,
    pub key: Key,
    pub kind: FileKind,
    /// Tells how many nodes there were before.
    pub serial: u64,
    /// Tells how many times it became known and was not forgotten.
    known: AtomicU64,
}

impl AsFd for Node {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// All nodes, by both of their names.
#[derive(Debug)]
pub(crate) struct Table {
    root: Arc<Node>,
    maps: RwLock<Maps>,
    /// Called when more nodes are held than this.
    crowded_at: usize,
    crowded: SyncSender<()>,
}

#[derive(Debug)]
struct Maps {
    by_ino: HashMap<Ino, Arc<Node>>,
    by_key: HashMap<Key, Arc<Node>>,
    next_foreign: u64,
    next_serial: u64,
}

impl Table {
    /// A table that knows the root alone, and for ever. Whoever listens is called when it holds more than
    /// `crowded_at` nodes.
    pub fn new(root: OwnedFd, stat: &Stat, crowded_at: usize, crowded: SyncSender<()>) -> Self {
        let key = Key::of(stat);
        let root = Arc::new(Node {
            fd: root,
            ino: Ino(key.inode),
            key,
            kind: FileKind::Directory,
            serial: 0,
            known: AtomicU64::new(1),
        });
        let maps = Maps {
            by_ino: HashMap::from([(root.ino, Arc::clone(&root))]),
            by_key: HashMap::from([(key, Arc::clone(&root))]),
            next_foreign: FOREIGN,
            next_serial: 1,
        };
        Self {
            root,
            maps: RwLock::new(maps),
            crowded_at,
            crowded,
        }
    }

    pub fn root(&self) -> &Node {
        &self.root
    }

    /// The node with this number, which stays held while it is used.
    pub fn get(&self, ino: Ino) -> FsResult<Arc<Node>> {
        let node = self.read().by_ino.get(&ino).cloned();
        node.ok_or(FsError::NotFound)
    }

    /// Returns how many nodes there are.
    pub fn len(&self) -> usize {
        self.read().by_ino.len()
    }

    /// The node of a known inode, which is known once more by that.
    pub fn meet(&self, key: Key) -> Option<Arc<Node>> {
        let maps = self.read();
        let node = maps.by_key.get(&key)?;
        // Only who has the whole table takes it away, so it cannot have come to nothing meanwhile.
        node.known.fetch_add(1, Ordering::Relaxed);
        Some(Arc::clone(node))
    }

    /// The node of an inode, which is known once more by that; `fd` is kept if it is new.
    pub fn add(&self, fd: OwnedFd, stat: &Stat) -> FsResult<Arc<Node>> {
        let key = Key::of(stat);
        let kind = FileKind::from_mode(stat.st_mode).ok_or(FsError::Invalid)?;
        let mut maps = self.write();
        if let Some(node) = maps.by_key.get(&key) {
            node.known.fetch_add(1, Ordering::Relaxed);
            return Ok(Arc::clone(node));
        }
        let node = Arc::new(Node {
            fd,
            ino: self.new_number(&mut maps, key),
            key,
            kind,
            serial: maps.next_serial,
            known: AtomicU64::new(1),
        });
        maps.next_serial += 1;
        maps.by_ino.insert(node.ino, Arc::clone(&node));
        maps.by_key.insert(key, Arc::clone(&node));
        if maps.by_ino.len() > self.crowded_at {
            self.call();
        }
        Ok(node)
    }

    /// Takes back so many of the times that a node became known. The last closes its descriptor.
    pub fn forget(&self, ino: Ino, times: u64) {
        if ino == self.root.ino {
            return;
        }
        let forgotten = {
            let mut maps = self.write();
            let Some(node) = maps.by_ino.get(&ino) else {
                return;
            };
            let known = node.known.load(Ordering::Relaxed).saturating_sub(times);
            node.known.store(known, Ordering::Relaxed);
            if known > 0 {
                return;
            }
            let key = node.key;
            (maps.by_ino.remove(&ino), maps.by_key.remove(&key))
        };
        // Closing the last descriptor of a deleted file frees its space, which takes time.
        drop(forgotten);
    }

    /// Calls whoever has nodes forgotten. One call is enough, and nobody may listen.
    pub fn call(&self) {
        let _ = self.crowded.try_send(());
    }

    /// Returns whether more nodes are held than is good.
    pub fn is_crowded(&self) -> bool {
        self.len() > self.crowded_at
    }

    /// The numbers of those nodes that have been known for longest: of half of all but the root.
    pub fn older_half(&self) -> Vec<Ino> {
        let numbers = |node: &Arc<Node>| (node.serial, node.ino);
        let mut all: Vec<_> = self.read().by_ino.values().map(numbers).collect();
        all.sort_unstable();
        let half = all.len() / 2;
        all.into_iter()
            .skip(1)
            .take(half)
            .map(|(_, ino)| ino)
            .collect()
    }

    /// The number of a known inode.
    pub fn number(&self, key: Key) -> Option<Ino> {
        Some(self.read().by_key.get(&key)?.ino)
    }

    /// The number to list an inode by, known or not: the one it has or would get, if that can be told.
    pub fn listed_number(&self, key: Key) -> Ino {
        if self.keeps_its_number(key) {
            return Ino(key.inode);
        }
        match self.read().by_key.get(&key) {
            Some(node) => node.ino,
            None => Ino(key.inode | FOREIGN),
        }
    }

    fn keeps_its_number(&self, key: Key) -> bool {
        key.device == self.root.key.device && key.inode & FOREIGN == 0
    }

    fn new_number(&self, maps: &mut Maps, key: Key) -> Ino {
        let own = Ino(key.inode);
        if self.keeps_its_number(key) && !maps.by_ino.contains_key(&own) {
            return own;
        }
        loop {
            let ino = Ino(maps.next_foreign);
            maps.next_foreign = (maps.next_foreign + 1) | FOREIGN;
            if !maps.by_ino.contains_key(&ino) {
                return ino;
            }
        }
    }

    fn read(&self) -> RwLockReadGuard<'_, Maps> {
        unpoisoned(self.maps.read())
    }

    fn write(&self) -> RwLockWriteGuard<'_, Maps> {
        unpoisoned(self.maps.write())
    }
}
