//! Opening an image: the superblock, and the tables that hang off it.

use std::sync::Arc;

use anteros_core::{Device, FileKind};
use anteros_format::compr_cfg::ComprCfgs;
use anteros_format::features::{Compat, Incompat};
use anteros_format::inode::Inode;
use anteros_format::superblock::{self, DeviceSlot, RawDeviceSlot, SUPERBLOCK_OFFSET, Superblock};
use anteros_format::xattr::LongPrefix;
use anteros_format::{Corrupt, DEVICE_BYTES_MAX, Nid, align_up};
use zerocopy::FromBytes;

use super::devices::io_error;
use super::{Image, OpenOptions};
use crate::cache::Cache;
use crate::error::{Error, Place, Result};
use crate::map::{Location, Map};
use crate::serve::serving::Serve;

/// The most bytes of metadata in the cache.
const META_CACHE_BYTES_MAX: usize = 3 << 20;

/// The most that a metabox may be larger than the image it is in. Real ones are a few times smaller;
/// no codec gets further than this with metadata, as inodes have different numbers.
const METABOX_RATIO_MAX: u64 = 1024;

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
            let missing = self.slots.get(given);
            let next = missing.and_then(|slot| super::lower::name_of(&slot.tag));
            return Err(Error::Devices {
                needed,
                given,
                next,
            });
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
            super::lower::check(slot, (index, &**device))?;
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

    /// Checks that the metabox claims a size in proportion to the image, since metadata is walked
    /// entry by entry.
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
