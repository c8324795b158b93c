//! Pages that were asked for of late: whoever asked has them, and need not be given them.

use std::collections::{BTreeSet, VecDeque};
use std::ops::Range;

use crate::layout::summary::Owner;

/// Pages that are remembered: 16 MiB of them.
const PAGES_MAX: usize = 4096;

/// The pages that were asked for last.
#[derive(Default)]
pub(crate) struct Asked {
    pages: BTreeSet<(u32, u32)>,
    /// The pages, the oldest first.
    order: VecDeque<(u32, u32)>,
}

impl Asked {
    /// A page was asked for. If that is so once more, it was let go of, and so may the others have been.
    pub(crate) fn note(&mut self, page: Owner) {
        let page = (page.ino, page.lblk);
        if self.pages.contains(&page) {
            *self = Self::default();
        }
        self.pages.insert(page);
        self.order.push_back(page);
        if self.order.len() > PAGES_MAX {
            let oldest = self.order.pop_front();
            oldest.map(|oldest| self.pages.remove(&oldest));
        }
    }

    /// The pages of a file in a range that were not asked for, in runs.
    pub(crate) fn others(&self, ino: u32, range: Range<u32>) -> Vec<Range<u32>> {
        let mut from = range.start;
        let mut runs = Vec::new();
        let asked = self.pages.range((ino, range.start)..(ino, range.end));
        for &(_, lblk) in asked {
            runs.push(from..lblk);
            from = lblk + 1;
        }
        runs.push(from..range.end);
        runs.retain(|run| !run.is_empty());
        runs
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(lblks: impl IntoIterator<Item = u32>) -> Asked {
        let mut asked = Asked::default();
        let pages = lblks.into_iter().map(|lblk| Owner { ino: 7, lblk });
        pages.for_each(|page| asked.note(page));
        asked
    }

    fn others(asked: &Asked, ino: u32, range: Range<u32>) -> Vec<(u32, u32)> {
        let runs = asked.others(ino, range).into_iter();
        runs.map(|run| (run.start, run.end)).collect()
    }

    #[test]
    fn what_was_asked_for_is_left_out() {
        let asked = asked([3, 9, 4, 12]);
        assert_eq!(others(&asked, 7, 2..12), [(2, 3), (5, 9), (10, 12)]);
        assert_eq!(others(&asked, 7, 3..5), []);
        assert_eq!(others(&asked, 8, 3..5), [(3, 5)]);
    }

    #[test]
    fn what_is_asked_for_again_was_let_go_of() {
        let asked = asked([3, 4, 3]);
        assert_eq!(others(&asked, 7, 3..5), [(4, 5)]);
    }

    #[test]
    fn only_so_many_are_remembered() {
        let asked = asked(0..PAGES_MAX as u32 + 2);
        assert_eq!(others(&asked, 7, 0..100), [(0, 2)]);
        assert_eq!(asked.pages.len(), PAGES_MAX);
    }
}
