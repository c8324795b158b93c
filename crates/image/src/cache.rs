//! A bounded cache of byte runs.

use std::collections::{HashMap, VecDeque};
use std::hash::Hash;
use std::sync::{Arc, Mutex};

use anteros_core::unpoisoned;

/// Cache of byte runs by key, of at most so many bytes. The first to go is the one that nobody has
/// asked for since it last came up (second chance).
#[derive(Debug)]
pub(crate) struct Cache<K> {
    bytes_max: usize,
    state: Mutex<State<K>>,
}

/// States what an entry is taken to cost besides its data.
const ENTRY_BYTES: usize = 128;

#[derive(Debug)]
struct State<K> {
    entries: HashMap<K, Entry>,
    queue: VecDeque<K>,
    bytes: usize,
}

#[derive(Debug)]
struct Entry {
    data: Arc<[u8]>,
    asked_again: bool,
}

impl<K: Copy + Eq + Hash> Cache<K> {
    pub(crate) fn new(bytes_max: usize) -> Self {
        let state = State {
            entries: HashMap::new(),
            queue: VecDeque::new(),
            bytes: 0,
        };
        Self {
            bytes_max,
            state: Mutex::new(state),
        }
    }

    pub(crate) fn get(&self, key: &K) -> Option<Arc<[u8]>> {
        let mut state = unpoisoned(self.state.lock());
        let entry = state.entries.get_mut(key)?;
        entry.asked_again = true;
        Some(entry.data.clone())
    }

    /// Returns what the entries take.
    pub(crate) fn bytes(&self) -> usize {
        unpoisoned(self.state.lock()).bytes
    }

    /// Keeps `data`, unless it alone exceeds the cache or is empty.
    pub(crate) fn put(&self, key: K, data: Arc<[u8]>) {
        let bytes = data.len() + ENTRY_BYTES;
        if bytes > self.bytes_max || data.is_empty() {
            return;
        }
        let mut state = unpoisoned(self.state.lock());
        if state.entries.contains_key(&key) {
            return;
        }
        state.make_room(self.bytes_max - bytes);
        state.bytes += bytes;
        state.queue.push_back(key);
        state.entries.insert(
            key,
            Entry {
                data,
                asked_again: false,
            },
        );
    }
}

impl<K: Copy + Eq + Hash> State<K> {
    fn make_room(&mut self, bytes_max: usize) {
        while self.bytes > bytes_max {
            let Some(key) = self.queue.pop_front() else {
                return;
            };
            let Some(entry) = self.entries.get_mut(&key) else {
                continue;
            };
            if std::mem::take(&mut entry.asked_again) {
                self.queue.push_back(key);
            } else if let Some(entry) = self.entries.remove(&key) {
                self.bytes -= entry.data.len() + ENTRY_BYTES;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn never_holds_more_than_it_may() {
        let cache = Cache::new(1000);
        for key in 0..1000u32 {
            cache.put(key, vec![0; 1 + key as usize % 40].into());
            let state = cache.state.lock().unwrap();
            let held: usize = state
                .entries
                .values()
                .map(|e| e.data.len() + ENTRY_BYTES)
                .sum();
            assert_eq!(
                (held, state.entries.len()),
                (state.bytes, state.queue.len())
            );
            assert!(held <= 1000);
        }
    }

    #[test]
    fn what_is_asked_for_stays() {
        let cache = Cache::new(3 * (ENTRY_BYTES + 3));
        for key in 0..100u32 {
            cache.put(key, vec![key as u8; 3].into());
            assert_eq!(cache.get(&0).as_deref(), Some(&[0u8; 3][..]));
        }
        cache.put(200, vec![0; 1000].into());
        assert!(cache.get(&200).is_none(), "larger than the cache");
        cache.put(201, Vec::new().into());
        assert!(cache.get(&201).is_none(), "costs, and is of no use");
    }
}
