//! File content: read and compressed by all workers, written in the order of the tree.
//!
//! Small files travel in batches, large ones in segments. The workers know no addresses: what they
//! give back can lie anywhere, and the one thread that writes decides where, in order. So the image
//! does not depend on how many workers there are.
//!
//! A file of one segment is judged where it is compressed. Of a larger one the writer sees only at
//! its end whether compression has saved enough; if it has not, the writer goes back to where the
//! file began and writes it as it is.
//!
//! The sweep comes first. Of a file that is cut it has a part or several, and when it is the turn of that file the writer
//! knows where these lie.
//!
//! A part that is stored as an earlier one takes no work. When it is its turn the writer knows where that lies, and takes
//! over its extents; what has none that could be taken over is compressed then, aside.
//!
//! Invariant B1 of `docs/design/building.md`: the same source and options give the same bytes, whatever the workers,
//! the memory and the order in which directories are listed.

mod job;
mod piece;
mod sharing;
mod stored;
mod tails;
mod work;
mod worker;
mod writer;

use crate::ordered::with_workers;
use crate::output::Output;
use crate::{Error, Observer};

pub(crate) use job::Job;
pub(crate) use stored::Stored;
pub(crate) use tails::Tails;
use work::Pool;
use worker::Worker;
use writer::Writer;
pub(crate) use writer::Written;

/// Writes the content of all regular files, but for what lies behind inodes.
pub(crate) fn write(
    job: &Job<'_>,
    output: &mut Output,
    observer: &dyn Observer,
) -> Result<Written, Error> {
    let mut writer = Writer::new(job, output, observer);
    let new_worker = || {
        let mut worker = Worker::new(job);
        move |work| worker.work(work)
    };
    with_workers(
        job.options.compressing_workers(),
        job.options.content_bytes(),
        new_worker,
        |pool: &mut Pool| {
            for batch in job.swept() {
                writer.submit(pool, batch)?;
            }
            if job.plan.sweep.cuts_packed() {
                writer.cut_packed(pool)?;
            }
            for batch in job.batches() {
                writer.submit(pool, batch)?;
            }
            writer.rest(pool)
        },
    )?;
    writer.finish()
}
