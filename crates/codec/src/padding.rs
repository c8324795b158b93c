//! Place of a stream in its pcluster: at the end, with zero bytes in front.
//!
//! No stream begins with a zero byte, so the first byte that is not zero is where it starts.

/// Finds the stream in a pcluster: all from the first non-zero byte on.
///
/// The padding is there to fill the first block, so it is shorter than a block: at most
/// `padding_max` bytes are skipped. `None` when the first `padding_max + 1` bytes (or all of a
/// shorter pcluster) are zero, in which case there is no valid stream.
pub fn strip_zero_padding(pcluster: &[u8], padding_max: usize) -> Option<&[u8]> {
    let start = pcluster.iter().position(|&byte| byte != 0)?;
    (start <= padding_max).then(|| &pcluster[start..])
}

/// Moves a stream from the front of its pcluster to the end, and fills the front with zeros.
///
/// `pcluster` is as long as the blocks that will be written; its first `stream_len` bytes are the
/// stream.
///
/// # Panics
///
/// When the stream is longer than the pcluster.
pub fn right_align(pcluster: &mut [u8], stream_len: usize) {
    let padding = pcluster
        .len()
        .checked_sub(stream_len)
        .expect("a stream fits its pcluster");
    pcluster.copy_within(..stream_len, padding);
    pcluster[..padding].fill(0);
}
