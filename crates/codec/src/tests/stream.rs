use zstd_safe::{CCtx, CParameter};

use super::decode::{decode, fault, samples};
use super::{Random, damage, text};
use crate::lzma::memory_bytes_by_liblzma;
use crate::zstd::ZstdDecoder;
use crate::{Algorithm, DecodeError, Decoder, Fault, Length, Params, Stream};

const STREAMED: [Algorithm; 3] = [Algorithm::Lzma, Algorithm::Deflate, Algorithm::Zstd];

fn start(algorithm: Algorithm, stream: &[u8], longest: usize) -> Stream {
    Stream::new(algorithm, &Params::default(), stream.len(), longest).expect("it can be streamed")
}

/// All of `data` as one stream, with a window that the format knows.
fn compress(algorithm: Algorithm, data: &[u8]) -> Vec<u8> {
    match algorithm {
        Algorithm::Zstd => frame(data, 20),
        other => super::compress(other, data),
    }
}

/// Decodes the next `len` bytes.
fn next(decoder: &mut Stream, stream: &[u8], len: usize) -> Result<Vec<u8>, DecodeError> {
    let mut out = vec![0xAA; len];
    decoder.next(stream, &mut out)?;
    Ok(out)
}

/// A length that is short, or long, or in between.
fn piece(random: &mut Random, left: usize) -> usize {
    let scale = [1, 20, 4096, 70_000, 1 << 20][random.below(5)];
    (1 + random.below(scale)).min(left)
}

#[test]
fn pieces_of_any_length_add_up_to_a_plain_decoding() {
    let mut random = Random::new(1);
    for data in samples() {
        for algorithm in STREAMED {
            let stream = compress(algorithm, &data);
            let mut decoder = start(algorithm, &stream, data.len());
            while decoder.position() < data.len() {
                let at = decoder.position();
                let len = piece(&mut random, data.len() - at);
                if random.below(3) == 0 {
                    assert_eq!(decoder.skip(&stream, len), Ok(()));
                } else {
                    let out = next(&mut decoder, &stream, len).expect("valid");
                    assert!(out == data[at..at + len], "{algorithm} {at} + {len}");
                }
                assert_eq!(decoder.position(), at + len);
            }
        }
    }
}

#[test]
fn single_bytes_add_up_to_a_plain_decoding() {
    let data = [text(3000), Random::new(3).bytes(500), vec![0; 3000]].concat();
    for algorithm in STREAMED {
        let stream = compress(algorithm, &data);
        let mut decoder = start(algorithm, &stream, data.len());
        for &byte in &data {
            assert_eq!(next(&mut decoder, &stream, 0), Ok(vec![]));
            assert_eq!(next(&mut decoder, &stream, 1), Ok(vec![byte]));
        }
    }
}

#[test]
fn every_front_is_followed_by_the_rest() {
    let data = text(900);
    for algorithm in STREAMED {
        let stream = compress(algorithm, &data);
        for front in 0..=900 {
            let mut decoder = start(algorithm, &stream, 900);
            let out = next(&mut decoder, &stream, front);
            assert_eq!(out.as_deref(), Ok(&data[..front]));
            let out = next(&mut decoder, &stream, 900 - front);
            assert_eq!(out.as_deref(), Ok(&data[front..]));
        }
    }
}

#[test]
fn suspended_streams_do_not_disturb_each_other() {
    let mut random = Random::new(4);
    let all: Vec<_> = (0..12)
        .map(|index| {
            let algorithm = STREAMED[index % 3];
            let data = [text(60_000), random.bytes(30_000), text(200_000)].concat();
            let stream = compress(algorithm, &data);
            (algorithm, data, stream)
        })
        .collect();
    let mut decoders: Vec<_> = all
        .iter()
        .map(|(algorithm, data, stream)| start(*algorithm, stream, data.len()))
        .collect();
    for _ in 0..1500 {
        let index = random.below(all.len());
        let (algorithm, data, stream) = &all[index];
        let at = decoders[index].position();
        let len = random.below(8000).min(data.len() - at);
        let out = next(&mut decoders[index], stream, len).expect("valid");
        assert!(out == data[at..at + len], "{algorithm} {at} + {len}");
        if decoders[index].position() == data.len() {
            decoders[index] = start(*algorithm, stream, data.len());
        }
    }
}

/// References that reach as far back as the windows go.
#[test]
fn far_references_survive_small_pieces() {
    let chunk = Random::new(5).bytes(30_000);
    let far = Random::new(6).bytes(400_000);
    let data = [&chunk[..], &chunk, &far, &chunk, &far].concat();
    for algorithm in STREAMED {
        let stream = compress(algorithm, &data);
        let mut decoder = start(algorithm, &stream, data.len());
        for piece in data.chunks(4093) {
            assert!(next(&mut decoder, &stream, piece.len()).as_deref() == Ok(piece));
        }
    }
}

#[test]
fn less_may_be_asked_for_than_there_is() {
    let data = [Random::new(5).bytes(20_000), Random::new(5).bytes(20_000)].concat();
    for algorithm in STREAMED {
        let stream = compress(algorithm, &data);
        for longest in [0, 1, 100, 4096, 4097, 20_001, 39_999] {
            let mut decoder = start(algorithm, &stream, longest);
            assert_eq!(decoder.skip(&stream, longest / 2), Ok(()));
            let out = next(&mut decoder, &stream, longest - longest / 2);
            assert!(out.as_deref() == Ok(&data[longest / 2..longest]));
            let more = fault(next(&mut decoder, &stream, 1));
            let (value, max) = (longest as u64 + 1, longest as u64);
            let what = "length to decode";
            let min = 0;
            let beyond = Fault::Unsupported {
                what,
                value,
                min,
                max,
            };
            assert_eq!(more, beyond);
            assert_eq!(next(&mut decoder, &stream, 0), Ok(vec![]));
        }
    }
}

#[test]
fn a_stream_that_is_too_short_says_where_it_ends_and_stays_there() {
    let data = text(5000);
    for algorithm in [Algorithm::Deflate, Algorithm::Zstd] {
        let mut stream = compress(algorithm, &data);
        // A second stream after it is none of the first one.
        stream.extend_from_slice(&stream.clone());
        for front in [0, 4000, 5000] {
            let mut decoder = start(algorithm, &stream, 20_000);
            assert_eq!(decoder.skip(&stream, front), Ok(()));
            for _ in 0..2 {
                let short = next(&mut decoder, &stream, 5001 - front);
                assert_eq!(fault(short), Fault::Short { got: 5000 }, "{algorithm}");
            }
        }
    }
    let stream = compress(Algorithm::Lzma, &data);
    let mut decoder = start(Algorithm::Lzma, &stream, 20_000);
    assert!(next(&mut decoder, &stream, 20_000).is_err());
    assert!(next(&mut decoder, &stream, 1).is_err());
}

#[test]
fn an_empty_stream_holds_nothing() {
    for algorithm in STREAMED {
        assert!(next(&mut start(algorithm, &[], 10), &[], 1).is_err());
        // Nor does one that was longer before.
        let stream = compress(algorithm, &text(300_000));
        let mut decoder = start(algorithm, &stream, 300_000);
        assert_eq!(decoder.skip(&stream, 100), Ok(()));
        assert!(decoder.skip(&[], 299_900).is_err());
    }
}

#[test]
fn no_damage_harms_a_stream() {
    let data = text(30_000);
    let mut random = Random::new(0xDA3A6E);
    let mut decoder = Decoder::new();
    for algorithm in STREAMED {
        let stream = compress(algorithm, &data);
        let mut noticed = 0;
        for _ in 0..500 {
            let damaged = damage(&mut random, &stream);
            let mut pieces = start(algorithm, &damaged, 40_000);
            let mut out = Vec::new();
            let end = 1 + random.below(40_000);
            while out.len() < end {
                let len = piece(&mut random, end - out.len());
                match next(&mut pieces, &damaged, len) {
                    Ok(more) => out.extend(more),
                    Err(error) => {
                        let again = fault(next(&mut pieces, &damaged, 0));
                        assert_eq!(again, error.fault);
                        break;
                    }
                }
            }
            noticed += usize::from(out.len() < end);
            let plain = decode(
                &mut decoder,
                algorithm,
                &damaged,
                out.len(),
                Length::AtLeast,
            );
            // A whole decoding may notice more, at the end of the output; it never differs.
            assert!(plain.is_err() || plain.is_ok_and(|plain| plain == out));
        }
        assert!((100..500).contains(&noticed), "{algorithm}: {noticed}");
    }
}

#[test]
fn garbage_is_refused_or_decoded_but_never_more() {
    let mut random = Random::new(0x6A4BA6E);
    for _ in 0..2000 {
        let len = random.below(80);
        let garbage = random.bytes(len);
        for algorithm in STREAMED {
            let mut decoder = start(algorithm, &garbage, 100_000);
            let skipped = decoder.skip(&garbage, random.below(100));
            let out = next(&mut decoder, &garbage, 90_000);
            assert!(out.is_err() || skipped.is_ok());
        }
    }
}

#[test]
fn lz4_is_not_streamed() {
    let result = Stream::new(Algorithm::Lz4, &Params::default(), 10, 10);
    let error = result.map(drop).expect_err("it has another way");
    assert_eq!(error.fault, Fault::NoSuchWay("piece by piece"));
}

#[test]
fn parameters_beyond_the_format_are_refused() {
    let params = Params {
        lzma_dict_bytes: Params::LZMA_DICT_BYTES_MAX + 1,
        zstd_window_log: Params::ZSTD_WINDOW_LOG_MAX + 1,
    };
    for algorithm in [Algorithm::Lzma, Algorithm::Zstd] {
        let result = Stream::new(algorithm, &params, 10, 10).map(drop);
        assert!(matches!(fault(result), Fault::Unsupported { .. }));
    }
}

/// A frame with a given window; of a single segment if that holds all of the data.
fn frame(data: &[u8], window_log: u32) -> Vec<u8> {
    let mut out = Vec::with_capacity(zstd_safe::compress_bound(data.len()));
    let mut encoder = CCtx::create();
    encoder
        .set_parameter(CParameter::WindowLog(window_log))
        .expect("a window log");
    encoder.compress2(&mut out, data).expect("it fits");
    out
}

#[test]
fn windows_up_to_the_limit_are_accepted() {
    let data = text(3 << 20);
    for window_log in 10..=21 {
        for len in [500, 1000, 100_000, 1 << 20, data.len()] {
            let (data, stream) = (&data[..len], frame(&data[..len], window_log));
            // libzstd lowers the window to what the data needs: a single segment then.
            let needed = 1 << window_log.min(len.next_power_of_two().ilog2()).max(10);
            for zstd_window_log in [10, 15, 20] {
                let params = Params {
                    zstd_window_log,
                    ..Params::default()
                };
                let mut decoder =
                    Stream::new(Algorithm::Zstd, &params, stream.len(), len).expect("parameters");
                let all = decoder
                    .skip(&stream, len - 1)
                    .and_then(|()| next(&mut decoder, &stream, 1));
                if needed.min(len) <= 1 << zstd_window_log {
                    assert_eq!(all.as_deref(), Ok(&data[len - 1..]));
                } else {
                    let refused = "Frame requires too much memory for decoding";
                    assert_eq!(fault(all), Fault::Malformed(refused));
                }
            }
        }
    }
}

#[test]
fn a_distance_beyond_the_dictionary_is_refused() {
    let chunk = Random::new(5).bytes(20_000);
    let data = [&chunk[..], &chunk[..]].concat();
    let stream = compress(Algorithm::Lzma, &data);
    for (lzma_dict_bytes, is_enough) in [(4096, false), (19_968, false), (20_000, true)] {
        let params = Params {
            lzma_dict_bytes,
            ..Params::default()
        };
        let mut decoder =
            Stream::new(Algorithm::Lzma, &params, stream.len(), 40_000).expect("parameters");
        // What liblzma sees ahead is no matter of the bytes before it.
        assert_eq!(decoder.skip(&stream, 20_000), Ok(()));
        assert_eq!(decoder.skip(&stream, 20_000).is_ok(), is_enough);
    }
}

#[test]
fn the_memory_is_known_before_it_is_taken() {
    let bytes = |algorithm, longest| Params::default().memory_bytes(algorithm, longest);
    assert_eq!(bytes(Algorithm::Lz4, 1 << 20), 0);
    assert_eq!(bytes(Algorithm::Lzma, 1 << 20), (1 << 20) + 49_152);
    assert_eq!(bytes(Algorithm::Lzma, 12 << 20), (8 << 20) + 49_152);
    assert_eq!(bytes(Algorithm::Lzma, 10), 4096 + 49_152);
    assert_eq!(bytes(Algorithm::Deflate, 12 << 20), 49_152);
    assert_eq!(bytes(Algorithm::Zstd, 12 << 20), (1 << 20) + (512 << 10));
    let small = Params {
        zstd_window_log: 10,
        ..Params::default()
    };
    assert_eq!(small.memory_bytes(Algorithm::Zstd, 0), 4096 + (128 << 10));
    for algorithm in STREAMED {
        let decoder = start(algorithm, &[1], 5000);
        assert_eq!(decoder.memory_bytes(), bytes(algorithm, 5000));
    }
}

#[test]
fn libzstd_holds_no_more_than_was_said() {
    let data = text(3 << 20);
    for zstd_window_log in 10..=20 {
        let params = Params {
            zstd_window_log,
            ..Params::default()
        };
        let stream = frame(&data, zstd_window_log.into());
        let mut decoder = ZstdDecoder::at_start(zstd_window_log).expect("a window log");
        let mut out = vec![0; 1000];
        assert!(
            decoder
                .step(&stream, &mut out)
                .is_ok_and(|step| step.got == 1000)
        );
        let said = params.memory_bytes(Algorithm::Zstd, data.len());
        let held = decoder.held_bytes();
        assert!(
            (said / 2..=said).contains(&held),
            "{zstd_window_log}: {held}"
        );
    }
}

#[test]
fn liblzma_holds_no_more_than_was_said() {
    let heap_bytes = 32 << 10;
    for lzma_dict_bytes in [4096, 65_536, 8 << 20] {
        let params = Params {
            lzma_dict_bytes,
            ..Params::default()
        };
        let said = params.memory_bytes(Algorithm::Lzma, 12 << 20);
        let held = memory_bytes_by_liblzma(lzma_dict_bytes) as usize - heap_bytes;
        // What it has for MicroLZMA, beyond a raw decoder, are two structs of a few words.
        let words = 1024;
        assert!((said / 2..=said).contains(&(held + words)), "{held}");
    }
}

#[test]
fn a_stream_can_move_to_another_thread() {
    for algorithm in STREAMED {
        let data = text(10_000);
        let stream = compress(algorithm, &data);
        let mut decoder = start(algorithm, &stream, 10_000);
        assert_eq!(decoder.skip(&stream, 5000), Ok(()));
        let there = std::thread::spawn(move || next(&mut decoder, &stream, 5000));
        assert!(there.join().expect("no panic").as_deref() == Ok(&data[5000..]));
    }
}
