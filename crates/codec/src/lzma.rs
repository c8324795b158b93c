//! MicroLZMA, by way of liblzma.
//!
//! A MicroLZMA stream knows neither its compressed nor its decoded length; liblzma is told both, and
//! whether the latter is exact. It checks, for an exact length, that both ends coincide.

use liblzma_sys::{
    LZMA_DATA_ERROR, LZMA_FINISH, LZMA_MEM_ERROR, LZMA_OK, LZMA_OPTIONS_ERROR, LZMA_STREAM_END,
    lzma_code, lzma_end, lzma_microlzma_decoder, lzma_ret, lzma_stream,
};

use crate::{Fault, Length, Params};

/// liblzma's stream, which keeps its memory from one decoding to the next.
pub(crate) struct LzmaDecoder(lzma_stream);

// SAFETY: a `lzma_stream` owns what it points to (its input and output pointers are set anew for
// each call) and liblzma ties nothing of it to a thread.
unsafe impl Send for LzmaDecoder {}

impl Default for LzmaDecoder {
    fn default() -> Self {
        // SAFETY: all fields of `lzma_stream` are integers, raw pointers and C enums with a zero
        // value, and all-zero is what liblzma's own LZMA_STREAM_INIT sets.
        Self(unsafe { std::mem::zeroed() })
    }
}

impl Drop for LzmaDecoder {
    fn drop(&mut self) {
        // SAFETY: the stream was zeroed or initialised by liblzma, and is not used after this.
        unsafe { lzma_end(&mut self.0) }
    }
}

impl LzmaDecoder {
    /// See [`Decoder::decode`](crate::Decoder::decode).
    pub(crate) fn decode(
        &mut self,
        dict_bytes: u32,
        stream: &[u8],
        out: &mut [u8],
        length: Length,
    ) -> Result<(), Fault> {
        check_dict(dict_bytes)?;
        self.start(dict_bytes, stream.len(), out.len(), length)?;
        let ended = self.run(stream, out)?;
        // `run` went as far as the input and the output allow, so this is final.
        match out.len() - self.0.avail_out {
            got if got < out.len() => Err(Fault::Short { got }),
            _ if ended || length == Length::AtLeast => Ok(()),
            _ => Err(Fault::Malformed(
                "the stream is cut off before its end, or goes on beyond it",
            )),
        }
    }

    fn start(
        &mut self,
        dict_bytes: u32,
        stream_len: usize,
        wanted: usize,
        length: Length,
    ) -> Result<(), Fault> {
        let is_exact = u8::from(length == Length::Exact);
        // SAFETY: the stream was zeroed or initialised by liblzma before.
        let status = unsafe {
            lzma_microlzma_decoder(
                &mut self.0,
                stream_len as u64,
                wanted as u64,
                is_exact,
                dict_bytes,
            )
        };
        check(status)
    }

    /// Decodes as far as it goes; whether liblzma saw the end.
    fn run(&mut self, stream: &[u8], out: &mut [u8]) -> Result<bool, Fault> {
        self.0.next_in = stream.as_ptr();
        self.0.avail_in = stream.len();
        self.0.next_out = out.as_mut_ptr();
        self.0.avail_out = out.len();
        // SAFETY: `start` has initialised the stream; the pointers and lengths are those of two
        // slices that live, and do not overlap, until the call returns.
        let status = unsafe { lzma_code(&mut self.0, LZMA_FINISH) };
        check(status)?;
        Ok(status == LZMA_STREAM_END)
    }
}

fn check_dict(dict_bytes: u32) -> Result<(), Fault> {
    if dict_bytes <= Params::LZMA_DICT_BYTES_MAX {
        return Ok(());
    }
    Err(Fault::Unsupported {
        what: "dictionary size",
        value: u64::from(dict_bytes),
        min: 0,
        max: u64::from(Params::LZMA_DICT_BYTES_MAX),
    })
}

fn check(status: lzma_ret) -> Result<(), Fault> {
    match status {
        LZMA_OK | LZMA_STREAM_END => Ok(()),
        LZMA_MEM_ERROR => Err(Fault::OutOfMemory),
        LZMA_DATA_ERROR => Err(Fault::Malformed("data error")),
        LZMA_OPTIONS_ERROR => Err(Fault::Malformed("invalid properties byte")),
        _ => Err(Fault::Malformed("unexpected status of the decoder")),
    }
}

/// All of `data` as a MicroLZMA stream at the front of `out`, for the tests.
#[cfg(test)]
pub(crate) fn compress(data: &[u8], out: &mut [u8]) -> usize {
    use liblzma_sys::{lzma_lzma_preset, lzma_microlzma_encoder, lzma_options_lzma};

    let mut encoder = LzmaDecoder::default();
    // SAFETY: all fields are integers, raw pointers and C enums with a zero value.
    let mut options: lzma_options_lzma = unsafe { std::mem::zeroed() };
    // SAFETY: both pointers are to live values; the encoder copies the options.
    let status = unsafe {
        assert_eq!(lzma_lzma_preset(&mut options, 6), 0);
        lzma_microlzma_encoder(&mut encoder.0, &options)
    };
    assert_eq!(status, LZMA_OK);
    assert_eq!(encoder.run(data, out), Ok(true));
    assert_eq!(encoder.0.avail_in, 0, "all of the data fits");
    out.len() - encoder.0.avail_out
}
