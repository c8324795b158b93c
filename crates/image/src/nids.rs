//! A set of inodes that takes bounded memory.
//!
//! The set is a bitmap over the nids in pages of 4 KiB. The pages used last are in memory, the others in a temporary
//! file that has no name and goes with the set. Inodes that lie near each other, as those of one directory do, share
//! pages.

use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use anteros_format::Nid;

const PAGE_BYTES: usize = 4096;
/// The bits of a nid that count within its page.
const PAGE_BITS: u32 = (PAGE_BYTES * 8).ilog2();
/// Fewer pages than this would be read again and again.
const PAGES_MIN: usize = 16;

/// A set of inodes.
#[derive(Debug)]
pub struct NidSet {
    pages_max: usize,
    pages: HashMap<u64, Page>,
    /// Counts the uses of pages.
    clock: u64,
    file: Option<File>,
    /// The place of each page that was written to the file, counted in pages.
    places: HashMap<u64, u64>,
}

#[derive(Debug)]
struct Page {
    bits: Box<[u8; PAGE_BYTES]>,
    used: u64,
    is_dirty: bool,
}

impl NidSet {
    /// An empty set that keeps about so many bytes in memory.
    pub fn new(memory: usize) -> Self {
        Self {
            pages_max: (memory / PAGE_BYTES).max(PAGES_MIN),
            pages: HashMap::new(),
            clock: 0,
            file: None,
            places: HashMap::new(),
        }
    }

    /// Returns whether an inode is in the set.
    ///
    /// # Errors
    ///
    /// Those of the temporary file.
    pub fn contains(&mut self, nid: Nid) -> io::Result<bool> {
        let (number, byte, bit) = place(nid);
        if !self.pages.contains_key(&number) && !self.places.contains_key(&number) {
            return Ok(false);
        }
        Ok(self.page(number)?.bits[byte] & bit != 0)
    }

    /// Adds an inode, and says whether it was not there.
    ///
    /// # Errors
    ///
    /// Those of the temporary file.
    pub fn insert(&mut self, nid: Nid) -> io::Result<bool> {
        let (number, byte, bit) = place(nid);
        let page = self.page(number)?;
        let is_new = page.bits[byte] & bit == 0;
        page.bits[byte] |= bit;
        page.is_dirty |= is_new;
        Ok(is_new)
    }

    fn page(&mut self, number: u64) -> io::Result<&mut Page> {
        self.clock += 1;
        if !self.pages.contains_key(&number) {
            if self.pages.len() >= self.pages_max {
                self.evict()?;
            }
            let page = self.load(number)?;
            self.pages.insert(number, page);
        }
        let page = self.pages.get_mut(&number).expect("it was just loaded");
        page.used = self.clock;
        Ok(page)
    }

    fn load(&self, number: u64) -> io::Result<Page> {
        let mut bits = Box::new([0; PAGE_BYTES]);
        if let (Some(place), Some(file)) = (self.places.get(&number), &self.file) {
            file.read_exact_at(&mut bits[..], place * PAGE_BYTES as u64)?;
        }
        Ok(Page {
            bits,
            used: self.clock,
            is_dirty: false,
        })
    }

    /// Lets go of the page that was not used for the longest time.
    fn evict(&mut self) -> io::Result<()> {
        let oldest = self.pages.iter().min_by_key(|(_, page)| page.used);
        let Some((&number, page)) = oldest else {
            return Ok(());
        };
        if page.is_dirty {
            let next = self.places.len() as u64;
            let place = *self.places.entry(number).or_insert(next);
            if self.file.is_none() {
                self.file = Some(tempfile::tempfile()?);
            }
            let file = self.file.as_ref().expect("it was just made");
            file.write_all_at(&page.bits[..], place * PAGE_BYTES as u64)?;
        }
        self.pages.remove(&number);
        Ok(())
    }
}

/// The page of an inode, and its byte and bit there.
const fn place(Nid(nid): Nid) -> (u64, usize, u8) {
    let bit = (nid & ((1 << PAGE_BITS) - 1)) as usize;
    (nid >> PAGE_BITS, bit / 8, 1 << (bit % 8))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_come_back_from_the_file() {
        let mut set = NidSet::new(0);
        let nids = || (0..1000u64).map(|n| Nid(n.wrapping_mul(0x9e37_79b9_7f4a_7c15)));
        for round in 0..2 {
            for nid in nids() {
                assert_eq!(set.contains(nid).unwrap(), round == 1);
                assert_eq!(set.insert(nid).unwrap(), round == 0);
            }
        }
        assert!(set.file.is_some() && set.pages.len() == PAGES_MIN);
        assert!(!set.contains(Nid(1)).unwrap());
    }
}
