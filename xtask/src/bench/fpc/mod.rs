//! `bench fpc`: what compression by access pattern is worth (FPC, FAST '21): our log with each policy, beside itself
//! without, beside ext4, and beside btrfs, which compresses all that it writes.
//!
//! What is written are recorded applications, of the repository and of `cargo xtask trace`. Bytes are counted at a loop
//! device over a file in memory, as for `bench log`, whose turns these are. Energy is not measured: there is no meter.
//!
//! It mounts and attaches loop devices: it must run as root.

mod beside;
mod compressibility;
mod executables;
mod files;
mod goals;
mod idle;
mod overhead;
mod packing;
mod portrait;
mod programs;
mod remembered;
mod sampling;
mod steady;
mod traces;
mod trees;
mod workloads;

use super::findings::Findings;
use super::log::harness::{Bench, Part, Plan, run};
use super::log::system::{EXT4, HOLLOW, OURS, System};
use super::options::Options;
use super::report::Yardstick;
use super::write::native::{KINDS, Kind};
use crate::outcome::Outcome;

/// Arguments of our mounts: one for each policy. The first one compresses nothing.
const POLICIES: [&str; 5] = [
    "",
    "--policy comp",
    "--policy fpc-n",
    "--policy paper",
    "--policy record",
];

/// States how file systems of the kernel take part that can compress, beside as they are.
const COMPRESSING: [(&str, &std::ffi::CStr); 4] = [
    ("btrfs", c"nodiscard,compress-force=lzo"),
    ("btrfs", c"nodiscard,compress-force=zstd:3"),
    ("f2fs", c"nodiscard,mode=lfs"),
    (
        "f2fs",
        c"nodiscard,mode=lfs,compress_algorithm=lz4,compress_extension=*",
    ),
];

const PARTS: [Part; 14] = [
    ("workloads", workloads::workloads),
    ("traces", traces::traces),
    ("packing", packing::packing),
    ("sampling", sampling::sampling),
    ("compressibility", compressibility::compressibility),
    ("steady", steady::steady),
    ("executables", executables::executables),
    ("programs", programs::programs),
    ("files", files::files),
    ("idle", idle::idle),
    ("beside", beside::beside),
    ("remembered", remembered::remembered),
    ("trees", trees::trees),
    ("overhead", overhead::overhead),
];

const YARDSTICKS: [Yardstick; 4] = [
    Yardstick {
        label: "of none",
        side: OURS,
    },
    Yardstick {
        label: "of ext4",
        side: EXT4,
    },
    Yardstick {
        label: "of btrfs",
        side: "btrfs",
    },
    Yardstick {
        label: "of hollow",
        side: HOLLOW,
    },
];

/// Runs the benchmark.
///
/// # Errors
/// When it is not run as root, or the machine refuses what every part needs.
pub(super) fn fpc(options: &Options) -> Outcome<Findings> {
    let plan = Plan {
        name: "fpc",
        parts: &PARTS,
        line_up,
        yardsticks: &YARDSTICKS,
        goals: goals::goals,
    };
    run(&plan, options)
}

/// Finds out who takes part, and says of the others why not.
fn line_up(bench: &mut Bench) {
    let mut systems: Vec<System> = ours(bench);
    for name in [EXT4, "btrfs"] {
        systems.extend(present(bench, name).map(System::of_kernel_alone));
    }
    for (name, options) in COMPRESSING {
        let kind = present(bench, name);
        systems.extend(kind.map(|kind| System::of_kernel_with(kind, options)));
    }
    bench.choose(systems);
}

/// Our log with each policy, and with what else is asked for.
fn ours(bench: &Bench) -> Vec<System> {
    let with = bench.options.with.iter().map(String::as_str);
    let arguments = POLICIES.into_iter().chain(with);
    arguments
        .map(|words| System::log(&bench.anteros, words))
        .collect()
}

/// A file system, if the kernel has it; else that is said.
fn present(bench: &mut Bench, name: &str) -> Option<&'static Kind> {
    let kind = KINDS.iter().find(|kind| kind.name == name)?;
    if let Some(reason) = kind.missing() {
        bench.note(format!("{name} takes no part: {reason}"));
        return None;
    }
    Some(kind)
}
