//! The names of the compression algorithms.

use std::fmt;

/// A compression algorithm that EROFS extents may be stored with; the value is its number on disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Algorithm {
    /// A raw LZ4 block: no frame, no length.
    Lz4 = 0,
    /// MicroLZMA: a raw LZMA1 stream without end marker, whose first byte is the bitwise inverse of
    /// the properties byte.
    Lzma = 1,
    /// A raw DEFLATE stream (RFC 1951): no zlib or gzip wrapper.
    Deflate = 2,
    /// One Zstandard frame (RFC 8878).
    Zstd = 3,
}

impl Algorithm {
    /// Every algorithm, in the order of their numbers.
    pub const ALL: [Self; 4] = [Self::Lz4, Self::Lzma, Self::Deflate, Self::Zstd];

    /// The lower-case name, as it is written on command lines.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Lz4 => "lz4",
            Self::Lzma => "lzma",
            Self::Deflate => "deflate",
            Self::Zstd => "zstd",
        }
    }
}

impl fmt::Display for Algorithm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}
