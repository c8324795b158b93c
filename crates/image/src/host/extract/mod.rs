//! Writing the tree of an image into a directory.
//!
//! One thread walks the tree and creates what has a name: directories, files, links, nodes. Workers
//! fill the files with data and give them their owners, modes, attributes and times. Whoever lets go
//! of a file last finishes it. Files that are packed together in large extents wait until the walk
//! has found many of them (`packed`). A directory is finished when the walk leaves it, as nothing is
//! created in it from then on; until then it is open to its owner alone. The root, and directories
//! that would not let their owner in, are finished at the end.
//!
//! Nothing is written outside the target. Everything is created by its name in an open directory,
//! symbolic links are never followed, and what exists is never written into: it is an error or, if
//! so wished, replaced. A hard link to anything but what this run created is taken back.
//!
//! Each new file is asked for its state, and only what differs is changed. Extracting an ordinary
//! file takes openat, pwrite, fstat, utimensat and close.

mod create;
mod dress;
mod level;
mod links;
mod object;
mod options;
mod packed;
mod privileges;
mod problem;
mod report;
mod run;
mod target;
mod walker;
mod work;
mod write;

use std::path::Path;
use std::sync::atomic::AtomicBool;

use anteros_core::FileKind;

pub use options::ExtractOptions;
pub use problem::{ExtractError, ExtractProblem};
pub use report::{ERRORS_KEPT, ExtractObserver, ExtractSummary, Omitted, Warning};

use crate::Image;
use crate::parts::with_workers;
use crate::trail::Trail;
use problem::error_at;
use run::Run;
use target::{open_target_dir, open_target_parent};
use walker::Walker;

/// Extracts what lies at the path `from` of an image; empty means all.
///
/// Of a directory, the content goes into the directory `target`, which is made if it is missing and
/// which gets the attributes of the one in the image. Anything else becomes `target` itself or, if
/// that is a directory, lies in it by the name it has in the image.
///
/// # Errors
///
/// The first error, and what was extracted stays; with [`ExtractOptions::keep_going`] only if there
/// is nothing to go on with: `from` or the target cannot be opened, or `cancel` is set. `cancel` is
/// looked at before each name, and each piece of data.
pub fn extract(
    image: &Image,
    from: &[u8],
    target: &Path,
    options: &ExtractOptions,
    observer: &dyn ExtractObserver,
    cancel: &AtomicBool,
) -> Result<ExtractSummary, ExtractError> {
    let root = Trail::root(from);
    let inode = image.find(from).map_err(|e| error_at(&root, e.into()))?;
    let place = match inode.kind {
        FileKind::Directory => open_target_dir(target).map(|dir| (dir, None)),
        _ => open_target_parent(target, from).map(|(dir, name)| (dir, Some(name))),
    };
    let place = place.and_then(|(dir, name)| Ok((dir.try_clone()?, dir, name)));
    let (top, dir, name) = place.map_err(|source| {
        error_at(
            &root,
            ExtractProblem::Target {
                target: target.to_owned(),
                source,
            },
        )
    })?;
    let run = Run::new(image, options, observer, cancel, top);
    let walk = |feeder| Walker::new(&run, feeder, root, dir).extract(&inode, name);
    let unfinished = with_workers(options.workers, |jobs| run.work(jobs), walk);
    unfinished.finish(&run);
    run.finish()
}
