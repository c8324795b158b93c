//! Cuts files into fixed-size LZ4 pclusters and prints blocks and speed, with the early exit for
//! hopeless input and without it.
//!
//! ```text
//! cargo run --release -p anteros-codec --example lz4_pclusters -- PCLUSTER_BYTES FILE...
//! ```
//!
//! Eight megabytes of random bytes are measured before the files. A piece that gains nothing is
//! counted as stored: one pcluster of input for one pcluster of output.

use std::error::Error;
use std::time::Instant;

use anteros_codec::{Effort, Lz4Encoder};

const BLOCK_BYTES: usize = 4096;
const EFFORTS: [Effort; 4] = [
    Effort::Fast,
    Effort::High(3),
    Effort::High(9),
    Effort::High(12),
];

fn main() -> Result<(), Box<dyn Error>> {
    let mut args = std::env::args().skip(1);
    let pcluster_bytes: usize = args.next().ok_or("PCLUSTER_BYTES is missing")?.parse()?;
    println!("file effort | blocks, MB/s plain | blocks, MB/s probing");
    measure("random", &random(8_000_000), pcluster_bytes)?;
    for path in args {
        measure(&path, &std::fs::read(&path)?, pcluster_bytes)?;
    }
    Ok(())
}

fn measure(name: &str, data: &[u8], pcluster_bytes: usize) -> Result<(), Box<dyn Error>> {
    for effort in EFFORTS {
        let plain = Lz4Encoder::new(effort)?.without_probe();
        let probing = Lz4Encoder::new(effort)?;
        let (plain_blocks, plain_speed) = run(plain, data, pcluster_bytes);
        let (blocks, speed) = run(probing, data, pcluster_bytes);
        println!("{name} {effort:?} | {plain_blocks} {plain_speed:.1} | {blocks} {speed:.1}");
    }
    Ok(())
}

/// The blocks that `data` takes, and how many megabytes of it were compressed in a second.
fn run(mut encoder: Lz4Encoder, data: &[u8], pcluster_bytes: usize) -> (usize, f64) {
    let mut out = vec![0; pcluster_bytes];
    let mut blocks = 0;
    let mut rest = data;
    let start = Instant::now();
    while !rest.is_empty() {
        let (consumed, written) = match encoder.encode(rest, &mut out) {
            Some(encoded) => (encoded.consumed, encoded.written),
            None => (
                pcluster_bytes.min(rest.len()),
                pcluster_bytes.min(rest.len()),
            ),
        };
        blocks += written.div_ceil(BLOCK_BYTES);
        rest = &rest[consumed..];
    }
    let seconds = start.elapsed().as_secs_f64();
    (blocks, data.len() as f64 / seconds / 1e6)
}

/// Bytes of a xorshift generator.
fn random(len: usize) -> Vec<u8> {
    let mut state = 0x9E37_79B9_7F4A_7C15_u64;
    std::iter::repeat_with(|| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 32) as u8
    })
    .take(len)
    .collect()
}
