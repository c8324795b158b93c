//! Speed of the LZ4 decoder beside liblz4's, on the same blocks: `cargo bench -p anteros-codec`.
//!
//! The files named on the command line (`-- FILE...`) are compressed into blocks of a fixed size,
//! as an image has them. Both decoders then take turns, each on all blocks, and the line of each size
//! tells the median of their ratios: above 1, ours is the faster one.

use std::ffi::{c_char, c_int};
use std::hint::black_box;
use std::time::{Duration, Instant};

use anteros_codec::{Algorithm, Decoder, Effort, Encoded, Length, Lz4Encoder, Params};

// Of lz4.h.
unsafe extern "C" {
    fn LZ4_decompress_safe(
        src: *const c_char,
        dst: *mut c_char,
        src_len: c_int,
        room: c_int,
    ) -> c_int;
    fn LZ4_decompress_safe_partial(
        src: *const c_char,
        dst: *mut c_char,
        src_len: c_int,
        wanted: c_int,
        room: c_int,
    ) -> c_int;
}

const TURNS: usize = 31;
/// As much of a file is taken.
const INPUT_MAX: usize = 64 << 20;

struct Block {
    bytes: Vec<u8>,
    content_len: usize,
}

fn main() {
    let files: Vec<String> = std::env::args()
        .skip(1)
        .filter(|arg| !arg.starts_with("--"))
        .collect();
    let files = if files.is_empty() {
        vec![env!("CARGO_MANIFEST_DIR").to_owned() + "/src/zstd.rs"]
    } else {
        files
    };
    println!(
        "{:<32} {:>9} {:>8} {:>12} {:>12} {:>7}",
        "file", "block", "length", "liblz4 MB/s", "ours MB/s", "ratio"
    );
    for file in &files {
        let mut content = std::fs::read(file).unwrap_or_else(|err| panic!("{file}: {err}"));
        content.truncate(INPUT_MAX);
        for block_len in [4 << 10, 16 << 10, 64 << 10, 1 << 20] {
            let blocks = compress(&content, block_len);
            for length in [Length::Exact, Length::AtLeast] {
                compare(file, block_len, &blocks, length);
            }
        }
    }
}

fn compress(content: &[u8], block_len: usize) -> Vec<Block> {
    let mut encoder = Lz4Encoder::new(Effort::High(9)).expect("level 9 exists");
    let (mut blocks, mut rest) = (Vec::new(), content);
    while !rest.is_empty() {
        let mut bytes = vec![0; block_len];
        let content_len = match encoder.encode(rest, &mut bytes) {
            Some(Encoded { consumed, written }) => {
                bytes.truncate(written);
                blocks.push(Block {
                    bytes,
                    content_len: consumed,
                });
                consumed
            }
            // An image stores such content as it is: no decoder has work with it.
            None => block_len.min(rest.len()),
        };
        rest = &rest[content_len..];
    }
    blocks
}

fn compare(file: &str, block_len: usize, blocks: &[Block], length: Length) {
    // The front that is asked for of a block: three quarters, when it is not all.
    let wanted = |block: &Block| match length {
        Length::Exact => block.content_len,
        Length::AtLeast => block.content_len * 3 / 4,
    };
    let longest = blocks
        .iter()
        .map(|block| block.content_len)
        .max()
        .unwrap_or(0);
    let total: usize = blocks.iter().map(wanted).sum();
    let (mut theirs_out, mut ours_out) = (vec![0; longest], vec![0; longest]);
    let mut decoder = Decoder::default();
    let mut theirs = || {
        for block in blocks {
            their_decode(&block.bytes, &mut theirs_out[..wanted(block)], length);
            black_box(&theirs_out);
        }
    };
    let mut ours = || {
        for block in blocks {
            let out = &mut ours_out[..wanted(block)];
            decoder
                .decode(
                    Algorithm::Lz4,
                    &Params::default(),
                    &block.bytes,
                    out,
                    length,
                )
                .expect("a block of ours");
            black_box(&ours_out);
        }
    };
    let repeats = (16 << 20) / total.max(1) + 1;
    let mut turns: Vec<(Duration, Duration)> = (0..TURNS)
        .map(|_| (time(repeats, &mut theirs), time(repeats, &mut ours)))
        .collect();
    turns.sort_by(|a, b| ratio(*a).total_cmp(&ratio(*b)));
    let (their_time, our_time) = turns[TURNS / 2];
    let speed = |time: Duration| (total * repeats) as f64 / 1e6 / time.as_secs_f64();
    let name = file.rsplit('/').next().unwrap_or(file);
    println!(
        "{name:<32} {block_len:>9} {:>8} {:>12.0} {:>12.0} {:>7.2}",
        if length == Length::Exact {
            "exact"
        } else {
            "at least"
        },
        speed(their_time),
        speed(our_time),
        ratio((their_time, our_time)),
    );
}

fn ratio((theirs, ours): (Duration, Duration)) -> f64 {
    theirs.as_secs_f64() / ours.as_secs_f64()
}

fn time(repeats: usize, work: &mut impl FnMut()) -> Duration {
    let start = Instant::now();
    (0..repeats).for_each(|_| work());
    start.elapsed()
}

fn their_decode(block: &[u8], out: &mut [u8], length: Length) {
    let (src, dst) = (block.as_ptr().cast(), out.as_mut_ptr().cast());
    let (src_len, room) = (block.len() as c_int, out.len() as c_int);
    // SAFETY: the pointers and lengths are those of slices.
    let written = unsafe {
        match length {
            Length::Exact => LZ4_decompress_safe(src, dst, src_len, room),
            Length::AtLeast => LZ4_decompress_safe_partial(src, dst, src_len, room, room),
        }
    };
    assert_eq!(written, room, "liblz4 decodes what it made");
}
