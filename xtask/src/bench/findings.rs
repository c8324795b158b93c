//! Findings of a benchmark.

use std::path::Path;
use std::process::Command;

use super::goal::Goal;
use super::report::Comparison;
use crate::outcome::Outcome;
use crate::peers;
use crate::run::output;

/// Holds what a benchmark found out.
pub(super) struct Findings {
    /// Programs and their versions.
    pub(super) versions: Vec<String>,
    pub(super) notes: Vec<String>,
    pub(super) comparisons: Vec<Comparison>,
    pub(super) goals: Vec<Goal>,
}

/// The versions of our tool and of the peers' builder.
pub(super) fn versions(anteros: &Path) -> Outcome<Vec<String>> {
    let ours = output(Command::new(anteros).arg("--version"))?;
    let peer = output(peers::command("mkfs.erofs")?.arg("--version"))?;
    Ok([ours, peer]
        .iter()
        .filter_map(|text| text.lines().next().map(str::to_owned))
        .collect())
}
