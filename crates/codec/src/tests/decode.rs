use super::{Random, compress, damage, text};
use crate::{Algorithm, DecodeError, Decoder, Fault, Length, Params};

/// Decodes with the largest parameters of the format.
pub(super) fn decode(
    decoder: &mut Decoder,
    algorithm: Algorithm,
    stream: &[u8],
    len: usize,
    length: Length,
) -> Result<Vec<u8>, DecodeError> {
    let mut out = vec![0xAA; len];
    decoder.decode(algorithm, &Params::default(), stream, &mut out, length)?;
    Ok(out)
}

pub(super) fn fault<T: std::fmt::Debug>(result: Result<T, DecodeError>) -> Fault {
    result.expect_err("the stream is bad").fault
}

/// Data that compresses well, somewhat, and not at all; short and long.
pub(super) fn samples() -> Vec<Vec<u8>> {
    let mut samples = Vec::new();
    for len in [1, 2, 13, 300, 4096, 70_000, 1_200_000] {
        samples.push(text(len));
        samples.push(Random::new(3).bytes(len));
        samples.push(vec![0; len]);
    }
    samples
}

#[test]
fn every_codec_brings_back_what_went_in() {
    let mut decoder = Decoder::new();
    for data in samples() {
        for algorithm in Algorithm::ALL {
            let stream = compress(algorithm, &data);
            for length in [Length::Exact, Length::AtLeast] {
                let out = decode(&mut decoder, algorithm, &stream, data.len(), length);
                assert!(
                    out.as_ref() == Ok(&data),
                    "{algorithm} {length:?} {}",
                    data.len()
                );
            }
        }
    }
}

#[test]
fn every_front_of_a_stream_decodes() {
    let mut decoder = Decoder::new();
    for data in [text(700), Random::new(3).bytes(400), vec![0; 400]] {
        for algorithm in Algorithm::ALL {
            let stream = compress(algorithm, &data);
            for len in 0..=data.len() {
                let out = decode(&mut decoder, algorithm, &stream, len, Length::AtLeast);
                assert_eq!(out.as_deref(), Ok(&data[..len]), "{algorithm} {len}");
            }
        }
    }
}

#[test]
fn fronts_of_a_long_stream_decode() {
    let data = text(1_000_000);
    let mut decoder = Decoder::new();
    for algorithm in Algorithm::ALL {
        let stream = compress(algorithm, &data);
        for len in [1, 4096, 131_071, 131_073, 500_000, 999_999] {
            let out = decode(&mut decoder, algorithm, &stream, len, Length::AtLeast);
            assert!(out.as_deref() == Ok(&data[..len]), "{algorithm} {len}");
        }
    }
}

#[test]
fn an_exact_stream_is_neither_longer_nor_shorter() {
    let data = text(5000);
    let mut decoder = Decoder::new();
    for algorithm in Algorithm::ALL {
        let stream = compress(algorithm, &data);
        for wrong in [0, 1, 2500, 4990, 4999, 5001, 5010, 10_000] {
            let out = decode(&mut decoder, algorithm, &stream, wrong, Length::Exact);
            assert!(out.is_err(), "{algorithm} {wrong}");
        }
    }
}

#[test]
fn a_stream_that_is_too_short_says_where_it_ends() {
    let data = text(5000);
    let mut decoder = Decoder::new();
    for algorithm in [Algorithm::Lz4, Algorithm::Deflate, Algorithm::Zstd] {
        let stream = compress(algorithm, &data);
        let out = decode(&mut decoder, algorithm, &stream, 5001, Length::AtLeast);
        assert_eq!(fault(out), Fault::Short { got: 5000 }, "{algorithm}");
    }
    // The last bytes of an LZMA stream may pass for a few more symbols, no more.
    let stream = compress(Algorithm::Lzma, &data);
    let out = decode(
        &mut decoder,
        Algorithm::Lzma,
        &stream,
        20_000,
        Length::AtLeast,
    );
    assert!(out.is_err());
}

#[test]
fn bytes_after_the_end_are_refused_where_all_is_wanted() {
    let data = text(5000);
    let mut decoder = Decoder::new();
    for algorithm in Algorithm::ALL {
        let mut stream = compress(algorithm, &data);
        stream.extend_from_slice(&[1, 2, 3]);
        let exact = decode(&mut decoder, algorithm, &stream, 5000, Length::Exact);
        assert!(exact.is_err(), "{algorithm}");
        if matches!(algorithm, Algorithm::Deflate | Algorithm::Zstd) {
            assert_eq!(fault(exact), Fault::Trailing { left: 3 }, "{algorithm}");
        }
        let front = decode(&mut decoder, algorithm, &stream, 4000, Length::AtLeast);
        assert_eq!(front.as_deref(), Ok(&data[..4000]), "{algorithm}");
    }
}

#[test]
fn every_cut_of_a_stream_is_noticed() {
    let data = text(2000);
    let mut decoder = Decoder::new();
    for algorithm in Algorithm::ALL {
        let stream = compress(algorithm, &data);
        for cut in 0..stream.len() {
            let out = decode(&mut decoder, algorithm, &stream[..cut], 2000, Length::Exact);
            assert!(out.is_err(), "{algorithm} cut at {cut}");
            let front = decode(
                &mut decoder,
                algorithm,
                &stream[..cut / 2],
                2000,
                Length::AtLeast,
            );
            assert!(front.is_err(), "{algorithm} front of {}", cut / 2);
        }
    }
}

#[test]
fn no_damage_harms_the_decoder() {
    let data = text(1500);
    let mut random = Random::new(0xDA3A6E);
    let mut decoder = Decoder::new();
    for algorithm in Algorithm::ALL {
        let stream = compress(algorithm, &data);
        let mut noticed = 0;
        for _ in 0..3000 {
            let damaged = damage(&mut random, &stream);
            let len = random.below(3000);
            for length in [Length::Exact, Length::AtLeast] {
                let out = decode(&mut decoder, algorithm, &damaged, len, length);
                noticed += usize::from(out.is_err());
            }
            let good = decode(&mut decoder, algorithm, &stream, 1500, Length::Exact);
            assert_eq!(good.as_deref(), Ok(&data[..]), "{algorithm}");
        }
        assert!(noticed > 3000, "{algorithm}: {noticed}");
    }
}

#[test]
fn garbage_is_refused_or_decoded_but_never_more() {
    let mut random = Random::new(0x6A4BA6E);
    let mut decoder = Decoder::new();
    for _ in 0..5000 {
        let len = random.below(80);
        let garbage = random.bytes(len);
        for algorithm in Algorithm::ALL {
            let exact = decode(&mut decoder, algorithm, &garbage, 100_000, Length::Exact);
            assert!(exact.is_err(), "{algorithm} {garbage:?}");
            let wanted = random.below(100);
            let front = decode(&mut decoder, algorithm, &garbage, wanted, Length::AtLeast);
            assert!(front.is_err() || front.is_ok_and(|out| out.len() == wanted));
        }
    }
}

#[test]
fn an_empty_stream_holds_nothing() {
    let mut decoder = Decoder::new();
    for algorithm in Algorithm::ALL {
        for length in [Length::Exact, Length::AtLeast] {
            assert!(decode(&mut decoder, algorithm, &[], 1, length).is_err());
        }
        assert!(decode(&mut decoder, algorithm, &[], 0, Length::Exact).is_err());
    }
}

#[test]
fn dictionaries_beyond_the_format_are_refused() {
    let params = Params {
        lzma_dict_bytes: Params::LZMA_DICT_BYTES_MAX + 1,
        ..Params::default()
    };
    let stream = compress(Algorithm::Lzma, b"data");
    let error = Decoder::new()
        .decode(
            Algorithm::Lzma,
            &params,
            &stream,
            &mut [0; 4],
            Length::Exact,
        )
        .expect_err("too large");
    assert!(matches!(
        error.fault,
        Fault::Unsupported {
            value: 8_388_609,
            ..
        }
    ));
}

#[test]
fn a_distance_beyond_the_dictionary_is_refused() {
    let chunk = Random::new(5).bytes(20_000);
    let stream = compress(Algorithm::Lzma, &[&chunk[..], &chunk[..]].concat());
    let mut out = vec![0; 40_000];
    let mut decode = |lzma_dict_bytes| {
        let params = Params {
            lzma_dict_bytes,
            ..Params::default()
        };
        Decoder::new()
            .decode(Algorithm::Lzma, &params, &stream, &mut out, Length::Exact)
            .map_err(|error| error.fault)
    };
    assert_eq!(decode(32_768), Ok(()));
    assert_eq!(decode(4096), Err(Fault::Malformed("data error")));
}

#[test]
fn windows_beyond_the_format_are_refused() {
    for zstd_window_log in [0, 9, 21, 255] {
        let params = Params {
            zstd_window_log,
            ..Params::default()
        };
        let stream = compress(Algorithm::Zstd, b"data");
        let error = Decoder::new()
            .decode(
                Algorithm::Zstd,
                &params,
                &stream,
                &mut [0; 4],
                Length::Exact,
            )
            .expect_err("outside the format");
        assert!(matches!(error.fault, Fault::Unsupported { .. }));
    }
}

#[test]
fn a_frame_takes_no_window_beyond_the_limit() {
    let params = |zstd_window_log| Params {
        zstd_window_log,
        ..Params::default()
    };
    // Shorter than its window, and longer; the window of each.
    for (len, window) in [(100, 100), (300, 300), (70_000, 70_000), (3 << 20, 1 << 20)] {
        let data = text(len);
        let stream = compress(Algorithm::Zstd, &data);
        for log in 10..=20 {
            for (wanted, length) in [(len, Length::Exact), (len.min(64), Length::AtLeast)] {
                let mut out = vec![0; wanted];
                let mut decoder = Decoder::new();
                let done = decoder.decode(Algorithm::Zstd, &params(log), &stream, &mut out, length);
                match window <= 1 << log {
                    true => assert!(done.is_ok() && out == data[..wanted], "{len}, {log}"),
                    false => assert_eq!(
                        done.map_err(|error| error.fault),
                        Err(Fault::Malformed(
                            "Frame requires too much memory for decoding"
                        )),
                        "{len}, {log}"
                    ),
                }
            }
        }
    }
}

#[test]
fn one_frame_is_one_stream() {
    let data = text(1000);
    let stream = compress(Algorithm::Zstd, &data);
    let twice = [&stream[..], &stream[..]].concat();
    let out = decode(
        &mut Decoder::new(),
        Algorithm::Zstd,
        &twice,
        2000,
        Length::Exact,
    );
    let left = stream.len();
    assert_eq!(fault(out), Fault::Trailing { left });
}

#[test]
fn a_decoder_can_move_to_another_thread() {
    let data = text(1000);
    let stream = compress(Algorithm::Lzma, &data);
    let mut decoder = Decoder::new();
    decode(&mut decoder, Algorithm::Lzma, &stream, 1000, Length::Exact).expect("a good stream");
    let there = std::thread::spawn(move || {
        decode(&mut decoder, Algorithm::Lzma, &stream, 1000, Length::Exact)
    });
    assert_eq!(there.join().expect("no panic"), Ok(data));
}

#[test]
fn an_error_says_what_was_wanted_of_what() {
    let stream = compress(Algorithm::Deflate, &text(100));
    let error = decode(
        &mut Decoder::new(),
        Algorithm::Deflate,
        &stream,
        99,
        Length::Exact,
    )
    .expect_err("99 are too few");
    let expected = format!(
        "deflate stream of {} bytes, 99 bytes wanted of it: it goes on beyond them",
        stream.len()
    );
    assert_eq!(error.to_string(), expected);
}
