//! Invariant S6 of `docs/design/serving.md`.

use super::decode::{decode, fault, samples};
use super::{Lz4Block, Random, compress, damage, text, wild_lz4};
use crate::{Algorithm, Decoder, Fault, Length, RollingWindow};

const LONGEST: usize = 12 << 20;

fn window() -> RollingWindow {
    window_for(&[])
}

/// A window whose pages are as few as the stream allows.
fn window_for(stream: &[u8]) -> RollingWindow {
    RollingWindow::new(LONGEST, stream.len().max(128 << 10)).expect("there is memory")
}

/// Decodes all of a stream at once, then pieces of it through the window.
fn assert_rolling_is_plain(
    stream: &[u8],
    len: usize,
    pieces: impl IntoIterator<Item = (usize, usize)>,
) {
    let mut window = window_for(stream);
    let mut decoder = Decoder::new();
    let plain = decode(&mut decoder, Algorithm::Lz4, stream, len, Length::Exact).expect("valid");
    for (skip, kept) in pieces {
        let mut out = vec![0xAA; kept];
        assert_eq!(window.decode(stream, skip, &mut out), Ok(()));
        assert!(out == plain[skip..skip + kept], "{skip} + {kept} of {len}");
    }
}

/// Pieces at the front, in the middle and at the end, short and long.
fn pieces(random: &mut Random, len: usize, count: usize) -> Vec<(usize, usize)> {
    let kept_max = RollingWindow::KEPT_MAX.min(len);
    let mut pieces = vec![(0, kept_max), (len - kept_max, kept_max), (len, 0)];
    for _ in 0..count {
        let skip = random.below(len);
        let left = (len - skip).min(kept_max);
        pieces.extend([(skip, left), (skip, 1 + random.below(left))]);
    }
    pieces
}

#[test]
fn the_bytes_are_those_of_a_plain_decoding() {
    let mut random = Random::new(1);
    for data in samples() {
        let stream = compress(Algorithm::Lz4, &data);
        let pieces = pieces(&mut random, data.len(), 12);
        assert_rolling_is_plain(&stream, data.len(), pieces);
    }
}

#[test]
fn every_skip_keeps_every_byte() {
    let data = [text(2000), Random::new(3).bytes(500), vec![0; 1500]].concat();
    let stream = compress(Algorithm::Lz4, &data);
    let pieces = (0..=4000).map(|skip| (skip, 4000 - skip));
    assert_rolling_is_plain(&stream, 4000, pieces);
    let around_the_period = (0..=70_u32).map(|skip| ((131_040 + skip) as usize, 4096));
    let data = [text(140_000), Random::new(3).bytes(1000)].concat();
    let stream = compress(Algorithm::Lz4, &data);
    assert_rolling_is_plain(&stream, 141_000, around_the_period);
}

#[test]
fn the_longest_extents_roll() {
    let mut random = Random::new(2);
    let mixed: Vec<u8> = (0..48)
        .flat_map(|part| match part % 3 {
            0 => text(1 << 18),
            1 => random.bytes(1 << 18),
            _ => vec![part; 1 << 18],
        })
        .collect();
    for data in [vec![0; LONGEST], text(LONGEST), mixed] {
        let stream = compress(Algorithm::Lz4, &data);
        let pieces = pieces(&mut random, LONGEST, 3);
        assert_rolling_is_plain(&stream, LONGEST, pieces);
    }
}

#[test]
fn borderline_streams_roll() {
    let mut random = Random::new(0x2011);
    for _ in 0..150 {
        let len = random.below(700_000);
        let (stream, len) = wild_lz4(&mut random, len);
        let pieces = pieces(&mut random, len, 6);
        assert_rolling_is_plain(&stream, len, pieces);
    }
}

/// Long matches that do not overlap their copies, cut off by the end of the output: `memcpy` makes
/// these in one go.
#[test]
fn the_longest_copies_at_the_longest_distance_roll() {
    let mut random = Random::new(0xFA2);
    for distance in [65_535, 65_534, 65_520, 65_472, 61_440, 32_768] {
        let mut block = Lz4Block::default();
        block.sequence(&random.bytes(70_000), distance, 65_535);
        block.sequence(&random.bytes(3), distance, 65_535);
        block.sequence(&[], distance, 65_535);
        let (stream, len) = block.end(&random.bytes(20));
        let ends = (0..300).map(|_| 70_000 + random.below(len - 70_000));
        let pieces: Vec<_> = ends.map(|end| (end - 70_000, 70_000)).collect();
        assert_rolling_is_plain(&stream, len, pieces);
    }
}

#[test]
fn damage_is_noticed_as_in_a_plain_decoding() {
    let mut random = Random::new(0xDA3A6E);
    let mut window = RollingWindow::new(LONGEST, 1 << 20).expect("there is memory");
    let mut decoder = Decoder::new();
    let mut noticed = 0;
    for _ in 0..1500 {
        let len = 1000 + random.below(200_000);
        let (stream, len) = wild_lz4(&mut random, len);
        let stream = damage(&mut random, &stream);
        let wanted = 1 + random.below(len);
        let skip = wanted - random.below(wanted.min(RollingWindow::KEPT_MAX));
        // Where a match has distance 0, both show what was there before: nothing.
        let mut plain = vec![0; wanted];
        let params = crate::Params::default();
        let there = decoder.decode(
            Algorithm::Lz4,
            &params,
            &stream,
            &mut plain,
            Length::AtLeast,
        );
        let mut out = vec![0xAA; wanted - skip];
        let here = window.decode(&stream, skip, &mut out);
        assert_eq!(here, there);
        match here {
            Ok(()) => assert!(out == plain[skip..]),
            Err(_) => assert!(out.iter().all(|&byte| byte == 0xAA)),
        }
        noticed += usize::from(here.is_err());
    }
    assert!((100..1400).contains(&noticed), "{noticed}");
}

#[test]
fn nothing_of_a_former_stream_shows() {
    let mut window = window();
    let secret = compress(Algorithm::Lz4, &[b'S'; 300_000]);
    let mut block = Lz4Block::default();
    block.sequence(b"x", 0, 200_000);
    let (spy, _) = block.end(&[0; 12]);
    for wanted in [100, 4096, 130_000, 131_072] {
        let mut out = vec![0; RollingWindow::KEPT_MAX];
        assert_eq!(window.decode(&secret, 160_000, &mut out), Ok(()));
        let mut out = vec![0; wanted];
        assert!(window.decode(&spy, 0, &mut out).is_err());
        assert!(!out.contains(&b'S'));
    }
}

#[test]
fn more_than_was_promised_is_refused() {
    let stream = compress(Algorithm::Lz4, &vec![0; 1 << 20]);
    let mut window = RollingWindow::new(10_000, stream.len()).expect("there is memory");
    let longer = [&stream[..], &[0]].concat();
    let result = window.decode(&longer, 0, &mut [0; 1]);
    let Fault::Unsupported { what, value, .. } = fault(result) else {
        panic!("{result:?}");
    };
    assert_eq!((what, value), ("length of the stream", longer.len() as u64));
    for (skip, kept) in [(10_000, 1), (0, 10_001), (usize::MAX, 5), (0, 131_073)] {
        let result = window.decode(&stream, skip, &mut vec![0; kept]);
        assert!(matches!(fault(result), Fault::Unsupported { .. }));
    }
    assert_eq!(window.decode(&stream, 5000, &mut [1; 5000]), Ok(()));
}

#[test]
fn a_stream_that_is_too_short_says_where_it_ends() {
    let stream = compress(Algorithm::Lz4, &text(5000));
    let result = window().decode(&stream, 4990, &mut [0; 11]);
    assert_eq!(fault(result), Fault::Short { got: 5000 });
}

#[test]
fn twelve_megabytes_take_the_memory_of_one_period() {
    let mut window = window();
    let stream = compress(Algorithm::Lz4, &vec![9; LONGEST]);
    let mut out = vec![0; RollingWindow::KEPT_MAX];
    let kept = out.len();
    assert_eq!(window.decode(&stream, LONGEST - kept, &mut out), Ok(()));
    assert!((kept..1 << 20).contains(&window.memory_bytes()));
}

#[test]
fn a_window_can_move_to_another_thread() {
    let mut window = window();
    let data = text(1000);
    let stream = compress(Algorithm::Lz4, &data);
    let mut out = [0; 10];
    let there = std::thread::spawn(move || window.decode(&stream, 990, &mut out).map(|()| out));
    let out = there.join().expect("no panic").expect("a good stream");
    assert_eq!(out[..], data[990..]);
}

/// Literals of a megabyte, which are copied in one go.
#[test]
fn incompressible_streams_roll() {
    let mut random = Random::new(7);
    for len in [131_071, 131_072, 131_073, 140_000, 262_145, 1 << 20] {
        let stream = compress(Algorithm::Lz4, &random.bytes(len));
        let pieces = pieces(&mut random, len, 8);
        assert_rolling_is_plain(&stream, len, pieces);
        let mut block = Lz4Block::default();
        block.sequence(&random.bytes(len), 65_535, 20);
        let (stream, len) = block.end(&random.bytes(30));
        let ends = len - 60..=len;
        assert_rolling_is_plain(&stream, len, ends.map(|end| (end - 5000, 5000)));
    }
}

#[test]
fn more_than_there_is_is_an_error() {
    assert!(RollingWindow::new(usize::MAX, 0).is_err());
    assert!(RollingWindow::new(0, usize::MAX).is_err());
    assert!(RollingWindow::new(usize::MAX >> 4, 0).is_err());
}
