//! Times that compact inodes can have.
//!
//! There is one time of the image, which all of them have. In a [wide](crate::Options::wide) image they have the nanoseconds of
//! that one, and seconds of their own: 32 bits of them, counted from an epoch.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::hash::Hash;

use anteros_core::Timestamp;
use anteros_format::superblock::Superblock;

use crate::Options;
use crate::tree::{NodeId, Tree};

/// Times of compact inodes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Times {
    /// The time of the image, and of files whose own is dropped.
    pub image: Timestamp,
    /// Seconds from which compact inodes count.
    pub epoch: i64,
    /// Most seconds that they count to.
    span: u32,
}

impl Times {
    /// The times that serve most of the files whose times are these.
    pub fn new(found: impl Iterator<Item = Timestamp> + Clone, options: &Options) -> Self {
        if let Some(sb) = options
            .append
            .as_ref()
            .and_then(|append| append.parsed().ok())
        {
            return Self::of(&sb, options.is_wide());
        }
        let asked = options.fixed_time.or(options.image_time);
        let asked = asked.map(|secs| Timestamp { secs, nanos: 0 });
        if options.is_wide() {
            return Self::wide(found, asked);
        }
        let image = asked.or_else(|| most_common(found)).unwrap_or_default();
        Self {
            image,
            epoch: image.secs,
            span: 0,
        }
    }

    /// The times of an image that is there.
    fn of(sb: &Superblock, wide: bool) -> Self {
        let build = if wide { sb.build_time } else { 0 };
        Self {
            image: Timestamp {
                secs: sb.epoch.saturating_add(build.into()),
                nanos: sb.fixed_nsec,
            },
            epoch: sb.epoch,
            span: if wide { u32::MAX } else { 0 },
        }
    }

    fn wide(found: impl Iterator<Item = Timestamp> + Clone, asked: Option<Timestamp>) -> Self {
        let nanos = found.clone().map(|time| time.nanos);
        let nanos = match asked {
            Some(asked) => asked.nanos,
            None => most_common(nanos).unwrap_or_default(),
        };
        let secs = found.filter(|time| time.nanos == nanos).map(|t| t.secs);
        let image = match asked {
            Some(asked) => asked.secs,
            None => most_common(secs.clone()).unwrap_or_default(),
        };
        let mut secs: Vec<i64> = secs.collect();
        secs.sort_unstable();
        Self {
            image: Timestamp { secs: image, nanos },
            epoch: epoch(&secs, image),
            span: u32::MAX,
        }
    }

    /// Returns whether a compact inode can have this time.
    pub fn keeps(&self, time: Timestamp) -> bool {
        self.offset(time).is_some()
    }

    /// Seconds in a compact inode with this time, or with that of the image.
    pub fn compact(&self, time: Timestamp) -> u32 {
        self.offset(time).unwrap_or_else(|| self.build())
    }

    /// Seconds from the epoch to the time of the image.
    pub fn build(&self) -> u32 {
        self.image.secs.abs_diff(self.epoch) as u32 // within the span
    }

    fn offset(&self, time: Timestamp) -> Option<u32> {
        let offset = time.secs.checked_sub(self.epoch)?;
        let offset = u32::try_from(offset).ok()?;
        (offset <= self.span && time.nanos == self.image.nanos).then_some(offset)
    }
}

/// Gives the time of the image to directories that are there only because of what lies in them. They are told ascending.
pub(crate) fn give_implied(tree: &mut Tree, implied: &[NodeId], options: &Options) {
    if implied.is_empty() {
        return;
    }
    let named = (0..).zip(&tree.nodes);
    let named = named.filter(|(id, _)| implied.binary_search(id).is_err());
    let times = Times::new(named.map(|(_, node)| node.mtime), options);
    for &id in implied {
        tree.nodes[id as usize].mtime = times.image;
    }
}

/// The epoch from which compact inodes reach `image` and most of some sorted seconds, the earliest of several such.
fn epoch(secs: &[i64], image: i64) -> i64 {
    let earliest = image.saturating_sub(u32::MAX.into());
    let reached = |epoch: i64| {
        let end = epoch.saturating_add(u32::MAX.into());
        secs.partition_point(|&s| s <= end) - secs.partition_point(|&s| s < epoch)
    };
    let candidates = secs.iter().copied().chain([image]);
    let candidates = candidates.filter(|epoch| (earliest..=image).contains(epoch));
    let best = candidates.max_by_key(|&epoch| (reached(epoch), Reverse(epoch)));
    best.unwrap_or(image)
}

/// The value that occurs most often, the least of several such.
fn most_common<T: Copy + Ord + Hash>(values: impl Iterator<Item = T>) -> Option<T> {
    let mut counts: HashMap<T, u64> = HashMap::new();
    values.for_each(|value| *counts.entry(value).or_default() += 1);
    let most = counts
        .into_iter()
        .max_by_key(|&(value, count)| (count, Reverse(value)));
    most.map(|(value, _)| value)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SPAN: i64 = u32::MAX as i64;

    fn time(secs: i64, nanos: u32) -> Timestamp {
        Timestamp { secs, nanos }
    }

    fn times(found: &[Timestamp], options: &Options) -> Times {
        Times::new(found.iter().copied(), options)
    }

    fn wide() -> Options {
        Options {
            wide: true,
            ..Options::default()
        }
    }

    #[test]
    fn all_have_the_most_common_time_or_an_inode_with_room() {
        let found = [time(3, 1), time(7, 0), time(3, 1), time(7, 0)];
        let times = times(&found, &Options::default());
        assert_eq!((times.image, times.epoch), (time(3, 1), 3));
        assert_eq!(found.map(|t| times.keeps(t)), [true, false, true, false]);
        assert_eq!((times.compact(time(7, 0)), times.build()), (0, 0));
    }

    #[test]
    fn wide_images_keep_the_seconds_of_most() {
        let found = [time(-9, 5), time(7, 0), time(3, 5), time(3, 5)];
        let times = times(&found, &wide());
        assert_eq!((times.image, times.epoch), (time(3, 5), -9));
        assert_eq!(found.map(|t| times.keeps(t)), [true, false, true, true]);
        assert_eq!(found.map(|t| times.compact(t)), [0, 12, 12, 12]);
        assert_eq!(times.build(), 12);
    }

    #[test]
    fn times_that_lie_too_far_apart_do_not_all_fit() {
        let found = [0, 1, SPAN + 1, SPAN + 2, SPAN + 2].map(|secs| time(secs, 0));
        let far = times(&found, &wide());
        assert_eq!((far.image.secs, far.epoch), (SPAN + 2, SPAN + 1));
        let near = times(&found[..4], &wide());
        assert_eq!((near.image.secs, near.epoch), (0, 0));
        let two = times(&found[..2], &wide());
        assert_eq!((two.image.secs, two.epoch), (0, 0));
        let none = times(&[], &wide());
        assert_eq!((none.image, none.epoch), (time(0, 0), 0));
    }

    #[test]
    fn extremes_are_no_further_apart_than_they_are() {
        let found = [i64::MIN, -1, 0, i64::MAX].map(|secs| time(secs, 0));
        for asked in [i64::MIN, -1, i64::MAX] {
            let options = Options {
                image_time: Some(asked),
                ..wide()
            };
            let times = times(&found, &options);
            assert!(times.keeps(time(asked, 0)), "{asked}");
            assert_eq!(times.epoch + i64::from(times.build()), asked);
        }
    }

    #[test]
    fn the_time_that_was_asked_for_is_the_images() {
        for (asked, epoch) in [(5, 5), (1_700_000_000, 100), (-7, -7)] {
            let options = Options {
                image_time: Some(asked),
                ..wide()
            };
            let times = times(&[time(100, 0), time(200, 9), time(300, 9)], &options);
            assert_eq!((times.image, times.epoch), (time(asked, 0), epoch));
        }
    }
}
