//! Times that answers took, by operation.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use anteros_fuse::{Answered, Operation};

/// Answers are sorted by time into classes: up to 1 µs, 2 µs, 4 µs … 2^24 µs (17 s), and above.
const CLASSES: usize = 26;

/// The operations, with their names in the text.
pub const OPERATIONS: [(Operation, &str); 9] = [
    (Operation::Lookup, "lookup"),
    (Operation::Getattr, "getattr"),
    (Operation::Readdir, "readdir"),
    (Operation::Read, "read"),
    (Operation::Write, "write"),
    (Operation::Fsync, "fsync"),
    (Operation::Readlink, "readlink"),
    (Operation::Xattr, "xattr"),
    (Operation::Other, "other"),
];

/// The times of all answers.
#[derive(Default)]
pub struct Latencies([OfOperation; OPERATIONS.len()]);

#[derive(Default)]
struct OfOperation {
    classes: [AtomicU64; CLASSES],
    micros: AtomicU64,
}

/// Answers to one operation.
pub struct Histogram {
    /// The operation's name.
    pub operation: &'static str,
    /// For each class its limit in seconds, and how many answers kept within it.
    pub within: [(f64, u64); CLASSES],
    /// Holds what they took together, in seconds.
    pub sum: f64,
}

impl Latencies {
    /// Notes an answer.
    pub fn note(&self, answered: &Answered) {
        let Answered {
            operation, took, ..
        } = *answered;
        let index = OPERATIONS.iter().position(|(o, _)| *o == operation);
        self.0[index.unwrap_or(OPERATIONS.len() - 1)].note(took);
    }

    /// Returns how many answers were noted.
    pub fn count(&self) -> u64 {
        self.count_of(|_| true)
    }

    /// Returns how many answers were noted to those who use files: who asks for attributes or the room that is left may be
    /// somebody who looks after the machine.
    pub fn uses(&self) -> u64 {
        self.count_of(|operation| match operation {
            Operation::Getattr | Operation::Xattr | Operation::Other => false,
            Operation::Lookup
            | Operation::Readdir
            | Operation::Read
            | Operation::Write
            | Operation::Fsync
            | Operation::Readlink => true,
        })
    }

    fn count_of(&self, is_counted: impl Fn(Operation) -> bool) -> u64 {
        let operations = OPERATIONS.iter().zip(&self.0);
        let counted = operations.filter(|((operation, _), _)| is_counted(*operation));
        let classes = counted.flat_map(|(_, answers)| &answers.classes);
        classes.map(|class| class.load(Ordering::Relaxed)).sum()
    }

    /// Returns what was noted so far.
    pub fn histograms(&self) -> impl Iterator<Item = Histogram> {
        let names = OPERATIONS.iter().map(|(_, name)| *name);
        names
            .zip(&self.0)
            .map(|(operation, latencies)| latencies.histogram(operation))
    }
}

impl OfOperation {
    fn note(&self, took: Duration) {
        let micros = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
        self.classes[class(micros)].fetch_add(1, Ordering::Relaxed);
        self.micros.fetch_add(micros, Ordering::Relaxed);
    }

    fn histogram(&self, operation: &'static str) -> Histogram {
        let mut count = 0;
        let within = std::array::from_fn(|class| {
            count += self.classes[class].load(Ordering::Relaxed);
            let limit = match class {
                class if class == CLASSES - 1 => f64::INFINITY,
                class => (1u64 << class) as f64 / 1e6,
            };
            (limit, count)
        });
        Histogram {
            operation,
            within,
            sum: self.micros.load(Ordering::Relaxed) as f64 / 1e6,
        }
    }
}

/// The class of an answer: the smallest whose limit, 2^class µs, is not exceeded.
fn class(micros: u64) -> usize {
    let class = micros.max(1).next_power_of_two().trailing_zeros();
    (class as usize).min(CLASSES - 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_fall_into_the_class_whose_limit_they_do_not_exceed() {
        for (micros, expected) in [(0, 0), (1, 0), (2, 1), (3, 2), (4, 2), (5, 3), (1024, 10)] {
            assert_eq!(class(micros), expected, "{micros} µs");
        }
        assert_eq!(class(1 << 24), 24);
        assert_eq!(class((1 << 24) + 1), 25);
        assert_eq!(class(1 << 62), 25);
    }
}
