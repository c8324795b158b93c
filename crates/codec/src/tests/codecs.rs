//! The encoders of all codecs, each judged by the decoder.

use super::{Random, text};
use crate::{Algorithm, Codec, Decoder, Effort, Encoder, Length, Params};

const DICT_BYTES: u32 = 32 << 10;
const WINDOW_LOG: u8 = 15;

fn codecs() -> Vec<Codec> {
    let lzma = |level, extreme| Codec::Lzma {
        level,
        extreme,
        dict_bytes: DICT_BYTES,
    };
    let zstd = |level| Codec::Zstd {
        level,
        window_log: WINDOW_LOG,
    };
    let deflate = |level| Codec::Deflate { level };
    vec![
        Codec::Lz4(Effort::High(9)),
        lzma(0, false),
        lzma(6, false),
        lzma(9, true),
        deflate(1),
        deflate(6),
        deflate(12),
        zstd(1),
        zstd(3),
        zstd(19),
        zstd(22),
    ]
}

fn encoder(codec: &Codec) -> Encoder {
    Encoder::new(codec).unwrap()
}

/// Limits that an image with these settings tells its readers.
fn params() -> Params {
    Params {
        lzma_dict_bytes: DICT_BYTES,
        zstd_window_log: WINDOW_LOG,
    }
}

/// Text, then random bytes, zeros, and text that occurred before.
fn mixed() -> Vec<u8> {
    let text = text(60_000);
    let noise = Random::new(7).bytes(30_000);
    [&text[..20_000], &noise, &[0; 50_000], &text].concat()
}

/// Encodes all of `data` in streams of at most `budget` bytes, and returns the streams with the bytes that each holds.
/// Passes over data that does not shrink, a budget at a time.
fn streams(encoder: &mut Encoder, data: &[u8], budget: usize) -> Vec<(Vec<u8>, usize)> {
    encoder.restart();
    let (mut at, mut streams) = (0, Vec::new());
    while at < data.len() {
        let mut out = vec![0xAA; budget];
        let encoded = encoder.encode_next(data, at..data.len(), &mut out).unwrap();
        let Some(encoded) = encoded else {
            at += budget.max(1).min(data.len() - at);
            continue;
        };
        assert!(encoded.written <= budget && encoded.written < encoded.consumed);
        assert_ne!(out[0], 0, "the padding would swallow this byte");
        out.truncate(encoded.written);
        streams.push((out, encoded.consumed));
        at += encoded.consumed;
    }
    streams
}

/// Decodes a stream with its whole length, and its front.
fn decode(algorithm: Algorithm, stream: &[u8], len: usize) -> Vec<u8> {
    let mut decoder = Decoder::new();
    let mut out = vec![0; len];
    let exact = decoder.decode(algorithm, &params(), stream, &mut out, Length::Exact);
    exact.unwrap_or_else(|e| panic!("{e}"));
    let mut front = vec![0; len / 2];
    let at_least = decoder.decode(algorithm, &params(), stream, &mut front, Length::AtLeast);
    at_least.unwrap_or_else(|e| panic!("{e}"));
    assert!(front == out[..len / 2]);
    out
}

#[test]
fn streams_of_all_codecs_decode_to_what_they_hold() {
    for codec in codecs() {
        let mut encoder = encoder(&codec);
        let large = [512, 4096, 65536];
        let small = [0, 1, 5, 6, 7, 20, 100];
        let inputs = [
            (mixed(), &large[1..]),
            (vec![0; 100_000], &large),
            (text(2000), &small),
            (text(13), &small),
            (text(2), &small),
        ];
        for (data, budgets) in inputs {
            for &budget in budgets {
                // What did not shrink lies between the streams.
                let streams = streams(&mut encoder, &data, budget);
                let sum: usize = streams.iter().map(|(_, len)| len).sum();
                assert!(sum <= data.len());
                let mut at = 0;
                for (stream, len) in &streams {
                    let decoded = decode(codec.algorithm(), stream, *len);
                    while !data[at..].starts_with(&decoded) {
                        at += 1;
                    }
                    at += len;
                }
            }
        }
    }
}

#[test]
fn budgets_are_filled() {
    let data = text(400_000);
    for codec in codecs() {
        let streams = streams(&mut encoder(&codec), &data, 4096);
        let (_, full) = streams.split_last().unwrap();
        let mean = full.iter().map(|(stream, _)| stream.len()).sum::<usize>() / full.len();
        assert!(mean > 4096 - 32, "{codec:?}: {mean} bytes");
    }
}

#[test]
fn a_restart_forgets_everything() {
    let (one, other) = (mixed(), text(50_000));
    for codec in codecs() {
        let mut used = encoder(&codec);
        streams(&mut used, &one, 4096);
        let again = streams(&mut used, &other, 4096);
        assert!(
            again == streams(&mut encoder(&codec), &other, 4096),
            "{codec:?}"
        );
    }
}

#[test]
fn a_stored_block_at_the_front_of_deflate_does_not_look_like_padding() {
    let data = [Random::new(3).bytes(350_000), text(300_000)].concat();
    let mut encoder = encoder(&Codec::Deflate { level: 6 });
    let streams = streams(&mut encoder, &data, 600_000);
    let (stream, len) = &streams[0];
    assert_eq!(stream[0] & 7, 0, "a stored block, and not the last one");
    assert!(decode(Algorithm::Deflate, stream, *len) == data[..*len]);
}

#[test]
fn settings_out_of_range_are_named() {
    let window = |window_log| Codec::Zstd {
        level: 3,
        window_log,
    };
    let lzma = |level, dict_bytes| Codec::Lzma {
        level,
        extreme: false,
        dict_bytes,
    };
    for (codec, said) in [
        (
            Codec::Lz4(Effort::High(13)),
            "LZ4 HC level 13; 1 to 12 are possible",
        ),
        (
            Codec::Deflate { level: 0 },
            "DEFLATE level 0; 1 to 12 are possible",
        ),
        (window(21), "Zstandard window log 21; 10 to 20 are possible"),
        (lzma(10, 4096), "LZMA level 10; 0 to 9 are possible"),
        (
            lzma(9, 100),
            "LZMA dictionary of bytes 100; 4096 to 8388608 are possible",
        ),
    ] {
        let error = Encoder::new(&codec).err().expect("refused");
        assert_eq!(error.to_string(), said);
    }
}

#[test]
fn a_glance_at_the_input_keeps_what_can_be_won() {
    let held = |mut encoder: Encoder, budget| {
        let streams = streams(&mut encoder, &mixed(), budget);
        let lens = streams.iter().map(|(stream, held)| held - stream.len());
        lens.sum::<usize>()
    };
    for codec in codecs() {
        for budget in [4096, 16_384] {
            let with = held(encoder(&codec), budget);
            let without = held(encoder(&codec).without_glance(), budget);
            assert!(with > 0, "{codec:?}");
            // What a search learns of noise is no help for what follows, so there may be a byte more or less.
            let differ = with.abs_diff(without);
            assert!(
                differ * 200 < without,
                "{codec:?}, {budget}: {with} and {without} won"
            );
        }
    }
}

#[test]
fn the_smallest_budgets_hold_what_fits_or_nothing() {
    let data = mixed();
    for codec in codecs() {
        let mut encoder = encoder(&codec);
        for budget in (0..40).chain([100, 500]) {
            for at in [0, 19_000, 50_000] {
                encoder.restart();
                let mut out = vec![0xAA; budget];
                let encoded = encoder
                    .encode_next(&data, at..data.len(), &mut out)
                    .unwrap();
                let Some(encoded) = encoded else {
                    continue;
                };
                assert!(encoded.written <= budget && encoded.written < encoded.consumed);
                let mut decoded = vec![0; encoded.consumed];
                let stream = &out[..encoded.written];
                let length = Length::Exact;
                Decoder::new()
                    .decode(codec.algorithm(), &params(), stream, &mut decoded, length)
                    .unwrap_or_else(|e| panic!("{codec:?}, {budget} bytes: {e}"));
                assert!(decoded == data[at..][..encoded.consumed]);
            }
        }
    }
}
