//! The target `encode`.

use anteros_codec::{Algorithm, Decoder, Effort, Encoded, Length, Lz4Encoder, Params};

/// Blocks that are encoded.
const BLOCKS_MAX: usize = 48;

/// Encodes bytes block by block, and decodes them again: byte 0 is the effort, bytes 1 and 2 are the budget of a block,
/// the rest is what to encode.
///
/// A block holds the front of what is left, keeps to its budget, gains at least a byte and does not begin with a zero,
/// which would pass for padding; it is the same without the early exit, and without the blocks before.
pub fn encode(input: &[u8]) {
    let [effort, low, high, data @ ..] = input else {
        return;
    };
    let effort = match effort % 16 {
        0 => Effort::Fast,
        level @ 1..=12 => Effort::High(level),
        level => Effort::Optimal(1 << (2 * (level - 13))),
    };
    let budget = u16::from_le_bytes([*low, *high]).into();
    let mut encoder = Lz4Encoder::new(effort).expect("a known effort");
    let mut plain = Lz4Encoder::new(effort)
        .expect("a known effort")
        .without_probe();
    let mut start = 0;
    for _ in 0..BLOCKS_MAX {
        let rest = &data[start..];
        let next = |out: &mut [u8]| encoder.encode_next(data, start..data.len(), out);
        start += match encode_block(next, rest, budget) {
            Some((encoded, block)) => {
                let same = encode_block(|out| plain.encode(rest, out), rest, budget);
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
) -> Option<(Encoded, Vec<u8>)> {
    let mut block = vec![0xAA; budget];
    let encoded = encode(&mut block)?;
    let Encoded { consumed, written } = encoded;
    assert!(consumed <= input.len() && written <= budget && written < consumed);
    assert_ne!(block[0], 0);
    block.truncate(written);
    assert!(decode(&block, consumed) == input[..consumed]);
    Some((encoded, block))
}

fn decode(block: &[u8], len: usize) -> Vec<u8> {
    let mut out = vec![0; len];
    let decoded = Decoder::new().decode(
        Algorithm::Lz4,
        &Params::default(),
        block,
        &mut out,
        Length::Exact,
    );
    decoded.expect("a valid block");
    out
}
