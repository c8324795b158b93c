//! Content of files, decoded by many threads and handed over in order.
//!
//! ```text
//!   walk ──► jobs ──► workers ──► a channel for each job ──► walk, in the order of the jobs
//! ```
//!
//! The walk asks for content as it comes by, and takes it when it is its turn. A worker waits when nobody takes what it has
//! decoded. So there is as much in memory as [`Decoding::is_full`] lets be asked for, at a few MiB each. Jobs are begun in
//! their order, so whoever has the first of them can always go on.

use std::ops::Range;
use std::sync::Arc;

use anteros_format::inode::Inode;
use crossbeam_channel::{Receiver, Sender};

use crate::parts::{PartReader, Piece};
use crate::{Error, Image, Result};

/// Bytes of a file that are asked for at once. An encoded extent belongs to the part in which it begins.
const PART_BYTES: u64 = 1 << 20;

/// More workers than this decode faster than one thread writes.
const WORKERS_MAX: usize = 16;

/// Runs that wait until somebody takes them, for each job.
const RUNS_MAX: usize = 2;

/// A run of bytes of a file.
pub(super) enum Run {
    Data(Vec<u8>),
    /// So many zeros.
    Hole(u64),
}

/// The runs of a part of a file, in order; the last one may be an error.
pub(super) type Runs = Receiver<Result<Run>>;

struct Job {
    inode: Arc<Inode>,
    part: Range<u64>,
    runs: Sender<Result<Run>>,
}

/// A place to ask for content.
pub(super) struct Decoding {
    jobs: Sender<Job>,
    jobs_max: usize,
}

/// Lets `walk` ask as many workers as are wanted, within reason.
pub(super) fn with_decoding<R>(
    image: &Image,
    workers: usize,
    walk: impl FnOnce(Decoding) -> R,
) -> R {
    let workers = workers.clamp(1, WORKERS_MAX);
    let jobs_max = 2 * workers;
    let (sender, jobs) = crossbeam_channel::bounded(jobs_max);
    std::thread::scope(|scope| {
        for _ in 0..workers {
            let jobs = jobs.clone();
            scope.spawn(move || work(image, jobs));
        }
        drop(jobs);
        walk(Decoding {
            jobs: sender,
            jobs_max,
        })
    })
}

impl Decoding {
    /// Tells whether some of so many parts must be taken before more is asked for.
    pub(super) const fn is_full(&self, parts: usize) -> bool {
        parts >= self.jobs_max
    }

    /// Asks for a part of a file.
    pub(super) fn ask(&self, inode: &Arc<Inode>, part: Range<u64>) -> Runs {
        let (sender, runs) = crossbeam_channel::bounded(RUNS_MAX);
        let job = Job {
            inode: inode.clone(),
            part,
            runs: sender,
        };
        // Nobody receives only if every worker panicked, and then so will their scope.
        let _ = self.jobs.send(job);
        runs
    }
}

/// The parts of a segment of a file, side by side.
pub(super) fn parts(segment: Range<u64>) -> impl Iterator<Item = Range<u64>> {
    let count = (segment.end - segment.start).div_ceil(PART_BYTES);
    (0..count).map(move |part| {
        let start = segment.start + part * PART_BYTES;
        start..segment.end.min(start.saturating_add(PART_BYTES))
    })
}

/// The end of a job.
enum Stop {
    Error(Error),
    /// Nobody wants the rest.
    Unwanted,
}

impl From<Error> for Stop {
    fn from(error: Error) -> Self {
        Self::Error(error)
    }
}

fn work(image: &Image, jobs: Receiver<Job>) {
    let mut reader = PartReader::new(image);
    for Job { inode, part, runs } in jobs {
        let hand_over = |_, piece: Piece<'_>| {
            let run = match piece {
                Piece::Data(data) => Run::Data(data.to_vec()),
                Piece::Hole(len) => Run::Hole(len),
            };
            runs.send(Ok(run)).map_err(|_| Stop::Unwanted)
        };
        if let Err(Stop::Error(error)) = reader.read(&inode, &part, hand_over) {
            let _ = runs.send(Err(error));
        }
    }
}
