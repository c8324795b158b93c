//! Zstandard, by way of libzstd.
//!
//! A whole frame decodes straight into the output, which is its own window. The front of a frame goes
//! through libzstd's streaming decoder, which keeps a window of its own: that is the memory which
//! [`Params::zstd_window_log`] bounds. A frame with a larger one is refused in either way, as it is by the kernel.

use zstd_safe::{CCtx, DCtx, DParameter, ErrorCode, InBuffer, OutBuffer, ResetDirective};

use crate::error::{expect_consumed, expect_full};
use crate::params::Step;
use crate::secant::{Secant, Whole};
use crate::zstd_sequences::{BLOCK_BYTES_MAX, Coder, Context, Finder, SPLIT, Sequences, THOROUGH};
use crate::{EncodeError, Encoded, Fault, Length, Params};

/// libzstd's context without its buffers, rounded up, and the overlengths of these.
const CONTEXT_BYTES: usize = 128 << 10;

/// Bytes before the header of a frame.
const MAGIC_LEN: usize = 4;
/// States what libzstd says of a frame with too large a window.
const TOO_LARGE: &str = "Frame requires too much memory for decoding";

/// libzstd's decompression context, reset before each frame.
pub(crate) struct ZstdDecoder {
    context: DCtx<'static>,
    /// Tells whether the frame that is decoded in steps is over. libzstd would go on with the next one.
    ended: bool,
}

impl ZstdDecoder {
    /// The decoder in `slot`, created there if need be.
    pub(crate) fn get_or_create(slot: &mut Option<Self>) -> Result<&mut Self, Fault> {
        match slot {
            Some(decoder) => Ok(decoder),
            None => Ok(slot.insert(Self::new()?)),
        }
    }

    /// A decoder for one frame in steps.
    pub(crate) fn at_start(window_log: u8) -> Result<Self, Fault> {
        check_window_log(window_log)?;
        let mut decoder = Self::new()?;
        decoder.start(window_log)?;
        Ok(decoder)
    }

    fn new() -> Result<Self, Fault> {
        let context = DCtx::try_create().ok_or(Fault::OutOfMemory)?;
        let ended = false;
        Ok(Self { context, ended })
    }

    /// See [`Decoder::decode`](crate::Decoder::decode).
    pub(crate) fn decode(
        &mut self,
        window_log: u8,
        stream: &[u8],
        out: &mut [u8],
        length: Length,
    ) -> Result<(), Fault> {
        check_window_log(window_log)?;
        check_window(window_log, stream)?;
        match length {
            Length::Exact => self.decode_frame(stream, out),
            Length::AtLeast => self.decode_front(window_log, stream, out),
        }
    }

    fn decode_frame(&mut self, stream: &[u8], out: &mut [u8]) -> Result<(), Fault> {
        // libzstd would decode several frames in a row; here one is the rule.
        let frame_len = zstd_safe::find_frame_compressed_size(stream).map_err(malformed)?;
        expect_consumed(stream.len(), frame_len)?;
        let got = self.context.decompress(out, stream).map_err(malformed)?;
        expect_full(out.len(), got)
    }

    fn decode_front(&mut self, window_log: u8, stream: &[u8], out: &mut [u8]) -> Result<(), Fault> {
        self.start(window_log)?;
        let step = self.step(stream, out)?;
        expect_full(out.len(), step.got)
    }

    fn start(&mut self, window_log: u8) -> Result<(), Fault> {
        self.ended = false;
        self.context
            .reset(ResetDirective::SessionOnly)
            .map_err(malformed)?;
        self.context
            .set_parameter(DParameter::WindowLogMax(u32::from(window_log)))
            .map_err(malformed)?;
        Ok(())
    }

    /// Decodes the next bytes.
    pub(crate) fn step(&mut self, rest: &[u8], out: &mut [u8]) -> Result<Step, Fault> {
        let wanted = out.len();
        let mut input = InBuffer::around(rest);
        let mut output = OutBuffer::around(out);
        while !self.ended && output.pos() < wanted {
            let before = (input.pos(), output.pos());
            let hint = self
                .context
                .decompress_stream(&mut output, &mut input)
                .map_err(malformed)?;
            self.ended = hint == 0;
            if before == (input.pos(), output.pos()) {
                break;
            }
        }
        Ok(Step {
            consumed: input.pos(),
            got: output.pos(),
        })
    }

    /// Returns what libzstd says that it holds, for the tests.
    #[cfg(test)]
    pub(crate) fn held_bytes(&self) -> usize {
        self.context.sizeof()
    }
}

/// A compressor of Zstandard with reusable working memory, for one thread.
///
/// It remembers nothing of one call in the next.
pub struct ZstdEncoder(Way);

enum Way {
    /// All at once, by libzstd.
    Quick { context: CCtx<'static>, level: i32 },
    /// In blocks that have been chosen behind the search.
    Split(Box<FittingEncoder>),
}

impl ZstdEncoder {
    /// One of a level of libzstd: 1 is the fastest of the usual ones, 22 the most thorough. `None` when there is no memory
    /// for it.
    pub fn new(level: i32) -> Option<Self> {
        Some(Self(match u8::try_from(level) {
            Ok(level) if level >= SPLIT => {
                let window_log = Params::ZSTD_WINDOW_LOG_MAX;
                Way::Split(FittingEncoder::new(level, window_log)?.into())
            }
            _ => Way::Quick {
                context: CCtx::try_create()?,
                level,
            },
        }))
    }

    /// Compresses `input` as one frame at the front of `out`, and says how long it is; `None` when it does not fit, with
    /// a few bytes to spare.
    ///
    /// The frame has no checksum.
    pub fn encode(&mut self, input: &[u8], out: &mut [u8]) -> Option<usize> {
        match &mut self.0 {
            Way::Quick { context, level } => context.compress(out, input, *level).ok(),
            Way::Split(encoder) => encoder.encode_all(input, out).ok()?,
        }
    }
}

impl Whole for Context {
    fn encode(&mut self, input: &[u8], out: &mut [u8]) -> Result<Option<usize>, EncodeError> {
        self.compress(input, out)
    }
}

/// A compressor of as much input as fits. It searches an input for matches once, and codes its fronts until one fits.
pub(crate) struct FittingEncoder {
    finder: Finder,
    coder: Coder,
    found: Sequences,
    /// A quick look at the input, to foretell how much fits.
    ruler: Option<Context>,
    pub secant: Secant,
}

impl FittingEncoder {
    /// One whose settings have been checked; `None` when there is no memory for it.
    pub fn new(level: u8, window_log: u8) -> Option<Self> {
        let mut secant = Secant::default();
        if level >= THOROUGH {
            secant.tighten();
        }
        let ruler = match level >= SLOW {
            true => Some(Context::new(QUICK, window_log)?),
            false => None,
        };
        Some(Self {
            finder: Finder::new(level, window_log)?,
            coder: Coder::new(level, window_log)?,
            found: Sequences::default(),
            ruler,
            secant,
        })
    }

    /// Compresses as much of the front of `input` as fits into `out`.
    pub fn encode(&mut self, input: &[u8], out: &mut [u8]) -> Result<Encoded, EncodeError> {
        self.found.clear();
        let mut fronts = Fronts {
            input,
            finder: &mut self.finder,
            coder: &mut self.coder,
            found: &mut self.found,
            beyond: if self.secant.is_loose() { 0 } else { BEYOND },
        };
        self.secant
            .encode(input, out, &mut fronts, self.ruler.as_mut())
    }

    /// Compresses all of `input`, and says how long that is; `None` when there is no room.
    pub fn encode_all(
        &mut self,
        input: &[u8],
        out: &mut [u8],
    ) -> Result<Option<usize>, EncodeError> {
        self.finder.find(input, &mut self.found)?;
        self.coder.code(input, &mut self.found, out)
    }
}

/// Levels from here on are so slow that a quick look at the input pays.
const SLOW: u8 = 13;
/// The level of that.
const QUICK: u8 = 1;
/// The search goes beyond what is expected to fit by so many bytes in a thousand, else it would begin anew too often.
const BEYOND: usize = 60;

/// The fronts of an input.
struct Fronts<'a> {
    input: &'a [u8],
    finder: &'a mut Finder,
    coder: &'a mut Coder,
    found: &'a mut Sequences,
    /// The search goes beyond a front by so many bytes in a thousand.
    beyond: usize,
}

impl Whole for Fronts<'_> {
    const FRONTS_ARE_CHEAP: bool = true;

    fn encode(&mut self, front: &[u8], out: &mut [u8]) -> Result<Option<usize>, EncodeError> {
        if front.len() > self.found.covered() {
            let end = front.len() + front.len() * self.beyond / 1000;
            let searched = &self.input[..end.min(self.input.len())];
            self.finder.find(searched, self.found)?;
        }
        self.coder.code(front, self.found, out)
    }
}

/// The most memory of a decoder: the window, a block that is read, and two that are decoded beyond
/// the window (ZSTD_decodingBufferSize_min).
pub(crate) fn memory_bytes(window_log: u8) -> usize {
    let window_bytes = 1 << window_log.min(Params::ZSTD_WINDOW_LOG_MAX);
    window_bytes + 3 * BLOCK_BYTES_MAX.min(window_bytes) + CONTEXT_BYTES
}

fn check_window_log(window_log: u8) -> Result<(), Fault> {
    let (min, max) = (Params::ZSTD_WINDOW_LOG_MIN, Params::ZSTD_WINDOW_LOG_MAX);
    if (min..=max).contains(&window_log) {
        return Ok(());
    }
    Err(Fault::Unsupported {
        what: "window log",
        value: u64::from(window_log),
        min: u64::from(min),
        max: u64::from(max),
    })
}

/// Checks what libzstd checks in steps alone. A header that ends early is left to it.
fn check_window(window_log: u8, frame: &[u8]) -> Result<(), Fault> {
    match window_bytes(frame) {
        Some(bytes) if bytes > 1 << window_log => Err(Fault::Malformed(TOO_LARGE)),
        _ => Ok(()),
    }
}

/// The window that the header of a frame asks for (RFC 8878, 3.1.1.1): told in eighths of a power of two, or all of
/// the content.
fn window_bytes(frame: &[u8]) -> Option<u64> {
    let (&descriptor, header) = frame.get(MAGIC_LEN..)?.split_first()?;
    let is_single_segment = descriptor & 0x20 != 0;
    if !is_single_segment {
        let window = *header.first()?;
        let base = 1 << (10 + (window >> 3));
        return Some(base + base / 8 * u64::from(window & 7));
    }
    let dictionary_len = [0, 1, 2, 4][usize::from(descriptor & 3)];
    let content_len = header.get(dictionary_len..)?;
    let shifted = |number, byte: &u8| number << 8 | u64::from(*byte);
    let number = |len| Some(content_len.get(..len)?.iter().rev().fold(0, shifted));
    match descriptor >> 6 {
        0 => number(1),
        1 => number(2).map(|len| len + 256),
        2 => number(4),
        _ => number(8),
    }
}

fn malformed(code: ErrorCode) -> Fault {
    Fault::Malformed(zstd_safe::get_error_name(code))
}
