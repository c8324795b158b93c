//! Comparing an image with the directory it was made from.
//!
//! One thread walks both trees side by side and compares names and attributes. Workers compare the
//! data of files, byte for byte. Symbolic links of the source are compared, never followed. Whatever
//! cannot be read of either is told as a difference, and the rest is compared all the same.

mod attributes;
mod data;
mod difference;
mod links;
mod names;
mod options;
mod report;
mod run;
mod walker;

use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::atomic::AtomicBool;

use rustix::fs::{Mode, OFlags};

pub use difference::{Difference, ImageText, Mismatch, Side};
pub use options::VerifyOptions;
pub use report::{VerifyError, VerifyObserver, VerifyProblem, VerifyReport};

use crate::Image;
use crate::parts::with_workers;
use crate::trail::Trail;
use run::Run;
use walker::Walker;

/// Compares an image with a directory: names, kinds, modes, owners, times, sizes, device numbers,
/// link targets, hard links, extended attributes and data. Holes are the same as zeros. A part that
/// cannot be read on either side is a difference, and the others are compared.
///
/// # Errors
///
/// If the root of one of them cannot be read, if the way back from a directory of the source is gone,
/// or if `cancel` is set; it is looked at before each name and each piece of data.
pub fn verify(
    image: &Image,
    source: &Path,
    options: &VerifyOptions<'_>,
    observer: &dyn VerifyObserver,
    cancel: &AtomicBool,
) -> Result<VerifyReport, VerifyError> {
    let root = Trail::root(b"");
    let at_root = |problem| VerifyError {
        path: root.path(),
        problem,
    };
    let dir = open_source(source).map_err(|error| at_root(error.into()))?;
    let run = Run::new(image, options, observer, cancel);
    let walk = |feeder| Walker::new(&run, feeder, root.clone(), dir).walk();
    with_workers(options.workers, |jobs| run.work(jobs), walk);
    run.finish()
}

fn open_source(source: &Path) -> rustix::io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    rustix::fs::open(source, flags, Mode::empty())
}
