//! One account of memory for all that serves reads.
//!
//! Whoever wants memory takes a [`Lease`] of it first. If too little is left, the cache gives up
//! entries, the oldest first. If it has none left, the caller waits until others give theirs back.
//! Each wait ends: a thread that holds a lease outside of the cache while it works never waits for
//! another one, and each lease that is given back, or put into the cache to be given up, wakes all.
//!
//! Invariant S2 of `docs/design/serving.md`: the account never lends more than its limit.
//!
//! Invariant S3 of `docs/design/serving.md`: whoever holds a lease outside of the cache asks for no other one, so
//! nobody waits for ever.

use std::collections::VecDeque;
use std::io;
use std::ops::{Deref, DerefMut};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};

use anteros_codec::Scratch;
use anteros_core::unpoisoned;

/// Bytes that may be taken, and how many are.
pub(crate) struct Memory {
    used: Mutex<Used>,
    freed: Condvar,
}

/// The share of the account that spare buffers may have: a fourth.
const SPARES_SHARE: usize = 4;

#[derive(Default)]
struct Used {
    limit: usize,
    now: usize,
    peak: usize,
    spares: Spares,
    /// Tells how often bytes may have become free.
    changes: u64,
    /// Tells how many wait for that: telling nobody costs a system call too.
    waiting: usize,
}

/// Bytes taken of a [`Memory`]; given back when dropped.
pub(crate) struct Lease {
    pub(crate) memory: Arc<Memory>,
    bytes: usize,
}

impl Memory {
    pub(crate) fn new(limit: usize) -> Arc<Self> {
        Arc::new(Self {
            used: Mutex::new(Used {
                limit,
                ..Used::default()
            }),
            freed: Condvar::new(),
        })
    }

    /// A buffer of so many bytes, of any content, that the caller has a lease for.
    pub(crate) fn buffer(&self, len: usize) -> io::Result<Buffer> {
        let spare = self.lock().spares.take(Buffer::room(len));
        spare.map_or_else(|| Buffer::new(len), |spare| Ok(spare.of_len(len)))
    }

    /// Keeps a buffer for later use, if nobody wants its bytes for something else. Its lease was given back.
    pub(crate) fn reuse(&self, buffer: Buffer) {
        if buffer.is_empty() {
            return;
        }
        let mut used = self.lock();
        let free = used.limit - used.now;
        let bytes_max = free.min(used.limit / SPARES_SHARE);
        used.spares.push(buffer);
        let excess = used.spares.shrink_to(bytes_max);
        drop(used);
        drop(excess);
    }

    /// Returns how many bytes there are in all.
    pub(crate) fn limit(&self) -> usize {
        self.lock().limit
    }

    /// Says that there may be more to give up than before.
    pub(crate) fn changed(&self) {
        let mut used = self.lock();
        used.changes += 1;
        let is_awaited = used.waiting > 0;
        drop(used);
        if is_awaited {
            self.freed.notify_all();
        }
    }

    /// Bytes taken now, and the most that ever were.
    pub(crate) fn used(&self) -> (usize, usize) {
        let used = self.lock();
        (used.now, used.peak)
    }

    /// Returns whether so many bytes are there.
    pub(crate) fn has(&self, bytes: usize) -> bool {
        let used = self.lock();
        bytes <= used.limit.saturating_sub(used.now)
    }

    /// Takes bytes if they are there.
    pub(crate) fn try_lease(self: &Arc<Self>, bytes: usize) -> Option<Lease> {
        self.take(&mut self.lock(), bytes)
    }

    /// Takes bytes, calling `make_room` as long as it says that it gave something up, and waiting
    /// when it has nothing left. `None` for more than there can ever be.
    pub(crate) fn lease(
        self: &Arc<Self>,
        bytes: usize,
        make_room: impl Fn() -> bool,
    ) -> Option<Lease> {
        loop {
            let seen = {
                let mut used = self.lock();
                if bytes > used.limit {
                    return None;
                }
                if let Some(lease) = self.take(&mut used, bytes) {
                    return Some(lease);
                }
                used.changes
            };
            if make_room() {
                continue;
            }
            let mut used = self.lock();
            used.waiting += 1;
            let waited = self.freed.wait_while(used, |used| used.changes == seen);
            unpoisoned(waited).waiting -= 1;
        }
    }

    fn take(self: &Arc<Self>, used: &mut Used, bytes: usize) -> Option<Lease> {
        let now = used
            .now
            .checked_add(bytes)
            .filter(|&now| now <= used.limit)?;
        used.spares.shrink_to(used.limit - now);
        used.now = now;
        used.peak = used.peak.max(now);
        Some(Lease {
            memory: self.clone(),
            bytes,
        })
    }

    fn lock(&self) -> MutexGuard<'_, Used> {
        unpoisoned(self.used.lock())
    }
}

/// Buffers that were given up a moment ago, the oldest first. Those that take their place are mostly as long, and the pages
/// of a mapped one are there already. A heap with a part for each thread would grow in one part while the freed bytes lie in
/// another.
#[derive(Default)]
struct Spares {
    buffers: VecDeque<Buffer>,
    bytes: usize,
}

impl Spares {
    fn push(&mut self, buffer: Buffer) {
        self.bytes += buffer.capacity();
        self.buffers.push_back(buffer);
    }

    /// Takes the buffer that was given up last among those of this capacity.
    fn take(&mut self, capacity: usize) -> Option<Buffer> {
        let is_fit = |spare: &Buffer| spare.capacity() == capacity;
        let index = self.buffers.iter().rposition(is_fit)?;
        self.bytes -= capacity;
        self.buffers.remove(index)
    }

    /// Gives up the oldest ones until the others have no more bytes than that. Returns them.
    fn shrink_to(&mut self, bytes_max: usize) -> Vec<Buffer> {
        let mut excess = Vec::new();
        while self.bytes > bytes_max {
            let Some(oldest) = self.buffers.pop_front() else {
                break;
            };
            self.bytes -= oldest.capacity();
            excess.push(oldest);
        }
        excess
    }
}

/// Buffers from this length on are mapped. The heap would not give them back at once, or not at all
/// where they lie between smaller ones.
const MAPPED_BYTES_MIN: usize = 32 << 10;

/// A buffer that takes no more memory than its [`room`](Self::room).
pub(crate) enum Buffer {
    Heap(Vec<u8>),
    Mapped { bytes: Scratch, len: usize },
}

impl Buffer {
    pub(crate) fn new(len: usize) -> io::Result<Self> {
        Ok(match len {
            MAPPED_BYTES_MIN.. => Self::Mapped {
                bytes: Scratch::new(Self::room(len))?,
                len,
            },
            _ => Self::Heap(vec![0; len]),
        })
    }

    /// Returns the bytes that a buffer of this length takes. A mapped buffer has the size of a
    /// power of two, or one size between two of them. So it can be used again for another length,
    /// and its pages are there already.
    pub(crate) const fn room(len: usize) -> usize {
        match len {
            MAPPED_BYTES_MIN.. => len.next_multiple_of((1 << len.ilog2()) / 2),
            _ => len,
        }
    }

    /// The bytes it has memory for.
    fn capacity(&self) -> usize {
        match self {
            Self::Heap(bytes) => bytes.len(),
            Self::Mapped { bytes, .. } => bytes.as_slice().len(),
        }
    }

    /// Gives the memory another length, for which it has room.
    fn of_len(self, len: usize) -> Self {
        match self {
            Self::Mapped { bytes, .. } => Self::Mapped { bytes, len },
            heap @ Self::Heap(_) => heap,
        }
    }
}

impl Default for Buffer {
    fn default() -> Self {
        Self::Heap(Vec::new())
    }
}

impl Deref for Buffer {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            Self::Heap(bytes) => bytes,
            Self::Mapped { bytes, len } => &bytes.as_slice()[..*len],
        }
    }
}

impl DerefMut for Buffer {
    fn deref_mut(&mut self) -> &mut [u8] {
        match self {
            Self::Heap(bytes) => bytes,
            Self::Mapped { bytes, len } => &mut bytes.as_mut_slice()[..*len],
        }
    }
}

impl Lease {
    /// Gives back all but so many bytes.
    pub(crate) fn shrink_to(&mut self, bytes: usize) {
        let back = self.bytes.saturating_sub(bytes);
        self.bytes -= back;
        self.memory.lock().now -= back;
        self.memory.changed();
    }

    /// Adds the bytes of another lease of the same account.
    pub(crate) fn add(&mut self, mut other: Self) {
        self.bytes += std::mem::take(&mut other.bytes);
    }

    /// Takes the bytes out of the account for good: there are so many less.
    pub(crate) fn set_aside(mut self) {
        let bytes = std::mem::take(&mut self.bytes);
        let mut used = self.memory.lock();
        used.now -= bytes;
        used.peak -= bytes;
        used.limit -= bytes;
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        self.shrink_to(0);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    /// Invariant S2 of `docs/design/serving.md`.
    #[test]
    fn no_more_is_taken_than_there_is() {
        let memory = Memory::new(100);
        let mut first = memory.try_lease(60).unwrap();
        assert!(memory.try_lease(41).is_none());
        assert!(memory.lease(101, || true).is_none(), "never");
        first.shrink_to(10);
        let second = memory.lease(90, || false).unwrap();
        assert_eq!(memory.used(), (100, 100));
        drop((first, second));
        assert_eq!(memory.used(), (0, 100));
    }

    #[test]
    fn a_buffer_is_used_again_for_what_has_room_in_it() {
        let memory = Memory::new(4 << 20);
        let mut buffer = memory.buffer(300_000).unwrap();
        assert_eq!(buffer.len(), 300_000);
        buffer[299_999] = 7;
        let at = buffer.as_ptr();
        memory.reuse(buffer);
        let buffer = memory.buffer(384 << 10).unwrap();
        assert_eq!((buffer.as_ptr(), buffer.len()), (at, 384 << 10));
        assert_eq!(buffer[299_999], 7);
        let larger = memory.buffer((384 << 10) + 1).unwrap();
        assert_eq!(larger.len(), (384 << 10) + 1);
        for (len, room) in [(5, 5), (64 << 10, 64 << 10), (65 << 10, 96 << 10)] {
            assert_eq!(Buffer::room(len), room);
        }
    }

    #[test]
    fn spare_buffers_take_no_memory_that_is_wanted() {
        let memory = Memory::new(4 << 20);
        let spares = |memory: &Memory| memory.lock().spares.buffers.len();
        let buffers: Vec<_> = (0..3).map(|_| memory.buffer(512 << 10).unwrap()).collect();
        buffers.into_iter().for_each(|buffer| memory.reuse(buffer));
        assert_eq!(spares(&memory), 2, "a fourth of the account");
        let lease = memory.try_lease((4 << 20) - (512 << 10)).unwrap();
        assert_eq!(spares(&memory), 1);
        let all = memory.try_lease(512 << 10).unwrap();
        assert_eq!(spares(&memory), 0);
        memory.reuse(Buffer::new(512 << 10).unwrap());
        assert_eq!(spares(&memory), 0, "the account is empty");
        drop((lease, all));
    }

    #[test]
    fn what_is_set_aside_is_there_no_more() {
        let memory = Memory::new(100);
        memory.try_lease(60).unwrap().set_aside();
        assert_eq!((memory.limit(), memory.used().0), (40, 0));
        assert!(memory.lease(41, || false).is_none(), "never");
        assert!(memory.try_lease(40).is_some());
    }

    /// Invariant S3 of `docs/design/serving.md`.
    #[test]
    fn whoever_waits_hears_of_what_can_be_given_up() {
        let memory = Memory::new(10);
        let cached = Mutex::new(None);
        let held = memory.try_lease(10).unwrap();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let room = || cached.lock().unwrap().take().map(drop).is_some();
                assert!(memory.lease(10, room).is_some());
            });
            std::thread::yield_now();
            *cached.lock().unwrap() = Some(held);
            memory.changed();
        });
    }

    #[test]
    fn room_is_made_before_one_waits() {
        let memory = Memory::new(10);
        let cached = Mutex::new(vec![
            memory.try_lease(4).unwrap(),
            memory.try_lease(4).unwrap(),
        ]);
        let lease = memory.lease(6, || cached.lock().unwrap().pop().is_some());
        assert!(lease.is_some());
        assert_eq!(cached.lock().unwrap().len(), 1);
    }

    #[test]
    fn whoever_waits_goes_on_when_others_give_back() {
        let memory = Memory::new(3);
        let at_once = AtomicUsize::new(0);
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    for _ in 0..200 {
                        let lease = memory.lease(2, || false).unwrap();
                        assert_eq!(at_once.fetch_add(1, Ordering::SeqCst), 0);
                        std::thread::yield_now();
                        at_once.fetch_sub(1, Ordering::SeqCst);
                        drop(lease);
                    }
                });
            }
        });
        assert_eq!(memory.used(), (0, 2));
    }
}
