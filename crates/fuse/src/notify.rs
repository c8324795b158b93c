//! Notifications that the session gives the kernel unasked: content it will want soon, what it may forget.

use std::io;
use std::sync::{Arc, Weak};

use anteros_core::Ino;
use rustix::io::Errno;
use zerocopy::IntoBytes;

use crate::device::Device;
use crate::node::Nodes;
use crate::proto::notify::{
    self, NotifyInvalEntry, NotifyInvalInode, NotifyPrune, NotifyRetrieve, NotifyStore,
};
use crate::retrieve::{LEN_MAX, Retrieved};

/// Inodes that the kernel is told of at once: what it takes without splitting.
const PRUNED_AT_ONCE: usize = 512;

/// Fills and empties the kernel's cache of a mount, from any thread that serves no requests.
///
/// It does not keep the mount alive: when the session has ended, nothing is told.
#[derive(Debug, Clone)]
pub struct Notifier {
    device: Weak<Device>,
    nodes: Nodes,
    retrieved: Arc<Retrieved>,
}

impl Notifier {
    pub(crate) fn new(device: &Arc<Device>, nodes: Nodes) -> Self {
        Self {
            device: Arc::downgrade(device),
            nodes,
            retrieved: Arc::default(),
        }
    }

    /// Has content that is retrieved come by `retrieved`.
    pub(crate) fn retrieving(self, retrieved: Arc<Retrieved>) -> Self {
        Self { retrieved, ..self }
    }

    /// Puts `data`, which the file `ino` has at `offset`, into the kernel's cache.
    ///
    /// Only whole pages stay: `offset` is to be a multiple of the page size, and so is the length,
    /// unless the data ends where the file does. It must not reach beyond that, or the kernel takes
    /// the file to be longer.
    ///
    /// **Never call this where requests are served**, so neither within a call of the
    /// [`FileSystem`](anteros_core::FileSystem) nor while holding a lock that one may wait for. It
    /// waits for every page that is being read, and whoever is to answer that read would wait for
    /// itself.
    ///
    /// # Errors
    ///
    /// [`NotFound`](io::ErrorKind::NotFound) when the kernel has forgotten the inode, `ENODEV` when
    /// the session has ended, `EINVAL` for 4 GiB and more. What was stored until then stays.
    pub fn store(&self, ino: Ino, offset: u64, data: &[u8]) -> io::Result<()> {
        let device = self.device.upgrade().ok_or(Errno::NODEV)?;
        let store = NotifyStore {
            nodeid: self.nodes.node(ino).ok_or(Errno::NOENT)?,
            offset,
            size: u32::try_from(data.len()).map_err(|_| Errno::INVAL)?,
            padding: 0,
        };
        Ok(device.notify(notify::STORE, store.as_bytes(), data)?)
    }

    /// Fills `out` with what the kernel's cache has of the file `ino` from `offset` on; returns whether it has all of that.
    ///
    /// It gives what was [stored](Self::store) earlier and not dropped since, without a look at whether a page is complete:
    /// nobody may read the file by the mount meanwhile. It may be called where requests are served, by one who holds
    /// nothing that another request may wait for.
    ///
    /// # Errors
    ///
    /// [`NotFound`](io::ErrorKind::NotFound) when the kernel has forgotten the inode, `ENODEV` when the session has ended,
    /// [`WouldBlock`](io::ErrorKind::WouldBlock) when no worker would be left to receive it.
    pub fn retrieve(&self, ino: Ino, offset: u64, out: &mut [u8]) -> io::Result<bool> {
        let device = self.device.upgrade().ok_or(Errno::NODEV)?;
        let nodeid = self.nodes.node(ino).ok_or(Errno::NOENT)?;
        let mut offset = offset;
        for piece in out.chunks_mut(LEN_MAX) {
            let content = self.retrieved.wait(|unique| {
                let wanted = NotifyRetrieve {
                    unique,
                    nodeid,
                    offset,
                    size: piece.len() as u32,
                    padding: 0,
                };
                device.notify(notify::RETRIEVE, wanted.as_bytes(), &[])
            })?;
            if content.len() != piece.len() {
                return Ok(false);
            }
            piece.copy_from_slice(&content);
            offset += piece.len() as u64;
        }
        Ok(true)
    }

    /// Has the kernel forget attributes and content of an inode. **Never call this where requests are served**: it waits
    /// for every page that is being read.
    ///
    /// # Errors
    ///
    /// [`NotFound`](io::ErrorKind::NotFound) when the kernel does not know the inode, `ENODEV` when the session has ended.
    pub fn invalidate(&self, ino: Ino) -> io::Result<()> {
        let device = self.device.upgrade().ok_or(Errno::NODEV)?;
        let all = NotifyInvalInode {
            nodeid: self.nodes.node(ino).ok_or(Errno::NOENT)?,
            offset: 0,
            len: 0,
        };
        Ok(device.notify(notify::INVAL_INODE, all.as_bytes(), &[])?)
    }

    /// Has the kernel forget attributes of an inode, but no content. It waits for nobody.
    ///
    /// # Errors
    ///
    /// As [`invalidate`](Self::invalidate).
    pub fn forget_attributes(&self, ino: Ino) -> io::Result<()> {
        let device = self.device.upgrade().ok_or(Errno::NODEV)?;
        let none = NotifyInvalInode {
            nodeid: self.nodes.node(ino).ok_or(Errno::NOENT)?,
            offset: -1,
            len: 0,
        };
        Ok(device.notify(notify::INVAL_INODE, none.as_bytes(), &[])?)
    }

    /// Has the kernel forget those of the inodes that nobody uses. It waits for nobody.
    ///
    /// # Errors
    ///
    /// [`InvalidInput`](io::ErrorKind::InvalidInput) of a kernel that does not know how to, before Linux 6.18,
    /// `ENODEV` when the session has ended.
    pub fn prune(&self, inodes: &[Ino]) -> io::Result<()> {
        let device = self.device.upgrade().ok_or(Errno::NODEV)?;
        for inodes in inodes.chunks(PRUNED_AT_ONCE) {
            let nodes: Vec<_> = inodes.iter().filter_map(|&i| self.nodes.node(i)).collect();
            let prune = NotifyPrune {
                count: nodes.len() as u32,
                padding: 0,
                spare: 0,
            };
            device.notify(notify::PRUNE, prune.as_bytes(), nodes.as_bytes())?;
        }
        Ok(())
    }

    /// Has the kernel drop a name, and forget the inode if nobody uses it. **Never call this where requests
    /// are served**: it waits for those who change the directory.
    ///
    /// # Errors
    ///
    /// [`NotFound`](io::ErrorKind::NotFound) when the kernel does not know the name, `ENODEV` when the
    /// session has ended.
    pub fn drop_name(&self, parent: Ino, name: &[u8]) -> io::Result<()> {
        let device = self.device.upgrade().ok_or(Errno::NODEV)?;
        let entry = NotifyInvalEntry {
            parent: self.nodes.node(parent).ok_or(Errno::NOENT)?,
            namelen: u32::try_from(name.len()).map_err(|_| Errno::NAMETOOLONG)?,
            flags: 0,
        };
        let name = [name, b"\0"].concat();
        Ok(device.notify(notify::INVAL_ENTRY, entry.as_bytes(), &name)?)
    }
}
