//! Sets of logical blocks, as ranges.

use std::collections::BTreeMap;
use std::ops::Range;

/// Ranges that neither overlap nor touch.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(crate) struct Ranges(BTreeMap<u32, u32>);

impl Ranges {
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn clear(&mut self) {
        self.0.clear();
    }

    pub(crate) fn insert(&mut self, range: Range<u32>) {
        if range.is_empty() {
            return;
        }
        let Range { mut start, mut end } = range;
        // Whatever overlaps or touches begins no later than our end.
        while let Some((&left, &right)) = self.0.range(..=end).next_back() {
            if right < start {
                break;
            }
            self.0.remove(&left);
            start = start.min(left);
            end = end.max(right);
        }
        self.0.insert(start, end);
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = Range<u32>> + '_ {
        self.0.iter().map(|(&start, &end)| start..end)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_join_where_they_touch() {
        let mut ranges = Ranges::default();
        for range in [5..6, 9..12, 6..9, 20..30, 1..2, 25..27, 4..5] {
            ranges.insert(range);
        }
        assert_eq!(ranges.iter().collect::<Vec<_>>(), [1..2, 4..12, 20..30]);
        ranges.insert(0..40);
        assert!(ranges.iter().eq(std::iter::once(0..40)));
    }
}
