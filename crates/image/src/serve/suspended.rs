//! A decoder that is suspended in the middle of a long extent. A reader that goes on need not begin
//! again.

use std::ops::Range;
use std::sync::{Mutex, Weak};

use anteros_codec::{DecodeError, Stream};
use anteros_format::Nid;

use super::memory::{Buffer, Lease};
use super::sizes::ENTRY_BYTES;

/// The most bytes that are decoded at once by whoever decodes the rest.
pub(super) const REST_PIECE_BYTES: usize = 64 << 10;

/// A suspended decoder with its input, until it has come to the end.
pub(crate) struct Suspended {
    encoded: Buffer,
    /// Tells where the stream begins in there.
    start: usize,
    /// There as long as something is left to decode.
    stream: Option<Stream>,
    /// Bytes of the extent that were decoded.
    position: usize,
    /// Tells where the extent begins in the file, and its length.
    offset: u64,
    len: usize,
    /// The bytes that were decoded last. The place of each is its offset in the file modulo the
    /// length of the buffer, so a page is in one piece.
    recent: Buffer,
    /// The first position of which `recent` holds all up to the decoder's.
    recent_from: usize,
    /// Up to where someone was asked to decode the rest, if he has not come there yet.
    offered_to: Option<usize>,
    lease: Lease,
}

impl Suspended {
    /// A decoder at the beginning of the stream that is `encoded` from `start` on. `extent` is where its
    /// bytes lie in the file, `recent` a buffer of [`RECENT_BYTES`](super::sizes::RECENT_BYTES) for what
    /// it decodes.
    pub(crate) fn new(
        encoded: Buffer,
        start: usize,
        stream: Stream,
        extent: Range<u64>,
        recent: Buffer,
        lease: Lease,
    ) -> Self {
        Self {
            encoded,
            start,
            stream: Some(stream),
            position: 0,
            offset: extent.start,
            len: (extent.end - extent.start) as usize,
            recent,
            recent_from: 0,
            offered_to: None,
            lease,
        }
    }

    /// Bytes of the extent that were decoded.
    pub(crate) const fn position(&self) -> usize {
        self.position
    }

    /// Fills `out` with the bytes from `skip` of the extent on. Returns `false` if the decoder has
    /// passed them. Shows the bytes that it passes on the way to `passing`, with their place in the
    /// extent.
    pub(crate) fn read(
        &mut self,
        skip: usize,
        out: &mut [u8],
        mut passing: impl FnMut(usize, &[u8]),
    ) -> Result<bool, DecodeError> {
        if skip < self.recent_from {
            return Ok(false);
        }
        while self.position < skip {
            let at = self.position;
            let piece = self.decode(skip - at)?;
            passing(at, &self.recent[piece]);
        }
        let mut at = skip;
        let end = skip + out.len();
        while at < end {
            if at == self.position {
                self.decode(end - at)?;
            }
            let known = self.position.min(end);
            let place = self.place(at, known - at);
            let piece = &self.recent[place];
            out[at - skip..][..piece.len()].copy_from_slice(piece);
            at += piece.len();
        }
        Ok(true)
    }

    /// Returns whether something is left to decode.
    pub(crate) fn has_more(&self) -> bool {
        self.position < self.len
    }

    /// The most bytes decoded last that are kept.
    pub(crate) fn recent_len(&self) -> usize {
        self.recent.len()
    }

    /// Keeps more of the bytes decoded last from now on: in a longer buffer, for whose bytes beyond those of the old one
    /// there is a lease.
    pub(crate) fn keep_more(&mut self, recent: Buffer, lease: Lease) {
        let old = std::mem::replace(&mut self.recent, recent);
        let mut at = self.recent_from;
        while at < self.position {
            let from = place(self.offset, old.len(), at, self.position - at);
            let to = self.place(at, from.len());
            let piece = &old[from][..to.len()];
            self.recent[to].copy_from_slice(piece);
            at += piece.len();
        }
        self.lease.add(lease);
        self.lease.memory.reuse(old);
    }

    /// Returns whether the bytes from `skip` of the extent on were decoded last, as many as `len`.
    pub(crate) fn has(&self, skip: usize, len: usize) -> bool {
        skip >= self.recent_from && skip + len <= self.position
    }

    /// Notes that the rest is to be decoded up to `end`. Returns whether someone has to be asked for that.
    pub(crate) fn is_to_be_offered(&mut self, end: usize) -> bool {
        if end <= self.position || !self.has_more() {
            return false;
        }
        let is_asked_for = self.offered_to.is_some();
        self.offered_to = self.offered_to.max(Some(end));
        !is_asked_for
    }

    /// Decodes up to `end` of the extent at least, and shows all of that to `passing`, with its place in the file.
    pub(crate) fn decode_to(
        &mut self,
        end: usize,
        mut passing: impl FnMut(u64, &[u8]),
    ) -> Result<(), DecodeError> {
        while self.position < end {
            let Some((at, piece)) = self.decode_rest()? else {
                break;
            };
            passing(at, piece);
        }
        Ok(())
    }

    /// Decodes some of the rest, up to a place in the file that is a multiple of 64 KiB if there is one, and says where it
    /// lies in the file; `None` when there is no more.
    fn decode_rest(&mut self) -> Result<Option<(u64, &[u8])>, DecodeError> {
        let position = self.position;
        if position == self.len {
            return Ok(None);
        }
        let at = self.offset + position as u64;
        let len = REST_PIECE_BYTES - (at % REST_PIECE_BYTES as u64) as usize;
        let piece = self.decode(len.min(self.len - position))?;
        Ok(Some((at, &self.recent[piece])))
    }

    /// Decodes at most `len` of the next bytes, and says where they are in `recent`.
    fn decode(&mut self, len: usize) -> Result<Range<usize>, DecodeError> {
        let place = self.place(self.position, len);
        // Should it fail, what these bytes take the place of is lost too.
        let recent_from = std::mem::replace(&mut self.recent_from, usize::MAX);
        let input = &self.encoded[self.start..];
        let stream = self.stream.as_mut().expect("the extent goes on");
        stream.next(input, &mut self.recent[place.clone()])?;
        self.position = stream.position();
        let oldest = self.position.saturating_sub(self.recent.len());
        self.recent_from = recent_from.max(oldest);
        if self.position == self.len {
            self.finish();
        }
        Ok(place)
    }

    /// Gives up all but the bytes that were decoded last: whoever wants others needs another decoder.
    fn finish(&mut self) {
        self.stream = None;
        self.lease.shrink_to(self.recent.len() + ENTRY_BYTES);
        let encoded = std::mem::take(&mut self.encoded);
        self.lease.memory.reuse(encoded);
    }

    /// Returns where the bytes from `at` in the extent on are in `recent`, as many of `len` as lie side by side.
    fn place(&self, at: usize, len: usize) -> Range<usize> {
        place(self.offset, self.recent.len(), at, len)
    }
}

/// Returns where the bytes from `at` in an extent on are in a ring of `ring` bytes, as many of `len` as lie side by side.
fn place(offset: u64, ring: usize, at: usize, len: usize) -> Range<usize> {
    let start = ((offset + at as u64) % ring as u64) as usize;
    start..ring.min(start + len)
}

impl Drop for Suspended {
    fn drop(&mut self) {
        self.lease.shrink_to(0);
        for buffer in [&mut self.encoded, &mut self.recent] {
            self.lease.memory.reuse(std::mem::take(buffer));
        }
    }
}

/// The rest of a long extent of a file that is not read in order. It may be decoded into the pages of
/// the file.
pub struct Rest {
    suspended: Weak<Mutex<Suspended>>,
    pub(super) nid: Nid,
}

impl Rest {
    pub(super) fn new(suspended: Weak<Mutex<Suspended>>, nid: Nid) -> Self {
        Self { suspended, nid }
    }

    /// Decodes the next piece into `data`, and says where it lies in the file; `None` when no more is wanted,
    /// or the decoder was given up.
    pub(super) fn next(&self, data: &mut Vec<u8>) -> Option<u64> {
        // It may have been given up: who holds on to it while the kernel takes pages could wait for
        // a reader who waits for its memory.
        let suspended = self.suspended.upgrade()?;
        // Whoever met a fault has told of it.
        let mut suspended = suspended.lock().ok()?;
        if suspended.offered_to <= Some(suspended.position) {
            suspended.offered_to = None;
            return None;
        }
        let (at, piece) = suspended.decode_rest().ok()??;
        data.clear();
        data.extend_from_slice(piece);
        Some(at)
    }
}
