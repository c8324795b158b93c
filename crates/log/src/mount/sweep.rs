//! Compression in the background that nobody has asked for: of all files that nobody has changed for a while.
//!
//! The node address table is gone through block by block. A block in which no entry has changed since is passed: an inode whose
//! file has changed is written, and then its entry is another one. A file that is settled is passed as well, so that a mount
//! goes on where the last one ended.

#![deny(clippy::indexing_slicing)]

use std::time::Duration;

use anteros_core::{FsError, FsResult};

use crate::cleaning::compact::{Compacted, Ripe, Unsettled};
use crate::cleaning::launches::FileReads;
use crate::cleaning::order::{Share, launch_windows};
use crate::mount::compact::with_stops;
use crate::mount::log::Log;
use crate::mount::work::{Batch, Interrupted, Work};

/// Place that a sweep has come to.
#[derive(Debug, Default)]
pub struct Sweep {
    /// The next block of the node address table.
    table_block: u32,
    /// A file that was begun, and the logical block from which to go on.
    reached: Option<(Unsettled, u32)>,
}

/// End of the sweep of a part.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    Done,
    /// A file is to be looked at in a later round.
    Later,
    /// It is to be gone on with here.
    Stopped,
}

impl Log {
    /// Compresses files in the background that nobody has changed for as long as `cold`: those that lie in the next block of the
    /// node address table in which something has changed since the last sweep. `None` says that there is none: the round has
    /// ended, and the next call begins another one. Executables, and what launches read, are left to [`Log::compact`] while
    /// launches are recorded.
    ///
    /// `goes_on` is asked before each step of 1 MiB. `interrupted` is asked more often, between two windows of 128 KiB: it
    /// tells whether somebody else wants the machine. What earlier steps did stays. Threads that compress let all others go
    /// first.
    ///
    /// # Errors
    ///
    /// When nothing may be compressed ([`Policy::None`](crate::Policy::None)), the device fails, or there is no room. Content and
    /// inodes that cannot be read are warnings.
    pub fn sweep(
        &self,
        sweep: &mut Sweep,
        cold: Duration,
        goes_on: impl FnMut(&Compacted) -> bool,
        interrupted: Interrupted<'_>,
    ) -> FsResult<Option<Compacted>> {
        let Some(table_block) = self.next_unswept(sweep)? else {
            return Ok(None);
        };
        let mut work = Work::new(self, goes_on, Some(interrupted));
        work.reached = sweep.reached.take();
        let end = self.sweep_block(table_block, cold, &mut work);
        sweep.reached = work.reached.take();
        sweep.table_block = table_block + u32::from(!matches!(end, Ok(End::Stopped)));
        if !matches!(end, Ok(End::Done)) {
            self.lock().nodes.set_swept(table_block, false);
        }
        end.map(|_| Some(work.done))
    }

    /// Compresses what several launches have read of executables that nobody has changed for as long as `cold`, and puts it
    /// together, in the order in which they read it, as far as the log has [recorded](Self::remember_launches) it since it
    /// did so last. `None` says that there is nothing to do. What is interrupted begins anew next time. The others are as
    /// those of [`sweep`](Self::sweep).
    ///
    /// # Errors
    ///
    /// As those of [`sweep`](Self::sweep), but for want of room: then there is nothing to do.
    pub fn sweep_launched(
        &self,
        cold: Duration,
        goes_on: impl FnMut(&Compacted) -> bool,
        interrupted: Interrupted<'_>,
    ) -> FsResult<Option<Compacted>> {
        self.lock().store.check_writable()?;
        if self.records_launches() {
            return Ok(None);
        }
        let files = self.scattered(cold)?;
        if files.is_empty() {
            return Ok(None);
        }
        let mut work = Work::new(self, goes_on, Some(interrupted));
        work.done.files = files.len() as u64;
        match self.gather(&files, &mut work) {
            Err(FsError::NoSpace) => Ok(None),
            gathered => gathered.map(|()| Some(work.done)),
        }
    }

    fn gather(
        &self,
        files: &[(u32, FileReads)],
        work: &mut Work<'_, impl FnMut(&Compacted) -> bool>,
    ) -> FsResult<()> {
        let ordered = launch_windows(files.iter(), Share::Again);
        let (windows, mut trail) = with_stops(ordered.into_iter());
        if self.compact_windows(&windows, work)? {
            trail.sort_unstable();
            self.gather_nodes(&trail, work)?;
            self.note_gathered(files.iter().map(|(ino, _)| *ino));
        }
        Ok(())
    }

    /// The next block of the table that is to be looked at.
    fn next_unswept(&self, sweep: &mut Sweep) -> FsResult<Option<u32>> {
        let state = self.lock();
        state.store.check_writable()?;
        let next = state.nodes.next_unswept(sweep.table_block);
        if next.is_none() {
            sweep.table_block = 0;
        }
        Ok(next)
    }

    fn sweep_block(
        &self,
        table_block: u32,
        cold: Duration,
        work: &mut Work<'_, impl FnMut(&Compacted) -> bool>,
    ) -> FsResult<End> {
        let inos = {
            let mut state = self.lock();
            // What changes from here on is for the next round.
            state.nodes.set_swept(table_block, true);
            state.nodes.inos_in(table_block)
        };
        let inos = match inos {
            Ok(inos) => inos,
            Err(error) => {
                tolerate(error, &mut work.done.warnings, "node address table")?;
                Vec::new()
            }
        };
        let mut batch = Batch::default();
        let mut end = End::Done;
        for ino in inos {
            if work.is_interrupted() {
                return Ok(End::Stopped);
            }
            match self.sweep_file(ino, cold, &mut batch, work) {
                Ok(End::Done) => {}
                Ok(End::Later) => end = End::Later,
                Ok(End::Stopped) => return Ok(End::Stopped),
                Err(error) => tolerate(error, &mut work.done.warnings, &format!("inode {ino}"))?,
            }
        }
        Ok(match self.compact_batch(&mut batch, work)? {
            true => end,
            false => End::Stopped,
        })
    }

    fn sweep_file(
        &self,
        ino: u32,
        cold: Duration,
        batch: &mut Batch,
        work: &mut Work<'_, impl FnMut(&Compacted) -> bool>,
    ) -> FsResult<End> {
        let records = self.records_launches();
        let mut state = self.lock();
        let ripe = state.ripe(ino, cold, !records);
        self.relieve(&mut state)?;
        drop(state);
        match ripe? {
            Ripe::Done => return Ok(End::Done),
            Ripe::Later => return Ok(End::Later),
            Ripe::Yes => {}
        }
        let is_launched = self.is_launched_again(ino);
        if records && is_launched {
            return Ok(End::Done);
        }
        work.done.files += 1;
        // What several have read lies together by now.
        work.is_recorded = is_launched;
        Ok(match self.compact_file(ino, &[], batch, work)? {
            true => End::Done,
            false => End::Stopped,
        })
    }
}

/// Passes what is gone, and notes what cannot be read.
pub(super) fn tolerate(error: FsError, warnings: &mut Vec<String>, what: &str) -> FsResult<()> {
    match error {
        FsError::NotFound => Ok(()),
        FsError::Corrupt(_) | FsError::Io(_) => {
            warnings.push(format!("{what}: {error}"));
            Ok(())
        }
        error => Err(error),
    }
}
