use super::{Random, text};
use crate::{
    Algorithm, Decoder, Effort, Encoded, Length, Lz4Encoder, Params, UnknownEffort, ZstdEncoder,
};

const EFFORTS: [Effort; 9] = [
    Effort::Fast,
    Effort::FastLiblz4,
    Effort::High(1),
    Effort::High(3),
    Effort::High(9),
    Effort::High(12),
    Effort::Lazy(64),
    Effort::Optimal(1),
    Effort::Optimal(64),
];

/// Budgets around the short lengths where LZ4 has special rules, and some pclusters.
fn budgets() -> impl Iterator<Item = usize> {
    (0..64).chain([255, 270, 271, 1000, 4096, 16384, 65536])
}

/// Text, then random bytes, then text that occurred before.
fn mixed() -> Vec<u8> {
    let text = text(40_000);
    [&text[..20_000], &Random::new(7).bytes(30_000), &text].concat()
}

fn encoder(effort: Effort) -> Lz4Encoder {
    Lz4Encoder::new(effort).expect("a known effort")
}

fn decoded(block: &[u8], len: usize) -> Vec<u8> {
    let mut out = vec![0; len];
    Decoder::new()
        .decode(
            Algorithm::Lz4,
            &Params::default(),
            block,
            &mut out,
            Length::Exact,
        )
        .expect("a valid block");
    out
}

/// Encodes, and checks what holds for each block.
fn encode(encoder: &mut Lz4Encoder, input: &[u8], budget: usize) -> Option<(Encoded, Vec<u8>)> {
    let mut out = vec![0xAA; budget];
    let encoded = encoder.encode(input, &mut out)?;
    assert!(encoded.consumed <= input.len());
    assert!(encoded.written <= budget);
    assert!(encoded.written < encoded.consumed);
    assert_ne!(out[0], 0, "the padding would swallow this byte");
    out.truncate(encoded.written);
    assert_eq!(decoded(&out, encoded.consumed), input[..encoded.consumed]);
    Some((encoded, out))
}

#[test]
fn a_block_holds_the_front_of_its_input() {
    let zeros = vec![0; 100_000];
    for effort in EFFORTS {
        let mut encoder = encoder(effort);
        for input in [mixed(), zeros.clone(), text(100), text(13), text(5)] {
            for budget in budgets() {
                encode(&mut encoder, &input, budget);
            }
        }
    }
}

#[test]
fn a_whole_file_comes_back_block_by_block() {
    let input = mixed();
    for effort in EFFORTS {
        let mut encoder = encoder(effort);
        let (mut rest, mut stored, mut written) = (&input[..], 0, 0);
        while !rest.is_empty() {
            let consumed = match encode(&mut encoder, rest, 4096) {
                Some((encoded, _)) => {
                    written += encoded.written;
                    encoded.consumed
                }
                None => {
                    stored += rest.len().min(4096);
                    rest.len().min(4096)
                }
            };
            rest = &rest[consumed..];
        }
        assert!((16_384..=36_864).contains(&stored), "{effort:?}: {stored}");
        assert!(written < 60_000 * 2 / 3, "{effort:?}: {written}");
    }
}

#[test]
fn the_budget_is_used_up() {
    let input = text(1_000_000);
    for effort in EFFORTS {
        for budget in [4096, 16384, 65536] {
            let (encoded, _) = encode(&mut encoder(effort), &input, budget).expect("text shrinks");
            let left = budget - encoded.written;
            assert!(left < 16, "{effort:?}: {left} of {budget} bytes left");
        }
    }
}

#[test]
fn the_lazy_parse_comes_as_far_as_that_of_liblz4() {
    let input = [
        include_bytes!("../optimal/parse.rs").as_slice(),
        include_bytes!("../optimal/chains.rs"),
        include_bytes!("../lz4_block.rs"),
        include_bytes!("../zstd.rs"),
        include_bytes!("../../benches/encode.rs"),
    ]
    .concat();
    for budget in [1024, 4096, 16384] {
        let sum = |effort| {
            let mut encoder = encoder(effort);
            let starts = (0..input.len() - 20_000).step_by(1999);
            let blocks = starts.map(|start| encode(&mut encoder, &input[start..], budget));
            let consumed = blocks.map(|block| block.expect("text shrinks").0.consumed);
            consumed.sum::<usize>()
        };
        let (ours, theirs) = (sum(Effort::Lazy(160)), sum(Effort::High(9)));
        assert!(ours * 100 >= theirs * 99, "{ours} of {theirs}");
    }
}

#[test]
fn more_budget_never_holds_less() {
    let input = text(300_000);
    let mut encoder = encoder(Effort::High(9));
    let mut last = 0;
    for budget in [512, 1024, 2048, 4096, 8192, 65536] {
        let (encoded, _) = encode(&mut encoder, &input, budget).expect("text shrinks");
        assert!(encoded.consumed > last);
        last = encoded.consumed;
    }
}

#[test]
fn random_bytes_gain_nothing() {
    let input = Random::new(1).bytes(200_000);
    for effort in EFFORTS {
        for budget in budgets() {
            assert_eq!(encode(&mut encoder(effort), &input, budget), None);
            assert_eq!(encode(&mut encoder(effort), &input[..budget], budget), None);
        }
    }
}

#[test]
fn nothing_gains_nothing() {
    assert_eq!(encode(&mut encoder(Effort::Fast), &[], 4096), None);
    assert_eq!(encode(&mut encoder(Effort::High(9)), &text(9), 0), None);
}

#[test]
fn zeros_reach_the_ratio_of_the_format() {
    let zeros = vec![0; 2_000_000];
    for effort in EFFORTS {
        let (encoded, _) = encode(&mut encoder(effort), &zeros, 4096).expect("zeros shrink");
        assert!(encoded.consumed > 4096 * 250, "{encoded:?}");
    }
}

#[test]
fn the_probe_changes_no_block_that_gains() {
    let input = mixed();
    for effort in EFFORTS {
        let (mut probing, mut plain) = (encoder(effort), encoder(effort).without_probe());
        for start in (0..input.len()).step_by(977) {
            let rest = &input[start..];
            assert_eq!(
                encode(&mut probing, rest, 4096),
                encode(&mut plain, rest, 4096),
                "{effort:?} at {start}"
            );
        }
    }
}

/// Invariant B6 of `docs/design/building.md`.
#[test]
fn a_block_does_not_depend_on_the_blocks_before() {
    let (text, mixed) = (text(50_000), mixed());
    for effort in EFFORTS {
        let mut used = encoder(effort);
        for _ in 0..2 {
            for input in [&text, &mixed] {
                let fresh = encode(&mut encoder(effort), input, 4096);
                assert_eq!(encode(&mut used, input, 4096), fresh);
            }
        }
    }
}

#[test]
fn levels_outside_hc_are_refused() {
    for level in [0, 13, 255] {
        let refused = Lz4Encoder::new(Effort::High(level)).err();
        assert_eq!(refused, Some(UnknownEffort(level)));
    }
}

#[test]
fn a_frame_of_zstandard_holds_all_or_there_is_none() {
    let inputs = [text(4096), mixed(), Vec::new()];
    for (level, data) in [1, 9]
        .into_iter()
        .flat_map(|level| inputs.iter().map(move |data| (level, data)))
    {
        let mut encoder = ZstdEncoder::new(level).expect("memory");
        let mut decoder = Decoder::new();
        let mut out = vec![0; 2 * data.len() + 64];
        let len = encoder.encode(data, &mut out).expect("room");
        let mut again = vec![0; data.len()];
        let (zstd, params) = (Algorithm::Zstd, Params::default());
        let decoded = decoder.decode(zstd, &params, &out[..len], &mut again, Length::Exact);
        assert_eq!(decoded, Ok(()));
        assert!(again == *data);
        assert_eq!(encoder.encode(data, &mut out[..len + 16]), Some(len));
        assert_eq!(encoder.encode(data, &mut out[..len - 1]), None);
    }
}
