//! `bench patch`: a Debian that gets a security update, as a patch of its image, and as whatever else brings an image up to date.
//!
//! The old tree is `minbase`, the new one `minbase-updated`. What a patch takes is beside what the changed files take by
//! themselves, and beside what programs make of the old image and a rebuilt one that know nothing of file systems.

mod case;
mod changed;
mod deltas;
mod moved;
mod reads;
mod turns;

use super::corpora::corpus;
use super::findings::Findings;
use super::goal::{Bound, Goal};
use super::images::Bench;
use super::options::Options;
use super::part;
use super::report::{Comparison, Side, Unit, Yardstick};
use crate::outcome::Outcome;
use crate::run::{run, words};
use case::{Case, Trees, bytes, side};

/// The options of the images: none are those of the preset `balanced`.
const CONFIGURATIONS: [&[&str]; 3] = [&[], &["-zlz4hc", "-C65536", "-E48bit"], &["--small"]];

const CHANGED: &str = "mkfs, changed files alone";
const GROWTH: &str = "patch, growth of the image";
const EXPORTED: &str = "patch --export";
const LAYER: &str = "patch --layer";

const BY_CHANGED: &[Yardstick] = &[Yardstick {
    label: "of changed",
    side: CHANGED,
}];

/// Bytes of a patch for each byte that the changed files take, at most.
const PATCH_SHARE_MAX: f64 = 1.2;

/// A part of the benchmark.
#[derive(Clone, Copy)]
enum Part {
    Sizes,
    Times,
    Reads,
    Moved,
}

const PARTS: [(&str, Part); 4] = [
    ("sizes", Part::Sizes),
    ("times", Part::Times),
    ("reads", Part::Reads),
    ("moved", Part::Moved),
];

/// Runs the benchmark.
///
/// # Errors
/// When a program or a corpus cannot be had, or a command fails.
pub(super) fn patch(options: &Options) -> Outcome<Findings> {
    let parts = part::chosen(&PARTS, &options.only)?;
    let bench = Bench::new(options)?;
    deltas::make()?;
    let trees = Trees {
        old: corpus("minbase")?,
        new: corpus("minbase-updated")?,
        changed: bench.path("changed"),
    };
    let changed = changed::copy(&trees.old, &trees.new, &trees.changed)?;
    let mut comparisons = Vec::new();
    let mut goals = vec![
        goal(
            "bytes of a patch, growth, of those of the changed files",
            Bound::AtMost(PATCH_SHARE_MAX),
        ),
        goal(
            "bytes of a patch, exported, of those of the changed files",
            Bound::AtMost(PATCH_SHARE_MAX),
        ),
        goal(
            "time of a rebuild, of that of --apply",
            Bound::AtLeast(turns::APPLY_RATIO_MIN),
        ),
    ];
    for configuration in CONFIGURATIONS {
        let case = Case::new(&bench, &trees, configuration)?;
        eprintln!("bench patch: {}", case.subject);
        for (_, part) in &parts {
            comparisons.extend(match part {
                Part::Sizes => vec![case.sizes()?],
                Part::Times => case.times(),
                Part::Reads => case.reads(),
                Part::Moved => case.moved()?,
            });
        }
    }
    let sizes = |name| {
        comparisons
            .iter()
            .filter_map(move |found| share(found, name))
    };
    goals[0].found.extend(sizes(GROWTH));
    goals[1].found.extend(sizes(EXPORTED));
    let ratios = comparisons.iter().filter_map(turns::apply_ratio);
    goals[2].found.extend(ratios);
    let mut findings = bench.finish(comparisons)?;
    findings.notes.push(changed.to_string());
    findings.notes.extend(deltas::missing());
    findings.versions.extend(deltas::versions());
    findings.goals = goals;
    Ok(findings)
}

fn goal(what: &str, bound: Bound) -> Goal {
    Goal {
        what: what.to_owned(),
        bound,
        found: Vec::new(),
    }
}

/// The figure of a side in units of what the changed files take.
fn share(sizes: &Comparison, name: &str) -> Option<(String, f64)> {
    let median = |name: &str| sizes.sides.iter().find(|side| side.name == name)?.median();
    Some((sizes.subject.clone(), median(name)? / median(CHANGED)?))
}

impl Case<'_> {
    /// The bytes of a layer on the old image.
    fn layer(&self) -> Outcome<Side> {
        let file = self.bench.path("layer.erofs");
        let mut layer = self.bench.anteros("patch");
        layer
            .arg("--quiet")
            .arg(&self.old)
            .arg("--layer")
            .arg(&file);
        layer.arg("--from").arg(&self.trees.new);
        run(&mut layer)?;
        Ok(side(LAYER, words(&layer), Ok(bytes(&file)?)))
    }

    /// Compares the bytes of a patch with the changed files alone and beside differences of whole images.
    fn sizes(&self) -> Outcome<Comparison> {
        let alone = self.bench.path("changed.erofs");
        let mut mkfs = self.mkfs(&alone, &self.trees.changed);
        run(&mut mkfs)?;
        let growth = bytes(&self.patched)? - bytes(&self.old)?;
        let from = words(&self.patch("--from", &self.trees.new));
        let export = words(&self.patch("--export", &self.exported));
        let mut sides = vec![
            side(CHANGED, words(&mkfs), Ok(bytes(&alone)?)),
            side(GROWTH, from, Ok(growth)),
            side(EXPORTED, export, Ok(bytes(&self.exported)?)),
            self.layer()?,
        ];
        sides.extend(deltas::sides(self)?);
        Ok(Comparison {
            metric: "size of the update".to_owned(),
            subject: self.subject.clone(),
            at: None,
            unit: Unit::Bytes,
            yardsticks: BY_CHANGED,
            sides,
        })
    }
}
