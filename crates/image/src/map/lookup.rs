//! Finding the extents of a file.

use std::ops::Range;

use anteros_format::chunk::{Chunk, ChunkFormat};
use anteros_format::inode::{DataLayout, Inode};
use anteros_format::{Corrupt, DEVICE_BYTES_MAX};

use super::extent::{Extent, Location, Source};
use super::kind::{Kind, Map, Zmap, inline_start};
use crate::error::{Error, Place, Result};
use crate::image::Image;

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

    /// Checks the index of a compressed file for the bytes `range`, entry by entry. It finds faults
    /// that [`extent_at`](Self::extent_at) meets from some offsets only.
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

/// Returns the error of an index that says otherwise of a place than of the one before it, as a
/// hostile one may.
fn aside(inode: &Inode, end: u64, start: u64) -> Error {
    let place = Place::Data {
        nid: inode.nid,
        offset: end,
    };
    Error::corrupt(place)(Corrupt::ExtentAside { end, start })
}
