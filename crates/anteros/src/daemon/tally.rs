//! Numbers of an estimate, or of how content lies, as they go through an attribute.

use std::ops::AddAssign;

use anteros_log::{Class, ClassUse, Compacted, Estimate, Usage};

/// Bytes of a block.
const BLOCK: u64 = 4096;

/// Numbers of a class.
const NUMBERS: usize = 9;

/// Content of one class, as it lies and as compression in the background would leave it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ClassTally {
    /// Content as it lies.
    pub used: ClassUse,
    /// Bytes of the device that it would take.
    pub stored_bytes_after: u64,
    /// Bytes of content that would be looked at.
    pub due_bytes: u64,
    /// Bytes of content that were.
    pub tried_bytes: u64,
}

impl AddAssign for ClassTally {
    fn add_assign(&mut self, other: Self) {
        self.used += other.used;
        self.stored_bytes_after += other.stored_bytes_after;
        self.due_bytes += other.due_bytes;
        self.tried_bytes += other.tried_bytes;
    }
}

impl ClassTally {
    fn numbers(&self) -> [u64; NUMBERS] {
        let [futile, new, left] = self.used.plain_bytes;
        [
            self.used.files,
            self.used.bytes,
            self.used.stored_bytes,
            futile,
            new,
            left,
            self.stored_bytes_after,
            self.due_bytes,
            self.tried_bytes,
        ]
    }

    fn of_numbers(numbers: [u64; NUMBERS]) -> Self {
        let [
            files,
            bytes,
            stored_bytes,
            plain @ ..,
            stored_bytes_after,
            due_bytes,
            tried_bytes,
        ] = numbers;
        Self {
            used: ClassUse {
                files,
                bytes,
                stored_bytes,
                plain_bytes: plain,
            },
            stored_bytes_after,
            due_bytes,
            tried_bytes,
        }
    }
}

/// Content of all classes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Tally {
    /// Bytes of files that are to be looked at, and those of them that were passed.
    pub total_bytes: u64,
    pub passed_bytes: u64,
    /// Files and pieces that could not be read.
    pub unreadable: u64,
    classes: [ClassTally; Class::ALL.len()],
}

impl Tally {
    /// The beginning of an estimate.
    pub fn of_progress(done: &Compacted) -> Self {
        Self {
            total_bytes: done.total * BLOCK,
            passed_bytes: done.passed * BLOCK,
            ..Self::default()
        }
    }

    pub fn of_estimate(estimate: &Estimate) -> Self {
        let mut tally = Self::of_usage(&estimate.usage);
        tally.unreadable += estimate.warnings.len() as u64;
        for (class, of) in Class::ALL.into_iter().zip(&mut tally.classes) {
            let gain = estimate.gain(class);
            of.stored_bytes_after = estimate.stored_bytes_after(class);
            (of.due_bytes, of.tried_bytes) = (gain.bytes, gain.tried_bytes);
        }
        tally
    }

    pub fn of_usage(usage: &Usage) -> Self {
        let class = |class: Class| ClassTally {
            used: *usage.class(class),
            stored_bytes_after: usage.class(class).stored_bytes,
            ..ClassTally::default()
        };
        Self {
            unreadable: usage.warnings.len() as u64,
            classes: Class::ALL.map(class),
            ..Self::default()
        }
    }

    /// All numbers, in a row.
    pub fn numbers(&self) -> Vec<u64> {
        let first = [self.total_bytes, self.passed_bytes, self.unreadable];
        let classes = self.classes.iter().flat_map(ClassTally::numbers);
        first.into_iter().chain(classes).collect()
    }

    /// Returns what [`numbers`](Self::numbers) gave; what is missing is zero.
    pub fn of_numbers(numbers: &[u64]) -> Self {
        let mut numbers = numbers.iter().copied();
        let mut next = || numbers.next().unwrap_or(0);
        let [total_bytes, passed_bytes, unreadable] = std::array::from_fn(|_| next());
        let classes =
            std::array::from_fn(|_| ClassTally::of_numbers(std::array::from_fn(|_| next())));
        Self {
            total_bytes,
            passed_bytes,
            unreadable,
            classes,
        }
    }

    /// The classes of which there are files.
    pub fn classes(&self) -> impl Iterator<Item = (Class, &ClassTally)> {
        let classes = Class::ALL.into_iter().zip(&self.classes);
        classes.filter(|(_, of)| of.used.files > 0)
    }

    /// All classes together.
    pub fn sum(&self) -> ClassTally {
        let mut sum = ClassTally::default();
        self.classes.iter().for_each(|of| sum += *of);
        sum
    }
}

impl AddAssign<&Self> for Tally {
    fn add_assign(&mut self, other: &Self) {
        self.total_bytes += other.total_bytes;
        self.passed_bytes += other.passed_bytes;
        self.unreadable += other.unreadable;
        for (of, more) in self.classes.iter_mut().zip(&other.classes) {
            *of += *more;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_come_back() {
        let numbers: Vec<u64> = (1..=3 + 9 * Class::ALL.len() as u64).collect();
        let tally = Tally::of_numbers(&numbers);
        assert_eq!(tally.numbers(), numbers);
        assert_eq!(tally.unreadable, 3);
        assert_eq!(
            tally.sum().used.files,
            (0..5).map(|class| 4 + 9 * class).sum::<u64>()
        );
        assert_eq!(Tally::of_numbers(&[]), Tally::default());
    }
}
