//! Report of what a record says, as plain numbers.

use std::time::Duration;

/// Accesses are sorted by length into classes: up to 4 KiB, 8 KiB, … 256 KiB, and above.
pub const CLASSES: usize = 8;
/// States what the classes are called.
pub const CLASS_NAMES: [&str; CLASSES] = ["4K", "8K", "16K", "32K", "64K", "128K", "256K", ">256K"];
/// The longest of the first class.
const FIRST_CLASS_BYTES: u64 = 4 << 10;

/// Answers are sorted by time into classes: up to 1 µs, 2 µs, 4 µs … 2^30 µs (18 min), and above.
const LATENCY_CLASSES: usize = 32;

/// Holds what a record says.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Report {
    /// From the beginning to the end, or to the end of the last access.
    pub lasted: Duration,
    /// All accesses in the record.
    pub accesses: u64,
    /// Accesses that are not in the record.
    pub dropped: u64,
    /// Reads.
    pub reads: Flow,
    /// Writes.
    pub writes: Flow,
    /// Times that a file was synced.
    pub fsyncs: Syncs,
    /// Holds what each file had of it: first those with the most bytes.
    pub files: Vec<FileReport>,
    /// Holds what each process had of it, in the same order.
    pub processes: Vec<ProcessReport>,
}

/// Reads or writes.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Flow {
    /// Those that were answered well.
    pub tally: Tally,
    /// Those that were answered with an error, which count nowhere else.
    pub failed: u64,
    /// Tells how long they were.
    pub sizes: [Class; CLASSES],
    /// Tells how long the answers took.
    pub latencies: Latencies,
}

/// Holds what is counted of reads or writes, of all or of one file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Tally {
    /// Tells how many.
    pub count: u64,
    /// Their bytes, as they were asked for.
    pub bytes: u64,
    /// Those that began where the last one of that file and that kind had ended.
    pub sequential: u64,
    /// Those that are not buffered.
    pub synchronous: u64,
}

/// Accesses of a certain length.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Class {
    /// Tells how many.
    pub count: u64,
    /// Their bytes.
    pub bytes: u64,
}

/// Times that files were synced.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Syncs {
    /// Those that were answered well.
    pub count: u64,
    /// Those that were not.
    pub failed: u64,
    /// Tells how long the answers took.
    pub latencies: Latencies,
}

/// Holds what one file or process did or had done.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Usage {
    /// Reads.
    pub reads: Tally,
    /// Writes.
    pub writes: Tally,
    /// Syncs.
    pub fsyncs: u64,
}

/// A file, or all that had the same path one after the other.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileReport {
    /// Its last path that is known; empty if none is.
    pub path: Vec<u8>,
    /// Its inode; of several, the last one's. `None` for files beyond those that are told apart.
    pub ino: Option<u64>,
    /// Holds what was done to it.
    pub usage: Usage,
}

/// A process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProcessReport {
    /// Its number; 0 for the kernel. `None` for processes beyond those that are told apart.
    pub pid: Option<u32>,
    /// Its name; empty if it is not known.
    pub name: Vec<u8>,
    /// Holds what it did.
    pub usage: Usage,
}

/// Describes how long answers took, to the power of two above.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Latencies([u64; LATENCY_CLASSES]);

impl Flow {
    /// Adds one that was answered well.
    pub(crate) fn add(&mut self, len: u64) {
        let class = &mut self.sizes[size_class(len)];
        class.count += 1;
        class.bytes = class.bytes.saturating_add(len);
    }
}

impl Tally {
    /// Those that may stay in memory.
    pub const fn buffered(&self) -> u64 {
        self.count - self.synchronous
    }

    pub(crate) fn add(&mut self, len: u64, is_sequential: bool, is_synchronous: bool) {
        self.count += 1;
        self.bytes = self.bytes.saturating_add(len);
        self.sequential += u64::from(is_sequential);
        self.synchronous += u64::from(is_synchronous);
    }

    fn merge(&mut self, other: &Self) {
        self.count += other.count;
        self.bytes = self.bytes.saturating_add(other.bytes);
        self.sequential += other.sequential;
        self.synchronous += other.synchronous;
    }
}

impl Usage {
    /// Bytes read and written.
    pub const fn bytes(&self) -> u64 {
        self.reads.bytes.saturating_add(self.writes.bytes)
    }

    pub(crate) fn merge(&mut self, other: &Self) {
        self.reads.merge(&other.reads);
        self.writes.merge(&other.writes);
        self.fsyncs += other.fsyncs;
    }
}

/// The first `count` of what is listed, and the others in one sum.
pub fn top<T>(listed: &[T], count: usize, usage: impl Fn(&T) -> &Usage) -> (&[T], Usage) {
    let (first, others) = listed.split_at(count.min(listed.len()));
    let mut sum = Usage::default();
    others.iter().for_each(|other| sum.merge(usage(other)));
    (first, sum)
}

impl Latencies {
    pub(crate) fn add(&mut self, took: Duration) {
        let micros = took.as_nanos().div_ceil(1000).max(1);
        let class = micros.next_power_of_two().trailing_zeros() as usize;
        self.0[class.min(LATENCY_CLASSES - 1)] += 1;
    }

    /// The time that so large a part of the answers kept within; `None` if there were none, or if nobody can say
    /// because it is more than a quarter of an hour.
    pub fn within(&self, part: f64) -> Option<Duration> {
        let count: u64 = self.0.iter().sum();
        let wanted = count as f64 * part;
        let mut found = 0;
        let class = self.0.iter().position(|answers| {
            found += answers;
            found as f64 >= wanted
        });
        let class = class.filter(|&class| count > 0 && class < LATENCY_CLASSES - 1)?;
        Some(Duration::from_micros(1 << class))
    }
}

fn size_class(len: u64) -> usize {
    let class = len
        .div_ceil(FIRST_CLASS_BYTES)
        .max(1)
        .next_power_of_two()
        .trailing_zeros();
    (class as usize).min(CLASSES - 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_length_is_in_the_class_whose_name_it_does_not_exceed() {
        for (len, name) in [
            (0, "4K"),
            (1, "4K"),
            (4096, "4K"),
            (4097, "8K"),
            (8192, "8K"),
            (8193, "16K"),
            (256 << 10, "256K"),
            ((256 << 10) + 1, ">256K"),
            (1 << 20, ">256K"),
            (u64::MAX, ">256K"),
        ] {
            assert_eq!(CLASS_NAMES[size_class(len)], name, "{len}");
        }
    }

    #[test]
    fn percentiles_are_the_limit_of_a_class() {
        let mut latencies = Latencies::default();
        assert_eq!(latencies.within(0.5), None);
        for micros in [1, 3, 3, 100] {
            latencies.add(Duration::from_micros(micros));
        }
        for (part, micros) in [(0.25, 1), (0.5, 4), (0.75, 4), (0.76, 128), (1.0, 128)] {
            let limit = latencies.within(part);
            assert_eq!(limit, Some(Duration::from_micros(micros)), "{part}");
        }
        latencies.add(Duration::MAX);
        assert_eq!(latencies.within(1.0), None);
        assert_eq!(latencies.within(0.8), Some(Duration::from_micros(128)));
    }

    #[test]
    fn the_top_and_the_others_are_all() {
        let usages = [5, 3, 2].map(|fsyncs| Usage {
            fsyncs,
            ..Usage::default()
        });
        for (count, first, others) in [(0, 0, 10), (1, 1, 5), (3, 3, 0), (usize::MAX, 3, 0)] {
            let (shown, sum) = top(&usages, count, |usage| usage);
            assert_eq!((shown.len(), sum.fsyncs), (first, others), "{count}");
        }
    }
}
