//! Encoders of a compression in the background, and its windows on the way to them.

use std::sync::Mutex;
use std::thread;
use std::time::Duration;

use anteros_codec::trim_heap;
use anteros_core::{go_last, processor_time, unpoisoned};

use crate::cleaning::compact::{Compacted, Pressed, STEP_BLOCKS, Taken, Unsettled};
use crate::cleaning::order::{Share, Window};
use crate::compress::chunks::Compressor;
use crate::compress::codec::Pace;
use crate::mount::log::Log;
use crate::store::loan::Loan;

/// The most threads that compress.
const ENCODERS_MAX: usize = 4;

/// Memory of an encoder: mostly libzstd's tables, and the matches that it finds.
const ENCODER_BYTES: usize = 4 << 20;

/// Tells whether somebody else wants the machine.
pub(super) type Interrupted<'a> = &'a (dyn Fn() -> bool + Sync);

/// A compression in the background that goes on.
pub(super) struct Work<'a, G> {
    /// One for each thread, from the first step on.
    compressors: Vec<Compressor>,
    threads: usize,
    /// The memory of these.
    _loan: Loan,
    pub(super) done: Compacted,
    /// Tells whether it is known what launches read of any file, or of the one that is looked at.
    pub(super) is_recorded: bool,
    /// Tells whether it will be known of the next launches.
    will_be_recorded: bool,
    /// A file that was begun, and its logical block behind the last one that was looked at.
    pub(super) reached: Option<(Unsettled, u32)>,
    goes_on: G,
    /// Asked between two windows of work that nobody has ordered, which ends then; `None` of work that somebody has.
    interrupted: Option<Interrupted<'a>>,
}

impl<'a, G: FnMut(&Compacted) -> bool> Work<'a, G> {
    pub(super) fn new(log: &Log, goes_on: G, interrupted: Option<Interrupted<'a>>) -> Self {
        let mut state = log.lock();
        let threads = threads(state.store.options().memory_bytes);
        let loan = state.store.lend(threads * ENCODER_BYTES);
        let is_freed = state.make_way();
        drop(state);
        // Whoever wants memory waits meanwhile.
        if is_freed {
            trim_heap();
        }
        Self {
            compressors: Vec::new(),
            threads,
            _loan: loan,
            done: Compacted::default(),
            is_recorded: false,
            will_be_recorded: log.launches.get().is_some(),
            reached: None,
            goes_on,
            interrupted,
        }
    }

    /// The share of the launches that reads the rest of a file, of which these logical blocks are known to be read.
    pub(super) fn share_of_rest(&self, read: &[u32]) -> Share {
        match self.is_recorded || !read.is_empty() {
            true => Share::Never,
            false if self.will_be_recorded => Share::NotYet,
            false => Share::Unknown,
        }
    }

    pub(super) fn goes_on(&mut self) -> bool {
        (self.goes_on)(&self.done) && !self.is_interrupted()
    }

    pub(super) fn is_interrupted(&self) -> bool {
        self.interrupted.is_some_and(|is_so| is_so())
    }

    /// Compresses what was taken, and returns it in its order. `None` if it is interrupted: whoever came first may be about to
    /// want more, and must not wait until it is written.
    pub(super) fn compress(&mut self, taken: Vec<Taken>) -> Option<Vec<Pressed>> {
        let windows = taken.len();
        let queue = Mutex::new(taken.into_iter().enumerate());
        let pressed = Mutex::new((Vec::new(), Duration::ZERO));
        let is_interrupted = || self.interrupted.is_some_and(|is_so| is_so());
        let next = || unpoisoned(queue.lock()).next();
        let encode = |compressor: &mut Compressor| {
            let begun = processor_time();
            while let Some((at, taken)) = (!is_interrupted()).then(next).flatten() {
                let done = taken.compress(compressor);
                unpoisoned(pressed.lock()).0.push((at, done));
            }
            unpoisoned(pressed.lock()).1 += processor_time().saturating_sub(begun);
        };
        let goes_last = self.interrupted.is_some();
        if self.compressors.is_empty() {
            let compressors = (0..self.threads).map(|_| Compressor::new(Pace::Thorough));
            self.compressors = compressors.collect();
        }
        let mut compressors = self.compressors.iter_mut();
        thread::scope(|scope| {
            // Who takes the lock of the log must not go last.
            let own = (!goes_last).then(|| compressors.next()).flatten();
            let others = windows.saturating_sub(usize::from(own.is_some()));
            for compressor in compressors.take(others) {
                // A thread that cannot begin leaves its share to the others.
                let _ = thread::Builder::new().spawn_scoped(scope, || {
                    if goes_last {
                        go_last();
                    }
                    encode(compressor);
                });
            }
            own.into_iter().for_each(encode);
        });
        self.compressors.first_mut().into_iter().for_each(encode);
        let (mut pressed, took) = unpoisoned(pressed.into_inner());
        self.done.processor += took;
        pressed.sort_unstable_by_key(|(at, _)| *at);
        let is_whole = pressed.len() == windows;
        is_whole.then(|| pressed.into_iter().map(|(_, done)| done).collect())
    }
}

/// As many as there are cores to compress on, and as half of the memory is enough for.
fn threads(memory_bytes: usize) -> usize {
    let cores = thread::available_parallelism().map_or(1, usize::from);
    let enough_for = memory_bytes / 2 / ENCODER_BYTES;
    cores.min(ENCODERS_MAX).min(enough_for).max(1)
}

/// Windows of one file after the other, until there are enough of them for a step.
#[derive(Default)]
pub(super) struct Batch {
    pub(super) windows: Vec<Window>,
    blocks: usize,
    /// The files that end in it.
    pub(super) ended: Vec<Unsettled>,
}

impl Batch {
    /// Tells whether there are enough of them for a step.
    pub(super) fn is_full(&self) -> bool {
        self.blocks >= STEP_BLOCKS
    }

    pub(super) fn add(&mut self, windows: Vec<Window>) {
        let blocks = windows.iter().map(|window| window.range.len());
        self.blocks += blocks.sum::<usize>();
        self.windows.extend(windows);
    }
}
