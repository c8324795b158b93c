//! Reading inodes and other metadata, through a cache.

use std::sync::Arc;

use anteros_format::inode::{EXTENDED_BYTES, Inode};
use anteros_format::{Corrupt, DEVICE_BYTES_MAX, Nid, SLOT_BYTES};

use super::Image;
use crate::error::{Error, Place, Result};
use crate::map::{Location, Map};

/// Metadata is read and cached in runs of so many bytes.
const META_CHUNK: u64 = 4 << 10;

impl Image {
    /// The root directory.
    ///
    /// # Errors
    ///
    /// As [`inode`](Self::inode).
    pub fn root(&self) -> Result<Inode> {
        self.inode(self.sb.root)
    }

    /// Reads an inode.
    ///
    /// # Errors
    ///
    /// If it lies outside the image, breaks a rule or is of an unknown form.
    pub fn inode(&self, nid: Nid) -> Result<Inode> {
        let place = Place::Inode(nid);
        let at = self.locate(nid)?;
        let mut bytes = [0; EXTENDED_BYTES];
        self.read_meta(place, at, &mut bytes[..2])?;
        let needed = Inode::bytes_needed([bytes[0], bytes[1]]);
        self.read_meta(place, at, &mut bytes[..needed])?;
        Inode::parse(nid, &bytes[..needed], &self.sb).map_err(Error::at(place))
    }

    /// Place at which an inode begins.
    pub(crate) fn locate(&self, nid: Nid) -> Result<Location> {
        let corrupt = Error::corrupt(Place::Inode(nid));
        let overflow = || corrupt(Corrupt::AddressOverflow { what: "the inode" });
        let bytes = nid.slot().checked_mul(SLOT_BYTES).ok_or_else(overflow)?;
        if nid.in_metabox() {
            return match self.sb.metabox {
                Some(_) => Ok(Location::Metabox { address: bytes }),
                None => Err(corrupt(Corrupt::NoMetabox { nid })),
            };
        }
        let origin = u64::from(self.sb.meta_block) << self.sb.block_bits;
        let address = bytes.checked_add(origin).filter(|&a| a < DEVICE_BYTES_MAX);
        Ok(Location::Device {
            device: 0,
            address: address.ok_or_else(overflow)?,
        })
    }

    /// Returns where an inode begins on the primary device, and its length with attributes, index
    /// and inline data. Returns `None` for an inode in the metabox.
    ///
    /// # Errors
    ///
    /// If what follows the inode breaks a rule, or is unknown.
    pub fn record(&self, inode: &Inode) -> Result<Option<(u64, u64)>> {
        let location = self.locate(inode.nid)?;
        let Location::Device { address, .. } = location else {
            return Ok(None);
        };
        let map = self.map(inode)?;
        let head = address + inode.head_bytes();
        let end = map.metadata_end(inode, self.sb.block_bits);
        Ok(Some((address, end.unwrap_or(head).max(head) - address)))
    }

    /// Reads metadata through the cache.
    pub(crate) fn read_meta(&self, place: Place, at: Location, buf: &mut [u8]) -> Result<()> {
        match at {
            Location::Device { device: 0, address } => self.read_meta_device(place, address, buf),
            Location::Device { .. } => self.read_raw(place, at, buf),
            Location::Metabox { address } => {
                let Some((inode, map)) = &self.metabox else {
                    return Err(Error::corrupt(place)(Corrupt::NoMetabox {
                        nid: Nid(1 << 63),
                    }));
                };
                self.read_bounded(place, (inode, map), "metabox", address, buf)
            }
        }
    }

    fn read_meta_device(&self, place: Place, mut address: u64, mut buf: &mut [u8]) -> Result<()> {
        while !buf.is_empty() {
            let start = address / META_CHUNK * META_CHUNK;
            let chunk = self.meta_chunk(place, start)?;
            let skip = (address - start) as usize;
            let count = chunk.len().saturating_sub(skip).min(buf.len());
            if count == 0 {
                // Beyond the end: the device says how.
                return self.read_raw(place, Location::Device { device: 0, address }, buf);
            }
            buf[..count].copy_from_slice(&chunk[skip..skip + count]);
            address += count as u64;
            buf = &mut buf[count..];
        }
        Ok(())
    }

    /// Returns whether an inode can be read without a device.
    pub(crate) fn has_inode(&self, nid: Nid) -> bool {
        let chunks = self.inode_chunks(nid);
        chunks.is_none_or(|mut chunks| chunks.all(|at| self.meta_cache.get(&at).is_some()))
    }

    /// Has the device fetch an inode.
    pub(crate) fn prefetch_inode(&self, nid: Nid) {
        for address in self.inode_chunks(nid).into_iter().flatten() {
            if self.meta_cache.get(&address).is_none() {
                let at = Location::Device { device: 0, address };
                self.will_need(at, META_CHUNK);
            }
        }
    }

    /// Places of the metadata chunks that hold an inode; `None` if it is in the metabox.
    fn inode_chunks(&self, nid: Nid) -> Option<impl Iterator<Item = u64> + use<>> {
        let Ok(Location::Device { address, .. }) = self.locate(nid) else {
            return None;
        };
        let first = address / META_CHUNK * META_CHUNK;
        let end = address + EXTENDED_BYTES as u64;
        Some((first..end).step_by(META_CHUNK as usize))
    }

    fn meta_chunk(&self, place: Place, start: u64) -> Result<Arc<[u8]>> {
        if let Some(chunk) = self.meta_cache.get(&start) {
            return Ok(chunk);
        }
        let len = META_CHUNK.min(self.devices[0].size().saturating_sub(start));
        let mut chunk = vec![0; len as usize];
        self.read_raw(
            place,
            Location::Device {
                device: 0,
                address: start,
            },
            &mut chunk,
        )?;
        let chunk: Arc<[u8]> = chunk.into();
        self.meta_cache.put(start, chunk.clone());
        Ok(chunk)
    }

    /// Bytes of metadata in the cache.
    pub(crate) fn metadata_cached(&self) -> usize {
        self.meta_cache.bytes()
    }

    pub(super) fn read_bounded(
        &self,
        place: Place,
        (inode, map): (&Inode, &Map),
        of: &'static str,
        address: u64,
        buf: &mut [u8],
    ) -> Result<()> {
        let end = address.saturating_add(buf.len() as u64);
        if end > inode.size {
            let fault = Corrupt::OutOfBounds {
                what: "it",
                end,
                of,
                size: inode.size,
            };
            return Err(Error::Corrupt { place, fault });
        }
        self.read_exact(inode, map, address, buf)
    }
}
