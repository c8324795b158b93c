//! Size and speed of the LZ4 encoders side by side, on the same files: `cargo bench -p anteros-codec --bench encode`.
//!
//! The files named on the command line (`-- FILE...`) are cut into blocks as an image has them: of a fixed size each, stored
//! as they are where that takes no more. All encoders take turns; a line has the blocks that one needs, and the medians of its
//! speed and of its ratio to the first one in the same turn. That is liblz4's HC level 12, or the first one of
//! `--only=NAME,NAME`.

use std::time::Duration;

use anteros_codec::{Effort, Lz4Encoder};
use anteros_core::processor_time;

const TURNS: usize = 5;
/// As much of a file is taken.
const INPUT_MAX: usize = 16 << 20;
const BLOCK: usize = 4096;

const EFFORTS: [Effort; 9] = [
    Effort::High(12),
    Effort::High(9),
    Effort::High(3),
    Effort::FastLiblz4,
    Effort::Fast,
    Effort::Optimal(16),
    Effort::Optimal(64),
    Effort::Optimal(256),
    Effort::Optimal(1024),
];

fn main() {
    let (options, files): (Vec<String>, Vec<String>) = std::env::args()
        .skip(1)
        .partition(|arg| arg.starts_with("--"));
    let only = options.iter().find_map(|arg| arg.strip_prefix("--only="));
    let efforts = match only {
        Some(names) => names.split(',').map(effort).collect(),
        None => EFFORTS.to_vec(),
    };
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
            compare(file, &content, cluster, &efforts);
        }
    }
}

/// The effort of a name: `12` is liblz4's HC level 12, `liblz4` its greedy one, `o64` our optimal
/// parse with 64 candidates, `l64` our lazy one.
fn effort(name: &str) -> Effort {
    let number = |text: &str| text.parse().unwrap_or_else(|_| panic!("{name}: no effort"));
    match (name, name.split_at(1)) {
        ("fast", _) => Effort::Fast,
        ("liblz4", _) => Effort::FastLiblz4,
        (_, ("o", candidates)) => Effort::Optimal(number(candidates)),
        (_, ("l", candidates)) => Effort::Lazy(number(candidates)),
        (level, _) => Effort::High(number(level) as u8),
    }
}

fn compare(file: &str, content: &[u8], cluster: usize, efforts: &[Effort]) {
    let encoders = efforts.iter().map(|effort| Lz4Encoder::new(*effort));
    let mut encoders: Vec<_> = encoders
        .map(|encoder| (encoder.expect("a known effort"), 0, Vec::new()))
        .collect();
    for _ in 0..TURNS {
        for (encoder, blocks, times) in &mut encoders {
            // Others may be busy.
            let start = processor_time();
            *blocks = encode(encoder, content, cluster);
            times.push(processor_time() - start);
        }
    }
    let of_best = encoders[0].2.clone();
    for (effort, (_, blocks, times)) in efforts.iter().zip(encoders) {
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
