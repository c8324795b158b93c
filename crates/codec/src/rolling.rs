//! LZ4 through a window: the front of a stream that nobody wants takes no memory.
//!
//! To get at the end of an extent, all before it must be decoded first. LZ4 looks back 65,535 bytes
//! and no further, so older bytes can go; but a decoder writes to one contiguous buffer. The EROFS paper
//! (section 3.3, rolling decompression) gives it one that is contiguous in addresses alone: the same
//! few pages again and again.
//!
//! ```text
//! addresses   | 0 .. 128K | 128K .. 256K | 256K .. 384K | ...
//! pages       |     A     |       A      |       A      | ...
//! ```
//!
//! A write at an address so overwrites what lay one *period* before it. The paper's period is the reach
//! of LZ4, 64 KiB. Ours is at least twice that, and at least as long as the stream, for then it
//! never matters in what order `memcpy` copies (some go backward, some go through several pages at a
//! time):
//!
//! - Literals may be copied in one go, the whole run of them. They are a part of the
//!   stream, so the copy is no longer than a period, and no two bytes of it share their memory.
//! - A match that does not overlap its copy may be copied in one go as well. It is no longer than its
//!   distance, so the two stretches span 2 x 65,535 bytes of addresses at most, and share no memory.
//! - All other copies are made forward, in chunks of 32 bytes at most. What they overwrite lies more
//!   than 65,535 bytes behind the place that is read at the time.
//! - A match begins at most 65,535 bytes behind the end of the output, and the decoder writes at most 32
//!   bytes ahead of that end before it comes to write there properly. So what a match may refer to
//!   is intact.
//! - It writes nothing at or beyond the end of the buffer it is told of. So the last period of
//!   bytes before that end is intact in the end, and can be copied out.
//!
//! Invariant S6 of `docs/design/serving.md`: what a match may refer to is intact in the rolling window.

use std::io;

use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
use rustix::param::page_size;

use crate::mapping::Mapping;
use crate::{Algorithm, DecodeError, Fault, Length, lz4};

/// Twice the reach of LZ4, rounded up.
const PERIOD_MIN: usize = 128 << 10;

/// A buffer of few pages and many addresses, for one thread.
///
/// It takes [`RollingWindow::memory_bytes`], some kilobytes of page tables, and one of the process's
/// mappings for each such stretch of addresses.
pub struct RollingWindow {
    area: Mapping,
    period: usize,
    longest: usize,
    longest_stream: usize,
}

impl RollingWindow {
    /// The most bytes that one decoding can copy out of the window.
    pub const KEPT_MAX: usize = PERIOD_MIN;

    /// A window for streams of at most `longest_stream` bytes, of which at most `longest` bytes are
    /// decoded.
    ///
    /// # Errors
    ///
    /// The system's, when it has no memory or no addresses for it.
    pub fn new(longest: usize, longest_stream: usize) -> io::Result<Self> {
        let too_long = || io::Error::from(io::ErrorKind::OutOfMemory);
        let period = PERIOD_MIN
            .max(longest_stream)
            .checked_next_multiple_of(page_size())
            .ok_or_else(too_long)?;
        let area_len = longest
            .max(1)
            .checked_next_multiple_of(period)
            .ok_or_else(too_long)?;
        let pages = memfd_create("lz4-window", MemfdFlags::CLOEXEC)?;
        ftruncate(&pages, period as u64)?;
        let mut area = Mapping::reserved(area_len)?;
        for offset in (0..area_len).step_by(period) {
            area.map_file(offset, &pages, period)?;
        }
        Ok(Self {
            area,
            period,
            longest,
            longest_stream,
        })
    }

    /// The memory behind the window: 128 KiB or the longest stream, whichever is more, in whole
    /// pages.
    pub fn memory_bytes(&self) -> usize {
        self.period
    }

    /// Decodes the first `skip` bytes of an LZ4 stream and throws them away, and the next ones into
    /// `out`.
    ///
    /// As with [`Length::AtLeast`], what comes after them is not looked at.
    ///
    /// # Errors
    ///
    /// A [`DecodeError`] when the stream is malformed or holds less than that, when that or
    /// the stream is longer than promised to [`RollingWindow::new`], or `out` is longer than
    /// [`RollingWindow::KEPT_MAX`]. `out` is then as it was.
    pub fn decode(
        &mut self,
        stream: &[u8],
        skip: usize,
        out: &mut [u8],
    ) -> Result<(), DecodeError> {
        let wanted = skip.saturating_add(out.len());
        self.roll(stream, wanted, out.len())
            .map_err(|fault| DecodeError {
                algorithm: Algorithm::Lz4,
                stream_len: stream.len(),
                wanted,
                fault,
            })?;
        // SAFETY: `skip + out.len()` bytes of the area were written just now, and `out` lies
        // elsewhere.
        unsafe {
            let kept = self.area.as_mut_ptr().add(skip);
            kept.copy_to_nonoverlapping(out.as_mut_ptr(), out.len());
        }
        Ok(())
    }

    fn roll(&mut self, stream: &[u8], wanted: usize, kept: usize) -> Result<(), Fault> {
        Fault::unless_within("number of bytes to keep", kept, 0..=Self::KEPT_MAX)?;
        Fault::unless_within("length to decode", wanted, 0..=self.longest)?;
        Fault::unless_within(
            "length of the stream",
            stream.len(),
            0..=self.longest_stream,
        )?;
        let (src, dst) = (stream.as_ptr(), self.area.as_mut_ptr());
        // SAFETY: `src` is readable for the slice's length, and the area writable for `longest`
        // bytes at least. That some of its addresses are the same memory is not known to the
        // compiler of either language, but all accesses are made here and by the copy after it,
        // through raw pointers; the head of this file says why the bytes come out right.
        unsafe { lz4::decode_raw(src, stream.len(), dst, wanted, Length::AtLeast) }
    }
}
