//! Compression configurations.
//!
//! They follow the superblock, one record for each algorithm of the superblock's bitmap in
//! ascending order, each aligned to 4 bytes:
//!
//! ```text
//! | size: u16 | payload: size bytes |
//! ```

use anteros_core::Algorithm;
use zerocopy::little_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::{Corrupt, Fault, PCLUSTER_BYTES_MAX, Unsupported};

/// The algorithm with this number.
///
/// # Errors
///
/// [`Unsupported::Algorithm`] for any other number.
pub fn algorithm_of(id: u8) -> Result<Algorithm, Unsupported> {
    let known = Algorithm::ALL.get(usize::from(id)).copied();
    known.ok_or(Unsupported::Algorithm { id })
}

/// A set of algorithms, as the superblock keeps it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct AlgorithmSet(u16);

impl AlgorithmSet {
    /// One algorithm alone.
    pub const fn of(algorithm: Algorithm) -> Self {
        Self(1 << algorithm as u16)
    }

    /// The set with these bits.
    ///
    /// # Errors
    ///
    /// [`Unsupported::Algorithms`] if a bit is unknown.
    pub fn from_bits(bits: u16) -> Result<Self, Unsupported> {
        if bits >> Algorithm::ALL.len() == 0 {
            Ok(Self(bits))
        } else {
            Err(Unsupported::Algorithms { bits })
        }
    }

    /// The bitmap.
    pub const fn bits(self) -> u16 {
        self.0
    }

    /// Returns whether the set has the algorithm.
    pub const fn contains(self, algorithm: Algorithm) -> bool {
        self.0 & 1 << algorithm as u16 != 0
    }

    /// The algorithms, ascending.
    pub fn iter(self) -> impl Iterator<Item = Algorithm> {
        Algorithm::ALL
            .into_iter()
            .filter(move |&a| self.contains(a))
    }
}

impl FromIterator<Algorithm> for AlgorithmSet {
    fn from_iter<I: IntoIterator<Item = Algorithm>>(algorithms: I) -> Self {
        let bits = algorithms
            .into_iter()
            .map(|algorithm| Self::of(algorithm).0);
        Self(bits.fold(0, |all, bit| all | bit))
    }
}

/// LZ4's configuration, 14 bytes.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
#[allow(missing_docs)]
pub struct RawLz4Cfg {
    /// Tells how far a match may look back, in bytes; 0 means 65,535.
    pub max_distance: U16,
    /// The largest pcluster in blocks; 0 means 1.
    pub max_pclusterblks: U16,
    pub reserved: [u8; 10],
}

/// MicroLZMA's configuration, 14 bytes.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
#[allow(missing_docs)]
pub struct RawLzmaCfg {
    pub dict_size: U32,
    pub format: U16,
    pub reserved: [u8; 8],
}

/// DEFLATE's configuration, 6 bytes.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
#[allow(missing_docs)]
pub struct RawDeflateCfg {
    pub windowbits: u8,
    pub reserved: [u8; 5],
}

/// Zstandard's configuration, 6 bytes.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
#[allow(missing_docs)]
pub struct RawZstdCfg {
    pub format: u8,
    /// The window is two to this plus ten.
    pub windowlog: u8,
    pub reserved: [u8; 4],
}

const _: () = assert!(size_of::<RawLz4Cfg>() == 14 && size_of::<RawLzmaCfg>() == 14);
const _: () = assert!(size_of::<RawDeflateCfg>() == 6 && size_of::<RawZstdCfg>() == 6);

/// Holds what the decoders need to know, for every algorithm of the image.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ComprCfgs {
    /// Largest LZ4 pcluster in blocks.
    pub lz4_max_pcluster_blocks: u16,
    /// Tells how far LZ4 looks back, in bytes.
    pub lz4_max_distance: u16,
    /// LZMA's dictionary in bytes.
    pub lzma_dict_bytes: u32,
    /// DEFLATE's window is two to this.
    pub deflate_window_bits: u8,
    /// Zstandard's window is at most two to this.
    pub zstd_window_log: u8,
}

impl Default for ComprCfgs {
    /// Returns what holds for images without configurations.
    fn default() -> Self {
        Self {
            lz4_max_pcluster_blocks: 1,
            lz4_max_distance: u16::MAX,
            lzma_dict_bytes: 8 << 20,
            deflate_window_bits: 15,
            zstd_window_log: 20,
        }
    }
}

impl ComprCfgs {
    /// Takes over the record of one algorithm.
    ///
    /// # Errors
    ///
    /// [`Corrupt`] if it is too short or has a value out of range, [`Unsupported`] for an unknown
    /// sub-format.
    pub fn apply(
        &mut self,
        algorithm: Algorithm,
        payload: &[u8],
        block_bits: u8,
    ) -> Result<(), Fault> {
        let impossible = |field, value: u64| Corrupt::ComprCfg {
            name: algorithm,
            field,
            value,
        };
        match algorithm {
            Algorithm::Lz4 => {
                let cfg: RawLz4Cfg = read_cfg(algorithm, payload)?;
                let blocks = cfg.max_pclusterblks.get().max(1);
                if u64::from(blocks) << block_bits > u64::from(PCLUSTER_BYTES_MAX) {
                    return Err(impossible("pcluster size in blocks", blocks.into()).into());
                }
                self.lz4_max_pcluster_blocks = blocks;
                self.lz4_max_distance = match cfg.max_distance.get() {
                    0 => u16::MAX,
                    distance => distance,
                };
            }
            Algorithm::Lzma => {
                let cfg: RawLzmaCfg = read_cfg(algorithm, payload)?;
                let bytes = cfg.dict_size.get();
                if cfg.format.get() != 0 {
                    return Err(impossible("format", cfg.format.get().into()).into());
                }
                if !(4 << 10..=8 << 20).contains(&bytes) {
                    return Err(impossible("dictionary size", bytes.into()).into());
                }
                self.lzma_dict_bytes = bytes;
            }
            Algorithm::Deflate => {
                let cfg: RawDeflateCfg = read_cfg(algorithm, payload)?;
                // mkfs.erofs says 0 for libdeflate's streams: the decoder need not be told.
                if cfg.windowbits > 15 {
                    return Err(impossible("window shift", cfg.windowbits.into()).into());
                }
                self.deflate_window_bits = cfg.windowbits;
            }
            Algorithm::Zstd => {
                let cfg: RawZstdCfg = read_cfg(algorithm, payload)?;
                if cfg.format != 0 {
                    return Err(impossible("format", cfg.format.into()).into());
                }
                if cfg.windowlog > 10 {
                    return Err(impossible("window shift", u64::from(cfg.windowlog) + 10).into());
                }
                self.zstd_window_log = cfg.windowlog + 10;
            }
        }
        Ok(())
    }
}

fn read_cfg<T: FromBytes>(name: Algorithm, payload: &[u8]) -> Result<T, Corrupt> {
    let parsed = T::read_from_prefix(payload).map(|(cfg, _)| cfg);
    parsed.map_err(|_| Corrupt::ComprCfgSize {
        name,
        found: payload.len() as u16,
        needed: size_of::<T>() as u16,
    })
}
