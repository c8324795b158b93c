//! Directories in the packed inode, behind all files.
//!
//! They name inodes, and where these lie shows only when all files have been written.

use std::convert::Infallible;
use std::sync::atomic::Ordering;

use anteros_core::FileKind;

use crate::Error;
use crate::data::{Job, Stored};
use crate::directory;
use crate::layout::Layout;
use crate::ordered::{Ordered, with_workers};
use crate::outbox::{Done, Work};
use crate::output::Output;
use crate::special::{Content, Growing};
use crate::tree::NodeId;

/// Workers that do nothing but compress segments.
type Pool = Ordered<Work<Infallible>, Done<Infallible>>;

/// Appends the directories that belong there to the content of the packed inode, and writes what is left of it.
pub(crate) fn directories(
    job: &Job<'_>,
    stored: &[Stored],
    layout: &Layout,
    content: Content,
    output: &mut Output,
) -> Result<Content, Error> {
    if !job.options.compress_directories {
        return Ok(content);
    }
    let new_worker = || {
        let mut compressor = job.compressor();
        move |work: Work<Infallible>| match work {
            Work::Part(never) => match never {},
            Work::Segment(content) => {
                let segment = job.packed_segment(&content, &mut compressor);
                segment.map(Done::Segment).into()
            }
        }
    };
    let budget = job.options.content_bytes();
    let workers = job.options.compressing_workers();
    with_workers(workers, budget, new_worker, |pool: &mut Pool| {
        let mut growing = Growing::new(content, budget, output);
        for id in of(job, stored) {
            if job.cancel.load(Ordering::Relaxed) {
                return Err(Error::Cancelled);
            }
            let nid = |id| layout.nid(id);
            let bytes = directory::encode(job.tree, id, job.options, nid);
            growing.append(pool, &bytes)?;
        }
        growing.finish(pool)
    })
}

/// The directories that belong there, in the order in which they lie there.
fn of<'a>(job: &'a Job<'_>, stored: &'a [Stored]) -> impl Iterator<Item = NodeId> + 'a {
    job.plan.inodes(job.tree).filter(|&id| {
        let is_packed = matches!(stored[id as usize], Stored::Packed { .. });
        is_packed && job.tree.node(id).kind == FileKind::Directory
    })
}
