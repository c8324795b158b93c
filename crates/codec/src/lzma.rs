//! MicroLZMA, by way of liblzma.
//!
//! A MicroLZMA stream knows neither its compressed nor its decoded length. liblzma is told both,
//! and whether the latter is exact. For an exact length it checks that both ends coincide.

use liblzma_sys::{
    LZMA_DATA_ERROR, LZMA_FINISH, LZMA_MEM_ERROR, LZMA_OK, LZMA_OPTIONS_ERROR, LZMA_PRESET_EXTREME,
    LZMA_RUN, LZMA_STREAM_END, lzma_action, lzma_code, lzma_end, lzma_lzma_preset,
    lzma_microlzma_decoder, lzma_microlzma_encoder, lzma_options_lzma, lzma_ret, lzma_stream,
};

use crate::params::Step;
use crate::{Algorithm, EncodeError, Encoded, Fault, Length, Params};

/// liblzma makes a smaller dictionary this large.
const DICT_BYTES_MIN: u32 = 4096;
/// The shortest stream that liblzma makes.
const STREAM_BYTES_MIN: usize = 6;
/// States what liblzma holds besides the dictionary, rounded up: some 28 KiB of probabilities, a
/// buffer of 4 KiB, and margins of the dictionary.
const STATE_BYTES: usize = 48 << 10;

/// liblzma's stream, which keeps its memory from one decoding or encoding to the next.
struct LzmaStream(lzma_stream);

/// A decoder with its working memory.
#[derive(Default)]
pub(crate) struct LzmaDecoder {
    stream: LzmaStream,
    /// The longest output so far. No distance reaches back further, so no dictionary need be larger;
    /// it does not shrink, lest liblzma allocate anew for each length.
    longest: usize,
}

// SAFETY: a `lzma_stream` owns what it points to (its input and output pointers are set anew for
// each call) and liblzma ties nothing of it to a thread.
unsafe impl Send for LzmaStream {}

impl Default for LzmaStream {
    fn default() -> Self {
        // SAFETY: all fields of `lzma_stream` are integers, raw pointers and C enums with a zero
        // value, and all-zero is what liblzma's own LZMA_STREAM_INIT sets.
        Self(unsafe { std::mem::zeroed() })
    }
}

impl Drop for LzmaStream {
    fn drop(&mut self) {
        // SAFETY: the stream was zeroed or initialised by liblzma, and is not used after this.
        unsafe { lzma_end(&mut self.0) }
    }
}

impl LzmaStream {
    /// Decodes or encodes as far as it goes. The stream has been initialised for that.
    fn run(&mut self, input: &[u8], out: &mut [u8], action: lzma_action) -> lzma_ret {
        self.0.next_in = input.as_ptr();
        self.0.avail_in = input.len();
        self.0.next_out = out.as_mut_ptr();
        self.0.avail_out = out.len();
        // SAFETY: a stream that is not initialised is refused; the pointers and lengths are those of
        // two slices that live, and do not overlap, until the call returns.
        unsafe { lzma_code(&mut self.0, action) }
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
        let status = self.stream.run(stream, out, LZMA_FINISH);
        let ended = check(status)? == LZMA_STREAM_END;
        // `run` went as far as the input and the output allow, so this is final.
        match out.len() - self.stream.0.avail_out {
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
        let status = self.stream.run(rest, out, LZMA_RUN);
        // liblzma looks ahead, for an end marker. What it meets there is no matter of this step.
        if self.stream.0.avail_out > 0 {
            check(status)?;
        }
        Ok(Step {
            consumed: rest.len() - self.stream.0.avail_in,
            got: out.len() - self.stream.0.avail_out,
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
                &mut self.stream.0,
                stream_len as u64,
                wanted as u64,
                is_exact,
                dict_bytes_for(dict_bytes, self.longest),
            )
        };
        check(status).map(drop)
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

/// A MicroLZMA compressor with its working memory.
pub(crate) struct LzmaEncoder {
    stream: LzmaStream,
    options: lzma_options_lzma,
}

// SAFETY: the stream may go to another thread, as above; the only pointer of the options, to a preset dictionary, is
// null.
unsafe impl Send for LzmaEncoder {}

impl LzmaEncoder {
    /// One whose settings have been checked.
    pub(crate) fn new(level: u8, extreme: bool, dict_bytes: u32) -> Self {
        let preset = u32::from(level) | if extreme { LZMA_PRESET_EXTREME } else { 0 };
        // SAFETY: all fields are integers, raw pointers and C enums with a zero value.
        let mut options: lzma_options_lzma = unsafe { std::mem::zeroed() };
        // SAFETY: the pointer is to a live value.
        let is_unknown = unsafe { lzma_lzma_preset(&mut options, preset) };
        assert_eq!(is_unknown, 0, "liblzma has this level");
        options.dict_size = dict_bytes;
        Self {
            stream: LzmaStream::default(),
            options,
        }
    }

    /// Compresses as much of the front of `input` as fits into `out`. Nothing is consumed when nothing fits.
    pub(crate) fn encode(&mut self, input: &[u8], out: &mut [u8]) -> Result<Encoded, EncodeError> {
        if out.len() < STREAM_BYTES_MIN {
            return Ok(Encoded::default());
        }
        // SAFETY: both pointers are to live values; the encoder copies the options.
        let status = unsafe { lzma_microlzma_encoder(&mut self.stream.0, &self.options) };
        if status == LZMA_OK {
            let status = self.stream.run(input, out, LZMA_FINISH);
            if status == LZMA_STREAM_END {
                return Ok(Encoded {
                    consumed: self.stream.0.total_in as usize,
                    written: self.stream.0.total_out as usize,
                });
            }
        }
        Err(match status {
            LZMA_MEM_ERROR => EncodeError::OutOfMemory(Algorithm::Lzma),
            _ => EncodeError::Library(Algorithm::Lzma, "unexpected status"),
        })
    }
}

/// All of `data` as a MicroLZMA stream at the front of `out`, for the tests.
#[cfg(test)]
pub(crate) fn compress(data: &[u8], out: &mut [u8]) -> usize {
    let encoded = LzmaEncoder::new(6, false, 8 << 20)
        .encode(data, out)
        .unwrap();
    assert_eq!(encoded.consumed, data.len(), "all of the data fits");
    encoded.written
}

/// Returns what liblzma says that a decoder takes, for the tests: 32 KiB of this are a guess of what the heap
/// adds.
#[cfg(test)]
pub(crate) fn memory_bytes_by_liblzma(dict_bytes: u32) -> u64 {
    use liblzma_sys::{
        LZMA_FILTER_LZMA1, LZMA_VLI_UNKNOWN, lzma_filter, lzma_raw_decoder_memusage,
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
