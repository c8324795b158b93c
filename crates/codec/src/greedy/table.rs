//! A table of positions by the hash of the five bytes that lie there.

/// Bits of a hash. The table is as large as half a first-level cache.
pub(super) const HASH_BITS: u32 = 13;
/// The largest distance of LZ4.
pub(super) const DISTANCE_MAX: usize = u16::MAX as usize;
/// Positions are counted up to here, and from one on again.
const COUNT_MAX: u32 = 1 << 30;

/// The last position with each hash.
///
/// It is kept from block to block. Positions of earlier blocks are told apart, so nothing is cleared between.
pub(super) struct Table {
    /// Positions of the block, plus `origin`.
    slots: Box<[u32; 1 << HASH_BITS]>,
    /// A number that is added to positions of the block, so that those of earlier ones lie before these.
    origin: u32,
}

impl Table {
    pub fn new() -> Self {
        let slots = vec![0; 1 << HASH_BITS].into_boxed_slice();
        Self {
            slots: slots.try_into().expect("the length is the same"),
            origin: 1,
        }
    }

    /// Begins another block, behind one of which the first so many positions may have come into the table.
    pub fn restart(&mut self, positions: usize) {
        self.origin = self.origin.saturating_add(positions as u32);
        if self.origin > COUNT_MAX {
            self.slots.fill(0);
            self.origin = 1;
        }
    }

    /// Puts a position and its bytes into the table, and returns a position before it that may have the same ones: the last
    /// one with their hash, or `first` if that one lies before it or elsewhere.
    ///
    /// `first` is a position before this one, by less than 2^32.
    #[inline(always)]
    pub fn visit(&mut self, at: usize, bytes: u64, first: usize) -> usize {
        debug_assert!(first < at);
        let last = self.put(at, bytes);
        // Nobody can foretell whether the last one lies there. The first that does will do as well as another, as it takes no
        // branch.
        let ahead = last.wrapping_sub(self.origin.wrapping_add(first as u32));
        let lies_there = ahead < (at - first) as u32;
        first + if lies_there { ahead as usize } else { 0 }
    }

    /// Puts a position and its bytes into the table, and returns what was there.
    #[inline(always)]
    pub fn put(&mut self, at: usize, bytes: u64) -> u32 {
        let hash = (bytes << 24).wrapping_mul(889_523_592_379) >> (u64::BITS - HASH_BITS);
        let now = self.origin.wrapping_add(at as u32);
        std::mem::replace(&mut self.slots[hash as usize], now)
    }

    /// Returns how many slots have been used.
    #[cfg(test)]
    pub fn used(&self) -> usize {
        self.slots.iter().filter(|slot| **slot > 0).count()
    }
}

/// Returns the first position that a match of this one can have.
#[inline(always)]
pub(super) fn reach(at: usize) -> usize {
    at.saturating_sub(DISTANCE_MAX)
}
