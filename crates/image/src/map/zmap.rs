//! Places where the data of a compressed file lies.
//!
//! An index has one entry for each logical cluster; an extent begins at a *head* and ends where the
//! next head begins. Looking up an offset goes back from its lcluster to the head and ahead to the
//! next one, by the distances that the entries give. No walk is longer than an extent may be.

use std::cell::Cell;
use std::ops::Range;

use anteros_core::Algorithm;
use anteros_format::extent::{ExtentFormat, ExtentRecord};
use anteros_format::features::Incompat;
use anteros_format::inode::Inode;
use anteros_format::lcluster::{
    CompactLayout, FULL_BYTES, HeadKind, Lcluster, PACK_BYTES_MAX, Pack, full_table_offset,
};
use anteros_format::zmap::{ExtentHeader, IndexHeader, MapHeader, Tail, header_offset};
use anteros_format::{
    Corrupt, DEVICE_BYTES_MAX, EXTENT_BYTES_MAX, PCLUSTER_BYTES_MAX, Unsupported,
};

use super::extent::{Encoding, Extent, Location, Pcluster, Source};
use super::kind::{Cursor, Zmap};
use crate::error::{Error, Place, Result};
use crate::image::Image;

/// A head, and where its extent begins and ends in the file.
struct Found {
    lcn: u64,
    kind: HeadKind,
    block: u32,
    partial: bool,
    start: u64,
    end: u64,
}

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
        Index {
            zmap: self,
            index,
            image,
            inode,
            pack: Cell::default(),
        }
    }

    fn records<'a>(
        &'a self,
        header: &'a ExtentHeader,
        image: &'a Image,
        inode: &'a Inode,
    ) -> Records<'a> {
        Records {
            zmap: self,
            header,
            image,
            inode,
        }
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

fn algorithm_listed(image: &Image, place: Place, algorithm: Algorithm) -> Result<Encoding> {
    if !image.superblock().incompat.contains(Incompat::ZERO_PADDING) {
        return Err(Error::Unsupported {
            place,
            fault: Unsupported::NoZeroPadding,
        });
    }
    if !image.superblock().algorithms.contains(algorithm) {
        return Err(Error::corrupt(place)(Corrupt::AlgorithmNotListed {
            name: algorithm,
        }));
    }
    Ok(Encoding::Compressed(algorithm))
}

/// Checks what holds for every encoded extent, however it is indexed.
fn check_extent(place: Place, offset: u64, len: u64, pcluster: &Pcluster) -> Result<()> {
    let corrupt = Error::corrupt(place);
    let encoded = u64::from(pcluster.bytes);
    if len > EXTENT_BYTES_MAX {
        return Err(corrupt(Corrupt::ExtentLength { offset, len }));
    }
    let is_plain = !matches!(pcluster.encoding, Encoding::Compressed(_));
    if is_plain && len > encoded {
        return Err(corrupt(Corrupt::PlainLength {
            offset,
            len,
            encoded,
        }));
    }
    Ok(())
}

/// A file with one index entry for each logical cluster.
struct Index<'a> {
    zmap: &'a Zmap,
    index: &'a IndexHeader,
    image: &'a Image,
    inode: &'a Inode,
    /// The pack that was read last, by its offset: entries are asked for one after the other.
    pack: Cell<Option<(u64, [u8; PACK_BYTES_MAX])>>,
}

impl Index<'_> {
    fn extent_at(&self, offset: u64) -> Result<Extent> {
        let place = Place::Data {
            nid: self.inode.nid,
            offset,
        };
        let found = self.find(place, offset)?;
        let len = found.end - found.start;
        let is_tail = found.end == self.inode.size;
        let source = match self.index.tail {
            Tail::Fragment { offset_lo } if is_tail => {
                // Only full entries have room for the high half.
                let high = if self.index.compact {
                    0
                } else {
                    u64::from(found.block) << 32
                };
                Source::Fragment {
                    offset: high | u64::from(offset_lo),
                }
            }
            Tail::Inline { bytes } if is_tail => {
                let at = self.zmap.end - u64::from(bytes);
                let block = u64::from(self.image.superblock().block_bytes());
                if at % block + u64::from(bytes) > block {
                    let fault = Corrupt::InlinePcluster {
                        len: bytes.into(),
                        at,
                    };
                    return Err(Error::corrupt(place)(fault));
                }
                let location = self.zmap.table.with_address(at);
                Source::Pcluster(self.pcluster(place, &found, location, bytes.into(), true)?)
            }
            _ => {
                let blocks = self.pcluster_blocks(place, &found)?;
                let bits = self.index.lcluster_bits;
                let bytes = u64::from(blocks) << bits;
                if blocks == 0 || bytes > PCLUSTER_BYTES_MAX.into() {
                    return Err(Error::corrupt(place)(Corrupt::PclusterBlocks {
                        lcn: found.lcn,
                        blocks,
                    }));
                }
                if found.block == 0 {
                    return Err(Error::corrupt(place)(Corrupt::PclusterAtZero {
                        offset: found.start,
                    }));
                }
                let location = self.image.resolve(u64::from(found.block) << bits);
                Source::Pcluster(self.pcluster(place, &found, location, bytes as u32, false)?)
            }
        };
        if let Source::Pcluster(pcluster) = &source {
            check_extent(place, found.start, len, pcluster)?;
        }
        Ok(Extent {
            offset: found.start,
            len,
            source,
        })
    }

    /// Finds the head of the extent that holds `offset`, and where the extent ends.
    fn find(&self, place: Place, offset: u64) -> Result<Found> {
        let corrupt = Error::corrupt(place);
        let bits = self.index.lcluster_bits;
        let within = (offset & ((1 << bits) - 1)) as u32;
        let first = offset >> bits;
        let mut lcn = first;
        let mut entry = self.entry(place, lcn)?;
        let mut is_first = true;
        let (kind, clusterofs, block, partial) = loop {
            let back = match entry {
                Lcluster::Head {
                    kind,
                    clusterofs,
                    block,
                    partial,
                } if !is_first || clusterofs <= within => {
                    break (kind, clusterofs, block, partial);
                }
                Lcluster::Head { .. } if lcn == 0 => return Err(corrupt(Corrupt::FirstLcluster)),
                Lcluster::Head { .. } => 1,
                Lcluster::NonHead { back, .. } => u64::from(back),
            };
            let too_far = (first - lcn + back) << bits > self.extent_bytes_max() + (1 << bits);
            if back == 0 || back > lcn || too_far {
                return Err(corrupt(Corrupt::LookBack { lcn, delta: back }));
            }
            lcn -= back;
            is_first = false;
            entry = self.entry(place, lcn)?;
        };
        if lcn == 0 && clusterofs != 0 {
            return Err(corrupt(Corrupt::FirstLcluster));
        }
        let start = (lcn << bits) + u64::from(clusterofs);
        let end = self.end_of(place, lcn, start)?;
        if end <= offset {
            // A head lies between the offset and what it says is its head.
            return Err(corrupt(Corrupt::LookBack {
                lcn: first,
                delta: first - lcn,
            }));
        }
        Ok(Found {
            lcn,
            kind,
            block,
            partial,
            start,
            end,
        })
    }

    /// Returns where the extent that begins at lcluster `head` ends: at the next head, or with the file.
    fn end_of(&self, place: Place, head: u64, start: u64) -> Result<u64> {
        let corrupt = Error::corrupt(place);
        let bits = self.index.lcluster_bits;
        let mut lcn = head + 1;
        loop {
            if lcn >= self.zmap.total {
                return Ok(self.inode.size);
            }
            let len = (lcn << bits) - start;
            if len > self.extent_bytes_max() {
                return Err(corrupt(Corrupt::ExtentLength { offset: start, len }));
            }
            match self.entry(place, lcn)? {
                Lcluster::Head { clusterofs, .. } => {
                    return Ok(((lcn << bits) + u64::from(clusterofs)).min(self.inode.size));
                }
                Lcluster::NonHead { ahead: 0, .. } => {
                    return Err(corrupt(Corrupt::LookAhead { lcn }));
                }
                Lcluster::NonHead { ahead, .. } => lcn += u64::from(ahead),
            }
        }
    }

    /// Every distance must lead to the head of its extent, or to a nonhead in between.
    fn verify(&self, range: &Range<u64>, may_go_on: &dyn Fn() -> bool) -> Result<()> {
        let bits = self.index.lcluster_bits;
        let lclusters = range.start.div_ceil(1 << bits)..range.end.div_ceil(1 << bits);
        // Unknown until the first one of the range.
        let mut head = None;
        // The lcluster furthest ahead that a nonhead of the extent names, and that nonhead.
        let mut furthest = (0, 0);
        let place_of = |lcn: u64| Place::Data {
            nid: self.inode.nid,
            offset: lcn << bits,
        };
        for lcn in lclusters.take_while(|_| may_go_on()) {
            let place = place_of(lcn);
            let corrupt = Error::corrupt(place);
            match self.entry(place, lcn)? {
                Lcluster::Head { .. } => {
                    let (target, from) = furthest;
                    if target > lcn {
                        let delta = target - from;
                        let corrupt = Error::corrupt(place_of(from));
                        return Err(corrupt(Corrupt::LookAheadBeyond {
                            lcn: from,
                            delta,
                            head: lcn,
                        }));
                    }
                    head = Some(lcn);
                }
                Lcluster::NonHead {
                    back,
                    ahead,
                    pcluster_blocks,
                } => {
                    let back = u64::from(back);
                    if back == 0 || back > lcn - head.unwrap_or(0) {
                        return Err(corrupt(Corrupt::LookBack { lcn, delta: back }));
                    }
                    if ahead == 0 {
                        return Err(corrupt(Corrupt::LookAhead { lcn }));
                    }
                    if pcluster_blocks.is_some() && head.is_some_and(|head| lcn != head + 1) {
                        return Err(corrupt(Corrupt::PclusterBlocksStray { lcn }));
                    }
                    furthest = furthest.max((lcn + u64::from(ahead), lcn));
                }
            }
        }
        Ok(())
    }

    /// Returns how long an extent may be: a fragment is bounded by what holds it alone.
    fn extent_bytes_max(&self) -> u64 {
        match self.index.tail {
            Tail::Fragment { .. } => EXTENT_BYTES_MAX.max(self.image.packed_bytes()),
            _ => EXTENT_BYTES_MAX,
        }
    }

    fn pcluster_blocks(&self, place: Place, found: &Found) -> Result<u32> {
        let big = match found.kind {
            HeadKind::Head1 => self.index.big_pcluster_1,
            HeadKind::Head2 | HeadKind::Plain => self.index.big_pcluster_2,
        };
        let next = found.lcn + 1;
        if !big || next >= self.zmap.total {
            return Ok(1);
        }
        match self.entry(place, next)? {
            Lcluster::Head { .. } => Ok(1),
            Lcluster::NonHead {
                pcluster_blocks: Some(blocks),
                ..
            } => Ok(blocks),
            Lcluster::NonHead { .. } => {
                Err(Error::corrupt(place)(Corrupt::PclusterBlocksMissing {
                    lcn: found.lcn,
                }))
            }
        }
    }

    fn pcluster(
        &self,
        place: Place,
        found: &Found,
        location: Location,
        bytes: u32,
        inline: bool,
    ) -> Result<Pcluster> {
        let encoding = match found.kind {
            HeadKind::Plain if found.partial => {
                return Err(Error::corrupt(place)(Corrupt::PartialPlain {
                    offset: found.start,
                }));
            }
            HeadKind::Plain if self.index.interlaced && !inline => Encoding::Interlaced,
            HeadKind::Plain => Encoding::Plain,
            HeadKind::Head1 => algorithm_listed(self.image, place, self.index.head1)?,
            HeadKind::Head2 => {
                let known = self
                    .image
                    .superblock()
                    .incompat
                    .contains(Incompat::DEVICE_TABLE);
                if !known {
                    return Err(Error::corrupt(place)(Corrupt::Head2Feature));
                }
                algorithm_listed(self.image, place, self.index.head2)?
            }
        };
        Ok(Pcluster {
            location,
            bytes,
            encoding,
            partial: found.partial,
            inline,
        })
    }

    /// The bytes of a pack, in front.
    fn pack(&self, place: Place, pack: &Pack) -> Result<[u8; PACK_BYTES_MAX]> {
        if let Some((_, bytes)) = self.pack.get().filter(|(offset, _)| *offset == pack.offset) {
            return Ok(bytes);
        }
        let mut bytes = [0; PACK_BYTES_MAX];
        let at = self.zmap.table.with_address(pack.offset);
        self.image.read_meta(place, at, &mut bytes[..pack.bytes])?;
        self.pack.set(Some((pack.offset, bytes)));
        Ok(bytes)
    }

    fn entry(&self, place: Place, lcn: u64) -> Result<Lcluster> {
        let corrupt = Error::corrupt(place);
        let table = self.zmap.table;
        let entry = match &self.zmap.compact {
            Some(layout) => {
                let pack = layout.pack_of(lcn);
                let bytes = self.pack(place, &pack)?;
                layout.parse(lcn, &pack, &bytes[..pack.bytes])
            }
            None => {
                let mut bytes = [0; FULL_BYTES as usize];
                let at = table.address() + lcn * FULL_BYTES;
                self.image
                    .read_meta(place, table.with_address(at), &mut bytes)?;
                Lcluster::parse_full(lcn, bytes, self.index.lcluster_bits)
            }
        };
        let entry = entry.map_err(&corrupt)?;
        let sized = matches!(
            entry,
            Lcluster::NonHead {
                pcluster_blocks: Some(_),
                ..
            }
        );
        if sized && !self.index.big_pcluster_1 && !self.index.big_pcluster_2 {
            return Err(corrupt(Corrupt::PclusterBlocksStray { lcn }));
        }
        Ok(entry)
    }
}

/// A file with one record for each extent.
struct Records<'a> {
    zmap: &'a Zmap,
    header: &'a ExtentHeader,
    image: &'a Image,
    inode: &'a Inode,
}

impl Records<'_> {
    fn extent_at(&self, offset: u64) -> Result<Extent> {
        let place = Place::Data {
            nid: self.inode.nid,
            offset,
        };
        let (index, start, record) = if self.header.is_fixed_size() {
            let index = offset >> self.header.lcluster_bits;
            let record = match self.header.record_bytes {
                4 => self.accumulated(place, index)?,
                _ => self.record(place, index)?,
            };
            (index, index << self.header.lcluster_bits, record)
        } else {
            let (index, record) = self.search(place, offset)?;
            (index, record.lstart, record)
        };
        let last = index + 1 == self.zmap.total;
        let end = self.end_of(place, index, start, last)?;
        let len = end - start;
        if last && self.header.fragment {
            let offset = record.fragment_offset(self.header.record_bytes);
            return Ok(Extent {
                offset: start,
                len,
                source: Source::Fragment { offset },
            });
        }
        let source = self.source(place, start, len, &record)?;
        Ok(Extent {
            offset: start,
            len,
            source,
        })
    }

    fn source(&self, place: Place, start: u64, len: u64, record: &ExtentRecord) -> Result<Source> {
        let (bytes, algorithm, partial) = match record.format().map_err(Error::at(place))? {
            ExtentFormat::Hole => return Ok(Source::Hole),
            ExtentFormat::Encoded {
                bytes,
                algorithm,
                partial,
            } => (bytes, algorithm, partial),
        };
        if record.pstart == 0 {
            return Err(Error::corrupt(place)(Corrupt::PclusterAtZero {
                offset: start,
            }));
        }
        let end = record.pstart.checked_add(bytes.into());
        if end.is_none_or(|end| end > DEVICE_BYTES_MAX) {
            return Err(Error::corrupt(place)(Corrupt::AddressOverflow {
                what: "its pcluster",
            }));
        }
        let block = u64::from(self.image.superblock().block_bytes());
        let aligned = (record.pstart | u64::from(bytes)) % block == 0;
        let encoding = match algorithm {
            Some(algorithm) => algorithm_listed(self.image, place, algorithm)?,
            None if self.header.interlaced && aligned => Encoding::Interlaced,
            None => Encoding::Plain,
        };
        let location = self.image.resolve(record.pstart);
        let pcluster = Pcluster {
            location,
            bytes,
            encoding,
            partial,
            inline: false,
        };
        check_extent(place, start, len, &pcluster)?;
        Ok(Source::Pcluster(pcluster))
    }

    fn end_of(&self, place: Place, index: u64, start: u64, last: bool) -> Result<u64> {
        let size = self.inode.size;
        if last {
            return Ok(size);
        }
        if self.header.is_fixed_size() {
            return Ok(size.min((index + 1) << self.header.lcluster_bits));
        }
        let next = self.record(place, index + 1)?.lstart;
        if next <= start || next >= size {
            let fault = Corrupt::ExtentOrder {
                index: index + 1,
                start: next,
                lower: start,
                upper: size,
            };
            return Err(Error::corrupt(place)(fault));
        }
        Ok(next)
    }

    /// File offsets must ascend from 0.
    fn verify(&self, may_go_on: &dyn Fn() -> bool) -> Result<()> {
        let size = self.inode.size;
        let mut lower = 0;
        for index in (0..self.zmap.total).take_while(|_| may_go_on()) {
            let place = Place::Data {
                nid: self.inode.nid,
                offset: lower,
            };
            let start = self.record(place, index)?.lstart;
            let is_first = index == 0;
            if (start == 0) != is_first || start < lower || start >= size {
                let upper = if is_first { 0 } else { size };
                let fault = Corrupt::ExtentOrder {
                    index,
                    start,
                    lower,
                    upper,
                };
                return Err(Error::corrupt(place)(fault));
            }
            lower = start + 1;
        }
        Ok(())
    }

    /// The last record that begins at or before `offset`.
    fn search(&self, place: Place, offset: u64) -> Result<(u64, ExtentRecord)> {
        let first = self.record(place, 0)?;
        if first.lstart != 0 {
            let fault = Corrupt::ExtentOrder {
                index: 0,
                start: first.lstart,
                lower: 0,
                upper: 0,
            };
            return Err(Error::corrupt(place)(fault));
        }
        let (mut low, mut high, mut found) = (0, self.zmap.total, first);
        while high - low > 1 {
            let middle = low + (high - low) / 2;
            let record = self.record(place, middle)?;
            if record.lstart <= offset {
                (low, found) = (middle, record);
            } else {
                high = middle;
            }
        }
        Ok((low, found))
    }

    /// Record `index` of those whose addresses accumulate. Goes on from where the last look-up
    /// ended, if that was before.
    fn accumulated(&self, place: Place, index: u64) -> Result<ExtentRecord> {
        let mut cursor = self
            .zmap
            .cursor
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner);
        if cursor.1 == 0 || cursor.0 > index {
            let mut start = [0; 8];
            self.image.read_meta(place, self.zmap.table, &mut start)?;
            *cursor = (0, u64::from_le_bytes(start));
        }
        loop {
            let mut record = self.record(place, cursor.0)?;
            if cursor.0 == index {
                record.pstart = cursor.1;
                return Ok(record);
            }
            let bytes = u64::from(record.plen & anteros_format::extent::PLEN_MASK);
            let next = cursor
                .1
                .checked_add(bytes)
                .filter(|&next| next < DEVICE_BYTES_MAX);
            let overflow = || Corrupt::AddressOverflow {
                what: "its pcluster",
            };
            let next = next.ok_or_else(|| Error::corrupt(place)(overflow()))?;
            *cursor = (cursor.0 + 1, next);
        }
    }

    fn record(&self, place: Place, index: u64) -> Result<ExtentRecord> {
        let bytes = u64::from(self.header.record_bytes);
        // In front of accumulating records stands their start address.
        let first = if bytes == 4 { 8 } else { 0 };
        let at = self.zmap.table.address() + first + index * bytes;
        let mut record = [0; 32];
        let record = &mut record[..bytes as usize];
        self.image
            .read_meta(place, self.zmap.table.with_address(at), record)?;
        Ok(ExtentRecord::parse(record))
    }
}
