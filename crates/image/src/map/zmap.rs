//! Places where the data of a compressed file lies.
//!
//! The header tells which of three forms the index has: one entry for each logical cluster (`index`), one record
//! for each extent (`records`), or none, where all of the file is a fragment.

use std::ops::Range;

use anteros_format::features::Incompat;
use anteros_format::inode::Inode;
use anteros_format::lcluster::{CompactLayout, FULL_BYTES, full_table_offset};
use anteros_format::zmap::{ExtentHeader, IndexHeader, MapHeader, Tail, header_offset};
use anteros_format::{Corrupt, DEVICE_BYTES_MAX};

use super::extent::{Extent, Location, Source};
use super::index::Index;
use super::kind::{Cursor, Zmap};
use super::records::Records;
use crate::error::{Error, Place, Result};
use crate::image::Image;

impl Zmap {
    pub(crate) fn open(image: &Image, inode: &Inode, head_end: Location) -> Result<Self> {
        let place = Place::Inode(inode.nid);
        let corrupt = Error::corrupt(place);
        let sb = image.superblock();
        let at = header_offset(head_end.address()).map_err(&corrupt)?;
        let mut bytes = [0; anteros_format::zmap::HEADER_BYTES];
        image.read_meta(place, head_end.with_address(at), &mut bytes)?;
        let header =
            MapHeader::parse(&bytes, inode.layout, sb.block_bits).map_err(Error::at(place))?;
        let blocks = inode.size.div_ceil(sb.block_bytes().into());
        let (table, total, bytes, compact) = match &header {
            MapHeader::WholeFragment { .. } => (at, 0, Some(16), None),
            MapHeader::Indexed(index) if index.compact => {
                let big = index.big_pcluster_1;
                let layout =
                    CompactLayout::new(at, blocks, index.lcluster_bits, index.compacted_2b, big);
                let layout = layout.map_err(&corrupt)?;
                (at + 8, blocks, Some(layout.index_bytes()), Some(layout))
            }
            MapHeader::Indexed(_) => {
                let table = full_table_offset(at).map_err(&corrupt)?;
                (table, blocks, blocks.checked_mul(FULL_BYTES), None)
            }
            MapHeader::Extents(extents) => {
                let table = extents.table_offset(at).map_err(&corrupt)?;
                let records = extents.records(inode.size).map_err(&corrupt)?;
                let first = if extents.record_bytes == 4 { 8 } else { 0 };
                let bytes = records.checked_mul(extents.record_bytes.into());
                (
                    table,
                    records,
                    bytes.and_then(|bytes| bytes.checked_add(first)),
                    None,
                )
            }
        };
        let inline = match &header {
            MapHeader::Indexed(IndexHeader {
                tail: Tail::Inline { bytes },
                ..
            }) => (*bytes).into(),
            _ => 0,
        };
        let end = bytes.and_then(|bytes| table.checked_add(bytes)?.checked_add(inline));
        let end = end.filter(|&end| end < DEVICE_BYTES_MAX);
        let end = end.ok_or_else(|| corrupt(Corrupt::AddressOverflow { what: "an index" }))?;
        let table = head_end.with_address(table);
        let cursor = Cursor::new((0, 0));
        let zmap = Self {
            header,
            table,
            end,
            total,
            compact,
            cursor,
        };
        zmap.check(image, inode)?;
        Ok(zmap)
    }

    fn check(&self, image: &Image, inode: &Inode) -> Result<()> {
        let corrupt = Error::corrupt(Place::Inode(inode.nid));
        let fragment = match &self.header {
            MapHeader::WholeFragment { .. } => true,
            MapHeader::Indexed(index) => {
                let big = index.big_pcluster_1 || index.big_pcluster_2;
                if big && !image.superblock().incompat.contains(Incompat::COMPR_CFGS) {
                    return Err(corrupt(Corrupt::BigPclusterFeature));
                }
                matches!(index.tail, Tail::Fragment { .. })
            }
            MapHeader::Extents(extents) => extents.fragment,
        };
        if fragment && image.is_packed(inode.nid) {
            return Err(corrupt(Corrupt::FragmentInPacked));
        }
        Ok(())
    }

    fn index<'a>(
        &'a self,
        index: &'a IndexHeader,
        image: &'a Image,
        inode: &'a Inode,
    ) -> Index<'a> {
        Index::new(self, index, image, inode)
    }

    fn records<'a>(
        &'a self,
        header: &'a ExtentHeader,
        image: &'a Image,
        inode: &'a Inode,
    ) -> Records<'a> {
        Records::new(self, header, image, inode)
    }

    pub(crate) fn extent_at(&self, image: &Image, inode: &Inode, offset: u64) -> Result<Extent> {
        match &self.header {
            MapHeader::WholeFragment { offset } => {
                let source = Source::Fragment { offset: *offset };
                Ok(Extent {
                    offset: 0,
                    len: inode.size,
                    source,
                })
            }
            MapHeader::Indexed(index) => self.index(index, image, inode).extent_at(offset),
            MapHeader::Extents(extents) => self.records(extents, image, inode).extent_at(offset),
        }
    }
}

/// Verifying an index, entry by entry.
impl Zmap {
    /// Checks the entries of the bytes `range`; those of extent records all at once, with the first
    /// range. Ends early, and well, when `may_go_on` says so, which is asked once for each entry.
    ///
    /// # Errors
    ///
    /// The first entry that breaks a rule.
    pub(crate) fn verify(
        &self,
        image: &Image,
        inode: &Inode,
        range: &Range<u64>,
        may_go_on: &dyn Fn() -> bool,
    ) -> Result<()> {
        match &self.header {
            MapHeader::WholeFragment { .. } => Ok(()),
            MapHeader::Indexed(index) => self.index(index, image, inode).verify(range, may_go_on),
            MapHeader::Extents(header) if !header.is_fixed_size() && range.start == 0 => {
                self.records(header, image, inode).verify(may_go_on)
            }
            MapHeader::Extents(_) => Ok(()),
        }
    }
}
