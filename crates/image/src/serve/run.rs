//! Pclusters that a request uses up at once: in-place I/O and in-place decompression (EROFS paper,
//! §3.2, §3.3).
//!
//! Those that lie one after the other on the device are fetched with one read. Each lands at the end
//! of the room that its decoded bytes will fill, as far behind that as decoding over itself needs:
//!
//! ```text
//!   the reader's buffer   │ extent 1      │ extent 2         │ extent 3 …
//!   after the read        │        [enc 1]│           [enc 2]│
//!                                       └─ margin: extent 2 is decoded only after extent 1
//! ```
//!
//! So the only memory is the reader's own. What does not fit so (another codec, or no margin at the
//! end of the buffer) is fetched by the same read into a buffer of the worker.
//!
//! Invariant S1 of `docs/design/serving.md`: each strategy, with each size of the cache, hands out the bytes that the
//! plain reader does.

use std::io::IoSliceMut;
use std::ops::Range;

use anteros_codec::{Length, in_place_margin};
use anteros_core::Algorithm;

use super::counters::add;
use super::part::Part;
use super::serving::{Strategy, Workbench};
use super::sizes::{PAGE_BYTES, RUN_BYTES};
use crate::map::{Location, Pcluster};
use crate::{Image, Place, Result};

/// The most bytes that a run decodes to.
const RUN_DECODED_BYTES_MAX: usize = 1 << 20;

/// Whole extents that are encoded in pclusters which follow each other on a device.
#[derive(Default)]
pub(crate) struct Run {
    pieces: Vec<Piece>,
    /// Bytes of the pclusters.
    bytes: usize,
}

struct Piece {
    /// All of the extent.
    part: Part,
    /// Tells where it goes in the reader's buffer.
    out: Range<usize>,
}

/// Tells where encoded bytes are put.
enum Target {
    /// In the reader's buffer, over the end of the extent.
    InPlace(Range<usize>),
    /// In the worker's buffer.
    Aside(Range<usize>),
}

impl Run {
    /// Adds an extent that is wanted whole; `false` if it does not follow the last one.
    pub(crate) fn push(&mut self, part: Part, out: Range<usize>) -> bool {
        if !self.is_followed_by(&part.pcluster, out.len()) {
            return false;
        }
        self.bytes += part.pcluster.bytes as usize;
        self.pieces.push(Piece { part, out });
        true
    }

    fn is_followed_by(&self, pcluster: &Pcluster, len: usize) -> bool {
        let (Some(first), Some(last)) = (self.pieces.first(), self.pieces.last()) else {
            return true;
        };
        let last_pcluster = &last.part.pcluster;
        let end = last_pcluster.location.plus(last_pcluster.bytes.into());
        matches!(pcluster.location, Location::Device { .. })
            && end == Some(pcluster.location)
            && self.bytes + pcluster.bytes as usize <= RUN_BYTES
            && last.out.end + len - first.out.start <= RUN_DECODED_BYTES_MAX
    }
}

impl Image {
    /// Reads and decodes a run, which is empty then.
    pub(crate) fn finish_run(
        &self,
        bench: &mut Workbench,
        run: &mut Run,
        buf: &mut [u8],
    ) -> Result<()> {
        if run.pieces.is_empty() {
            return Ok(());
        }
        let targets = self.targets(run, buf.len());
        self.fetch(bench, run, &targets, buf)?;
        run.pieces.iter().for_each(|piece| self.count_whole(piece));
        let encoded = std::mem::take(&mut bench.encoded);
        let pieces: Vec<_> = run.pieces.iter().zip(&targets).collect();
        let decoded = self.decode_pieces(bench, self.ways(&pieces), &pieces, &encoded, buf, 0);
        bench.encoded = encoded;
        run.pieces.clear();
        run.bytes = 0;
        decoded
    }

    /// Returns how many threads should decode pieces: one, unless that takes long and other cores
    /// are free (EROFS paper, §4.3). What lies in the reader's buffer must be decoded in order.
    fn ways(&self, pieces: &[(&Piece, &Target)]) -> usize {
        let is_aside = |(_, target): &(&Piece, &Target)| matches!(target, Target::Aside(_));
        let nanos = |(piece, _): &(&Piece, &Target)| {
            piece.out.len() as u64 * decoding_nanos_per_byte(piece.part.algorithm)
        };
        let takes_long = pieces.iter().map(nanos).sum::<u64>() >= FAN_OUT_NANOS;
        match takes_long && pieces.iter().all(is_aside) {
            true => self.serve.idle_cores() + 1,
            false => 1,
        }
    }

    /// Decodes pieces into `buf`, which begins `base` bytes into the reader's buffer.
    fn decode_pieces(
        &self,
        bench: &mut Workbench,
        ways: usize,
        pieces: &[(&Piece, &Target)],
        encoded: &[u8],
        buf: &mut [u8],
        base: usize,
    ) -> Result<()> {
        if ways < 2 || pieces.len() < 2 {
            for (piece, target) in pieces {
                match target {
                    Target::InPlace(at) => self.decode_in_place(bench, piece, at, buf)?,
                    Target::Aside(at) => {
                        let out = &mut buf[piece.out.start - base..piece.out.end - base];
                        self.decode_front(bench, &piece.part, &encoded[at.clone()], out)?;
                    }
                }
            }
            return Ok(());
        }
        let (ours, theirs) = pieces.split_at(pieces.len() / 2);
        let middle = theirs[0].0.out.start;
        let (our_buf, their_buf) = buf.split_at_mut(middle - base);
        add(&self.serve.counters.fanned_out, 1);
        std::thread::scope(|scope| {
            let helper = std::thread::Builder::new().spawn_scoped(scope, || {
                self.with_bench(|bench| {
                    self.decode_pieces(bench, ways / 2, theirs, encoded, their_buf, middle)
                })
            });
            self.decode_pieces(bench, ways - ways / 2, ours, encoded, our_buf, base)?;
            let helper = helper.map_err(|error| self.no_memory(theirs[0].0.part.place, error))?;
            helper
                .join()
                .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        })
    }

    /// Decides where the encoded bytes of each piece go.
    fn targets(&self, run: &Run, buf_len: usize) -> Vec<Target> {
        let may_be_in_place = matches!(self.serve.strategy, Strategy::Auto | Strategy::InPlace);
        let mut free_from = 0;
        let mut aside = 0;
        let target = |piece: &Piece| {
            let pcluster = &piece.part.pcluster;
            let len = pcluster.bytes as usize;
            let in_place = || {
                let margin = in_place_margin(piece.part.algorithm, len)?;
                let end = piece.out.end + margin;
                let start = end.checked_sub(len)?;
                let fits = !pcluster.partial && end <= buf_len;
                let free = start >= free_from && start >= piece.out.start;
                (fits && free).then_some(start..end)
            };
            match in_place().filter(|_| may_be_in_place) {
                Some(at) => {
                    free_from = at.end;
                    Target::InPlace(at)
                }
                None => {
                    aside += len;
                    Target::Aside(aside - len..aside)
                }
            }
        };
        run.pieces.iter().map(target).collect()
    }

    /// Reads all pclusters of a run to where they shall be.
    fn fetch(
        &self,
        bench: &mut Workbench,
        run: &Run,
        targets: &[Target],
        mut buf: &mut [u8],
    ) -> Result<()> {
        let first = &run.pieces[0].part;
        let (place, location) = (first.place, first.pcluster.location);
        let aside = targets.iter().map(|target| match target {
            Target::InPlace(_) => 0,
            Target::Aside(at) => at.len(),
        });
        bench.encoded.resize(aside.sum(), 0);
        let mut encoded = &mut bench.encoded[..];
        let mut passed = 0;
        let mut slices = Vec::with_capacity(targets.len());
        for target in targets {
            let slice = match target {
                Target::InPlace(at) => {
                    let (slice, rest) = buf[at.start - passed..].split_at_mut(at.len());
                    (buf, passed) = (rest, at.end);
                    slice
                }
                Target::Aside(at) => {
                    let (slice, rest) = encoded.split_at_mut(at.len());
                    encoded = rest;
                    slice
                }
            };
            slices.push(IoSliceMut::new(slice));
        }
        self.read_raw_vectored(place, location, &mut slices)?;
        // While this is decoded, the device may fetch what comes next.
        self.fetch_ahead(location, run.bytes as u64);
        Ok(())
    }

    fn decode_in_place(
        &self,
        bench: &mut Workbench,
        piece: &Piece,
        at: &Range<usize>,
        buf: &mut [u8],
    ) -> Result<()> {
        let part = &piece.part;
        let start = at.start + self.stream_start(part.place, &buf[at.clone()])?;
        let base = piece.out.start;
        add(&self.serve.counters.decodes_in_place, 1);
        add(&self.serve.counters.decoded_bytes, part.len);
        bench
            .decoder
            .decode_in_place(
                part.algorithm,
                &mut buf[base..at.end],
                start - base..at.end - base,
                piece.out.len(),
            )
            .map_err(part.failed())
    }

    fn count_whole(&self, piece: &Piece) {
        let counters = &self.serve.counters;
        let part = &piece.part;
        add(&counters.whole_extents, 1);
        let margin = in_place_margin(part.algorithm, part.pcluster.bytes as usize);
        let Place::Data { offset, .. } = part.place else {
            return;
        };
        // Where the last page of the extent ends is as much as the paper's kernel may count on.
        let end = offset + piece.out.len() as u64;
        let left = (end.next_multiple_of(PAGE_BYTES) - end) as usize;
        if margin.is_some_and(|margin| margin <= left) && !part.pcluster.partial {
            add(&counters.whole_extents_with_page_margin, 1);
        }
    }
}

/// Decoding for less than this is not worth another thread, which takes some 50 µs to start.
const FAN_OUT_NANOS: u64 = 400_000;

/// About how long a core of today takes for a decoded byte.
const fn decoding_nanos_per_byte(algorithm: Algorithm) -> u64 {
    match algorithm {
        Algorithm::Lz4 => 0,
        Algorithm::Zstd => 2,
        Algorithm::Deflate => 4,
        Algorithm::Lzma => 12,
    }
}

impl Pcluster {
    /// Returns what the length of the extent says about the stream.
    pub(crate) const fn length(&self) -> Length {
        match self.partial {
            true => Length::AtLeast,
            false => Length::Exact,
        }
    }
}
