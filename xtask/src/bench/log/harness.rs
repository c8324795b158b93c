//! Benchmarks of logs: parts, who takes part, and turns.

use std::path::PathBuf;
use std::process::Command;

use super::system::{self, System};
use crate::bench::contest::Contest;
use crate::bench::findings::Findings;
use crate::bench::goal::Goal;
use crate::bench::options::Options;
use crate::bench::part;
use crate::bench::place::Place;
use crate::bench::report::{Comparison, Unit, Yardstick};
use crate::bench::write::native;
use crate::bench::write::tally::Tracing;
use crate::outcome::Outcome;
use crate::run::output;

/// A part of the benchmark: its name and what runs it.
pub(in crate::bench) type Part = (&'static str, fn(&mut Bench) -> Outcome);

/// A benchmark of logs that runs.
pub(in crate::bench) struct Bench<'a> {
    /// Holds what it is called.
    pub(super) name: &'static str,
    pub(in crate::bench) options: &'a Options,
    pub(in crate::bench) anteros: PathBuf,
    pub(in crate::bench) place: &'a Place,
    pub(in crate::bench) systems: Vec<System>,
    /// Tells discards from writes, where the kernel can.
    pub(super) tracing: Option<Tracing>,
    pub(super) yardsticks: &'static [Yardstick],
    pub(super) notes: Vec<String>,
    pub(in crate::bench) comparisons: Vec<Comparison>,
}

/// Holds what makes a benchmark: parts, who takes part in it, what all are measured by, and what is to be reached.
pub(in crate::bench) struct Plan {
    pub(in crate::bench) name: &'static str,
    pub(in crate::bench) parts: &'static [Part],
    pub(in crate::bench) line_up: fn(&mut Bench),
    pub(in crate::bench) yardsticks: &'static [Yardstick],
    pub(in crate::bench) goals: fn(&[Comparison]) -> Vec<Goal>,
}

/// Runs a benchmark of logs.
///
/// # Errors
/// When it is not run as root, or the machine refuses what every part needs.
pub(in crate::bench) fn run(plan: &Plan, options: &Options) -> Outcome<Findings> {
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
    pub(in crate::bench) fn note(&mut self, note: String) {
        if !self.notes.contains(&note) {
            eprintln!("bench {}: {note}", self.name);
            self.notes.push(note);
        }
    }

    /// Finds out who takes part, and says of the others why not.
    pub(super) fn line_up(&mut self) {
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

    /// Our log with some arguments each, and those of some names that take part anyway.
    pub(in crate::bench) fn ours_and(&self, arguments: &[&str], peers: &[&str]) -> Vec<System> {
        let ours = arguments.iter();
        let ours = ours.map(|words| System::log(&self.anteros, words));
        let is_peer = |system: &&System| peers.contains(&system.name.as_str());
        let peers = self.systems.iter().filter(is_peer);
        ours.chain(peers.cloned()).collect()
    }

    /// Takes those that are asked for, and ours.
    pub(in crate::bench) fn choose(&mut self, mut systems: Vec<System>) {
        systems.retain(|one| one.name == system::OURS || self.is_asked_for(&one.name));
        self.systems = systems;
    }

    /// Returns whether somebody takes part.
    pub(in crate::bench) fn is_asked_for(&self, name: &str) -> bool {
        let words = &self.options.contenders;
        words.is_empty() || words.iter().any(|word| name.contains(&**word))
    }

    /// Has the kernel count discards.
    pub(super) fn trace(&mut self) {
        match Tracing::mount(self.place) {
            Ok(tracing) => self.tracing = Some(tracing),
            Err(error) => self.note(format!(
                "the log's discards count as bytes written: {error}"
            )),
        }
    }

    /// Those that are file systems, and no mirrors of one.
    pub(super) fn file_systems(&self) -> Vec<System> {
        let systems = self.systems.iter();
        systems.filter(|one| !one.is_mirror()).cloned().collect()
    }

    /// Lets systems take turns, each as often as asked for.
    pub(in crate::bench) fn contest(
        &mut self,
        subject: &str,
        metrics: &[(String, Unit)],
        systems: &[System],
        turn: impl FnMut(&Self, &System) -> Outcome<Vec<f64>>,
    ) {
        self.contest_at((subject, None), metrics, systems, turn);
    }

    /// Measures a subject that may have a place on a scale.
    pub(in crate::bench) fn contest_at(
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
