//! Gain of a compression in the background, found out step by step: between the steps, others use the log. Nothing is changed.

use anteros_core::{FsError, FsResult, Ino};

use crate::cleaning::compact::{Compacted, Suits};
use crate::cleaning::estimate::{Estimate, Trial};
use crate::cleaning::launches::FileReads;
use crate::cleaning::order::Window;
use crate::mount::compact::{LOOKED_AT, Wanted, step};
use crate::mount::log::Log;
use crate::mount::work::{Batch, Work};

impl Log {
    /// Tells what [`compact`](Self::compact) would make of files, by compressing their windows and writing none of them: the
    /// first of each `stride` windows of a class. Neither content nor inodes are changed, and no file is taken for one that was
    /// looked at. `goes_on` is asked before each step, and if it says no, the estimate is of what was looked at until then.
    ///
    /// # Errors
    ///
    /// When nothing may be compressed ([`Policy::None`](crate::Policy::None)), or metadata cannot be read.
    pub fn estimate(
        &self,
        files: &[Ino],
        reads: impl Fn(Ino) -> Option<FileReads>,
        stride: u64,
        goes_on: impl FnMut(&Compacted) -> bool,
    ) -> FsResult<Estimate> {
        let mut work = Work::new(self, goes_on, None);
        let mut trial = Trial::new(stride);
        let mut wanted = self.sort(files, reads, &mut work, |state, ino, suits| {
            if suits != Suits::NoFile {
                state.note_file(ino, &mut trial)?;
            }
            state.shrink();
            Ok(())
        })?;
        self.count_kinds(&mut trial)?;
        let mut batch = Batch::default();
        batch.add(self.lock().sample(wanted.launched(), &mut trial)?);
        if self.try_batch(&mut batch, &mut trial, &mut work)? {
            self.try_rest(&wanted, &mut trial, &mut work)?;
        }
        trial.estimate.warnings.append(&mut work.done.warnings);
        Ok(trial.estimate)
    }

    /// Counts how all files lie.
    fn count_kinds(&self, trial: &mut Trial) -> FsResult<()> {
        let Trial {
            kinds, estimate, ..
        } = trial;
        for (&ino, &kind) in &*kinds {
            match self.count_file(ino, kind, &mut estimate.usage) {
                Err(FsError::NotFound) => {}
                counted => counted?,
            }
        }
        Ok(())
    }

    /// Looks at what no launch has read.
    fn try_rest(
        &self,
        wanted: &Wanted,
        trial: &mut Trial,
        work: &mut Work<'_, impl FnMut(&Compacted) -> bool>,
    ) -> FsResult<()> {
        let mut batch = Batch::default();
        for rest in &wanted.rest {
            let read = wanted.read_of(rest);
            match self.try_file(rest.ino, &read, &mut batch, trial, work) {
                Ok(false) => return Ok(()),
                Ok(true) | Err(FsError::NotFound) => {}
                Err(error) => return Err(error),
            }
        }
        self.try_batch(&mut batch, trial, work).map(drop)
    }

    /// Adds windows of a file that no launch has read, and looks at them as soon as there are enough. Says whether that came to
    /// its end.
    fn try_file(
        &self,
        ino: u32,
        read: &[u32],
        batch: &mut Batch,
        trial: &mut Trial,
        work: &mut Work<'_, impl FnMut(&Compacted) -> bool>,
    ) -> FsResult<bool> {
        let (end, file) = self.look_at(ino)?;
        if file.is_none() {
            work.done.passed += u64::from(end);
            return Ok(true);
        }
        for from in (0..end).step_by(LOOKED_AT as usize) {
            let until = end.min(from + LOOKED_AT);
            let mut state = self.lock();
            let windows = state.rest_windows(ino, from..until, read, work.share_of_rest(read))?;
            batch.add(state.sample(windows, trial)?);
            state.shrink();
            drop(state);
            work.done.passed += u64::from(until - from);
            if batch.is_full() && !self.try_batch(batch, trial, work)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Compresses the windows of a batch, and counts what they would take. Says whether all of them had their turn.
    fn try_batch(
        &self,
        batch: &mut Batch,
        trial: &mut Trial,
        work: &mut Work<'_, impl FnMut(&Compacted) -> bool>,
    ) -> FsResult<bool> {
        let Batch { windows, .. } = std::mem::take(batch);
        let mut rest = &windows[..];
        while !rest.is_empty() {
            let (now, later) = step(rest);
            if !work.goes_on() || !self.try_step(now, trial, work)? {
                return Ok(false);
            }
            rest = later;
        }
        Ok(true)
    }

    fn try_step(
        &self,
        windows: &[Window],
        trial: &mut Trial,
        work: &mut Work<'_, impl FnMut(&Compacted) -> bool>,
    ) -> FsResult<bool> {
        let taken = self.read_windows(&mut work.done, |state, done| {
            state.find_windows(windows, done)
        })?;
        let Some(pressed) = work.compress(taken) else {
            return Ok(false);
        };
        let mut state = self.lock();
        for pressed in &pressed {
            match state.weigh(pressed, trial) {
                Err(FsError::NotFound) => {}
                weighed => weighed?,
            }
        }
        state.shrink();
        Ok(true)
    }
}
