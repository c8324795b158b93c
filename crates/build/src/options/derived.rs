//! Derived values of options: the compression of each part, and the memory for it.

use anteros_codec::Codec;
use anteros_core::Algorithm;

use super::compression::segment_bytes;
use super::{Compression, Content, Hint, Holes, Options, Order, Setting};
use crate::Appended;

impl Options {
    /// The options of a build that reads no content if these say so: nothing is compressed then, or lies behind inodes.
    pub(crate) fn of_content(&self) -> Self {
        if matches!(self.content, Content::Copy | Content::Refer) {
            return self.clone();
        }
        Self {
            compression: None,
            hints: Vec::new(),
            fragments: None,
            compress_directories: false,
            dedupe: false,
            inline_data: false,
            holes: Holes::Ignore,
            chunk_bytes: None,
            order: Order::Path,
            ..self.clone()
        }
    }

    /// The way to compress what is known to be read of a file.
    pub(crate) fn of_hot(&self, setting: Setting) -> Setting {
        let most = self.hot_pcluster_bytes.unwrap_or(u32::MAX);
        Setting {
            pcluster_bytes: setting.pcluster_bytes.min(most),
            ..setting
        }
    }

    /// The usual way to compress files.
    pub(crate) fn setting(&self) -> Option<Setting> {
        self.compression.map(|c| c.setting())
    }

    /// The usual way to compress files, those of hints, and that of metadata.
    pub(super) fn settings(&self) -> impl Iterator<Item = Setting> {
        let hints = self.hints.iter().filter_map(Hint::setting);
        self.setting().into_iter().chain(hints).chain(self.metabox)
    }

    /// The compression of files, or else that of metadata, if anything is compressed.
    pub(crate) fn any_compression(&self) -> Option<Compression> {
        let of_metabox = |setting: Setting| Compression::new(setting.codec);
        self.compression.or_else(|| self.metabox.map(of_metabox))
    }

    /// The codecs that files and metadata may have, each once.
    pub(crate) fn codecs(&self) -> Vec<Codec> {
        let mut codecs = Vec::new();
        for setting in self.settings() {
            let (codec, quick) = setting.codecs();
            for codec in [codec].into_iter().chain(quick) {
                if !codecs.contains(&codec) {
                    codecs.push(codec);
                }
            }
        }
        codecs
    }

    /// The longest pcluster that there may be; none without compression.
    pub fn pcluster_bytes_max(&self) -> u32 {
        let files = self.settings().map(|setting| setting.pcluster_bytes);
        files.chain(self.packed_pcluster_bytes()).max().unwrap_or(0)
    }

    /// The longest pcluster of the packed inode, if there may be one.
    pub(crate) fn packed_pcluster_bytes(&self) -> Option<u32> {
        let files = self.compression?.pcluster_bytes;
        match self.fragments {
            Some(fragments) => Some(fragments.pcluster_bytes.unwrap_or(files)),
            None => self.compress_directories.then_some(files),
        }
    }

    /// The way to compress the packed inode, if there may be one.
    pub(crate) fn packed_setting(&self) -> Option<Setting> {
        Some(Setting {
            pcluster_bytes: self.packed_pcluster_bytes()?,
            ..self.setting()?
        })
    }

    /// Length of the segments of the packed inode in bytes. A few of the longest pclusters fill one: each segment begins with
    /// nothing to refer to.
    pub(crate) fn packed_segment_bytes(&self) -> usize {
        let shortest = self.compression.map_or(0, |c| c.segment_bytes);
        segment_bytes(shortest, self.packed_pcluster_bytes().unwrap_or(0))
    }

    /// Length of the segments of the metabox in bytes.
    pub(crate) fn metabox_segment_bytes(&self) -> usize {
        let shortest = self.any_compression().map_or(0, |c| c.segment_bytes);
        segment_bytes(shortest, self.metabox.map_or(0, |s| s.pcluster_bytes))
    }

    /// The options of a build whose tree takes so many bytes of the memory. An eighth of the rest is for what the allocator
    /// keeps. Half of all is left in any case.
    pub(crate) fn beside(&self, tree_bytes: u64) -> Self {
        let left = self.memory_bytes.saturating_sub(tree_bytes) / 8 * 7;
        Self {
            memory_bytes: left.max(self.memory_bytes / 2),
            ..self.clone()
        }
    }

    fn encoder_bytes(&self) -> u64 {
        self.codecs().iter().map(Codec::encoder_bytes).sum()
    }

    /// Threads that read and compress: no more than have room for their encoders in three quarters of the memory, and at
    /// least one.
    pub(crate) fn compressing_workers(&self) -> usize {
        let room = self.memory_bytes / 4 * 3;
        let most = room.checked_div(self.encoder_bytes());
        let most = most.and_then(|most| usize::try_from(most).ok());
        most.map_or(self.workers, |most| most.clamp(1, self.workers))
    }

    /// Bytes of content that may be in flight beside the encoders, and as many that may wait for the packed inode if there
    /// is one. A quarter of the memory at the least is content.
    pub(crate) fn content_bytes(&self) -> u64 {
        let encoders = self.encoder_bytes() * self.compressing_workers() as u64;
        let least = self.memory_bytes / 4;
        let content = self.memory_bytes.saturating_sub(encoders).max(least);
        content
            / if self.packed_pcluster_bytes().is_some() {
                2
            } else {
                1
            }
    }

    /// Bytes of inodes that may be on their way, and as many of segments of the metabox if there is one.
    pub(crate) fn inodes_bytes(&self) -> u64 {
        match self.metabox {
            Some(_) => self.content_bytes() / 2,
            None => self.memory_bytes,
        }
    }

    /// Returns whether the superblock is followed by what decoders need to know. Without it, there is LZ4 in single
    /// blocks alone.
    pub(crate) fn compr_cfgs(&self) -> bool {
        let beyond_lz4 = |codec: &Codec| codec.algorithm() != Algorithm::Lz4;
        self.big_pclusters() || self.codecs().iter().any(beyond_lz4)
    }

    /// Returns whether long prefixes of attributes lie in the packed inode.
    pub(crate) fn packs_prefixes(&self) -> bool {
        let is_packed = self.packed_pcluster_bytes().is_some() && self.metabox.is_none();
        is_packed && !self.plain_xattr_prefixes && self.has_prefixes()
    }

    /// Returns whether long prefixes of attributes lie beside the superblock, although others would look elsewhere.
    pub(crate) fn has_plain_prefixes(&self) -> bool {
        let is_special = self.metabox.is_some() || self.packed_pcluster_bytes().is_some();
        self.has_prefixes() && !self.packs_prefixes() && is_special
    }

    /// Returns whether there are long prefixes of attributes; that of digests is one.
    pub(crate) fn has_prefixes(&self) -> bool {
        !self.xattr_prefixes.is_empty() || self.digest_xattr.is_some()
    }

    /// Returns whether a tree is compared with that of an older image.
    pub(crate) fn is_patch(&self) -> bool {
        self.patch.is_some() || self.patch_layer.is_some() || self.renew.is_some()
    }

    /// Options by which files are not packed together.
    pub(crate) fn unpacked(&self) -> Self {
        Self {
            fragments: None,
            ..self.clone()
        }
    }

    /// The image that grows in place, if one does.
    pub(crate) fn grown(&self) -> Option<&Appended> {
        let is_new = self.patch_layer.is_some() || self.renew.is_some();
        self.append.as_ref().filter(|_| !is_new)
    }

    /// Returns whether nothing is written, for changes are only told.
    pub(crate) fn is_dry_run(&self) -> bool {
        let patch = self.patch.as_ref().is_some_and(|patch| patch.dry_run);
        patch || self.patch_layer.as_ref().is_some_and(|layer| layer.dry_run)
    }

    /// Returns whether the image has extra devices.
    pub(crate) fn has_devices(&self) -> bool {
        self.blob_device.is_some() || self.tar_index || self.content == Content::Refer
    }

    /// Bytes to a multiple of which the content of files is aligned.
    pub(crate) fn data_align_bytes(&self) -> u64 {
        u64::from(self.data_align_blocks) << self.block_bits
    }

    /// Bytes of which the image is a multiple.
    pub(crate) fn image_align_bytes(&self) -> u64 {
        u64::from(self.image_align_blocks) << self.block_bits
    }
}

#[cfg(test)]
mod tests {
    use anteros_codec::Effort;

    use super::*;
    use crate::Fragments;

    #[test]
    fn segments_of_the_packed_inode_hold_some_pclusters() {
        let mib = |pcluster_bytes| {
            let options = Options {
                compression: Some(Compression::new(Effort::Fast)),
                fragments: Some(Fragments {
                    all: true,
                    pcluster_bytes: Some(pcluster_bytes),
                }),
                ..Options::default()
            };
            options.packed_segment_bytes() >> 20
        };
        let sizes = [4 << 10, 16 << 10, 32 << 10, 64 << 10, 1 << 20];
        assert_eq!(sizes.map(mib), [4, 4, 8, 16, 16]);
    }

    #[test]
    fn encoders_take_their_part_of_the_memory() {
        let lzma = |dict_bytes| Codec::Lzma {
            level: 9,
            extreme: false,
            dict_bytes,
        };
        let options = |codec: Codec, memory_bytes, workers| Options {
            compression: Some(Compression::new(codec)),
            memory_bytes,
            workers,
            ..Options::default()
        };
        let content = |codec, bytes, workers| options(codec, bytes, workers).content_bytes() >> 20;
        let mib = |mib: u64| mib << 20;
        assert!((245..256).contains(&content(Effort::Fast.into(), mib(256), 2)));
        assert!((128..200).contains(&content(lzma(4 << 20), mib(256), 2)));
        assert_eq!(content(lzma(8 << 20), mib(256), 100), 256 - 98);
        let workers = |codec, bytes, workers| options(codec, bytes, workers).compressing_workers();
        assert_eq!(workers(lzma(8 << 20), mib(256), 100), 1);
        assert_eq!(workers(lzma(4 << 20), mib(256), 100), 3);
        assert_eq!(workers(lzma(4 << 20), mib(1), 100), 1);
        assert_eq!(workers(Effort::Fast.into(), mib(256), 100), 100);
        let beside = |held| {
            options(Effort::Fast.into(), mib(256), 2)
                .beside(mib(held))
                .memory_bytes
        };
        assert_eq!([0, 56, 500].map(beside), [224, 175, 128].map(mib));
    }
}
