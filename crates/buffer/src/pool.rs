//! The memory for data: buffers of a few sizes, within a limit that all files share.
//!
//! Buffers that come back are kept for the next request of their size, since fresh memory costs a page
//! fault for every 4 KiB; kept ones count against the limit, and go first when it is reached.
//! Who finds no room waits in line, so that a large request is not overtaken for ever by small ones. The line
//! moves when a quarter of the memory is free: if each small buffer that comes back let one writer through,
//! many writers would get no further than one small request at a time, and nothing would be gathered.
//!
//! Invariant W3 of `docs/design/bfuse.md`: memory for data never exceeds the limit, and the writer waits.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::{self, Thread};

use crate::lock::lock;

/// The least room for content, in bytes.
pub const ROOM_BYTES_MIN: usize = 4 << 10;

/// Rooms beyond this size are multiples of it; smaller ones are powers of two.
const STEP_BYTES: usize = 64 << 10;

pub(crate) struct Pool {
    limit: usize,
    state: Mutex<State>,
    waiting: AtomicUsize,
}

#[derive(Default)]
struct State {
    used_bytes: usize,
    peak_bytes: usize,
    kept_bytes: usize,
    kept: BTreeMap<usize, Vec<Vec<u8>>>,
    line: VecDeque<Waiter>,
    /// Memory ran out, and a quarter of it is not yet free again.
    is_scarce: bool,
    next_ticket: u64,
}

/// One who stands in line.
struct Waiter {
    ticket: u64,
    thread: Thread,
    /// Bytes asked for.
    bytes: usize,
}

/// Room that was set aside: a kept buffer, or leave to allocate one.
enum Room {
    Kept(Vec<u8>),
    Fresh(usize),
}

impl Room {
    fn into_buffer(self) -> Vec<u8> {
        match self {
            Self::Kept(buffer) => buffer,
            Self::Fresh(bytes) => Vec::with_capacity(bytes),
        }
    }
}

impl State {
    /// Returns whether a request of this size can have room now.
    fn fits(&self, bytes: usize, limit: usize) -> bool {
        let is_scarce = self.is_scarce && self.used_bytes > limit - limit / 4;
        !is_scarce && self.used_bytes + bytes <= limit
    }

    fn find_room(&mut self, bytes: usize, limit: usize) -> Option<Room> {
        if !self.fits(bytes, limit) {
            return None;
        }
        self.is_scarce = false;
        let room = match self.kept.get_mut(&bytes).and_then(Vec::pop) {
            Some(buffer) => {
                self.kept_bytes -= bytes;
                Room::Kept(buffer)
            }
            None => {
                self.give_up_kept(limit - self.used_bytes - bytes);
                Room::Fresh(bytes)
            }
        };
        self.used_bytes += bytes;
        self.peak_bytes = self.peak_bytes.max(self.used_bytes + self.kept_bytes);
        Some(room)
    }

    /// Frees kept buffers until no more than `allowed` bytes of them are left.
    fn give_up_kept(&mut self, allowed: usize) {
        while self.kept_bytes > allowed {
            let Some((&bytes, _)) = self.kept.iter().find(|(_, kept)| !kept.is_empty()) else {
                return;
            };
            self.kept.get_mut(&bytes).and_then(Vec::pop);
            self.kept_bytes -= bytes;
        }
    }
}

impl Pool {
    pub(crate) fn new(limit: usize) -> Self {
        Self {
            limit,
            state: Mutex::default(),
            waiting: AtomicUsize::new(0),
        }
    }

    /// The room to take for so many bytes.
    pub(crate) fn room_for(bytes: usize) -> usize {
        if bytes > STEP_BYTES {
            bytes.next_multiple_of(STEP_BYTES)
        } else {
            bytes.next_power_of_two().max(ROOM_BYTES_MIN)
        }
    }

    /// The largest room that does not exceed so many bytes, which are at least [`ROOM_BYTES_MIN`].
    pub(crate) fn room_within(bytes: usize) -> usize {
        if bytes > STEP_BYTES {
            bytes / STEP_BYTES * STEP_BYTES
        } else {
            1 << bytes.max(ROOM_BYTES_MIN).ilog2()
        }
    }

    /// An empty buffer of just this capacity, if there is room now, and for the first in line as well.
    pub(crate) fn try_take(&self, bytes: usize) -> Option<Vec<u8>> {
        let mut state = lock(&self.state);
        let first_bytes = state.line.front().map_or(0, |first| first.bytes);
        if !state.fits(bytes + first_bytes, self.limit) {
            return None;
        }
        let room = state.find_room(bytes, self.limit);
        drop(state);
        room.map(Room::into_buffer)
    }

    /// An empty buffer of just this capacity, which must not exceed the limit. `help` is called without
    /// a lock, and after this request is [seen](Self::has_waiting), each time before the thread
    /// sleeps; if it could do something that gives memory back, it says so.
    pub(crate) fn take(&self, bytes: usize, help: impl Fn() -> bool) -> Vec<u8> {
        assert!(bytes <= self.limit, "a buffer beyond the limit of the pool");
        let mut state = lock(&self.state);
        let ticket = state.next_ticket;
        state.next_ticket += 1;
        state.line.push_back(Waiter {
            ticket,
            thread: thread::current(),
            bytes,
        });
        self.waiting.fetch_add(1, Ordering::SeqCst);
        loop {
            let is_first = state
                .line
                .front()
                .is_some_and(|first| first.ticket == ticket);
            let room = if is_first {
                state.find_room(bytes, self.limit)
            } else {
                None
            };
            if let Some(room) = room {
                state.line.pop_front();
                self.waiting.fetch_sub(1, Ordering::SeqCst);
                self.call_first(&state);
                drop(state);
                return room.into_buffer();
            }
            state.is_scarce |= is_first;
            drop(state);
            if !help() {
                thread::park();
            }
            state = lock(&self.state);
        }
    }

    /// Returns whether anyone stands in line.
    pub(crate) fn has_waiting(&self) -> bool {
        self.waiting.load(Ordering::SeqCst) > 0
    }

    /// Returns whether the first in line has to wait until memory comes back.
    pub(crate) fn is_short(&self) -> bool {
        let state = lock(&self.state);
        let first = state.line.front();
        first.is_some_and(|first| !state.fits(first.bytes, self.limit))
    }

    /// Takes a buffer back; its capacity is as it was.
    pub(crate) fn give(&self, mut buffer: Vec<u8>) {
        let bytes = buffer.capacity();
        buffer.clear();
        let mut state = lock(&self.state);
        state.used_bytes -= bytes;
        state.kept_bytes += bytes;
        state.kept.entry(bytes).or_default().push(buffer);
        self.call_first(&state);
    }

    fn call_first(&self, state: &State) {
        if let Some(first) = state.line.front() {
            if state.fits(first.bytes, self.limit) {
                first.thread.unpark();
            }
        }
    }

    /// Frees what is kept.
    pub(crate) fn trim(&self) {
        let mut state = lock(&self.state);
        state.give_up_kept(0);
        state.kept.clear();
    }

    /// Bytes of memory that are in use.
    pub(crate) fn used_bytes(&self) -> usize {
        lock(&self.state).used_bytes
    }

    /// Bytes of memory now, used or kept, and at most.
    pub(crate) fn memory(&self) -> (usize, usize) {
        let state = lock(&self.state);
        (state.used_bytes + state.kept_bytes, state.peak_bytes)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    #[test]
    fn kept_buffers_count_and_go_first() {
        let pool = Pool::new(16 << 10);
        let buffer = pool.try_take(8 << 10).unwrap();
        pool.give(buffer);
        assert_eq!(pool.memory().0, 8 << 10);
        let large = pool.try_take(16 << 10).unwrap();
        assert_eq!(pool.memory(), (16 << 10, 16 << 10));
        assert!(pool.try_take(ROOM_BYTES_MIN).is_none());
        pool.give(large);
        pool.trim();
        assert_eq!(pool.memory().0, 0);
    }

    #[test]
    fn who_waits_is_served_in_order() {
        let pool = Arc::new(Pool::new(8 << 10));
        let first = pool.try_take(4 << 10).unwrap();
        let waiter = thread::spawn({
            let pool = Arc::clone(&pool);
            move || pool.take(8 << 10, || false)
        });
        while !pool.has_waiting() {
            thread::yield_now();
        }
        assert!(pool.try_take(4 << 10).is_none(), "overtakes");
        pool.give(first);
        pool.give(waiter.join().unwrap());
        assert!(!pool.has_waiting());
        assert!(pool.try_take(8 << 10).is_some());
    }

    #[test]
    fn the_line_moves_when_a_quarter_is_free() {
        let pool = Arc::new(Pool::new(32 << 10));
        let mut taken: Vec<_> = (0..8).map(|_| pool.try_take(4 << 10).unwrap()).collect();
        let waiters: Vec<_> = (0..2)
            .map(|_| {
                let pool = Arc::clone(&pool);
                thread::spawn(move || pool.give(pool.take(4 << 10, || false)))
            })
            .collect();
        while lock(&pool.state).line.len() < 2 || !lock(&pool.state).is_scarce {
            thread::yield_now();
        }
        pool.give(taken.pop().unwrap());
        assert!(pool.is_short());
        pool.give(taken.pop().unwrap());
        for waiter in waiters {
            waiter.join().unwrap();
        }
        assert!(!pool.has_waiting());
    }

    #[test]
    fn sizes_waste_little() {
        for (bytes, size) in [
            (1, 4 << 10),
            (5000, 8 << 10),
            (64 << 10, 64 << 10),
            ((64 << 10) + 1, 128 << 10),
            (1 << 20, 1 << 20),
        ] {
            assert_eq!(Pool::room_for(bytes), size);
        }
    }
}
