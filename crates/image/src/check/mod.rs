//! Checking a whole image.
//!
//! Two passes. The first visits everything that describes data: one thread walks the directories
//! (each once) and hands every inode that it meets for the first time to the workers, which check
//! its attributes, its index and every extent, and note which bytes of which device each of these
//! takes. The notes of all workers, sorted by address, are then the map of the image: what overlaps
//! stands side by side, and so does what is shared. The second pass goes over that map in the order
//! of the addresses and decodes each encoded extent and reads each run of plain bytes once, however
//! many files share it.
//!
//! A fault is noted and the rest goes on; the only ways to end early are the caller's `cancel` and
//! [`CheckOptions::work_bytes_max`], and both are told in the report. Paths are looked up afterwards,
//! for the findings alone.
//!
//! Memory is bounded by [`CheckOptions::memory_bytes`] and the buffers of the workers, whatever an
//! image claims. Notes beyond it are sorted in a temporary file (`TMPDIR`), which is proportional to
//! the number of different inodes and extents: extents of many files on the same bytes are one entry
//! of the map, a directory that repeats itself is given up, and of findings
//! [`CheckOptions::findings_max`] are kept. Time is not bounded: an index may truly have so many
//! entries, and `work_bytes_max` is there for those who will not wait.
//!
//! | module | job |
//! |---|---|
//! | `header` | superblock, configurations, devices |
//! | `walk` | directories, links, the tree |
//! | `pending` | the directories that are still to be read |
//! | `names` | the names of each inode |
//! | `inspect` | one inode: attributes, index, extents |
//! | `values` | attributes that the kernel reads itself |
//! | `part`, `stored` | runs of bytes that something takes, and their notes |
//! | `space` | the map of the image: overlaps, unreachable blocks |
//! | `data` | decoding |
//! | `digest` | digests of content that files have as attributes |
//! | `paths` | paths of findings |
//! | `run` | state that all of these share |
//! | `report`, `finding` | options, progress, what was found |

mod data;
mod digest;
mod finding;
mod header;
mod inspect;
mod names;
mod part;
mod paths;
mod pending;
mod report;
mod run;
mod space;
mod stored;
mod values;
mod walk;

use std::sync::atomic::AtomicBool;

pub use finding::{Finding, FindingKind, Severity};
use report::Unused;
pub use report::{CheckObserver, CheckOptions, CheckProgress, CheckReport};

use crate::{Image, Place};
use run::Run;

/// Checks a whole image. It is best opened without verifying the checksum: that is done here, and so
/// the other faults are found as well.
pub fn check(
    image: &Image,
    options: &CheckOptions,
    observer: &dyn CheckObserver,
    cancel: &AtomicBool,
) -> CheckReport {
    let run = Run::new(image, options, observer, cancel);
    if options.digests && image.superblock().digest_prefix.is_none() {
        run.note(Place::Superblock, FindingKind::NoDigests);
    }
    run.take_parts(&mut header::check(&run));
    let names = walk::walk(&run);
    let unused = check_space(&run);
    let mut report = run.finish(unused);
    if let Some(names) = names {
        // Findings without paths are better than none.
        let _ = paths::fill_in(image, &names, &mut report.findings);
    }
    report
}

/// Checks the map of the image, and the data on it.
fn check_space(run: &Run<'_>) -> Unused {
    let Some(parts) = run.all_parts() else {
        return Unused::default();
    };
    let unused = space::check(run, &parts);
    if run.options.data {
        data::check(run, &parts);
    }
    unused
}
