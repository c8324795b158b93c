//! Further node numbers, of inodes that the kernel is to take for others than before.
//!
//! An inode keeps its node number until it is [renewed](Renewed::renew). Then it gets the next of a range that no file
//! system gives to an inode, and the number that it had is old. The kernel finds the new one when it looks up the name.
//! It goes on to ask by the old one for a moment, so both lead to the inode.
//!
//! An old number is never used again while the kernel may know it, so a request tells by its number which of them it
//! means.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{RwLock, RwLockReadGuard, RwLockWriteGuard};

use anteros_core::{Ino, unpoisoned};

/// The first number of the range. Mirrors number from 2^63 on those inodes that cannot have the number of the host, and
/// do not come this far.
pub(crate) const FIRST: u64 = 0xfff0 << 48;

/// The further node numbers of a mount.
#[derive(Debug, Default)]
pub(crate) struct Renewed {
    /// Tells whether there ever was one: as long as there is none, nothing is locked.
    any: AtomicBool,
    numbers: RwLock<Numbers>,
}

#[derive(Debug, Default)]
struct Numbers {
    given: u64,
    /// The numbers that the kernel knows, and the lookup count of each.
    lookups: HashMap<u64, (Ino, u64)>,
    /// The newest number of each inode that was renewed.
    current: HashMap<Ino, u64>,
}

impl Renewed {
    /// Gives an inode its next number.
    pub fn renew(&self, ino: Ino) {
        let mut numbers = self.write();
        let node = FIRST + numbers.given;
        numbers.given += 1;
        numbers.lookups.insert(node, (ino, 0));
        if let Some(old) = numbers.current.insert(ino, node) {
            numbers.drop_unknown(old);
        }
        self.any.store(true, Ordering::Release);
    }

    /// The newest number of an inode; `None` if it was never renewed.
    pub fn current(&self, ino: Ino) -> Option<u64> {
        self.look(|numbers| numbers.current.get(&ino).copied())
    }

    /// As [`current`](Self::current), to tell the kernel of it once more.
    pub fn tell(&self, ino: Ino) -> Option<u64> {
        self.current(ino)?;
        let mut numbers = self.write();
        let node = *numbers.current.get(&ino)?;
        numbers.lookups.entry(node).or_insert((ino, 0)).1 += 1;
        Some(node)
    }

    /// The inode of a further number.
    pub fn ino(&self, node: u64) -> Option<Ino> {
        self.look(|numbers| numbers.lookups.get(&node).map(|(ino, _)| *ino))
    }

    /// Returns whether a number of an inode, its first or a further one, is not its newest.
    pub fn is_old(&self, ino: Ino, node: u64) -> bool {
        self.current(ino).is_some_and(|current| current != node)
    }

    /// Takes so many from the lookup count of a number.
    pub fn forget(&self, node: u64, times: u64) {
        if self.ino(node).is_none() {
            return;
        }
        let mut numbers = self.write();
        if let Some((_, count)) = numbers.lookups.get_mut(&node) {
            *count = count.saturating_sub(times);
        }
        numbers.drop_unknown(node);
    }

    /// Forgets an inode of which the kernel knows no number any more.
    pub fn forget_all(&self, ino: Ino) {
        if self.current(ino).is_some() {
            let mut numbers = self.write();
            if let Some(node) = numbers.current.remove(&ino) {
                numbers.drop_unknown(node);
            }
        }
    }

    fn look<T>(&self, find: impl FnOnce(&Numbers) -> Option<T>) -> Option<T> {
        let any = self.any.load(Ordering::Acquire);
        any.then(|| find(&self.read())).flatten()
    }

    fn read(&self) -> RwLockReadGuard<'_, Numbers> {
        unpoisoned(self.numbers.read())
    }

    fn write(&self) -> RwLockWriteGuard<'_, Numbers> {
        unpoisoned(self.numbers.write())
    }
}

impl Numbers {
    /// Drops a number that the kernel does not know, unless it is the newest of its inode.
    fn drop_unknown(&mut self, node: u64) {
        if let Some(&(ino, 0)) = self.lookups.get(&node) {
            if self.current.get(&ino) != Some(&node) {
                self.lookups.remove(&node);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SEVEN: Ino = Ino(7);

    #[test]
    fn an_inode_has_its_first_number_until_it_is_renewed() {
        let renewed = Renewed::default();
        assert_eq!(renewed.current(SEVEN), None);
        assert_eq!(renewed.tell(SEVEN), None);
        assert_eq!(renewed.ino(FIRST), None);
        assert!(!renewed.is_old(SEVEN, 7));
        renewed.renew(SEVEN);
        assert_eq!(renewed.current(SEVEN), Some(FIRST));
        assert!(renewed.is_old(SEVEN, 7));
        assert!(!renewed.is_old(SEVEN, FIRST));
        assert!(!renewed.is_old(Ino(8), 8), "another one is not meant");
    }

    #[test]
    fn old_numbers_lead_to_the_inode_until_they_are_forgotten() {
        let renewed = Renewed::default();
        renewed.renew(SEVEN);
        assert_eq!(renewed.tell(SEVEN), Some(FIRST));
        assert_eq!(renewed.tell(SEVEN), Some(FIRST));
        renewed.renew(SEVEN);
        assert_eq!(renewed.tell(SEVEN), Some(FIRST + 1));
        assert!(renewed.is_old(SEVEN, FIRST));
        renewed.forget(FIRST, 1);
        assert_eq!(renewed.ino(FIRST), Some(SEVEN));
        renewed.forget(FIRST, 1);
        assert_eq!(renewed.ino(FIRST), None);
        renewed.forget(FIRST + 1, 1);
        assert!(renewed.is_old(SEVEN, 7), "the kernel may know the first");
        assert_eq!(renewed.ino(FIRST + 1), Some(SEVEN));
        renewed.forget_all(SEVEN);
        assert!(!renewed.is_old(SEVEN, 7));
        assert_eq!(renewed.ino(FIRST + 1), None);
        let numbers = renewed.read();
        assert!(numbers.lookups.is_empty() && numbers.current.is_empty());
    }

    #[test]
    fn numbers_that_the_kernel_was_never_told_of_are_not_kept() {
        let renewed = Renewed::default();
        (0..100).for_each(|_| renewed.renew(SEVEN));
        assert_eq!(renewed.read().lookups.len(), 1);
        assert_eq!(renewed.current(SEVEN), Some(FIRST + 99));
    }
}
