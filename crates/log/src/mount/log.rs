//! A mounted log, as its users see it.
//!
//! One lock, that of the state, covers all that changes. What may take long happens outside of it: reading content from
//! the device, under a second lock that keeps segments from being filled anew meanwhile; writing, see [`Writer`]; and
//! flushing, which whoever comes first does for all who wait. Locks are taken in this order: that of
//! the flush, that of the turn, the state, that of the readers, the writer's, that of what is read ahead. That
//! of the launches is taken alone, that of the files to be compressed, and that of files ahead, alone or last.

use std::collections::BTreeSet;
use std::io;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, RwLock};
use std::thread::{self, JoinHandle};

use anteros_core::{FilesAhead, FsError, FsResult, Ino, WritableDevice, unpoisoned};

use crate::compress::policy::Policy;
use crate::durable::Durable;
use crate::durable::recover::{self, Recovery};
use crate::error::LogError;
use crate::files::read::{PackedRun, Plan};
use crate::layout::{BLOCK_BYTES, packed};
use crate::mount::blocks::Blocks;
use crate::mount::preparing::Preparing;
use crate::mount::recording::Recording;
use crate::mount::speed::Speed;
use crate::mount::state::State;
use crate::options::Options;
use crate::packing::unpack;
use crate::statistics::{Class, ClassStatistics, Statistics};
use crate::store::ahead::Ahead;
use crate::store::medium::{BLOCK, vanished};
use crate::store::victim::VictimPolicy;
use crate::store::writer::Writer;

/// Hears of an inode whose content is not what was read of it.
type Forget = Box<dyn Fn(Ino) + Send + Sync>;

/// A log that was opened, and what was found.
type Opened = Result<(Durable, Recovery), LogError>;

/// Bytes read, by class.
type Reads = [ClassStatistics; Class::ALL.len()];

/// A mounted log.
pub struct Log {
    pub(crate) device: Arc<dyn WritableDevice>,
    state: Mutex<State>,
    /// Held by whoever is to have the state next, while it waits.
    turn: Mutex<()>,
    pub(crate) writer: Arc<Writer>,
    /// Writes what was handed over; see [`Options::writes_behind`].
    pub(super) thread: Option<JoinHandle<()>>,
    /// See [`Store::leaving_max`](crate::store::Store::leaving_max).
    pub(super) leaving_max: usize,
    /// See [`Store::reading`](crate::store::Store::reading).
    pub(crate) reading: Arc<RwLock<()>>,
    /// Blocks to read ahead.
    pub(crate) ahead: Arc<Ahead>,
    /// Tells whether there is a consumer of blocks read ahead.
    pub(crate) prefetches: AtomicBool,
    /// Files that a reader of a tree will ask for next.
    pub(super) files_ahead: FilesAhead,
    /// Held by whoever flushes.
    flushing: Mutex<Speed>,
    /// Held by whoever gives back what large inodes held that are gone.
    pub(crate) reclaiming: Mutex<()>,
    /// Calls that asked for durability, and flushes that were made for them.
    syncs: AtomicU64,
    flushes: AtomicU64,
    /// Statistics of compressed content that was read without the lock of the state. Its holder never waits.
    reads: Mutex<Reads>,
    /// Changes that were asked for.
    pub(super) changes: AtomicU64,
    /// Number of changes at the last call of [`Log::tend`].
    changes_seen: AtomicU64,
    /// Blocks that a [scrub](crate::mount::scrub) has read.
    pub(crate) scrubbed: AtomicU64,
    recovery: Recovery,
    is_read_only: bool,
    /// Blocks that programs read when they start, if launches are recorded.
    pub(super) launches: OnceLock<Recording>,
    /// Compression before writeback.
    pub(crate) preparing: Preparing,
    /// See [`Options::atomic_writes`].
    pub(crate) has_atomic_writes: bool,
    /// See [`Log::on_abort`].
    pub(crate) on_abort: OnceLock<Forget>,
}

/// Space and statistics of a log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Condition {
    /// Blocks that users may fill.
    pub capacity_blocks: u64,
    /// Blocks that are spoken for.
    pub used_blocks: u64,
    /// Segments in all.
    pub segments: u32,
    /// Segments that may be opened now.
    pub free_segments: u32,
    /// Segments that may be after the next checkpoint.
    pub prefree_segments: u32,
    /// Inodes.
    pub inodes: u32,
    /// Blocks that were read before anyone asked for them.
    pub prefetched_blocks: u64,
    /// Bytes of content that were given to whoever caches them, unasked.
    pub pushed_bytes: u64,
    /// Blocks that were read to find damage.
    pub scrubbed_blocks: u64,
    /// Bytes of memory for what could be elsewhere.
    pub memory_bytes: u64,
    /// Calls that asked for durability.
    pub syncs: u64,
    /// Flushes that were made for them.
    pub flushes: u64,
    /// Statistics of writes.
    pub statistics: Statistics,
}

/// Content that was read.
pub(super) struct ReadDone {
    /// Its bytes.
    pub(super) len: usize,
    /// Its pages that are compressed.
    pub(super) wanted: u64,
    /// Pages that were decoded for them.
    pub(super) decoded: u64,
}

impl Log {
    /// Opens the log on a device.
    ///
    /// # Errors
    ///
    /// When there is none, when it is damaged, or when it cannot be read.
    pub fn open(device: Arc<dyn WritableDevice>, options: Options) -> Result<Self, LogError> {
        Self::begin(device, options, recover::open)
    }

    /// Opens the log on a device, if need be [read-only](Self::is_read_only): where the device is full or fails, so that
    /// the log can be read and not be written to. One of its warnings tells so.
    ///
    /// # Errors
    ///
    /// As [`open`](Self::open), where it cannot be read.
    pub fn open_as_possible(
        device: Arc<dyn WritableDevice>,
        options: Options,
    ) -> Result<Self, LogError> {
        Self::begin(device, options, recover::open_as_possible)
    }

    fn begin(
        device: Arc<dyn WritableDevice>,
        options: Options,
        open: fn(Arc<dyn WritableDevice>, Options) -> Opened,
    ) -> Result<Self, LogError> {
        let has_atomic_writes = options.atomic_writes;
        let begins_thread = options.writes_behind && !options.read_only;
        let (mut state, recovery) = open(device.clone(), options)?;
        state.warn_of_own_record();
        let writer = state.store.writer().clone();
        let is_read_only = state.store.options().read_only;
        let thread = (begins_thread && !is_read_only)
            .then(|| begin(writer.clone()))
            .transpose()?;
        Ok(Self {
            device,
            reading: state.store.reading(),
            ahead: state.store.ahead().clone(),
            prefetches: AtomicBool::new(false),
            files_ahead: FilesAhead::default(),
            flushing: Mutex::default(),
            leaving_max: state.store.leaving_max(),
            state: Mutex::new(State::new(state)),
            turn: Mutex::default(),
            writer,
            thread,
            reclaiming: Mutex::default(),
            syncs: AtomicU64::new(0),
            flushes: AtomicU64::new(0),
            reads: Mutex::default(),
            changes: AtomicU64::new(0),
            changes_seen: AtomicU64::new(0),
            scrubbed: AtomicU64::new(0),
            recovery,
            is_read_only,
            launches: OnceLock::new(),
            preparing: Preparing::default(),
            has_atomic_writes,
            on_abort: OnceLock::new(),
        })
    }

    /// Result of recovery at mount.
    pub fn recovery(&self) -> Recovery {
        self.recovery
    }

    /// Tells whether nothing can be changed from the beginning.
    pub fn is_read_only(&self) -> bool {
        self.is_read_only
    }

    /// Takes the lock of the state, behind whoever waits for it by [`lock_first`](Self::lock_first).
    pub(crate) fn lock(&self) -> MutexGuard<'_, State> {
        drop(unpoisoned(self.turn.lock()));
        self.lock_state()
    }

    /// Takes the lock of the state as soon as whoever has it gives it away: for what is short, and somebody waits for it. Of
    /// itself, a lock goes to whoever comes at the right moment, as those do who write all the time.
    pub(super) fn lock_first(&self) -> MutexGuard<'_, State> {
        let _turn = unpoisoned(self.turn.lock());
        self.lock_state()
    }

    fn lock_state(&self) -> MutexGuard<'_, State> {
        // A panic in between leaves the state as it was found on the way: nothing is written any more.
        let mut state = self.state.lock().unwrap_or_else(|poisoned| {
            let mut state = poisoned.into_inner();
            state.store.fail("a thread panicked", &FsError::ReadOnly);
            state
        });
        state.store.note_failure();
        state
    }

    /// Reads content; see [`plan_read`](crate::files::Files::plan_read).
    pub(super) fn read_content(
        &self,
        mut state: MutexGuard<'_, State>,
        ino: u32,
        offset: u64,
        buf: &mut [u8],
    ) -> FsResult<ReadDone> {
        state.shrink();
        let plan = state.plan_read(ino, offset, buf)?;
        state.evict();
        let _reading = unpoisoned(self.reading.read());
        drop(state);
        for run in &plan.runs {
            let read = |offset, buf: &mut [u8]| self.read_device(&plan, offset, buf);
            run.fill(read, buf)?;
        }
        Ok(ReadDone {
            len: plan.len,
            wanted: plan.packed.len() as u64,
            decoded: self.read_packed(&plan, buf)?,
        })
    }

    fn read_device(&self, plan: &Plan, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        match plan.alone {
            true => self.device.read_alone_at(offset, buf),
            false => self.device.read_at(offset, buf),
        }
    }

    /// Decodes each chunk once of which logical blocks are wanted that follow each other, and returns of how many pages these
    /// are.
    fn read_packed(&self, plan: &Plan, buf: &mut [u8]) -> FsResult<u64> {
        let runs = &plan.packed;
        let mut pages = 0;
        if runs.is_empty() {
            return Ok(pages);
        }
        let blocks = self.packed_blocks(plan)?;
        let mut done = ClassStatistics {
            read_blocks: blocks.iter().count() as u64,
            read_stored_pages: blocks.iter().map(packed::pages_in).sum(),
            read_pages: runs.len() as u64,
            ..ClassStatistics::default()
        };
        for runs in runs.chunk_by(PackedRun::is_one_chunk_with) {
            let read = |block| blocks.get(block).ok_or_else(vanished);
            let (chunk, took) = unpack::chunk(runs[0].owner, runs[0].at, read)?;
            runs.iter().for_each(|run| run.fill(&chunk, buf));
            done.decompressing += took;
            pages += (chunk.len() / BLOCK_BYTES) as u64;
        }
        self.reads()[plan.class as usize].add_reads(&done);
        Ok(pages)
    }

    fn reads(&self) -> MutexGuard<'_, Reads> {
        unpoisoned(self.reads.lock())
    }

    /// The blocks that chunks lie in, those that are near each other by one read.
    fn packed_blocks(&self, plan: &Plan) -> FsResult<Blocks> {
        let runs = &plan.packed;
        let mut places: Vec<u64> = runs.iter().flat_map(|run| run.at.blocks()).collect();
        places.sort_unstable();
        places.dedup();
        let mut blocks = Blocks::default();
        for near in places.chunk_by(|left, right| left + BRIDGED > *right) {
            let (first, last) = (near[0], near[near.len() - 1]);
            self.read_near(first..last + 1, plan);
            let kept = near.iter().map_while(|&block| self.ahead.get(block));
            let kept: Vec<_> = near.iter().copied().zip(kept).collect();
            if kept.len() == near.len() {
                for (place, block) in kept {
                    blocks.push_kept(place, block);
                }
                continue;
            }
            let mut bytes = vec![0; (last + 1 - first) as usize * BLOCK_BYTES];
            self.read_device(plan, first * BLOCK, &mut bytes)?;
            blocks.push_read(first, bytes);
        }
        if self.prefetches.load(Ordering::Relaxed) {
            self.note_read(runs, &blocks);
        }
        Ok(blocks)
    }

    /// Reads blocks with those that are to be read ahead there anyway, if they were compressed in the background.
    fn read_near(&self, wanted: Range<u64>, plan: &Plan) {
        let mut near = plan.packed.iter().map(|run| &run.near);
        let is_near =
            |near: &&Range<u64>| near.contains(&wanted.start) && near.contains(&(wanted.end - 1));
        let near = near.find(is_near);
        if let Some(near) = near.filter(|_| self.prefetches.load(Ordering::Relaxed)) {
            let read = |first, bytes: &mut [u8]| self.read_device(plan, first * BLOCK, bytes);
            // What cannot be read may be one of the others.
            let _ = self.ahead.read(wanted, near, read);
        }
    }

    /// Has that read ahead which will be wanted behind these.
    fn note_read(&self, runs: &[PackedRun], blocks: &Blocks) {
        let runs: Vec<_> = runs.iter().filter(|run| !run.near.is_empty()).collect();
        if runs.is_empty() {
            return;
        }
        self.ahead.note_read(runs.iter().map(|run| run.owner));
        // Not those that were read with them: they may not have been written yet.
        let places: BTreeSet<u64> = runs.iter().flat_map(|run| run.at.blocks()).collect();
        for place in places {
            if let Some(block) = blocks.get(place) {
                self.ahead.keep(place, &block[..]);
            }
        }
        for near in runs.chunk_by(|left, right| {
            (*left.at.blocks().start()..left.at.blocks().end() + BRIDGED).contains(&right.at.block)
        }) {
            let (first, last) = (near[0].at.block, *near[near.len() - 1].at.blocks().end());
            self.ahead.note(first..last + 1, near[0].near.end);
        }
    }

    /// Makes the content of these inodes durable, and all changes of names and attributes.
    pub(crate) fn sync_inodes(&self, inos: &[u32]) -> FsResult<()> {
        self.prepare_sync(inos);
        self.sync_with(|state| state.commit(inos))
    }

    /// Makes the group durable that `commit` writes, or names.
    pub(crate) fn sync_with(
        &self,
        commit: impl FnOnce(&mut State) -> FsResult<u64>,
    ) -> FsResult<()> {
        let (sequence, end) = self.commit_first(commit)?;
        if !self.writer.finish_groups(end)? {
            self.writer.wake();
        }
        let sequence = sequence?;
        self.syncs.fetch_add(1, Ordering::Relaxed);
        self.make_durable(sequence)
    }

    /// Waits until a group is on the device; one flush serves all who wait.
    fn make_durable(&self, sequence: u64) -> FsResult<()> {
        self.flush_unless(|state| state.groups.has(sequence))
    }

    /// Flushes the device, unless that is not needed.
    pub(crate) fn flush_unless(&self, is_done: impl FnOnce(&State) -> bool) -> FsResult<()> {
        let mut speed = unpoisoned(self.flushing.lock());
        let (written, epoch, end) = {
            let mut state = self.lock_first();
            // Somebody else's flush, or a checkpoint, may have come before us.
            if is_done(&state) {
                return Ok(());
            }
            // A flush that has failed is not made good by another one.
            if let Some(why) = state.store.failed() {
                return Err(FsError::Io(io::Error::other(why.clone())));
            }
            (
                state.groups.sequence(),
                state.store.flushing(),
                state.store.hand_over(),
            )
        };
        // Of those before as well: they count together. What belongs to none is waited for where a group names it.
        let is_all = self.writer.finish_groups(end)?;
        self.flushes.fetch_add(1, Ordering::Relaxed);
        let flushed = speed.time(self.writer.taken(), || self.device.flush());
        let flushed = flushed.map_err(FsError::Io);
        self.preparing.note_speed(speed.is_slow());
        let mut state = self.lock_first();
        if let Err(error) = &flushed {
            state.store.fail("the device could not be flushed", error);
        }
        flushed?;
        if is_all {
            state.store.flushed(epoch);
        }
        state.groups.reached(written);
        Ok(())
    }

    /// Bytes that the device has taken since the last flush for a sync; `None` while somebody flushes.
    pub(crate) fn unflushed_bytes(&self) -> Option<u64> {
        let speed = self.flushing.try_lock().ok()?;
        Some(speed.unflushed(self.writer.taken()))
    }

    /// Returns whether content may be compressed.
    pub fn compresses(&self) -> bool {
        self.lock().store.options().policy != Policy::None
    }

    /// Makes everything durable.
    ///
    /// # Errors
    ///
    /// When the device fails; then nothing can be changed any more.
    pub fn sync(&self) -> FsResult<()> {
        let inos = self.lock().changed_inos();
        self.sync_inodes(&inos)
    }

    /// Writes a checkpoint, if anything has changed since the last one.
    ///
    /// # Errors
    ///
    /// When the device fails; then nothing can be changed any more.
    pub fn checkpoint(&self) -> FsResult<()> {
        if self.is_read_only {
            return Ok(());
        }
        self.prepare_all();
        let mut state = self.lock();
        state.store.check_writable()?;
        match state.is_settled() {
            true => Ok(()),
            false => state.checkpoint(false),
        }
    }

    /// Writes the last checkpoint: the next mount has nothing to replay.
    ///
    /// # Errors
    ///
    /// When the device fails, or has failed before.
    pub fn close(&self) -> FsResult<()> {
        self.prepare_all();
        let mut state = self.lock();
        if state.store.options().read_only {
            return Ok(());
        }
        if let Some(why) = state.store.failed() {
            return Err(FsError::Io(io::Error::other(why.clone())));
        }
        state.checkpoint(true)
    }

    /// Does what is due: a checkpoint when the last one is old, some cleaning when nobody has changed anything since
    /// this was called last and free segments are few. To be called every second or so.
    ///
    /// # Errors
    ///
    /// When the device fails, or the log is damaged; then nothing can be changed any more.
    pub fn tend(&self) -> FsResult<()> {
        let changes = self.changes.load(Ordering::Relaxed);
        let is_idle = self.changes_seen.swap(changes, Ordering::Relaxed) == changes;
        self.reclaim()?;
        let mut state = self.lock();
        state.store.check_writable()?;
        if is_idle
            && state.store.segments().free_count() < state.store.segments().count() / IDLE_FREE
        {
            for _ in 0..CLEANED_AT_ONCE {
                state.clean_safely(VictimPolicy::Idle)?;
            }
        }
        let interval =
            i64::try_from(state.store.options().checkpoint_interval.as_secs()).unwrap_or(i64::MAX);
        let is_due = state
            .store
            .now()
            .secs
            .saturating_sub(state.groups.checkpoint_time().secs)
            >= interval;
        if !is_due || state.is_settled() {
            return Ok(());
        }
        drop(state);
        self.checkpoint()
    }

    /// Tells whether whoever writes will soon wait for the device.
    pub(crate) fn is_device_behind(&self) -> bool {
        self.writer.blocks() > self.leaving_max / 2
    }

    /// The UUID.
    pub fn uuid(&self) -> [u8; 16] {
        self.lock().store.superblock().uuid
    }

    /// Returns the space that is used, and statistics since the mount.
    pub fn condition(&self) -> Condition {
        let state = self.lock();
        let mut statistics = *state.store.statistics();
        for (class, reads) in Class::ALL.into_iter().zip(&*self.reads()) {
            statistics.class_mut(class).add_reads(reads);
        }
        Condition {
            capacity_blocks: state.store.space().capacity(),
            used_blocks: state.store.space().used(),
            segments: state.store.segments().count(),
            free_segments: state.store.segments().free_count(),
            prefree_segments: state.store.segments().prefree_count(),
            inodes: state.nodes.inode_count(),
            prefetched_blocks: self.ahead.blocks.load(Ordering::Relaxed),
            pushed_bytes: self.ahead.pushed_bytes.load(Ordering::Relaxed),
            scrubbed_blocks: self.scrubbed.load(Ordering::Relaxed),
            memory_bytes: state.cached_bytes() as u64,
            syncs: self.syncs.load(Ordering::Relaxed),
            flushes: self.flushes.load(Ordering::Relaxed),
            statistics,
        }
    }

    /// Takes the warnings since the last call. They hinder nothing else.
    pub fn take_warnings(&self) -> Vec<String> {
        self.lock().take_warnings()
    }

    /// Why nothing can be changed any more, if so.
    pub fn failure(&self) -> Option<String> {
        self.lock().store.failed().cloned()
    }
}

/// Begins the thread that writes.
fn begin(writer: Arc<Writer>) -> io::Result<JoinHandle<()>> {
    thread::Builder::new()
        .name("log-writer".into())
        .spawn(move || writer.run())
}

impl Drop for Log {
    fn drop(&mut self) {
        self.ahead.end();
        if let Some(thread) = self.thread.take() {
            self.writer.end();
            let _ = thread.join();
        }
    }
}

/// Blocks nearer to each other than this are read by one request, with what lies between them.
const BRIDGED: u64 = 8;

/// Idle cleaning starts when fewer than one in this many segments is free.
const IDLE_FREE: u32 = 5;

/// Segments that are cleaned before others have their turn.
const CLEANED_AT_ONCE: u32 = 2;

#[cfg(test)]
mod tests {
    use anteros_core::{Caller, FileSystem, MemoryDevice, New, OpenFile, Writable};

    use super::*;
    use crate::{Shape, mkfs, system_clock};

    fn opened(memory_bytes: usize) -> Log {
        let device: Arc<dyn WritableDevice> = Arc::new(MemoryDevice::new(vec![0; 32 << 20]));
        let options = Options {
            memory_bytes,
            ..Options::new(system_clock)
        };
        mkfs(&device, &Shape::default(), Caller::default(), &options).unwrap();
        Log::open(device, options).unwrap()
    }

    fn create(log: &Log, name: &[u8]) -> OpenFile {
        let new = New {
            parent: log.root(),
            name,
            mode: 0o100_644,
            umask: 0,
            caller: Caller::default(),
        };
        let (attr, handle) = log.create(&new, 0).unwrap();
        let ino = attr.ino;
        OpenFile { ino, handle }
    }

    #[test]
    fn memory_that_is_short_is_left_to_whoever_writes() {
        let log = opened(1 << 20);
        let (small, large) = (create(&log, b"small"), create(&log, b"large"));
        log.write(small, 0, b"a row", false).unwrap();
        log.write(large, 0, &vec![1; 320 << 10], false).unwrap();
        let is_short = || {
            let state = log.lock();
            state.store.dirty_pages() > state.store.dirty_max()
        };
        assert!(is_short());
        log.fsync(small, false).unwrap();
        assert!(is_short());
        log.write(small, 0, b"another", false).unwrap();
        assert!(!is_short());
    }

    #[test]
    fn the_state_goes_to_whoever_is_to_have_it_next() {
        let log = opened(8 << 20);
        let order = Mutex::new(Vec::new());
        thread::scope(|scope| {
            let state = log.lock();
            scope.spawn(|| {
                let _state = log.lock_first();
                order.lock().unwrap().push("first");
            });
            while log.turn.try_lock().is_ok() {
                thread::yield_now();
            }
            drop(state);
            let _state = log.lock();
            order.lock().unwrap().push("then");
        });
        assert_eq!(order.into_inner().unwrap(), ["first", "then"]);
    }
}
