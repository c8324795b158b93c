//! Goals that the log is to reach, beside what F2FS wrote for the same traces and beside ext4 in the same run.

use super::ageing::{AMPLIFICATION, FULLEST};
use super::memory::PEAK;
use super::recovery::AFTER_A_CUT;
use super::system::{EXT4, MIRROR, MIRROR_DAEMON, MIRROR_LIBFUSE, OURS};
use super::throughput::DONE;
use super::traces::{RECORDED, Recorded, UNMOUNTED};
use crate::bench::goal::{Bound, Goal};
use crate::bench::report::Comparison;

const AMPLIFICATION_MAX: f64 = 2.5;
const RECOVERY_SECONDS_MAX: f64 = 1.0;
const SEQUENTIAL_MIN: f64 = 0.7;
/// The ceiling of a mount that is told nothing, in MiB.
const CEILING: f64 = 32.0;
/// States what a daemon may hold besides: its program and stacks, a buffer of 1 MiB for each worker, 4 MiB on their way
/// to the device, and the tables.
const BESIDES: f64 = 16.0;
const MIB: f64 = (1 << 20) as f64;

/// The goals, and what was found of each.
pub(super) fn goals(comparisons: &[Comparison]) -> Vec<Goal> {
    let wrote = |one: &Recorded| Some(beside_f2fs(comparisons, one.name, one.f2fs_mib?));
    let mut goals: Vec<Goal> = RECORDED.iter().filter_map(wrote).collect();
    let about = |metric: &'static str| comparisons.iter().filter(move |one| one.metric == metric);
    goals.push(Goal {
        what: "traces: written, ours / ext4".to_owned(),
        bound: Bound::AtMost(1.0),
        found: found(about(UNMOUNTED), |one| one.share(one.side(OURS)?, EXT4)),
    });
    goals.push(Goal {
        what: format!("ageing: written for each byte, {FULLEST}"),
        bound: Bound::AtMost(AMPLIFICATION_MAX),
        found: found(
            about(AMPLIFICATION).filter(|one| one.subject.starts_with(FULLEST)),
            ours,
        ),
    });
    // What is written or read in order by way of a mirror, and what is synced in small pieces.
    for (part, least) in [("512 MiB", SEQUENTIAL_MIN), ("fsync after each", 1.0)] {
        for mirror in [MIRROR, MIRROR_DAEMON, MIRROR_LIBFUSE] {
            let measured = about(DONE).filter(|one| one.subject.contains(part));
            goals.push(Goal {
                what: format!("throughput: {part}, ours / {mirror}"),
                bound: Bound::AtLeast(least),
                found: found(measured, |one| one.share(one.side(OURS)?, mirror)),
            });
        }
    }
    goals.push(Goal {
        what: "recovery: seconds until the mount stands".to_owned(),
        bound: Bound::AtMost(RECOVERY_SECONDS_MAX),
        found: found(about(AFTER_A_CUT), ours),
    });
    goals.push(Goal {
        what: format!("memory: MiB, the ceiling of {CEILING} and {BESIDES}"),
        bound: Bound::AtMost(CEILING + BESIDES),
        found: found(about(PEAK), |one| Some(ours(one)? / MIB)),
    });
    goals
}

/// F2FS's figure is one of whole MiB.
fn beside_f2fs(comparisons: &[Comparison], trace: &str, mib: f64) -> Goal {
    let about = comparisons.iter();
    let about = about.filter(|one| one.metric == UNMOUNTED && one.subject == trace);
    Goal {
        what: format!("traces: MiB written for {trace}, not above F2FS's {mib}, rounded"),
        bound: Bound::AtMost(mib + 0.5),
        found: found(about, |one| Some(ours(one)? / MIB)),
    }
}

/// The median of our side.
fn ours(one: &Comparison) -> Option<f64> {
    let side = one.sides.first()?;
    side.name.starts_with(OURS).then(|| side.median())?
}

/// Returns what comparisons tell, and where.
fn found<'a>(
    comparisons: impl Iterator<Item = &'a Comparison>,
    figure: impl Fn(&Comparison) -> Option<f64>,
) -> Vec<(String, f64)> {
    let told = |one: &Comparison| Some((format!("{}, {}", one.subject, one.metric), figure(one)?));
    comparisons.filter_map(told).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::report::{Side, Unit};

    fn comparison(metric: &str, subject: &str, unit: Unit, sides: &[(&str, f64)]) -> Comparison {
        let side = |(name, figure): &(&str, f64)| Side {
            name: (*name).to_owned(),
            command: String::new(),
            figures: Ok(vec![*figure]),
        };
        Comparison {
            metric: metric.to_owned(),
            subject: subject.to_owned(),
            at: None,
            unit,
            yardsticks: &[],
            sides: sides.iter().map(side).collect(),
        }
    }

    /// The verdicts of the goals that something was found for.
    fn verdicts(comparisons: &[Comparison]) -> Vec<String> {
        let goals = goals(comparisons);
        let measured = goals.iter().filter(|goal| !goal.found.is_empty());
        measured.map(|goal| goal.cells()[2].clone()).collect()
    }

    #[test]
    fn a_trace_has_two_goals() {
        let sides = [(OURS, 180e6), (EXT4, 170e6)];
        let told = verdicts(&[comparison(UNMOUNTED, "app_DELETE", Unit::Bytes, &sides)]);
        assert_eq!(told, ["missed in 1 of 1"; 2]);
        let sides = [(OURS, 100e6), (EXT4, 162e6)];
        let told = verdicts(&[comparison(UNMOUNTED, "app_DELETE", Unit::Bytes, &sides)]);
        assert_eq!(told, ["met (1)"; 2]);
    }

    #[test]
    fn large_records_and_small_ones_have_goals_beside_each_mirror() {
        let sides = [(OURS, 80.0), (MIRROR, 100.0), (MIRROR_DAEMON, 120.0)];
        let told = |subject| {
            let unit = Unit::BytesPerSecond;
            verdicts(&[comparison(DONE, subject, unit, &sides)])
        };
        assert_eq!(
            told("read 512 MiB in records of 1 MiB, cold"),
            ["met (1)", "missed in 1 of 1"]
        );
        let small = "2000 records of 4 KiB appended, fsync after each";
        assert_eq!(told(small), ["missed in 1 of 1"; 2]);
    }

    #[test]
    fn only_the_fullest_device_has_a_goal_and_memory_is_told_in_mib() {
        let less_full = "80 % full, anywhere";
        let told = verdicts(&[
            comparison(AMPLIFICATION, less_full, Unit::Times, &[(OURS, 9.0)]),
            comparison(PEAK, "cp", Unit::Bytes, &[(OURS, 47.0 * MIB)]),
        ]);
        assert_eq!(told, ["met (1)"]);
    }
}
