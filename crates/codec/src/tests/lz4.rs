use std::ffi::{c_char, c_int};

use lz4_sys::LZ4_decompress_safe;

use super::{Lz4Block, Random, compress, damage, text, wild_lz4};
use crate::{
    Algorithm, DecodeError, Decoder, Fault, Length, Params, RollingWindow, in_place_margin,
};

const DISTANCE_0: Fault = Fault::Malformed("a match of distance 0");

unsafe extern "C" {
    fn LZ4_decompress_safe_partial(
        src: *const c_char,
        dst: *mut c_char,
        src_len: c_int,
        wanted: c_int,
        dst_len: c_int,
    ) -> c_int;
}

/// Returns what liblz4 makes of a block, if that is as much as wanted.
fn reference(stream: &[u8], wanted: usize, length: Length) -> Option<Vec<u8>> {
    let mut out = vec![0xAA; wanted.max(1)];
    let (src, dst) = (stream.as_ptr().cast(), out.as_mut_ptr().cast());
    let (src_len, dst_len) = (stream.len() as c_int, wanted as c_int);
    // SAFETY: the pointers and lengths are those of the slices.
    let got = unsafe {
        match length {
            Length::Exact => LZ4_decompress_safe(src, dst, src_len, dst_len),
            Length::AtLeast => LZ4_decompress_safe_partial(src, dst, src_len, dst_len, dst_len),
        }
    };
    out.truncate(wanted);
    (got == dst_len).then_some(out)
}

fn decode(stream: &[u8], wanted: usize, length: Length) -> Result<Vec<u8>, DecodeError> {
    super::decode::decode(&mut Decoder::new(), Algorithm::Lz4, stream, wanted, length)
}

/// Compares with liblz4, which lets matches of distance 0 pass.
fn assert_as_liblz4(stream: &[u8], wanted: usize) {
    for length in [Length::Exact, Length::AtLeast] {
        let expected = reference(stream, wanted, length);
        match decode(stream, wanted, length) {
            Ok(out) => assert!(Some(out) == expected, "{wanted} {length:?} {stream:?}"),
            Err(error) if error.fault == DISTANCE_0 => {}
            Err(error) => assert!(expected.is_none(), "{error}: {length:?} {stream:?}"),
        }
    }
}

#[test]
fn blocks_decode_as_with_liblz4() {
    let mut random = Random::new(0x1194);
    for _ in 0..300 {
        let len = random.below(20_000);
        let (stream, len) = wild_lz4(&mut random, len);
        for wanted in [
            len,
            random.below(len + 100),
            len.saturating_sub(random.below(80)),
        ] {
            assert_as_liblz4(&stream, wanted);
        }
    }
}

#[test]
fn damaged_blocks_are_refused_as_by_liblz4() {
    let mut random = Random::new(0x1195);
    let plain = compress(Algorithm::Lz4, &text(400));
    for turn in 0..20_000 {
        let (stream, len) = match turn % 2 {
            0 => (plain.clone(), 400),
            _ => {
                let len = random.below(300);
                wild_lz4(&mut random, len)
            }
        };
        let damaged = damage(&mut random, &stream);
        assert_as_liblz4(&damaged, len);
        assert_as_liblz4(&damaged, random.below(len + 40));
    }
}

#[test]
fn garbage_is_refused_as_by_liblz4() {
    let mut random = Random::new(0x1196);
    for _ in 0..100_000 {
        let len = random.below(60);
        let garbage: Vec<u8> = (0..len)
            .map(|_| random.next() as u8 & [0x1F, 0x73, 0xFF][random.below(3)])
            .collect();
        assert_as_liblz4(&garbage, random.below(200));
    }
}

/// Blocks with a match of distance 0 where the output begins, in its middle and at its end.
fn blocks_of_distance_0() -> Vec<(Vec<u8>, usize)> {
    let mut random = Random::new(9);
    let mut blocks = Vec::new();
    for (before, len, after) in [
        (1, 20, 12),
        (5, 70_000, 12),
        (300, 4, 300),
        (40_000, 18, 20),
    ] {
        for literals in [before, 0] {
            let mut block = Lz4Block::default();
            block.sequence(&random.bytes(before), 1, 8);
            block.sequence(&random.bytes(literals), 0, len);
            blocks.push(block.end(&random.bytes(after)));
        }
    }
    blocks
}

/// Such a match is the one way in which a block could keep what the output held before: content of
/// another file, perhaps.
#[test]
fn a_match_of_distance_0_is_refused_in_every_way_to_decode() {
    for (stream, len) in blocks_of_distance_0() {
        for (wanted, length) in [
            (len, Length::Exact),
            (len, Length::AtLeast),
            (len - 12, Length::AtLeast),
        ] {
            let done = decode(&stream, wanted, length).map_err(|error| error.fault);
            assert_eq!(done.err(), Some(DISTANCE_0), "{wanted} of {len} {length:?}");
        }
        let margin = in_place_margin(Algorithm::Lz4, stream.len()).expect("LZ4 has one");
        let end = (len + margin).max(stream.len());
        let mut buf = vec![0xAA; end];
        buf[end - stream.len()..].copy_from_slice(&stream);
        let place = end - stream.len()..end;
        let done = Decoder::new().decode_in_place(Algorithm::Lz4, &mut buf, place, len);
        assert_eq!(done.map_err(|error| error.fault), Err(DISTANCE_0));
        let mut window = RollingWindow::new(len, stream.len()).expect("there is memory");
        let mut out = [0; 12];
        let done = window.decode(&stream, len - 12, &mut out);
        assert_eq!(done.map_err(|error| error.fault), Err(DISTANCE_0));
    }
    // Where the first byte is to come from.
    let (stream, len) = {
        let mut block = Lz4Block::default();
        block.sequence(&[], 0, 100);
        block.end(&[7; 12])
    };
    assert!(decode(&stream, len, Length::AtLeast).is_err());
}

/// Tests that what a decoder gives is made of the stream alone, whatever the output held before.
#[test]
fn nothing_of_the_output_is_left_as_it_was() {
    let mut random = Random::new(0xCA9A47);
    let mut decoder = Decoder::new();
    let mut decoded = 0;
    for algorithm in Algorithm::ALL {
        let stream = compress(algorithm, &text(600));
        for turn in 0..3000 {
            let damaged = damage(&mut random, &stream);
            let wanted = random.below(900);
            let length = [Length::Exact, Length::AtLeast][turn % 2];
            let mut out = [vec![0x55; wanted], vec![0xAA; wanted]];
            let done = out
                .each_mut()
                .map(|out| decoder.decode(algorithm, &Params::default(), &damaged, out, length));
            // Of two faults, libzstd may name either, by what it decoded before.
            assert_eq!(done[0].is_ok(), done[1].is_ok(), "{algorithm}");
            if done[0].is_ok() {
                assert!(out[0] == out[1], "{algorithm} {length:?} {damaged:?}");
                decoded += 1;
            }
        }
    }
    assert!(decoded > 500, "{decoded}");
}
