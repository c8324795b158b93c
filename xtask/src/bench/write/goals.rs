//! Goals that writing through a mirror is to reach, beside the native file system, the paper's starting point and
//! libfuse.

use super::calls::WRITE_CALLS;
use super::throttled::TO_THE_DEVICE;
use super::throughput::{STATES, metric};
use super::way::{AUTO, BASELINE, BUFFER, CACHE, DAEMON, HP, NATIVE};
use super::workload::{APPEND_4K, CREATION, LARGE, PAPER};
use crate::bench::goal::{Bound, Goal};
use crate::bench::report::Comparison;

/// Beginnings of the metrics that are patterns of writing.
const PATTERNS: [&str; 3] = ["throughput: ", "sqlite: ", "trees: "];
/// States what counts as not slower.
const LEVEL: f64 = 0.95;
/// The write calls of the paper's buffer.
const PAPER_CALLS: f64 = 249.0;

/// Tells what a goal is about.
#[derive(Clone, Copy)]
enum On {
    LargeRecords,
    PaperRecords,
    Appends,
    Creation,
    Throttled,
    AnyPattern,
}

/// Describes how fast the best of some ways is to be, in units of another way.
struct Wanted(&'static [&'static str], &'static str, On, f64);

const WANTED: [Wanted; 11] = [
    Wanted(&[AUTO], NATIVE, On::LargeRecords, 0.99),
    Wanted(&[BUFFER], BASELINE, On::PaperRecords, 4.7),
    Wanted(&[AUTO], NATIVE, On::Throttled, 0.95),
    Wanted(&[BUFFER], NATIVE, On::Throttled, 0.95),
    Wanted(&[CACHE], NATIVE, On::Throttled, 0.95),
    Wanted(&[AUTO], NATIVE, On::Appends, 0.9),
    Wanted(&[CACHE, BUFFER], DAEMON, On::Appends, 3.0),
    Wanted(&[AUTO], NATIVE, On::Creation, 0.3),
    Wanted(&[AUTO], DAEMON, On::AnyPattern, LEVEL),
    Wanted(&[CACHE, BUFFER], DAEMON, On::AnyPattern, LEVEL),
    Wanted(&[AUTO], HP, On::AnyPattern, LEVEL),
];

/// The goals, and what was found of each.
pub(super) fn goals(comparisons: &[Comparison]) -> Vec<Goal> {
    let mut goals: Vec<Goal> = WANTED.iter().map(|one| one.goal(comparisons)).collect();
    goals.push(Goal {
        what: "write calls of a buffer: 512 MiB in records of 512 KiB".to_owned(),
        bound: Bound::AtMost(PAPER_CALLS),
        found: buffered_calls(comparisons),
    });
    goals
}

impl Wanted {
    fn goal(&self, comparisons: &[Comparison]) -> Goal {
        let Self(ways, than, on, least) = self;
        let about = comparisons.iter().filter(|one| on.is_told_by(one));
        let found = about.filter_map(|one| Some((place(one), best(one, ways, than)?)));
        Goal {
            what: format!("{} / {than}: {}", ways.join(" or "), on.words()),
            bound: Bound::AtLeast(*least),
            found: found.collect(),
        }
    }
}

impl On {
    fn words(self) -> &'static str {
        match self {
            Self::LargeRecords => "records of 128 KiB and more",
            Self::PaperRecords => "records of 512 KiB",
            Self::Appends => "appends of 4 KiB",
            Self::Creation => "new files of 16 KiB",
            Self::Throttled => "device of 40 MB/s",
            Self::AnyPattern => "any pattern, level",
        }
    }

    fn is_told_by(self, one: &Comparison) -> bool {
        let tells_of = |workload: &str| {
            let metrics = STATES.map(|state| metric(workload, state));
            metrics.contains(&one.metric)
        };
        match self {
            Self::LargeRecords => LARGE.into_iter().any(tells_of),
            Self::PaperRecords => tells_of(PAPER),
            Self::Appends => tells_of(APPEND_4K),
            Self::Creation => tells_of(CREATION),
            Self::Throttled => one.metric == TO_THE_DEVICE,
            Self::AnyPattern => PATTERNS.iter().any(|part| one.metric.starts_with(part)),
        }
    }
}

fn place(one: &Comparison) -> String {
    format!("{}, {}", one.subject, one.metric)
}

/// Returns how fast the best of some ways is, in units of another way.
fn best(one: &Comparison, ways: &[&str], than: &str) -> Option<f64> {
    let shares = ways
        .iter()
        .filter_map(|way| one.share(one.side(way)?, than));
    shares.max_by(f64::total_cmp)
}

/// The write calls of every way with a buffer.
fn buffered_calls(comparisons: &[Comparison]) -> Vec<(String, f64)> {
    let mut found = Vec::new();
    for one in comparisons.iter().filter(|one| one.metric == WRITE_CALLS) {
        let buffers = |name: &str| {
            ["--data buffer", "--data entries"]
                .iter()
                .any(|form| name.contains(form))
        };
        for side in one.sides.iter().filter(|side| buffers(&side.name)) {
            let place = format!("{}, {}", one.subject, side.name);
            found.extend(side.median().map(|median| (place, median)));
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::report::{Side, Unit};

    fn comparison(metric: &str, unit: Unit, sides: &[(&str, f64)]) -> Comparison {
        let side = |(name, figure): &(&str, f64)| Side {
            name: (*name).to_owned(),
            command: String::new(),
            figures: Ok(vec![*figure]),
        };
        Comparison {
            metric: metric.to_owned(),
            subject: "ext4".to_owned(),
            at: None,
            unit,
            yardsticks: &[],
            sides: sides.iter().map(side).collect(),
        }
    }

    /// The verdicts of the goals that something was found for.
    fn verdicts(comparisons: &[Comparison]) -> Vec<(String, String)> {
        let goals = goals(comparisons);
        let measured = goals.iter().filter(|goal| !goal.found.is_empty());
        let told = measured.map(Goal::cells);
        told.map(|[what, _, verdict, ..]| (what, verdict)).collect()
    }

    #[test]
    fn the_better_of_two_ways_counts_and_one_that_takes_no_part_does_not() {
        let sides = [
            (AUTO, 90.0),
            (BUFFER, 1.0),
            (CACHE, 30.0),
            (DAEMON, 10.0),
            (NATIVE, 100.0),
        ];
        let metric = metric(APPEND_4K, STATES[0]);
        let verdicts = verdicts(&[comparison(&metric, Unit::BytesPerSecond, &sides)]);
        assert_eq!(verdicts.len(), 4, "{verdicts:?}");
        assert!(
            verdicts.iter().all(|(_, verdict)| verdict == "met (1)"),
            "{verdicts:?}"
        );
    }

    #[test]
    fn of_times_less_is_faster() {
        let sides = [(AUTO, 2.0), (DAEMON, 1.0)];
        let verdicts = verdicts(&[comparison("trees: cp", Unit::Seconds, &sides)]);
        assert_eq!(verdicts[0].1, "missed in 1 of 1");
    }
}
