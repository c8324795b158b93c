//! Compression of files, and packing them together.

use anteros_codec::Codec;

/// Files have so many segments at least before these get longer.
const SEGMENTS_MIN: u64 = 2;
/// Bytes of a segment that is not compressed.
pub(crate) const RAW_SEGMENT_BYTES: u64 = 1 << 20;
/// The largest pcluster for which segments of the packed inode are no longer than those of small files.
const USUAL_PCLUSTER_BYTES: u32 = 16 << 10;
/// Segments double so many times at most: several of them have to fit the memory.
const DOUBLINGS_MAX: u32 = 2;

/// Describes how files are compressed: streams of a fixed length, as much input in each as fits
/// (the EROFS paper, section 3.1).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Compression {
    /// The codec, and how hard its encoder tries.
    pub codec: Codec,
    /// Longest stream in bytes: a multiple of the block size, at most 1 MiB.
    pub pcluster_bytes: u32,
    /// Streams that are quicker to read, where these take little more room.
    pub quick: Option<Quick>,
    /// The paper's sliding window: the most input that one stream may take, in bytes.
    pub window_bytes: u32,
    /// Files are cut into segments of so many bytes, a multiple of the block size, which are
    /// compressed at the same time. Those of large files are up to four times as long, for each of
    /// them ends with a stream that is not full. The image depends on this, but not on the number of
    /// workers.
    pub segment_bytes: u32,
    /// A file stays as it is unless compression saves so many percent of it, and at least a byte.
    pub min_gain_percent: u8,
    /// Index entries of 8 bytes instead of 2 or 4.
    pub legacy_index: bool,
}

impl Compression {
    /// Streams of one 4 KiB block.
    pub fn new(codec: impl Into<Codec>) -> Self {
        Self {
            codec: codec.into(),
            pcluster_bytes: 4096,
            quick: None,
            window_bytes: 8 << 20,
            segment_bytes: 4 << 20,
            min_gain_percent: 0,
            legacy_index: false,
        }
    }
}

/// Describes how a file is compressed: by which codec, in streams of which length.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Setting {
    /// The codec, and how hard its encoder tries.
    pub codec: Codec,
    /// Longest stream in bytes: a multiple of the block size, at most 1 MiB.
    pub pcluster_bytes: u32,
    /// Streams that are quicker to read, where these take little more room.
    pub quick: Option<Quick>,
}

impl Setting {
    /// The codec, and the quick one.
    pub(crate) fn codecs(&self) -> (Codec, Option<Codec>) {
        (self.codec, self.quick.and_then(|quick| quick.codec))
    }
}

/// Describes what is stored in a quicker way: each extent by itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Quick {
    /// A further codec, of another algorithm; without it, there is only what is stored as it is.
    pub codec: Option<Codec>,
    /// Percent of room that it may take beyond that of the first codec.
    pub percent: u8,
    /// Tells whether that holds only for what is known to be read ([`Options::hot`](crate::Options::hot)).
    pub of_hot: bool,
}

/// Describes what is packed into one inode, and how that is compressed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Fragments {
    /// Packs all files, whatever their size.
    pub all: bool,
    /// Longest stream of the packed inode in bytes, as that of files if not given.
    pub pcluster_bytes: Option<u32>,
}

impl Compression {
    /// Returns how long the segments of a file are that has so many bytes.
    pub(crate) fn segment_bytes_of(&self, size: u64) -> u64 {
        let shortest = u64::from(self.segment_bytes);
        let times = size / (SEGMENTS_MIN * shortest);
        shortest << times.max(1).ilog2().min(DOUBLINGS_MAX)
    }

    /// The codec and its streams.
    pub(crate) const fn setting(&self) -> Setting {
        Setting {
            codec: self.codec,
            pcluster_bytes: self.pcluster_bytes,
            quick: self.quick,
        }
    }
}

/// Length of segments that hold some pclusters of so many bytes: as long as those of small files, or longer.
pub(super) fn segment_bytes(shortest: u32, pcluster_bytes: u32) -> usize {
    let times = pcluster_bytes / USUAL_PCLUSTER_BYTES;
    (shortest as usize) << times.max(1).ilog2().min(DOUBLINGS_MAX)
}

#[cfg(test)]
mod tests {
    use anteros_codec::Effort;

    use super::*;

    #[test]
    fn segments_of_large_files_are_longer() {
        let compression = Compression::new(Effort::Fast);
        let mib = |size: u64| compression.segment_bytes_of(size << 20) >> 20;
        let sizes = [0, 4, 15, 16, 31, 32, 300, 1 << 20, 1 << 40];
        assert_eq!(sizes.map(mib), [4, 4, 4, 8, 8, 16, 16, 16, 16]);
    }
}
