//! A set of bytes, as ranges.

use std::collections::BTreeMap;
use std::ops::Range;

/// Ranges that neither overlap nor touch: the end of each by its start.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Ranges(BTreeMap<u64, u64>);

impl Ranges {
    /// Adds a range.
    pub fn insert(&mut self, range: Range<u64>) {
        let (mut start, mut end) = (range.start, range.end);
        if start >= end {
            return;
        }
        while let Some((&before, &reaches)) = self.0.range(..=end).next_back() {
            if reaches < start {
                break;
            }
            self.0.remove(&before);
            (start, end) = (start.min(before), end.max(reaches));
        }
        self.0.insert(start, end);
    }

    /// Takes a range away, as far as it is there.
    pub fn remove(&mut self, range: Range<u64>) {
        if range.is_empty() {
            return;
        }
        while let Some((&start, &end)) = self.0.range(..range.end).next_back() {
            if end <= range.start {
                break;
            }
            self.0.remove(&start);
            for left in [start..range.start, range.end..end] {
                if !left.is_empty() {
                    self.0.insert(left.start, left.end);
                }
            }
        }
    }

    /// Returns whether all of a range is there.
    pub fn covers(&self, range: &Range<u64>) -> bool {
        let last = self.0.range(..=range.start).next_back();
        last.is_some_and(|(_, end)| *end >= range.end)
    }

    /// The ranges, ascending.
    pub fn iter(&self) -> impl Iterator<Item = Range<u64>> + '_ {
        self.0.iter().map(|(&start, &end)| start..end)
    }

    /// The parts of them that lie within bounds, ascending.
    pub fn within(&self, bounds: Range<u64>) -> impl Iterator<Item = Range<u64>> + '_ {
        let before = self.0.range(..bounds.start).next_back();
        let inside = self.0.range(bounds.clone());
        let parts = before.into_iter().chain(inside);
        let parts = parts.map(move |(&start, &end)| start.max(bounds.start)..end.min(bounds.end));
        parts.filter(|part| !part.is_empty())
    }

    /// Bytes of all of them.
    pub fn bytes(&self) -> u64 {
        self.iter().map(|range| range.end - range.start).sum()
    }

    /// The part of each range that begins and ends at multiples of so many bytes.
    pub fn whole(&self, unit: u64) -> Self {
        let whole = self
            .iter()
            .map(|range| range.start.next_multiple_of(unit)..range.end / unit * unit);
        let whole = whole.filter(|range| !range.is_empty());
        Self(whole.map(|range| (range.start, range.end)).collect())
    }
}

impl FromIterator<Range<u64>> for Ranges {
    fn from_iter<T: IntoIterator<Item = Range<u64>>>(ranges: T) -> Self {
        let mut all = Self::default();
        ranges.into_iter().for_each(|range| all.insert(range));
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(ranges: &Ranges) -> Vec<Range<u64>> {
        ranges.iter().collect()
    }

    #[test]
    fn ranges_that_touch_become_one_and_what_is_removed_splits_them() {
        let mut ranges: Ranges = [10..20, 30..40, 50..60].into_iter().collect();
        ranges.insert(20..30);
        ranges.insert(70..70);
        assert_eq!(found(&ranges), [10..40, 50..60]);
        ranges.remove(15..17);
        ranges.remove(0..11);
        ranges.remove(35..55);
        assert_eq!(found(&ranges), [11..15, 17..35, 55..60]);
        assert!(ranges.covers(&(17..35)) && !ranges.covers(&(14..18)) && !ranges.covers(&(60..61)));
        assert_eq!(ranges.bytes(), 27);
        assert_eq!(found(&ranges.whole(4)), [20..32, 56..60]);
    }

    /// Tests against a bit for each byte.
    #[test]
    fn a_set_is_what_a_bitmap_is() {
        let (mut ranges, mut bits) = (Ranges::default(), vec![false; 300]);
        let mut state = 7_u64;
        for _ in 0..2000 {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            let start = (state >> 33) % 280;
            let end = start + (state >> 50) % 20;
            let adds = state >> 40 & 1 == 0;
            bits[start as usize..end as usize].fill(adds);
            match adds {
                true => ranges.insert(start..end),
                false => ranges.remove(start..end),
            }
            let all: Vec<u64> = ranges.iter().flatten().collect();
            let set: Vec<u64> = (0..300).filter(|&at| bits[at as usize]).collect();
            assert_eq!(all, set);
            let some: Vec<u64> = ranges.within(100..123).flatten().collect();
            assert!(
                some.into_iter()
                    .eq(set.into_iter().filter(|at| (100..123).contains(at)))
            );
        }
    }
}
