//! Fixed-output compression of a segment: streams of a given length, as much input in each as fits.
//!
//! A stream is kept if the blocks it takes are fewer bytes than it holds. What does not shrink is
//! stored as it is, block by block. Every extent but the last of a segment is a block or longer, and
//! segments begin at blocks, so no two extents begin in the same logical cluster.
//!
//! Invariant B5 of `docs/design/building.md`: a stream takes fewer bytes of the image than it holds, and no two
//! extents begin in one logical cluster.

use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};

use anteros_codec::{Codec, EncodeError, Encoded, Encoder, right_align};
use anteros_core::Algorithm;
use anteros_format::EXTENT_BYTES_MAX;

use crate::Options;
use crate::extent::{Extent, Share, UNIT_BYTES};
use crate::options::{Compression, PCLUSTER_BLOCKS_MAX, Setting};

/// Streams that are tried to leave whole blocks.
const LENGTHEN_TRIES: usize = 3;

/// The compressor of one thread.
pub(crate) struct Compressor {
    /// An encoder of each codec that has been used.
    encoders: Vec<(Codec, Encoder)>,
    /// The one that is in use.
    current: usize,
    /// The quick one that is in use, if there is one.
    second: Option<usize>,
    /// Percent of room that quick streams may take beyond that of others.
    percent: usize,
    /// Reused for quick streams.
    stream: Vec<u8>,
    pcluster_bytes: usize,
    window_bytes: usize,
    block_bytes: usize,
    /// Streams take a multiple of so many bytes.
    unit: usize,
}

/// A segment that is not compressed to its end.
#[derive(Debug)]
pub(crate) enum Stopped {
    /// The caller wanted no more of it.
    Cancelled,
    /// The encoder gave up.
    Failed(EncodeError),
}

impl Compressor {
    /// The compressor of a build that compresses anything.
    pub fn of(options: &Options) -> Self {
        let compression = options.any_compression();
        let compression = compression.expect("only what is compressed has a use for one");
        match options.has_encoded_extents() {
            true => Self::anywhere(&compression, options.block_bytes()),
            false => Self::new(&compression, options.block_bytes()),
        }
    }

    /// A compressor for options that have been checked, whose streams begin at blocks.
    pub fn new(compression: &Compression, block_bytes: u32) -> Self {
        Self::with_unit(compression, block_bytes, block_bytes as usize)
    }

    /// One whose streams begin anywhere, at multiples of [`UNIT_BYTES`].
    fn anywhere(compression: &Compression, block_bytes: u32) -> Self {
        Self::with_unit(compression, block_bytes, UNIT_BYTES as usize)
    }

    fn with_unit(compression: &Compression, block_bytes: u32, unit: usize) -> Self {
        let setting = compression.setting();
        let mut compressor = Self {
            encoders: Vec::new(),
            current: 0,
            second: None,
            percent: 0,
            stream: Vec::new(),
            pcluster_bytes: setting.pcluster_bytes as usize,
            window_bytes: compression.window_bytes.min(EXTENT_BYTES_MAX as u32) as usize,
            block_bytes: block_bytes as usize,
            unit,
        };
        compressor.set(setting);
        compressor
    }

    fn encoder_of(&self, codec: Codec) -> Encoder {
        let encoder = Encoder::new(&codec).expect("the codec has been checked");
        match self.unit < self.block_bytes {
            true => encoder.loosely(),
            false => encoder,
        }
    }

    /// The longest stream of an encoder. The kernel has room for LZ4 in so many blocks and no more, wherever it begins in the
    /// first.
    fn longest(&self, encoder: usize) -> usize {
        let is_lz4 = self.encoders[encoder].0.algorithm() == Algorithm::Lz4;
        let most = PCLUSTER_BLOCKS_MAX as usize * self.block_bytes;
        match is_lz4 && self.unit < self.block_bytes {
            true => self.pcluster_bytes.min(most - self.block_bytes),
            false => self.pcluster_bytes,
        }
    }

    /// Bytes of a block.
    pub const fn block_bytes(&self) -> usize {
        self.block_bytes
    }

    /// Makes streams of this codec and length from now on, of what is not known to be read.
    pub fn set(&mut self, setting: Setting) {
        let quick = setting.quick.filter(|quick| !quick.of_hot);
        self.set_hot(Setting { quick, ..setting });
    }

    /// Makes streams likewise, of what is known to be read.
    pub fn set_hot(&mut self, setting: Setting) {
        let (codec, quick) = setting.codecs();
        self.pcluster_bytes = setting.pcluster_bytes as usize;
        self.percent = setting.quick.map_or(0, |quick| quick.percent.into());
        self.current = self.place_of(codec);
        self.second = quick.map(|codec| self.place_of(codec));
    }

    /// The place of the encoder of a codec, which is made if there is none.
    fn place_of(&mut self, codec: Codec) -> usize {
        let known = self.encoders.iter().position(|(known, _)| *known == codec);
        known.unwrap_or_else(|| {
            let encoder = self.encoder_of(codec);
            self.encoders.push((codec, encoder));
            self.encoders.len() - 1
        })
    }

    /// The encoder in use.
    pub fn encoder(&mut self) -> &mut Encoder {
        &mut self.encoders[self.current].1
    }

    /// Compresses a segment: appends its blocks to `out`, and its extents. With `leaves_end` it stops before an end that
    /// does not fill a stream. Tells where it stopped.
    pub fn segment(
        &mut self,
        segment: &[u8],
        leaves_end: bool,
        out: &mut Vec<u8>,
        extents: &mut Vec<Extent>,
        cancel: &AtomicBool,
    ) -> Result<usize, Stopped> {
        self.encoder().restart();
        if let Some(second) = self.second {
            self.encoders[second].1.restart();
        }
        let least = if leaves_end { self.pcluster_bytes } else { 0 };
        let mut start = 0;
        while start + least < segment.len() {
            if cancel.load(Ordering::Relaxed) {
                return Err(Stopped::Cancelled);
            }
            let before = out.len();
            let Some((extent, written)) = self.stream(segment, start, out)? else {
                start += self.plain(&segment[start..], out, extents);
                continue;
            };
            let end = start + extent.len as usize;
            if end == segment.len() && written < least {
                out.truncate(before);
                break;
            }
            extents.push(extent);
            start = end;
        }
        Ok(start)
    }

    /// Has the last extent of a segment take a block of the file or more: so no other begins in the same logical cluster,
    /// wherever the next one begins. For that the last stream leaves whole blocks, which are stored as they are. Tells
    /// whether that can be.
    pub fn lengthen_last(
        &mut self,
        segment: &[u8],
        out: &mut Vec<u8>,
        extents: &mut Vec<Extent>,
    ) -> Result<bool, Stopped> {
        let block_bytes = self.block_bytes;
        let is_long = |last: &Extent| last.len as usize >= block_bytes;
        if self.unit < block_bytes || extents.last().is_none_or(is_long) {
            return Ok(true);
        }
        let Some(index) = extents.iter().rposition(|extent| !extent.plain) else {
            return Ok(false);
        };
        let bytes = |extents: &[Extent]| extents.iter().map(|e| e.len as usize).sum::<usize>();
        let rest = &segment[bytes(&extents[..index])..];
        let leaving_blocks = |len: usize| {
            let left = (rest.len() - len).next_multiple_of(block_bytes);
            rest.len().saturating_sub(left)
        };
        let mut len = leaving_blocks(extents[index].len as usize);
        let mut stream = vec![0; self.pcluster_bytes];
        for _ in 0..LENGTHEN_TRIES {
            self.encoder().restart();
            let encoded = self.encoder().encode_next(rest, 0..len, &mut stream);
            let encoded = encoded.map_err(Stopped::Failed)?;
            let Some(encoded) = encoded.filter(|e| self.stored_bytes(e) < e.consumed) else {
                return Ok(false);
            };
            if encoded.consumed < len {
                len = leaving_blocks(encoded.consumed);
                continue;
            }
            let stored = self.stored_bytes(&encoded);
            let replaced: usize = extents[index..].iter().map(|e| e.stored as usize).sum();
            out.truncate(out.len() - replaced);
            stream.truncate(stored);
            right_align(&mut stream, encoded.written);
            out.extend_from_slice(&stream);
            extents.truncate(index);
            extents.push(self.extent(&encoded));
            while len < rest.len() {
                len += self.plain(&rest[len..], out, extents);
            }
            return Ok(true);
        }
        Ok(false)
    }

    /// Appends one stream of what is in the segment from `at` on, if anything is gained by it; tells how long it is. Of two
    /// codecs, it is the quick one's if that takes little more room, and nothing is if what is gained is no more than that.
    fn stream(
        &mut self,
        segment: &[u8],
        at: usize,
        out: &mut Vec<u8>,
    ) -> Result<Option<(Extent, usize)>, Stopped> {
        let rest = segment.len() - at;
        if rest <= self.unit {
            return Ok(None);
        }
        let window = at..at + rest.min(self.window_bytes);
        let start = out.len();
        out.resize(start + self.longest(self.current), 0);
        let encoded = self
            .encoder()
            .encode_next(segment, window.clone(), &mut out[start..]);
        let gaining = encoded.map_err(Stopped::Failed)?.filter(|e| self.gains(e));
        let Some(mut encoded) = gaining else {
            out.truncate(start);
            return Ok(None);
        };
        let quick = self.quick_stream(segment, window, &encoded)?;
        if let Some(quick) = &quick {
            out.truncate(start);
            out.extend_from_slice(&self.stream);
            encoded = *quick;
        }
        let stored = self.stored_bytes(&encoded);
        out.truncate(start + stored);
        right_align(&mut out[start..], encoded.written);
        let extent = Extent {
            quick: quick.is_some(),
            ..self.extent(&encoded)
        };
        Ok(Some((extent, encoded.written)))
    }

    /// Returns whether a stream takes so much less room than what it holds that it is worth decoding.
    fn gains(&self, encoded: &Encoded) -> bool {
        let stored = self.stored_bytes(encoded);
        stored < encoded.consumed && 100 * stored <= (100 - self.percent) * encoded.consumed
    }

    /// Makes a stream by the quick codec, if there is one, and tells of it if it takes little more room than another for what
    /// it holds.
    fn quick_stream(
        &mut self,
        segment: &[u8],
        window: Range<usize>,
        first: &Encoded,
    ) -> Result<Option<Encoded>, Stopped> {
        let Some(second) = self.second else {
            return Ok(None);
        };
        self.stream.resize(self.longest(second), 0);
        let encoder = &mut self.encoders[second].1;
        let encoded = encoder.encode_next(segment, window, &mut self.stream);
        let room = |encoded: &Encoded| self.stored_bytes(encoded);
        let is_near = |quick: &Encoded| {
            let most = room(first) * quick.consumed * 100;
            self.gains(quick) && room(quick) * first.consumed * (100 - self.percent) <= most
        };
        Ok(encoded.map_err(Stopped::Failed)?.filter(is_near))
    }

    fn extent(&self, encoded: &Encoded) -> Extent {
        Extent {
            len: encoded.consumed as u32,              // at most 12 MiB
            stored: self.stored_bytes(encoded) as u32, // at most 1 MiB
            plain: false,
            quick: false,
            share: Share::None,
        }
    }

    fn stored_bytes(&self, encoded: &Encoded) -> usize {
        encoded.written.next_multiple_of(self.unit)
    }

    /// Appends what a stream would hold at the least, as it is; answers how much that is.
    fn plain(&self, rest: &[u8], out: &mut Vec<u8>, extents: &mut Vec<Extent>) -> usize {
        let run = &rest[..rest.len().min(self.pcluster_bytes)];
        // Where all begin at blocks, so do these.
        let longest = match self.unit < self.block_bytes {
            true => run.len(),
            false => self.block_bytes,
        };
        for plain in run.chunks(longest) {
            extents.push(Extent {
                len: plain.len() as u32,
                stored: plain.len().next_multiple_of(self.unit) as u32, // at most 1 MiB
                plain: true,
                quick: false,
                share: Share::None,
            });
        }
        out.extend_from_slice(run);
        out.resize(
            out.len() + (run.len().next_multiple_of(self.unit) - run.len()),
            0,
        );
        run.len()
    }
}

#[cfg(test)]
mod tests {
    use anteros_codec::{Decoder, Effort, Length, Params, strip_zero_padding};

    use super::*;

    /// Text, noise and zeros by turns, in runs of odd lengths.
    fn mixture(len: usize) -> Vec<u8> {
        let mut state = 7u64;
        let mut next = move || {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            (state >> 33) as u32
        };
        let mut data = Vec::new();
        while data.len() < len {
            let run = 500 + next() as usize % 60_000;
            match next() % 3 {
                0 => data.extend((0..run).map(|_| b"abcdefgh \n"[next() as usize % 10])),
                1 => data.extend((0..run).map(|_| next() as u8)),
                _ => data.resize(data.len() + run, 0),
            }
        }
        data.truncate(len);
        data
    }

    fn decode(codec: Codec, extents: &[Extent], mut blocks: &[u8], block_bytes: usize) -> Vec<u8> {
        let mut decoder = Decoder::new();
        let mut data = Vec::new();
        for extent in extents {
            let (stored, rest) = blocks.split_at(extent.stored as usize);
            let len = extent.len as usize;
            if extent.plain {
                data.extend_from_slice(&stored[..len]);
            } else {
                let stream = strip_zero_padding(stored, block_bytes).unwrap();
                let mut out = vec![0; len];
                let params = Params::default();
                decoder
                    .decode(codec.algorithm(), &params, stream, &mut out, Length::Exact)
                    .unwrap();
                data.extend_from_slice(&out);
            }
            blocks = rest;
        }
        assert!(
            blocks.is_empty(),
            "{} bytes belong to no extent",
            blocks.len()
        );
        data
    }

    /// Invariant B5 of `docs/design/building.md`.
    #[test]
    fn segments_decode_to_themselves_and_extents_keep_the_rules() {
        let data = mixture(1 << 20);
        let cancel = AtomicBool::new(false);
        let sizes = [(512, 512), (4096, 4096), (4096, 65536)];
        let codecs = [
            Codec::Lz4(Effort::High(4)),
            Codec::Lz4(Effort::Optimal(16)),
            Codec::Lzma {
                level: 0,
                extreme: false,
                dict_bytes: 32 << 10,
            },
            Codec::Deflate { level: 1 },
            Codec::Zstd {
                level: 1,
                window_log: 16,
            },
        ];
        let all = codecs.map(|codec| sizes.map(|(block, pcluster)| (codec, block, pcluster)));
        for (codec, block_bytes, pcluster_bytes) in all.into_iter().flatten() {
            let mut options = Compression::new(codec);
            options.pcluster_bytes = pcluster_bytes;
            let mut compressor = Compressor::new(&options, block_bytes);
            for len in [1, 511, 4096, 4097, 8192, 70_000, data.len() - 1] {
                let (mut out, mut extents) = (Vec::new(), Vec::new());
                let segment = &data[..len];
                compressor
                    .segment(segment, false, &mut out, &mut extents, &cancel)
                    .unwrap();
                let decoded = decode(codec, &extents, &out, block_bytes as usize);
                assert!(decoded == segment, "{codec:?}, {len} bytes");
                let (last, others) = extents.split_last().unwrap();
                assert!(others.iter().all(|e| e.len >= block_bytes));
                let compressed = || extents.iter().filter(|e| !e.plain);
                assert!(compressed().all(|e| e.stored < e.len && e.stored <= pcluster_bytes));
                assert!(!last.plain || last.len <= block_bytes);
            }
        }
    }

    /// Invariant B5 of `docs/design/building.md`.
    #[test]
    fn whatever_the_length_the_last_extent_can_take_a_block() {
        let data = mixture(1 << 20);
        let cancel = AtomicBool::new(false);
        let zstd = Codec::Zstd {
            level: 1,
            window_log: 16,
        };
        for codec in [
            Codec::Lz4(Effort::Optimal(16)),
            zstd,
            Codec::Deflate { level: 1 },
        ] {
            for (block_bytes, pcluster_bytes) in [(512, 512), (4096, 4096), (4096, 65536)] {
                let mut options = Compression::new(codec);
                options.pcluster_bytes = pcluster_bytes;
                let mut compressor = Compressor::new(&options, block_bytes);
                let mut lengthened = 0;
                for len in (0..40).map(|n| 100_003 + n * 20_011) {
                    let (mut out, mut extents) = (Vec::new(), Vec::new());
                    let segment = &data[..len];
                    compressor
                        .segment(segment, false, &mut out, &mut extents, &cancel)
                        .unwrap();
                    let is_short = extents.last().unwrap().len < block_bytes;
                    let can = compressor
                        .lengthen_last(segment, &mut out, &mut extents)
                        .unwrap();
                    lengthened += usize::from(is_short && can);
                    let decoded = decode(codec, &extents, &out, block_bytes as usize);
                    assert!(decoded == segment, "{codec:?}, {len} bytes");
                    assert!(!can || extents.iter().all(|e| e.len >= block_bytes));
                }
                assert!(lengthened > 0, "{codec:?}, {block_bytes}, {pcluster_bytes}");
            }
        }
        // Without a stream there is nothing to take from.
        let mut state = 1u64;
        let mut next = || {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            (state >> 56) as u8
        };
        let noise: Vec<u8> = (0..5000).map(|_| next()).collect();
        let mut compressor = Compressor::new(&Compression::new(Effort::Fast), 4096);
        for (len, can) in [(5000, false), (4096, true)] {
            let (mut out, mut extents) = (Vec::new(), Vec::new());
            let segment = &noise[..len];
            compressor
                .segment(segment, false, &mut out, &mut extents, &cancel)
                .unwrap();
            assert_eq!(
                compressor
                    .lengthen_last(segment, &mut out, &mut extents)
                    .unwrap(),
                can
            );
        }
    }

    #[test]
    fn the_window_bounds_what_a_stream_takes() {
        let mut options = Compression::new(Effort::Fast);
        options.window_bytes = 10_000;
        let (mut out, mut extents) = (Vec::new(), Vec::new());
        Compressor::new(&options, 4096)
            .segment(
                &[0; 35_000],
                false,
                &mut out,
                &mut extents,
                &AtomicBool::new(false),
            )
            .unwrap();
        let lens: Vec<u32> = extents.iter().map(|e| e.len).collect();
        assert_eq!(lens, [10_000, 10_000, 10_000, 5_000]);
    }

    #[test]
    fn an_end_that_does_not_fill_a_stream_is_left() {
        let mut options = Compression::new(Effort::High(4));
        options.pcluster_bytes = 16384;
        let left = |data: &[u8]| {
            let (mut out, mut extents) = (Vec::new(), Vec::new());
            let never = AtomicBool::new(false);
            let end = Compressor::new(&options, 4096)
                .segment(data, true, &mut out, &mut extents, &never)
                .unwrap();
            let lens: Vec<usize> = extents.iter().map(|e| e.len as usize).collect();
            let stored: usize = extents.iter().map(|e| e.stored as usize).sum();
            assert_eq!((lens.iter().sum(), stored), (end, out.len()));
            assert!(extents.iter().all(|e| e.plain || e.stored == 16384));
            data.len() - end
        };
        assert_eq!(left(&[0; 300_000]), 300_000);
        let data = mixture(1 << 20);
        let rest = left(&data);
        assert!((1..data.len()).contains(&rest));
        // It would not have filled a stream.
        assert_eq!(left(&data[data.len() - rest..]), rest);
    }

    #[test]
    fn stops_when_cancelled() {
        let options = Compression::new(Effort::Fast);
        let result = Compressor::new(&options, 4096).segment(
            &[0; 10],
            false,
            &mut Vec::new(),
            &mut Vec::new(),
            &AtomicBool::new(true),
        );
        assert!(matches!(result, Err(Stopped::Cancelled)));
    }
}
