//! The superblock, and what decoders need to know behind it.
//!
//! Invariant B4 of `docs/design/building.md`: the superblock claims the features that are used, and no others.

use std::ops::Range;

use anteros_codec::Params;
use anteros_core::Algorithm;
use anteros_format::compr_cfg::{
    AlgorithmSet, ComprCfgs, RawDeflateCfg, RawLz4Cfg, RawLzmaCfg, RawZstdCfg,
};
use anteros_format::features::{Compat, Incompat};
use anteros_format::superblock::{
    EXTSLOT_BYTES, MAGIC, RawSuperblock, SUPERBLOCK_BYTES, SUPERBLOCK_OFFSET, checksum,
    checksum_len,
};
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes};

use crate::data::Stored;
use crate::devices::{Devices, SLOT_BYTES};
use crate::emit::Emitter;
use crate::extent::{Extent, Tail};
use crate::layout::Places;
use crate::options::Setting;
use crate::output::Output;
use crate::prefixes::Prefixes;
use crate::{Appended, Error, Options, UuidChoice};

/// Distance that LZ4 matches may reach back.
const LZ4_DISTANCE_MAX: u16 = u16::MAX;

/// Blocks of the superblock, of its configurations and of prefixes of attributes, in bytes.
pub(crate) fn area_bytes(options: &Options, devices: &Devices) -> Result<u64, Error> {
    let prefixes = Prefixes::of(options)?.table();
    Ok(room(options, prefixes.len(), devices).end)
}

/// The bytes behind all that up to the end of the last block, with prefixes of so many bytes.
pub(crate) fn room(options: &Options, prefix_bytes: usize, devices: &Devices) -> Range<u64> {
    let prefixes_end = prefixes_at(options) + prefix_bytes as u64;
    let start = match devices.table_bytes() {
        0 => prefixes_end,
        bytes => prefixes_end.next_multiple_of(SLOT_BYTES) + bytes,
    };
    start..start.next_multiple_of(options.block_bytes().into())
}

/// Byte of the image at which prefixes of attributes lie, if they lie beside the superblock.
fn prefixes_at(options: &Options) -> u64 {
    let cfgs = match layered_over(options) {
        Some(append) => cfgs_of(append),
        None => compr_cfgs(options, options.algorithms()),
    };
    let end = SUPERBLOCK_OFFSET + (superblock_bytes(options) + cfgs.len()) as u64;
    end.next_multiple_of(4)
}

/// Bytes of the superblock: with a metabox, one slot more.
fn superblock_bytes(options: &Options) -> usize {
    SUPERBLOCK_BYTES + options.metabox.map_or(0, |_| usize::from(EXTSLOT_BYTES))
}

impl Emitter<'_> {
    /// The superblock, from byte 1024 to the end of the last block with configurations, and the
    /// image's UUID.
    pub fn superblock(&self, places: &Places, output: &Output) -> (Vec<u8>, [u8; 16]) {
        let options = self.job.options;
        if let Some(append) = layered_over(options) {
            return self.superblock_of_layer(append, places, output);
        }
        if let Some(append) = &options.append {
            return self.superblock_over(&append.superblock, places, output);
        }
        let block_bits = options.block_bits;
        let plan = self.job.plan;
        let mut raw = RawSuperblock::new_zeroed();
        raw.magic = MAGIC.into();
        raw.feature_compat = self.compat().bits().into();
        raw.feature_incompat = self.incompat().bits().into();
        raw.blkszbits = block_bits;
        let (root, blocks) = (self.layout.nid(0), places.end >> block_bits);
        if options.is_wide() {
            raw.rootnid_8b = root.into();
            raw.rootnid_2b = ((blocks >> 32) as u16).into();
            raw.build_time = plan.times.build().into();
        } else {
            raw.rootnid_2b = (root as u16).into(); // at most two blocks and a slot
        }
        let specials = [places.packed, places.metabox].into_iter().flatten();
        raw.inos = ((self.job.tree.nodes.len() + specials.count()) as u64).into();
        raw.epoch = (plan.times.epoch as u64).into();
        raw.fixed_nsec = plan.times.image.nanos.into();
        raw.packed_nid = places.packed_nid().into();
        raw.blocks_lo = (blocks as u32).into();
        raw.meta_blkaddr = places.meta_block.into();
        raw.xattr_blkaddr = places.xattr_block.into();
        raw.volume_name[..options.label.len()].copy_from_slice(&options.label);
        raw.available_compr_algs = match self.has_compressed_inodes() {
            true if options.compr_cfgs() => self.algorithms().bits(),
            true => LZ4_DISTANCE_MAX,
            false => 0,
        }
        .into();
        let prefixes = plan.shared.prefixes.table();
        let at = prefixes_at(options);
        let end = room(options, prefixes.len(), self.devices).end;
        let mut area = places.area.clone();
        area.resize((end - SUPERBLOCK_OFFSET) as usize, 0);
        raw.xattr_prefix_count = plan.shared.prefixes.count() as u8; // at most 128
        raw.ishare_xattr_prefix_id = plan.shared.prefixes.digest().unwrap_or(0);
        if !options.packs_prefixes() && !prefixes.is_empty() {
            raw.xattr_prefix_start = ((at / 4) as u32).into(); // not far from the beginning
            area[(at - SUPERBLOCK_OFFSET) as usize..][..prefixes.len()].copy_from_slice(&prefixes);
        }
        if self.has_devices() {
            self.device_table(at + prefixes.len() as u64, places, &mut raw, &mut area);
        }
        if self.has_compressed_inodes() {
            let cfgs = compr_cfgs(options, self.algorithms());
            area[superblock_bytes(options)..][..cfgs.len()].copy_from_slice(&cfgs);
        }
        if places.metabox.is_some() {
            raw.sb_extslots = 1;
            let nid = places.metabox_nid().to_le_bytes();
            area[SUPERBLOCK_BYTES..][..nid.len()].copy_from_slice(&nid);
        }
        area[..SUPERBLOCK_BYTES].copy_from_slice(raw.as_bytes());
        raw.uuid = match options.uuid {
            UuidChoice::Given(uuid) => uuid,
            UuidChoice::FromContent => custom_uuid(output.hash_with(&area)),
        };
        write(&mut raw, &mut area);
        (area, raw.uuid)
    }

    /// Writes the table of devices into the bytes from the superblock on, behind a byte of the image.
    fn device_table(&self, behind: u64, places: &Places, raw: &mut RawSuperblock, area: &mut [u8]) {
        let at = behind.next_multiple_of(SLOT_BYTES);
        raw.extra_devices = (self.devices.slots.len() as u16).into(); // as checked
        raw.devt_slotoff = ((at / SLOT_BYTES) as u16).into(); // not far from the beginning
        let table = self
            .devices
            .table(places.end >> self.job.options.block_bits);
        area[(at - SUPERBLOCK_OFFSET) as usize..][..table.len()].copy_from_slice(&table);
    }

    /// The superblock of a layer on an image, whose features it has, and the layer's UUID.
    fn superblock_of_layer(
        &self,
        append: &Appended,
        places: &Places,
        output: &Output,
    ) -> (Vec<u8>, [u8; 16]) {
        let options = self.job.options;
        let (mut raw, _) =
            RawSuperblock::read_from_prefix(&append.superblock).expect("it was read");
        let incompat = Incompat::from_bits_retain(raw.feature_incompat.get()) | self.incompat();
        raw.feature_incompat = incompat.difference(Incompat::XATTR_PREFIXES).bits().into();
        let compat = Compat::from_bits_retain(raw.feature_compat.get());
        let compat = compat.difference(Compat::PLAIN_XATTR_PFX | Compat::ISHARE_XATTRS);
        raw.feature_compat = compat.bits().into();
        raw.sb_extslots = 0;
        raw.xattr_prefix_count = 0;
        raw.xattr_prefix_start = 0.into();
        raw.xattr_blkaddr = places.xattr_block.into();
        self.name_root(&mut raw, places);
        let cfgs = cfgs_of(append);
        let mut area = vec![0; (room(options, 0, self.devices).end - SUPERBLOCK_OFFSET) as usize];
        area[SUPERBLOCK_BYTES..][..cfgs.len()].copy_from_slice(&cfgs);
        self.device_table(prefixes_at(options), places, &mut raw, &mut area);
        raw.checksum = 0.into();
        area[..SUPERBLOCK_BYTES].copy_from_slice(raw.as_bytes());
        raw.uuid = match options.uuid {
            UuidChoice::Given(uuid) => uuid,
            UuidChoice::FromContent => custom_uuid(output.hash_with(&area)),
        };
        write(&mut raw, &mut area);
        (area, raw.uuid)
    }

    /// Has the superblock of an older image name the new root, and where inodes are.
    fn name_root(&self, raw: &mut RawSuperblock, places: &Places) {
        let options = self.job.options;
        let (root, blocks) = (self.layout.nid(0), places.end >> options.block_bits);
        raw.rootnid_2b = match options.is_wide() {
            true => (blocks >> 32) as u16,
            false => root as u16, // at most two blocks and a slot
        }
        .into();
        if options.is_wide() {
            raw.rootnid_8b = root.into();
        }
        let specials = u64::from(places.packed.is_some());
        raw.inos = (self.job.tree.nodes.len() as u64 + specials).into();
        raw.packed_nid = places.packed_nid().into();
        raw.blocks_lo = (blocks as u32).into();
        raw.meta_blkaddr = places.meta_block.into();
        if !options.label.is_empty() {
            raw.volume_name.fill(0);
            raw.volume_name[..options.label.len()].copy_from_slice(&options.label);
        }
    }

    /// The superblock of an image that is appended to, no longer than the one that is there, and the image's UUID. A new image
    /// in the room of an older one has a UUID of its own.
    fn superblock_over(
        &self,
        before: &[u8],
        places: &Places,
        output: &Output,
    ) -> (Vec<u8>, [u8; 16]) {
        let options = self.job.options;
        let (mut raw, _) = RawSuperblock::read_from_prefix(before).expect("it was read");
        let incompat = raw.feature_incompat.get() | self.incompat().bits();
        raw.feature_incompat = incompat.into();
        self.name_root(&mut raw, places);
        match options.uuid {
            UuidChoice::Given(uuid) => raw.uuid = uuid,
            UuidChoice::FromContent if options.renew.is_some() => {
                raw.uuid = custom_uuid(output.hash_with(raw.as_bytes()));
            }
            UuidChoice::FromContent => {}
        }
        let mut area = before.to_vec();
        write(&mut raw, &mut area);
        area.truncate(SUPERBLOCK_BYTES);
        (area, raw.uuid)
    }

    fn compat(&self) -> Compat {
        let options = self.job.options;
        let mut compat = Compat::MTIME;
        compat.set(Compat::SB_CHKSUM, options.checksum);
        compat.set(Compat::PLAIN_XATTR_PFX, options.has_plain_prefixes());
        let has_digests = self.job.plan.shared.prefixes.digest().is_some();
        compat.set(Compat::ISHARE_XATTRS, has_digests);
        compat.set(
            Compat::XATTR_FILTER,
            options.xattr_filter && !self.job.tree.xattrs.is_empty(),
        );
        compat
    }

    fn incompat(&self) -> Incompat {
        let options = self.job.options;
        let is_chunked =
            |stored: &Stored| matches!(stored, Stored::Chunked { .. } | Stored::Elsewhere);
        let is_compressed = self.has_compressed_inodes();
        let mut incompat = Incompat::empty();
        incompat.set(Incompat::ZERO_PADDING, is_compressed);
        incompat.set(Incompat::COMPR_CFGS, is_compressed && options.compr_cfgs());
        incompat.set(Incompat::CHUNKED_FILE, self.stored.iter().any(is_chunked));
        let has_tail = |stored: &Stored| {
            matches!(
                stored,
                Stored::Compressed {
                    tail: Tail::Inline(_),
                    ..
                }
            )
        };
        let is_sharing = |stored: &Stored| matches!(stored, Stored::Compressed { body, .. } if body.shared_bytes() > 0);
        let is_sharing = self.stored.iter().any(is_sharing);
        incompat.set(Incompat::FRAGMENTS, self.packed.is_some() || is_sharing);
        incompat.set(Incompat::ZTAILPACKING, self.stored.iter().any(has_tail));
        incompat.set(Incompat::FORTY_EIGHT_BIT, options.is_wide());
        incompat.set(Incompat::METABOX, options.metabox.is_some());
        // Two heads, where each extent does not name its algorithm by itself.
        let has_quick = self.compressed_extents().any(|(_, extent)| extent.quick);
        let has_heads = has_quick && !options.has_encoded_extents();
        incompat.set(Incompat::DEVICE_TABLE, has_heads || self.has_devices());
        let prefixes = &self.job.plan.shared.prefixes;
        incompat.set(Incompat::XATTR_PREFIXES, prefixes.count() > 0);
        incompat
    }

    /// Returns whether the image has extra devices.
    fn has_devices(&self) -> bool {
        !self.devices.slots.is_empty()
    }

    /// The algorithms of compressed files and metadata.
    fn algorithms(&self) -> AlgorithmSet {
        let metabox = self.job.options.metabox.map(|setting| setting.codec);
        let codecs = self.compressed_extents().map(|(setting, extent)| {
            let (first, quick) = setting.codecs();
            quick.filter(|_| extent.quick).unwrap_or(first)
        });
        codecs
            .chain(metabox)
            .map(|codec| codec.algorithm())
            .collect()
    }

    /// All extents of files and of the packed inode that are compressed, each with the way in which that is done.
    fn compressed_extents(&self) -> impl Iterator<Item = (Setting, &Extent)> {
        let ways = &self.job.plan.ways;
        let files = self.job.tree.ids().zip(self.stored);
        let files = files.filter_map(|(id, stored)| match stored {
            Stored::Compressed { body, tail } => Some((ways.setting(id)?, body, tail)),
            _ => None,
        });
        let files = files.flat_map(|(setting, body, tail)| {
            let is_fragment = matches!(tail, Tail::Fragment(_));
            let own = body.extents().iter();
            let own = own.filter(move |extent| extent.stored > 0 || !is_fragment);
            own.map(move |extent| (setting, extent))
        });
        let packed = self.packed.iter().flat_map(|packed| &packed.runs);
        let packed = packed.flat_map(|(_, extents)| extents);
        let usual = self.job.options.setting();
        let packed = packed.filter_map(move |extent| Some((usual?, extent)));
        files.chain(packed).filter(|(_, extent)| !extent.plain)
    }

    /// Returns whether compression was asked for, and has saved something.
    fn has_compressed_inodes(&self) -> bool {
        let is_compressed = |stored: &Stored| matches!(stored, Stored::Compressed { .. });
        self.packed.is_some()
            || self.job.options.metabox.is_some()
            || self.stored.iter().any(is_compressed)
    }
}

/// Writes a superblock in front of what follows it, with a checksum of both if it says so.
fn write(raw: &mut RawSuperblock, area: &mut [u8]) {
    let has_checksum =
        Compat::from_bits_retain(raw.feature_compat.get()).contains(Compat::SB_CHKSUM);
    if has_checksum {
        raw.checksum = 0.into();
        area[..SUPERBLOCK_BYTES].copy_from_slice(raw.as_bytes());
        raw.checksum = checksum(&area[..checksum_len(raw.blkszbits)]).into();
    }
    area[..SUPERBLOCK_BYTES].copy_from_slice(raw.as_bytes());
}

/// The image that a layer is a patch of.
fn layered_over(options: &Options) -> Option<&Appended> {
    options.patch_layer.as_ref().and(options.append.as_ref())
}

/// Returns what follows the superblock of an image that is there: all that its decoders need to know.
fn cfgs_of(append: &Appended) -> Vec<u8> {
    let sb = append.parsed().ok();
    let sb = sb.filter(|sb| sb.incompat.contains(Incompat::COMPR_CFGS));
    let algorithms = sb.iter().flat_map(|sb| sb.algorithms.iter());
    let cfgs = algorithms.map(|algorithm| compr_cfg(algorithm, &append.cfgs));
    cfgs.flatten().collect()
}

/// Returns what follows the superblock: what decoders need to know of each of some algorithms.
fn compr_cfgs(options: &Options, algorithms: AlgorithmSet) -> Vec<u8> {
    if !options.compr_cfgs() {
        return Vec::new();
    }
    let cfgs = options.cfgs();
    let cfgs = algorithms
        .iter()
        .map(|algorithm| compr_cfg(algorithm, &cfgs));
    cfgs.flatten().collect()
}

fn compr_cfg(algorithm: Algorithm, cfgs: &ComprCfgs) -> Vec<u8> {
    match algorithm {
        Algorithm::Lz4 => with_length(&RawLz4Cfg {
            max_distance: cfgs.lz4_max_distance.into(),
            max_pclusterblks: cfgs.lz4_max_pcluster_blocks.into(),
            reserved: [0; 10],
        }),
        Algorithm::Lzma => with_length(&RawLzmaCfg {
            dict_size: cfgs.lzma_dict_bytes.into(),
            format: 0.into(),
            reserved: [0; 8],
        }),
        Algorithm::Deflate => with_length(&RawDeflateCfg {
            windowbits: cfgs.deflate_window_bits,
            reserved: [0; 5],
        }),
        Algorithm::Zstd => with_length(&RawZstdCfg {
            format: 0,
            windowlog: cfgs.zstd_window_log - Params::ZSTD_WINDOW_LOG_MIN,
            reserved: [0; 4],
        }),
    }
}

fn with_length<T: IntoBytes + Immutable>(cfg: &T) -> Vec<u8> {
    [&(size_of::<T>() as u16).to_le_bytes(), cfg.as_bytes()].concat()
}

/// A UUID of version 8, whose other bits are a hash.
fn custom_uuid(hash: u128) -> [u8; 16] {
    let mut uuid = hash.to_be_bytes();
    uuid[6] = uuid[6] & 0x0f | 0x80;
    uuid[8] = uuid[8] & 0x3f | 0x80;
    uuid
}
