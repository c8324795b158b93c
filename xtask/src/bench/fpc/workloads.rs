//! Part `workloads`: what is characteristic of the recorded applications (table 2 of the paper).
//!
//! The paper's writes are pages of one file that a sync brought to the device: here they are called batches.

use super::portrait::Portrait;
use crate::bench::log::harness::Bench;
use crate::bench::log::traces::{RECORDED, Recorded, Source};
use crate::bench::report::{Comparison, Side, Unit};
use crate::outcome::Outcome;
use crate::traces::NAMES;

/// All that are there to be done again: those of the repository, and those that are recorded here.
pub(super) fn applications() -> Vec<Recorded> {
    let made = NAMES.into_iter().map(|name| Recorded {
        name,
        source: Source::Made(name),
        is_sqlite_alone: false,
        f2fs_mib: None,
    });
    RECORDED.into_iter().chain(made).collect()
}

/// Runs the part.
///
/// # Errors
/// When a trace cannot be read.
pub(super) fn workloads(bench: &mut Bench) -> Outcome {
    let whole = applications()
        .into_iter()
        .filter(|one| !one.is_sqlite_alone);
    for recorded in whole {
        eprintln!("bench fpc: workloads: {}", recorded.name);
        match recorded.open().and_then(|_| Portrait::of(&recorded)) {
            Ok(portrait) => {
                let comparisons = columns(&portrait);
                let comparisons = comparisons
                    .into_iter()
                    .map(|(metric, unit, figure)| comparison(metric, recorded.name, unit, figure));
                bench.comparisons.extend(comparisons);
            }
            Err(error) => bench.note(format!("workloads: no {}: {error}", recorded.name)),
        }
    }
    Ok(())
}

/// The columns of the table.
fn columns(portrait: &Portrait) -> [(&'static str, Unit, f64); 10] {
    let share = |part: u64, whole: u64| 100.0 * part as f64 / whole.max(1) as f64;
    let of = portrait;
    [
        ("SQLite's calls to write", Unit::Count, of.writes as f64),
        ("SQLite's batches", Unit::Count, of.batches as f64),
        (
            "KiB of a batch, mean",
            Unit::Count,
            of.batch_bytes as f64 / of.batches.max(1) as f64 / 1024.0,
        ),
        (
            "batches of up to 16 KiB",
            Unit::Percent,
            share(of.small_batches, of.batches),
        ),
        (
            "writes elsewhere than behind the last one",
            Unit::Percent,
            share(of.random_writes, of.writes),
        ),
        ("syncs of SQLite's files", Unit::Count, of.file_syncs as f64),
        (
            "syncs of directories behind them",
            Unit::Count,
            of.directory_syncs as f64,
        ),
        (
            "SQLite's share of the bytes",
            Unit::Percent,
            share(of.bytes, of.all_bytes),
        ),
        (
            "pages of databases after LZ4, 4 KiB each",
            Unit::Percent,
            share(of.databases.after, of.databases.before),
        ),
        (
            "pages of journals after LZ4, 4 KiB each",
            Unit::Percent,
            share(of.journals.after, of.journals.before),
        ),
    ]
}

fn comparison(metric: &str, subject: &str, unit: Unit, figure: f64) -> Comparison {
    Comparison {
        metric: format!("workloads: {metric}"),
        subject: subject.to_owned(),
        at: None,
        unit,
        yardsticks: &[],
        sides: vec![Side {
            name: "as recorded".to_owned(),
            command: format!("cargo xtask trace {subject}"),
            figures: Ok(vec![figure]),
        }],
    }
}
