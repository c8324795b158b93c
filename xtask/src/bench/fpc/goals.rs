//! What compression is to reach: what the paper found (section 5.2).

use super::POLICIES;
use crate::bench::goal::{Bound, Goal};
use crate::bench::log::system::OURS;
use crate::bench::log::traces::UNMOUNTED;
use crate::bench::report::Comparison;

/// The paper's mean over its five applications: 47.5 % less.
const WRITTEN_MAX: f64 = 0.525;

/// The goals, and what was found of each.
pub(super) fn goals(comparisons: &[Comparison]) -> Vec<Goal> {
    let policies = POLICIES.iter().skip(1);
    policies
        .map(|policy| written(comparisons, policy))
        .collect()
}

/// What a policy writes in units of what is written without.
fn written(comparisons: &[Comparison], policy: &str) -> Goal {
    let name = format!("{OURS} {policy}");
    let about = comparisons.iter().filter(|one| one.metric == UNMOUNTED);
    let shares: Vec<f64> = about
        .filter_map(|one| one.share(one.side(&name)?, OURS))
        .collect();
    let mean = shares.iter().sum::<f64>() / shares.len() as f64;
    Goal {
        what: format!("traces: written with {policy}, in units of without, mean"),
        bound: Bound::AtMost(WRITTEN_MAX),
        found: mean
            .is_finite()
            .then(|| ("all applications".to_owned(), mean))
            .into_iter()
            .collect(),
    }
}
