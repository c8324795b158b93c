//! Packed blocks that will be wanted next: which they are, and those that were read before anyone asked (FPC, 4.3).
//!
//! What was compressed in the background lies in the order in which launches want it. So who reads some of it is given the other
//! pages in the same blocks as well, and who goes on reading behind that, the blocks behind, in ever larger pieces.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use crate::layout::{BLOCK_BYTES, Block};

/// The fewest blocks that are read ahead at once: 128 KiB.
const WINDOW_MIN: u64 = 32;

/// The most: 1 MiB.
const WINDOW_MAX: u64 = 256;

/// A read that begins so many blocks behind what was read ahead still goes on with it.
const GAP_MAX: u64 = 32;

/// Places at which reads go on, at the same time.
const STREAMS_MAX: usize = 8;

/// Pieces that wait to be read.
const WAITING_MAX: usize = 16;

/// A block that was read, and the slots of it whose pages the users have been given.
#[derive(Debug, Clone)]
pub(crate) struct Kept {
    pub(crate) block: Arc<Block>,
    pub(crate) told: u32,
}

/// A place at which reads go on.
#[derive(Debug)]
struct Stream {
    /// The blocks that were read ahead last, or before anything was, those that were read.
    read: Range<u64>,
    /// How many come next.
    window: u64,
}

#[derive(Default)]
struct Inner {
    kept: BTreeMap<u64, Kept>,
    /// The same, the oldest first; some of them may be gone.
    order: VecDeque<u64>,
    streams: VecDeque<Stream>,
    waiting: VecDeque<Range<u64>>,
    has_ended: bool,
}

/// What is read ahead.
pub(crate) struct Ahead {
    blocks_max: usize,
    inner: Mutex<Inner>,
    has_work: Condvar,
    /// Blocks that were read before anyone asked.
    pub(crate) blocks: AtomicU64,
    /// Bytes of content that users were given unasked.
    pub(crate) told_bytes: AtomicU64,
}

impl Ahead {
    /// Nothing yet; it keeps so many bytes of blocks at most.
    pub(crate) fn new(bytes_max: usize) -> Self {
        Self {
            blocks_max: bytes_max / BLOCK_BYTES,
            inner: Mutex::default(),
            has_work: Condvar::new(),
            blocks: AtomicU64::new(0),
            told_bytes: AtomicU64::new(0),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A block, if it was read and is still here.
    pub(crate) fn get(&self, block: u64) -> Option<Arc<Block>> {
        let inner = self.lock();
        inner.kept.get(&block).map(|kept| kept.block.clone())
    }

    /// The blocks of a range that are here.
    pub(crate) fn range(&self, range: Range<u64>) -> BTreeMap<u64, Kept> {
        let inner = self.lock();
        let kept = inner.kept.range(range);
        kept.map(|(&block, kept)| (block, kept.clone())).collect()
    }

    /// Keeps blocks from one on, and lets go of the oldest for them.
    pub(crate) fn keep(&self, first: u64, bytes: &[u8]) {
        let mut inner = self.lock();
        let blocks = bytes.chunks_exact(BLOCK_BYTES).flat_map(<&Block>::try_from);
        for (place, block) in (first..).zip(blocks) {
            let kept = Kept {
                block: Arc::new(*block),
                told: 0,
            };
            if inner.kept.insert(place, kept).is_none() {
                inner.order.push_back(place);
            }
        }
        while inner.kept.len() > self.blocks_max {
            let Some(oldest) = inner.order.pop_front() else {
                return;
            };
            inner.kept.remove(&oldest);
        }
    }

    /// What lies in these blocks is given up.
    pub(crate) fn forget(&self, range: Range<u64>) {
        let mut inner = self.lock();
        inner.kept.retain(|block, _| !range.contains(block));
        inner.order.retain(|block| !range.contains(block));
    }

    /// The pages of a slot were given to the users.
    pub(crate) fn tell(&self, block: u64, slot: u8, bytes: usize) {
        if let Some(kept) = self.lock().kept.get_mut(&block) {
            kept.told |= 1 << slot;
        }
        self.told_bytes.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    /// Somebody has read these blocks.
    pub(crate) fn note(&self, range: Range<u64>) {
        let mut inner = self.lock();
        let next = inner.next(range);
        if inner.waiting.len() < WAITING_MAX {
            inner.waiting.push_back(next);
            self.has_work.notify_one();
        }
    }

    /// Blocks to be read, and to be given to users; none when it is over.
    pub(crate) fn wait(&self) -> Option<Range<u64>> {
        let mut inner = self.lock();
        loop {
            if inner.has_ended {
                return None;
            }
            match inner.waiting.pop_front() {
                Some(range) => return Some(range),
                None => {
                    let waited = self.has_work.wait(inner);
                    inner = waited.unwrap_or_else(PoisonError::into_inner);
                }
            }
        }
    }

    /// It is over.
    pub(crate) fn end(&self) {
        self.lock().has_ended = true;
        self.has_work.notify_all();
    }
}

impl Inner {
    /// What is to be read and given to users, after a read of these blocks.
    fn next(&mut self, range: Range<u64>) -> Range<u64> {
        let goes_on =
            |stream: &Stream| (stream.read.start..stream.read.end + GAP_MAX).contains(&range.start);
        let Some(at) = self.streams.iter().position(goes_on) else {
            self.streams.truncate(STREAMS_MAX - 1);
            self.streams.push_front(Stream {
                read: range.clone(),
                window: WINDOW_MIN,
            });
            return range;
        };
        let stream = &mut self.streams[at];
        let middle = stream.read.start + (stream.read.end - stream.read.start) / 2;
        if range.end > middle {
            let from = stream.read.end.max(range.end);
            stream.read = range.start..from + stream.window;
            stream.window = WINDOW_MAX.min(2 * stream.window);
        }
        range.start..stream.read.end
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whoever_goes_on_is_given_more_each_time() {
        let mut inner = Inner::default();
        assert_eq!(inner.next(100..104), 100..104);
        // Elsewhere.
        assert_eq!(inner.next(5000..5002), 5000..5002);
        assert_eq!(inner.next(104..108), 104..140);
        // Not yet in the second half of what was read.
        assert_eq!(inner.next(110..112), 110..140);
        assert_eq!(inner.next(125..130), 125..204);
        assert_eq!(inner.next(230..232), 230..360);
        assert_eq!(inner.next(340..342), 340..616);
        assert_eq!(inner.next(600..601), 600..872);
    }

    #[test]
    fn only_so_many_blocks_are_kept_and_none_that_is_given_up() {
        let ahead = Ahead::new(4 * BLOCK_BYTES);
        ahead.keep(10, &[1; 3 * BLOCK_BYTES]);
        ahead.keep(20, &[2; 2 * BLOCK_BYTES]);
        let here = |range| ahead.range(range).into_keys().collect::<Vec<_>>();
        assert_eq!(here(0..100), [11, 12, 20, 21]);
        ahead.forget(12..21);
        assert_eq!(here(0..100), [11, 21]);
        ahead.tell(21, 3, 4096);
        assert_eq!(ahead.range(21..22)[&21].told, 8);
        // What is read again is new, and counts once.
        ahead.keep(21, &[3; BLOCK_BYTES]);
        ahead.keep(30, &[4; 2 * BLOCK_BYTES]);
        assert_eq!(here(0..100), [11, 21, 30, 31]);
        assert_eq!(ahead.get(21).unwrap()[0], 3);
    }

    #[test]
    fn nobody_waits_when_it_is_over() {
        let ahead = Ahead::new(BLOCK_BYTES);
        ahead.note(7..9);
        assert_eq!(ahead.wait(), Some(7..9));
        ahead.end();
        assert_eq!(ahead.wait(), None);
    }
}
