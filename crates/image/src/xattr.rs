//! Extended attributes of inodes.

use anteros_format::Corrupt;
use anteros_format::features::Compat;
use anteros_format::inode::Inode;
use anteros_format::xattr::{
    ENTRY_BYTES, LONG_PREFIX, XattrEntry, XattrRegion, filter_bit, split_name,
};

use crate::map::Location;
use crate::{Error, Image, Place, Result};

/// An extended attribute.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Xattr {
    /// Its full name, as `user.mime_type`.
    pub name: Vec<u8>,
    /// Its value.
    pub value: Vec<u8>,
}

impl Image {
    /// The extended attributes of an inode, inline ones first; hidden ones are left out.
    ///
    /// # Errors
    ///
    /// If the attributes, their prefixes or their place break a rule.
    pub fn xattrs(&self, inode: &Inode) -> Result<Vec<Xattr>> {
        let place = Place::Xattrs(inode.nid);
        let corrupt = Error::corrupt(place);
        let Some(bytes) = self.xattr_region(inode)? else {
            return Ok(Vec::new());
        };
        let region = XattrRegion::parse(&bytes).map_err(&corrupt)?;
        let mut xattrs = Vec::new();
        let mut push = |entry: XattrEntry<'_>, offset| {
            let name = entry
                .name(self.xattr_prefixes(), offset)
                .map_err(&corrupt)?;
            let value = entry.value.to_vec();
            xattrs.extend(name.map(|name| Xattr { name, value }));
            Ok::<_, Error>(())
        };
        for entry in region.inline() {
            let (offset, entry) = entry.map_err(&corrupt)?;
            push(entry, offset)?;
        }
        for id in region.shared_ids() {
            let bytes = self.shared_xattr(place, id)?;
            push(XattrEntry::parse(&bytes, 0).map_err(&corrupt)?, 0)?;
        }
        Ok(xattrs)
    }

    /// The value of one attribute. The name filter spares the search for most that are not there.
    ///
    /// # Errors
    ///
    /// As [`xattrs`](Self::xattrs).
    pub fn xattr(&self, inode: &Inode, name: &[u8]) -> Result<Option<Vec<u8>>> {
        if inode.xattr_bytes == 0 || self.filter_excludes(inode, name)? {
            return Ok(None);
        }
        let found = self
            .xattrs(inode)?
            .into_iter()
            .find(|xattr| xattr.name == name);
        Ok(found.map(|xattr| xattr.value))
    }

    /// The value of the attribute that is a digest of an inode's content: it has no more of a name than the long prefix with
    /// this number.
    pub(crate) fn digest_xattr(&self, inode: &Inode, prefix: u8) -> Result<Option<Vec<u8>>> {
        let place = Place::Xattrs(inode.nid);
        let corrupt = Error::corrupt(place);
        let Some(bytes) = self.xattr_region(inode)? else {
            return Ok(None);
        };
        let value = |entry: XattrEntry<'_>| {
            let is_digest = entry.index == prefix | LONG_PREFIX && entry.suffix.is_empty();
            is_digest.then(|| entry.value.to_vec())
        };
        let region = XattrRegion::parse(&bytes).map_err(&corrupt)?;
        for entry in region.inline() {
            let (_, entry) = entry.map_err(&corrupt)?;
            if let Some(value) = value(entry) {
                return Ok(Some(value));
            }
        }
        for id in region.shared_ids() {
            let bytes = self.shared_xattr(place, id)?;
            let entry = XattrEntry::parse(&bytes, 0).map_err(&corrupt)?;
            if let Some(value) = value(entry) {
                return Ok(Some(value));
            }
        }
        Ok(None)
    }

    fn filter_excludes(&self, inode: &Inode, name: &[u8]) -> Result<bool> {
        if !self.superblock().xattr_filter {
            return Ok(false);
        }
        let Some((index, rest)) = split_name(name) else {
            return Ok(true);
        };
        let Some(bytes) = self.xattr_region(inode)? else {
            return Ok(true);
        };
        let region =
            XattrRegion::parse(&bytes).map_err(Error::corrupt(Place::Xattrs(inode.nid)))?;
        Ok(region.name_filter & filter_bit(index, rest) != 0)
    }

    /// The bytes of an inode's xattr region, if it has one.
    pub(crate) fn xattr_region(&self, inode: &Inode) -> Result<Option<Vec<u8>>> {
        if inode.xattr_bytes == 0 {
            return Ok(None);
        }
        let place = Place::Xattrs(inode.nid);
        let at = self.locate(inode.nid)?.plus(inode.body_bytes());
        let overflow = Corrupt::AddressOverflow {
            what: "the xattr region",
        };
        let at = at.ok_or_else(|| Error::corrupt(place)(overflow))?;
        let mut bytes = vec![0; inode.xattr_bytes as usize];
        self.read_meta(place, at, &mut bytes)?;
        Ok(Some(bytes))
    }

    /// Returns where the shared attribute with this id lies.
    pub(crate) fn shared_xattr_location(&self, id: u32) -> Location {
        let sb = self.superblock();
        let skip = 4 * u64::from(id);
        if sb.compat.contains(Compat::SHARED_EA_IN_METABOX) {
            return Location::Metabox { address: skip };
        }
        let origin = u64::from(sb.xattr_block) << sb.block_bits;
        Location::Device {
            device: 0,
            address: origin + skip,
        }
    }

    /// The bytes of the shared attribute with this id.
    pub(crate) fn shared_xattr(&self, place: Place, id: u32) -> Result<Vec<u8>> {
        let at = self.shared_xattr_location(id);
        let mut head = [0; ENTRY_BYTES];
        self.read_meta(place, at, &mut head)?;
        let mut bytes = vec![0; XattrEntry::bytes_needed(head)];
        self.read_meta(place, at, &mut bytes)?;
        Ok(bytes)
    }
}
