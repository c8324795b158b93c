//! Tests of the crate as a whole, and the streams they feed on.

mod decode;
mod encode;
mod padding;

use zlib_rs::{Deflate, DeflateFlush, Status};

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
        Algorithm::Zstd => zstd_safe::compress(&mut out[..], data, 3).expect("it fits"),
    };
    out.truncate(written);
    out
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
