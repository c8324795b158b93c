//! Demands of an image on the Linux that mounts it.

use anteros_codec::Codec;
use anteros_format::compr_cfg::{AlgorithmSet, ComprCfgs};
use anteros_format::linux::{Feature, Needs, decoder_bytes};
use anteros_format::superblock::Superblock;

use crate::{Content, Holes, Options, PCLUSTER_BLOCKS_MAX};

impl Options {
    /// The most that an image with these options may ask for; how much of it one does is up to the source.
    pub fn linux(&self) -> Needs {
        let algorithms = self.algorithms();
        let is_compressed = algorithms.iter().next().is_some();
        let has_files = self.compression.is_some();
        let features = [
            (is_compressed, Feature::Compression),
            (self.compr_cfgs(), Feature::BigPclusters),
            (has_files && self.has_inline_tails(), Feature::InlineTails),
            (has_files && self.shares(), Feature::Fragments),
            (self.has_chunks(), Feature::Chunks),
            (self.has_two_heads() || self.has_devices(), Feature::Devices),
            (self.is_wide(), Feature::Wide),
            (self.metabox.is_some(), Feature::Metabox),
            (self.has_prefixes(), Feature::LongPrefixes),
            (self.has_plain_prefixes(), Feature::PlainPrefixes),
        ];
        let features = features.into_iter().filter(|(is_used, _)| *is_used);
        let features = features.map(|(_, feature)| feature);
        let features = features.chain(algorithms.iter().map(Feature::of));
        let features = features.chain(Feature::of_blocks(self.block_bits, is_compressed));
        let cfgs = self.cfgs();
        let decoders = algorithms.iter();
        let decoders = decoders.map(|a| decoder_bytes(a, &cfgs, self.block_bits));
        Needs::new(features, self.block_bits, decoders.sum())
    }

    /// Returns whether files or directories may lie in the packed inode, or parts of files be those of others.
    fn shares(&self) -> bool {
        self.packed_pcluster_bytes().is_some() || self.dedupe
    }

    /// Returns whether index entries may tell two algorithms apart.
    fn has_two_heads(&self) -> bool {
        let quick = self.setting().and_then(|setting| setting.codecs().1);
        quick.is_some() && !self.has_encoded_extents()
    }

    fn has_chunks(&self) -> bool {
        self.chunk_bytes.is_some()
            || self.tar_index
            || matches!(self.content, Content::Refer | Content::Zero)
            || self.holes != Holes::Ignore
    }

    /// The algorithms that files and metadata may have.
    pub(crate) fn algorithms(&self) -> AlgorithmSet {
        self.codecs().iter().map(Codec::algorithm).collect()
    }

    /// Configurations for decoders: enough for each codec.
    pub(crate) fn cfgs(&self) -> ComprCfgs {
        let mut blocks = self.pcluster_bytes_max() >> self.block_bits;
        if self.has_encoded_extents() {
            // What begins inside a block ends in one more.
            blocks = (blocks + 1).min(PCLUSTER_BLOCKS_MAX);
        }
        let mut cfgs = ComprCfgs {
            lz4_max_pcluster_blocks: blocks.max(1) as u16, // at most 256
            lzma_dict_bytes: 0,
            zstd_window_log: 0,
            ..ComprCfgs::default()
        };
        for codec in self.codecs() {
            match codec {
                Codec::Lzma { dict_bytes, .. } => {
                    cfgs.lzma_dict_bytes = cfgs.lzma_dict_bytes.max(dict_bytes);
                }
                Codec::Zstd { window_log, .. } => {
                    cfgs.zstd_window_log = cfgs.zstd_window_log.max(window_log);
                }
                Codec::Lz4(_) | Codec::Deflate { .. } => {}
            }
        }
        cfgs
    }

    /// The demands of an image with this superblock.
    pub(crate) fn linux_of(&self, superblock: &[u8]) -> Needs {
        let superblock = Superblock::parse(superblock).expect("a superblock of our own");
        Needs::of(&superblock, &self.cfgs())
    }
}

#[cfg(test)]
mod tests {
    use anteros_codec::Effort;

    use super::*;
    use crate::{Compression, Fragments};

    fn oldest(options: &Options) -> String {
        options.linux().oldest().to_string()
    }

    fn compressed(codec: impl Into<Codec>, pcluster_bytes: u32) -> Options {
        Options {
            holes: Holes::Ignore,
            compression: Some(Compression {
                pcluster_bytes,
                ..Compression::new(codec)
            }),
            ..Options::default()
        }
    }

    #[test]
    fn options_ask_for_what_they_may_use() {
        let lz4 = |bytes| compressed(Effort::Fast, bytes);
        assert_eq!(oldest(&lz4(4096)), "5.4");
        assert_eq!(oldest(&lz4(8192)), "5.13");
        let zstd = Codec::Zstd {
            level: 3,
            window_log: 17,
        };
        assert_eq!(oldest(&compressed(zstd, 4096)), "6.10");
        assert_eq!(
            oldest(&compressed(Codec::Deflate { level: 6 }, 4096)),
            "6.6"
        );
        for (change, version) in [
            ((|o| o.inline_tails = true) as fn(&mut Options), "5.17"),
            (|o| o.fragments = Some(Fragments::default()), "6.1"),
            (|o| o.dedupe = true, "6.1"),
            (|o| o.holes = Holes::Auto, "5.15"),
            (|o| o.chunk_bytes = Some(4096), "5.15"),
            (|o| o.block_bits = 11, "6.8"),
            (|o| o.wide = true, "6.15"),
            (|o| o.dot_omitted = true, "6.15"),
            (|o| o.metabox = o.setting(), "6.17"),
        ] {
            let mut options = lz4(4096);
            change(&mut options);
            assert_eq!(oldest(&options), version);
        }
    }

    #[test]
    fn what_is_for_compressed_files_asks_for_nothing_without_compression() {
        let options = Options {
            inline_tails: true,
            fragments: Some(Fragments::default()),
            holes: Holes::Ignore,
            ..Options::default()
        };
        assert_eq!(oldest(&options), "5.4");
        assert_eq!(options.linux().decoder_bytes, 0);
    }

    #[test]
    fn metadata_may_be_compressed_by_itself() {
        let options = Options {
            holes: Holes::Ignore,
            inline_tails: true,
            metabox: compressed(Codec::Deflate { level: 6 }, 4096).setting(),
            ..Options::default()
        };
        let needs = options.linux();
        assert_eq!(needs.oldest(), Feature::Metabox.since());
        assert!(needs.features.contains(&Feature::Deflate));
        assert!(!needs.features.contains(&Feature::InlineTails));
    }

    #[test]
    fn the_largest_clusters_count_wherever_they_are() {
        let mut options = compressed(Effort::Fast, 16 << 10);
        assert_eq!(options.linux().decoder_bytes, 16 << 10);
        options.fragments = Some(Fragments {
            all: false,
            pcluster_bytes: Some(256 << 10),
        });
        assert_eq!(options.linux().decoder_bytes, 256 << 10);
    }
}
