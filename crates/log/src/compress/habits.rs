//! Use of files of which neither name nor content says what they are (FPC, 4.6): by counters of what is written, in
//! which order, and read.

use std::ops::Range;

use crate::compress::kind::ContentKind;

/// From so many syncs on something can be said.
const SYNCS_MIN: u32 = 8;

/// Pages that a file is given with each sync at most, unless it is one that is copied to, not changed.
const BATCH_MAX: u64 = 64;

/// Pages that are decoded before anything is said of how many were wanted: 16 MiB.
const DECODED_MIN: u64 = 1 << 12;

/// Pages that are decoded for one that is wanted, from which on windows are too large.
const IN_VAIN: u64 = 8;

/// Holds what was done to a file since it came to memory.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Habits {
    /// Syncs that brought something along.
    syncs: u32,
    /// Those of them that went on where the file ended, or in its last page.
    appends: u32,
    /// Pages that they brought.
    written: u64,
    /// Pages that were read from the log.
    read: u64,
    /// The last page that was brought.
    last: Option<u32>,
    /// Pages that were decoded, and those of them that were wanted.
    decoded: u64,
    wanted: u64,
}

impl Habits {
    /// Somebody read so many bytes.
    pub(crate) fn note_read(&mut self, pages: u64) {
        self.read += pages;
    }

    /// So many pages were decoded, of which so many were wanted.
    pub(crate) fn note_decoded(&mut self, wanted: u64, decoded: u64) {
        self.wanted += wanted;
        self.decoded += decoded;
    }

    /// Tells whether far more is decoded than wanted of a file of so many pages: more than all of it, so that some was
    /// decoded again and again.
    pub(crate) fn is_decoded_in_vain(&self, pages: u64) -> bool {
        self.decoded > DECODED_MIN.max(pages) && self.decoded >= IN_VAIN * self.wanted
    }

    /// Begins that count anew.
    pub(crate) fn forget_decoded(&mut self) {
        (self.decoded, self.wanted) = (0, 0);
    }

    /// A sync brings so many pages, of which these are the first and the one behind the last.
    pub(crate) fn note_synced(&mut self, pages: u64, range: Range<u32>) {
        let last = range.end.saturating_sub(1);
        let goes_on = self
            .last
            .is_none_or(|last| (last..=last + 1).contains(&range.start));
        let is_whole = u64::from(range.end - range.start) == pages;
        self.appends += u32::from(goes_on && is_whole);
        self.last = Some(last);
        self.syncs += 1;
        self.written += pages;
    }

    /// Returns what file it is like: one that is written in small pieces and hardly read is a database, or a journal if
    /// it only grows.
    pub(crate) fn kind(&self) -> ContentKind {
        let is_known = self.syncs >= SYNCS_MIN;
        let is_small = self.written <= BATCH_MAX * u64::from(self.syncs);
        match is_known && is_small && self.read < self.written {
            true if self.appends * 4 >= self.syncs * 3 => ContentKind::WriteAheadLog,
            true => ContentKind::Database,
            false => ContentKind::Other,
        }
    }
}

/// Windows in a row that gain nothing, after which those behind them are left alone.
const REFUSALS: u32 = 2;

/// The most windows that are left alone at once, as a power of two.
const PASSED_MAX: u32 = 6;

/// Part of a file that is not compressed, because what lies before it gained nothing: twice as long each time, so that little
/// time is lost on a film, and little room on an archive of all kinds of files.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Refused {
    /// Windows that gained nothing, in a row.
    row: u32,
    passed: Range<u32>,
}

impl Refused {
    /// Returns whether a logical block lies in that part.
    pub(crate) fn has(&self, lblk: u32) -> bool {
        self.passed.contains(&lblk)
    }

    /// Notes whether a window has gained.
    pub(crate) fn note(&mut self, window: Range<u32>, gained: bool) {
        if gained {
            *self = Self::default();
            return;
        }
        if self.has(window.start) {
            // It was compressed together with those before.
            return;
        }
        self.row += 1;
        if let Some(more) = self.row.checked_sub(REFUSALS) {
            let blocks = (window.end - window.start) << more.min(PASSED_MAX);
            self.passed = window.start..window.end.saturating_add(blocks);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_decoded_in_vain_is_more_than_the_file() {
        let mut habits = Habits::default();
        for (decoded, wanted, is_enough) in [(4000, 500, [false; 2]), (97, 12, [true, false])] {
            habits.note_decoded(wanted, decoded);
            assert_eq!(
                [0, 5000].map(|pages| habits.is_decoded_in_vain(pages)),
                is_enough
            );
        }
        habits.note_decoded(0, 1000);
        assert!(habits.is_decoded_in_vain(5000));
        habits.note_decoded(200, 200);
        assert!(!habits.is_decoded_in_vain(0));
        habits.forget_decoded();
        assert!(!habits.is_decoded_in_vain(0));
    }

    #[test]
    fn twice_as_much_is_left_alone_each_time_that_nothing_is_gained() {
        let mut refused = Refused::default();
        let passed = |refused: &Refused| (0..2000).filter(|&lblk| refused.has(lblk)).count();
        refused.note(0..16, false);
        assert_eq!(passed(&refused), 0);
        refused.note(16..32, false);
        assert_eq!(refused.passed, 16..48);
        refused.note(48..64, false);
        assert_eq!(refused.passed, 48..96);
        refused.note(64..80, false);
        assert_eq!(refused.passed, 48..96);
        for _ in 0..20 {
            let next = refused.passed.end;
            refused.note(next..next + 16, false);
        }
        assert_eq!(refused.passed.len(), 16 + 16 * 64);
        refused.note(1136..1152, true);
        assert_eq!(passed(&refused), 0);
        refused.note(u32::MAX - 4..u32::MAX, false);
        refused.note(u32::MAX - 4..u32::MAX, false);
        assert_eq!(refused.passed, u32::MAX - 4..u32::MAX);
    }

    fn after(syncs: &[(u64, Range<u32>)], read: u64) -> ContentKind {
        let mut habits = Habits::default();
        habits.note_read(read);
        for (pages, range) in syncs.iter().cycle().take(20) {
            habits.note_synced(*pages, range.clone());
        }
        habits.kind()
    }

    #[test]
    fn who_is_written_in_small_pieces_and_hardly_read_is_taken_for_a_database() {
        let random = [(1, 7..8), (2, 100..190), (1, 50..51)];
        assert_eq!(after(&random, 3), ContentKind::Database);
        assert_eq!(after(&random, 1000), ContentKind::Other);
        assert_eq!(after(&[(200, 0..200)], 0), ContentKind::Other);
    }

    #[test]
    fn who_only_grows_is_taken_for_a_journal() {
        let mut habits = Habits::default();
        for at in 0..SYNCS_MIN {
            assert_eq!(habits.kind(), ContentKind::Other, "too early");
            // Records that end within a page.
            habits.note_synced(2, at..at + 2);
        }
        assert_eq!(habits.kind(), ContentKind::WriteAheadLog);
    }
}
