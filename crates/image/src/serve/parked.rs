//! A decoder suspended in the middle of a long extent, so that whoever reads on need not begin again.

use anteros_codec::{DecodeError, Stream};

use super::memory::{Buffer, Lease};

/// Bytes that were passed over on the way to what a reader wanted, and are kept: readers that want
/// neighbouring parts come in any order.
pub(crate) const PASSED_BYTES_MAX: usize = 256 << 10;

/// A suspended decoder with its input.
pub(crate) struct Parked {
    encoded: Buffer,
    /// Where the stream begins in there.
    start: usize,
    stream: Stream,
    /// What was passed over last, and where it begins in the extent.
    passed: (usize, Vec<u8>),
    _lease: Lease,
}

impl Parked {
    /// A decoder at the beginning of the stream that is `encoded` from `start` on.
    pub(crate) fn new(encoded: Buffer, start: usize, stream: Stream, lease: Lease) -> Self {
        Self {
            encoded,
            start,
            stream,
            passed: (0, Vec::new()),
            _lease: lease,
        }
    }

    /// Fills `out` with what lies `skip` bytes into the extent; `false` if that has gone by. What is
    /// passed over on the way is shown to `passing`, with where it lies in the extent.
    pub(crate) fn read(
        &mut self,
        skip: usize,
        out: &mut [u8],
        mut passing: impl FnMut(usize, &[u8]),
    ) -> Result<bool, DecodeError> {
        let stream = &self.encoded[self.start..];
        if self.stream.position() <= skip {
            while self.stream.position() < skip {
                let at = self.stream.position();
                // Gone if the stream fails, for it is overwritten then.
                let mut passed = std::mem::take(&mut self.passed.1);
                passed.resize((skip - at).min(PASSED_BYTES_MAX), 0);
                self.stream.next(stream, &mut passed)?;
                self.passed = (at, passed);
                passing(at, &self.passed.1);
            }
            self.stream.next(stream, out)?;
            return Ok(true);
        }
        let (from, passed) = (self.passed.0, &self.passed.1);
        let found = skip
            .checked_sub(from)
            .and_then(|at| passed.get(at..)?.get(..out.len()));
        if let Some(found) = found {
            out.copy_from_slice(found);
        }
        Ok(found.is_some())
    }
}
