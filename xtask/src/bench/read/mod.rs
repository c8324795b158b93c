//! `bench read`: what reading from a mount costs: our FUSE daemon beside the kernel's own EROFS, `erofsfuse`,
//! `squashfuse_ll`, the kernel's squashfs and ext4, and DwarFS where it is installed.
//!
//! Every turn has a fresh mount with a fresh daemon, in one of two states. Cold: nothing of the image is in the page
//! cache, and a loop device passes the cache by. Warm image: the image is in the page cache, loop devices use it, and
//! nothing has been read through the mount. Images lie on the disk that holds `target`, and are kept in
//! `target/bench/images` for the next run. What is read is compared with the corpus. A contender that cannot take
//! part is reported with the reason.
//!
//! It mounts, attaches loop devices and drops the page cache: it must run as root. All that it mounts lies below one
//! directory and ends with the run; what a killed run left there the next one ends.

mod amplification;
mod background;
mod contender;
mod corpora;
mod counted;
mod format;
mod harness;
mod launch;
mod lineup;
mod memory;
mod memory_limit;
mod order;
mod pattern;
mod patterns;
mod presets;
mod savings;
mod strategies;
mod walk;

use super::findings::{Findings, versions};
use super::options::Options;
use super::part;
use super::place::Place;
use crate::outcome::Outcome;
use crate::peers;
use harness::Bench;

/// A part of the benchmark: its name and what runs it.
type Part = (&'static str, fn(&mut Bench) -> Outcome);

const PARTS: [Part; 10] = [
    ("patterns", patterns::patterns),
    ("large", patterns::large),
    ("order", order::order),
    ("presets", presets::presets),
    ("table1", amplification::table1),
    ("memory", memory::memory),
    ("strategies", strategies::strategies),
    ("savings", savings::savings),
    ("launch", launch::launch),
    ("walk", walk::walk),
];

/// Runs the benchmark.
///
/// # Errors
/// When it is not run as root, a corpus or the peers cannot be had, or the machine refuses what every part needs.
pub(super) fn read(options: &Options) -> Outcome<Findings> {
    let parts = part::chosen(&PARTS, &options.only)?;
    let place = Place::take()?;
    peers::make()?;
    let mut bench = Bench::new(options, &place)?;
    for (name, part) in parts {
        eprintln!("bench read: {name}");
        if let Err(error) = part(&mut bench) {
            bench.note(format!("{name} ended early: {error}"));
        }
    }
    place.leave()?;
    Ok(Findings {
        versions: versions(&bench.anteros)?,
        notes: bench.notes,
        comparisons: bench.comparisons,
        goals: Vec::new(),
    })
}
