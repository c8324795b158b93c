//! Pclusters of which a request uses a part: cached I/O (EROFS paper, §3.2).
//!
//! The first reader of a part has the extent decoded up to the end of the part, and leaves the
//! encoded bytes in the cache. What comes next depends on the extent:
//!
//! - A short LZ4 extent stays encoded: a few pages are decoded in less time than their memory is worth.
//! - Another extent is decoded whole when readers come back to it, and stays so.
//! - Of an extent that is too long for that, a suspended decoder stays.
//!
//! Invariant S1 of `docs/design/serving.md`: each strategy, with each size of the cache, hands out the bytes that the
//! plain reader does.
//!
//! Invariant S3 of `docs/design/serving.md`: whoever holds a lease outside of the cache asks for no other one, so
//! nobody waits for ever.
//!
//! Invariant S7 of `docs/design/serving.md`: what is handed on unasked are whole pages of the right bytes.

use std::ops::Range;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard};

use anteros_codec::{DecodeError, Decoder, Length, RollingWindow, Scratch, Stream};
use anteros_core::{Algorithm, unpoisoned};
use anteros_format::{EXTENT_BYTES_MAX, Nid};

use super::counters::add;
use super::memory::Buffer;
use super::pclusters::{Bytes, Found, Held, Key, Making};
use super::serving::{Strategy, Workbench};
use super::sizes::{BUFFER_BYTES, ENTRY_BYTES, PAGE_BYTES, READ_AHEAD_BYTES, RECENT_BYTES};
use super::suspended::{REST_PIECE_BYTES, Rest, Suspended};
use crate::map::Pcluster;
use crate::{Error, Image, Place, Result};

/// LZ4 extents up to this length are kept encoded. They decode in some 50 µs at the most.
const LIGHT_BYTES_MAX: u64 = 64 << 10;

/// A long LZ4 extent is decoded whole when readers have come back so often. Until then the work
/// costs less than the memory for all of it.
const LZ4_ASKED_MIN: u32 = 4;

/// A request of so many bytes comes from readahead, so the bytes behind it are wanted next.
const IN_ORDER_BYTES_MIN: usize = 64 << 10;

/// Extents from this length on are decoded by a stream that is suspended between requests.
const PARKED_BYTES_MIN: u64 = 1 << 20;

/// A part of an extent that a reader wants.
#[derive(Clone, Copy)]
pub(crate) struct Part {
    pub(crate) place: Place,
    pub(crate) pcluster: Pcluster,
    pub(crate) algorithm: Algorithm,
    /// Length of the extent.
    pub(crate) len: u64,
    /// Tells how far into the extent the part begins.
    pub(crate) skip: u64,
    /// Bytes of the whole request.
    pub(crate) requested: usize,
}

impl Part {
    pub(super) const fn key(&self) -> Key {
        (self.pcluster, self.len)
    }

    fn is_light(&self) -> bool {
        self.algorithm == Algorithm::Lz4 && self.len <= LIGHT_BYTES_MAX
    }

    fn is_streamed(&self) -> bool {
        self.algorithm != Algorithm::Lz4 && self.len >= PARKED_BYTES_MIN
    }

    /// Bytes of the extent up to the end of the part.
    pub(super) const fn front(&self, out: &[u8]) -> usize {
        self.skip as usize + out.len()
    }

    /// Returns whether the front up to there is the whole extent, and must then be the whole stream.
    const fn length_of(&self, front: usize) -> Length {
        match front as u64 == self.len {
            true => self.pcluster.length(),
            false => Length::AtLeast,
        }
    }

    /// Returns where the extent begins in the file.
    pub(super) const fn extent_offset(&self) -> u64 {
        match self.place {
            Place::Data { offset, .. } => offset,
            _ => 0,
        }
    }

    /// Returns whether the rest of the extent is wanted next.
    fn is_in_order(&self, out: &[u8]) -> bool {
        self.is_long() && (self.front(out) as u64) < self.len
    }

    /// Returns whether the part is one of those that readahead asks for at the same time, in any order, of an extent that
    /// is decoded up to `position`.
    pub(super) fn is_read_ahead(&self, position: usize) -> bool {
        self.is_long() && self.skip as usize <= position + READ_AHEAD_BYTES
    }

    /// Returns whether the request is as long as readahead makes them.
    const fn is_long(&self) -> bool {
        self.requested >= IN_ORDER_BYTES_MIN
    }

    fn range(&self, out: &[u8]) -> Range<usize> {
        self.skip as usize..self.front(out)
    }

    pub(crate) fn failed(&self) -> impl Fn(DecodeError) -> Error {
        let place = self.place;
        move |fault| Error::Decode { place, fault }
    }
}

impl Image {
    /// Fills `out` with a part of an extent.
    pub(crate) fn read_part(
        &self,
        bench: &mut Workbench,
        part: &Part,
        out: &mut [u8],
    ) -> Result<()> {
        self.find_part(bench, part, out)?;
        self.serve.pclusters.took(part.key(), out.len() as u64);
        Ok(())
    }

    fn find_part(&self, bench: &mut Workbench, part: &Part, out: &mut [u8]) -> Result<()> {
        let cache = &self.serve.pclusters;
        // Before others wait for what this reader makes: it waits for an answer itself.
        if self.retrieve(part, out) {
            return Ok(());
        }
        loop {
            let (held, asked) = match cache.find(part.key(), part.front(out) as u64) {
                Found::Missing(making) => {
                    add(&self.serve.counters.misses, 1);
                    return self.first_reader(bench, part, making, out);
                }
                Found::Held(held, asked) => (held, asked),
            };
            if self.is_served(bench, part, &held, asked, out)? {
                add(&self.serve.counters.hits, 1);
                return Ok(());
            }
            // Nothing may be held while memory is asked for.
            let making = cache.replace(part.key(), &held);
            drop(held);
            if let Some(making) = making {
                return self.next_reader(bench, part, making, out);
            }
        }
    }

    /// Serves a part from what the cache holds; `false` if another form of it is needed.
    fn is_served(
        &self,
        bench: &mut Workbench,
        part: &Part,
        held: &Held,
        asked: u32,
        out: &mut [u8],
    ) -> Result<bool> {
        match held {
            Held::Decoded(bytes) => out.copy_from_slice(&bytes.data[part.range(out)]),
            Held::Encoded(bytes) if !self.is_worth_keeping(part, asked, out) => {
                self.decode_front(bench, part, &bytes.data, out)?;
            }
            Held::Encoded(_) => return Ok(false),
            Held::Suspended(suspended) => {
                let mut decoder = lock(suspended);
                let before = decoder.position();
                let read = self.read_suspended(&mut decoder, part, false, out)?;
                let end = self.rest_wanted(part, before, out);
                let is_wanted = read && decoder.is_to_be_offered(end);
                drop(decoder);
                if is_wanted {
                    self.offer_rest(part, suspended);
                }
                return Ok(read);
            }
        }
        Ok(true)
    }

    /// Returns whether an extent should be decoded whole for readers that came back to it so often.
    /// One in file order takes its end, and then nothing is left to come back for.
    fn is_worth_keeping(&self, part: &Part, asked: u32, out: &[u8]) -> bool {
        let takes_the_end = part.front(out) as u64 == part.len && out.len() > PAGE_BYTES as usize;
        let comes_back =
            part.algorithm != Algorithm::Lz4 || asked >= LZ4_ASKED_MIN || part.is_in_order(out);
        !part.is_light() && comes_back && !takes_the_end && self.can_keep(part)
    }

    /// Decodes what is wanted and leaves the rest as it is, unless others wait for it already.
    fn first_reader(
        &self,
        bench: &mut Workbench,
        part: &Part,
        making: Making<'_>,
        out: &mut [u8],
    ) -> Result<()> {
        if part.is_streamed() {
            return self.park(part, making, out);
        }
        if part.is_in_order(out) && !part.is_light() && self.can_keep(part) {
            return self.keep(part, making, out);
        }
        let bytes = Arc::new(self.fetch_encoded(part)?);
        if making.is_awaited() && !part.is_light() && self.can_keep(part) {
            drop(bytes);
            return self.keep(part, making, out);
        }
        making.put(Held::Encoded(bytes.clone()));
        if part.is_light() && self.serve.neighbours_of_all.load(Ordering::Relaxed) {
            return self.decode_with_neighbours(bench, part, &bytes.data, out);
        }
        self.decode_front(bench, part, &bytes.data, out)
    }

    /// Serves a reader that comes back to the extent. It is decoded whole if the result can be
    /// kept.
    fn next_reader(
        &self,
        bench: &mut Workbench,
        part: &Part,
        making: Making<'_>,
        out: &mut [u8],
    ) -> Result<()> {
        match self.can_keep(part) && !self.is_finished_elsewhere(part) {
            true => self.keep(part, making, out),
            false => self.first_reader(bench, part, making, out),
        }
    }

    /// Returns what decoding the whole extent takes besides what is kept of it.
    pub(super) fn working_bytes(&self, part: &Part) -> usize {
        let memory = self
            .params()
            .memory_bytes(part.algorithm, part.len as usize);
        Buffer::room(part.pcluster.bytes as usize) + memory + ENTRY_BYTES
    }

    fn can_keep(&self, part: &Part) -> bool {
        part.len <= EXTENT_BYTES_MAX
            && Buffer::room(part.len as usize) + self.working_bytes(part)
                <= self.serve.memory.limit()
    }

    /// Decodes the whole extent and keeps it.
    fn keep(&self, part: &Part, making: Making<'_>, out: &mut [u8]) -> Result<()> {
        let len = part.len as usize;
        let room = Buffer::room(len);
        let lease = self.serve.lease(room + self.working_bytes(part));
        let mut lease = lease.ok_or_else(|| self.too_little_memory(part))?;
        let encoded = self.read_encoded(part)?;
        let stream = &encoded[self.stream_start(part.place, &encoded)?..];
        let mut data = self.buffer(part.place, len)?;
        let length = part.pcluster.length();
        // One of its own: a long extent's working memory is not to stay with the bench.
        let mut decoder = Decoder::new();
        self.decode_stream(&mut decoder, part, stream, &mut data, length)?;
        add(&self.serve.counters.decodes_kept, 1);
        add(&self.serve.counters.decoded_bytes, part.len);
        out.copy_from_slice(&data[part.range(out)]);
        if self.packed_keeper(part).is_some() {
            // Readers of other files may come before it has arrived.
            self.offer(part, 0, &data);
        } else {
            let is_offered = part.algorithm != Algorithm::Lz4
                && !part.is_in_order(out)
                && self.offer_neighbours(part, &data, out);
            if is_offered && !making.is_awaited() {
                // The kernel has all of it now.
                return Ok(());
            }
        }
        drop(decoder);
        lease.shrink_to(room + ENTRY_BYTES);
        self.serve.memory.reuse(encoded);
        making.put(Held::Decoded(Arc::new(Bytes { data, lease })));
        Ok(())
    }

    /// Decodes a short extent whole, for what else it holds of the file.
    fn decode_with_neighbours(
        &self,
        bench: &mut Workbench,
        part: &Part,
        encoded: &[u8],
        out: &mut [u8],
    ) -> Result<()> {
        let stream = &encoded[self.stream_start(part.place, encoded)?..];
        let len = part.len as usize;
        bench.buffer.resize(bench.buffer.len().max(len), 0);
        let data = &mut bench.buffer[..len];
        let length = part.pcluster.length();
        self.decode_stream(&mut bench.decoder, part, stream, data, length)?;
        add(&self.serve.counters.decodes_buffer, 1);
        add(&self.serve.counters.decoded_bytes, part.len);
        out.copy_from_slice(&data[part.range(out)]);
        self.offer_neighbours(part, data, out);
        Ok(())
    }

    /// Hands on the decoded bytes that nobody asked for, those behind the part first. Returns
    /// whether all were taken.
    fn offer_neighbours(&self, part: &Part, data: &[u8], out: &[u8]) -> bool {
        let range = part.range(out);
        self.offer(part, range.end, &data[range.end..]) & self.offer(part, 0, &data[..range.start])
    }

    /// Hands on the whole pages among decoded bytes, which lie so far into the extent. Returns
    /// whether they were taken.
    fn offer(&self, part: &Part, at: usize, data: &[u8]) -> bool {
        let hook = self.serve.on_neighbours.get();
        let Some((hook, nid)) = hook.zip(self.cached_inode(part)) else {
            return false;
        };
        let from = part.extent_offset() + at as u64;
        let pages = whole_pages(from, data.len());
        pages.is_empty() || hook(nid, from + pages.start as u64, &data[pages])
    }

    /// Begins a stream, serves the part from it and keeps it where it stands.
    fn park(&self, part: &Part, making: Making<'_>, out: &mut [u8]) -> Result<()> {
        let longest = part.len as usize;
        let memory = self.params().memory_bytes(part.algorithm, longest);
        let memory = memory + RECENT_BYTES + ENTRY_BYTES;
        let room = Buffer::room(part.pcluster.bytes as usize);
        let lease = self.serve.lease(room + memory);
        let lease = lease.ok_or_else(|| self.too_little_memory(part))?;
        let encoded = self.read_encoded(part)?;
        let start = self.stream_start(part.place, &encoded)?;
        let stream_len = encoded.len() - start;
        let stream = Stream::new(part.algorithm, &self.params(), stream_len, longest)
            .map_err(part.failed())?;
        let recent = self.buffer(part.place, RECENT_BYTES)?;
        let offset = part.extent_offset();
        let extent = offset..offset + part.len;
        let mut suspended = Suspended::new(encoded, start, stream, extent, recent, lease);
        self.read_suspended(&mut suspended, part, making.was_given_up(), out)?;
        let end = match making.was_given_up() {
            true => part.len as usize,
            false => self.rest_wanted(part, 0, out),
        };
        let is_wanted = suspended.is_to_be_offered(end);
        let suspended = Arc::new(Mutex::new(suspended));
        if is_wanted {
            self.offer_rest(part, &suspended);
        }
        making.put(Held::Suspended(suspended));
        Ok(())
    }

    /// Returns whether someone decodes the rest of the extent if it is offered.
    fn is_finished_elsewhere(&self, part: &Part) -> bool {
        let is_file = matches!(part.place, Place::Data { nid, .. } if !self.is_special(nid));
        part.is_streamed() && is_file && self.serve.on_rest.get().is_some()
    }

    /// Offers the rest of an extent, if someone decodes it for a page cache.
    fn offer_rest(&self, part: &Part, suspended: &Arc<Mutex<Suspended>>) {
        if let Some((hook, nid)) = self.serve.on_rest.get().zip(self.cached_inode(part)) {
            hook(Rest::new(Arc::downgrade(suspended), nid));
        }
    }

    /// Decodes the next piece of a rest into `data`, and says where it lies in the file; `None` when
    /// there is no more, or the decoder was given up.
    pub(crate) fn decode_rest(&self, rest: &Rest, data: &mut Vec<u8>) -> Option<(Nid, u64)> {
        let at = rest.next(data)?;
        self.count_streamed(data.len());
        let pages = whole_pages(at, data.len());
        data.truncate(pages.end);
        data.drain(..pages.start);
        Some((rest.nid, at + pages.start as u64))
    }

    /// Reads on from where a decoder stands. At the beginning, `was_given_up` tells whether an earlier one was given up.
    fn read_suspended(
        &self,
        suspended: &mut Suspended,
        part: &Part,
        was_given_up: bool,
        out: &mut [u8],
    ) -> Result<bool> {
        let before = suspended.position();
        let is_read_ahead = part.is_read_ahead(before);
        let goes_on = before > 0 || part.front(out) > RECENT_BYTES;
        if is_read_ahead && goes_on && suspended.has_more() {
            self.keep_more(suspended);
        }
        // Whoever reads in order asks for it, or had it before. The first request of all may be one anywhere.
        let is_known = match before {
            0 => was_given_up && part.is_long(),
            _ => is_read_ahead,
        };
        let passing = |at: usize, data: &[u8]| {
            if !is_known {
                self.offer(part, at, data);
            }
        };
        // Readers of other files want the bytes around what this one wants, and the same ones.
        if self.packed_keeper(part).is_some()
            && out.len() + REST_PIECE_BYTES <= suspended.recent_len()
        {
            let of_extent = |at: u64| (at - part.extent_offset()) as usize;
            let decoded = suspended.decode_to(part.front(out), |at, data| {
                self.offer(part, of_extent(at), data);
            });
            decoded.map_err(part.failed())?;
        }
        let read = suspended.read(part.skip as usize, out, passing);
        self.count_streamed(suspended.position() - before);
        read.map_err(part.failed())
    }

    /// Has a decoder keep all that a reader in order may ask for at once, if there is memory for two such.
    fn keep_more(&self, suspended: &mut Suspended) {
        let more = READ_AHEAD_BYTES.saturating_sub(suspended.recent_len());
        if more == 0 || self.spare_memory() < 2 * self.read_memory_min() {
            return;
        }
        let Some(lease) = self.serve.try_lease(more) else {
            return;
        };
        if let Ok(recent) = self.serve.memory.buffer(READ_AHEAD_BYTES) {
            suspended.keep_more(recent, lease);
        }
    }

    fn count_streamed(&self, bytes: usize) {
        add(&self.serve.counters.decodes_stream, 1);
        add(&self.serve.counters.decoded_bytes, bytes as u64);
    }

    fn decode_stream(
        &self,
        decoder: &mut Decoder,
        part: &Part,
        stream: &[u8],
        out: &mut [u8],
        length: Length,
    ) -> Result<()> {
        decoder
            .decode(part.algorithm, &self.params(), stream, out, length)
            .map_err(part.failed())
    }

    /// Decodes the front of an extent up to the end of the part (EROFS paper, §3.3 and §4.2).
    pub(crate) fn decode_front(
        &self,
        bench: &mut Workbench,
        part: &Part,
        encoded: &[u8],
        out: &mut [u8],
    ) -> Result<()> {
        let stream = &encoded[self.stream_start(part.place, encoded)?..];
        let front = part.front(out);
        let length = part.length_of(front);
        let range = part.range(out);
        let counters = &self.serve.counters;
        add(&counters.decoded_bytes, front as u64);
        let strategy = self.serve.strategy;
        let Workbench {
            decoder,
            buffer,
            rolling,
            ..
        } = bench;
        let mut decode = |to: &mut [u8]| self.decode_stream(decoder, part, stream, to, length);
        let is_lz4 = part.algorithm == Algorithm::Lz4;
        let is_small = front <= BUFFER_BYTES;
        if part.skip == 0 && strategy != Strategy::Vmap && strategy != Strategy::Buffer {
            add(&counters.decodes_direct, 1);
            return decode(out);
        }
        let wants_window = match strategy {
            Strategy::Rolling => true,
            Strategy::Auto => !is_small,
            _ => false,
        };
        let is_short = stream.len() <= self.lz4_bytes_max();
        if is_lz4 && is_short && wants_window && out.len() <= RollingWindow::KEPT_MAX {
            add(&counters.decodes_rolling, 1);
            return self.decode_rolling(rolling, part, stream, out);
        }
        if is_small && strategy != Strategy::Vmap {
            add(&counters.decodes_buffer, 1);
            buffer.resize(buffer.len().max(front), 0);
            decode(&mut buffer[..front])?;
            out.copy_from_slice(&buffer[range]);
            return Ok(());
        }
        match self.serve.try_lease(front) {
            Some(_lease) => {
                add(&counters.decodes_vmap, 1);
                let mut scratch = Scratch::new(front).map_err(|e| self.no_memory(part.place, e))?;
                let scratch = &mut scratch.as_mut_slice()[..front];
                decode(scratch)?;
                out.copy_from_slice(&scratch[range]);
                Ok(())
            }
            None => self.decode_piecewise(rolling, part, stream, out),
        }
    }

    /// Decodes where there is no memory for a scratch mapping: by pieces, each with its front before it.
    fn decode_piecewise(
        &self,
        rolling: &mut Option<RollingWindow>,
        part: &Part,
        stream: &[u8],
        out: &mut [u8],
    ) -> Result<()> {
        if part.algorithm != Algorithm::Lz4 {
            let longest = part.front(out);
            let mut decoder = Stream::new(part.algorithm, &self.params(), stream.len(), longest)
                .map_err(part.failed())?;
            decoder
                .skip(stream, part.skip as usize)
                .map_err(part.failed())?;
            add(&self.serve.counters.decodes_stream, 1);
            return decoder.next(stream, out).map_err(part.failed());
        }
        let mut skip = part.skip;
        for piece in out.chunks_mut(RollingWindow::KEPT_MAX) {
            let part = Part { skip, ..*part };
            add(&self.serve.counters.decodes_rolling, 1);
            self.decode_rolling(rolling, &part, stream, piece)?;
            skip += piece.len() as u64;
        }
        Ok(())
    }

    fn decode_rolling(
        &self,
        rolling: &mut Option<RollingWindow>,
        part: &Part,
        stream: &[u8],
        out: &mut [u8],
    ) -> Result<()> {
        let window = match rolling {
            Some(window) => window,
            None => {
                let window = RollingWindow::new(EXTENT_BYTES_MAX as usize, self.lz4_bytes_max());
                rolling.insert(window.map_err(|e| self.no_memory(part.place, e))?)
            }
        };
        window
            .decode(stream, part.skip as usize, out)
            .map_err(part.failed())
    }

    /// The pcluster's bytes, paid for.
    fn fetch_encoded(&self, part: &Part) -> Result<Bytes> {
        let room = Buffer::room(part.pcluster.bytes as usize);
        let lease = self.serve.lease(room + ENTRY_BYTES);
        let lease = lease.ok_or_else(|| self.too_little_memory(part))?;
        let data = self.read_encoded(part)?;
        Ok(Bytes { data, lease })
    }

    fn buffer(&self, place: Place, len: usize) -> Result<Buffer> {
        let buffer = self.serve.memory.buffer(len);
        buffer.map_err(|error| self.no_memory(place, error))
    }

    fn read_encoded(&self, part: &Part) -> Result<Buffer> {
        let mut encoded = self.buffer(part.place, part.pcluster.bytes as usize)?;
        self.read_raw(part.place, part.pcluster.location, &mut encoded)?;
        self.fetch_ahead(part.pcluster.location, part.pcluster.bytes.into());
        Ok(encoded)
    }

    fn too_little_memory(&self, part: &Part) -> Error {
        let error = std::io::Error::new(
            std::io::ErrorKind::OutOfMemory,
            format!(
                "{} bytes are too few to decode it",
                self.serve.memory.limit()
            ),
        );
        self.no_memory(part.place, error)
    }

    pub(crate) fn no_memory(&self, place: Place, source: std::io::Error) -> Error {
        Error::Io {
            place,
            device: "memory".into(),
            at: None,
            source,
        }
    }
}

/// The whole pages among so many bytes from `offset` of a file on.
fn whole_pages(offset: u64, len: usize) -> Range<usize> {
    let start = offset.next_multiple_of(PAGE_BYTES) - offset;
    let end = (offset + len as u64) / PAGE_BYTES * PAGE_BYTES;
    let end = end.saturating_sub(offset).max(start);
    match end <= len as u64 {
        true => start as usize..end as usize,
        false => len..len,
    }
}

fn lock(suspended: &Mutex<Suspended>) -> MutexGuard<'_, Suspended> {
    unpoisoned(suspended.lock())
}
