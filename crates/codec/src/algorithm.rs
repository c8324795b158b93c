//! The names of the codecs.

use std::fmt;

/// A codec that an EROFS extent may be stored with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Algorithm {
    /// A raw LZ4 block: no frame, no length.
    Lz4,
    /// MicroLZMA: a raw LZMA1 stream with no end marker, whose first byte is the bitwise inverse of
    /// the properties byte.
    Lzma,
    /// A raw DEFLATE stream (RFC 1951): no zlib or gzip wrapper.
    Deflate,
    /// One Zstandard frame (RFC 8878).
    Zstd,
}

impl Algorithm {
    /// Every codec, in the order of their numbers in an EROFS index.
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
