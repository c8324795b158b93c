//! The target `encode`.

use anteros_codec::{
    Algorithm, Codec, Decoder, Effort, Encoded, Encoder, Length, Lz4Encoder, Params,
};

/// Blocks that are encoded.
const BLOCKS_MAX: usize = 48;

/// Encodes bytes block by block, and decodes them again: byte 0 is the codec, bytes 1 and 2 are the budget of a block,
/// the rest is what to encode.
pub fn encode(input: &[u8]) {
    let [codec, low, high, data @ ..] = input else {
        return;
    };
    let budget = u16::from_le_bytes([*low, *high]).into();
    match codec {
        0..128 => encode_lz4(codec % 16, data, budget),
        _ => encode_codec(&codec_of(codec - 128, *low), data, budget),
    }
}

/// A codec of any kind and level, with a window of any size.
fn codec_of(choice: u8, window: u8) -> Codec {
    match choice {
        level @ 0..20 => Codec::Lzma {
            level: level % 10,
            extreme: level >= 10,
            dict_bytes: 4096 << (window % 8),
        },
        level @ 20..32 => Codec::Deflate { level: level - 19 },
        level @ 32..54 => Codec::Zstd {
            level: level - 31,
            window_log: 10 + window % 11,
        },
        level => Codec::Lz4(Effort::Lazy(u16::from(level) - 53)),
    }
}

/// Encodes by a codec. A block holds the front of what is left, keeps to its budget, gains at least a byte and does not
/// begin with a zero; another encoder that goes the same way makes the same.
fn encode_codec(codec: &Codec, data: &[u8], budget: usize) {
    let new = || Encoder::new(codec).expect("a known codec");
    let (mut encoder, mut other) = (new(), new());
    let mut start = 0;
    for _ in 0..BLOCKS_MAX / 4 {
        let rest = &data[start..];
        let next = |encoder: &mut Encoder, out: &mut [u8]| {
            let encoded = encoder.encode_next(data, start..data.len(), out);
            encoded.expect("there is memory")
        };
        let block = encode_block(
            |out| next(&mut encoder, out),
            rest,
            budget,
            codec.algorithm(),
        );
        let again = encode_block(|out| next(&mut other, out), rest, budget, codec.algorithm());
        assert_eq!(block, again);
        start += block.map_or(budget.clamp(1, rest.len().max(1)), |(encoded, _)| {
            encoded.consumed
        });
        if start >= data.len() {
            return;
        }
    }
}

/// Encodes by LZ4. A block holds the front of what is left, keeps to its budget, gains at least a byte and does not begin with a zero,
/// which would pass for padding; it is the same without the early exit, and without the blocks before.
fn encode_lz4(effort: u8, data: &[u8], budget: usize) {
    let effort = match effort {
        0 => Effort::Fast,
        level @ 1..=12 => Effort::High(level),
        level => Effort::Optimal(1 << (2 * (level - 13))),
    };
    let mut encoder = Lz4Encoder::new(effort).expect("a known effort");
    let mut plain = Lz4Encoder::new(effort)
        .expect("a known effort")
        .without_probe();
    let mut start = 0;
    for _ in 0..BLOCKS_MAX {
        let rest = &data[start..];
        let next = |out: &mut [u8]| encoder.encode_next(data, start..data.len(), out);
        start += match encode_block(next, rest, budget, Algorithm::Lz4) {
            Some((encoded, block)) => {
                let same =
                    encode_block(|out| plain.encode(rest, out), rest, budget, Algorithm::Lz4);
                assert_eq!(same, Some((encoded, block)));
                encoded.consumed
            }
            None => budget.clamp(1, rest.len().max(1)),
        };
        if start >= data.len() {
            return;
        }
    }
}

fn encode_block(
    mut encode: impl FnMut(&mut [u8]) -> Option<Encoded>,
    input: &[u8],
    budget: usize,
    algorithm: Algorithm,
) -> Option<(Encoded, Vec<u8>)> {
    let mut block = vec![0xAA; budget];
    let encoded = encode(&mut block)?;
    let Encoded { consumed, written } = encoded;
    assert!(consumed <= input.len() && written <= budget && written < consumed);
    assert_ne!(block[0], 0);
    block.truncate(written);
    assert!(decode(algorithm, &block, consumed) == input[..consumed]);
    Some((encoded, block))
}

fn decode(algorithm: Algorithm, block: &[u8], len: usize) -> Vec<u8> {
    let mut out = vec![0; len];
    let decoded = Decoder::new().decode(
        algorithm,
        &Params::default(),
        block,
        &mut out,
        Length::Exact,
    );
    decoded.expect("a valid block");
    out
}
