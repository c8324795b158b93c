//! Places where the data of a file lies.

use std::ops::Range;
use std::sync::Mutex;

use anteros_core::Algorithm;
use anteros_format::chunk::{Chunk, ChunkFormat};
use anteros_format::inode::{DataLayout, Inode};
use anteros_format::zmap::MapHeader;
use anteros_format::{Corrupt, DEVICE_BYTES_MAX};

use crate::zmap::Zmap;
use crate::{Error, Image, Place, Result};

/// Tells where bytes lie.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Location {
    /// At a byte of a device; device 0 is the primary one.
    Device {
        /// Tells which device.
        device: u16,
        /// Bytes from its start.
        address: u64,
    },
    /// At a byte of the metabox inode's content.
    Metabox {
        /// Bytes from its start.
        address: u64,
    },
}

impl Location {
    /// So many bytes further on; `None` on overflow.
    pub fn plus(self, bytes: u64) -> Option<Self> {
        let add = |address: u64| address.checked_add(bytes).filter(|&a| a < DEVICE_BYTES_MAX);
        Some(match self {
            Self::Device { device, address } => Self::Device {
                device,
                address: add(address)?,
            },
            Self::Metabox { address } => Self::Metabox {
                address: add(address)?,
            },
        })
    }

    /// Bytes from the start of the space it lies in.
    pub const fn address(self) -> u64 {
        match self {
            Self::Device { address, .. } | Self::Metabox { address } => address,
        }
    }

    pub(crate) const fn with_address(self, address: u64) -> Self {
        match self {
            Self::Device { device, .. } => Self::Device { device, address },
            Self::Metabox { .. } => Self::Metabox { address },
        }
    }
}

/// Tells how a pcluster holds its extent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Encoding {
    /// As it is, from the beginning of the pcluster on.
    Plain,
    /// As it is, but rotated so that each byte keeps its offset within a block.
    Interlaced,
    /// Compressed.
    Compressed(Algorithm),
}

/// The encoded form of an extent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Pcluster {
    /// Tells where it begins.
    pub location: Location,
    /// Its length.
    pub bytes: u32,
    /// Tells how it is encoded.
    pub encoding: Encoding,
    /// Tells whether the extent is only the front of what it decodes to.
    pub partial: bool,
    /// Tells whether it lies behind the index, as tails may.
    pub inline: bool,
}

/// Tells what an extent's bytes are made from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Source {
    /// Nothing: zeros.
    Hole,
    /// Bytes as they are.
    Raw(Location),
    /// An encoded pcluster.
    Pcluster(Pcluster),
    /// Bytes of the packed inode from this offset on.
    Fragment {
        /// The offset there.
        offset: u64,
    },
}

/// A run of bytes of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Extent {
    /// Tells where it begins in the file.
    pub offset: u64,
    /// Tells how long it is, at least one byte.
    pub len: u64,
    /// Holds what it is made from.
    pub source: Source,
}

impl Extent {
    /// Returns where it ends in the file.
    pub const fn end(&self) -> u64 {
        self.offset + self.len
    }

    /// The extent that this one and the next make together, if they are alike and adjacent.
    fn join(&self, next: &Self) -> Option<Self> {
        let joined = match (self.source, next.source) {
            (Source::Hole, Source::Hole) => true,
            (Source::Raw(a), Source::Raw(b)) => a.plus(self.len) == Some(b),
            _ => false,
        };
        joined.then_some(Self {
            len: self.len + next.len,
            ..*self
        })
    }
}

/// Describes how to find the extents of a file: what its inode says about its data, checked.
#[derive(Debug)]
pub struct Map(Kind);

#[derive(Debug)]
enum Kind {
    /// No data at all: not a regular file, directory or symlink, or empty.
    Empty,
    Flat {
        start: Option<u64>,
        inline_at: Option<Location>,
    },
    Chunks {
        format: ChunkFormat,
        head_end: Location,
    },
    Compressed(Zmap),
}

impl Image {
    /// Finds out how a file's data is stored.
    ///
    /// # Errors
    ///
    /// If what follows the inode breaks a rule, or is unknown.
    pub fn map(&self, inode: &Inode) -> Result<Map> {
        let place = Place::Inode(inode.nid);
        let corrupt = Error::corrupt(place);
        let sb = self.superblock();
        let has_data = inode.size > 0 && inode.kind.may_have_data();
        if !has_data {
            return Ok(Map(Kind::Empty));
        }
        let head_end = self.locate(inode.nid)?.plus(inode.head_bytes());
        let head_end =
            head_end.ok_or_else(|| corrupt(Corrupt::AddressOverflow { what: "inode" }))?;
        Ok(Map(match (inode.layout, inode.chunk_format) {
            (DataLayout::ChunkBased, Some(format)) => Kind::Chunks { format, head_end },
            (layout, _) if layout.is_compressed() => {
                Kind::Compressed(Zmap::open(self, inode, head_end)?)
            }
            (layout, _) => {
                let inline = layout == DataLayout::FlatInline;
                if inline {
                    let len = inode.size - inline_start(inode.size, sb.block_bits);
                    let offset = head_end.address();
                    if offset % u64::from(sb.block_bytes()) + len > sb.block_bytes().into() {
                        return Err(corrupt(Corrupt::InlineCrossesBlock { offset, len }));
                    }
                }
                Kind::Flat {
                    start: inode.start_block,
                    inline_at: inline.then_some(head_end),
                }
            }
        }))
    }

    /// The extent that holds byte `offset` of the file, which must lie below its size.
    ///
    /// # Errors
    ///
    /// If the index breaks a rule there. That the bytes lie on their device is seen when they are
    /// read.
    pub fn extent_at(&self, inode: &Inode, map: &Map, offset: u64) -> Result<Extent> {
        debug_assert!(offset < inode.size);
        match &map.0 {
            Kind::Empty => Ok(Extent {
                offset,
                len: inode.size - offset,
                source: Source::Hole,
            }),
            Kind::Flat { start, inline_at } => self.flat_extent(inode, *start, *inline_at, offset),
            Kind::Chunks { format, head_end } => {
                self.chunk_extent(inode, *format, *head_end, offset)
            }
            Kind::Compressed(zmap) => zmap.extent_at(self, inode, offset),
        }
    }

    /// The extents of a file in order, side by side, holes included. Adjacent ones that are alike are joined.
    /// Stops behind the first error.
    pub fn extents<'a>(
        &'a self,
        inode: &'a Inode,
        map: &'a Map,
    ) -> impl Iterator<Item = Result<Extent>> + use<'a> {
        self.extents_from(inode, map, 0)
    }

    /// As [`extents`](Self::extents), from the one that holds byte `offset` on.
    pub fn extents_from<'a>(
        &'a self,
        inode: &'a Inode,
        map: &'a Map,
        offset: u64,
    ) -> impl Iterator<Item = Result<Extent>> + use<'a> {
        let mut next = offset;
        let size = inode.size;
        let mut parts = std::iter::from_fn(move || {
            let extent = (next < size).then(|| {
                let extent = self.extent_at(inode, map, next)?;
                match next == offset || extent.offset == next {
                    true => Ok(extent),
                    false => Err(aside(inode, next, extent.offset)),
                }
            })?;
            next = extent.as_ref().map_or(size, Extent::end);
            Some(extent)
        })
        .peekable();
        std::iter::from_fn(move || {
            let mut extent = match parts.next()? {
                Ok(extent) => extent,
                error => return Some(error),
            };
            while let Some(Ok(next)) = parts.peek() {
                let Some(joined) = extent.join(next) else {
                    break;
                };
                extent = joined;
                parts.next();
            }
            Some(Ok(extent))
        })
    }

    fn flat_extent(
        &self,
        inode: &Inode,
        start: Option<u64>,
        inline_at: Option<Location>,
        offset: u64,
    ) -> Result<Extent> {
        let bits = self.superblock().block_bits;
        let blocks_end = match inline_at {
            Some(_) => inline_start(inode.size, bits),
            None => inode.size,
        };
        if let Some(location) = inline_at.filter(|_| offset >= blocks_end) {
            let len = inode.size - blocks_end;
            return Ok(Extent {
                offset: blocks_end,
                len,
                source: Source::Raw(location),
            });
        }
        let Some(block) = start else {
            return Ok(Extent {
                offset: 0,
                len: blocks_end,
                source: Source::Hole,
            });
        };
        let location = self.block_location(inode, 0, block, blocks_end)?;
        Ok(Extent {
            offset: 0,
            len: blocks_end,
            source: Source::Raw(location),
        })
    }

    fn chunk_extent(
        &self,
        inode: &Inode,
        format: ChunkFormat,
        head_end: Location,
        offset: u64,
    ) -> Result<Extent> {
        let place = Place::Data {
            nid: inode.nid,
            offset,
        };
        let corrupt = Error::corrupt(place);
        let sb = self.superblock();
        let chunk = offset >> format.chunk_bits;
        let start = chunk << format.chunk_bits;
        let len = (inode.size - start).min(1 << format.chunk_bits);
        let at = format
            .entry_offset(head_end.address(), chunk)
            .map_err(&corrupt)?;
        let mut entry = [0; 8];
        let entry = &mut entry[..format.entry_bytes() as usize];
        self.read_meta(place, head_end.with_address(at), entry)?;
        let source = match format.entry(entry, sb.device_id_mask()) {
            Chunk::Hole => Source::Hole,
            Chunk::At { device, block } => {
                if device > sb.extra_devices {
                    let devices = sb.extra_devices;
                    return Err(corrupt(Corrupt::ChunkDevice {
                        chunk,
                        device,
                        devices,
                    }));
                }
                Source::Raw(self.block_location(inode, device, block, len)?)
            }
        };
        Ok(Extent {
            offset: start,
            len,
            source,
        })
    }

    /// Checks the index of a compressed file for the bytes `range`, entry by entry: also what
    /// [`extent_at`](Self::extent_at) only sees from some offsets.
    pub(crate) fn verify_index(
        &self,
        inode: &Inode,
        map: &Map,
        range: &Range<u64>,
        may_go_on: &dyn Fn() -> bool,
    ) -> Result<()> {
        match &map.0 {
            Kind::Compressed(zmap) => zmap.verify(self, inode, range, may_go_on),
            _ => Ok(()),
        }
    }

    /// Returns where a block of a device lies; device 0 is the unified address space.
    fn block_location(&self, inode: &Inode, device: u16, block: u64, len: u64) -> Result<Location> {
        let bits = self.superblock().block_bits;
        let end = block
            .checked_mul(1 << bits)
            .and_then(|address| address.checked_add(len));
        if end.is_none_or(|end| end > DEVICE_BYTES_MAX) {
            let fault = Corrupt::AddressOverflow { what: "its data" };
            return Err(Error::Corrupt {
                place: Place::Inode(inode.nid),
                fault,
            });
        }
        let address = block << bits;
        Ok(match device {
            0 => self.resolve(address),
            device => Location::Device { device, address },
        })
    }
}

impl Map {
    /// The map header of a compressed file.
    pub fn header(&self) -> Option<&MapHeader> {
        match &self.0 {
            Kind::Compressed(zmap) => Some(&zmap.header),
            _ => None,
        }
    }

    /// Returns where the inline data of a flat file lies.
    pub(crate) const fn inline_location(&self) -> Option<Location> {
        match &self.0 {
            Kind::Flat { inline_at, .. } => *inline_at,
            _ => None,
        }
    }

    /// Returns where indexes, tables and inline data that follow the inode end.
    pub(crate) fn metadata_end(&self, inode: &Inode, block_bits: u8) -> Option<u64> {
        match &self.0 {
            Kind::Empty
            | Kind::Flat {
                inline_at: None, ..
            } => None,
            Kind::Flat {
                inline_at: Some(at),
                ..
            } => Some(at.address() + (inode.size - inline_start(inode.size, block_bits))),
            Kind::Chunks { format, head_end } => {
                let chunks = inode.size.div_ceil(1 << format.chunk_bits);
                format.entry_offset(head_end.address(), chunks).ok()
            }
            Kind::Compressed(zmap) => Some(zmap.metadata_end()),
        }
    }
}

/// A hostile index may say otherwise of a place than of the one before it.
fn aside(inode: &Inode, end: u64, start: u64) -> Error {
    let place = Place::Data {
        nid: inode.nid,
        offset: end,
    };
    Error::corrupt(place)(Corrupt::ExtentAside { end, start })
}

/// Returns where the inline part of a flat file begins: the last block, which may be full.
fn inline_start(size: u64, block_bits: u8) -> u64 {
    (size - 1) >> block_bits << block_bits
}

/// Remembers where accumulated addresses were left off.
pub(crate) type Cursor = Mutex<(u64, u64)>;
