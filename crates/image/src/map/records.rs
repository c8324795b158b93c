//! Indexes with one record for each extent (*encoded extents*).

use anteros_core::unpoisoned;
use anteros_format::extent::{ExtentFormat, ExtentRecord};
use anteros_format::inode::Inode;
use anteros_format::zmap::ExtentHeader;
use anteros_format::{Corrupt, DEVICE_BYTES_MAX};

use super::extent::{Encoding, Extent, Pcluster, Source};
use super::kind::Zmap;
use super::rules::{algorithm_listed, check_extent};
use crate::error::{Error, Place, Result};
use crate::image::Image;

/// A file with one record for each extent.
pub(super) struct Records<'a> {
    zmap: &'a Zmap,
    header: &'a ExtentHeader,
    image: &'a Image,
    inode: &'a Inode,
}

impl<'a> Records<'a> {
    pub(super) const fn new(
        zmap: &'a Zmap,
        header: &'a ExtentHeader,
        image: &'a Image,
        inode: &'a Inode,
    ) -> Self {
        Self {
            zmap,
            header,
            image,
            inode,
        }
    }

    pub(super) fn extent_at(&self, offset: u64) -> Result<Extent> {
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
    pub(super) fn verify(&self, may_go_on: &dyn Fn() -> bool) -> Result<()> {
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
        let mut cursor = unpoisoned(self.zmap.cursor.lock());
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
