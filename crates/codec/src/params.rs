//! Terms of decoding, which every codec shares: limits, lengths, steps.

/// Tells what the output's length says about the stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Length {
    /// The stream holds exactly as many bytes as the output, and ends where the input ends.
    Exact,
    /// The stream holds at least as many bytes as the output; what comes after them does not
    /// matter and is not looked at. This is what a partial reference to a shared pcluster asks for.
    ///
    /// A stream that is shorter is refused, but for LZMA: nothing marks its end, so its last bytes
    /// may pass for a few symbols more.
    AtLeast,
}

/// Holds what an image says about its streams: limits on the memory that decoding them may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Params {
    /// LZMA dictionary in bytes, at most [`Params::LZMA_DICT_BYTES_MAX`]; that much memory is
    /// taken, or as much as is decoded if that is less.
    pub lzma_dict_bytes: u32,
    /// Base-2 logarithm of the largest Zstandard window, within 10..=20. A frame that needs a larger
    /// window is refused where a window is needed, which is for [`Length::AtLeast`].
    pub zstd_window_log: u8,
}

impl Params {
    /// The largest LZMA dictionary of the format: 8 MiB.
    pub const LZMA_DICT_BYTES_MAX: u32 = 8 << 20;
    /// Base-2 logarithm of the largest window of DEFLATE: 32 KiB.
    pub const DEFLATE_WINDOW_BITS: u8 = 15;
    /// The smallest Zstandard window of the format: 1 KiB.
    pub const ZSTD_WINDOW_LOG_MIN: u8 = 10;
    /// The largest Zstandard window of the format: 1 MiB.
    pub const ZSTD_WINDOW_LOG_MAX: u8 = 20;
}

/// The largest sizes that the format allows: they decode every valid image.
impl Default for Params {
    fn default() -> Self {
        Self {
            lzma_dict_bytes: Self::LZMA_DICT_BYTES_MAX,
            zstd_window_log: Self::ZSTD_WINDOW_LOG_MAX,
        }
    }
}

/// Describes how far a codec went in one step.
pub(crate) struct Step {
    /// Bytes of the stream that were read.
    pub(crate) consumed: usize,
    /// Bytes that were decoded.
    pub(crate) got: usize,
}
