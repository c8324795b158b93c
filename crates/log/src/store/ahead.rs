//! Blocks that will be wanted next: which they are, and those that were read before anyone asked (FPC, 4.3).
//!
//! What was compressed in the background lies in the order in which launches want it. So who reads some of it is given the other
//! pages in the same blocks as well; who goes on reading behind that, the blocks behind, in ever larger pieces; and who reads
//! what launches do again and again, is given what comes next at once, and that goes on as long as most of it is of files in use.

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::ops::{Range, RangeInclusive};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};

use anteros_core::unpoisoned;

use crate::layout::packed::Slot;
use crate::layout::summary::Owner;
use crate::layout::{BLOCK_BYTES, Block};
use crate::store::kept::{Kept, KeptBlocks};
use crate::store::recent_reads::RecentReads;

/// Packed blocks that are read ahead at once, at first where reads go on, and at most: 1 MiB.
const PACKED: Windows = Windows {
    first: 0,
    next: 32,
    most: 256,
    back: u64::MAX,
    gap: 32,
};

/// Windows of nodes and of blocks of directories, which are read with the lock held.
const NODES: Windows = Windows {
    first: 8,
    next: 16,
    most: 64,
    back: 0,
    gap: 8,
};

/// States how many blocks are left of how many, mostly.
const SHRINKS: (u64, u64) = (5, 8);

/// Blocks that cost about as much to read as another request does.
const FEW: u64 = 8;

/// Places at which reads go on, at the same time.
const STREAMS_MAX: usize = 8;

/// Reads that are remembered.
const LATELY_MAX: usize = 32;

/// Pieces that wait to be read.
const WAITING_MAX: usize = 16;

/// Tells what is to be done by whoever reads ahead.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Job {
    /// The second range is to be read, which ends the first; that is to be given to users, as far as it is here.
    Read(Range<u64>, Range<u64>),
    /// A file was opened: what is here of it is to be given to users.
    Opened(u32),
    /// These files are to be given to users.
    Files(Vec<u32>),
}

/// Describes how many blocks are read ahead.
#[derive(Debug, Clone, Copy)]
struct Windows {
    /// Behind a read that goes on with no other.
    first: u64,
    /// Behind the first one that does, and twice as many each time,
    next: u64,
    /// up to these.
    most: u64,
    /// Tells how far before the end of what was read ahead a read that goes on may begin, not before its beginning,
    back: u64,
    /// and how far behind it.
    gap: u64,
}

/// Places at which reads go on, the latest first.
#[derive(Debug)]
struct Streams {
    windows: Windows,
    list: VecDeque<Stream>,
}

/// A place at which reads go on.
#[derive(Debug)]
struct Stream {
    /// The blocks that were read ahead last, or before anything was, those that were read.
    read: Range<u64>,
    /// Tells how many come next.
    window: u64,
}

struct Inner {
    kept: KeptBlocks,
    /// Keys of `kept`, the oldest first; some of them may be gone.
    order: VecDeque<u64>,
    /// Those of which the users have been given everything that begins there, the oldest first.
    spent: VecDeque<u64>,
    packed: Streams,
    nodes: Streams,
    waiting: VecDeque<Job>,
    /// Holds what is being read: ranges that have nothing in common.
    under_way: Vec<Range<u64>>,
    /// Holds what was read last, here or not: whoever has got that does not want it again.
    lately: VecDeque<Range<u64>>,
    recent: RecentReads,
    has_ended: bool,
}

/// Holds what is read ahead.
pub(crate) struct Ahead {
    blocks_max: usize,
    inner: Mutex<Inner>,
    has_work: Condvar,
    has_read: Condvar,
    /// Blocks that were read before anyone asked.
    pub(crate) blocks: AtomicU64,
    /// Bytes of content that users were given unasked.
    pub(crate) pushed_bytes: AtomicU64,
}

impl Ahead {
    /// Nothing yet; it keeps so many bytes of blocks at most.
    pub(crate) fn new(bytes_max: usize) -> Self {
        Self {
            blocks_max: bytes_max / BLOCK_BYTES,
            inner: Mutex::new(Inner {
                kept: KeptBlocks::default(),
                order: VecDeque::new(),
                spent: VecDeque::new(),
                packed: Streams::new(PACKED),
                nodes: Streams::new(NODES),
                waiting: VecDeque::new(),
                under_way: Vec::new(),
                lately: VecDeque::new(),
                recent: RecentReads::default(),
                has_ended: false,
            }),
            has_work: Condvar::new(),
            has_read: Condvar::new(),
            blocks: AtomicU64::new(0),
            pushed_bytes: AtomicU64::new(0),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        unpoisoned(self.inner.lock())
    }

    /// A block, if it was read and is still here; one that is being read is waited for.
    pub(crate) fn get(&self, block: u64) -> Option<Arc<Block>> {
        let inner = self.settled(&(block..block + 1));
        inner.kept.get(block).map(|kept| kept.block.clone())
    }

    /// Reads what is not here of a range, with all that is to be read ahead there, as far as that is in `near`. `read` is told the
    /// first block.
    pub(crate) fn read(
        &self,
        wanted: Range<u64>,
        near: &Range<u64>,
        read: impl FnOnce(u64, &mut [u8]) -> io::Result<()>,
    ) -> io::Result<()> {
        let range = self.claim(&wanted, near);
        range.map_or(Ok(()), |range| self.fetch(range, &wanted, read))
    }

    /// Reads what is not here of a range that is to be read ahead, nor was lately.
    pub(crate) fn read_due(
        &self,
        due: Range<u64>,
        read: impl FnOnce(u64, &mut [u8]) -> io::Result<()>,
    ) -> io::Result<()> {
        let range = self.begin(self.settled(&due), &(0..0), due);
        range.map_or(Ok(()), |range| self.fetch(range, &(0..0), read))
    }

    /// Reads blocks, of which some are wanted, while others who want them wait.
    fn fetch(
        &self,
        range: Range<u64>,
        wanted: &Range<u64>,
        read: impl FnOnce(u64, &mut [u8]) -> io::Result<()>,
    ) -> io::Result<()> {
        let mut bytes = vec![0; (range.end - range.start) as usize * BLOCK_BYTES];
        let done = read(range.start, &mut bytes);
        if done.is_ok() {
            self.keep(range.start, &bytes);
            let unasked = range.clone().filter(|block| !wanted.contains(block));
            self.blocks
                .fetch_add(unasked.count() as u64, Ordering::Relaxed);
        }
        self.lock().under_way.retain(|other| *other != range);
        self.has_read.notify_all();
        done
    }

    /// Returns what is to be read now, for a range of which something is wanted: nobody else reads any of that. Nothing
    /// if all is here.
    fn claim(&self, wanted: &Range<u64>, near: &Range<u64>) -> Option<Range<u64>> {
        let inner = self.settled(wanted);
        wanted.clone().find(|block| inner.is_missing(*block))?;
        let all = inner.due(wanted);
        let end = all.end.max(wanted.start + FEW);
        let mut all = all.start.max(near.start)..end.min(near.end);
        if inner.is_under_way(&all) {
            all = wanted.clone();
        }
        self.begin(inner, wanted, all)
    }

    /// Waits until nobody reads anything of a range.
    fn settled(&self, range: &Range<u64>) -> MutexGuard<'_, Inner> {
        let mut inner = self.lock();
        while inner.is_under_way(range) {
            let waited = self.has_read.wait(inner);
            inner = unpoisoned(waited);
        }
        inner
    }

    /// Says that somebody reads what is missing of a range, but for what was read lately and is not wanted.
    fn begin(
        &self,
        mut inner: MutexGuard<'_, Inner>,
        wanted: &Range<u64>,
        all: Range<u64>,
    ) -> Option<Range<u64>> {
        let is_due = |block: &u64| {
            let is_new = || !inner.lately.iter().any(|range| range.contains(block));
            inner.is_missing(*block) && (wanted.contains(block) || is_new())
        };
        let first = all.clone().find(is_due)?;
        let last = all.rev().find(is_due)?;
        let range = first..last + 1;
        inner.under_way.push(range.clone());
        inner.lately.truncate(LATELY_MAX - 1);
        inner.lately.push_front(range.clone());
        Some(range)
    }

    /// The blocks of a range that are here.
    pub(crate) fn range(&self, range: Range<u64>) -> BTreeMap<u64, Kept> {
        let inner = self.lock();
        let kept = inner.kept.range(range);
        kept.map(|(&block, kept)| (block, kept.clone())).collect()
    }

    /// Keeps blocks from one on, and lets go of others for them: those that have been of use, or else the oldest.
    pub(crate) fn keep(&self, first: u64, bytes: &[u8]) {
        let mut guard = self.lock();
        let inner = &mut *guard;
        let blocks = bytes.chunks_exact(BLOCK_BYTES).flat_map(<&Block>::try_from);
        for (place, block) in (first..).zip(blocks) {
            if inner.kept.get(place).is_none() {
                inner.kept.insert(place, Kept::new(block));
                inner.order.push_back(place);
            }
        }
        while inner.kept.len() > self.blocks_max {
            let spent = inner.spent.pop_front();
            let spent = spent.filter(|&block| inner.kept.get(block).is_some_and(Kept::is_spent));
            let Some(oldest) = spent.or_else(|| inner.order.pop_front()) else {
                return;
            };
            inner.kept.remove(oldest);
        }
    }

    /// Gives up what lies in these blocks.
    pub(crate) fn forget(&self, range: Range<u64>) {
        let mut inner = self.lock();
        inner.kept.remove_all(range.clone());
        inner.order.retain(|block| !range.contains(block));
        inner.spent.retain(|block| !range.contains(block));
        inner.lately.retain(|other| !overlap(other, &range));
    }

    /// Gives up what lies in a block.
    pub(crate) fn forget_block(&self, block: u64) {
        self.lock().kept.remove(block);
    }

    /// The pages of a chunk in these blocks, the first one in a slot, were given to the users.
    pub(crate) fn note_pushed(&self, blocks: RangeInclusive<u64>, slot: u8, bytes: usize) {
        let mut guard = self.lock();
        let inner = &mut *guard;
        inner.kept.note_pushed(*blocks.start(), slot);
        let is_spent = |&block: &u64| inner.kept.get(block).is_some_and(Kept::is_spent);
        inner.spent.extend(blocks.filter(is_spent));
        self.pushed_bytes.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    /// Notes that these pages were read.
    pub(crate) fn note_read(&self, pages: impl Iterator<Item = Owner>) {
        let mut inner = self.lock();
        pages.for_each(|page| inner.recent.note(page));
    }

    /// The pages of a chunk that nobody has read of late, in runs.
    pub(crate) fn not_read(&self, slot: &Slot) -> Vec<Range<u32>> {
        let lblks = slot.lblk..slot.lblk + u32::from(slot.blocks);
        self.lock().recent.others(slot.ino, lblks)
    }

    /// Somebody has read these blocks, which are here now; behind `until` there are none to be read with them.
    pub(crate) fn note(&self, range: Range<u64>, until: u64) {
        let mut inner = self.lock();
        let read = inner.next(&range, until);
        inner.ask(Job::Read(range.start..read.end, read));
        self.has_work.notify_one();
    }

    /// Most of a range that was read ahead is of files in use: who is launching something will want what comes next.
    pub(crate) fn go_on(&self, range: &Range<u64>) {
        let mut inner = self.lock();
        let last = range.end - 1..range.end;
        let mut streams = inner.packed.list.iter();
        let is_last = streams.any(|stream| stream.read.end == range.end);
        let until = inner.together(range.start).unwrap_or(u64::MAX);
        if is_last && until > range.end && inner.is_core(last.clone()) {
            let read = inner.next(&last, until.max(range.end + FEW));
            inner.waiting.push_front(Job::Read(read.clone(), read));
        }
    }

    /// Returns how far to read, behind a node or a block of a directory that somebody reads.
    pub(crate) fn nodes_until(&self, place: u64) -> u64 {
        let mut inner = self.lock();
        inner
            .nodes
            .next(&(place..place + 1), 0, u64::MAX)
            .end
            .max(place + 1)
    }

    /// Somebody has opened a file.
    pub(crate) fn note_opened(&self, ino: u32) {
        let mut inner = self.lock();
        if inner.kept.has_unpushed(ino) {
            inner.ask(Job::Opened(ino));
            self.has_work.notify_one();
        }
    }

    /// Somebody will read these files.
    pub(crate) fn note_files(&self, files: Vec<u32>) {
        self.lock().ask(Job::Files(files));
        self.has_work.notify_one();
    }

    /// Returns what is to be done; none when it is over.
    pub(crate) fn wait(&self) -> Option<Job> {
        let mut inner = self.lock();
        loop {
            if inner.has_ended {
                return None;
            }
            match inner.waiting.pop_front() {
                Some(job) => return Some(job),
                None => {
                    let waited = self.has_work.wait(inner);
                    inner = unpoisoned(waited);
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

/// Returns whether some block is in both.
fn overlap(left: &Range<u64>, right: &Range<u64>) -> bool {
    left.start < right.end && right.start < left.end
}

impl Inner {
    /// Leaves out what is too much to do: whoever wants it asks for it. What is to be read goes first.
    fn ask(&mut self, job: Job) {
        if self.waiting.len() >= WAITING_MAX {
            let only_gives = |job: &Job| !matches!(job, Job::Read(_, rest) if !rest.is_empty());
            let least = self.waiting.iter().position(only_gives);
            self.waiting.remove(least.unwrap_or_default());
        }
        self.waiting.push_back(job);
    }

    fn is_missing(&self, block: u64) -> bool {
        self.kept.get(block).is_none()
    }

    fn is_under_way(&self, range: &Range<u64>) -> bool {
        self.under_way.iter().any(|other| overlap(other, range))
    }

    /// A range, and what waits to be read ahead there.
    fn due(&self, range: &Range<u64>) -> Range<u64> {
        let rests = self.waiting.iter().filter_map(|job| match job {
            Job::Read(_, rest) if overlap(rest, range) => Some(rest),
            _ => None,
        });
        rests.fold(range.clone(), |all, rest| {
            all.start.min(rest.start)..all.end.max(rest.end)
        })
    }

    /// Returns what is to be read behind some packed blocks, before another one. Of what is wanted for certain it is
    /// all that belongs together.
    fn next(&mut self, range: &Range<u64>, until: u64) -> Range<u64> {
        let is_core = self.is_core(range.clone());
        let last = range.end - 1;
        let together = self.together(last);
        let all = together.map(|end| end.max(range.end) - range.end);
        let least = match all {
            _ if !is_core => 0,
            Some(all) => all.clamp(FEW, PACKED.most),
            None => PACKED.next,
        };
        let end = together.map_or(u64::MAX, |end| end.max(last + FEW));
        self.packed.next(range, least, until.min(end))
    }

    /// Returns where that ends which launches want together with what begins in a block, if that is known.
    fn together(&self, block: u64) -> Option<u64> {
        let left = self.kept.get(block)?.left?;
        Some(block + left * SHRINKS.0 / SHRINKS.1)
    }

    /// Returns whether launches read some of what is here of these blocks again and again.
    fn is_core(&self, range: Range<u64>) -> bool {
        let mut kept = self.kept.range(range);
        kept.any(|(_, kept)| kept.has_core())
    }
}

impl Streams {
    fn new(windows: Windows) -> Self {
        Self {
            windows,
            list: VecDeque::new(),
        }
    }

    /// Returns what is to be read, after these blocks were, up to one: so many blocks at least.
    fn next(&mut self, range: &Range<u64>, least: u64, until: u64) -> Range<u64> {
        let Windows {
            first,
            next,
            most,
            back,
            gap,
        } = self.windows;
        let goes_on = |stream: &Stream| {
            let from = stream.read.end.saturating_sub(back).max(stream.read.start);
            (from..stream.read.end + gap).contains(&range.start)
        };
        let at = self.list.iter().position(goes_on);
        let at = at.unwrap_or_else(|| {
            self.list.truncate(STREAMS_MAX - 1);
            self.list.push_front(Stream {
                read: range.start..range.start,
                window: first,
            });
            0
        });
        let stream = &mut self.list[at];
        let middle = stream.read.start + (stream.read.end - stream.read.start) / 2;
        let from = stream.read.end.max(range.end);
        if range.end > middle {
            let window = stream.window.max(least);
            stream.read = range.start..from.max(until.min(from + window));
            stream.window = (2 * window).clamp(next, most);
        }
        from..stream.read.end
    }
}

#[cfg(test)]
mod tests;
