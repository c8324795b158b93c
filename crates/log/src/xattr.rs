//! Extended attributes: in the inode if they fit, else in a node of their own.

use anteros_core::{FsError, FsResult};

use crate::layout::node::{INLINE_XATTR_BYTES, NodeKind};
use crate::layout::xattr::Xattrs;
use crate::layout::{BLOCK_BYTES, Block, Corrupt};
use crate::state::State;

/// States where the attributes begin in their node: a length of two bytes, and then they.
const AT: usize = 34;
const BYTES_MAX: usize = BLOCK_BYTES - AT;

/// `setxattr(2)`: the attribute must not be there, or must be.
const CREATE: u32 = 1;
const REPLACE: u32 = 2;

/// The attributes in their node.
pub(crate) fn stored(block: &Block, nid: u32) -> Result<&[u8], Corrupt> {
    let len = usize::from(u16::from_le_bytes([block[AT - 2], block[AT - 1]]));
    let bytes = block.get(AT..AT + len);
    bytes.ok_or(Corrupt::Node {
        nid,
        rule: "the attributes exceed their node",
        found: len as u64,
    })
}

impl State {
    /// All attributes, as they are stored.
    pub(crate) fn xattr_bytes(&mut self, ino: u32) -> FsResult<Vec<u8>> {
        let live = self.live(ino)?;
        let nid = live.inode().xattr_nid;
        if nid == 0 {
            return Ok(live.inode().xattrs.clone());
        }
        let block = self.node(ino, nid, NodeKind::Attributes, 0)?.block();
        Ok(stored(block, nid)?.to_vec())
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
        let now = self.now();
        self.live(ino)?.attributes().ctime = now;
        Ok(())
    }

    /// The same, at no time: that comes with the record that says so.
    pub(crate) fn put_xattrs(&mut self, ino: u32, bytes: &[u8]) -> FsResult<()> {
        if bytes.len() > BYTES_MAX {
            return Err(FsError::NoSpace);
        }
        if bytes.len() <= INLINE_XATTR_BYTES {
            self.drop_xattrs(ino)?;
            self.live(ino)?.inode_mut().xattrs = bytes.to_vec();
        } else {
            let mut nid = self.live(ino)?.inode().xattr_nid;
            if nid == 0 {
                nid = self.new_node(ino, NodeKind::Attributes, 0)?;
            }
            let block = self.node(ino, nid, NodeKind::Attributes, 0)?.block_mut();
            block[AT - 2..AT].copy_from_slice(&(bytes.len() as u16).to_le_bytes());
            block[AT..AT + bytes.len()].copy_from_slice(bytes);
            block[AT + bytes.len()..].fill(0);
            let inode = self.live(ino)?.inode_mut();
            inode.xattr_nid = nid;
            inode.xattrs.clear();
        }
        self.live(ino)?.xattrs_changed = true;
        self.touched.insert(ino);
        Ok(())
    }

    /// Removes all attributes.
    pub(crate) fn drop_xattrs(&mut self, ino: u32) -> FsResult<()> {
        let nid = self.live(ino)?.inode().xattr_nid;
        if nid != 0 {
            // Whose it is: nothing else must be given back.
            self.node(ino, nid, NodeKind::Attributes, 0)?;
        }
        let inode = self.live(ino)?.inode_mut();
        inode.xattrs.clear();
        let nid = std::mem::take(&mut inode.xattr_nid);
        if nid != 0 {
            self.drop_node(ino, nid)?;
        }
        Ok(())
    }
}
