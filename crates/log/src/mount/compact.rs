//! Compression in the background, step by step: between the steps, others use the log.

use std::collections::HashSet;

use anteros_core::{FsError, FsResult, Ino};

use crate::cleaning::compact::{Compacted, STEP_BLOCKS, Suits};
use crate::cleaning::launches::FileReads;
use crate::cleaning::order::{Share, Stop, Turn, Window, launch_windows};
use crate::compress::chunks::Compressor;
use crate::compress::codec::Pace;
use crate::mount::log::Log;

/// Logical blocks of a file that are looked at at once.
const LOOKED_AT: u32 = 1 << 16;

/// A compaction that goes on.
struct Work<G> {
    compressor: Compressor,
    done: Compacted,
    goes_on: G,
}

impl<G: FnMut(&Compacted) -> bool> Work<G> {
    fn goes_on(&mut self) -> bool {
        (self.goes_on)(&self.done)
    }
}

/// Files to compress, and their use by launches.
#[derive(Default)]
struct Wanted {
    executables: Vec<(u32, FileReads)>,
    /// Other files that launches read.
    data: Vec<(u32, FileReads)>,
    trail: Vec<Stop>,
}

impl Wanted {
    /// The windows that launches read, those that only one did last. The trail leads to all of them.
    fn launched(&mut self) -> Vec<Window> {
        let files = || self.executables.iter().chain(&self.data);
        let again = launch_windows(files(), Share::Again);
        let once = launch_windows(files(), Share::Once);
        let windows = || again.iter().chain(&once);
        let stop = |(turn, window): &(Turn, Window)| (*turn, window.ino, Some(window.range.start));
        self.trail.extend(windows().map(stop));
        windows().map(|(_, window)| window.clone()).collect()
    }
}

impl Log {
    /// Compresses executables. What launches read of them again and again is put together, first what most of them did, each in
    /// the order in which it was read; behind it comes what one read, and then all else. Of other files it takes what more than one
    /// launch has read along, and leaves the rest alone. Whoever else uses the log has a turn after each 512 KiB; `goes_on` is asked before.
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
        let mut work = Work {
            compressor: Compressor::new(Pace::Thorough),
            done: Compacted::default(),
            goes_on,
        };
        let mut wanted = self.sort(files, reads, &mut work.done)?;
        let first = wanted.launched();
        if !self.compact_windows(&first, &mut work)? {
            return Ok(work.done);
        }
        for (ino, reads) in wanted.executables {
            let read = reads.core.iter().chain(&reads.other);
            let read = read.map(|read| read.lblk).collect();
            if !self.compact_rest(ino, read, &mut work)? {
                return Ok(work.done);
            }
        }
        wanted.trail.sort_unstable();
        self.gather_nodes(&wanted.trail, &mut work)?;
        Ok(work.done)
    }

    /// Finds out what is asked for.
    fn sort(
        &self,
        files: &[Ino],
        reads: impl Fn(Ino) -> Option<FileReads>,
        done: &mut Compacted,
    ) -> FsResult<Wanted> {
        let mut wanted = Wanted::default();
        for &file in files {
            let ino = u32::try_from(file.0).map_err(|_| FsError::NotFound)?;
            // The lock is not to be held while somebody is asked what was read.
            let suits = self.lock().suits(ino);
            let suits = match suits {
                // It may be gone by now.
                Err(FsError::NotFound) => Suits::No,
                suits => suits?,
            };
            let reads = reads(file).unwrap_or_default();
            let looked_up = reads.looked_up.map(|mark| (mark.into(), ino, None));
            wanted.trail.extend(looked_up);
            match suits {
                Suits::Yes => wanted.executables.push((ino, reads)),
                Suits::No => {
                    done.others += 1;
                    // Whoever reads all files once is no program that starts.
                    if reads.rounds > 1 {
                        wanted.data.push((ino, reads));
                    }
                }
                Suits::NoFile => {}
            }
        }
        done.files = wanted.executables.len() as u64;
        Ok(wanted)
    }

    /// Compresses what no launch has read of an executable. Says whether it came to its end.
    fn compact_rest(
        &self,
        ino: u32,
        mut read: Vec<u32>,
        work: &mut Work<impl FnMut(&Compacted) -> bool>,
    ) -> FsResult<bool> {
        read.sort_unstable();
        let end = match self.lock().blocks_of(ino) {
            Err(FsError::NotFound) => return Ok(true),
            end => end?,
        };
        for from in (0..end).step_by(LOOKED_AT as usize) {
            let range = from..end.min(from + LOOKED_AT);
            let rest = match self.lock().rest_windows(ino, range, &read) {
                Err(FsError::NotFound) => return Ok(true),
                rest => rest?,
            };
            if !self.compact_windows(&rest, work)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Writes what leads to the inodes that launches look up, and to the content that each of them reads, in that order, so that
    /// it lies together: directories, inodes, nodes with pointers.
    fn gather_nodes(
        &self,
        trail: &[Stop],
        work: &mut Work<impl FnMut(&Compacted) -> bool>,
    ) -> FsResult<()> {
        let mut gathered = HashSet::new();
        for marks in trail.chunks(STEP_BLOCKS) {
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
    fn compact_windows(
        &self,
        mut windows: &[Window],
        work: &mut Work<impl FnMut(&Compacted) -> bool>,
    ) -> FsResult<bool> {
        while !windows.is_empty() {
            if !work.goes_on() {
                return Ok(false);
            }
            let mut blocks = 0;
            let fits = |window: &&Window| {
                blocks += window.range.len();
                blocks <= STEP_BLOCKS
            };
            let (now, later) = windows.split_at(windows.iter().take_while(fits).count());
            let mut state = self.lock();
            state.store.check_writable()?;
            let compacted = state.compact_step(now, &mut work.compressor, &mut work.done);
            state.store.submit()?;
            compacted?;
            state.shrink();
            windows = later;
        }
        Ok(true)
    }
}
