//! Tests of the crate as a whole, and the streams they feed on.

mod codecs;
mod decode;
mod encode;
mod in_place;
mod lz4;
mod mapping;
mod padding;
mod rolling;
mod stream;

use zlib_rs::{Deflate, DeflateFlush, Status};
use zstd_safe::{CCtx, CParameter};

use crate::{Algorithm, Effort, Lz4Encoder, lzma};

/// A xorshift generator: the same numbers on each run.
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed | 1)
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    pub(crate) fn below(&mut self, bound: usize) -> usize {
        (self.next() >> 16) as usize % bound
    }

    pub(crate) fn bytes(&mut self, len: usize) -> Vec<u8> {
        std::iter::repeat_with(|| (self.next() >> 32) as u8)
            .take(len)
            .collect()
    }
}

/// Words in random order: compresses about threefold.
pub(crate) fn text(len: usize) -> Vec<u8> {
    const WORDS: [&str; 8] = [
        "block ",
        "inode ",
        "extent\n",
        "of ",
        "a ",
        "cluster, ",
        "superblock ",
        "\tis read; ",
    ];
    let mut random = Random::new(42);
    let mut text = Vec::new();
    while text.len() < len {
        text.extend_from_slice(WORDS[random.below(WORDS.len())].as_bytes());
        text.push(random.next() as u8);
    }
    text.truncate(len);
    text
}

/// All of `data` as one stream.
pub(crate) fn compress(algorithm: Algorithm, data: &[u8]) -> Vec<u8> {
    let mut out = vec![0; data.len() + data.len() / 8 + 1024];
    let written = match algorithm {
        Algorithm::Lz4 => compress_lz4(data, &mut out),
        Algorithm::Lzma => lzma::compress(data, &mut out),
        Algorithm::Deflate => {
            let mut deflate = Deflate::new(6, false, 15);
            let status = deflate.compress(data, &mut out, DeflateFlush::Finish);
            assert_eq!(status, Ok(Status::StreamEnd));
            deflate.total_out() as usize
        }
        Algorithm::Zstd => compress_zstd(data, &mut out),
    };
    out.truncate(written);
    out
}

/// With the largest window of the format.
fn compress_zstd(data: &[u8], out: &mut [u8]) -> usize {
    let mut context = CCtx::create();
    for parameter in [CParameter::CompressionLevel(3), CParameter::WindowLog(20)] {
        context.set_parameter(parameter).expect("it is allowed");
    }
    context.compress2(out, data).expect("it fits")
}

/// One block of literals when LZ4 cannot make the data shorter.
fn compress_lz4(data: &[u8], out: &mut [u8]) -> usize {
    let mut encoder = Lz4Encoder::new(Effort::High(9)).expect("9 is a level");
    match encoder.encode(data, out) {
        Some(encoded) => {
            assert_eq!(encoded.consumed, data.len());
            encoded.written
        }
        None => store_lz4(data, out),
    }
}

fn store_lz4(data: &[u8], out: &mut [u8]) -> usize {
    let mut block = match data.len().checked_sub(15) {
        None => vec![(data.len() as u8) << 4],
        Some(more) => {
            let mut block = vec![0xF0];
            block.resize(1 + more / 255, 255);
            block.push((more % 255) as u8);
            block
        }
    };
    block.extend_from_slice(data);
    out[..block.len()].copy_from_slice(&block);
    block.len()
}

/// A hand-made LZ4 block, for what no encoder would write.
#[derive(Default)]
pub(crate) struct Lz4Block {
    bytes: Vec<u8>,
    /// Bytes that it decodes to.
    len: usize,
}

impl Lz4Block {
    /// Literals and then a match.
    pub(crate) fn sequence(&mut self, literals: &[u8], distance: u16, match_len: usize) {
        let more = match_len.checked_sub(4).expect("matches have 4 bytes");
        self.literals(literals, more.min(15) as u8);
        self.bytes.extend_from_slice(&distance.to_le_bytes());
        self.length(more);
        self.len += match_len;
    }

    /// Literals that end the block, which are to be five at least.
    pub(crate) fn end(mut self, literals: &[u8]) -> (Vec<u8>, usize) {
        self.literals(literals, 0);
        (self.bytes, self.len)
    }

    fn literals(&mut self, literals: &[u8], low_nibble: u8) {
        let high_nibble = literals.len().min(15) as u8;
        self.bytes.push(high_nibble << 4 | low_nibble);
        self.length(literals.len());
        self.bytes.extend_from_slice(literals);
        self.len += literals.len();
    }

    /// Writes what of a length does not fit its nibble.
    fn length(&mut self, len: usize) {
        if let Some(more) = len.checked_sub(15) {
            self.bytes.extend(std::iter::repeat_n(255, more / 255));
            self.bytes.push((more % 255) as u8);
        }
    }
}

/// A valid LZ4 block of at least `len` bytes that is full of borderline cases, and its length.
pub(crate) fn wild_lz4(random: &mut Random, len: usize) -> (Vec<u8>, usize) {
    const LENS: [usize; 12] = [0, 1, 2, 7, 14, 15, 16, 31, 33, 270, 300, 5000];
    let mut block = Lz4Block::default();
    while block.len < len {
        let literals = LENS[random.below(if block.len == 0 { 12 } else { 11 })];
        let literals = random.bytes(literals.max(usize::from(block.len == 0)));
        let past = (block.len + literals.len()).min(65_535);
        let distance = match random.below(6) {
            0 => past,
            1 => past - random.below(40).min(past - 1),
            2 => 1 + random.below(past.min(40)),
            _ => 1 + random.below(past),
        };
        let match_len = match random.below(40) {
            0 => 4 + random.below(70_000),
            1 => distance.max(4),
            2..10 => 4 + random.below(600),
            _ => 4 + random.below(30),
        };
        block.sequence(&literals, distance as u16, match_len);
    }
    // The last match begins at least twelve bytes before the end.
    let tail = 12 + random.below(40);
    block.end(&random.bytes(tail))
}

/// Some damage, at a few places and to the end.
pub(crate) fn damage(random: &mut Random, stream: &[u8]) -> Vec<u8> {
    let mut damaged = stream.to_vec();
    for _ in 0..=random.below(4) {
        let at = random.below(damaged.len());
        damaged[at] = random.next() as u8;
    }
    damaged.truncate(damaged.len() - random.below(3));
    damaged
}
