//! Memory that reading an image takes, as the image itself says.

use anteros_codec::{Params, RollingWindow};
use anteros_core::Algorithm;
use anteros_format::{EXTENT_BYTES_MAX, PCLUSTER_BYTES_MAX};

use super::sizes::{BUFFER_BYTES, RECENT_BYTES, RUN_BYTES};
use crate::image::Image;

impl Image {
    /// Returns what the image says about its streams.
    pub(crate) const fn params(&self) -> Params {
        Params {
            lzma_dict_bytes: self.compr_cfgs().lzma_dict_bytes,
            zstd_window_log: self.compr_cfgs().zstd_window_log,
        }
    }

    /// Returns the least [`cache_bytes`](crate::OpenOptions::cache_bytes) for so many reading
    /// threads with reads of this length. It has room for a cache of metadata, for the memory that
    /// each thread keeps, and for the largest pcluster that the format allows, once.
    pub fn cache_bytes_min(&self, readers: usize, read_bytes: usize) -> usize {
        let data = self.read_memory_min() + readers * self.bench_memory(read_bytes);
        // An eighth of all is for metadata.
        data + data.div_ceil(7)
    }

    /// Returns the most memory that a single read needs at a time, besides the memory that its
    /// thread keeps: a pcluster, and the decoding of it from the beginning.
    pub(crate) fn read_memory_min(&self) -> usize {
        // An inline pcluster's may be wanted while another's is held.
        const SPARE: usize = 64 << 10;
        let decoding = self.decoder_bytes(EXTENT_BYTES_MAX as usize);
        PCLUSTER_BYTES_MAX as usize + RECENT_BYTES + SPARE + decoding
    }

    /// Returns whether a decoder looks back a MiB or more, and takes that much memory while it is suspended in a long
    /// extent. One for each file that is read in order spares decoding its extents again and again.
    pub fn looks_far_back(&self) -> bool {
        let mut each = self.decoders_bytes(EXTENT_BYTES_MAX as usize);
        each.any(|bytes| bytes >= 1 << 20)
    }

    /// Memory that no read needs, in bytes.
    pub(crate) fn spare_memory(&self) -> usize {
        self.serve.memory.limit() - self.read_memory_min()
    }

    /// The most memory that a thread keeps for itself from one read to the next, in bytes. What its
    /// decoders decode is never longer than a read.
    pub(crate) fn bench_memory(&self, read_bytes: usize) -> usize {
        let window = RollingWindow::KEPT_MAX.max(self.lz4_bytes_max());
        RUN_BYTES + BUFFER_BYTES + window + self.decoder_bytes(read_bytes)
    }

    /// The longest LZ4 pcluster that the image says it has, in bytes.
    pub(crate) fn lz4_bytes_max(&self) -> usize {
        let blocks = usize::from(self.compr_cfgs().lz4_max_pcluster_blocks).max(1);
        let bytes = blocks * self.superblock().block_bytes() as usize;
        bytes.min(PCLUSTER_BYTES_MAX as usize)
    }

    /// Returns what the decoders for the algorithms of the image take together, if so many bytes are decoded at once.
    fn decoder_bytes(&self, longest: usize) -> usize {
        self.decoders_bytes(longest).sum()
    }

    /// Returns what each of these decoders takes.
    fn decoders_bytes(&self, longest: usize) -> impl Iterator<Item = usize> {
        let listed = |algorithm: &Algorithm| self.superblock().algorithms.contains(*algorithm);
        let algorithms = Algorithm::ALL.into_iter().filter(listed);
        algorithms.map(move |algorithm| self.params().memory_bytes(algorithm, longest))
    }
}
