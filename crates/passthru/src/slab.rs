//! Open files, by handle.

use std::sync::{Arc, RwLock};

use anteros_core::{FsError, FsResult, unpoisoned};
use rustix::io::Errno;

/// Things with a number each. The number of one that was removed is given out again.
#[derive(Debug)]
pub(crate) struct Slab<T>(RwLock<Slots<T>>);

#[derive(Debug)]
struct Slots<T> {
    slots: Vec<Option<Arc<T>>>,
    free: Vec<usize>,
}

impl<T> Default for Slab<T> {
    fn default() -> Self {
        Self(RwLock::new(Slots {
            slots: Vec::new(),
            free: Vec::new(),
        }))
    }
}

impl<T> Slab<T> {
    pub fn insert(&self, value: T) -> u64 {
        let value = Some(Arc::new(value));
        let mut slots = unpoisoned(self.0.write());
        let index = match slots.free.pop() {
            Some(index) => {
                slots.slots[index] = value;
                index
            }
            None => {
                slots.slots.push(value);
                slots.slots.len() - 1
            }
        };
        index as u64
    }

    /// The thing with this number, which stays alive while it is used; EBADF if there is none.
    pub fn get(&self, handle: u64) -> FsResult<Arc<T>> {
        let slots = unpoisoned(self.0.read());
        usize::try_from(handle)
            .ok()
            .and_then(|index| slots.slots.get(index)?.clone())
            .ok_or_else(|| FsError::Host(Errno::BADF.into()))
    }

    /// Returns how many things there are.
    pub fn len(&self) -> usize {
        let slots = unpoisoned(self.0.read());
        slots.slots.len() - slots.free.len()
    }

    pub fn remove(&self, handle: u64) {
        let removed = {
            let mut slots = unpoisoned(self.0.write());
            let index = usize::try_from(handle).ok();
            let removed = index.and_then(|index| slots.slots.get_mut(index)?.take());
            if let (Some(index), Some(_)) = (index, &removed) {
                slots.free.push(index);
            }
            removed
        };
        // To close a file may take long; nobody waits for it.
        drop(removed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_given_out_again_and_never_twice() {
        let slab = Slab::default();
        let (a, b) = (slab.insert('a'), slab.insert('b'));
        assert_ne!(a, b);
        assert_eq!(slab.len(), 2);
        slab.remove(a);
        slab.remove(a);
        assert!(slab.get(a).is_err());
        assert_eq!(slab.len(), 1);
        let (c, d) = (slab.insert('c'), slab.insert('d'));
        assert_eq!(c, a);
        assert_ne!(d, b);
        assert_eq!(*slab.get(b).unwrap(), 'b');
        assert!(slab.get(u64::MAX).is_err());
    }
}
