//! Blocks on their way to the device.
//!
//! A block that has got its place is part of the state's batch, and readers find it there. Batches are *handed over* with
//! the state's lock held, as jobs with rising numbers, and written without it: by a thread of its own if there is one, and
//! by whoever has to wait for them. A job is found by readers until the device has taken it.
//!
//! The lock in here is the innermost one: nothing else is locked, and nothing is written, while it is held.
//!
//! Invariant L8 of `docs/design/log.md`: after a flush that failed, no later one is taken for it.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::io::{self, IoSlice};
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};

use anteros_core::{FsError, FsResult, WritableDevice, unpoisoned};

use crate::layout::{BLOCK_BYTES, Block};

/// The most blocks of a job: small enough for two to share the work, large enough for a device.
const JOB_BLOCKS: usize = 256;

/// Blocks of a run that begins to leave the cache in front of the device at once: no flush will wait for all of it.
const LONG_RUN: usize = 64;

/// Blocks that have their places and were not handed over, by these.
pub(crate) type Batch = BTreeMap<u64, Arc<Block>>;

/// Neighbours, and others, by rising places.
struct Job {
    number: u64,
    /// Tells whether a group has it: whoever syncs waits for it, and for no others.
    is_of_group: bool,
    blocks: Vec<(u64, Arc<Block>)>,
}

impl Job {
    fn within(&self, places: &Range<u64>) -> &[(u64, Arc<Block>)] {
        let at = |place: u64| self.blocks.partition_point(|(other, _)| *other < place);
        &self.blocks[at(places.start)..at(places.end)]
    }

    /// Writes all of it, neighbours together.
    fn send(&self, device: &dyn WritableDevice) -> io::Result<()> {
        for run in self
            .blocks
            .chunk_by(|(left, _), (right, _)| left + 1 == *right)
        {
            let slices: Vec<_> = run
                .iter()
                .map(|(_, block)| IoSlice::new(&**block))
                .collect();
            let (offset, len) = (run[0].0 * BLOCK_BYTES as u64, run.len() * BLOCK_BYTES);
            device.write_vectored_at(offset, &slices)?;
            if run.len() >= LONG_RUN {
                device.begin_writing(offset, len as u64);
            }
        }
        Ok(())
    }
}

#[derive(Default)]
struct Queue {
    /// Jobs that nobody has begun, the oldest first.
    waiting: VecDeque<Arc<Job>>,
    /// Jobs that are being written.
    begun: Vec<Arc<Job>>,
    /// The number of the next job.
    next: u64,
    /// Places whose blocks the device did not take: what lies there is something else.
    lost: BTreeSet<u64>,
    /// Holds what the device said first.
    failure: Option<String>,
    is_ending: bool,
}

impl Queue {
    fn jobs(&self) -> impl Iterator<Item = &Arc<Job>> {
        self.begun.iter().chain(&self.waiting)
    }

    /// Returns whether a job that is wanted has not come to its end.
    fn has(&self, is_wanted: impl Fn(&Job) -> bool) -> bool {
        self.jobs().any(|job| is_wanted(job))
    }
}

/// Takes blocks to the device.
pub(crate) struct Writer {
    device: Arc<dyn WritableDevice>,
    queue: Mutex<Queue>,
    /// There is a job to begin, or it is time to end.
    is_needed: Condvar,
    /// A job has come to its end.
    has_ended: Condvar,
    /// Blocks of the jobs that have not come to their end.
    blocks: AtomicUsize,
    /// Bytes that the device has taken.
    taken: AtomicU64,
    has_failed: AtomicBool,
}

impl Writer {
    pub(crate) fn new(device: Arc<dyn WritableDevice>) -> Self {
        Self {
            device,
            queue: Mutex::default(),
            is_needed: Condvar::new(),
            has_ended: Condvar::new(),
            blocks: AtomicUsize::new(0),
            taken: AtomicU64::new(0),
            has_failed: AtomicBool::new(false),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Queue> {
        // No panic can leave it half changed.
        unpoisoned(self.queue.lock())
    }

    /// Takes a batch over, of a group or not, and says below which number the jobs are that it and all before became.
    pub(crate) fn hand_over(&self, batch: &mut Batch, is_of_group: bool) -> u64 {
        let mut blocks = std::mem::take(batch).into_iter().peekable();
        let mut queue = self.lock();
        while blocks.peek().is_some() {
            let blocks: Vec<_> = blocks.by_ref().take(JOB_BLOCKS).collect();
            self.blocks.fetch_add(blocks.len(), Ordering::Relaxed);
            let number = queue.next;
            queue.next += 1;
            queue.waiting.push_back(Arc::new(Job {
                number,
                is_of_group,
                blocks,
            }));
        }
        queue.next
    }

    /// Has the thread begin with what was handed over.
    pub(crate) fn wake(&self) {
        self.is_needed.notify_one();
    }

    /// Blocks that were handed over, and that the device has not taken.
    pub(crate) fn blocks(&self) -> usize {
        self.blocks.load(Ordering::Acquire)
    }

    /// Bytes that the device has taken, durable or not.
    pub(crate) fn taken(&self) -> u64 {
        self.taken.load(Ordering::Relaxed)
    }

    /// Calls `visit` for each block that was handed over for one of these places, and that the device has not taken.
    ///
    /// # Errors
    ///
    /// When it did not take one of them.
    pub(crate) fn visit(
        &self,
        places: Range<u64>,
        mut visit: impl FnMut(u64, &Arc<Block>),
    ) -> FsResult<()> {
        if self.blocks() == 0 && !self.has_failed.load(Ordering::Acquire) {
            return Ok(());
        }
        let queue = self.lock();
        if let Some(place) = queue.lost.range(places.clone()).next() {
            return Err(FsError::Io(io::Error::other(format!(
                "block {place} could not be written"
            ))));
        }
        for (place, block) in queue.jobs().flat_map(|job| job.within(&places)) {
            visit(*place, block);
        }
        Ok(())
    }

    /// Returns when all jobs below this number have come to their ends; begins those that nobody has begun.
    ///
    /// # Errors
    ///
    /// When the device failed, with these or before.
    pub(crate) fn finish(&self, end: u64) -> FsResult<()> {
        drop(self.finish_those(|job| job.number < end));
        self.failure().map_or(Ok(()), Err)
    }

    /// Returns when those of groups among all jobs below this number have come to their ends, and says whether the others
    /// have as well, which are left to whoever comes to that.
    ///
    /// # Errors
    ///
    /// When the device failed, with these or before.
    pub(crate) fn finish_groups(&self, end: u64) -> FsResult<bool> {
        let queue = self.finish_those(|job| job.number < end && job.is_of_group);
        let is_all = !queue.has(|job| job.number < end);
        drop(queue);
        self.failure().map_or(Ok(is_all), Err)
    }

    fn finish_those(&self, is_wanted: impl Fn(&Job) -> bool) -> MutexGuard<'_, Queue> {
        let mut queue = self.lock();
        while queue.has(&is_wanted) {
            queue = match queue.waiting.iter().position(|job| is_wanted(job)) {
                Some(at) => self.work(queue, at),
                None => unpoisoned(self.has_ended.wait(queue)),
            };
        }
        queue
    }

    /// Returns when no more than so many blocks are on their way.
    pub(crate) fn relieve(&self, blocks_max: usize) {
        let mut queue = self.lock();
        while self.blocks() > blocks_max {
            queue = match queue.waiting.is_empty() {
                false => self.work(queue, 0),
                true => unpoisoned(self.has_ended.wait(queue)),
            };
        }
    }

    /// Writes what is handed over until [`end`](Self::end) is called and all of it is written, but for what belongs to groups:
    /// whoever syncs is there already, and does so itself.
    pub(crate) fn run(&self) {
        let mut queue = self.lock();
        loop {
            queue = match queue.waiting.iter().position(|job| !job.is_of_group) {
                Some(at) => self.work(queue, at),
                None if queue.is_ending => return,
                None => unpoisoned(self.is_needed.wait(queue)),
            };
        }
    }

    pub(crate) fn end(&self) {
        self.lock().is_ending = true;
        self.is_needed.notify_one();
    }

    /// Writes the job at this place among those that wait.
    fn work<'a>(&'a self, mut queue: MutexGuard<'a, Queue>, at: usize) -> MutexGuard<'a, Queue> {
        let Some(job) = queue.waiting.remove(at) else {
            return queue;
        };
        queue.begun.push(job.clone());
        drop(queue);
        let sent = job.send(&*self.device);
        let mut queue = self.lock();
        if let Err(error) = sent {
            // Some may have arrived; which ones nobody knows.
            queue.lost.extend(job.blocks.iter().map(|(place, _)| place));
            queue.failure.get_or_insert_with(|| error.to_string());
            self.has_failed.store(true, Ordering::Release);
        }
        queue.begun.retain(|other| other.number != job.number);
        let bytes = job.blocks.len() * BLOCK_BYTES;
        self.taken.fetch_add(bytes as u64, Ordering::Relaxed);
        self.blocks.fetch_sub(job.blocks.len(), Ordering::Release);
        self.has_ended.notify_all();
        queue
    }

    /// Returns what the device said, if it did not take something.
    pub(crate) fn failure(&self) -> Option<FsError> {
        if !self.has_failed.load(Ordering::Acquire) {
            return None;
        }
        let failure = self.lock().failure.clone()?;
        Some(FsError::Io(io::Error::other(failure)))
    }
}
