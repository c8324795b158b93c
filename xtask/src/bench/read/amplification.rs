//! Part `table1`: what is read from the device for 16 MiB asked for, in each pattern (table 1 of the EROFS paper).

use std::path::Path;

use super::contender::Contender;
use super::harness::Bench;
use super::pattern::{self, Pattern};
use crate::bench::report::Unit;
use crate::outcome::Outcome;

/// States what is asked for.
const REQUESTED_BYTES: u64 = 16 << 20;

const PATTERNS: [(&str, Pattern); 3] = [
    ("sequential", Pattern::Sequential),
    ("random", Pattern::Random),
    ("stride", Pattern::Stride),
];

/// Runs the part on each corpus that is one file.
///
/// # Errors
/// When a corpus cannot be had or read, or a peer is missing.
pub(super) fn table1(bench: &mut Bench) -> Outcome {
    let contenders = bench.everybody()?;
    let metrics = PATTERNS.map(|(name, _)| {
        let metric = format!("table 1: read from the device for 16 MiB, {name}");
        (metric, Unit::Bytes)
    });
    for (name, corpus, file) in bench.single_file_corpora("table1", &["text1g"])? {
        eprintln!("bench read: table1, {name}");
        bench.prepare(&contenders, &corpus);
        let bytes = corpus.join(&file).metadata()?.len();
        bench.contest(&metrics, &name, &contenders, |bench, contender| {
            device_bytes(bench, contender, &corpus, &file, bytes)
        });
    }
    Ok(())
}

/// One turn: a figure per pattern.
fn device_bytes(
    bench: &Bench,
    contender: &Contender,
    corpus: &Path,
    file: &Path,
    file_bytes: u64,
) -> Outcome<Vec<f64>> {
    let counted = bench.counted(contender, corpus)?;
    let mut figures = Vec::new();
    for (_, pattern) in PATTERNS {
        let plan = pattern::plan(pattern, file_bytes, REQUESTED_BYTES, 1);
        let read = |directory: &Path| Ok(pattern::read(&directory.join(file), &plan)?);
        let (_, bytes, ()) = bench.count(contender, &counted, read, |_| Ok(()))?;
        figures.push(bytes as f64);
    }
    Ok(figures)
}
