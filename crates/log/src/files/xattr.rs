//! Extended attributes: in the inode if they fit, else in a node of their own, else in further nodes that this one
//! names.
//!
//! All of them change at once: a checkpoint has the nodes of one set, and a group has the whole set in its records. What
//! a new set needs is made before anything of the old one changes.

use anteros_core::{FsError, FsResult};

use crate::files::Files;
use crate::layout::node::{INLINE_XATTR_BYTES, NodeKind};
use crate::layout::record::Record;
use crate::layout::superblock::INCOMPAT_LARGE_XATTRS;
use crate::layout::xattr::{
    self, FURTHER_XATTR_BYTES, NODE_XATTR_BYTES, Stored, XATTR_BYTES_MAX, Xattrs, further_nodes,
};
use crate::layout::{Corrupt, Superblock};

/// `setxattr(2)`: the attribute must not be there, or must be.
const CREATE: u32 = 1;
const REPLACE: u32 = 2;

/// Nodes that extended attributes lie in.
#[derive(Debug, Clone, Default)]
struct Nodes {
    /// The attribute node; 0: they lie in the inode.
    first: u32,
    /// Those that it names.
    further: Vec<u32>,
}

/// The position of a further node.
pub(crate) fn positions() -> impl Iterator<Item = u32> {
    1..
}

/// Refuses further nodes in a log that says that it has none.
pub(crate) fn check_admitted(superblock: &Superblock, nid: u32, len: usize) -> Result<(), Corrupt> {
    match superblock.has_large_xattrs() {
        true => Ok(()),
        false => Err(Corrupt::Node {
            nid,
            rule: "attributes in further nodes without their feature",
            found: len as u64,
        }),
    }
}

/// Attributes of which records have brought a part.
#[derive(Debug, Default)]
pub(crate) struct Gathered {
    ino: u32,
    bytes: Vec<u8>,
    goes_on: bool,
}

impl Gathered {
    /// Refuses a record that does not go on where the one before says so.
    pub(crate) fn check_next(&self, record: &Record<'_>) -> Result<(), Corrupt> {
        match record {
            Record::Xattrs { ino, .. } if *ino == self.ino => Ok(()),
            _ => self.check_end(),
        }
    }

    /// Refuses the end of a group within attributes.
    pub(crate) fn check_end(&self) -> Result<(), Corrupt> {
        match self.goes_on {
            true => Err(Corrupt::Node {
                nid: self.ino,
                rule: "records have only a part of the extended attributes",
                found: self.bytes.len() as u64,
            }),
            false => Ok(()),
        }
    }

    /// Takes one more part, and stores all with the last one.
    pub(crate) fn take(
        &mut self,
        files: &mut Files,
        ino: u32,
        goes_on: bool,
        part: &[u8],
    ) -> FsResult<()> {
        let len = self.bytes.len() + part.len();
        if len > NODE_XATTR_BYTES {
            check_admitted(files.store.superblock(), ino, len)?;
        }
        if len > XATTR_BYTES_MAX {
            return Err(Corrupt::Node {
                nid: ino,
                rule: "records have more extended attributes than an inode can have",
                found: len as u64,
            }
            .into());
        }
        self.ino = ino;
        self.goes_on = goes_on;
        self.bytes.extend_from_slice(part);
        if goes_on {
            return Ok(());
        }
        files.put_xattrs(ino, &std::mem::take(&mut self.bytes))
    }
}

impl Files {
    /// All attributes, as they are stored.
    pub(crate) fn xattr_bytes(&mut self, ino: u32) -> FsResult<Vec<u8>> {
        let live = self.live(ino)?;
        let nid = live.inode().xattr_nid;
        if nid == 0 {
            return Ok(live.inode().xattrs.clone());
        }
        let block = self.node(ino, nid, NodeKind::Attributes, 0)?.block();
        let (len, nids) = match Stored::parse(block, nid)? {
            Stored::Here(bytes) => return Ok(bytes.to_vec()),
            Stored::Further { len, nids } => (len, nids),
        };
        check_admitted(self.store.superblock(), nid, len)?;
        let mut bytes = Vec::with_capacity(len);
        for (position, nid) in positions().zip(nids) {
            let node = self.node(ino, nid, NodeKind::Attributes, position)?;
            let part = xattr::further_bytes(node.block());
            bytes.extend(part.iter().take(len - bytes.len()));
        }
        Ok(bytes)
    }

    /// The nodes that the attributes lie in.
    pub(crate) fn xattr_nids(&mut self, ino: u32) -> FsResult<Vec<u32>> {
        let nodes = self.xattr_nodes(ino)?;
        let first = Some(nodes.first).filter(|&nid| nid != 0);
        Ok(first.into_iter().chain(nodes.further).collect())
    }

    /// The nodes that the attributes lie in, each of which is known to be theirs and is in memory.
    fn xattr_nodes(&mut self, ino: u32) -> FsResult<Nodes> {
        let first = self.live(ino)?.inode().xattr_nid;
        if first == 0 {
            return Ok(Nodes::default());
        }
        let block = self.node(ino, first, NodeKind::Attributes, 0)?.block();
        let further = match Stored::parse(block, first)? {
            Stored::Here(_) => Vec::new(),
            Stored::Further { nids, .. } => nids,
        };
        for (position, &nid) in positions().zip(&further) {
            self.node(ino, nid, NodeKind::Attributes, position)?;
        }
        Ok(Nodes { first, further })
    }

    /// All attributes.
    pub(crate) fn xattrs(&mut self, ino: u32) -> FsResult<Xattrs> {
        Ok(Xattrs::parse(&self.xattr_bytes(ino)?)?)
    }

    /// The value of an attribute.
    pub(crate) fn xattr(&mut self, ino: u32, name: &[u8]) -> FsResult<Vec<u8>> {
        self.xattrs(ino)?
            .get(name)
            .map(<[u8]>::to_vec)
            .ok_or(FsError::NoData)
    }

    /// Sets an attribute as `setxattr(2)` does.
    pub(crate) fn set_xattr_as(
        &mut self,
        ino: u32,
        name: &[u8],
        value: &[u8],
        flags: u32,
    ) -> FsResult<()> {
        if flags & (CREATE | REPLACE) != 0 {
            let is_there = self.xattrs(ino)?.get(name).is_some();
            if flags & CREATE != 0 && is_there {
                return Err(FsError::Exists);
            }
            if flags & REPLACE != 0 && !is_there {
                return Err(FsError::NoData);
            }
        }
        self.set_xattr(ino, name, value)
    }

    pub(crate) fn set_xattr(&mut self, ino: u32, name: &[u8], value: &[u8]) -> FsResult<()> {
        let mut xattrs = self.xattrs(ino)?;
        xattrs.set(name, value)?;
        self.store_xattrs(ino, &xattrs.encode())
    }

    pub(crate) fn remove_xattr(&mut self, ino: u32, name: &[u8]) -> FsResult<()> {
        let mut xattrs = self.xattrs(ino)?;
        if !xattrs.remove(name) {
            return Err(FsError::NoData);
        }
        self.store_xattrs(ino, &xattrs.encode())
    }

    /// Replaces all attributes.
    fn store_xattrs(&mut self, ino: u32, bytes: &[u8]) -> FsResult<()> {
        self.put_xattrs(ino, bytes)?;
        let now = self.store.now();
        self.live(ino)?.attributes().ctime = now;
        Ok(())
    }

    /// Replaces all attributes and leaves the time of change: a record has it.
    pub(crate) fn put_xattrs(&mut self, ino: u32, bytes: &[u8]) -> FsResult<()> {
        if bytes.len() > XATTR_BYTES_MAX {
            return Err(FsError::NoSpace);
        }
        let old = self.xattr_nodes(ino)?;
        let wanted = match bytes.len() <= INLINE_XATTR_BYTES {
            true => 0,
            false => 1 + further_nodes(bytes.len()),
        };
        let inline = self.live(ino)?.inode().inline.len();
        if !bytes.is_empty() {
            self.count_block(ino, inline)?;
        }
        let counted = self.unrecorded_of(ino)?;
        let nodes = self.resized(ino, old, wanted)?;
        self.fill_xattrs(ino, &nodes, bytes)?;
        self.unrecorded.recount_xattrs(counted, bytes.len());
        self.live(ino)?.xattrs_changed = true;
        self.unrecorded.touch(ino);
        Ok(())
    }

    /// Brings the nodes to a number. None has changed where that fails.
    fn resized(&mut self, ino: u32, mut nodes: Nodes, wanted: usize) -> FsResult<Nodes> {
        if wanted > 1 {
            self.admit_large_xattrs()?;
        }
        let mut made = Vec::new();
        let there = usize::from(nodes.first != 0) + nodes.further.len();
        for position in there..wanted {
            match self.new_node(ino, NodeKind::Attributes, position as u32) {
                Ok(nid) => made.push(nid),
                Err(error) => {
                    for nid in made {
                        self.drop_node(ino, nid)?;
                    }
                    return Err(error);
                }
            }
        }
        let mut made = made.into_iter();
        if nodes.first == 0 {
            nodes.first = made.next().unwrap_or(0);
        }
        nodes.further.extend(made);
        for nid in nodes
            .further
            .split_off(wanted.saturating_sub(1).min(nodes.further.len()))
        {
            self.drop_node(ino, nid)?;
        }
        if wanted == 0 && nodes.first != 0 {
            self.drop_node(ino, nodes.first)?;
            nodes.first = 0;
        }
        Ok(nodes)
    }

    /// Writes the attributes into nodes for which they are as many bytes as there have to be, or into the inode.
    fn fill_xattrs(&mut self, ino: u32, nodes: &Nodes, bytes: &[u8]) -> FsResult<()> {
        let nid = nodes.first;
        let inode = self.live(ino)?.inode_mut();
        inode.xattr_nid = nid;
        inode.xattrs = match nid {
            0 => bytes.to_vec(),
            _ => Vec::new(),
        };
        if nid == 0 {
            return Ok(());
        }
        let stored = match bytes.len() <= NODE_XATTR_BYTES {
            true => Stored::Here(bytes),
            false => Stored::Further {
                len: bytes.len(),
                nids: nodes.further.clone(),
            },
        };
        stored.store(self.node(ino, nid, NodeKind::Attributes, 0)?.block_mut());
        let parts = bytes.chunks(FURTHER_XATTR_BYTES);
        for ((position, &nid), part) in positions().zip(&nodes.further).zip(parts) {
            let node = self.node(ino, nid, NodeKind::Attributes, position)?;
            xattr::store_further(node.block_mut(), part);
        }
        Ok(())
    }

    /// Bytes of the attributes that the next group would have to say as they are.
    fn unrecorded_of(&mut self, ino: u32) -> FsResult<usize> {
        match self.live(ino)?.xattrs_changed {
            true => Ok(self.xattr_bytes(ino)?.len()),
            false => Ok(0),
        }
    }

    /// Says in the superblock that attributes may lie in further nodes, before any do.
    fn admit_large_xattrs(&mut self) -> FsResult<()> {
        if self.store.superblock().has_large_xattrs() {
            return Ok(());
        }
        let add = |superblock: &mut Superblock| superblock.incompat |= INCOMPAT_LARGE_XATTRS;
        self.store.admit_in_use(add)
    }

    /// Removes all attributes.
    pub(crate) fn drop_xattrs(&mut self, ino: u32) -> FsResult<()> {
        // Whose the nodes are: nothing else must be given back.
        let nodes = self.xattr_nodes(ino)?;
        let counted = self.unrecorded_of(ino)?;
        let nodes = self.resized(ino, nodes, 0)?;
        self.unrecorded.recount_xattrs(counted, 0);
        self.fill_xattrs(ino, &nodes, &[])
    }

    /// Forgets attributes that cannot be read, and leaves their nodes to whoever called.
    pub(crate) fn lose_xattrs(&mut self, ino: u32) -> FsResult<()> {
        self.fill_xattrs(ino, &Nodes::default(), &[])
    }
}
