//! Choice of the states to look at, when there are too many for all.
//!
//! A *point* is a number of operations that had been asked for. At every point there is the state in which all of them
//! have arrived, and those in which the last one is torn. What else may be missing is asked where a promise may have
//! been made in vain: at the last point before each flush, before each note, and at the end. The states that only earlier
//! points could show differ from those by having been promised less.

use std::collections::{HashSet, VecDeque};

use super::recorder::{Epoch, Operation, Recording, State};
use super::{Sectors, StateId};
use crate::trees::Random;

/// Describes how far to go.
#[derive(Debug, Clone)]
pub struct Plan {
    /// All subsets of an open epoch are looked at when there are at most so many, which is 2 to the power of its
    /// operations. Else: each loss, each operation alone, each cut, and random subsets.
    pub subsets_max: u64,
    /// Tells how many random subsets, and as many with a torn operation, to look at where not all are.
    pub samples: usize,
    /// Tells how many random mixtures of old and new sectors to make of an operation that is torn. With 0, nothing is
    /// torn.
    pub tears: usize,
    /// Tells where chance begins. The same recording and plan give the same states.
    pub seed: u64,
}

impl Default for Plan {
    fn default() -> Self {
        Self {
            subsets_max: 1 << 10,
            samples: 64,
            tears: 4,
            seed: 0,
        }
    }
}

/// An operation of so many sectors is cut at each.
const CUTS_MAX: usize = 32;

impl Recording {
    /// The states that a plan asks for, each once.
    pub fn states(&self, plan: &Plan) -> States<'_> {
        States {
            recording: self,
            plan: plan.clone(),
            random: Random(plan.seed),
            epoch: Epoch::new(self),
            next_point: 0,
            ids: VecDeque::new(),
            seen: HashSet::new(),
            duplicates: 0,
        }
    }
}

/// The states of a recording, made one at a time.
pub struct States<'a> {
    recording: &'a Recording,
    plan: Plan,
    random: Random,
    epoch: Epoch,
    next_point: usize,
    /// Those of the last point that are still to be made.
    ids: VecDeque<StateId>,
    seen: HashSet<(u64, usize, usize)>,
    duplicates: usize,
}

impl Iterator for States<'_> {
    type Item = State;

    fn next(&mut self) -> Option<State> {
        loop {
            while let Some(id) = self.ids.pop_front() {
                let state = self.epoch.state(self.recording, id);
                if self.seen.insert(state.key()) {
                    return Some(state);
                }
                self.duplicates += 1;
            }
            if self.next_point > self.recording.operations().len() {
                return None;
            }
            self.enter(self.next_point);
            self.next_point += 1;
        }
    }
}

impl States<'_> {
    /// Returns how many states have been left out up to now because they had been there before.
    pub fn duplicates(&self) -> usize {
        self.duplicates
    }

    fn enter(&mut self, point: usize) {
        let last = point.checked_sub(1);
        if last.is_some_and(|last| self.recording.operations()[last].is_flush()) {
            self.epoch.advance(self.recording);
        }
        self.ids.push_back(StateId::prefix(point));
        if point > self.epoch.start {
            self.tear_last(point);
            if self.is_last_before_promise(point) {
                self.lose(point);
            }
        }
    }

    fn is_last_before_promise(&self, point: usize) -> bool {
        let next = self.recording.operations().get(point);
        let marks = |point| self.recording.marks_before(point);
        next.is_none_or(Operation::is_flush) || marks(point) < marks(point + 1)
    }

    /// The last operation in part: cut off, and mixed.
    fn tear_last(&mut self, point: usize) {
        let last = point - 1;
        let sectors = self.recording.operations()[last].sectors();
        if self.plan.tears == 0 || sectors < 2 {
            return;
        }
        let cuts: Vec<usize> = if sectors <= CUTS_MAX {
            (1..sectors).collect()
        } else {
            let random = (0..self.plan.tears).map(|_| self.random.below(sectors as u64) as usize);
            [1, sectors - 1].into_iter().chain(random).collect()
        };
        let cuts = cuts.into_iter().map(|cut| (0..cut).collect());
        self.ids
            .extend(cuts.map(|arrived| StateId::prefix(point).with_torn(last, arrived)));
        for _ in 0..self.plan.tears {
            let arrived = self.mixture(last);
            let id = StateId::prefix(point).with_torn(last, arrived);
            self.ids.push_back(id);
        }
    }

    /// Some sectors of an operation.
    fn mixture(&mut self, operation: usize) -> Sectors {
        let sectors = self.recording.operations()[operation].sectors();
        self.subset(0..sectors)
    }

    /// Some of the numbers: from few of them to nearly all.
    fn subset(&mut self, all: std::ops::Range<usize>) -> Vec<usize> {
        let eighths = 1 + self.random.below(7);
        all.filter(|_| self.random.below(8) < eighths).collect()
    }

    /// Loses what of the open epoch may be missing.
    fn lose(&mut self, point: usize) {
        let open = self.epoch.start..point;
        let subsets = u32::try_from(open.len()).ok();
        let subsets = subsets.and_then(|len| 1u64.checked_shl(len));
        match subsets.filter(|&subsets| subsets <= self.plan.subsets_max) {
            Some(subsets) => self.lose_each_subset(point, subsets),
            None => self.lose_some_subsets(point),
        }
        self.lose_and_tear(point);
    }

    fn lose_each_subset(&mut self, point: usize, subsets: u64) {
        let open = self.epoch.start..point;
        for set in 1..subsets {
            let lost = open.clone().enumerate();
            let lost = lost.filter(|(bit, _)| set >> bit & 1 != 0);
            let id = StateId::prefix(point).without(lost.map(|(_, operation)| operation));
            self.ids.push_back(id);
        }
    }

    fn lose_some_subsets(&mut self, point: usize) {
        let open = self.epoch.start..point;
        let id = StateId::prefix(point);
        for operation in open.clone() {
            let others = open.clone().filter(|&other| other != operation);
            self.ids.extend([
                id.clone().without([operation]),
                id.clone().without(others),
                id.clone().without(operation..point),
            ]);
        }
        for _ in 0..self.plan.samples {
            let lost = self.subset(open.clone());
            self.ids.push_back(id.clone().without(lost));
        }
    }

    /// Each operation torn among all others, and torn ones with others lost.
    fn lose_and_tear(&mut self, point: usize) {
        let open = self.epoch.start..point;
        if self.plan.tears == 0 {
            return;
        }
        let id = StateId::prefix(point);
        for operation in open.clone() {
            let arrived = self.mixture(operation);
            self.ids.push_back(id.clone().with_torn(operation, arrived));
        }
        for _ in 0..self.plan.samples {
            let torn = open.start + self.random.below(open.len() as u64) as usize;
            let mut lost = self.subset(open.clone());
            lost.retain(|&operation| operation != torn);
            let arrived = self.mixture(torn);
            self.ids
                .push_back(id.clone().without(lost).with_torn(torn, arrived));
        }
    }
}
