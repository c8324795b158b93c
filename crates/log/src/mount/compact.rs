//! Compression in the background, step by step: between the steps, others use the log.

use std::collections::HashSet;

use anteros_core::{FsError, FsResult, Ino, unpoisoned};

use crate::cleaning::compact::{Compacted, STEP_BLOCKS, Suits, Taken, Unsettled};
use crate::cleaning::launches::FileReads;
use crate::cleaning::order::{Share, Stop, Turn, Window, launch_windows};
use crate::mount::log::Log;
use crate::mount::state::State;
use crate::mount::work::{Batch, Work};

/// Logical blocks of a file that are looked at at once: 16 MiB.
pub(super) const LOOKED_AT: u32 = 1 << 12;

/// Marks of a trail that are followed at once.
const MARKS: usize = 128;

/// Times that a window is taken whose content changes while it is compressed.
const TRIES: usize = 3;

/// A file of which what no launch has read is compressed.
pub(super) struct Rest {
    pub(super) ino: u32,
    /// Its number among those that launches read.
    launched: Option<usize>,
}

/// Files to compress, and their use by launches.
#[derive(Default)]
pub(super) struct Wanted {
    /// Files that launches read.
    launched: Vec<(u32, FileReads)>,
    pub(super) rest: Vec<Rest>,
    trail: Vec<Stop>,
}

impl Wanted {
    /// The windows that launches read, those that only one did last. The trail leads to all of them.
    pub(super) fn launched(&mut self) -> Vec<Window> {
        let again = launch_windows(self.launched.iter(), Share::Again);
        let once = launch_windows(self.launched.iter(), Share::Once);
        let (windows, stops) = with_stops(again.into_iter().chain(once));
        self.trail.extend(stops);
        windows
    }

    fn add(&mut self, ino: u32, suits: Suits, reads: FileReads) {
        // Whoever reads all files once is no program that starts.
        let is_launched = match suits {
            Suits::Executable => !(reads.core.is_empty() && reads.other.is_empty()),
            Suits::Other | Suits::No => reads.rounds > 1,
            Suits::NoFile => false,
        };
        let launched = is_launched.then_some(self.launched.len());
        if is_launched {
            self.launched.push((ino, reads));
        }
        if suits.is_whole() {
            self.rest.push(Rest { ino, launched });
        }
    }

    /// The logical blocks of a file that launches read.
    pub(super) fn read_of(&self, rest: &Rest) -> Vec<u32> {
        let reads = rest.launched.and_then(|at| self.launched.get(at));
        let reads = reads
            .iter()
            .flat_map(|(_, reads)| reads.core.iter().chain(&reads.other));
        let mut read: Vec<u32> = reads.map(|read| read.lblk).collect();
        read.sort_unstable();
        read
    }
}

impl Log {
    /// Compresses files in the background. What launches read of them again and again is put together, first what most of them
    /// did, each in the order in which it was read; behind it comes what one read, and then all else, but for that of databases
    /// and journals. Whoever else uses the log has a turn after each 1 MiB, and while that is read and compressed; `goes_on` is asked before.
    ///
    /// # Errors
    ///
    /// When nothing may be compressed ([`Policy::None`](crate::Policy::None)), the device fails, or there is no room. What was done until then stays.
    pub fn compact(
        &self,
        files: &[Ino],
        reads: impl Fn(Ino) -> Option<FileReads>,
        goes_on: impl FnMut(&Compacted) -> bool,
    ) -> FsResult<Compacted> {
        let mut work = Work::new(self, goes_on, None);
        self.lock().store.check_writable()?;
        let mut wanted = self.sort(files, reads, &mut work, |state, ino, _| {
            state.repack(ino)?;
            self.relieve(state)
        })?;
        let first = wanted.launched();
        // A log that is almost full has room when the rest is done.
        let is_full = match self.compact_windows(&first, &mut work) {
            Ok(false) => return Ok(work.done),
            Ok(true) => false,
            Err(FsError::NoSpace) => true,
            Err(error) => return Err(error),
        };
        if !self.compact_rest(&wanted, &mut work)? {
            return Ok(work.done);
        }
        if is_full && !self.compact_windows(&first, &mut work)? {
            return Ok(work.done);
        }
        wanted.trail.sort_unstable();
        self.gather_nodes(&wanted.trail, &mut work)?;
        self.note_gathered(wanted.launched.iter().map(|(ino, _)| *ino));
        Ok(work.done)
    }

    /// Finds out what is asked for. `look` is called for each file that is there, with the lock held.
    pub(super) fn sort<G>(
        &self,
        files: &[Ino],
        reads: impl Fn(Ino) -> Option<FileReads>,
        work: &mut Work<'_, G>,
        mut look: impl FnMut(&mut State, u32, Suits) -> FsResult<()>,
    ) -> FsResult<Wanted> {
        let mut wanted = Wanted::default();
        for &file in files {
            let ino = u32::try_from(file.0).map_err(|_| FsError::NotFound)?;
            // The lock is not to be held while somebody is asked what was read.
            let mut state = self.lock();
            let (suits, blocks) = match state.suits(ino) {
                // It may be gone by now.
                Err(FsError::NotFound) => (Suits::No, 0),
                suits => (suits?, state.blocks_of(ino)?),
            };
            if suits.is_whole() {
                work.done.total += u64::from(blocks);
            }
            match look(&mut state, ino, suits) {
                Err(FsError::NotFound) => {}
                looked => looked?,
            }
            drop(state);
            let reads = reads(file);
            work.is_recorded |= reads.as_ref().is_some_and(|reads| !reads.is_unasked);
            let reads = reads.unwrap_or_default();
            let looked_up = reads.looked_up.map(|mark| (mark.into(), ino, None));
            wanted.trail.extend(looked_up);
            work.done.others += u64::from(suits == Suits::No);
            wanted.add(ino, suits, reads);
        }
        work.done.files = wanted.rest.len() as u64;
        Ok(wanted)
    }

    /// Compresses what no launch has read. Says whether it came to its end.
    fn compact_rest(
        &self,
        wanted: &Wanted,
        work: &mut Work<'_, impl FnMut(&Compacted) -> bool>,
    ) -> FsResult<bool> {
        let mut batch = Batch::default();
        for rest in &wanted.rest {
            match self.compact_file(rest.ino, &wanted.read_of(rest), &mut batch, work) {
                Err(FsError::NotFound) => {}
                goes_on => {
                    if !goes_on? {
                        return Ok(false);
                    }
                }
            }
        }
        self.compact_batch(&mut batch, work)
    }

    /// The logical blocks of a file, and the file as it is now if it is not settled.
    pub(super) fn look_at(&self, ino: u32) -> FsResult<(u32, Option<Unsettled>)> {
        let mut state = self.lock();
        let found = (state.blocks_of(ino)?, state.unsettled(ino)?);
        // Nobody else does so while one settled file follows the other.
        state.shrink();
        Ok(found)
    }

    /// Adds the windows of a file that no launch has read, and compresses as soon as there are enough. Says whether that came to
    /// its end.
    pub(super) fn compact_file(
        &self,
        ino: u32,
        read: &[u32],
        batch: &mut Batch,
        work: &mut Work<'_, impl FnMut(&Compacted) -> bool>,
    ) -> FsResult<bool> {
        let (end, file) = self.look_at(ino)?;
        let Some(file) = file else {
            work.done.passed += u64::from(end);
            return Ok(true);
        };
        let reached = work.reached.filter(|(begun, _)| *begun == file);
        let start = reached.map_or(0, |(_, start)| start);
        for from in (start..end).step_by(LOOKED_AT as usize) {
            let until = end.min(from + LOOKED_AT);
            let windows = {
                let mut state = self.lock();
                state.rest_windows(ino, from..until, read, work.share_of_rest(read))?
            };
            batch.add(windows);
            work.done.passed += u64::from(until - from);
            if batch.is_full() && !self.compact_batch(batch, work)? {
                work.reached = Some((file, from));
                return Ok(false);
            }
        }
        batch.ended.push(file);
        Ok(true)
    }

    /// Compresses the windows of a batch, and settles the files that end in it. Says whether it came to its end.
    pub(super) fn compact_batch(
        &self,
        batch: &mut Batch,
        work: &mut Work<'_, impl FnMut(&Compacted) -> bool>,
    ) -> FsResult<bool> {
        let Batch { windows, ended, .. } = std::mem::take(batch);
        let warned = work.done.warnings.len();
        if !self.compact_windows(&windows, work)? {
            return Ok(false);
        }
        if work.done.warnings.len() == warned {
            let mut state = self.lock();
            state.store.check_writable()?;
            for file in ended {
                state.note_settled(file)?;
            }
            self.relieve(&mut state)?;
        }
        Ok(true)
    }

    /// Writes what leads to the inodes that launches look up, and to the content that each of them reads, in that order, so that
    /// it lies together: directories, inodes, nodes with pointers.
    pub(super) fn gather_nodes(
        &self,
        trail: &[Stop],
        work: &mut Work<'_, impl FnMut(&Compacted) -> bool>,
    ) -> FsResult<()> {
        let mut gathered = HashSet::new();
        for marks in trail.chunks(MARKS) {
            if !work.goes_on() {
                break;
            }
            let mut state = self.lock();
            state.store.check_writable()?;
            let done = state.gather_step(marks, &mut gathered);
            state.store.submit()?;
            done?;
            state.shrink();
        }
        Ok(())
    }

    /// Says whether all of them had their turn.
    pub(super) fn compact_windows(
        &self,
        windows: &[Window],
        work: &mut Work<'_, impl FnMut(&Compacted) -> bool>,
    ) -> FsResult<bool> {
        let mut rest = windows;
        while !rest.is_empty() {
            if !work.goes_on() {
                return Ok(false);
            }
            let (now, later) = step(rest);
            if !self.compact_step(now.to_vec(), work)? {
                return Ok(false);
            }
            rest = later;
        }
        Ok(true)
    }

    /// Compresses windows, those again that change meanwhile. Says whether all of them had their turn.
    fn compact_step(
        &self,
        mut windows: Vec<Window>,
        work: &mut Work<'_, impl FnMut(&Compacted) -> bool>,
    ) -> FsResult<bool> {
        for _ in 0..TRIES {
            let taken = self.read_windows(&mut work.done, |state, done| {
                state.store.check_writable()?;
                state.take_windows(&windows, done)
            })?;
            let Some(pressed) = work.compress(taken) else {
                return Ok(false);
            };
            let mut state = self.lock();
            state.store.check_writable()?;
            let changed = state.place_windows(pressed, &mut work.done);
            let end = state.store.hand_over();
            state.shrink();
            drop(state);
            self.writer.finish(end)?;
            windows = changed?;
            if windows.is_empty() {
                break;
            }
        }
        Ok(true)
    }

    /// Reads windows that `find` finds.
    pub(super) fn read_windows(
        &self,
        done: &mut Compacted,
        find: impl FnOnce(&mut State, &mut Compacted) -> FsResult<Vec<Taken>>,
    ) -> FsResult<Vec<Taken>> {
        let mut state = self.lock();
        let taken = find(&mut state, done);
        let end = state.store.hand_over();
        state.shrink();
        // No segment is given back meanwhile.
        let reading = unpoisoned(self.reading.read());
        drop(state);
        self.writer.finish(end)?;
        let mut taken = taken?;
        taken.retain_mut(|taken| taken.read(&*self.device, done));
        drop(reading);
        Ok(taken)
    }
}

/// Windows in the order of launches, and the stops that lead to them.
pub(super) fn with_stops(
    ordered: impl Iterator<Item = (Turn, Window)>,
) -> (Vec<Window>, Vec<Stop>) {
    let stopped = ordered.map(|(turn, window)| {
        let stop = (turn, window.ino, Some(window.range.start));
        (window, stop)
    });
    stopped.unzip()
}

/// The first windows, as many as are looked at while others wait, and those behind them.
pub(super) fn step(windows: &[Window]) -> (&[Window], &[Window]) {
    let mut blocks = 0;
    let fits = |window: &&Window| {
        blocks += window.range.len();
        blocks <= STEP_BLOCKS
    };
    windows.split_at(windows.iter().take_while(fits).count())
}
