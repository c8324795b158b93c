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
pub(super) mod harness;
mod memory;
pub(super) mod names;
mod recovery;
mod sqlite;
pub(super) mod system;
mod throughput;
pub(super) mod traces;
pub(super) mod turn;
mod workload;

use super::findings::Findings;
use super::options::Options;
use super::report::Yardstick;
use crate::outcome::Outcome;
use harness::{Part, Plan, run};

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
