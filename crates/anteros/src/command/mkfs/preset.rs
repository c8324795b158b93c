//! `--small`, `--balanced`, `--fast`: settings that go together, for those who would not choose each by itself.
//!
//! | preset | codec | clusters | packing |
//! |---|---|---|---|
//! | small | lzma, level 9 | 1M | all files and their ends packed together, equal ones once, small ends behind inodes |
//! | balanced | lz4hc, level 9 | 64K | none |
//! | fast | lz4 | 64K | none |
//!
//! Values that are told by `-z`, `-C` and `-E` count more.

use anteros_build::{Codec, Effort, Fragments};

use super::compressor::{Compressor, LEVEL_9};
use super::options::Extended;

/// Settings that go together.
#[derive(Debug, PartialEq, Eq)]
pub struct Preset {
    pub compressor: Compressor,
    pub cluster_bytes: u64,
    pub extended: &'static [Extended],
}

const fn compressor(codec: Codec) -> Compressor {
    Compressor::Some {
        codec,
        dict_bytes: None,
    }
}

pub const SMALL: Preset = Preset {
    compressor: compressor(Codec::Lzma {
        level: 9,
        extreme: false,
        dict_bytes: 0, // as the clusters have it
    }),
    cluster_bytes: 1 << 20,
    extended: &[
        Extended::Fragments(Some(Fragments {
            all: true,
            pcluster_bytes: None,
        })),
        Extended::Dedupe(true),
        Extended::InlineTails(true),
    ],
};

pub const BALANCED: Preset = Preset {
    compressor: compressor(Codec::Lz4(LEVEL_9)),
    cluster_bytes: 64 << 10,
    extended: &[],
};

pub const FAST: Preset = Preset {
    compressor: compressor(Codec::Lz4(Effort::Fast)),
    cluster_bytes: 64 << 10,
    extended: &[],
};
