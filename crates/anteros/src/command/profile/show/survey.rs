//! Costs of the ranges of a profile in an image.

use std::collections::{BTreeMap, HashSet};

use anteros_image::{Image, Location};
use anteros_trace::profile::Range;

use crate::command::profile::extents::{Extents, Part};

/// Bytes of a page, in which files are read.
const PAGE_BYTES: u64 = 4096;

/// Costs of ranges, if each extent is fetched once and as a whole.
#[derive(Debug, Default)]
pub struct Survey {
    /// Ranges that were looked at.
    pub ranges: u64,
    /// Bytes of these.
    pub bytes: u64,
    /// Pages of files that they lie in.
    pub pages: u64,
    /// Extents that hold them.
    pub extents: u64,
    /// Bytes of the blocks that the extents lie in.
    pub device_bytes: u64,
    /// Requests in the order of the profile: what follows the extent before it on the device belongs to its request.
    pub requests: u64,
    /// Requests in the order of the device: runs of blocks.
    pub runs: u64,
    /// Bytes that the compressed ones of the extents decode to.
    pub decoded_bytes: u64,
    /// Bytes that the ranges have of these.
    pub wanted_bytes: u64,
    /// Parts of devices that are fetched, in the order in which they are.
    pub fetches: Vec<Fetch>,
    /// Bytes of each device.
    pub devices: Vec<u64>,
}

/// A part of a device that is fetched.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Fetch {
    /// The device; none for the metabox.
    pub device: Option<u16>,
    /// The first byte, at the beginning of a block.
    pub start: u64,
    /// The byte behind the last one, at the end of a block.
    pub end: u64,
    /// Bytes that it decodes to.
    pub decoded: u64,
    /// Bytes of these that ranges have.
    pub wanted: u64,
}

/// A device, or the metabox, and bytes of it.
type Space = Option<u16>;

impl Survey {
    /// Looks at ranges that do not overlap.
    pub fn of(image: &Image, ranges: &[Range]) -> Result<Self, anteros_image::Error> {
        let block_bytes = u64::from(image.superblock().block_bytes());
        let mut survey = Self {
            ranges: ranges.len() as u64,
            devices: image.devices().iter().map(|device| device.size).collect(),
            pages: pages(ranges),
            ..Self::default()
        };
        let mut extents = Extents::new(image)?;
        let mut known: BTreeMap<(Location, bool), usize> = BTreeMap::new();
        for range in ranges {
            survey.bytes += range.len;
            extents.visit(range, &mut |part| {
                survey.take(&part, block_bytes, &mut known)
            })?;
        }
        survey.count_compressed(&known);
        survey.count_requests();
        survey.count_runs();
        Ok(survey)
    }

    /// Takes a part; the rest of an extent that was fetched before costs nothing.
    fn take(
        &mut self,
        part: &Part,
        block_bytes: u64,
        known: &mut BTreeMap<(Location, bool), usize>,
    ) {
        let place = (part.location, part.is_compressed);
        if let Some(fetch) = known.get(&place).and_then(|&at| self.fetches.get_mut(at)) {
            // Another file may have the same extent: not more of it can be wanted than there is.
            fetch.wanted = fetch.decoded.min(fetch.wanted + part.wanted);
            return;
        }
        let start = part.location.address();
        let end = start.saturating_add(part.stored);
        known.insert(place, self.fetches.len());
        self.extents += 1;
        self.fetches.push(Fetch {
            device: match part.location {
                Location::Device { device, .. } => Some(device),
                Location::Metabox { .. } => None,
            },
            start: start / block_bytes * block_bytes,
            end: end.checked_next_multiple_of(block_bytes).unwrap_or(end),
            decoded: part.decoded,
            wanted: part.wanted,
        });
    }

    fn count_compressed(&mut self, known: &BTreeMap<(Location, bool), usize>) {
        for (&(_, is_compressed), &at) in known {
            if let (true, Some(fetch)) = (is_compressed, self.fetches.get(at)) {
                self.decoded_bytes += fetch.decoded;
                self.wanted_bytes += fetch.wanted;
            }
        }
    }

    /// Counts requests in the order of the profile.
    fn count_requests(&mut self) {
        let mut last: Option<Fetch> = None;
        for fetch in &self.fetches {
            // The next extent may begin in the block in which the last one ends.
            let follows = last.is_some_and(|last| {
                last.device == fetch.device && (last.start..=last.end).contains(&fetch.start)
            });
            self.requests += u64::from(!follows);
            last = Some(*fetch);
        }
    }

    /// Counts runs of blocks, and their bytes.
    fn count_runs(&mut self) {
        let mut blocks: Vec<(Space, u64, u64)> = self
            .fetches
            .iter()
            .map(|fetch| (fetch.device, fetch.start, fetch.end))
            .collect();
        blocks.sort_unstable();
        let mut run: Option<(Space, u64)> = None;
        for (space, start, end) in blocks {
            match &mut run {
                Some((last, until)) if *last == space && start <= *until => {
                    self.device_bytes += end.saturating_sub(*until);
                    *until = end.max(*until);
                }
                _ => {
                    self.runs += 1;
                    self.device_bytes += end - start;
                    run = Some((space, end));
                }
            }
        }
    }

    /// Returns the decompression amplification ratio (FPC paper, 2.2): what compressed extents decode to, for each byte that
    /// is wanted of them. `None` if nothing is compressed.
    pub fn dar(&self) -> Option<f64> {
        let is_any = self.wanted_bytes > 0;
        is_any.then(|| self.decoded_bytes as f64 / self.wanted_bytes as f64)
    }
}

/// Pages that ranges lie in.
fn pages(ranges: &[Range]) -> u64 {
    let mut sorted: Vec<&Range> = ranges.iter().filter(|range| range.len > 0).collect();
    sorted.sort_unstable_by_key(|range| (&range.path, range.offset));
    let mut shared = HashSet::new();
    let mut sum = 0;
    for range in sorted {
        let (first, last) = (range.offset / PAGE_BYTES, (range.end() - 1) / PAGE_BYTES);
        sum += last - first + 1;
        // Two ranges may share the page at their ends.
        if !shared.insert((&range.path, first)) {
            sum -= 1;
        }
        shared.insert((&range.path, last));
    }
    sum
}

#[cfg(test)]
mod tests {
    use super::*;

    fn part(address: u64, stored: u64, wanted: u64) -> Part {
        Part {
            location: Location::Device { device: 0, address },
            stored,
            decoded: 65_536,
            wanted,
            is_compressed: true,
        }
    }

    fn survey(parts: &[Part]) -> Survey {
        let mut survey = Survey::default();
        let mut known = BTreeMap::new();
        for part in parts {
            survey.take(part, 4096, &mut known);
        }
        survey.count_compressed(&known);
        survey.count_requests();
        survey.count_runs();
        survey
    }

    #[test]
    fn each_extent_is_fetched_once() {
        let parts = [
            part(8192, 4096, 4096),
            part(12_288, 6000, 4096),
            part(8192, 4096, 8192),
            part(20_000, 100, 4096),
            part(0, 4096, 65_536),
        ];
        let survey = survey(&parts);
        assert_eq!((survey.extents, survey.device_bytes), (4, 16_384));
        // The third one shares a block with the one before it; the last one does not follow.
        assert_eq!((survey.requests, survey.runs), (2, 2));
        assert_eq!(survey.decoded_bytes, 4 * 65_536);
        assert_eq!(survey.wanted_bytes, 4 * 4096 + 4096 + 65_536);
        assert!(survey.dar().is_some_and(|dar| (dar - 3.05).abs() < 0.01));
    }

    #[test]
    fn nothing_costs_nothing() {
        let survey = survey(&[]);
        assert_eq!((survey.requests, survey.runs, survey.dar()), (0, 0, None));
    }

    #[test]
    fn pages_at_ends_count_once() {
        let range = |path: &str, offset, len| Range {
            path: path.into(),
            offset,
            len,
            count: 1,
            digest: None,
        };
        let ranges = [
            range("/a", 100, 100),
            range("/a", 300, 4096),
            range("/a", 8192, 1),
            range("/b", 0, 4096),
            range("/b", 0, 0),
        ];
        assert_eq!(pages(&ranges), 4);
    }
}
