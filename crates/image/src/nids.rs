//! A set of inodes that takes bounded memory.
//!
//! The set is a bitmap over the nids in a [`Table`]. Inodes that lie near each other, as those of one directory do,
//! share its pages.

use std::io;

use anteros_core::Table;
use anteros_format::Nid;

/// A set of inodes.
#[derive(Debug)]
pub struct NidSet(Table<1>);

impl NidSet {
    /// An empty set that keeps about so many bytes in memory.
    pub fn new(memory: usize) -> Self {
        Self(Table::new(memory))
    }

    /// Returns whether an inode is in the set.
    ///
    /// # Errors
    ///
    /// Errors of the temporary file.
    pub fn contains(&mut self, Nid(nid): Nid) -> io::Result<bool> {
        let [bits] = self.0.get(nid / 8)?;
        Ok(bits >> (nid % 8) & 1 == 1)
    }

    /// Adds an inode, and says whether it was not there.
    ///
    /// # Errors
    ///
    /// Errors of the temporary file.
    pub fn insert(&mut self, Nid(nid): Nid) -> io::Result<bool> {
        let (at, bit) = (nid / 8, 1 << (nid % 8));
        let [bits] = self.0.get(at)?;
        let is_new = bits & bit == 0;
        if is_new {
            self.0.set(at, [bits | bit])?;
        }
        Ok(is_new)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_added_is_there() {
        let mut set = NidSet::new(0);
        let nids = || (0..1000u64).map(|n| Nid(n.wrapping_mul(0x9e37_79b9_7f4a_7c15)));
        for round in 0..2 {
            for nid in nids() {
                assert_eq!(set.contains(nid).unwrap(), round == 1);
                assert_eq!(set.insert(nid).unwrap(), round == 0);
            }
        }
        assert!(!set.contains(Nid(1)).unwrap());
    }
}
