//! LZ4 blocks: decoded by [`lz4_block`], compressed by way of liblz4.

use std::ffi::{c_char, c_int, c_void};
use std::ops::Range;

// The crate builds and links the library, of which the functions below are missing in its bindings.
use lz4_sys as _;

use crate::{Encoded, Fault, Length, lz4_block};

// Of lz4.h and lz4hc.h of 1.10.
unsafe extern "C" {
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
    // SAFETY: both pointers and lengths are those of slices.
    unsafe {
        decode_raw(
            stream.as_ptr(),
            stream.len(),
            out.as_mut_ptr(),
            out.len(),
            length,
        )
    }
}

/// Decodes `buf[stream]` into `buf[..wanted]`, of which it may be a part.
///
/// The bytes are right if [`fits_in_place`](crate::fits_in_place).
///
/// # Panics
///
/// When the stream or what is wanted lies outside `buf`.
pub(crate) fn decode_in_place(
    buf: &mut [u8],
    stream: Range<usize>,
    wanted: usize,
) -> Result<(), Fault> {
    let stream_len = buf[stream.clone()].len();
    assert!(wanted <= buf.len(), "what is wanted fits the buffer");
    let base = buf.as_mut_ptr();
    // SAFETY: the slicing and the assertion above have shown that both ranges lie inside `buf`, which
    // nothing else borrows. They may overlap. Should the output run over input that is yet to be read
    // (a hostile stream), other bytes are read there, and those are as untrusted as the first ones:
    // checks are on lengths, and on each value as it was read.
    unsafe {
        decode_raw(
            base.add(stream.start),
            stream_len,
            base,
            wanted,
            Length::Exact,
        )
    }
}

/// Decodes from one stretch of memory to another.
///
/// # Safety
///
/// `src` must be readable for `stream_len` bytes and `dst` writable for `wanted` bytes. On any input
/// nothing else is read or written, but for what was written to `dst` before.
pub(crate) unsafe fn decode_raw(
    src: *const u8,
    stream_len: usize,
    dst: *mut u8,
    wanted: usize,
    length: Length,
) -> Result<(), Fault> {
    if stream_len > BUFFER_MAX || wanted > BUFFER_MAX {
        return Err(Fault::TooLarge { max: BUFFER_MAX });
    }
    // SAFETY: the caller vouches for `src` and `dst`.
    unsafe {
        match length {
            Length::Exact => lz4_block::decode::<false>(src, stream_len, dst, wanted),
            Length::AtLeast => lz4_block::decode::<true>(src, stream_len, dst, wanted),
        }
    }
}

/// Tells which of liblz4's compressors a [`State`] is for.
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
    /// Nothing is consumed and nothing written if nothing fits.
    pub(crate) fn compress(&mut self, input: &[u8], out: &mut [u8]) -> Encoded {
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
            (Ok(consumed), Ok(written)) if written > 0 => Encoded { consumed, written },
            _ => Encoded::default(),
        }
    }
}
