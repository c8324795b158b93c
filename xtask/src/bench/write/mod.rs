//! `bench write`: what writing through a mirrored directory costs: `anteros passthru` in each of its ways, beside the
//! native file system below it and the mirrors of libfuse (the bFUSE paper: Jeong and Won, IJES 2014).
//!
//! Each native file system lies on a loop device over a file in memory, so that it is the processors' work that is
//! compared; some parts let the device write no more than the paper's 40 MB/s. Every turn has a fresh mount and fresh
//! files; what was written before is on the device by then. A way that loses bytes has no figure.
//!
//! It mounts and attaches loop devices: it must run as root.

mod buffers;
mod calls;
mod counters;
mod creation;
mod goals;
mod harness;
mod idle;
mod lineup;
pub(super) mod native;
mod schedulers;
pub(super) mod sqlite;
pub(super) mod tally;
mod threads;
mod throttled;
mod throughput;
mod trees;
mod turn;
mod units;
pub(super) mod way;
pub(super) mod workload;

use super::findings::Findings;
use super::options::Options;
use super::part;
use super::place::Place;
use crate::outcome::Outcome;
use harness::Bench;

/// A part of the benchmark: its name and what runs it.
type Part = (&'static str, fn(&mut Bench) -> Outcome);

const PARTS: [Part; 10] = [
    ("throughput", throughput::throughput),
    ("creation", creation::creation),
    ("calls", calls::calls),
    ("units", units::units),
    ("buffers", buffers::buffers),
    ("threads", threads::threads),
    ("throttled", throttled::throttled),
    ("schedulers", schedulers::schedulers),
    ("sqlite", sqlite::sqlite),
    ("trees", trees::trees),
];

/// Runs the benchmark.
///
/// # Errors
/// When it is not run as root, or the machine refuses what every part needs.
pub(super) fn write(options: &Options) -> Outcome<Findings> {
    let parts = part::chosen(&PARTS, &options.only)?;
    native::check_names(&options.filesystems)?;
    let place = Place::take()?;
    let mut bench = Bench {
        options,
        anteros: options.anteros()?,
        place: &place,
        ways: Vec::new(),
        notes: Vec::new(),
        comparisons: Vec::new(),
    };
    bench.machine();
    bench.line_up()?;
    for (name, part) in parts {
        eprintln!("bench write: {name}");
        if let Err(error) = part(&mut bench) {
            bench.note(format!("{name} ended early: {error}"));
        }
    }
    let findings = Findings {
        versions: bench.versions()?,
        goals: goals::goals(&bench.comparisons),
        notes: bench.notes,
        comparisons: bench.comparisons,
    };
    place.leave()?;
    Ok(findings)
}
