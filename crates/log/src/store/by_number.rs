//! Tables by number: of nodes, inodes, and blocks of tables. Each request asks them many times.
//!
//! A number is multiplied by an odd one that is drawn for each table, and the bits of the product are mixed. Which numbers
//! meet depends on the factor, and no log has that: nobody can make one whose numbers all meet.

use std::collections::{HashMap, HashSet};
use std::hash::{BuildHasher, Hasher, RandomState};

/// An odd number without a pattern: the golden ratio, of 64 bits.
const MIXER: u64 = 0x9e37_79b9_7f4a_7c15;

/// A table by number.
pub(crate) type NumberMap<V> = HashMap<u32, V, Factor>;

/// A set of numbers.
pub(crate) type NumberSet = HashSet<u32, Factor>;

/// The factor of a table.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Factor(u64);

impl Default for Factor {
    /// Draws one.
    fn default() -> Self {
        Self(RandomState::new().hash_one(0) | 1)
    }
}

impl BuildHasher for Factor {
    type Hasher = Product;

    fn build_hasher(&self) -> Product {
        let Self(factor) = *self;
        Product { factor, hash: 0 }
    }
}

/// The hash of a number.
pub(crate) struct Product {
    factor: u64,
    hash: u64,
}

impl Hasher for Product {
    fn write_u32(&mut self, number: u32) {
        let product = u64::from(number).wrapping_mul(self.factor);
        // Each half now says something of all bits; numbers at equal distances would be at equal ones without.
        let mixed = product ^ product >> u32::BITS;
        self.hash = mixed.wrapping_mul(MIXER).rotate_left(u32::BITS);
    }

    /// Takes what is no number of 32 bits, which no table has.
    fn write(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.write_u32(self.hash as u32 ^ u32::from(byte));
        }
    }

    fn finish(&self) -> u64 {
        self.hash
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLACES: u64 = 1024;

    fn place(factor: Factor, number: u32) -> u64 {
        factor.hash_one(number) % PLACES
    }

    /// Factors that have nothing to do with each other.
    fn factors() -> impl Iterator<Item = Factor> {
        (1..=64).map(|number: u64| {
            let factor = number.wrapping_mul(0xd1b5_4a32_d192_ed03);
            Factor((factor ^ factor >> 29).wrapping_mul(0xbf58_476d_1ce4_e5b9) | 1)
        })
    }

    /// The number of places, of [`PLACES`], that numbers have; as many numbers without a pattern have 647.
    fn places(factor: Factor, numbers: impl Iterator<Item = u32>) -> usize {
        let places = numbers.map(|number| place(factor, number));
        places.collect::<HashSet<_>>().len()
    }

    #[test]
    fn no_distance_makes_numbers_meet() {
        for distance in (0..22).map(|bit| 1 << bit) {
            for factor in factors() {
                let numbers = (0..PLACES as u32).map(|number| number * distance);
                let count = places(factor, numbers);
                assert!(count > 560, "{distance}, {factor:?}: {count} places");
            }
        }
    }

    /// Tests that numbers which have one place by a factor have many by others.
    #[test]
    fn numbers_that_meet_in_one_table_do_not_in_another() {
        let mut factors = factors();
        let known = factors.next().unwrap();
        let meeting = (0..u32::MAX).filter(|&number| place(known, number) == 0);
        let meeting: Vec<u32> = meeting.take(PLACES as usize).collect();
        for factor in factors {
            let count = places(factor, meeting.iter().copied());
            assert!(count > 560, "{factor:?}: {count} places");
        }
    }

    #[test]
    fn each_table_has_a_factor_of_its_own() {
        let factors: HashSet<u64> = (0..16).map(|_| Factor::default().0).collect();
        assert_eq!(factors.len(), 16);
        assert!(factors.iter().all(|factor| factor % 2 == 1));
    }
}
