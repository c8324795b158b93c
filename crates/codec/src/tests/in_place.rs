//! Invariant S5 of `docs/design/serving.md`.

use std::ops::Range;

use super::decode::{decode, fault, samples};
use super::{Lz4Block, Random, compress, damage, wild_lz4};
use crate::{Algorithm, Decoder, Fault, Length, fits_in_place, in_place_margin};

/// A buffer that just fits, plus `slack`, with the stream at its end.
fn laid_out(stream: &[u8], wanted: usize, slack: usize) -> (Vec<u8>, Range<usize>) {
    let margin = in_place_margin(Algorithm::Lz4, stream.len()).expect("LZ4 has one");
    // A stream longer than its output plus margin starts where the buffer does.
    let end = (wanted + margin + slack).max(stream.len());
    let mut buf = vec![0xAA; end];
    buf[end - stream.len()..].copy_from_slice(stream);
    (buf, end - stream.len()..end)
}

fn assert_in_place_is_plain(stream: &[u8], len: usize) {
    let mut decoder = Decoder::new();
    let plain = decode(&mut decoder, Algorithm::Lz4, stream, len, Length::Exact).expect("valid");
    for slack in [0, 1, 2, 3, 7, 8, 15, 16, 31, 64, 4096] {
        let (mut buf, place) = laid_out(stream, len, slack);
        assert!(fits_in_place(Algorithm::Lz4, &place, len));
        let result = decoder.decode_in_place(Algorithm::Lz4, &mut buf, place, len);
        assert_eq!(result, Ok(()), "{len} bytes, slack {slack}");
        assert!(buf[..len] == plain, "{len} bytes, slack {slack}");
    }
}

#[test]
fn the_bytes_are_those_of_a_plain_decoding() {
    for data in samples() {
        assert_in_place_is_plain(&compress(Algorithm::Lz4, &data), data.len());
    }
    for len in (0..600).chain(4000..4100) {
        let data = Random::new(len as u64 + 1).bytes(len);
        assert_in_place_is_plain(&compress(Algorithm::Lz4, &data), len);
        assert_in_place_is_plain(&compress(Algorithm::Lz4, &vec![7; len]), len);
    }
}

#[test]
fn the_margin_is_enough_for_borderline_streams() {
    let mut random = Random::new(0x1F1ACE);
    for _ in 0..300 {
        let len = random.below(100_000);
        let (stream, len) = wild_lz4(&mut random, len);
        assert_in_place_is_plain(&stream, len);
    }
}

/// Tries what makes the output gain on the input most: literals of lengths that just take one byte more.
#[test]
fn the_margin_is_enough_for_streams_that_grow() {
    let mut random = Random::new(0x640);
    for literals in [15, 16, 270, 525, 65_550] {
        let mut block = Lz4Block::default();
        for _ in 0..1_000_000 / (literals * 16) + 1 {
            block.sequence(&random.bytes(literals), 1 + random.below(15) as u16, 4);
        }
        let (stream, len) = block.end(&random.bytes(literals));
        assert_in_place_is_plain(&stream, len);
    }
}

#[test]
fn no_damage_reaches_beyond_the_buffer() {
    let mut random = Random::new(0xDA3A6E);
    let mut decoder = Decoder::new();
    let mut noticed = 0;
    for _ in 0..4000 {
        let len = random.below(3000);
        let (stream, len) = wild_lz4(&mut random, len);
        let stream = damage(&mut random, &stream);
        let wanted = random.below(2 * len);
        let (mut buf, place) = laid_out(&stream, wanted, random.below(20));
        let (guard, end) = ([0x55; 64], buf.len());
        buf.extend_from_slice(&guard);
        let result = decoder.decode_in_place(Algorithm::Lz4, &mut buf, place, wanted);
        noticed += usize::from(result.is_err());
        assert_eq!(buf[end..], guard);
    }
    assert!(noticed > 2000, "{noticed}");
}

#[test]
fn what_does_not_fit_is_refused_before_anything_is_written() {
    let data = vec![1; 1000];
    let stream = compress(Algorithm::Lz4, &data);
    let (mut buf, place) = laid_out(&stream, 1000, 0);
    let before = buf.clone();
    for wanted in [1001, 5000, usize::MAX] {
        assert!(!fits_in_place(Algorithm::Lz4, &place, wanted));
        let result =
            Decoder::new().decode_in_place(Algorithm::Lz4, &mut buf, place.clone(), wanted);
        let Fault::Unsupported { what, value, .. } = fault(result) else {
            panic!("{result:?}");
        };
        assert_eq!((what, value), ("end of the stream", place.end as u64));
    }
    assert_eq!(buf, before);
}

#[test]
fn a_stream_outside_the_buffer_is_refused() {
    let mut buf = [0; 100];
    #[expect(clippy::reversed_empty_ranges)]
    for place in [90..101, 101..102, 60..50, 0..usize::MAX] {
        let result = Decoder::new().decode_in_place(Algorithm::Lz4, &mut buf, place, 10);
        assert!(matches!(fault(result), Fault::Unsupported { .. }));
    }
}

#[test]
fn other_codecs_are_refused() {
    for algorithm in [Algorithm::Lzma, Algorithm::Deflate, Algorithm::Zstd] {
        assert_eq!(in_place_margin(algorithm, 10), None);
        assert!(!fits_in_place(algorithm, &(4000..4096), 10));
        let result = Decoder::new().decode_in_place(algorithm, &mut [0; 4096], 4000..4096, 10);
        assert_eq!(fault(result), Fault::NoSuchWay("in place"));
    }
}
