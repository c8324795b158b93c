//! Size and speed of the LZ4 encoders side by side, on the same files: `cargo bench -p anteros-codec --bench encode`.
//!
//! The files named on the command line (`-- FILE...`) are cut into blocks as an image has them: of a fixed size each, stored
//! as they are where that takes no more. All encoders take turns; a line has the blocks that one needs, and the medians of its
//! speed and of its ratio to liblz4's HC level 12 in the same turn.

use std::time::Duration;

use anteros_codec::{Effort, Lz4Encoder};
use rustix::time::{ClockId, clock_gettime};

const TURNS: usize = 5;
/// As much of a file is taken.
const INPUT_MAX: usize = 16 << 20;
const BLOCK: usize = 4096;

const EFFORTS: [Effort; 8] = [
    Effort::High(12),
    Effort::High(9),
    Effort::High(3),
    Effort::Fast,
    Effort::Optimal(16),
    Effort::Optimal(64),
    Effort::Optimal(256),
    Effort::Optimal(1024),
];

fn main() {
    let arguments = std::env::args().skip(1);
    let files: Vec<String> = arguments.filter(|arg| !arg.starts_with("--")).collect();
    let files = if files.is_empty() {
        vec![env!("CARGO_MANIFEST_DIR").to_owned() + "/src/zstd.rs"]
    } else {
        files
    };
    println!(
        "{:<24} {:>8} {:<14} {:>8} {:>8} {:>7}",
        "file", "cluster", "encoder", "blocks", "MB/s", "ratio"
    );
    for file in &files {
        let mut content = std::fs::read(file).unwrap_or_else(|err| panic!("{file}: {err}"));
        content.truncate(INPUT_MAX);
        for cluster in [4 << 10, 16 << 10, 64 << 10] {
            compare(file, &content, cluster);
        }
    }
}

fn compare(file: &str, content: &[u8], cluster: usize) {
    let encoders = EFFORTS.map(|effort| Lz4Encoder::new(effort).expect("a known effort"));
    let mut encoders = encoders.map(|encoder| (encoder, 0, Vec::new()));
    for _ in 0..TURNS {
        for (encoder, blocks, times) in &mut encoders {
            let start = cpu_time();
            *blocks = encode(encoder, content, cluster);
            times.push(cpu_time() - start);
        }
    }
    let of_best = encoders[0].2.clone();
    for (effort, (_, blocks, times)) in EFFORTS.iter().zip(encoders) {
        let ratios = of_best
            .iter()
            .zip(&times)
            .map(|(best, time)| best.as_secs_f64() / time.as_secs_f64());
        println!(
            "{:<24} {cluster:>8} {:<14} {blocks:>8} {:>8.1} {:>7.2}",
            file.rsplit('/').next().unwrap_or(file),
            format!("{effort:?}"),
            content.len() as f64 / 1e6 / median(times.iter().map(Duration::as_secs_f64)),
            median(ratios),
        );
    }
}

/// Returns how many blocks the content takes.
fn encode(encoder: &mut Lz4Encoder, content: &[u8], cluster: usize) -> usize {
    let mut out = vec![0; cluster];
    let (mut start, mut blocks) = (0, 0);
    encoder.restart();
    while start < content.len() {
        let encoded = encoder.encode_next(content, start..content.len(), &mut out);
        let gaining = encoded.filter(|e| e.written.next_multiple_of(BLOCK) < e.consumed);
        let (consumed, written) = match gaining {
            Some(encoded) => (encoded.consumed, encoded.written),
            None => {
                let plain = cluster.min(content.len() - start);
                (plain, plain)
            }
        };
        start += consumed;
        blocks += written.div_ceil(BLOCK);
    }
    blocks
}

fn median(values: impl Iterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// Processor time of this thread: others may be busy.
fn cpu_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}
