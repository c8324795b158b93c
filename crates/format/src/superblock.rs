//! The superblock and the device table.

use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::compr_cfg::AlgorithmSet;
use crate::features::{Compat, Incompat};
use crate::{Corrupt, Fault, Nid, Unsupported};
use anteros_core::Algorithm;

/// States where the superblock begins, in bytes from the start of the primary device.
pub const SUPERBLOCK_OFFSET: u64 = 1024;

/// The magic number.
pub const MAGIC: u32 = 0xE0F5_E1E2;

/// Bytes of the fixed part.
pub const SUPERBLOCK_BYTES: usize = 128;

/// Bytes of an extension slot.
pub const EXTSLOT_BYTES: u16 = 16;

/// Smallest and largest block size, as shifts. The kernel takes up to its page size.
pub const BLOCK_BITS: std::ops::RangeInclusive<u8> = 9..=16;

/// The superblock as it lies at byte 1024.
///
/// ```text
///       0            4            8            c    d    e
/// 0x00 |   magic    |  checksum  |  compat    |bits|ext |root/hi|
/// 0x10 |         inos            |          epoch               |
/// 0x20 | fixed_nsec |  blocks_lo | meta_blkaddr | xattr_blkaddr |
/// 0x30 |                       uuid                             |
/// 0x40 |                    volume_name                         |
/// 0x50 |  incompat  | algs | devs | slot |dir|pfx| prefix_start |
/// 0x60 |      packed_nid         | flt|dig| 0  |   build_time   |
/// 0x70 |      rootnid_8b         |            0                 |
/// ```
///
/// Source: `erofs.docs.kernel.org`, core on-disk format.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
#[allow(missing_docs)] // the specification's own names, drawn above
pub struct RawSuperblock {
    pub magic: U32,
    pub checksum: U32,
    pub feature_compat: U32,
    pub blkszbits: u8,
    pub sb_extslots: u8,
    /// Root node id; with 48-bit addresses and `rootnid_8b`, bits 32 to 47 of the block count.
    pub rootnid_2b: U16,
    pub inos: U64,
    /// Seconds; the base of the time in compact inodes.
    pub epoch: U64,
    pub fixed_nsec: U32,
    pub blocks_lo: U32,
    pub meta_blkaddr: U32,
    pub xattr_blkaddr: U32,
    pub uuid: [u8; 16],
    pub volume_name: [u8; 16],
    pub feature_incompat: U32,
    /// With compression configurations a bitmap of algorithms, else the LZ4 distance.
    pub available_compr_algs: U16,
    pub extra_devices: U16,
    /// Start of the device table in units of 128 bytes.
    pub devt_slotoff: U16,
    pub dirblkbits: u8,
    pub xattr_prefix_count: u8,
    /// Start of the xattr prefix table in units of 4 bytes.
    pub xattr_prefix_start: U32,
    pub packed_nid: U64,
    /// Anything but zero switches the xattr name filter off.
    pub xattr_filter_reserved: u8,
    pub ishare_xattr_prefix_id: u8,
    pub reserved: [u8; 2],
    /// With 48-bit addresses: seconds from the epoch to the time the image was made.
    pub build_time: U32,
    pub rootnid_8b: U64,
    pub reserved2: [u8; 8],
}

const _: () = assert!(size_of::<RawSuperblock>() == SUPERBLOCK_BYTES);

/// A superblock that may be relied on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Superblock {
    /// Features a reader may ignore; unknown bits are kept.
    pub compat: Compat,
    /// Features a reader must know.
    pub incompat: Incompat,
    /// The block size is two to this.
    pub block_bits: u8,
    /// Bytes of the superblock with its extension slots.
    pub superblock_bytes: u16,
    /// The recorded checksum.
    pub checksum: u32,
    /// The root directory.
    pub root: Nid,
    /// The inode that holds fragments; only with [`Incompat::FRAGMENTS`].
    pub packed: Option<Nid>,
    /// The inode that holds metadata.
    pub metabox: Option<Nid>,
    /// Inodes in all, for information.
    pub inodes: u64,
    /// Blocks of the primary device, for information: not a bound.
    pub blocks: u64,
    /// Seconds; the base of the time in compact inodes.
    pub epoch: i64,
    /// Nanoseconds of every compact inode.
    pub fixed_nsec: u32,
    /// Seconds from the epoch to the time the image was made, with 48-bit addresses.
    pub build_time: u32,
    /// Origin of node ids, in blocks.
    pub meta_block: u32,
    /// Origin of shared xattr ids, in blocks.
    pub xattr_block: u32,
    /// The image's UUID.
    pub uuid: [u8; 16],
    /// The label, NUL padded.
    pub volume_name: [u8; 16],
    /// The algorithms compressed inodes may use.
    pub algorithms: AlgorithmSet,
    /// Without compression configurations: how far LZ4 looks back, in bytes; 0 means 64 KiB.
    pub lz4_max_distance: u16,
    /// Devices besides the primary one.
    pub extra_devices: u16,
    /// Byte at which the device table begins.
    pub device_table_offset: u64,
    /// Long xattr prefixes.
    pub xattr_prefix_count: u8,
    /// Byte at which the xattr prefixes begin, in whichever space holds them.
    pub xattr_prefix_offset: u64,
    /// Tells whether xattr headers carry a bloom filter.
    pub xattr_filter: bool,
    /// Tells which long prefix is the name of the digest attribute.
    pub digest_prefix: Option<u8>,
}

impl Superblock {
    /// Checks the bytes from offset 1024 on. At least 144 are needed, fewer only if the device ends.
    ///
    /// The checksum covers more than these bytes, see [`checksum`].
    ///
    /// # Errors
    ///
    /// The first rule that is broken.
    pub fn parse(bytes: &[u8]) -> Result<Self, Fault> {
        let (raw, extension) = RawSuperblock::read_from_prefix(bytes).map_err(|_| {
            let end = SUPERBLOCK_OFFSET + SUPERBLOCK_BYTES as u64;
            let size = SUPERBLOCK_OFFSET + bytes.len() as u64;
            Corrupt::OutOfBounds {
                what: "the superblock",
                end,
                of: "the image",
                size,
            }
        })?;
        if raw.magic.get() != MAGIC {
            return Err(Corrupt::Magic {
                found: raw.magic.get(),
            }
            .into());
        }
        let incompat = Incompat::from_bits(raw.feature_incompat.get()).ok_or_else(|| {
            let unknown = raw.feature_incompat.get() & !Incompat::all().bits();
            Unsupported::Incompat { bits: unknown }
        })?;
        let superblock_bytes = raw.check_geometry()?;
        let compat = Compat::from_bits_retain(raw.feature_compat.get());
        let (root, blocks_hi) = raw.root_and_blocks_hi(incompat);
        let metabox = metabox_nid(incompat, superblock_bytes, extension)?;
        let configured = incompat.contains(Incompat::COMPR_CFGS);
        let algorithms = match (configured, raw.available_compr_algs.get()) {
            (true, bits) => AlgorithmSet::from_bits(bits)?,
            (false, _) => AlgorithmSet::of(Algorithm::Lz4),
        };
        Ok(Self {
            compat,
            incompat,
            block_bits: raw.blkszbits,
            superblock_bytes,
            checksum: raw.checksum.get(),
            root,
            packed: match incompat.contains(Incompat::FRAGMENTS) {
                true => special_nid("packed", raw.packed_nid.get())?,
                false => None,
            },
            metabox,
            inodes: raw.inos.get(),
            blocks: u64::from(raw.blocks_lo.get()) | blocks_hi << 32,
            epoch: raw.epoch.get() as i64,
            fixed_nsec: raw.fixed_nsec.get(),
            build_time: raw.build_time.get(),
            meta_block: raw.meta_blkaddr.get(),
            xattr_block: raw.xattr_blkaddr.get(),
            uuid: raw.uuid,
            volume_name: raw.volume_name,
            algorithms,
            lz4_max_distance: if configured {
                0
            } else {
                raw.available_compr_algs.get()
            },
            // Bit 0x008 also means HEAD2; then the count is zero.
            extra_devices: match incompat.contains(Incompat::DEVICE_TABLE) {
                true => raw.extra_devices.get(),
                false => 0,
            },
            device_table_offset: u64::from(raw.devt_slotoff.get())
                * size_of::<RawDeviceSlot>() as u64,
            xattr_prefix_count: raw.xattr_prefix_count,
            xattr_prefix_offset: u64::from(raw.xattr_prefix_start.get()) * 4,
            xattr_filter: compat.contains(Compat::XATTR_FILTER) && raw.xattr_filter_reserved == 0,
            digest_prefix: compat
                .contains(Compat::ISHARE_XATTRS)
                .then_some(raw.ishare_xattr_prefix_id),
        })
    }

    /// The block size in bytes.
    pub const fn block_bytes(&self) -> u32 {
        1 << self.block_bits
    }

    /// Returns whether block addresses have 48 bits.
    pub const fn has_48bit(&self) -> bool {
        self.incompat.contains(Incompat::FORTY_EIGHT_BIT)
    }

    /// The time that the image was made, in seconds.
    pub fn built(&self) -> i64 {
        let since_epoch = if self.has_48bit() { self.build_time } else { 0 };
        self.epoch.saturating_add(since_epoch.into())
    }

    /// The bits of a chunk's device id that count.
    pub fn device_id_mask(&self) -> u16 {
        // 1 to 65,536 rounded up to a power of two, less one, fits.
        ((u32::from(self.extra_devices) + 1).next_power_of_two() - 1) as u16
    }

    /// The label up to its first NUL.
    pub fn label(&self) -> &[u8] {
        let end = self.volume_name.iter().position(|&b| b == 0).unwrap_or(16);
        &self.volume_name[..end]
    }
}

impl RawSuperblock {
    fn check_geometry(&self) -> Result<u16, Corrupt> {
        if !BLOCK_BITS.contains(&self.blkszbits) {
            return Err(Corrupt::BlockBits {
                bits: self.blkszbits,
            });
        }
        let block_bytes = 1u32 << self.blkszbits;
        let bytes = SUPERBLOCK_BYTES as u16 + EXTSLOT_BYTES * u16::from(self.sb_extslots);
        let room = u64::from(block_bytes).max(2 * SUPERBLOCK_OFFSET) - SUPERBLOCK_OFFSET;
        if u64::from(bytes) > room {
            return Err(Corrupt::SuperblockSize {
                slots: self.sb_extslots,
                block_bytes,
            });
        }
        if self.dirblkbits != 0 {
            return Err(Corrupt::DirBlockBits {
                found: self.dirblkbits,
            });
        }
        let (index, count) = (self.ishare_xattr_prefix_id, self.xattr_prefix_count);
        if count > 128 {
            return Err(Corrupt::PrefixCount { count });
        }
        let digests = Compat::from_bits_retain(self.feature_compat.get());
        if digests.contains(Compat::ISHARE_XATTRS) && index >= count {
            return Err(Corrupt::DigestPrefix { index, count });
        }
        if self.fixed_nsec.get() >= 1_000_000_000 {
            return Err(Corrupt::Nanoseconds {
                nanos: self.fixed_nsec.get(),
            });
        }
        Ok(bytes)
    }

    fn root_and_blocks_hi(&self, incompat: Incompat) -> (Nid, u64) {
        let wide = incompat.contains(Incompat::FORTY_EIGHT_BIT) && self.rootnid_8b.get() != 0;
        match wide {
            true => (Nid(self.rootnid_8b.get()), self.rootnid_2b.get().into()),
            false => (Nid(self.rootnid_2b.get().into()), 0),
        }
    }
}

fn metabox_nid(incompat: Incompat, bytes: u16, extension: &[u8]) -> Result<Option<Nid>, Corrupt> {
    if !incompat.contains(Incompat::METABOX) {
        return Ok(None);
    }
    match U64::read_from_prefix(extension) {
        Ok((nid, _)) if bytes > SUPERBLOCK_BYTES as u16 => special_nid("metabox", nid.get()),
        _ => Err(Corrupt::MetaboxSuperblock { bytes }),
    }
}

fn special_nid(which: &'static str, nid: u64) -> Result<Option<Nid>, Corrupt> {
    match Nid(nid) {
        Nid(0) => Ok(None),
        nid if nid.in_metabox() => Err(Corrupt::SpecialNid { which, nid }),
        nid => Ok(Some(nid)),
    }
}

/// Returns how many bytes from offset 1024 on the checksum covers.
pub fn checksum_len(block_bits: u8) -> usize {
    let block = 1usize << block_bits;
    if block > SUPERBLOCK_OFFSET as usize {
        block - SUPERBLOCK_OFFSET as usize
    } else {
        block
    }
}

/// The checksum over [`checksum_len`] bytes from offset 1024 on: CRC32-C with initial value all
/// ones and no final inversion, the checksum field itself taken as zero.
pub fn checksum(bytes: &[u8]) -> u32 {
    let field = std::mem::offset_of!(RawSuperblock, checksum);
    let mut crc = crc32c::crc32c(&bytes[..field]);
    crc = crc32c::crc32c_append(crc, &[0; 4]);
    !crc32c::crc32c_append(crc, &bytes[field + 4..])
}

/// A slot of the device table.
///
/// ```text
/// 0x00 | tag (64 bytes: a path or a cookie)                             |
/// 0x40 | blocks_lo | uniaddr_lo | blocks_hi | uniaddr_hi | 52 reserved  |
/// ```
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
#[allow(missing_docs)] // the specification's own names, drawn above
pub struct RawDeviceSlot {
    pub tag: [u8; 64],
    pub blocks_lo: U32,
    /// Tells where the device begins in the unified address space, in blocks; 0 means nowhere.
    pub uniaddr_lo: U32,
    pub blocks_hi: U16,
    pub uniaddr_hi: U16,
    pub reserved: [u8; 52],
}

const _: () = assert!(size_of::<RawDeviceSlot>() == 128);

/// An extra device as the image describes it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeviceSlot {
    /// A path or a cookie, NUL padded.
    pub tag: [u8; 64],
    /// Its size in blocks.
    pub blocks: u64,
    /// Its first block in the unified address space, if it has a place there.
    pub unified_block: Option<u64>,
}

impl RawDeviceSlot {
    /// Returns what the slot says; the high parts count only with 48-bit addresses.
    pub fn check(&self, has_48bit: bool) -> DeviceSlot {
        let join = |lo: U32, hi: U16| {
            u64::from(lo.get())
                | if has_48bit {
                    u64::from(hi.get()) << 32
                } else {
                    0
                }
        };
        let unified = join(self.uniaddr_lo, self.uniaddr_hi);
        DeviceSlot {
            tag: self.tag,
            blocks: join(self.blocks_lo, self.blocks_hi),
            unified_block: (unified != 0).then_some(unified),
        }
    }
}
