//! The images of `tests/fixtures`, in memory, to be read or spoiled.

#![allow(dead_code)] // each test uses its part

use std::collections::HashSet;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use anteros_core::Device;
use anteros_format::dirent::{DIRENT_BYTES, RawDirent};
use anteros_format::inode::{
    DataLayout, FORMAT_EXTENDED, FORMAT_LAYOUT_SHIFT, Inode, RawCompactInode, RawExtendedInode,
};
use anteros_format::lcluster::RawFullIndex;
use anteros_format::superblock::{RawSuperblock, SUPERBLOCK_OFFSET, checksum, checksum_len};
use anteros_format::zmap::RawMapHeader;
use anteros_format::{Nid, SLOT_BYTES};
use anteros_image::{
    CheckOptions, CheckReport, Extent, Image, Map, OpenOptions, OwnedDirent, Result, Severity,
    Source, Xattr, check,
};
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes};

/// All of them.
pub const FIXTURES: [&str; 26] = [
    "48bit",
    "48bit-fixed",
    "all-fragments",
    "blobdev",
    "chunk-indexes",
    "chunks",
    "deflate",
    "directories",
    "dot-omitted",
    "fragments",
    "fragments-dedupe",
    "hints",
    "lz4",
    "lz4-512",
    "lz4hc-64k",
    "lz4hc-extended",
    "lz4hc-full-16k",
    "lzma",
    "metabox",
    "metabox-lzma",
    "plain",
    "xattr-prefix",
    "xattr-prefix-packed",
    "zstd",
    "ztailpacking",
    "ztailpacking-full",
];

/// The bytes of an image and of its extra device.
#[derive(Clone)]
pub struct Fixture {
    pub bytes: Vec<u8>,
    /// The extra device, and how often to give it.
    pub extra: Option<Vec<u8>>,
    pub extra_count: usize,
}

impl Fixture {
    /// Reads `tests/fixtures/<name>.erofs`.
    pub fn read(name: &str) -> Self {
        let dir = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../tests/fixtures");
        let bytes = std::fs::read(dir.join(name).with_extension("erofs")).unwrap();
        Self {
            bytes,
            extra: std::fs::read(dir.join(name).with_extension("blob")).ok(),
            extra_count: 1,
        }
    }

    /// Opens it without verifying the checksum.
    pub fn open(&self) -> Result<Image> {
        let options = OpenOptions {
            verify_checksum: false,
            ..OpenOptions::default()
        };
        self.open_with(options)
    }

    pub fn open_with(&self, options: OpenOptions) -> Result<Image> {
        let extra = self
            .extra
            .iter()
            .map(|bytes| Arc::new(bytes.clone()) as Arc<dyn Device>);
        let extra = extra.flat_map(|device| vec![device; self.extra_count]);
        Image::open(Arc::new(self.bytes.clone()), extra.collect(), options)
    }
}

/// Finding fields, and changing them.
impl Fixture {
    /// Changes a structure at a byte of the image.
    pub fn edit<T: FromBytes + IntoBytes + Immutable>(
        mut self,
        at: usize,
        change: impl FnOnce(&mut T),
    ) -> Self {
        let bytes = &mut self.bytes[at..at + size_of::<T>()];
        let mut value = T::read_from_bytes(bytes).unwrap();
        change(&mut value);
        value.write_to(bytes).unwrap();
        self
    }

    /// Overwrites bytes of the image.
    pub fn put(mut self, at: usize, bytes: &[u8]) -> Self {
        self.bytes[at..at + bytes.len()].copy_from_slice(bytes);
        self
    }

    pub fn superblock(self, change: impl FnOnce(&mut RawSuperblock)) -> Self {
        self.edit(SUPERBLOCK_OFFSET as usize, change)
    }

    /// Makes the checksum right again.
    pub fn sealed(self) -> Self {
        let block_bits = self.open().unwrap().superblock().block_bits;
        let start = SUPERBLOCK_OFFSET as usize;
        let sum = checksum(&self.bytes[start..start + checksum_len(block_bits)]);
        self.superblock(|sb| sb.checksum = sum.into())
    }

    /// The inode with this path.
    pub fn inode(&self, path: &str) -> Inode {
        self.open().unwrap().find(path.as_bytes()).unwrap()
    }

    /// Returns where an inode begins.
    pub fn inode_offset(&self, path: &str) -> usize {
        self.nid_offset(self.inode(path).nid)
    }

    fn nid_offset(&self, nid: Nid) -> usize {
        assert!(!nid.in_metabox());
        let image = self.open().unwrap();
        let sb = image.superblock();
        ((u64::from(sb.meta_block) << sb.block_bits) + nid.0 * SLOT_BYTES) as usize
    }

    /// Changes a compact inode that may have no name.
    pub fn edit_inode(self, nid: Nid, change: impl FnOnce(&mut RawCompactInode)) -> Self {
        assert!(!self.open().unwrap().inode(nid).unwrap().extended);
        let at = self.nid_offset(nid);
        self.edit(at, change)
    }

    pub fn compact(self, path: &str, change: impl FnOnce(&mut RawCompactInode)) -> Self {
        assert!(!self.inode(path).extended);
        let at = self.inode_offset(path);
        self.edit(at, change)
    }

    pub fn extended(self, path: &str, change: impl FnOnce(&mut RawExtendedInode)) -> Self {
        assert!(self.inode(path).extended);
        let at = self.inode_offset(path);
        self.edit(at, change)
    }

    /// Returns where an inode's xattr region begins.
    pub fn xattr_offset(&self, path: &str) -> usize {
        self.inode_offset(path) + self.inode(path).body_bytes() as usize
    }

    /// Returns where an inode's map header begins.
    pub fn map_offset(&self, path: &str) -> usize {
        (self.inode_offset(path) + self.inode(path).head_bytes() as usize).next_multiple_of(8)
    }

    pub fn map_header(self, path: &str, change: impl FnOnce(&mut RawMapHeader)) -> Self {
        let at = self.map_offset(path);
        self.edit(at, change)
    }

    /// Returns where an inode's chunk table begins, the entries of which have 8 bytes, or 4.
    pub fn chunk_table_offset(&self, path: &str) -> usize {
        let inode = self.inode(path);
        let entry = inode.chunk_format.unwrap().entry_bytes() as usize;
        (self.inode_offset(path) + inode.head_bytes() as usize).next_multiple_of(entry)
    }

    /// Changes the map header of the packed inode.
    pub fn packed_map_header(self, change: impl FnOnce(&mut RawMapHeader)) -> Self {
        let image = self.open().unwrap();
        let packed = image.inode(image.superblock().packed.unwrap()).unwrap();
        let at = self.nid_offset(packed.nid) + packed.head_bytes() as usize;
        self.edit(at.next_multiple_of(8), change)
    }

    /// Changes a full index entry.
    pub fn index(self, path: &str, lcn: usize, change: impl FnOnce(&mut RawFullIndex)) -> Self {
        let at = self.map_offset(path) + 16 + 8 * lcn;
        self.edit(at, change)
    }

    /// Moves an inode to a new block at the end of the image, and puts `tail` behind its head.
    pub fn move_inode(self, path: &str, tail: &[u8]) -> Self {
        let head = self.inode(path).head_bytes() as usize;
        let from = self.inode_offset(path);
        let mut inode = self.bytes[from..from + head].to_vec();
        inode.resize(head.next_multiple_of(8), 0);
        inode.extend_from_slice(tail);
        self.with_inode(path, &inode)
    }

    /// Gives a name another inode: these bytes and what follows it, at the end of the image.
    pub fn with_inode(self, path: &str, inode: &[u8]) -> Self {
        let (dir, name) = path.rsplit_once('/').unwrap();
        let index = self.entry_index(dir, name);
        let (image, block) = self.append(inode);
        let nid = image.nid_at(block);
        image.dirent(dir, index, |entry| entry.nid = nid.0.into())
    }

    /// The node id of what lies at the beginning of a block.
    pub fn nid_at(&self, block: u32) -> Nid {
        let at = u64::from(block) << self.block_bits();
        Nid((at - self.nid_offset(Nid(0)) as u64) / SLOT_BYTES)
    }

    /// Appends bytes to the image, and says in which block they begin.
    pub fn append(mut self, bytes: &[u8]) -> (Self, u32) {
        let bits = self.block_bits();
        let block = self.bytes.len() >> bits;
        self.bytes.extend_from_slice(bytes);
        self.bytes
            .resize(self.bytes.len().next_multiple_of(1 << bits), 0);
        let blocks = (self.bytes.len() >> bits) as u32;
        (
            self.superblock(|sb| sb.blocks_lo = blocks.into()),
            block as u32,
        )
    }

    fn block_bits(&self) -> u8 {
        self.open().unwrap().superblock().block_bits
    }

    /// The extents of a file.
    pub fn extents(&self, path: &str) -> Vec<Extent> {
        let image = self.open().unwrap();
        let inode = self.inode(path);
        let map = image.map(&inode).unwrap();
        image.extents(&inode, &map).collect::<Result<_>>().unwrap()
    }

    /// Returns where the first byte of a file lies, as it is or encoded.
    pub fn data_offset(&self, path: &str) -> usize {
        match self.extents(path)[0].source {
            Source::Raw(location) => location.address() as usize,
            Source::Pcluster(pcluster) => pcluster.location.address() as usize,
            other => panic!("{path}: {other:?}"),
        }
    }

    /// Changes entry `index` of the first block of a directory.
    pub fn dirent(self, dir: &str, index: usize, change: impl FnOnce(&mut RawDirent)) -> Self {
        let at = self.data_offset(dir) + DIRENT_BYTES * index;
        self.edit(at, change)
    }

    /// Returns where the name of such an entry begins.
    pub fn name_offset(&self, dir: &str, index: usize) -> usize {
        let block = self.data_offset(dir);
        let entry = &self.bytes[block + DIRENT_BYTES * index..][..DIRENT_BYTES];
        block + usize::from(RawDirent::read_from_bytes(entry).unwrap().nameoff.get())
    }

    /// Returns which entry of the first block of a directory has a name.
    pub fn entry_index(&self, dir: &str, name: &str) -> usize {
        let entries = self.open().unwrap().read_dir(&self.inode(dir)).unwrap();
        entries
            .iter()
            .position(|entry| entry.name == name.as_bytes())
            .unwrap()
    }
}

/// Asking a spoiled image.
impl Fixture {
    pub fn find(&self, path: &str) -> Result<Inode> {
        self.open().unwrap().find(path.as_bytes())
    }

    pub fn map(&self, path: &str) -> Result<Map> {
        self.open().unwrap().map(&self.inode(path))
    }

    pub fn try_extents(&self, path: &str) -> Result<Vec<Extent>> {
        let image = self.open().unwrap();
        let inode = self.inode(path);
        let map = image.map(&inode)?;
        image.extents(&inode, &map).collect()
    }

    pub fn content(&self, path: &str) -> Result<Vec<u8>> {
        let image = self.open().unwrap();
        let inode = self.inode(path);
        let map = image.map(&inode)?;
        let mut content = vec![0; inode.size as usize];
        image.read(&inode, &map, 0, &mut content)?;
        Ok(content)
    }

    pub fn read_dir(&self, path: &str) -> Result<Vec<OwnedDirent>> {
        self.open().unwrap().read_dir(&self.inode(path))
    }

    pub fn xattrs(&self, path: &str) -> Result<Vec<Xattr>> {
        self.open().unwrap().xattrs(&self.inode(path))
    }

    pub fn check(&self) -> CheckReport {
        let options = CheckOptions {
            workers: 2,
            ..CheckOptions::default()
        };
        check(
            &self.open().unwrap(),
            &options,
            &(),
            &AtomicBool::new(false),
        )
    }

    /// Returns what a check finds, as people read it, notes left out.
    pub fn faults(&self) -> Vec<String> {
        let findings = self.check().findings.into_iter();
        findings
            .filter(|f| f.severity() > Severity::Note)
            .map(|f| f.to_string())
            .collect()
    }
}

/// An extended inode of a file, whose data is yet to be told.
pub fn file_inode(layout: DataLayout, size: u64) -> RawExtendedInode {
    let mut inode = RawExtendedInode::new_zeroed();
    inode.i_format = (FORMAT_EXTENDED | (layout as u16) << FORMAT_LAYOUT_SHIFT).into();
    inode.i_mode = 0o100_644.into();
    inode.i_size = size.into();
    inode.i_nlink = 1.into();
    inode
}

/// Reads everything there is to read, as far as it can be.
pub fn read_all(image: &Image) {
    let mut seen = HashSet::new();
    let mut pending: Vec<Inode> = image.root().into_iter().collect();
    while let Some(inode) = pending.pop().filter(|_| seen.len() < 2000) {
        if !seen.insert(inode.nid) {
            continue;
        }
        let _ = image.xattrs(&inode);
        let _ = image.read_link(&inode);
        let _ = image.lookup(&inode, b"hello");
        let entries = image.read_dir(&inode).unwrap_or_default();
        pending.extend(
            entries
                .iter()
                .filter_map(|entry| image.inode(entry.nid).ok()),
        );
        let Ok(map) = image.map(&inode) else { continue };
        let mut buf = [0; 3000];
        for offset in [
            0,
            1,
            4095,
            10_000,
            inode.size / 2,
            inode.size.saturating_sub(9),
        ] {
            let _ = image.read(&inode, &map, offset, &mut buf);
        }
        let _ = image
            .extents(&inode, &map)
            .take(1000)
            .filter_map(Result::ok)
            .count();
    }
}
