//! MicroLZMA, by way of liblzma.
//!
//! A MicroLZMA stream knows neither its compressed nor its decoded length; liblzma is told both, and
//! whether the latter is exact. It checks, for an exact length, that both ends coincide.

use liblzma_sys::{
    LZMA_DATA_ERROR, LZMA_FINISH, LZMA_MEM_ERROR, LZMA_OK, LZMA_OPTIONS_ERROR, LZMA_RUN,
    LZMA_STREAM_END, lzma_action, lzma_code, lzma_end, lzma_microlzma_decoder, lzma_ret,
    lzma_stream,
};

use crate::stream::Step;
use crate::{Fault, Length, Params};

/// liblzma makes a smaller dictionary this large.
const DICT_BYTES_MIN: u32 = 4096;
/// States what liblzma holds besides the dictionary, rounded up: some 28 KiB of probabilities, a
/// buffer of 4 KiB, and margins of the dictionary.
const STATE_BYTES: usize = 48 << 10;

/// liblzma's stream, which keeps its memory from one decoding to the next.
pub(crate) struct LzmaDecoder {
    stream: lzma_stream,
    /// The longest output so far. No distance reaches back further, so no dictionary need be larger;
    /// it does not shrink, lest liblzma allocate anew for each length.
    longest: usize,
}

// SAFETY: a `lzma_stream` owns what it points to (its input and output pointers are set anew for
// each call) and liblzma ties nothing of it to a thread.
unsafe impl Send for LzmaDecoder {}

impl Default for LzmaDecoder {
    fn default() -> Self {
        // SAFETY: all fields of `lzma_stream` are integers, raw pointers and C enums with a zero
        // value, and all-zero is what liblzma's own LZMA_STREAM_INIT sets.
        let stream = unsafe { std::mem::zeroed() };
        Self { stream, longest: 0 }
    }
}

impl Drop for LzmaDecoder {
    fn drop(&mut self) {
        // SAFETY: the stream was zeroed or initialised by liblzma, and is not used after this.
        unsafe { lzma_end(&mut self.stream) }
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
        self.start(dict_bytes, stream.len(), out.len(), length)?;
        let status = self.run(stream, out, LZMA_FINISH);
        let ended = check(status)? == LZMA_STREAM_END;
        // `run` went as far as the input and the output allow, so this is final.
        match out.len() - self.stream.avail_out {
            got if got < out.len() => Err(Fault::Short { got }),
            _ if ended || length == Length::AtLeast => Ok(()),
            _ => Err(Fault::Malformed(
                "the stream is cut off before its end, or goes on beyond it",
            )),
        }
    }

    /// A decoder for the front of a stream, at most `longest` bytes of it, in steps.
    pub(crate) fn at_start_of(
        dict_bytes: u32,
        stream_len: usize,
        longest: usize,
    ) -> Result<Self, Fault> {
        let mut decoder = Self::default();
        decoder.start(dict_bytes, stream_len, longest, Length::AtLeast)?;
        Ok(decoder)
    }

    /// Decodes the next bytes.
    pub(crate) fn step(&mut self, rest: &[u8], out: &mut [u8]) -> Result<Step, Fault> {
        let status = self.run(rest, out, LZMA_RUN);
        // liblzma looks ahead, for an end marker. What it meets there is no matter of this step.
        if self.stream.avail_out > 0 {
            check(status)?;
        }
        Ok(Step {
            consumed: rest.len() - self.stream.avail_in,
            got: out.len() - self.stream.avail_out,
        })
    }

    fn start(
        &mut self,
        dict_bytes: u32,
        stream_len: usize,
        wanted: usize,
        length: Length,
    ) -> Result<(), Fault> {
        check_dict(dict_bytes)?;
        self.longest = self.longest.max(wanted);
        let is_exact = u8::from(length == Length::Exact);
        // SAFETY: the stream was zeroed or initialised by liblzma before.
        let status = unsafe {
            lzma_microlzma_decoder(
                &mut self.stream,
                stream_len as u64,
                wanted as u64,
                is_exact,
                dict_bytes_for(dict_bytes, self.longest),
            )
        };
        check(status).map(drop)
    }

    /// Decodes (or encodes) as far as it goes.
    fn run(&mut self, stream: &[u8], out: &mut [u8], action: lzma_action) -> lzma_ret {
        self.stream.next_in = stream.as_ptr();
        self.stream.avail_in = stream.len();
        self.stream.next_out = out.as_mut_ptr();
        self.stream.avail_out = out.len();
        // SAFETY: `start` has initialised the stream; the pointers and lengths are those of two
        // slices that live, and do not overlap, until the call returns.
        unsafe { lzma_code(&mut self.stream, action) }
    }
}

/// The most memory of a decoder, of which at most `longest` bytes are wanted at once.
pub(crate) fn memory_bytes(dict_bytes: u32, longest: usize) -> usize {
    dict_bytes_for(dict_bytes, longest).max(DICT_BYTES_MIN) as usize + STATE_BYTES
}

/// The dictionary that decoding at most `longest` bytes takes.
fn dict_bytes_for(dict_bytes: u32, longest: usize) -> u32 {
    u32::try_from(longest).map_or(dict_bytes, |longest| longest.min(dict_bytes))
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

fn check(status: lzma_ret) -> Result<lzma_ret, Fault> {
    match status {
        LZMA_OK | LZMA_STREAM_END => Ok(status),
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
        lzma_microlzma_encoder(&mut encoder.stream, &options)
    };
    assert_eq!(status, LZMA_OK);
    assert_eq!(encoder.run(data, out, LZMA_FINISH), LZMA_STREAM_END);
    assert_eq!(encoder.stream.avail_in, 0, "all of the data fits");
    out.len() - encoder.stream.avail_out
}

/// Returns what liblzma says that a decoder takes, for the tests: 32 KiB of this are a guess of what the heap
/// adds.
#[cfg(test)]
pub(crate) fn memory_bytes_by_liblzma(dict_bytes: u32) -> u64 {
    use liblzma_sys::{
        LZMA_FILTER_LZMA1, LZMA_VLI_UNKNOWN, lzma_filter, lzma_options_lzma,
        lzma_raw_decoder_memusage,
    };

    // SAFETY: all fields are integers, raw pointers and C enums with a zero value.
    let mut options: lzma_options_lzma = unsafe { std::mem::zeroed() };
    options.dict_size = dict_bytes;
    options.lc = 4;
    let filter = |id| lzma_filter {
        id,
        options: (&raw mut options).cast(),
    };
    let filters = [LZMA_FILTER_LZMA1, LZMA_VLI_UNKNOWN].map(filter);
    // SAFETY: the list is ended by an unknown filter; options and list live until the call returns.
    unsafe { lzma_raw_decoder_memusage(filters.as_ptr()) }
}
