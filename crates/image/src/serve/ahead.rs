//! Fetching ahead, for readers in order and readers in equal strides.
//!
//! The kernel's own readahead of an image file is turned off ([`FileDevice::expect_any_order`]):
//! under strides it reads many times what is asked for. This module names only the bytes that the
//! pattern will ask for. These are the bytes that follow on the device, or the pclusters of the
//! next strides. The kernel fetches them into its page cache while decoding goes on. Nobody waits
//! for them, and they take no memory of ours.
//!
//! [`FileDevice::expect_any_order`]: anteros_core::FileDevice::expect_any_order

use std::ops::Range;
use std::sync::Mutex;

use anteros_core::unpoisoned;

use crate::map::Location;

/// States how many readers in order are told apart.
const STREAMS: usize = 8;

/// A read continues another one if it begins so near to its end. Requests come in any order, and
/// some of the bytes between may be in memory.
const NEAR_BYTES: u64 = 256 << 10;

/// So many reads make a stream.
const READS_MIN: u32 = 4;

/// Bounds what is fetched ahead, which grows from the least to the most as long as reads continue.
const WINDOW_MIN: u64 = 64 << 10;
const WINDOW_MAX: u64 = 1 << 20;

/// Reads that follow each other on the devices.
#[derive(Default)]
pub(crate) struct Streams(Mutex<State>);

#[derive(Default)]
struct State {
    streams: [Stream; STREAMS],
    clock: u64,
}

#[derive(Default, Clone, Copy)]
struct Stream {
    /// Tells where the first read began, and how much was read since.
    start: u64,
    read: u64,
    reads: u32,
    /// Tells where the last read ended.
    end: Option<Location>,
    /// Up to where it was fetched.
    fetched: u64,
    window: u64,
    last_used: u64,
}

impl Streams {
    /// Notes a read of a device. Says what to fetch now: an address behind it, and how many bytes.
    pub(crate) fn read(&self, at: Location, len: u64) -> Option<(Location, u64)> {
        let end = at.plus(len)?;
        let mut state = unpoisoned(self.0.lock());
        state.clock += 1;
        let clock = state.clock;
        let known = state.streams.iter_mut().find(|s| s.is_continued_by(at));
        let Some(stream) = known else {
            let oldest = state.streams.iter_mut().min_by_key(|s| s.last_used)?;
            *oldest = Stream {
                start: at.address(),
                read: len,
                reads: 1,
                end: Some(end),
                fetched: end.address(),
                window: 0,
                last_used: clock,
            };
            return None;
        };
        stream.last_used = clock;
        stream.read += len;
        stream.reads = stream.reads.saturating_add(1);
        stream.advance(end)
    }
}

impl Stream {
    fn is_continued_by(&self, at: Location) -> bool {
        self.end.is_some_and(|end| {
            at.with_address(0) == end.with_address(0)
                && at.address().abs_diff(end.address()) <= NEAR_BYTES.max(self.window)
        })
    }

    fn advance(&mut self, end: Location) -> Option<(Location, u64)> {
        let last = self.end.map_or(0, Location::address);
        if end.address() <= last {
            return None;
        }
        self.end = Some(end);
        // Reads here and there are no stream: most of what was passed must have been read. Nor are the
        // two or three that a page may take whose data lie in as many pclusters.
        let passed = end.address().saturating_sub(self.start);
        if self.reads < READS_MIN || 2 * self.read < passed {
            return None;
        }
        let from = self.fetched.max(end.address());
        if from - end.address() > self.window / 2 {
            return None;
        }
        self.window = (2 * self.window).clamp(WINDOW_MIN, WINDOW_MAX);
        let to = end.address() + self.window;
        self.fetched = to;
        Some((end.with_address(from), to.checked_sub(from)?))
    }
}

/// Describes how far the offsets of a file's small reads are apart, and how often that was so.
#[derive(Default)]
pub(crate) struct Strides(Mutex<Stride>);

#[derive(Default, Clone, Copy)]
struct Stride {
    last: u64,
    step: u64,
    times: u32,
    /// Up to which offset the steps were fetched.
    fetched: u64,
}

/// Reads up to this length are small: longer ones are those of readers in order.
const SMALL_BYTES_MAX: usize = 16 << 10;

/// Steps of the same length that make a pattern.
const TIMES_MIN: u32 = 3;

/// States how many steps are fetched ahead at the most.
const STEPS_MAX: u64 = 16;

impl Strides {
    /// Notes a read of a file. Says at which offsets to fetch now: the next of a stride.
    pub(crate) fn read(&self, offset: u64, len: usize) -> impl Iterator<Item = u64> + use<> {
        let next = match len <= SMALL_BYTES_MAX {
            true => unpoisoned(self.0.lock()).advance(offset),
            false => None,
        };
        let (range, step) = next.unwrap_or((0..0, 1));
        range.step_by(usize::try_from(step).unwrap_or(usize::MAX))
    }
}

impl Stride {
    /// The offsets to fetch, from the first to behind the last, and their distance.
    fn advance(&mut self, offset: u64) -> Option<(Range<u64>, u64)> {
        let step = offset.checked_sub(self.last).filter(|&step| step > 0);
        self.last = offset;
        if step != Some(self.step) {
            *self = Self {
                last: offset,
                step: step.unwrap_or(0),
                ..Self::default()
            };
            return None;
        }
        self.times = self.times.saturating_add(1);
        if self.times < TIMES_MIN {
            return None;
        }
        let from = self.fetched.max(offset).checked_add(self.step)?;
        let to = self.step.checked_mul(STEPS_MAX)?.checked_add(offset)?;
        self.fetched = self.fetched.max(to);
        (from <= to).then_some((from..to + 1, self.step))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(address: u64) -> Location {
        Location::Device { device: 0, address }
    }

    #[test]
    fn what_follows_is_fetched_once_and_in_growing_pieces() {
        let streams = Streams::default();
        let mut fetched = 0..0;
        let mut last = 0;
        for index in 0..1000 {
            let address = 1000 + index * 4096;
            let Some((from, len)) = streams.read(at(address), 4096) else {
                continue;
            };
            assert!(from.address() >= address + 4096, "behind what was read");
            assert!(from.address() >= fetched.end, "not twice");
            assert!(len <= WINDOW_MAX);
            fetched = from.address()..from.address() + len;
            last = len;
        }
        assert!(last >= WINDOW_MAX / 2, "{last}");
        let all = 1000 + 1000 * 4096;
        assert!(fetched.end >= all + WINDOW_MAX / 2, "well ahead");
    }

    #[test]
    fn reads_here_and_there_fetch_little() {
        let streams = Streams::default();
        let reads = (0..1000).filter_map(|index| streams.read(at(index * 32_768), 4096));
        let fetched: u64 = reads.map(|(_, len)| len).sum();
        assert!(fetched <= WINDOW_MIN, "{fetched}");
    }

    #[test]
    fn pairs_of_reads_fetch_nothing() {
        let streams = Streams::default();
        for index in 0..1000u64 {
            let address = (index.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 20) / 4096 * 4096;
            assert_eq!(streams.read(at(address), 4096), None);
            assert_eq!(streams.read(at(address + 4096), 4096), None);
        }
    }

    #[test]
    fn reads_anywhere_fetch_nothing() {
        let streams = Streams::default();
        for index in 0..1000u64 {
            let address = index.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 20;
            assert_eq!(streams.read(at(address), 4096), None);
        }
        let far = Location::Device {
            device: 1,
            address: 4096,
        };
        streams.read(at(0), 4096);
        assert_eq!(streams.read(far, 4096), None, "another device");
    }

    #[test]
    fn each_step_of_a_stride_is_fetched_once() {
        let strides = Strides::default();
        let mut fetched = Vec::new();
        for index in 0..100 {
            fetched.extend(strides.read(index * 131_072, 4096));
        }
        let expected: Vec<_> = (5..5 + fetched.len() as u64).map(|i| i * 131_072).collect();
        assert_eq!(fetched, expected);
        assert!(fetched.len() > 100);
        assert_eq!(strides.read(5, 4096).count(), 0, "another step");
    }

    #[test]
    fn strides_end_with_the_numbers() {
        let strides = Strides::default();
        for index in (0..20).rev() {
            strides
                .read(u64::MAX - index * (u64::MAX / 32), 4096)
                .count();
        }
    }
}
