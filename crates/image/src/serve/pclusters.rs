//! The cache of pclusters of which readers wanted a part. Those that are used up at once never come
//! here.
//!
//! One reader makes an entry, and the others that want it wait (cohort decompression in the paper).
//! It stays in the form that is cheapest to serve from. It goes when all of it was handed out, or
//! when memory is wanted and nobody has asked for it since it last came up.
//!
//! Invariant S4 of `docs/design/serving.md`: an extent has one maker at a time; if it fails, the next one tries.
//!
//! Invariant S9 of `docs/design/serving.md`: what is used up leaves nothing behind in the cache.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};

use anteros_core::unpoisoned;

use super::memory::{Buffer, Lease, Memory};
use super::suspended::Suspended;
use crate::map::Pcluster;

/// A pcluster and the length of the extent it is decoded to: the same one may serve several.
pub(crate) type Key = (Pcluster, u64);

/// Bytes that were paid for.
pub(crate) struct Bytes {
    pub(crate) data: Buffer,
    pub(crate) lease: Lease,
}

impl Drop for Bytes {
    fn drop(&mut self) {
        self.lease.shrink_to(0);
        self.lease.memory.reuse(std::mem::take(&mut self.data));
    }
}

/// The form in which a pcluster is kept.
#[derive(Clone)]
pub(crate) enum Held {
    /// As it lies on the device.
    Encoded(Arc<Bytes>),
    /// Its whole extent.
    Decoded(Arc<Bytes>),
    /// A decoder that is suspended somewhere in it.
    Suspended(Arc<Mutex<Suspended>>),
}

/// Tells what a reader finds.
pub(crate) enum Found<'a> {
    /// An entry, and how often readers came back in it to what lies before the end of an earlier part.
    Held(Held, u32),
    /// Nothing: the others wait until it is made.
    Missing(Making<'a>),
}

/// The entries.
pub(crate) struct Pclusters {
    state: Mutex<State>,
    made: Condvar,
    /// Account that is told of entries, which are memory that can be given up.
    memory: Arc<Memory>,
}

#[derive(Default)]
struct State {
    slots: HashMap<Key, Slot>,
    /// Entries in the order in which they come up to be given up; those with an old number are no
    /// more.
    queue: VecDeque<(Key, u64)>,
    numbers: u64,
    waits: u64,
    /// The suspended decoders that were given up last.
    given_up: VecDeque<Key>,
}

/// States how many of those given up are kept in mind.
const GIVEN_UP_MAX: usize = 256;

enum Slot {
    Making(Made),
    Held(Entry),
}

/// An entry that is being made.
#[derive(Clone, Copy, Default)]
struct Made {
    /// Tells whether anyone waits for it.
    awaited: bool,
    /// Bytes of the extent that were handed out before.
    taken: u64,
}

struct Entry {
    held: Held,
    number: u64,
    asked_again: bool,
    /// Tells how often a reader came back, and where the part ends that reached farthest.
    came_back: u32,
    reached: u64,
    /// Bytes of the extent that were handed out.
    taken: u64,
}

impl Pclusters {
    /// An empty cache, whose entries are paid for from this account.
    pub(crate) fn new(memory: Arc<Memory>) -> Self {
        Self {
            state: Mutex::default(),
            made: Condvar::new(),
            memory,
        }
    }

    /// Finds an entry for a part that ends so far into the extent; waits while someone makes it.
    pub(crate) fn find(&self, key: Key, end: u64) -> Found<'_> {
        let mut state = self.lock();
        let mut waited = false;
        loop {
            match state.slots.get_mut(&key) {
                Some(Slot::Held(entry)) => {
                    entry.asked_again = true;
                    let comes_back = u32::from(end <= entry.reached);
                    entry.came_back = entry.came_back.saturating_add(comes_back);
                    entry.reached = entry.reached.max(end);
                    return Found::Held(entry.held.clone(), entry.came_back);
                }
                Some(Slot::Making(made)) => made.awaited = true,
                None => {
                    state.slots.insert(key, Slot::Making(Made::default()));
                    return Found::Missing(Making {
                        cache: self,
                        key,
                        was_given_up: state.forget(&key),
                        had_waiters: false,
                    });
                }
            }
            state.waits += u64::from(!waited);
            waited = true;
            state = unpoisoned(self.made.wait(state));
        }
    }

    /// Returns an entry that is there, without asking for it.
    pub(crate) fn peek(&self, key: Key) -> Option<Held> {
        match self.lock().slots.get(&key) {
            Some(Slot::Held(entry)) => Some(entry.held.clone()),
            _ => None,
        }
    }

    /// Takes an entry away to make another one of it; `None` if someone does already, or did.
    pub(crate) fn replace(&self, key: Key, old: &Held) -> Option<Making<'_>> {
        let mut state = self.lock();
        let taken = match state.slots.get(&key) {
            Some(Slot::Held(entry)) if !entry.held.is(old) => return None,
            Some(Slot::Held(entry)) => entry.taken,
            Some(Slot::Making(_)) => return None,
            None => 0,
        };
        let awaited = false;
        let making = Slot::Making(Made { awaited, taken });
        let entry = state.slots.insert(key, making);
        drop(state);
        drop(entry);
        Some(Making {
            cache: self,
            key,
            was_given_up: true,
            had_waiters: false,
        })
    }

    /// Notes that so many bytes of the extent were handed out. The entry goes when it is used up.
    pub(crate) fn took(&self, key: Key, bytes: u64) {
        let mut state = self.lock();
        match state.slots.get_mut(&key) {
            Some(Slot::Making(made)) => made.taken += bytes,
            Some(Slot::Held(entry)) => {
                entry.taken += bytes;
                if entry.taken >= key.1 {
                    state.slots.remove(&key);
                }
            }
            None => {}
        }
    }

    /// Gives up an entry; whether there was one.
    pub(crate) fn give_up_one(&self) -> bool {
        let mut state = self.lock();
        while let Some((key, number)) = state.queue.pop_front() {
            match state.slots.get_mut(&key) {
                Some(Slot::Held(entry)) if entry.number == number => {
                    if std::mem::take(&mut entry.asked_again) {
                        state.queue.push_back((key, number));
                        continue;
                    }
                    let entry = state.slots.remove(&key);
                    if let Some(Slot::Held(Entry { held, .. })) = &entry {
                        state.remember(key, held);
                    }
                    drop(state);
                    drop(entry);
                    return true;
                }
                _ => {}
            }
        }
        false
    }

    /// Returns how often a reader waited for another one.
    pub(crate) fn waits(&self) -> u64 {
        self.lock().waits
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        unpoisoned(self.state.lock())
    }
}

impl State {
    /// Returns whether someone waits for an entry that is being made.
    fn is_awaited(&self, key: &Key) -> bool {
        matches!(self.slots.get(key), Some(Slot::Making(made)) if made.awaited)
    }

    /// Keeps in mind that a suspended decoder was given up.
    fn remember(&mut self, key: Key, held: &Held) {
        if matches!(held, Held::Suspended(_)) {
            self.given_up.truncate(GIVEN_UP_MAX - 1);
            self.given_up.push_front(key);
        }
    }

    /// Returns whether that is kept in mind; no longer then.
    fn forget(&mut self, key: &Key) -> bool {
        let found = self.given_up.iter().position(|given_up| given_up == key);
        found.and_then(|at| self.given_up.remove(at)).is_some()
    }

    fn put(&mut self, key: Key, held: Held) {
        self.numbers += 1;
        let number = self.numbers;
        let taken = match self.slots.get(&key) {
            Some(Slot::Making(made)) => made.taken,
            _ => 0,
        };
        let entry = Entry {
            held,
            number,
            asked_again: false,
            came_back: 0,
            reached: 0,
            taken,
        };
        self.slots.insert(key, Slot::Held(entry));
        self.queue.push_back((key, number));
        // Entries that were used up leave their place in the queue behind.
        if self.queue.len() > 2 * self.slots.len() + 64 {
            let slots = &self.slots;
            self.queue.retain(|(key, number)| {
                matches!(slots.get(key), Some(Slot::Held(entry)) if entry.number == *number)
            });
        }
    }
}

/// The right and the duty to make an entry. Dropped without one, it wakes those who wait, and the
/// next of them tries.
pub(crate) struct Making<'a> {
    cache: &'a Pclusters,
    key: Key,
    was_given_up: bool,
    had_waiters: bool,
}

impl Making<'_> {
    /// Returns whether another reader waits for it.
    pub(crate) fn is_awaited(&self) -> bool {
        self.cache.lock().is_awaited(&self.key)
    }

    /// Returns whether there was a suspended decoder a while ago, or just now, so that someone comes back.
    pub(crate) fn was_given_up(&self) -> bool {
        self.was_given_up
    }

    /// Lets everyone have it.
    pub(crate) fn put(mut self, held: Held) {
        let mut state = self.cache.lock();
        self.had_waiters = state.is_awaited(&self.key);
        state.put(self.key, held);
    }
}

impl Drop for Making<'_> {
    fn drop(&mut self) {
        let mut state = self.cache.lock();
        if let Some(Slot::Making(made)) = state.slots.get(&self.key) {
            self.had_waiters = made.awaited;
            state.slots.remove(&self.key);
        }
        drop(state);
        // Telling nobody costs a system call too.
        if self.had_waiters {
            self.cache.made.notify_all();
        }
        self.cache.memory.changed();
    }
}

impl Held {
    fn is(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Encoded(a), Self::Encoded(b)) | (Self::Decoded(a), Self::Decoded(b)) => {
                Arc::ptr_eq(a, b)
            }
            (Self::Suspended(a), Self::Suspended(b)) => Arc::ptr_eq(a, b),
            _ => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;
    use crate::map::{Encoding, Location};

    fn key(address: u64, len: u64) -> Key {
        let location = Location::Device { device: 0, address };
        let pcluster = Pcluster {
            location,
            bytes: 4096,
            encoding: Encoding::Plain,
            partial: false,
            inline: false,
        };
        (pcluster, len)
    }

    fn held(memory: &Arc<Memory>, bytes: usize) -> Held {
        Held::Decoded(Arc::new(Bytes {
            data: Buffer::Heap(vec![7; bytes]),
            lease: memory.try_lease(bytes).unwrap(),
        }))
    }

    fn make(cache: &Pclusters, key: Key, held: Held) {
        match cache.find(key, 10) {
            Found::Missing(making) => making.put(held),
            Found::Held(..) => panic!("there already"),
        }
    }

    /// Invariant S4 of `docs/design/serving.md`.
    #[test]
    fn many_readers_have_one_maker() {
        let memory = Memory::new(100);
        let cache = Pclusters::new(memory.clone());
        let made = AtomicUsize::new(0);
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| match cache.find(key(0, 10), 10) {
                    Found::Held(Held::Decoded(bytes), _) => assert_eq!(*bytes.data, [7; 10]),
                    Found::Held(..) => panic!("another form"),
                    Found::Missing(making) => {
                        made.fetch_add(1, Ordering::SeqCst);
                        while !making.is_awaited() {
                            std::thread::yield_now();
                        }
                        making.put(held(&memory, 10));
                    }
                });
            }
        });
        assert_eq!(made.into_inner(), 1);
        assert!(cache.waits() > 0);
    }

    /// Invariant S4 of `docs/design/serving.md`.
    #[test]
    fn a_maker_that_fails_is_followed_by_the_next() {
        let cache = Pclusters::new(Memory::new(0));
        let tried = AtomicUsize::new(0);
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| match cache.find(key(0, 10), 10) {
                    Found::Held(..) => panic!("nobody made it"),
                    Found::Missing(_) => tried.fetch_add(1, Ordering::SeqCst),
                });
            }
        });
        assert_eq!(tried.into_inner(), 8);
        assert!(cache.lock().slots.is_empty());
    }

    /// Invariant S9 of `docs/design/serving.md`.
    #[test]
    fn what_is_used_up_goes_and_leaves_nothing_behind() {
        let memory = Memory::new(1000);
        let cache = Pclusters::new(memory.clone());
        for address in 0..1000 {
            let key = key(address, 10);
            make(&cache, key, held(&memory, 10));
            cache.took(key, 4);
            assert_eq!(memory.used().0, 10);
            cache.took(key, 6);
            assert_eq!(memory.used().0, 0);
        }
        let state = cache.lock();
        assert!(state.slots.is_empty() && state.queue.len() < 100);
    }

    #[test]
    fn what_is_asked_for_is_given_up_last() {
        let memory = Memory::new(30);
        let cache = Pclusters::new(memory.clone());
        for address in 0..3 {
            make(&cache, key(address, 10), held(&memory, 10));
        }
        assert!(matches!(cache.find(key(0, 10), 10), Found::Held(..)));
        let is_there = |address| cache.lock().slots.contains_key(&key(address, 10));
        for gone in [1, 2, 0] {
            assert!(is_there(gone));
            assert!(cache.give_up_one());
            assert!(!is_there(gone));
        }
        assert!(!cache.give_up_one());
        assert_eq!(memory.used().0, 0);
    }

    #[test]
    fn an_entry_is_replaced_once() {
        let memory = Memory::new(30);
        let cache = Pclusters::new(memory.clone());
        make(&cache, key(0, 10), held(&memory, 10));
        let Found::Held(old, 0) = cache.find(key(0, 10), 10) else {
            panic!("just made");
        };
        cache.took(key(0, 10), 6);
        let making = cache.replace(key(0, 10), &old).unwrap();
        assert!(cache.replace(key(0, 10), &old).is_none(), "being made");
        making.put(held(&memory, 10));
        assert!(cache.replace(key(0, 10), &old).is_none(), "made by another");
        cache.took(key(0, 10), 4);
        assert!(
            matches!(cache.find(key(0, 10), 10), Found::Missing(_)),
            "6 were taken before"
        );
    }
}
