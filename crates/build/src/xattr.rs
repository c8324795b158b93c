//! Extended attributes: reading them, and which are stored once for many inodes.

use std::collections::HashMap;
use std::ffi::{OsStr, OsString};
use std::ops::Range;
use std::os::fd::RawFd;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anteros_format::xattr::{
    ENTRY_BYTES, HEADER_BYTES, RawXattrEntry, RawXattrHeader, filter_bit, icount_for, split_name,
};
use rustix::fs::{lgetxattr, llistxattr};
use rustix::io::Errno;
use zerocopy::IntoBytes;

use crate::Error;
use crate::prefixes::{Prefixes, split_stored};

/// Most shared attributes of an inode: the field has 8 bits.
const SHARED_MAX: usize = u8::MAX as usize;

/// Longest name of an attribute; the kernel has no longer ones.
const NAME_BYTES_MAX: usize = 255;
/// Longest value: the field has 16 bits.
const VALUE_BYTES_MAX: usize = u16::MAX as usize;

/// An attribute with its full name.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Xattr {
    name: Box<[u8]>,
    value: Box<[u8]>,
}

impl Xattr {
    /// An attribute whose name EROFS has a place for.
    ///
    /// # Errors
    ///
    /// Text that tells which part of it is too long.
    pub fn new(name: &[u8], value: &[u8]) -> Result<Self, String> {
        if name.len() > NAME_BYTES_MAX {
            let (name, len) = (name.escape_ascii(), name.len());
            return Err(format!(
                "the attribute {name} has a name of {len} bytes; {NAME_BYTES_MAX} are the most"
            ));
        }
        if value.len() > VALUE_BYTES_MAX {
            return Err(too_long(name, value.len()));
        }
        Ok(Self {
            name: name.into(),
            value: value.into(),
        })
    }

    pub fn name(&self) -> &[u8] {
        &self.name
    }

    pub fn value(&self) -> &[u8] {
        &self.value
    }

    fn bytes(&self, prefixes: &Prefixes) -> usize {
        let (_, suffix) = prefixes.split(&self.name);
        (ENTRY_BYTES + suffix.len() + self.value.len()).next_multiple_of(4)
    }

    fn encode(&self, prefixes: &Prefixes, out: &mut Vec<u8>) {
        let (name_index, suffix) = prefixes.split(&self.name);
        let raw = RawXattrEntry {
            name_len: suffix.len() as u8, // at most 255, as a prefix only shortens it
            name_index,
            value_size: (self.value.len() as u16).into(), // at most 65,535, see `Xattr::new`
        };
        out.extend_from_slice(raw.as_bytes());
        out.extend_from_slice(suffix);
        out.extend_from_slice(&self.value);
        out.resize(out.len().next_multiple_of(4), 0);
    }
}

/// Every distinct attribute of a tree, and which node has which.
#[derive(Debug, Default)]
pub(crate) struct XattrTable {
    known: HashMap<Arc<Xattr>, u32>,
    xattrs: Vec<(Arc<Xattr>, u32)>,
    /// Ids of attributes, those of a node together.
    lists: Vec<u32>,
}

impl XattrTable {
    /// Keeps the attributes of a node; answers where in the lists.
    pub fn add(&mut self, mut found: Vec<Xattr>) -> Range<u32> {
        found.sort_unstable();
        let start = self.lists.len() as u32;
        for xattr in found {
            let id = self.intern(xattr);
            self.xattrs[id as usize].1 += 1;
            self.lists.push(id);
        }
        start..self.lists.len() as u32
    }

    /// Gives a node another value of an attribute, or takes the attribute away; answers where in the lists its attributes
    /// are then.
    pub fn replace(&mut self, list: Range<u32>, name: &[u8], value: Option<&[u8]>) -> Range<u32> {
        let mut ids = self.list(&list).to_vec();
        let mut names = ids.iter().map(|&id| &self.xattrs[id as usize].0.name);
        if value.is_none() && names.all(|other| **other != *name) {
            return list;
        }
        for &id in &ids {
            self.xattrs[id as usize].1 -= 1;
        }
        ids.retain(|id| *self.xattrs[*id as usize].0.name != *name);
        if let Some(value) = value {
            let [name, value] = [name, value].map(Into::into);
            ids.push(self.intern(Xattr { name, value }));
        }
        ids.sort_unstable_by(|a, b| self.xattrs[*a as usize].0.cmp(&self.xattrs[*b as usize].0));
        let start = self.lists.len() as u32;
        for &id in &ids {
            self.xattrs[id as usize].1 += 1;
        }
        self.lists.extend(ids);
        start..self.lists.len() as u32
    }

    fn intern(&mut self, xattr: Xattr) -> u32 {
        if let Some(&id) = self.known.get(&xattr) {
            return id;
        }
        let id = self.xattrs.len() as u32;
        let xattr = Arc::new(xattr);
        self.known.insert(xattr.clone(), id);
        self.xattrs.push((xattr, 0));
        id
    }

    /// Returns whether no node has any.
    pub fn is_empty(&self) -> bool {
        self.xattrs.iter().all(|(_, uses)| *uses == 0)
    }

    /// The attributes of a node.
    pub fn of(&self, range: &Range<u32>) -> impl Iterator<Item = &Xattr> {
        let list = self.list(range).iter();
        list.map(|id| &*self.xattrs[*id as usize].0)
    }

    /// Decides what is shared: what more than `above` inodes have.
    pub fn share(&self, above: u32, prefixes: Prefixes) -> SharedXattrs {
        let mut shared = SharedXattrs {
            ids: vec![None; self.xattrs.len()],
            prefixes,
            ..Default::default()
        };
        for ((xattr, uses), id) in self.xattrs.iter().zip(&mut shared.ids) {
            if *uses > above {
                *id = Some((shared.area.len() / 4) as u32);
                xattr.encode(&shared.prefixes, &mut shared.area);
                shared.count += 1;
            }
        }
        shared
    }

    fn list(&self, range: &Range<u32>) -> &[u32] {
        &self.lists[range.start as usize..range.end as usize]
    }
}

/// The attributes that are stored once.
#[derive(Debug, Default)]
pub(crate) struct SharedXattrs {
    /// For each attribute of the table where it lies, in units of 4 bytes.
    ids: Vec<Option<u32>>,
    /// The bytes of all of them.
    pub area: Vec<u8>,
    pub count: u64,
    pub prefixes: Prefixes,
}

impl SharedXattrs {
    /// The id of a shared attribute, or the attribute, of each in a list: shared ones first, as far
    /// as an inode can have them.
    fn split(&self, list: &[u32]) -> (Vec<u32>, Vec<u32>) {
        let (mut shared, mut inline) = (Vec::new(), Vec::new());
        for &xattr in list {
            match self.ids[xattr as usize] {
                Some(id) if shared.len() < SHARED_MAX => shared.push(id),
                _ => inline.push(xattr),
            }
        }
        (shared, inline)
    }

    /// `i_xattr_icount` of an inode with these attributes; `None` if they are too many.
    pub fn icount(&self, table: &XattrTable, range: &Range<u32>) -> Option<u16> {
        let (shared, inline) = self.split(table.list(range));
        let bytes = |id: &u32| table.xattrs[*id as usize].0.bytes(&self.prefixes);
        let inline = inline.iter().map(bytes);
        icount_for(4 * shared.len() + inline.sum::<usize>())
    }

    /// Appends the xattr region of an inode. The first shared attribute has the id `first_id`.
    pub fn encode(
        &self,
        table: &XattrTable,
        range: &Range<u32>,
        (filter, first_id): (bool, u32),
        out: &mut Vec<u8>,
    ) {
        let list = table.list(range);
        if list.is_empty() {
            return;
        }
        let (shared, inline) = self.split(list);
        let header = RawXattrHeader {
            name_filter: if filter { !names_bits(table, list) } else { 0 }.into(),
            shared_count: shared.len() as u8,
            reserved: [0; HEADER_BYTES - 5],
        };
        out.extend_from_slice(header.as_bytes());
        for id in shared {
            out.extend_from_slice(&(first_id + id).to_le_bytes());
        }
        for id in inline {
            table.xattrs[id as usize].0.encode(&self.prefixes, out);
        }
    }
}

/// The bits of the name filter that a list's names set. Long prefixes make no difference.
fn names_bits(table: &XattrTable, list: &[u32]) -> u32 {
    list.iter().fold(0, |bits, &id| {
        let name = &table.xattrs[id as usize].0.name;
        let (index, suffix) = split_stored(name);
        bits | filter_bit(index, suffix)
    })
}

/// Tells where a file lies whose attributes are wanted.
pub(crate) struct Place<'a> {
    /// Its directory, held open.
    pub directory: RawFd,
    /// Its name there; empty for the directory itself.
    pub name: &'a [u8],
    /// Its path, for messages.
    pub full: &'a Path,
}

/// Holds what a file has.
#[derive(Debug, Default)]
pub(crate) struct Found {
    pub kept: Vec<Xattr>,
    /// Names that EROFS has no place for.
    pub skipped: Vec<Vec<u8>>,
}

/// Reads attributes. There is no call that takes a directory and a name, so the path leads through
/// `/proc/self/fd`; where that is missing it is the plain one.
pub(crate) struct ReadXattrs {
    has_proc: bool,
    names: Vec<u8>,
    value: Vec<u8>,
}

impl ReadXattrs {
    pub fn new() -> Self {
        Self {
            has_proc: Path::new("/proc/self/fd").is_dir(),
            names: vec![0; 64 << 10], // the most the kernel lists
            value: vec![0; 64 << 10], // the most it stores
        }
    }

    pub fn read(&mut self, place: &Place<'_>) -> Result<Found, Error> {
        let path = self.path(place);
        let fail = |action, e: Errno| Error::Source {
            path: place.full.to_owned(),
            action,
            cause: e.into(),
        };
        let len = match llistxattr(&path, &mut self.names[..]) {
            Ok(len) => len,
            Err(Errno::NOTSUP) => 0,
            Err(e) => return Err(fail("list extended attributes", e)),
        };
        let mut found = Found::default();
        for name in self.names[..len]
            .split(|&b| b == 0)
            .filter(|name| !name.is_empty())
        {
            if split_name(name).is_none() {
                found.skipped.push(name.to_vec());
                continue;
            }
            match lgetxattr(&path, OsStr::from_bytes(name), &mut self.value[..]) {
                Ok(len) => {
                    let xattr = Xattr::new(name, &self.value[..len]);
                    let unstorable = |reason| Error::Unstorable {
                        path: place.full.to_owned(),
                        reason,
                    };
                    found.kept.push(xattr.map_err(unstorable)?);
                }
                Err(Errno::NODATA) => {} // listed for form's sake, as some file systems do
                Err(e) => return Err(fail("read an extended attribute", e)),
            }
        }
        Ok(found)
    }

    fn path(&self, place: &Place<'_>) -> PathBuf {
        if !self.has_proc {
            return place.full.to_owned();
        }
        let mut path = format!("/proc/self/fd/{}/", place.directory).into_bytes();
        path.extend_from_slice(if place.name.is_empty() {
            b"."
        } else {
            place.name
        });
        OsString::from_vec(path).into()
    }
}

fn too_long(name: &[u8], len: usize) -> String {
    let name = name.escape_ascii();
    format!("the attribute {name} has a value of {len} bytes; {VALUE_BYTES_MAX} is the most")
}

#[cfg(test)]
mod tests {
    use anteros_format::xattr::{XattrRegion, region_bytes};

    use super::*;

    fn xattr(name: &str, value: &[u8]) -> Xattr {
        Xattr {
            name: name.as_bytes().into(),
            value: value.into(),
        }
    }

    #[test]
    fn an_inode_shares_255_attributes_and_keeps_the_rest() {
        let mut table = XattrTable::default();
        let many = |_| {
            let names = (0..300).map(|n| xattr(&format!("user.{n:03}"), b"value"));
            table.add(names.collect())
        };
        let lists = [0, 1, 2].map(many);
        let shared = table.share(2, Prefixes::default());
        assert_eq!(shared.count, 300);
        for list in lists {
            let mut region = Vec::new();
            shared.encode(&table, &list, (true, 0), &mut region);
            let icount = shared.icount(&table, &list).unwrap();
            assert_eq!(region.len() as u32, region_bytes(icount).unwrap());
            let parsed = XattrRegion::parse(&region).unwrap();
            assert_eq!(parsed.shared_ids().count(), 255);
            let inline: Vec<_> = parsed.inline().map(|e| e.unwrap().1.suffix).collect();
            assert_eq!((inline.len(), inline[0]), (45, &b"255"[..]));
        }
    }

    #[test]
    fn the_filter_knows_every_name() {
        let mut table = XattrTable::default();
        let list = table.add(vec![xattr("user.a", b"1"), xattr("trusted.b", b"2")]);
        let mut region = Vec::new();
        let shared = table.share(5, Prefixes::default());
        shared.encode(&table, &list, (true, 0), &mut region);
        let filter = XattrRegion::parse(&region).unwrap().name_filter;
        assert_eq!(filter & filter_bit(1, b"a"), 0);
        assert_eq!(filter & filter_bit(4, b"b"), 0);
        assert!(filter.count_ones() >= 30);
    }

    #[test]
    fn too_many_attributes_for_an_inode_are_told() {
        let mut table = XattrTable::default();
        let names = (0..5).map(|n| xattr(&format!("user.{n}"), &[7; 65_000]));
        let list = table.add(names.collect());
        let shared = table.share(1, Prefixes::default());
        assert_eq!(shared.icount(&table, &list), None);
    }
}
