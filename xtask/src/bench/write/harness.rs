//! Turns of a benchmark of writing: each way on each native file system.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use super::native::{Kind, Native};
use super::way::{self, Way};
use crate::bench::contest::Contest;
use crate::bench::options::Options;
use crate::bench::place::Place;
use crate::bench::report::{Comparison, Unit, Yardstick};
use crate::outcome::Outcome;
use crate::peers;
use crate::run::output;

/// Holds what makes a native file system.
type MakeNative = fn(&Place, &'static Kind) -> Outcome<Native>;

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
pub(super) struct Subject<'a> {
    pub(super) name: &'a str,
    pub(super) at: Option<f64>,
    pub(super) metrics: &'a [(String, Unit)],
}

/// A benchmark that runs.
pub(super) struct Bench<'a> {
    pub(super) options: &'a Options,
    pub(super) anteros: PathBuf,
    pub(super) place: &'a Place,
    pub(super) ways: Vec<Way>,
    pub(super) notes: Vec<String>,
    pub(super) comparisons: Vec<Comparison>,
}

impl Bench<'_> {
    /// Says something that one must know to read the figures, once.
    pub(super) fn note(&mut self, note: String) {
        if !self.notes.contains(&note) {
            eprintln!("bench write: {note}");
            self.notes.push(note);
        }
    }

    /// Tells what of the machine decides the figures, besides its processor.
    pub(super) fn machine(&mut self) {
        let limit = fs::read_to_string("/proc/sys/fs/fuse/max_pages_limit");
        let limit = limit.unwrap_or_else(|_| "unknown".to_owned());
        self.note(format!(
            "fs.fuse.max_pages_limit is {} (256 pages make requests of 1 MiB)",
            limit.trim()
        ));
        self.note("a round trip through FUSE takes some 10 µs where daemon and writer share a core, else 30 to 50 µs; \
                   which of the two a turn meets is chance".to_owned());
    }

    pub(super) fn versions(&self) -> Outcome<Vec<String>> {
        let ours = output(Command::new(&self.anteros).arg("--version"))?;
        let peers = peers::libfuse_version().into_iter();
        Ok(std::iter::once(ours.trim().to_owned())
            .chain(peers)
            .collect())
    }

    /// Lets ways take turns on a native file system, each as often as asked for.
    pub(super) fn contest(
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
    pub(super) fn on_each(
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
