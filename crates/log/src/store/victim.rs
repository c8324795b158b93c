//! The policy of a segment to be cleaned.

use anteros_core::FsError;

use crate::layout::SEGMENT_CONTENT;
use crate::store::blocks::Store;
use crate::store::segments::Use;

/// Victim policy of cleaning.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum VictimPolicy {
    /// The one with the fewest valid blocks: someone waits.
    Greedy,
    /// The one where most is won for the work: `(1 - u) / u * sqrt(age)` with its share of valid blocks `u` and the blocks that
    /// were written since one of it became invalid. What became invalid lately goes on doing so.
    CostBenefit,
    /// As `CostBenefit`, among segments that are half valid at most: nobody waits, and the rest may become invalid by itself.
    Idle,
    /// The one of packed blocks that has the most slots which were given up: its blocks stay in use as long as one slot is
    /// valid, and somebody would be refused.
    Loose,
}

/// Blocks that cleaning a segment of packed blocks has to win, by the slots that were given up, and the share of its valid
/// ones that these are at least.
pub(crate) const WON_MIN: u32 = 32;
const WON_SHARE: u32 = 8;

impl VictimPolicy {
    /// Of 32 parts, how many of a segment may be valid.
    fn valid_max(self) -> u32 {
        match self {
            // Who waits takes what there is.
            Self::Greedy => 31,
            Self::CostBenefit => 30,
            Self::Idle => 16,
            // Blocks are not what it goes by.
            Self::Loose => 32,
        }
    }
}

impl Store {
    /// The segment that is to be cleaned, if any is worth it.
    pub(crate) fn victim(&self, policy: VictimPolicy) -> Option<u32> {
        match policy {
            VictimPolicy::Loose => self.loose_victim(),
            _ => self.sparse_victim(policy),
        }
    }

    /// Segments that may be cleaned.
    fn cleanable(&self) -> impl Iterator<Item = u32> + '_ {
        (0..self.segments.count()).filter(|&segment| {
            self.segments.segment(segment).state == Use::Full
                && !self.quarantined.contains(&segment)
        })
    }

    fn loose_victim(&self) -> Option<u32> {
        let won = self
            .cleanable()
            .map(|segment| (self.bst.loose_blocks(segment), segment));
        let is_worth_it = |&(won, segment): &(u32, u32)| {
            let valid = self.segments.segment(segment).valid;
            won >= WON_MIN.max(u32::from(valid) / WON_SHARE)
        };
        let (_, segment) = won.filter(is_worth_it).max()?;
        Some(segment)
    }

    fn sparse_victim(&self, policy: VictimPolicy) -> Option<u32> {
        let now = self.segments.clock();
        let worth = |segment: u32| {
            let entry = self.segments.segment(segment);
            let used = f64::from(entry.valid) / f64::from(SEGMENT_CONTENT);
            let age = 1 + now.saturating_sub(entry.changed);
            match policy {
                VictimPolicy::Greedy => 1.0 - used,
                _ => (1.0 - used) / used * (age as f64).sqrt(),
            }
        };
        let most = SEGMENT_CONTENT * policy.valid_max() / 32;
        let valid = |segment: &u32| u32::from(self.segments.segment(*segment).valid);
        let sparse = self.cleanable().filter(|segment| valid(segment) < most);
        sparse.max_by(|&left, &right| worth(left).total_cmp(&worth(right)))
    }

    /// Leaves a segment alone from here on: what was moved out of it is moved, and others are cleaned.
    pub(crate) fn quarantine(&mut self, segment: u32, error: &FsError) {
        self.quarantined.insert(segment);
        self.statistics.quarantined += 1;
        let warning = format!("segment {segment} cannot be cleaned: {error}");
        self.warnings.push(warning);
    }

    /// Notes that a segment of hot content is cleaned: what is left in it lasts longer than such content does.
    pub(crate) fn note_lifetime(&mut self, segment: u32) {
        self.segments.note_lifetime(segment);
    }

    /// Says which segment is being cleaned, if one is.
    pub(crate) fn set_victim(&mut self, victim: Option<u32>) {
        self.victim = victim;
    }
}
