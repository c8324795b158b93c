//! Pages that were read of late: they are in the page cache of the kernel, and need not be pushed there.

use std::collections::{BTreeSet, VecDeque};
use std::ops::Range;

use crate::layout::summary::Owner;

/// Pages that are remembered: 16 MiB of them.
const PAGES_MAX: usize = 4096;

/// The pages that were read last.
#[derive(Default)]
pub(crate) struct RecentReads {
    pages: BTreeSet<(u32, u32)>,
    /// The pages, the oldest first.
    order: VecDeque<(u32, u32)>,
}

impl RecentReads {
    /// Notes that a page was read. If that is so once more, the kernel has dropped it, and maybe the others.
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

    /// The pages of a file in a range that were not read, in runs.
    pub(crate) fn others(&self, ino: u32, range: Range<u32>) -> Vec<Range<u32>> {
        let mut from = range.start;
        let mut runs = Vec::new();
        let read = self.pages.range((ino, range.start)..(ino, range.end));
        for &(_, lblk) in read {
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

    fn recent(lblks: impl IntoIterator<Item = u32>) -> RecentReads {
        let mut recent = RecentReads::default();
        let pages = lblks.into_iter().map(|lblk| Owner { ino: 7, lblk });
        pages.for_each(|page| recent.note(page));
        recent
    }

    fn others(recent: &RecentReads, ino: u32, range: Range<u32>) -> Vec<(u32, u32)> {
        let runs = recent.others(ino, range).into_iter();
        runs.map(|run| (run.start, run.end)).collect()
    }

    #[test]
    fn what_was_asked_for_is_left_out() {
        let recent = recent([3, 9, 4, 12]);
        assert_eq!(others(&recent, 7, 2..12), [(2, 3), (5, 9), (10, 12)]);
        assert_eq!(others(&recent, 7, 3..5), []);
        assert_eq!(others(&recent, 8, 3..5), [(3, 5)]);
    }

    #[test]
    fn what_is_asked_for_again_was_let_go_of() {
        let recent = recent([3, 4, 3]);
        assert_eq!(others(&recent, 7, 3..5), [(4, 5)]);
    }

    #[test]
    fn only_so_many_are_remembered() {
        let recent = recent(0..PAGES_MAX as u32 + 2);
        assert_eq!(others(&recent, 7, 0..100), [(0, 2)]);
        assert_eq!(recent.pages.len(), PAGES_MAX);
    }
}
