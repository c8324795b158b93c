//! `--small`, `--balanced`, `--fast`: settings that go together, for those who would not choose each by itself.
//!
//! | preset | codec | clusters | packing | order |
//! |---|---|---|---|---|
//! | small | lzma, level 9 | 1M | all files, their ends and directories packed together, equal ones once, small ends behind inodes | by kind |
//! | balanced | lz4hc, level 9 | 64K | none | by path |
//! | fast | lz4 | 64K | none | by path |
//!
//! Values that are told by `-z`, `-C`, `-E` and `--order` count more.
//!
//! For a machine that is told of (`--for`), the first of these is taken that it reads; the first line only if its kernel
//! is told:
//!
//! | preset | codec | clusters | packing |
//! |---|---|---|---|
//! | small | lzma, level 9 | 1M | all, in bytes instead of blocks, directories without `.`; with metadata, then without |
//! | | lzma, level 9, with smaller and smaller dictionaries | 1M | all; then small ends behind inodes; then none |
//! | | lz4hc, level 12 | 1M and smaller | the same |
//! | balanced | lz4hc, level 9 | 64K and smaller | none |
//! | fast | lz4 | 64K and smaller | none |

use anteros_build::{Codec, Effort, Fragments, Order};

use super::compressor::{Compressor, LEVEL_9, LEVEL_12};
use super::values::Extended;

/// Settings that go together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Preset {
    pub compressor: Compressor,
    pub cluster_bytes: u64,
    pub extended: &'static [Extended],
    pub order: Option<Order>,
}

const fn compressor(codec: Codec) -> Compressor {
    Compressor::Some {
        codec,
        dict_bytes: None,
    }
}

const ALL_FRAGMENTS: Extended = Extended::Fragments(Some(Fragments {
    all: true,
    pcluster_bytes: None,
}));

/// Packing that only the latest kernels read, the best one first.
const LATEST: [&[Extended]; 2] = [
    &[
        ALL_FRAGMENTS,
        Extended::Dedupe(true),
        Extended::DotOmitted(true),
        Extended::Directories(true),
        Extended::Metadata(32 << 10),
    ],
    &[
        ALL_FRAGMENTS,
        Extended::Dedupe(true),
        Extended::DotOmitted(true),
        Extended::Directories(true),
    ],
];

pub const SMALL: Preset = Preset {
    compressor: compressor(Codec::Lzma {
        level: 9,
        extreme: false,
        dict_bytes: 0, // as the clusters have it
    }),
    cluster_bytes: 1 << 20,
    extended: &[
        ALL_FRAGMENTS,
        Extended::Dedupe(true),
        Extended::InlineTails(true),
        Extended::Directories(true),
    ],
    order: Some(Order::Kind),
};

pub const BALANCED: Preset = Preset {
    compressor: compressor(Codec::Lz4(LEVEL_9)),
    cluster_bytes: 64 << 10,
    extended: &[],
    order: None,
};

pub const FAST: Preset = Preset {
    compressor: compressor(Codec::Lz4(Effort::Fast)),
    cluster_bytes: 64 << 10,
    extended: &[],
    order: None,
};

/// Packing that older kernels read, the best one first.
const PACKING: [&[Extended]; 2] = [&[Extended::InlineTails(true)], &[]];

/// Dictionaries of LZMA beside the usual one.
const LZMA_DICTS: [u32; 7] = [
    2 << 20,
    1 << 20,
    512 << 10,
    256 << 10,
    128 << 10,
    64 << 10,
    32 << 10,
];

impl Preset {
    /// Returns what stands in for it on a machine, the best one first: what only the latest kernels read if its kernel is
    /// known, and what older ones do. The largest of the clusters comes first.
    pub fn variants(self, clusters: &[u64], knows_kernel: bool) -> Vec<Self> {
        let (packing, lz4) = match self {
            SMALL => (&PACKING[..], LEVEL_12.into()),
            _ => return self.by_cluster(clusters).collect(),
        };
        let latest = if knows_kernel { &LATEST[..] } else { &[] };
        let packing = || {
            let latest = latest.iter().copied();
            latest.chain([self.extended]).chain(packing.iter().copied())
        };
        let lzma = packing().flat_map(|extended| Self { extended, ..self }.by_dict(clusters));
        let lz4 = packing().flat_map(|extended| {
            let compressor = compressor(lz4);
            let preset = Self {
                compressor,
                extended,
                ..self
            };
            preset.by_cluster(clusters)
        });
        lzma.chain(lz4).collect()
    }

    fn by_cluster(self, clusters: &[u64]) -> impl Iterator<Item = Self> {
        clusters.iter().map(move |&cluster_bytes| Self {
            cluster_bytes,
            ..self
        })
    }

    fn by_dict(self, clusters: &[u64]) -> impl Iterator<Item = Self> + use<> {
        let cluster_bytes = clusters.first().copied().unwrap_or(self.cluster_bytes);
        let usual = self.compressor.dict_bytes(cluster_bytes as u32);
        let smaller = LZMA_DICTS.into_iter().filter(move |&dict| dict < usual);
        let dicts = std::iter::once(usual).chain(smaller);
        dicts.map(move |dict| Self {
            compressor: self.compressor.with_dict(dict),
            cluster_bytes,
            ..self
        })
    }
}
