//! `bench log`: our log beside file systems of the kernel, and beside `anteros passthru` of a directory on ext4, which is
//! what a daemon costs that keeps nothing itself.
//!
//! Each lies on a loop device over a file in memory, made anew for each turn: it is the processors' work that is
//! compared, and the bytes that reach the device. What was written is looked at once more after it was unmounted and mounted
//! again; who loses bytes has no figure.
//!
//! It mounts and attaches loop devices: it must run as root.

mod ageing;
mod goals;
mod memory;
mod recovery;
mod sqlite;
mod system;
mod throughput;
mod traces;
mod turn;
mod workload;

use std::path::PathBuf;
use std::process::Command;

use super::contest::Contest;
use super::place::Place;
use super::report::{Comparison, Unit, Yardstick};
use super::write::native;
use super::write::tally::Tracing;
use super::{Findings, Options, part};
use crate::Outcome;
use crate::run::output;
use system::System;

/// A part of the benchmark: its name and what runs it.
type Part = (&'static str, fn(&mut Bench) -> Outcome);

const PARTS: [Part; 6] = [
    ("traces", traces::traces),
    ("throughput", throughput::throughput),
    ("sqlite", sqlite::sqlite),
    ("ageing", ageing::ageing),
    ("recovery", recovery::recovery),
    ("memory", memory::memory),
];

/// What everybody is measured by.
const YARDSTICKS: [Yardstick; 5] = [
    Yardstick {
        label: "of ext4",
        side: system::EXT4,
    },
    Yardstick {
        label: "of xfs",
        side: "xfs",
    },
    Yardstick {
        label: "of btrfs",
        side: "btrfs",
    },
    Yardstick {
        label: "of passthru",
        side: system::MIRROR,
    },
    Yardstick {
        label: "of daemon",
        side: system::MIRROR_DAEMON,
    },
];

/// A benchmark that runs.
struct Bench<'a> {
    options: &'a Options,
    anteros: PathBuf,
    place: &'a Place,
    systems: Vec<System>,
    /// Tells discards from writes, where the kernel can.
    tracing: Option<Tracing>,
    notes: Vec<String>,
    comparisons: Vec<Comparison>,
}

/// Runs the benchmark.
///
/// # Errors
/// When it is not run as root, or the machine refuses what every part needs.
pub(super) fn log(options: &Options) -> Outcome<Findings> {
    let parts = part::chosen(&PARTS, &options.only)?;
    native::check_names(&options.filesystems)?;
    let place = Place::take()?;
    let mut bench = Bench {
        options,
        anteros: options.anteros()?,
        place: &place,
        systems: Vec::new(),
        tracing: None,
        notes: Vec::new(),
        comparisons: Vec::new(),
    };
    bench.line_up();
    bench.trace();
    for (name, part) in parts {
        eprintln!("bench log: {name}");
        if let Err(error) = part(&mut bench) {
            bench.note(format!("{name} ended early: {error}"));
        }
    }
    let version = output(Command::new(&bench.anteros).arg("--version"))?;
    // Before its place is left.
    drop(bench.tracing.take());
    let findings = Findings {
        versions: vec![version.trim().to_owned()],
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
            eprintln!("bench log: {note}");
            self.notes.push(note);
        }
    }

    /// Finds out who takes part, and says of the others why not.
    fn line_up(&mut self) {
        let asked = &self.options.filesystems;
        let is_asked =
            |kind: &&native::Kind| asked.is_empty() || asked.iter().any(|one| one == kind.name);
        let mut systems = vec![System::log(&self.anteros, "")];
        for arguments in &self.options.with {
            systems.push(System::log(&self.anteros, arguments));
        }
        for kind in native::KINDS.iter().filter(is_asked) {
            match kind.missing() {
                None => systems.extend(System::of_kernel(kind, &self.anteros)),
                Some(reason) => self.note(format!("{} takes no part: {reason}", kind.name)),
            }
        }
        let words = &self.options.contenders;
        if !words.is_empty() {
            systems.retain(|one| {
                one.name == system::OURS || words.iter().any(|word| one.name.contains(&**word))
            });
        }
        self.systems = systems;
    }

    /// Has the kernel count discards.
    fn trace(&mut self) {
        match Tracing::mount(self.place) {
            Ok(tracing) => self.tracing = Some(tracing),
            Err(error) => self.note(format!(
                "the log's discards count as bytes written: {error}"
            )),
        }
    }

    /// Those that are file systems, and no mirrors of one.
    fn file_systems(&self) -> Vec<System> {
        let systems = self.systems.iter();
        systems.filter(|one| !one.is_mirror()).cloned().collect()
    }

    /// Lets systems take turns, each as often as asked for.
    fn contest(
        &mut self,
        subject: &str,
        metrics: &[(String, Unit)],
        systems: &[System],
        mut turn: impl FnMut(&Self, &System) -> Outcome<Vec<f64>>,
    ) {
        eprintln!("bench log: {subject}: {}", metrics[0].0);
        let contest = Contest {
            metrics,
            subject,
            at: None,
            yardsticks: &YARDSTICKS,
            runs: self.options.runs,
        };
        let comparisons = contest.hold(systems, |system| turn(self, system));
        self.comparisons.extend(comparisons);
    }
}
