//! Runs of an image that hold what a profile names.

use std::collections::HashSet;
use std::ops;

use anteros_core::FileKind;
use anteros_image::{Image, Location, Source};
use anteros_trace::profile::Range;

use super::extents::Extents;

/// Bytes between two runs that are taken with them: less than a request costs.
const GAP_BYTES_MAX: u64 = 64 << 10;

type Result<T> = std::result::Result<T, anteros_image::Error>;

/// Runs of bytes of an image, ascending and apart: inodes and directories on the way to the files of some ranges, and the
/// content of the ranges as well if that is wanted.
pub fn runs(image: &Image, ranges: &[Range], content: bool) -> Result<Vec<ops::Range<u64>>> {
    let mut places = Vec::new();
    let mut seen = HashSet::new();
    for range in ranges {
        let mut path = &range.path[..];
        while seen.insert(path) {
            // What is not there has no place.
            let _ = add_inode(image, path, &mut places);
            path = match path.iter().rposition(|byte| *byte == b'/') {
                Some(above) => &path[..above],
                None => b"",
            };
        }
    }
    if content {
        let mut extents = Extents::new(image)?;
        for range in ranges {
            let _ = extents.visit(range, &mut |part| {
                add(part.location, part.stored, &mut places);
            });
        }
    }
    Ok(merged(places))
}

/// Adds an inode with what follows it, and the blocks of a directory.
fn add_inode(image: &Image, path: &[u8], places: &mut Vec<ops::Range<u64>>) -> Result<()> {
    let inode = image.find(path)?;
    if let Some((address, bytes)) = image.record(&inode)? {
        places.push(address..address.saturating_add(bytes));
    }
    if inode.kind != FileKind::Directory {
        return Ok(());
    }
    let map = image.map(&inode)?;
    for extent in image.extents(&inode, &map) {
        let extent = extent?;
        if let Source::Raw(location) = extent.source {
            add(location, extent.len, places);
        }
    }
    Ok(())
}

/// Adds bytes of the primary device.
fn add(location: Location, bytes: u64, places: &mut Vec<ops::Range<u64>>) {
    if let Location::Device { device: 0, address } = location {
        places.push(address..address.saturating_add(bytes));
    }
}

/// Puts together what lies near to each other.
fn merged(mut places: Vec<ops::Range<u64>>) -> Vec<ops::Range<u64>> {
    places.sort_unstable_by_key(|place| place.start);
    let mut merged: Vec<ops::Range<u64>> = Vec::new();
    for place in places {
        match merged.last_mut() {
            Some(last) if place.start <= last.end.saturating_add(GAP_BYTES_MAX) => {
                last.end = last.end.max(place.end);
            }
            _ => merged.push(place),
        }
    }
    merged
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_near_to_each_other_are_one() {
        let gap = GAP_BYTES_MAX;
        let places = vec![
            500..600,
            0..10,
            600 + gap..700 + gap,
            800 + 2 * gap..900 + 2 * gap,
        ];
        assert_eq!(merged(places), [0..700 + gap, 800 + 2 * gap..900 + 2 * gap]);
    }
}
