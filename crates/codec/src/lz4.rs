//! LZ4 blocks, by way of liblz4: everything here that calls C for them.

use std::ffi::{c_char, c_int, c_void};

use lz4_sys::LZ4_decompress_safe;

use crate::decoder::expect_full;
use crate::{Fault, Length};

// In liblz4, which `lz4_sys` builds and links, but not among its bindings (lz4.h, lz4hc.h of 1.10).
unsafe extern "C" {
    fn LZ4_decompress_safe_partial(
        src: *const c_char,
        dst: *mut c_char,
        src_len: c_int,
        wanted: c_int,
        dst_len: c_int,
    ) -> c_int;
    fn LZ4_sizeofState() -> c_int;
    fn LZ4_compress_destSize_extState(
        state: *mut c_void,
        src: *const c_char,
        dst: *mut c_char,
        src_len: *mut c_int,
        dst_len: c_int,
        acceleration: c_int,
    ) -> c_int;
    fn LZ4_sizeofStateHC() -> c_int;
    fn LZ4_compress_HC_destSize(
        state: *mut c_void,
        src: *const c_char,
        dst: *mut c_char,
        src_len: *mut c_int,
        dst_len: c_int,
        level: c_int,
    ) -> c_int;
}

/// The longest input that liblz4 compresses (LZ4_MAX_INPUT_SIZE).
const INPUT_MAX: usize = 0x7E00_0000;
/// The longest buffer whose length fits liblz4's `int`.
const BUFFER_MAX: usize = c_int::MAX as usize;

/// See [`Decoder::decode`](crate::Decoder::decode).
pub(crate) fn decode(stream: &[u8], out: &mut [u8], length: Length) -> Result<(), Fault> {
    let (Ok(stream_len), Ok(wanted)) = (c_int::try_from(stream.len()), c_int::try_from(out.len()))
    else {
        return Err(Fault::TooLarge { max: BUFFER_MAX });
    };
    let (src, dst) = (stream.as_ptr().cast(), out.as_mut_ptr().cast());
    // SAFETY: `src` is readable for `stream_len` bytes and `dst` writable for `wanted` bytes, for
    // they are the slices' own; both functions stay inside these on any input.
    let got = unsafe {
        match length {
            Length::Exact => LZ4_decompress_safe(src, dst, stream_len, wanted),
            Length::AtLeast => LZ4_decompress_safe_partial(src, dst, stream_len, wanted, wanted),
        }
    };
    match usize::try_from(got) {
        Ok(got) => expect_full(out.len(), got),
        Err(_) => Err(Fault::Malformed("not an LZ4 block of this length")),
    }
}

/// Which of liblz4's compressors a [`State`] is for.
#[derive(Clone, Copy)]
pub(crate) enum Method {
    /// The greedy one.
    Fast,
    /// The HC family, with its level.
    High(u8),
}

/// The working memory of a compressor.
pub(crate) struct State {
    method: Method,
    /// Words, since liblz4 wants its states aligned like a pointer or a `long long`.
    memory: Vec<u64>,
}

impl State {
    /// Working memory for `method`.
    pub(crate) fn new(method: Method) -> Self {
        // SAFETY: these two functions take nothing and return a constant.
        let bytes = unsafe {
            match method {
                Method::Fast => LZ4_sizeofState(),
                Method::High(_) => LZ4_sizeofStateHC(),
            }
        };
        let words = (bytes as usize).div_ceil(size_of::<u64>());
        Self {
            method,
            memory: vec![0; words],
        }
    }

    /// Compresses as much of the front of `input` as fits into `out`.
    ///
    /// Returns the bytes consumed and the bytes written, both zero if nothing fits.
    pub(crate) fn compress(&mut self, input: &[u8], out: &mut [u8]) -> (usize, usize) {
        let mut consumed = input.len().min(INPUT_MAX) as c_int;
        let budget = out.len().min(BUFFER_MAX) as c_int;
        let (src, dst) = (input.as_ptr().cast(), out.as_mut_ptr().cast());
        let state = self.memory.as_mut_ptr().cast();
        // SAFETY: `src` is readable for `consumed` bytes and `dst` writable for `budget` bytes, for
        // neither exceeds its slice; `state` is aligned and has the size that liblz4 asked for
        // this method in `new`, and both functions initialise it themselves.
        let written = unsafe {
            match self.method {
                Method::Fast => {
                    LZ4_compress_destSize_extState(state, src, dst, &mut consumed, budget, 1)
                }
                Method::High(level) => {
                    let level = c_int::from(level);
                    LZ4_compress_HC_destSize(state, src, dst, &mut consumed, budget, level)
                }
            }
        };
        match (usize::try_from(consumed), usize::try_from(written)) {
            (Ok(consumed), Ok(written)) if written > 0 => (consumed, written),
            _ => (0, 0),
        }
    }
}
