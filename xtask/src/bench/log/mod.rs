//! `bench log`: our log beside file systems of the kernel, and beside `anteros passthru` of a directory on ext4, which is
//! what a daemon costs that keeps nothing itself.
//!
//! Each lies on a loop device over a file in memory, made anew for each turn: it is the processors' work that is
//! compared, and the bytes that reach the device. What was written is looked at once more after it was unmounted and mounted
//! again; who loses bytes has no figure.
//!
//! It mounts and attaches loop devices: it must run as root.

pub(in crate::bench) mod ageing;
mod appends;
mod goals;
mod memory;
pub(super) mod names;
mod recovery;
mod sqlite;
pub(super) mod system;
mod throughput;
pub(super) mod traces;
pub(super) mod turn;
mod workload;

use std::path::PathBuf;
use std::process::Command;

use super::contest::Contest;
use super::goal::Goal;
use super::place::Place;
use super::report::{Comparison, Unit, Yardstick};
use super::write::native;
use super::write::tally::Tracing;
use super::{Findings, Options, part};
use crate::Outcome;
use crate::run::output;
use system::System;

/// A part of the benchmark: its name and what runs it.
pub(super) type Part = (&'static str, fn(&mut Bench) -> Outcome);

const PARTS: [Part; 8] = [
    ("traces", traces::traces),
    ("throughput", throughput::throughput),
    ("appends", appends::appends),
    ("sqlite", sqlite::sqlite),
    ("ageing", ageing::ageing),
    ("recovery", recovery::recovery),
    ("memory", memory::memory),
    ("names", names::names),
];

/// States what everybody is measured by.
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

/// A benchmark of logs that runs.
pub(super) struct Bench<'a> {
    /// Holds what it is called.
    name: &'static str,
    pub(super) options: &'a Options,
    pub(super) anteros: PathBuf,
    pub(super) place: &'a Place,
    pub(super) systems: Vec<System>,
    /// Tells discards from writes, where the kernel can.
    tracing: Option<Tracing>,
    yardsticks: &'static [Yardstick],
    notes: Vec<String>,
    pub(super) comparisons: Vec<Comparison>,
}

/// Holds what makes a benchmark: parts, who takes part in it, what all are measured by, and what is to be reached.
pub(super) struct Plan {
    pub(super) name: &'static str,
    pub(super) parts: &'static [Part],
    pub(super) line_up: fn(&mut Bench),
    pub(super) yardsticks: &'static [Yardstick],
    pub(super) goals: fn(&[Comparison]) -> Vec<Goal>,
}

/// Runs the benchmark.
///
/// # Errors
/// When it is not run as root, or the machine refuses what every part needs.
pub(super) fn log(options: &Options) -> Outcome<Findings> {
    let plan = Plan {
        name: "log",
        parts: &PARTS,
        line_up: |bench| bench.line_up(),
        yardsticks: &YARDSTICKS,
        goals: goals::goals,
    };
    run(&plan, options)
}

/// Runs a benchmark of logs.
///
/// # Errors
/// When it is not run as root, or the machine refuses what every part needs.
pub(super) fn run(plan: &Plan, options: &Options) -> Outcome<Findings> {
    let parts = part::chosen(plan.parts, &options.only)?;
    native::check_names(&options.filesystems)?;
    let place = Place::take()?;
    let mut bench = Bench {
        name: plan.name,
        options,
        anteros: options.anteros()?,
        place: &place,
        systems: Vec::new(),
        tracing: None,
        yardsticks: plan.yardsticks,
        notes: Vec::new(),
        comparisons: Vec::new(),
    };
    (plan.line_up)(&mut bench);
    bench.trace();
    for (name, part) in parts {
        eprintln!("bench {}: {name}", bench.name);
        if let Err(error) = part(&mut bench) {
            bench.note(format!("{name} ended early: {error}"));
        }
    }
    let version = output(Command::new(&bench.anteros).arg("--version"))?;
    // Before its place is left.
    drop(bench.tracing.take());
    let findings = Findings {
        versions: vec![version.trim().to_owned()],
        goals: (plan.goals)(&bench.comparisons),
        notes: bench.notes,
        comparisons: bench.comparisons,
    };
    place.leave()?;
    Ok(findings)
}

impl Bench<'_> {
    /// Says something that one must know to read the figures, once.
    pub(super) fn note(&mut self, note: String) {
        if !self.notes.contains(&note) {
            eprintln!("bench {}: {note}", self.name);
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
                None => {
                    systems.extend(System::of_kernel(kind, &self.anteros));
                    if kind.name == system::EXT4 {
                        match System::of_libfuse(kind) {
                            Ok(mirror) => systems.push(mirror),
                            Err(error) => self.note(format!("libfuse takes no part: {error}")),
                        }
                    }
                }
                Some(reason) => self.note(format!("{} takes no part: {reason}", kind.name)),
            }
        }
        self.choose(systems);
    }

    /// Takes those that are asked for, and ours.
    pub(super) fn choose(&mut self, mut systems: Vec<System>) {
        systems.retain(|one| one.name == system::OURS || self.is_asked_for(&one.name));
        self.systems = systems;
    }

    /// Returns whether somebody takes part.
    pub(in crate::bench) fn is_asked_for(&self, name: &str) -> bool {
        let words = &self.options.contenders;
        words.is_empty() || words.iter().any(|word| name.contains(&**word))
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
    pub(super) fn contest(
        &mut self,
        subject: &str,
        metrics: &[(String, Unit)],
        systems: &[System],
        turn: impl FnMut(&Self, &System) -> Outcome<Vec<f64>>,
    ) {
        self.contest_at((subject, None), metrics, systems, turn);
    }

    /// The same, of a subject that may have a place on a scale.
    pub(super) fn contest_at(
        &mut self,
        (subject, at): (&str, Option<f64>),
        metrics: &[(String, Unit)],
        systems: &[System],
        mut turn: impl FnMut(&Self, &System) -> Outcome<Vec<f64>>,
    ) {
        eprintln!("bench {}: {subject}: {}", self.name, metrics[0].0);
        let contest = Contest {
            metrics,
            subject,
            at,
            yardsticks: self.yardsticks,
            runs: self.options.runs,
        };
        let comparisons = contest.hold(systems, |system| turn(self, system));
        self.comparisons.extend(comparisons);
    }
}
