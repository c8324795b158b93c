//! Compression before writeback, of what has been written to ordinary files.
//!
//! A thread does so while whoever writes goes on ([`Log::compress_behind`]): the full windows of a file, and all of one that was
//! closed. It has the time that others leave, so a fast device gets some content as it is, to be compressed in the background
//! later. Who writes to a slow one helps the thread: less time is lost than the device would take. A sync compresses what is
//! left of its file itself. None of them holds the lock of the log while it compresses.

#![deny(clippy::indexing_slicing)]

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread;

use anteros_core::{FsResult, go_last, unpoisoned};

use crate::compress::chunks::Compressor;
use crate::layout::node::FILE_BLOCKS;
use crate::mount::log::Log;
use crate::mount::preparing::Written;
use crate::packing::prepared::WINDOW_BLOCKS;
use crate::packing::windows::{DirtyWindow, PreparedWindow};

/// Windows that are compressed at a time: 256 KiB of content, or half of that.
const STEP_WINDOWS: usize = 8;

/// Bytes that wait for the thread before others help it.
const HELPED_AT: u64 = 1 << 20;

/// Bytes that are written before the device is flushed to know how fast it is.
const TRIED_AT: u64 = 4 << 20;

/// Logical blocks that a sync compresses: of fewer, the device is as soon done as the encoder.
const SYNCED_LEAST: usize = 4;

/// The most encoders that are kept.
const ENCODERS_MAX: usize = 4;

/// All logical blocks of a file.
const ALL: Range<u32> = 0..FILE_BLOCKS;

impl Log {
    /// Compresses what others write to ordinary files, before it leaves for the device, until
    /// [`end_compressing`](Self::end_compressing) is called. For a thread of its own.
    pub fn compress_behind(&self) {
        // Who takes the lock of the log must not go last.
        let (give, taken) = sync_channel(1);
        let (done, prepared) = sync_channel(1);
        thread::scope(|scope| {
            let encoder = thread::Builder::new().name("encoder".into());
            if encoder
                .spawn_scoped(scope, move || encode(&taken, &done))
                .is_err()
            {
                return;
            }
            self.preparing.is_on.store(true, Ordering::Relaxed);
            while let Some(files) = self.preparing.wait() {
                self.find_speed();
                self.prepare_written(files, &mut |windows| {
                    give.send(windows).ok()?;
                    prepared.recv().ok()
                });
            }
            drop(give);
        });
    }

    /// Ends [`compress_behind`](Self::compress_behind).
    pub fn end_compressing(&self) {
        self.preparing.end();
    }

    /// Flushes the device once it has enough to do that this tells how fast it is.
    fn find_speed(&self) {
        let is_known = self.preparing.is_known.load(Ordering::Relaxed);
        let has_enough = || {
            self.unflushed_bytes()
                .is_some_and(|bytes| bytes >= TRIED_AT)
        };
        if !is_known && has_enough() {
            // That it failed, everybody hears from now on.
            let _ = self.flush_unless(|_| false);
        }
    }

    /// Notes that so many bytes were written to a file, and helps the thread if it has much to do and the device is slow.
    pub(crate) fn note_to_prepare(&self, ino: u32, offset: u64, bytes: usize) {
        let waiting = self.preparing.note_written(ino, offset, bytes);
        let is_slow = || self.preparing.is_slow.load(Ordering::Relaxed) || self.is_device_behind();
        if waiting >= HELPED_AT && is_slow() {
            let files = self.preparing.take();
            self.with_compressor(|compress| self.prepare_written(files, compress));
        }
    }

    fn prepare_written(&self, files: BTreeMap<u32, Written>, compress: &mut Compress<'_>) {
        for (ino, written) in files {
            let least = if written.is_closed { 1 } else { WINDOW_BLOCKS };
            self.prepare(ino, written.range, least, compress);
        }
    }

    /// Compresses what a sync of some files will write.
    pub(crate) fn prepare_sync(&self, inos: &[u32]) {
        self.with_compressor(|compress| {
            inos.iter()
                .for_each(|&ino| self.prepare(ino, ALL, SYNCED_LEAST, compress));
        });
    }

    /// Compresses all that a checkpoint will write.
    pub(crate) fn prepare_all(&self) {
        let inos = self.lock().dirty_inos();
        self.with_compressor(|compress| {
            inos.iter()
                .for_each(|&ino| self.prepare(ino, ALL, 1, compress));
        });
    }

    /// Has the calling thread compress.
    fn with_compressor(&self, prepare: impl FnOnce(&mut Compress<'_>)) {
        let idle = unpoisoned(self.preparing.compressors.lock()).pop();
        let mut compressor = idle.unwrap_or_default();
        prepare(&mut |windows| Some(compress(windows, &mut compressor)));
        let mut idle = unpoisoned(self.preparing.compressors.lock());
        if idle.len() < ENCODERS_MAX {
            idle.push(compressor);
        }
    }

    /// Compresses windows of so many dirty pages at least, or full ones. What goes wrong does so again when the pages leave,
    /// and is told then.
    fn prepare(&self, ino: u32, range: Range<u32>, least: usize, compress: &mut Compress<'_>) {
        let _ = self.try_to_prepare(ino, range, least, compress);
    }

    fn try_to_prepare(
        &self,
        ino: u32,
        mut range: Range<u32>,
        least: usize,
        compress: &mut Compress<'_>,
    ) -> FsResult<()> {
        loop {
            let windows = {
                let mut state = self.lock_first();
                state.store.check_writable()?;
                match state.loaded(ino) {
                    Some(live) if live.dirty_pages >= least => {
                        state.dirty_windows(ino, &range, least, STEP_WINDOWS)?
                    }
                    _ => return Ok(()),
                }
            };
            let Some(last) = windows.last() else {
                return Ok(());
            };
            range.start = last.end;
            let Some(prepared) = compress(windows) else {
                return Ok(());
            };
            self.lock_first().keep_prepared(prepared)?;
        }
    }
}

/// Compresses windows, here or elsewhere; `None` if that cannot be.
type Compress<'a> = dyn FnMut(Vec<DirtyWindow>) -> Option<Vec<PreparedWindow>> + 'a;

fn compress(windows: Vec<DirtyWindow>, compressor: &mut Compressor) -> Vec<PreparedWindow> {
    let prepared = windows
        .into_iter()
        .map(|window| window.compress(compressor));
    prepared.collect()
}

/// Compresses what is given, with the time that others leave.
fn encode(given: &Receiver<Vec<DirtyWindow>>, done: &SyncSender<Vec<PreparedWindow>>) {
    go_last();
    let mut compressor = Compressor::default();
    for windows in given {
        if done.send(compress(windows, &mut compressor)).is_err() {
            break;
        }
    }
}
