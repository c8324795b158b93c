//! The order in which content is stored that programs read.

use std::cmp::Reverse;

/// Position of something in the order of launches. Content that most launches read comes first, as it is wanted whatever is
/// launched; then content that half as many read, and so on. Each part keeps the order of the reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Turn<T> {
    /// Holds the same number for all that about as many launches read.
    pub rareness: Reverse<u32>,
    /// Tells when it was read.
    pub order: T,
}

impl<T> Turn<T> {
    /// The position of what so many launches read.
    pub fn new(launches: u64, order: T) -> Self {
        Self {
            rareness: Reverse(launches.max(1).ilog2()),
            order,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_more_launches_read_comes_first() {
        let mut turns = [(0, 9), (1, 4), (2, 8), (3, 7), (4, 12)].map(|(n, at)| Turn::new(n, at));
        turns.sort_unstable();
        assert_eq!(turns.map(|turn| turn.order), [12, 7, 8, 4, 9]);
    }
}
