//! The two halves of libzstd's compressor: the search for matches, and the coding of what it found.
//!
//! The search takes most of the time of a call. Of an input that was searched once, any front is
//! coded by cutting its sequences there.

use std::ffi::c_int;
use std::ptr::NonNull;

use zstd_safe::zstd_sys::{
    self as sys, ZSTD_CCtx, ZSTD_ErrorCode, ZSTD_ParamSwitch_e, ZSTD_Sequence,
    ZSTD_SequenceFormat_e, ZSTD_cParameter,
};

use crate::zstd_blocks::Splitter;
use crate::{Algorithm, EncodeError};

/// The shortest match that is coded (ZSTD_MINMATCH_MIN).
const MATCH_MIN: u32 = 3;
/// The largest block of a frame (ZSTD_BLOCKSIZE_MAX).
pub(crate) const BLOCK_BYTES_MAX: usize = 128 << 10;
/// Shorter blocks are not searched.
const END_MIN: usize = 16;
/// Levels from here on look for borders of blocks. Level 3 would take a fifth longer with it.
pub(crate) const SPLIT: u8 = 5;
/// Levels from here on search for so long that all else takes next to no time.
pub(crate) const THOROUGH: u8 = 9;
/// The longest header of a frame (ZSTD_FRAMEHEADERSIZE_MAX).
const HEADER_MAX: usize = 18;
/// The smallest tables that libzstd takes (ZSTD_HASHLOG_MIN, ZSTD_CHAINLOG_MIN).
const TABLE_LOG_MIN: c_int = 6;

/// The sequences of an input, and where each one ends in it.
#[derive(Debug, Default)]
pub(crate) struct Sequences {
    /// Blocks, each of which ends with a sequence without a match.
    all: Vec<ZSTD_Sequence>,
    ends: Vec<usize>,
}

impl Sequences {
    /// Bytes of the input.
    pub fn covered(&self) -> usize {
        self.ends.last().copied().unwrap_or(0)
    }

    pub fn clear(&mut self) {
        self.all.clear();
        self.ends.clear();
    }

    /// Hands over the sequences of the front of the input, of `len` bytes.
    fn front<T>(&mut self, len: usize, code: impl FnOnce(&[ZSTD_Sequence]) -> T) -> T {
        let at = self.ends.partition_point(|&end| end < len);
        let Some(&cut) = self.all.get(at) else {
            return code(&self.all);
        };
        let begin = at.checked_sub(1).map_or(0, |before| self.ends[before]);
        let next = self.all.get(at + 1).copied();
        let used = self.cut(at, (len - begin) as u32);
        let coded = code(&self.all[..used]);
        self.all.truncate(self.ends.len());
        self.all[at] = cut;
        if let Some(next) = next {
            self.all[at + 1] = next;
        }
        coded
    }

    /// Cuts a sequence behind so many bytes, and ends the block there. Returns the number of sequences up to it.
    fn cut(&mut self, at: usize, len: u32) -> usize {
        let sequence = &mut self.all[at];
        let matched = len.saturating_sub(sequence.litLength);
        if matched < MATCH_MIN {
            *sequence = literals(len);
            return at + 1;
        }
        sequence.matchLength = matched;
        let end = literals(0);
        match self.all.get_mut(at + 1) {
            Some(next) => *next = end,
            None => self.all.push(end),
        }
        at + 2
    }
}

/// The end of a block, behind so many literals.
fn literals(count: u32) -> ZSTD_Sequence {
    ZSTD_Sequence {
        offset: 0,
        litLength: count,
        matchLength: 0,
        rep: 0,
    }
}

/// Searches inputs for matches.
pub(crate) struct Finder {
    context: Context,
    splitter: Option<Splitter>,
    block_bytes: usize,
}

impl Finder {
    /// One of a level and a window; `None` when there is no memory for it.
    pub fn new(level: u8, window_log: u8) -> Option<Self> {
        let cell_bytes = match level {
            ..SPLIT => None,
            SPLIT..THOROUGH => Some(4 << 10),
            THOROUGH.. => Some(2 << 10),
        };
        Some(Self {
            context: Context::new(level, window_log)?,
            splitter: cell_bytes.map(Splitter::new),
            block_bytes: BLOCK_BYTES_MAX.min(1 << window_log),
        })
    }

    /// Finds the sequences of an input.
    pub fn find(&mut self, input: &[u8], found: &mut Sequences) -> Result<(), EncodeError> {
        found.clear();
        // libzstd fails at an end that is too short to be compressed.
        let end = Some(input.len() % self.block_bytes).filter(|&end| end < END_MIN);
        let (searched, end) = input.split_at(input.len() - end.unwrap_or(0));
        if !searched.is_empty() {
            self.context.find(searched, &mut found.all)?;
            if let Some(splitter) = &mut self.splitter {
                splitter.split(searched, &mut found.all);
            }
        }
        if !end.is_empty() {
            found.all.push(literals(end.len() as u32));
        }
        let lengths = found.all.iter();
        found.ends.extend(lengths.scan(0, |end, sequence| {
            *end += sequence.litLength as usize + sequence.matchLength as usize;
            Some(*end)
        }));
        match found.covered() == input.len() {
            true => Ok(()),
            false => Err(EncodeError::Library(
                Algorithm::Zstd,
                "its sequences have another length than the input",
            )),
        }
    }
}

/// Codes sequences.
pub(crate) struct Coder(Context);

impl Coder {
    /// One of a level and a window; `None` when there is no memory for it.
    pub fn new(level: u8, window_log: u8) -> Option<Self> {
        let context = Context::new(level, window_log)?;
        // The level says how sequences are coded. The tables of its search are not used.
        for (parameter, value) in [
            (ZSTD_cParameter::ZSTD_c_hashLog, TABLE_LOG_MIN),
            (ZSTD_cParameter::ZSTD_c_chainLog, TABLE_LOG_MIN),
            (ZSTD_cParameter::ZSTD_c_minMatch, MATCH_MIN as c_int),
            (
                BLOCK_DELIMITERS,
                ZSTD_SequenceFormat_e::ZSTD_sf_explicitBlockDelimiters as c_int,
            ),
            (
                REPCODE_RESOLUTION,
                ZSTD_ParamSwitch_e::ZSTD_ps_enable as c_int,
            ),
            (VALIDATE_SEQUENCES, 1),
        ] {
            context.set(parameter, value);
        }
        Some(Self(context))
    }

    /// Codes the front of an input as one frame at the front of `out`, and says how long it is; `None` when there is no
    /// room.
    pub fn code(
        &mut self,
        front: &[u8],
        sequences: &mut Sequences,
        out: &mut [u8],
    ) -> Result<Option<usize>, EncodeError> {
        assert!(front.len() <= sequences.covered(), "the input was searched");
        if out.len() < HEADER_MAX {
            return Ok(None);
        }
        sequences.front(front.len(), |sequences| {
            // SAFETY: the context is there and nobody else uses it; all pointers and lengths are those
            // of slices. There is room for the header, which the function takes for granted. The
            // sequences end with the end of a block, and are as long as the input together; all else
            // about them is validated by the function.
            checked(unsafe {
                sys::ZSTD_compressSequences(
                    self.0.0.as_ptr(),
                    out.as_mut_ptr().cast(),
                    out.len(),
                    sequences.as_ptr(),
                    sequences.len(),
                    front.as_ptr().cast(),
                    front.len(),
                )
            })
        })
    }
}

const BLOCK_DELIMITERS: ZSTD_cParameter = ZSTD_cParameter::ZSTD_c_experimentalParam11;
const VALIDATE_SEQUENCES: ZSTD_cParameter = ZSTD_cParameter::ZSTD_c_experimentalParam12;
const REPCODE_RESOLUTION: ZSTD_cParameter = ZSTD_cParameter::ZSTD_c_experimentalParam19;

/// A compression context of libzstd for the frames of images: of a bounded window, without the length of their content
/// or a checksum. The functions of sequences have no safe form.
pub(crate) struct Context(NonNull<ZSTD_CCtx>);

// SAFETY: a context belongs to no thread. One uses it at a time, for all uses but settings, at its
// beginning, borrow it mutably.
unsafe impl Send for Context {}

impl Context {
    /// One of a level and a window; `None` when there is no memory for it.
    pub fn new(level: u8, window_log: u8) -> Option<Self> {
        // SAFETY: the function has no conditions.
        let context = Self(NonNull::new(unsafe { sys::ZSTD_createCCtx() })?);
        for (parameter, value) in [
            (ZSTD_cParameter::ZSTD_c_compressionLevel, level),
            (ZSTD_cParameter::ZSTD_c_windowLog, window_log),
            // A frame that says how long its content is has a window of all of that.
            (ZSTD_cParameter::ZSTD_c_contentSizeFlag, 0),
            (ZSTD_cParameter::ZSTD_c_checksumFlag, 0),
        ] {
            context.set(parameter, value.into());
        }
        Some(context)
    }

    /// Compresses all of an input as one frame at the front of `out`, and says how long it is; `None` when there is no
    /// room.
    pub fn compress(&mut self, input: &[u8], out: &mut [u8]) -> Result<Option<usize>, EncodeError> {
        // SAFETY: the context is there and nobody else uses it; both pointers and lengths are those of
        // slices.
        checked(unsafe {
            let (context, from) = (self.0.as_ptr(), input.as_ptr().cast());
            let to = out.as_mut_ptr().cast();
            sys::ZSTD_compress2(context, to, out.len(), from, input.len())
        })
    }

    /// Finds the sequences of an input, none of whose blocks is too short.
    fn find(&mut self, input: &[u8], found: &mut Vec<ZSTD_Sequence>) -> Result<(), EncodeError> {
        // SAFETY: the function has no conditions.
        let most = unsafe { sys::ZSTD_sequenceBound(input.len()) };
        found.clear();
        let reserved = found.try_reserve(most);
        reserved.map_err(|_| EncodeError::OutOfMemory(Algorithm::Zstd))?;
        let first = found.as_mut_ptr();
        // SAFETY: the context is there and nobody else uses it. The first pointer and its length are
        // those of memory that has been reserved; the others are those of a slice.
        let count = unsafe {
            let (context, from) = (self.0.as_ptr(), input.as_ptr().cast());
            sys::ZSTD_generateSequences(context, first, most, from, input.len())
        };
        let count = checked(count)?.unwrap_or(0).min(most);
        for at in 0..count {
            // SAFETY: the function has written so many sequences, for which there is room. It leaves out
            // a field of those that end a block.
            unsafe {
                let sequence = first.add(at);
                if (*sequence).matchLength == 0 {
                    (&raw mut (*sequence).rep).write(0);
                }
            }
        }
        // SAFETY: so many have been written, and all of each.
        unsafe { found.set_len(count) };
        Ok(())
    }

    fn set(&self, parameter: ZSTD_cParameter, value: c_int) {
        // SAFETY: the context is there, and it compresses nothing now.
        let set = unsafe { sys::ZSTD_CCtx_setParameter(self.0.as_ptr(), parameter, value) };
        assert!(!is_error(set), "libzstd has this setting");
    }
}

impl Drop for Context {
    fn drop(&mut self) {
        // SAFETY: the context is there, and nobody uses it any more.
        unsafe { sys::ZSTD_freeCCtx(self.0.as_ptr()) };
    }
}

fn is_error(code: usize) -> bool {
    // SAFETY: the function has no conditions.
    unsafe { sys::ZSTD_isError(code) != 0 }
}

/// A length, if the library returned one; `None` when there was no room.
fn checked(code: usize) -> Result<Option<usize>, EncodeError> {
    if !is_error(code) {
        return Ok(Some(code));
    }
    // SAFETY: the function has no conditions.
    match unsafe { sys::ZSTD_getErrorCode(code) } {
        ZSTD_ErrorCode::ZSTD_error_dstSize_tooSmall => Ok(None),
        ZSTD_ErrorCode::ZSTD_error_memory_allocation => {
            Err(EncodeError::OutOfMemory(Algorithm::Zstd))
        }
        _ => Err(EncodeError::Library(
            Algorithm::Zstd,
            zstd_safe::get_error_name(code),
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::{Random, text};
    use crate::{Decoder, Length, Params};

    const WINDOW_LOG: u8 = 17;

    /// Text, noise and zeros, in more than one block.
    fn mixed() -> Vec<u8> {
        let mut input = text(90_000);
        input.extend(Random::new(1).bytes(30_000));
        input.extend(vec![0; 50_000]);
        input.extend(text(20_000));
        input
    }

    fn decoded(stream: &[u8], len: usize) -> Vec<u8> {
        let params = Params {
            zstd_window_log: WINDOW_LOG,
            ..Params::default()
        };
        let mut out = vec![0; len];
        let mut decoder = Decoder::new();
        let decoded = decoder.decode(Algorithm::Zstd, &params, stream, &mut out, Length::Exact);
        decoded.expect("the stream is right");
        out
    }

    #[test]
    fn any_front_is_coded_whatever_the_level() {
        let input = mixed();
        let mut out = vec![0; 2 * input.len()];
        for level in [1, 3, 6, 9, 13, 16, 19, 22] {
            let mut finder = Finder::new(level, WINDOW_LOG).unwrap();
            let mut coder = Coder::new(level, WINDOW_LOG).unwrap();
            let mut found = Sequences::default();
            finder.find(&input, &mut found).unwrap();
            let ends = found.ends.clone();
            let places = [1, 2, 131_072, 131_073].into_iter();
            let around = ends.iter().skip(7).step_by(1 + ends.len() / 40);
            let fronts = places.chain(around.flat_map(|&end| [end - 1, end, end + 3]));
            for len in fronts.chain([input.len()]) {
                let front = &input[..len.clamp(1, input.len())];
                let written = coder.code(front, &mut found, &mut out).unwrap().unwrap();
                assert!(
                    decoded(&out[..written], front.len()) == front,
                    "{level}, {len}"
                );
                assert_eq!(found.ends, ends);
                assert_eq!(found.all.len(), ends.len());
            }
            // The cuts have left no trace.
            let whole = coder.code(&input, &mut found, &mut out).unwrap();
            let mut again = Sequences::default();
            finder.find(&input, &mut again).unwrap();
            assert_eq!(whole, coder.code(&input, &mut again, &mut out).unwrap());
        }
    }

    #[test]
    fn inputs_of_any_length_are_searched() {
        let input = mixed();
        let mut out = vec![0; 2 * input.len()];
        let block = BLOCK_BYTES_MAX;
        for len in (0..20).chain(block - 9..block + 20).chain([64 << 10]) {
            for (level, window_log) in [(3, 17), (19, 17), (3, 10)] {
                let mut finder = Finder::new(level, window_log).unwrap();
                let mut coder = Coder::new(level, window_log).unwrap();
                let mut found = Sequences::default();
                for input in [&input[..len], &vec![0; len]] {
                    finder.find(input, &mut found).unwrap();
                    let written = coder.code(input, &mut found, &mut out).unwrap();
                    assert!(decoded(&out[..written.unwrap()], len) == input, "{len}");
                }
            }
        }
    }

    #[test]
    fn what_has_no_room_is_no_error() {
        let input = mixed();
        let mut finder = Finder::new(3, WINDOW_LOG).unwrap();
        let mut coder = Coder::new(3, WINDOW_LOG).unwrap();
        let mut found = Sequences::default();
        finder.find(&input, &mut found).unwrap();
        for room in (0..30).chain([100, 1000, 20_000, 200_000]) {
            let coded = coder.code(&input, &mut found, &mut vec![0; room]);
            assert_eq!(
                coded.map(|len| len.is_some()),
                Ok(room == 200_000),
                "{room}"
            );
        }
    }

    #[test]
    fn a_frame_is_no_longer_than_libzstd_makes_it() {
        let noise = Random::new(7).bytes(20_000);
        let alphabets = [b'0', b'a', b'N'].map(|first| noise.iter().map(move |b| first + b % 12));
        let alphabets: Vec<u8> = alphabets.into_iter().flatten().collect();
        for (input, most) in [(text(120_000), 1.0), (mixed(), 1.002), (alphabets, 0.99)] {
            for level in [6, 9, 19] {
                let mut out = vec![0; 2 * input.len()];
                let mut plain = Context::new(level, WINDOW_LOG).unwrap();
                let by_libzstd = plain.compress(&input, &mut out).unwrap().unwrap();
                let mut found = Sequences::default();
                let mut finder = Finder::new(level, WINDOW_LOG).unwrap();
                finder.find(&input, &mut found).unwrap();
                let mut coder = Coder::new(level, WINDOW_LOG).unwrap();
                let ours = coder.code(&input, &mut found, &mut out).unwrap().unwrap();
                let ratio = ours as f64 / by_libzstd as f64;
                assert!(ratio <= most, "{ratio} by level {level}");
            }
        }
    }
}
