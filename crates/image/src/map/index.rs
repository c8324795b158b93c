//! Indexes with one entry for each logical cluster.
//!
//! An extent begins at a *head*, and ends where the next head begins. The look-up of an offset goes back from its
//! lcluster to the head, and ahead to the next one, by the distances that the entries give. No walk is longer than
//! an extent may be.

use std::cell::Cell;
use std::ops::Range;

use anteros_format::features::Incompat;
use anteros_format::inode::Inode;
use anteros_format::lcluster::{FULL_BYTES, HeadKind, Lcluster, PACK_BYTES_MAX, Pack};
use anteros_format::zmap::{IndexHeader, Tail};
use anteros_format::{Corrupt, EXTENT_BYTES_MAX, PCLUSTER_BYTES_MAX};

use super::extent::{Encoding, Extent, Location, Pcluster, Source};
use super::kind::Zmap;
use super::rules::{algorithm_listed, check_extent};
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

/// A file with one index entry for each logical cluster.
pub(super) struct Index<'a> {
    zmap: &'a Zmap,
    index: &'a IndexHeader,
    image: &'a Image,
    inode: &'a Inode,
    /// The pack that was read last, by its offset: entries are asked for one after the other.
    pack: Cell<Option<(u64, [u8; PACK_BYTES_MAX])>>,
}

impl<'a> Index<'a> {
    pub(super) fn new(
        zmap: &'a Zmap,
        index: &'a IndexHeader,
        image: &'a Image,
        inode: &'a Inode,
    ) -> Self {
        Self {
            zmap,
            index,
            image,
            inode,
            pack: Cell::default(),
        }
    }

    pub(super) fn extent_at(&self, offset: u64) -> Result<Extent> {
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
    pub(super) fn verify(&self, range: &Range<u64>, may_go_on: &dyn Fn() -> bool) -> Result<()> {
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
