//! Goals that compression is to reach: what the paper found (sections 5.2 and 5.3), and more.

use super::executables::{AMPLIFIED, LEFT};
use super::{packing, programs};
use crate::bench::goal::{Bound, Goal};
use crate::bench::log::system::OURS;
use crate::bench::log::traces::{ON_A_PHONE, SYNCED, UNMOUNTED};
use crate::bench::report::Comparison;

/// States what policies are to write of what is written without: the paper's own 47.5 % less, its mean over five
/// applications, all but for what its figures leave open; and ours.
const WRITTEN: [(&str, f64); 2] = [("--policy paper", 0.55), ("--policy record", 0.38)];

/// States what codecs are to leave of executables. The paper has 23.7 % less, of all that an application is.
const EXECUTABLES: [(&str, f64); 2] = [("lz4", 0.58), ("zstd", 0.44)];

/// Blocks that compressed pages are to lie in, for each that would do, with these policies.
const PACKED: [&str; 2] = ["--policy paper", "--policy record"];
const PACKED_MAX: f64 = 1.1;

/// States what the metadata of rollback journals is to save beside their data, of what is written without compression,
/// and whose journals those are.
const METADATA_MIN: f64 = 0.08;
const ROLLED_BACK: [&str; 3] = ["app_DELETE", "messages-delete", "messages-persist"];

/// Pages that are decompressed for each that is read, after compaction.
const AMPLIFIED_MAX: f64 = 1.2;

/// States what starting cold is to take with executables that were compacted after launches, in units of without:
/// requests and bytes, and how fast it is to be on a phone's storage and here.
const STARTED: [(&str, Bound); 4] = [
    (programs::REQUESTS, Bound::AtMost(0.15)),
    (programs::READ, Bound::AtMost(0.5)),
    (programs::OF_STORAGE, Bound::AtLeast(2.0)),
    (programs::START, Bound::AtLeast(1.0)),
];

/// The goals, and what was found of each.
pub(super) fn goals(comparisons: &[Comparison]) -> Vec<Goal> {
    let about = |metric: &str| -> Vec<&Comparison> {
        let about = comparisons.iter();
        about.filter(|one| one.metric.starts_with(metric)).collect()
    };
    let mut goals = Vec::new();
    for (policy, most) in WRITTEN {
        let name = format!("{OURS} {policy}");
        let written = about(UNMOUNTED);
        let shares: Vec<f64> = written
            .iter()
            .filter_map(|one| one.share(one.side(&name)?, OURS))
            .collect();
        let mean = shares.iter().sum::<f64>() / shares.len() as f64;
        let mean = ("all applications".to_owned(), mean);
        goals.push(Goal {
            what: format!("traces: written with {policy}, in units of without, mean"),
            bound: Bound::AtMost(most),
            found: [mean].into_iter().filter(|one| one.1.is_finite()).collect(),
        });
        goals.push(Goal {
            what: format!("traces: written with {policy}, in units of without"),
            bound: Bound::AtMost(1.0),
            found: found(&written, |one| one.share(one.side(&name)?, OURS)),
        });
        goals.push(Goal {
            what: format!("traces: writes and fsyncs with {policy}, how fast in units of without"),
            bound: Bound::AtLeast(1.0),
            found: found(&about(SYNCED), |one| one.share(one.side(&name)?, OURS)),
        });
        goals.push(Goal {
            what: format!("traces: the same on a phone's storage, with {policy}"),
            bound: Bound::AtLeast(1.0),
            found: found(&about(ON_A_PHONE), |one| one.share(one.side(&name)?, OURS)),
        });
    }
    let [without, with] = ["fpc-n", "paper"].map(|policy| format!("{OURS} --policy {policy}"));
    let rolled_back: Vec<_> = about(UNMOUNTED)
        .into_iter()
        .filter(|one| ROLLED_BACK.contains(&one.subject.as_str()))
        .collect();
    goals.push(Goal {
        what: "traces: saved by packing the metadata of rollback journals, in units of without"
            .into(),
        bound: Bound::AtLeast(METADATA_MIN),
        found: found(&rolled_back, |one| {
            Some(one.share(one.side(&without)?, OURS)? - one.share(one.side(&with)?, OURS)?)
        }),
    });
    for policy in PACKED {
        let name = format!("{OURS} {policy}");
        goals.push(Goal {
            what: format!(
                "packing: blocks that pages lie in with {policy}, for each that would do"
            ),
            bound: Bound::AtMost(PACKED_MAX),
            found: found(&about(packing::AMPLIFIED), |one| one.side(&name)?.median()),
        });
    }
    for (codec, most) in EXECUTABLES {
        let name = format!("{codec}, compacted in order");
        goals.push(Goal {
            what: format!("executables: what {codec} leaves of them"),
            bound: Bound::AtMost(most),
            found: found(&about(LEFT), |one| one.side(&name)?.median()),
        });
    }
    goals.push(Goal {
        what: "executables: pages decompressed for each page, after compaction by launches".into(),
        bound: Bound::AtMost(AMPLIFIED_MAX),
        found: found(&about(AMPLIFIED), |one| {
            one.side("lz4, compacted after launches")?.median()
        }),
    });
    goals.extend(STARTED.map(|(what, bound)| started(&about("programs: "), what, bound)));
    goals
}

/// The goal for one figure of programs that start.
fn started(of_programs: &[&Comparison], what: &str, bound: Bound) -> Goal {
    let compacted = format!("{OURS} --policy record, compacted");
    let is_it = |one: &&&Comparison| one.metric.rsplit(": ").next() == Some(what);
    let share = |one: &&Comparison| {
        let program = one.metric.split(": ").nth(1)?;
        let share = one.share(one.side(&compacted)?, OURS)?;
        Some((program.to_owned(), share))
    };
    Goal {
        what: format!("programs: {what}, in units of without compaction"),
        bound,
        found: of_programs.iter().filter(is_it).filter_map(share).collect(),
    }
}

fn found(about: &[&Comparison], figure: impl Fn(&Comparison) -> Option<f64>) -> Vec<(String, f64)> {
    let found = |one: &&Comparison| {
        let what = one.metric.split(": ").skip(2).collect::<String>();
        let name = format!("{} {what}", one.subject).trim_end().to_owned();
        Some((name, figure(one)?))
    };
    about.iter().filter_map(found).collect()
}
