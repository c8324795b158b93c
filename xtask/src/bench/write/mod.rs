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
mod here;
mod idle;
mod lineup;
pub(super) mod native;
mod schedulers;
pub(super) mod sqlite;
pub(super) mod tally;
mod threads;
mod throttle;
mod throttled;
mod throughput;
mod trees;
mod turn;
mod units;
pub(super) mod way;
pub(super) mod workload;

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use super::contest::Contest;
use super::place::Place;
use super::report::{Comparison, Unit, Yardstick};
use super::{Findings, Options, part};
use crate::Outcome;
use crate::peers;
use crate::run::output;
use native::{Kind, Native};
use way::Way;

/// A part of the benchmark: its name and what runs it.
type Part = (&'static str, fn(&mut Bench) -> Outcome);

/// Holds what makes a native file system.
type MakeNative = fn(&Place, &'static Kind) -> Outcome<Native>;

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

/// States what every way is measured by.
const YARDSTICKS: [Yardstick; 4] = [
    Yardstick {
        label: "of native",
        side: way::NATIVE,
    },
    Yardstick {
        label: "of 4K unit",
        side: way::BASELINE,
    },
    Yardstick {
        label: "of hp",
        side: way::HP,
    },
    Yardstick {
        label: "of hp w/o",
        side: way::HP_WITHOUT,
    },
];

/// Holds what is compared: on what, where that lies on the metrics' scale if they have one, and the metrics.
struct Subject<'a> {
    name: &'a str,
    at: Option<f64>,
    metrics: &'a [(String, Unit)],
}

/// A benchmark that runs.
struct Bench<'a> {
    options: &'a Options,
    anteros: PathBuf,
    place: &'a Place,
    ways: Vec<Way>,
    notes: Vec<String>,
    comparisons: Vec<Comparison>,
}

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

impl Bench<'_> {
    /// Says something that one must know to read the figures, once.
    fn note(&mut self, note: String) {
        if !self.notes.contains(&note) {
            eprintln!("bench write: {note}");
            self.notes.push(note);
        }
    }

    /// Tells what of the machine decides the figures, besides its processor.
    fn machine(&mut self) {
        let limit = fs::read_to_string("/proc/sys/fs/fuse/max_pages_limit");
        let limit = limit.unwrap_or_else(|_| "unknown".to_owned());
        self.note(format!(
            "fs.fuse.max_pages_limit is {} (256 pages make requests of 1 MiB)",
            limit.trim()
        ));
        self.note("a round trip through FUSE takes some 10 µs where daemon and writer share a core, else 30 to 50 µs; \
                   which of the two a turn meets is chance".to_owned());
    }

    fn versions(&self) -> Outcome<Vec<String>> {
        let ours = output(Command::new(&self.anteros).arg("--version"))?;
        let peers = peers::libfuse_version().into_iter();
        Ok(std::iter::once(ours.trim().to_owned())
            .chain(peers)
            .collect())
    }

    /// Lets ways take turns on a native file system, each as often as asked for.
    fn contest(
        &mut self,
        subject: &Subject,
        ways: &[Way],
        mut turn: impl FnMut(&Self, &Way) -> Outcome<Vec<f64>>,
    ) {
        let (metric, name) = (&subject.metrics[0].0, subject.name);
        eprintln!("bench write: {name}: {metric}");
        let contest = Contest {
            metrics: subject.metrics,
            subject: name,
            at: subject.at,
            yardsticks: &YARDSTICKS,
            runs: self.options.runs,
        };
        let comparisons = contest.hold(ways, |way| turn(self, way));
        self.comparisons.extend(comparisons);
    }

    /// Does something with each native file system on a fresh device.
    fn on_each(
        &mut self,
        device: MakeNative,
        mut part: impl FnMut(&mut Self, &Native) -> Outcome,
    ) -> Outcome {
        for kind in self.kinds() {
            match device(self.place, kind) {
                Ok(native) => part(self, &native)?,
                Err(error) => self.note(format!("{} takes no part: {error}", kind.name)),
            }
        }
        Ok(())
    }
}
