//! Counting what an image holds.

use std::collections::BTreeMap;
use std::io;

use anteros_core::{Algorithm, FileKind, Table};
use anteros_format::inode::{DataLayout, Inode};
use anteros_format::xattr::XattrRegion;
use anteros_format::{Corrupt, Nid};

use crate::map::{Encoding, Extent, Map, Source};
use crate::{Error, Image, NidSet, Place, Result};

/// Holds what an image holds, in numbers. An inode counts once, however many names it has.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Statistics {
    /// Inodes by kind.
    pub kinds: BTreeMap<FileKind, u64>,
    /// Files, directories and symbolic links with data, by layout.
    pub layouts: BTreeMap<DataLayout, u64>,
    /// Inodes of 64 bytes instead of 32.
    pub extended_inodes: u64,
    /// Names beyond the first of inodes that are no directories.
    pub hard_links: u64,
    /// Regular files whose layout is compressed.
    pub compressed_files: u64,
    /// Regular files whose layout is not.
    pub uncompressed_files: u64,
    /// Sizes of regular files, added up.
    pub file_bytes: u64,
    /// Bytes that the data of regular files takes: pclusters and plain data, shared ones each time
    /// they are used; fragments and holes take none.
    pub file_bytes_stored: u64,
    /// Regular files by size: key `n` counts those of more than 2^(n-1), up to 2^n bytes.
    pub file_sizes: BTreeMap<u32, u64>,
    /// Regular files by what their data takes, as [`file_sizes`](Self::file_sizes).
    pub stored_sizes: BTreeMap<u32, u64>,
    /// Regular files by the extension of their first name, with its dot; empty for those without.
    /// Beyond a few thousand extensions, files with others count as those without.
    pub extensions: BTreeMap<Vec<u8>, ExtensionStatistics>,
    /// Sizes of directories, added up.
    pub directory_bytes: u64,
    /// Size of the packed inode, and what its data takes.
    pub packed_bytes: (u64, u64),
    /// Size of the metabox inode, and what its data takes.
    pub metabox_bytes: (u64, u64),
    /// Bytes that inodes take with their attributes, indexes, tables and inline data.
    pub metadata_bytes: u64,
    /// Compressed extents by algorithm, those of the packed and the metabox inode included.
    pub algorithms: BTreeMap<Algorithm, ExtentStatistics>,
    /// Extents stored as they are in pclusters.
    pub plain_extents: ExtentStatistics,
    /// Pclusters by their length in bytes, each as often as it is used.
    pub pclusters: BTreeMap<u32, u64>,
    /// Tails behind their index.
    pub inline_pclusters: u64,
    /// Extents in the packed inode, and their bytes.
    pub fragments: (u64, u64),
    /// Holes, and their bytes.
    pub holes: (u64, u64),
    /// Inodes that have attributes.
    pub xattr_inodes: u64,
    /// Attributes that lie with their inode.
    pub xattrs_inline: u64,
    /// References to attributes that may be shared.
    pub xattrs_shared: u64,
}

/// Regular files with one extension.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ExtensionStatistics {
    /// Tells how many.
    pub files: u64,
    /// Their sizes, added up.
    pub bytes: u64,
    /// Holds what their data takes.
    pub stored_bytes: u64,
}

/// Extents of one kind.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ExtentStatistics {
    /// Tells how many.
    pub extents: u64,
    /// Bytes they decode to.
    pub bytes: u64,
    /// Bytes of their pclusters.
    pub stored_bytes: u64,
}

impl Statistics {
    /// Inodes in all that have a name.
    pub fn inodes(&self) -> u64 {
        self.kinds.values().sum()
    }
}

/// Counts what an image holds.
///
/// # Errors
///
/// The first thing that cannot be read.
pub fn statistics(image: &Image) -> Result<Statistics> {
    statistics_and_names(image, &mut |_, _| {})
}

/// As [`statistics`], and hands over each name with its inode, further ones included.
///
/// # Errors
///
/// The first thing that cannot be read.
pub fn statistics_and_names(
    image: &Image,
    each_name: &mut dyn FnMut(&[u8], &Inode),
) -> Result<Statistics> {
    let mut counter = Counter {
        image,
        each_name,
        seen: NidSet::new(SEEN_BYTES),
        pending: Stack::default(),
        stats: Statistics::default(),
    };
    let root = image.root()?;
    counter.meet(b"", root.nid, FileKind::Directory)?;
    while let Some(nid) = counter.pending.pop().map_err(unnoted)? {
        counter.directory(&image.inode(nid)?)?;
    }
    let sb = image.superblock();
    counter.stats.packed_bytes = counter.special(sb.packed)?;
    counter.stats.metabox_bytes = counter.special(sb.metabox)?;
    Ok(counter.stats)
}

/// Memory for the set of inodes that were met, in bytes.
const SEEN_BYTES: usize = 1 << 20;
/// Extensions that are counted apart.
const EXTENSIONS_MAX: usize = 8192;

/// Directories that are still to be read.
struct Stack {
    nids: Table<8>,
    count: u64,
}

impl Default for Stack {
    fn default() -> Self {
        Self {
            nids: Table::new(SEEN_BYTES),
            count: 0,
        }
    }
}

impl Stack {
    fn push(&mut self, Nid(nid): Nid) -> io::Result<()> {
        self.nids.set(self.count, nid.to_le_bytes())?;
        self.count += 1;
        Ok(())
    }

    fn pop(&mut self) -> io::Result<Option<Nid>> {
        let Some(last) = self.count.checked_sub(1) else {
            return Ok(None);
        };
        self.count = last;
        Ok(Some(Nid(u64::from_le_bytes(self.nids.get(last)?))))
    }
}

/// Makes the error of a note that the temporary file does not take.
fn unnoted(source: io::Error) -> Error {
    Error::Io {
        place: Place::Image,
        device: "temporary file".into(),
        at: None,
        source,
    }
}

struct Counter<'a> {
    image: &'a Image,
    each_name: &'a mut dyn FnMut(&[u8], &Inode),
    seen: NidSet,
    pending: Stack,
    stats: Statistics,
}

impl Counter<'_> {
    fn directory(&mut self, dir: &Inode) -> Result<()> {
        self.stats.directory_bytes += dir.size;
        let image = self.image;
        let mut outcome = Ok(());
        image.visit_dir(dir, crate::DirCursor::default(), |entry, _| {
            if !matches!(entry.name, b"." | b"..") {
                outcome = self.meet(entry.name, entry.nid, entry.kind);
            }
            match outcome {
                Ok(()) => std::ops::ControlFlow::Continue(()),
                Err(_) => std::ops::ControlFlow::Break(()),
            }
        })?;
        outcome
    }

    fn meet(&mut self, name: &[u8], nid: Nid, kind: FileKind) -> Result<()> {
        if !self.seen.insert(nid).map_err(unnoted)? {
            self.stats.hard_links += u64::from(kind != FileKind::Directory);
            if kind != FileKind::Directory {
                (self.each_name)(name, &self.image.inode(nid)?);
            }
            return Ok(());
        }
        let inode = self.image.inode(nid)?;
        *self.stats.kinds.entry(inode.kind).or_default() += 1;
        self.stats.extended_inodes += u64::from(inode.extended);
        (self.each_name)(name, &inode);
        self.xattrs(&inode)?;
        let stored_bytes = self.data(&inode)?;
        match inode.kind {
            FileKind::Regular => self.file(name, &inode, stored_bytes),
            FileKind::Directory => self.pending.push(nid).map_err(unnoted)?,
            _ => {}
        }
        Ok(())
    }

    fn file(&mut self, name: &[u8], inode: &Inode, stored_bytes: u64) {
        let stats = &mut self.stats;
        match inode.layout.is_compressed() {
            true => stats.compressed_files += 1,
            false => stats.uncompressed_files += 1,
        }
        stats.file_bytes = stats.file_bytes.saturating_add(inode.size);
        stats.file_bytes_stored += stored_bytes;
        *stats.file_sizes.entry(size_class(inode.size)).or_default() += 1;
        *stats
            .stored_sizes
            .entry(size_class(stored_bytes))
            .or_default() += 1;
        let mut key = extension(name);
        if stats.extensions.len() >= EXTENSIONS_MAX && !stats.extensions.contains_key(key) {
            key = b"";
        }
        let extension = stats.extensions.entry(key.to_vec()).or_default();
        extension.files += 1;
        extension.bytes = extension.bytes.saturating_add(inode.size);
        extension.stored_bytes += stored_bytes;
    }

    fn xattrs(&mut self, inode: &Inode) -> Result<()> {
        let Some(bytes) = self.image.xattr_region(inode)? else {
            return Ok(());
        };
        let corrupt = Error::corrupt(Place::Xattrs(inode.nid));
        let region = XattrRegion::parse(&bytes).map_err(&corrupt)?;
        let inline: std::result::Result<Vec<_>, Corrupt> = region.inline().collect();
        self.stats.xattr_inodes += 1;
        self.stats.xattrs_shared += region.shared_ids().count() as u64;
        self.stats.xattrs_inline += inline.map_err(&corrupt)?.len() as u64;
        Ok(())
    }

    /// Counts the extents of an inode, and returns how many bytes they take.
    fn data(&mut self, inode: &Inode) -> Result<u64> {
        let image = self.image;
        let map = image.map(inode)?;
        self.stats.metadata_bytes += metadata_bytes(image, inode, &map)?;
        if inode.size == 0 || !inode.kind.may_have_data() {
            return Ok(0);
        }
        *self.stats.layouts.entry(inode.layout).or_default() += 1;
        let mut stored_bytes = 0u64;
        for extent in image.extents(inode, &map) {
            stored_bytes = stored_bytes.saturating_add(self.extent(&extent?));
        }
        Ok(stored_bytes)
    }

    fn extent(&mut self, extent: &Extent) -> u64 {
        let stats = &mut self.stats;
        let pcluster = match extent.source {
            Source::Raw(_) => return extent.len,
            Source::Hole => {
                stats.holes = (stats.holes.0 + 1, stats.holes.1.saturating_add(extent.len));
                return 0;
            }
            Source::Fragment { .. } => {
                stats.fragments = (
                    stats.fragments.0 + 1,
                    stats.fragments.1.saturating_add(extent.len),
                );
                return 0;
            }
            Source::Pcluster(pcluster) => pcluster,
        };
        let counted = match pcluster.encoding {
            Encoding::Plain | Encoding::Interlaced => &mut stats.plain_extents,
            Encoding::Compressed(algorithm) => stats.algorithms.entry(algorithm).or_default(),
        };
        counted.extents += 1;
        counted.bytes += extent.len;
        counted.stored_bytes += u64::from(pcluster.bytes);
        *stats.pclusters.entry(pcluster.bytes).or_default() += 1;
        stats.inline_pclusters += u64::from(pcluster.inline);
        pcluster.bytes.into()
    }

    fn special(&mut self, nid: Option<Nid>) -> Result<(u64, u64)> {
        let Some(nid) = nid else { return Ok((0, 0)) };
        let inode = self.image.inode(nid)?;
        Ok((inode.size, self.data(&inode)?))
    }
}

fn metadata_bytes(image: &Image, inode: &Inode, map: &Map) -> Result<u64> {
    let start = image.locate(inode.nid)?.address();
    let end = map.metadata_end(inode, image.superblock().block_bits);
    Ok(end.map_or(inode.head_bytes(), |end| end.saturating_sub(start)))
}

/// The smallest `n` with 2^n at least the size.
const fn size_class(size: u64) -> u32 {
    match size {
        0 | 1 => 0,
        size => 64 - (size - 1).leading_zeros(),
    }
}

/// Returns what follows the last dot, with it, unless the name begins there.
fn extension(name: &[u8]) -> &[u8] {
    match name.iter().rposition(|&b| b == b'.') {
        Some(dot) if dot > 0 => &name[dot..],
        _ => b"",
    }
}
