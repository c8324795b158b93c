//! Tables that take bounded memory.
//!
//! A table has a value of a fixed number of bytes for each index, at first zeros. It lies in pages: those used last are
//! in memory, the others in a temporary file that has no name and goes with the table. Indexes that lie near each other
//! share pages.

use std::collections::{BTreeMap, HashMap};
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

const PAGE_BYTES: usize = 4096;
/// Fewer pages than this would be read again and again.
const PAGES_MIN: usize = 4;

/// A value of so many bytes for each index.
#[derive(Debug)]
pub struct Table<const BYTES: usize> {
    pages_max: usize,
    pages: HashMap<u64, Page>,
    /// Counts the uses of pages.
    clock: u64,
    file: Option<File>,
    /// All pages that were ever set, and the place in the file of each that was written there, counted in pages.
    places: BTreeMap<u64, Option<u64>>,
    /// Pages in the file.
    written: u64,
}

#[derive(Debug)]
struct Page {
    bytes: Box<[u8; PAGE_BYTES]>,
    used: u64,
    is_dirty: bool,
}

impl<const BYTES: usize> Table<BYTES> {
    const VALUES: u64 = (PAGE_BYTES / BYTES) as u64;

    /// A table of zeros that keeps about so many bytes in memory.
    pub fn new(memory: usize) -> Self {
        Self {
            pages_max: (memory / PAGE_BYTES).max(PAGES_MIN),
            pages: HashMap::new(),
            clock: 0,
            file: None,
            places: BTreeMap::new(),
            written: 0,
        }
    }

    /// The value of an index.
    ///
    /// # Errors
    ///
    /// Errors of the temporary file.
    pub fn get(&mut self, index: u64) -> io::Result<[u8; BYTES]> {
        let number = index / Self::VALUES;
        if !self.places.contains_key(&number) {
            return Ok([0; BYTES]);
        }
        let page = self.page(number)?;
        let mut values = page.bytes.chunks_exact(BYTES);
        let value = values.nth((index % Self::VALUES) as usize);
        Ok(value
            .and_then(|value| value.try_into().ok())
            .unwrap_or([0; BYTES]))
    }

    /// Gives an index another value.
    ///
    /// # Errors
    ///
    /// Errors of the temporary file.
    pub fn set(&mut self, index: u64, value: [u8; BYTES]) -> io::Result<()> {
        let number = index / Self::VALUES;
        let page = self.page(number)?;
        let mut values = page.bytes.chunks_exact_mut(BYTES);
        if let Some(old) = values.nth((index % Self::VALUES) as usize) {
            page.is_dirty |= *old != value;
            old.copy_from_slice(&value);
        }
        Ok(())
    }

    /// The first index from that one on whose value is not all zeros, with its value.
    ///
    /// # Errors
    ///
    /// Errors of the temporary file.
    pub fn next(&mut self, from: u64) -> io::Result<Option<(u64, [u8; BYTES])>> {
        let mut from = from;
        while let Some((&number, _)) = self.places.range(from / Self::VALUES..).next() {
            let first = number * Self::VALUES;
            let skipped = from.saturating_sub(first) as usize;
            let values = self.page(number)?.bytes.chunks_exact(BYTES);
            let found = (first..).zip(values).skip(skipped);
            let mut found =
                found.filter_map(|(index, value)| Some((index, value.try_into().ok()?)));
            if let Some(found) = found.find(|(_, value)| *value != [0; BYTES]) {
                return Ok(Some(found));
            }
            from = first + Self::VALUES;
        }
        Ok(None)
    }

    fn page(&mut self, number: u64) -> io::Result<&mut Page> {
        self.clock += 1;
        if !self.pages.contains_key(&number) {
            if self.pages.len() >= self.pages_max {
                self.evict()?;
            }
            let page = self.load(number)?;
            self.pages.insert(number, page);
            self.places.entry(number).or_insert(None);
        }
        let page = self.pages.get_mut(&number).expect("it was just loaded");
        page.used = self.clock;
        Ok(page)
    }

    fn load(&self, number: u64) -> io::Result<Page> {
        let mut bytes = Box::new([0; PAGE_BYTES]);
        if let (Some(Some(place)), Some(file)) = (self.places.get(&number), &self.file) {
            file.read_exact_at(&mut bytes[..], place * PAGE_BYTES as u64)?;
        }
        Ok(Page {
            bytes,
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
            let known = self.places.entry(number).or_default();
            let place = known.unwrap_or(self.written);
            if self.file.is_none() {
                self.file = Some(tempfile::tempfile()?);
            }
            let file = self.file.as_ref().expect("it was just made");
            file.write_all_at(&page.bytes[..], place * PAGE_BYTES as u64)?;
            self.written = self.written.max(place + 1);
            *known = Some(place);
        }
        self.pages.remove(&number);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_come_back_from_the_file() {
        let mut table = Table::<12>::new(0);
        let indexes = || (1..1000u64).map(|n| n.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 8);
        let value = |index: u64, round: u8| {
            let mut value = [round; 12];
            value[..8].copy_from_slice(&index.to_le_bytes());
            value
        };
        for round in 1..3 {
            for index in indexes() {
                let before = match round {
                    1 => [0; 12],
                    _ => value(index, 1),
                };
                assert_eq!(table.get(index).unwrap(), before);
                table.set(index, value(index, round)).unwrap();
            }
        }
        assert!(table.file.is_some() && table.pages.len() == PAGES_MIN);
        assert_eq!(table.get(0).unwrap(), [0; 12]);
        let mut expected: Vec<_> = indexes().map(|index| (index, value(index, 2))).collect();
        expected.sort_unstable();
        let (mut found, mut from) = (Vec::new(), 0);
        while let Some((index, value)) = table.next(from).unwrap() {
            found.push((index, value));
            from = index + 1;
        }
        assert!(found == expected);
    }
}
