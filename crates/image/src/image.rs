//! Opening an image, and finding things in its metadata.

use std::io::{self, IoSliceMut};
use std::ops::Range;
use std::sync::Arc;

use anteros_core::{Device, FileKind};
use anteros_format::compr_cfg::ComprCfgs;
use anteros_format::features::{Compat, Incompat};
use anteros_format::inode::{EXTENDED_BYTES, Inode};
use anteros_format::superblock::{self, DeviceSlot, RawDeviceSlot, SUPERBLOCK_OFFSET, Superblock};
use anteros_format::xattr::LongPrefix;
use anteros_format::{Corrupt, DEVICE_BYTES_MAX, Nid, SLOT_BYTES, align_up};
use zerocopy::FromBytes;

use crate::cache::Cache;
use crate::map::Location;
use crate::serve::counters::add;
use crate::serve::serving::{Serve, Strategy};
use crate::{Error, Extent, Map, Place, Result};

/// Options for opening an image.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OpenOptions {
    /// Makes a wrong superblock checksum an error.
    pub verify_checksum: bool,
    /// The most bytes that caches of data and metadata, and decoding for reads of single pieces, may
    /// take together. What one read cannot do without is taken all the same
    /// ([`Image::cache_bytes_min`]).
    pub cache_bytes: usize,
    /// Threads that read at once; what each keeps for itself counts as well.
    pub readers: usize,
    /// The longest read that such a thread makes, in bytes.
    pub read_bytes: usize,
    /// Strategy for decoding pclusters for single reads.
    pub strategy: Strategy,
}

impl Default for OpenOptions {
    /// Checksums matter, and 16 MiB.
    fn default() -> Self {
        Self {
            verify_checksum: true,
            cache_bytes: 16 << 20,
            readers: 1,
            read_bytes: 1 << 20,
            strategy: Strategy::default(),
        }
    }
}

/// A device of the image.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeviceInfo {
    /// Name of it in messages.
    pub name: String,
    /// Its size in bytes.
    pub size: u64,
    /// Slot of the device table; the primary device has none.
    pub slot: Option<DeviceSlot>,
}

/// An open image. Shared by reference between threads.
pub struct Image {
    devices: Vec<Arc<dyn Device>>,
    sb: Superblock,
    cfgs: ComprCfgs,
    slots: Vec<DeviceSlot>,
    prefixes: Vec<LongPrefix>,
    /// Content of the metabox inode, and of the packed inode.
    metabox: Option<(Inode, Map)>,
    packed: Option<(Inode, Map)>,
    meta_cache: Cache<u64>,
    pub(crate) serve: Serve,
}

/// Metadata is read and cached in runs of so many bytes.
const META_CHUNK: u64 = 4 << 10;

/// The bytes that a medium loses at a time, where it does not say so itself.
const FAULTY_BLOCK: u64 = 4 << 10;

/// The most bytes of metadata in the cache.
const META_CACHE_BYTES_MAX: usize = 3 << 20;

/// The most that a metabox may be larger than the image it is in. Real ones are a few times smaller;
/// no codec gets further than this with metadata, as inodes have different numbers.
const METABOX_RATIO_MAX: u64 = 1024;

/// Extents from this length on are large.
const LARGE_EXTENT_BYTES: u64 = 1 << 20;

impl Image {
    /// Opens an image of a primary device and its extra devices, in the order of its device table.
    ///
    /// # Errors
    ///
    /// If the superblock, or what it refers to, is broken or unknown, if devices are missing or
    /// too small, or if the medium fails.
    pub fn open(
        primary: Arc<dyn Device>,
        extra: Vec<Arc<dyn Device>>,
        options: OpenOptions,
    ) -> Result<Self> {
        let head = read_head(&*primary)?;
        let sb = Superblock::parse(&head).map_err(Error::at(Place::Superblock))?;
        if options.verify_checksum {
            verify_checksum(&*primary, &sb, &head)?;
        }
        let devices = std::iter::once(primary).chain(extra).collect();
        let meta_bytes = (options.cache_bytes / 8).min(META_CACHE_BYTES_MAX);
        let mut image = Self {
            devices,
            sb,
            cfgs: ComprCfgs::default(),
            slots: Vec::new(),
            prefixes: Vec::new(),
            metabox: None,
            packed: None,
            meta_cache: Cache::new(meta_bytes),
            serve: Serve::new(options.strategy, 0, 1),
        };
        image.cfgs = image.read_compr_cfgs()?;
        let kept_bytes = meta_bytes + options.readers * image.bench_memory(options.read_bytes);
        let data_bytes = options.cache_bytes.saturating_sub(kept_bytes);
        let data_bytes = data_bytes.max(image.read_memory_min());
        image.serve = Serve::new(options.strategy, data_bytes, options.readers);
        image.slots = image.read_device_table()?;
        image.check_devices()?;
        image.packed = image.special_inode("fragments", image.sb.packed)?;
        image.metabox = image.special_inode("metadata", image.sb.metabox)?;
        image.check_metabox()?;
        image.prefixes = image.read_prefixes()?;
        Ok(image)
    }

    /// The superblock.
    pub const fn superblock(&self) -> &Superblock {
        &self.sb
    }

    /// The compression configurations.
    pub const fn compr_cfgs(&self) -> &ComprCfgs {
        &self.cfgs
    }

    /// The long xattr name prefixes.
    pub fn xattr_prefixes(&self) -> &[LongPrefix] {
        &self.prefixes
    }

    /// The devices, the primary one first.
    pub fn devices(&self) -> Vec<DeviceInfo> {
        let slots = std::iter::once(None).chain(self.slots.iter().cloned().map(Some));
        let devices = self.devices.iter().zip(slots);
        devices
            .map(|(d, slot)| DeviceInfo {
                name: d.name(),
                size: d.size(),
                slot,
            })
            .collect()
    }

    /// Name of the image: that of its primary device.
    pub fn name(&self) -> String {
        self.devices[0].name()
    }

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

    /// Returns where an inode begins on the primary device, and how long it is with its attributes, its index and its inline
    /// data; `None` if it is in the metabox.
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

    /// Reads bytes of the primary device as they are.
    ///
    /// # Errors
    ///
    /// If they do not lie there, or the medium fails.
    pub fn read_primary(&self, place: Place, address: u64, buf: &mut [u8]) -> Result<()> {
        self.read_raw(place, Location::Device { device: 0, address }, buf)
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

    /// Reads bytes of a device as they are, or of the metabox.
    pub(crate) fn read_raw(&self, place: Place, at: Location, buf: &mut [u8]) -> Result<()> {
        let Location::Device { device, address } = at else {
            return self.read_meta(place, at, buf);
        };
        if buf.is_empty() {
            return Ok(());
        }
        self.check_bounds(place, "it", at, buf.len() as u64)?;
        let source = &self.devices[usize::from(device)];
        self.count_read(buf.len());
        let len = buf.len() as u64;
        source
            .read_at(address, buf)
            .map_err(|error| io_error(place, &**source, address..address + len, error))
    }

    /// As [`read_raw`](Self::read_raw), into several buffers, one after the other.
    pub(crate) fn read_raw_vectored(
        &self,
        place: Place,
        at: Location,
        bufs: &mut [IoSliceMut<'_>],
    ) -> Result<()> {
        let (Location::Device { device, address }, true) = (at, bufs.len() > 1) else {
            let single = bufs.first_mut().map(|buf| self.read_raw(place, at, buf));
            return single.unwrap_or(Ok(()));
        };
        let len = bufs.iter().map(|buf| buf.len()).sum();
        self.check_bounds(place, "it", at, len as u64)?;
        let source = &self.devices[usize::from(device)];
        self.count_read(len);
        source
            .read_vectored_at(address, bufs)
            .map_err(|error| io_error(place, &**source, address..address + len as u64, error))
    }

    fn count_read(&self, bytes: usize) {
        add(&self.serve.counters.device_reads, 1);
        add(&self.serve.counters.device_bytes, bytes as u64);
    }

    /// Says that bytes of a device will be wanted soon.
    pub(crate) fn will_need(&self, at: Location, bytes: u64) {
        if let Location::Device { device, address } = at {
            if let Some(device) = self.devices.get(usize::from(device)) {
                device.will_need(address, bytes);
            }
        }
    }

    /// Bytes of metadata in the cache.
    pub(crate) fn metadata_cached(&self) -> usize {
        self.meta_cache.bytes()
    }

    /// Bytes that a device has from a location on; none of the metabox.
    pub(crate) fn bytes_from(&self, at: Location) -> u64 {
        let Location::Device { device, address } = at else {
            return 0;
        };
        let size = self
            .devices
            .get(usize::from(device))
            .map_or(0, |d| d.size());
        size.saturating_sub(address)
    }

    /// Checks that bytes lie wholly inside the device or metabox that has their location.
    pub(crate) fn check_bounds(
        &self,
        place: Place,
        what: &'static str,
        at: Location,
        bytes: u64,
    ) -> Result<()> {
        let (of, size) = match at {
            Location::Device { device, .. } => {
                let given = self.devices.len() - 1;
                let source = self.devices.get(usize::from(device));
                let source = source.ok_or(Error::Devices {
                    needed: device,
                    given,
                })?;
                let of = if device == 0 {
                    "the image"
                } else {
                    "an extra device"
                };
                (of, source.size())
            }
            Location::Metabox { .. } => {
                let metabox = self.metabox.as_ref();
                ("the metabox", metabox.map_or(0, |(inode, _)| inode.size))
            }
        };
        let end = at.address().saturating_add(bytes);
        if end > size {
            let fault = Corrupt::OutOfBounds {
                what,
                end,
                of,
                size,
            };
            return Err(Error::Corrupt { place, fault });
        }
        Ok(())
    }

    /// The size of the packed inode in bytes, 0 if there is none.
    pub(crate) fn packed_bytes(&self) -> u64 {
        self.packed.as_ref().map_or(0, |(inode, _)| inode.size)
    }

    /// Returns whether files are packed together in extents of a MiB and more. The files of one directory may lie in many of
    /// these. A cache that is too small for them has each decoded again and again.
    pub fn packs_large_extents(&self) -> bool {
        let Some((inode, map)) = self.packed.as_ref().filter(|(inode, _)| inode.size > 0) else {
            return false;
        };
        let is_large = |offset| match self.extent_at(inode, map, offset) {
            Ok(extent) => extent.len >= LARGE_EXTENT_BYTES,
            Err(_) => false,
        };
        let part = inode.size / 4;
        (0..4).any(|n| is_large(n * part))
    }

    /// The extent of the packed inode that holds the byte `offset`; `None` if it is not there, or broken.
    pub(crate) fn packed_extent_at(&self, offset: u64) -> Option<Extent> {
        let (inode, map) = self.packed.as_ref()?;
        let is_there = offset < inode.size;
        let extent = is_there.then(|| self.extent_at(inode, map, offset));
        let extent = extent?.ok()?;
        (extent.offset..extent.end())
            .contains(&offset)
            .then_some(extent)
    }

    /// The bytes that there are of the primary device.
    pub fn primary_size(&self) -> u64 {
        self.devices[0].size()
    }

    /// The bytes that the superblock says are there.
    pub fn recorded_bytes(&self) -> u64 {
        let sb = &self.sb;
        sb.blocks.saturating_mul(sb.block_bytes().into())
    }

    /// Place of a unified address: on the primary device, unless an extra device has it.
    pub(crate) fn resolve(&self, address: u64) -> Location {
        let bits = self.sb.block_bits;
        for (device, slot) in (1..).zip(&self.slots) {
            let start = slot.unified_block.map(|block| block << bits);
            let len = slot.blocks << bits;
            if let Some(skip) = start.and_then(|start| address.checked_sub(start)) {
                if skip < len {
                    return Location::Device {
                        device,
                        address: skip,
                    };
                }
            }
        }
        Location::Device { device: 0, address }
    }

    /// Checks that a fragment lies inside the packed inode, and returns that.
    pub(crate) fn check_fragment(
        &self,
        place: Place,
        offset: u64,
        len: u64,
    ) -> Result<&(Inode, Map)> {
        let Some(packed) = &self.packed else {
            return Err(Error::corrupt(place)(Corrupt::FragmentWithoutPacked));
        };
        let packed_size = packed.0.size;
        if offset.checked_add(len).is_none_or(|end| end > packed_size) {
            let fault = Corrupt::Fragment {
                offset,
                len,
                packed_size,
            };
            return Err(Error::Corrupt { place, fault });
        }
        Ok(packed)
    }

    /// Returns whether the inode holds fragments or metadata.
    pub(crate) fn is_special(&self, nid: Nid) -> bool {
        self.sb.packed == Some(nid) || self.sb.metabox == Some(nid)
    }

    /// Returns whether the inode is the packed inode, which may use no fragments itself.
    pub(crate) fn is_packed(&self, nid: Nid) -> bool {
        self.sb.packed == Some(nid)
    }

    fn read_bounded(
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

    fn read_compr_cfgs(&self) -> Result<ComprCfgs> {
        let mut cfgs = ComprCfgs::default();
        if !self.sb.incompat.contains(Incompat::COMPR_CFGS) {
            if self.sb.lz4_max_distance != 0 {
                cfgs.lz4_max_distance = self.sb.lz4_max_distance;
            }
            return Ok(cfgs);
        }
        let place = Place::ComprCfgs;
        let mut at = SUPERBLOCK_OFFSET + u64::from(self.sb.superblock_bytes);
        for algorithm in self.sb.algorithms.iter() {
            let mut size = [0; 2];
            let record = self.read_record(place, &mut at, &mut size)?;
            cfgs.apply(algorithm, &record, self.sb.block_bits)
                .map_err(Error::at(place))?;
        }
        Ok(cfgs)
    }

    /// End of the compression configurations.
    pub(crate) fn compr_cfgs_end(&self) -> Result<u64> {
        let mut at = SUPERBLOCK_OFFSET + u64::from(self.sb.superblock_bytes);
        for _ in self.sb.algorithms.iter() {
            self.read_record(Place::ComprCfgs, &mut at, &mut [0; 2])?;
        }
        Ok(at)
    }

    /// Checks the superblock's checksum, if it has one.
    pub(crate) fn verify_checksum(&self) -> Result<()> {
        let primary = &*self.devices[0];
        verify_checksum(primary, &self.sb, &read_head(primary)?)
    }

    /// Reads a record that begins with its size, at the next multiple of 4.
    fn read_record(&self, place: Place, at: &mut u64, size: &mut [u8; 2]) -> Result<Vec<u8>> {
        let from = |address| Location::Device { device: 0, address };
        let start = align_up(*at, 4).expect("small");
        self.read_meta(place, from(start), size)?;
        let mut record = vec![0; u16::from_le_bytes(*size).into()];
        self.read_meta(place, from(start + 2), &mut record)?;
        *at = start + 2 + record.len() as u64;
        Ok(record)
    }

    fn read_device_table(&self) -> Result<Vec<DeviceSlot>> {
        let mut slots = Vec::new();
        for index in 0..u64::from(self.sb.extra_devices) {
            let mut raw = [0; size_of::<RawDeviceSlot>()];
            let address = self.sb.device_table_offset + index * raw.len() as u64;
            self.read_meta(
                Place::DeviceTable,
                Location::Device { device: 0, address },
                &mut raw,
            )?;
            let raw = RawDeviceSlot::read_from_bytes(&raw).expect("128 bytes");
            let slot = raw.check(self.sb.has_48bit());
            let end = slot.blocks.saturating_add(slot.unified_block.unwrap_or(0));
            if end > DEVICE_BYTES_MAX >> self.sb.block_bits {
                let fault = Corrupt::AddressOverflow {
                    what: "an extra device",
                };
                return Err(Error::Corrupt {
                    place: Place::DeviceTable,
                    fault,
                });
            }
            slots.push(slot);
        }
        Ok(slots)
    }

    fn check_devices(&self) -> Result<()> {
        let given = self.devices.len() - 1;
        let needed = self.sb.extra_devices;
        if given != usize::from(needed) {
            return Err(Error::Devices { needed, given });
        }
        for (index, (slot, device)) in (1..).zip(self.slots.iter().zip(&self.devices[1..])) {
            let needed = slot.blocks << self.sb.block_bits;
            let size = device.size();
            if size.next_multiple_of(self.sb.block_bytes().into()) < needed {
                return Err(Error::DeviceSize {
                    index,
                    name: device.name(),
                    size,
                    needed,
                });
            }
        }
        Ok(())
    }

    fn special_inode(&self, which: &'static str, nid: Option<Nid>) -> Result<Option<(Inode, Map)>> {
        let open = |nid| {
            let inode = self.inode(nid)?;
            if inode.kind != FileKind::Regular {
                let fault = Corrupt::SpecialKind {
                    which,
                    kind: inode.kind,
                };
                return Err(Error::Corrupt {
                    place: Place::Inode(nid),
                    fault,
                });
            }
            let map = self.map(&inode)?;
            Ok((inode, map))
        };
        nid.map(open).transpose()
    }

    /// Metadata is walked entry by entry, so what a metabox claims to hold must be in proportion to
    /// what is there.
    fn check_metabox(&self) -> Result<()> {
        let device_bytes = self.devices[0].size();
        match &self.metabox {
            Some((inode, _)) if inode.size / METABOX_RATIO_MAX >= device_bytes => {
                let fault = Corrupt::MetaboxSize {
                    size: inode.size,
                    device_bytes,
                };
                Err(Error::corrupt(Place::Inode(inode.nid))(fault))
            }
            _ => Ok(()),
        }
    }

    fn read_prefixes(&self) -> Result<Vec<LongPrefix>> {
        let count = self.sb.xattr_prefix_count;
        if !self.sb.incompat.contains(Incompat::XATTR_PREFIXES) {
            return Ok(Vec::new());
        }
        let place = Place::XattrPrefixes;
        let plain = self.sb.compat.contains(Compat::PLAIN_XATTR_PFX);
        let holder = if plain {
            None
        } else {
            self.metabox.as_ref().or(self.packed.as_ref())
        };
        let read = |address: u64, buf: &mut [u8]| match holder {
            Some((inode, map)) => self.read_bounded(
                place,
                (inode, map),
                "the inode with the prefixes",
                address,
                buf,
            ),
            None => self.read_meta(place, Location::Device { device: 0, address }, buf),
        };
        let mut at = self.sb.xattr_prefix_offset;
        let mut prefixes = Vec::new();
        for index in 0..count {
            let mut size = [0; 2];
            at = align_up(at, 4).expect("below 2^35");
            read(at, &mut size)?;
            let mut record = vec![0; u16::from_le_bytes(size).into()];
            read(at + 2, &mut record)?;
            at += 2 + record.len() as u64;
            prefixes.push(LongPrefix::parse(index, &record).map_err(Error::corrupt(place))?);
        }
        Ok(prefixes)
    }
}

/// The bytes from offset 1024 on that the superblock may take or its checksum cover.
fn read_head(primary: &dyn Device) -> Result<Vec<u8>> {
    let longest = superblock::checksum_len(*superblock::BLOCK_BITS.end()) as u64;
    let len = primary
        .size()
        .saturating_sub(SUPERBLOCK_OFFSET)
        .min(longest);
    // An empty rest is for the superblock's own check to report.
    if len == 0 {
        return Ok(Vec::new());
    }
    let read = |len: u64| {
        let mut head = vec![0; len as usize];
        primary.read_at(SUPERBLOCK_OFFSET, &mut head).map(|()| head)
    };
    read(len).or_else(|error| {
        // What cannot be read may lie behind the block of the superblock.
        let shorter = superblock::BLOCK_BITS.rev().map(superblock::checksum_len);
        let found = shorter
            .filter(|&less| (less as u64) < len)
            .find_map(|less| read(less as u64).ok());
        let range = SUPERBLOCK_OFFSET..SUPERBLOCK_OFFSET + len;
        found.ok_or_else(|| io_error(Place::Superblock, primary, range, error))
    })
}

fn verify_checksum(primary: &dyn Device, sb: &Superblock, head: &[u8]) -> Result<()> {
    if !sb.compat.contains(Compat::SB_CHKSUM) {
        return Ok(());
    }
    let len = superblock::checksum_len(sb.block_bits);
    let range = SUPERBLOCK_OFFSET..SUPERBLOCK_OFFSET + len as u64;
    if head.len() < len && range.end <= primary.size() {
        // It could not be read.
        let read = primary.read_at(range.start, &mut vec![0; len]);
        read.map_err(|error| io_error(Place::Superblock, primary, range, error))?;
    }
    let covered = head.get(..len).ok_or_else(|| {
        let end = SUPERBLOCK_OFFSET + len as u64;
        let size = SUPERBLOCK_OFFSET + head.len() as u64;
        let fault = Corrupt::OutOfBounds {
            what: "its block",
            end,
            of: "the image",
            size,
        };
        Error::Corrupt {
            place: Place::Superblock,
            fault,
        }
    })?;
    let computed = superblock::checksum(covered);
    if computed != sb.checksum {
        let fault = Corrupt::Checksum {
            stored: sb.checksum,
            computed,
        };
        return Err(Error::Corrupt {
            place: Place::Superblock,
            fault,
        });
    }
    Ok(())
}

/// The error of a read of bytes of a device, with the first block of them that cannot be read.
fn io_error(place: Place, device: &dyn Device, bytes: Range<u64>, source: io::Error) -> Error {
    let is_readable = |at: u64| {
        let (start, end) = (at.max(bytes.start), (at + FAULTY_BLOCK).min(bytes.end));
        device
            .read_at(start, &mut vec![0; (end - start) as usize])
            .is_ok()
    };
    let first = bytes.start / FAULTY_BLOCK * FAULTY_BLOCK;
    let mut blocks = (first..bytes.end).step_by(FAULTY_BLOCK as usize);
    Error::Io {
        place,
        device: device.name(),
        at: blocks.find(|&at| !is_readable(at)),
        source,
    }
}
