//! Part `sampling`: what is compressed of what SQLite writes, and what that saves: by the paper's rule, where the first
//! page of a write decides about all of it (3.2.2), by ours, where each page decides for itself, and if everything were.
//!
//! The first two are counted by a mounted log, slots included. The last is worked out from the trace: each page of a
//! database, and up to 32 pages of a journal that follow each other, however little they gain. It has no slots, so no
//! rule comes up to it.

use std::path::Path;

use super::executables::number;
use super::packing::{CLASSES, counted};
use super::portrait::{Portrait, Squeezed};
use super::workloads::applications;
use crate::bench::log::harness::Bench;
use crate::bench::log::system::System;
use crate::bench::log::traces::{DEVICE_BYTES, Recorded};
use crate::bench::report::{Side, Unit};
use crate::bench::write::native::Memory;
use crate::outcome::Outcome;

/// The policies that follow the rules.
const RULES: [&str; 2] = ["--policy paper", "--policy record"];

/// States what is to be known of each class.
const FIGURES: [(&str, Unit); 3] = [
    ("pages compressed", Unit::Percent),
    (SAVED, Unit::Percent),
    ("compressing", Unit::Seconds),
];
const SAVED: &str = "bytes saved";

/// Runs the part.
///
/// # Errors
/// When there is no memory for the device.
pub(super) fn sampling(bench: &mut Bench) -> Outcome {
    let memory = Memory::full(bench.place, DEVICE_BYTES)?;
    let has_rule = |system: &&System| RULES.iter().any(|rule| system.name.ends_with(rule));
    let systems: Vec<_> = bench.systems.iter().filter(has_rule).cloned().collect();
    let whole = applications()
        .into_iter()
        .filter(|one| !one.is_sqlite_alone);
    for recorded in whole {
        match recorded.open().and_then(|_| Portrait::of(&recorded)) {
            Ok(portrait) => contest(bench, &memory.file, &systems, &recorded, &portrait),
            Err(error) => bench.note(format!("sampling: no {}: {error}", recorded.name)),
        }
    }
    Ok(())
}

/// Lets the rules do what was recorded, and puts beside them what no rule comes up to.
fn contest(
    bench: &mut Bench,
    device: &Path,
    systems: &[System],
    recorded: &Recorded,
    portrait: &Portrait,
) {
    let metrics: Vec<_> = CLASSES
        .iter()
        .flat_map(|class| FIGURES.map(|(what, unit)| (metric(class, what), unit)))
        .collect();
    let begun = bench.comparisons.len();
    bench.contest(recorded.name, &metrics, systems, |bench, system| {
        let classes = counted(bench, system, device, recorded)?;
        let figures = CLASSES.map(|class| figures(&classes[class]));
        let figures = figures.into_iter().collect::<Outcome<Vec<_>>>()?;
        Ok(figures.concat())
    });
    for (class, most) in CLASSES.iter().zip(most_saved(portrait)) {
        let saved = metric(class, SAVED);
        let mut new = bench.comparisons[begun..].iter_mut();
        if let Some(comparison) = new.find(|one| one.metric == saved) {
            comparison.sides.push(Side {
                name: "everything".to_owned(),
                command: format!("cargo xtask trace {}", recorded.name),
                figures: Ok(vec![most]),
            });
        }
    }
}

fn metric(class: &str, what: &str) -> String {
    format!("sampling: {class}: {what}")
}

/// Figures that a log has counted of a class, in the order of [`FIGURES`].
fn figures(of_class: &serde_json::Value) -> Outcome<Vec<f64>> {
    let of = |key: &str| number(of_class, key);
    let written = of("written_bytes")?.max(1.0);
    let compressed = of("compressed_pages")? * 4096.0;
    Ok(vec![
        100.0 * compressed / written,
        100.0 * (1.0 - of("stored_bytes")? / written),
        of("compressing_seconds")?,
    ])
}

/// States what compressing everything would save of each class, in percent.
fn most_saved(portrait: &Portrait) -> [f64; CLASSES.len()] {
    let (databases, journals) = (portrait.databases, portrait.journals);
    let saved = |of: Squeezed, after: u64| 100.0 * (1.0 - after as f64 / of.before.max(1) as f64);
    [
        saved(databases, databases.after),
        saved(journals, journals.together),
    ]
}
