//! Many readers of one pcluster: one reads and decodes it for all.

use std::ops::Range;
use std::time::{Duration, Instant};

use anteros_core::FileSystem;
use anteros_image::{Extent, ImageFs, OpenOptions, ReadStatistics, Source};

use crate::medium::Medium;
use crate::samples::{Sample, large, named};

const READERS: usize = 8;

const FILE: &str = "/data/words";

/// Returns where an extent lies on the device.
pub fn place(extent: &Extent) -> Range<u64> {
    match extent.source {
        Source::Pcluster(pcluster) => {
            let start = pcluster.location.address();
            start..start + u64::from(pcluster.bytes)
        }
        _ => panic!("{extent:?}"),
    }
}

fn wait_until(condition: impl Fn() -> bool) {
    let start = Instant::now();
    while !condition() {
        assert!(start.elapsed() < Duration::from_secs(60));
        std::thread::yield_now();
    }
}

/// Lets many threads read from the middle of the first extent of a file at once. What that cost, and how often the
/// device was read.
fn read_at_once(sample: &Sample, path: &str, cache_bytes: usize) -> (ReadStatistics, usize) {
    let medium = Medium::new(&sample.fixture.bytes);
    let options = OpenOptions {
        cache_bytes,
        readers: READERS,
        ..OpenOptions::default()
    };
    let fs = sample.open_on(medium.clone(), options);
    let file = sample.file(path);
    let extent = &sample.extents(path)[0];
    let place = place(extent);
    let before = statistics(&fs);
    fs.getattr(file.ino).unwrap();
    fs.read(file.ino, 0, &mut []).unwrap();
    medium.change(|state| {
        state.reads.clear();
        state.closed = place.clone();
    });
    std::thread::scope(|scope| {
        for _ in 0..READERS {
            scope.spawn(|| file.compare(&fs, extent.len / 2, 10, &sample.name));
        }
        wait_until(|| statistics(&fs).cohort_waits == before.cohort_waits + READERS as u64 - 1);
        medium.change(|state| state.closed = 0..0);
    });
    (statistics(&fs), medium.reads_of(&place))
}

fn statistics(fs: &ImageFs) -> ReadStatistics {
    fs.image().read_statistics()
}

#[test]
fn a_short_lz4_extent_is_read_once() {
    for name in ["lz4", "lz4hc-64k"] {
        let (stats, reads) = read_at_once(named(name), FILE, 0);
        assert_eq!(
            (stats.misses, stats.hits),
            (1, READERS as u64 - 1),
            "{name}"
        );
        assert_eq!(reads, 1, "{name}");
    }
}

#[test]
fn other_extents_are_decoded_once() {
    for name in ["lzma", "deflate", "zstd"] {
        let (stats, reads) = read_at_once(named(name), FILE, 16 << 20);
        assert_eq!(
            (stats.misses, stats.hits),
            (1, READERS as u64 - 1),
            "{name}"
        );
        assert_eq!(stats.decodes_kept, 1, "{name}: {stats:?}");
        assert_eq!(
            stats.decoded_bytes,
            named(name).extents(FILE)[0].len,
            "{name}"
        );
        // The first reader had read it before it knew of the others.
        assert!(reads <= 2, "{name}: {reads}");
    }
}

#[test]
fn a_long_extent_is_decoded_once() {
    for sample in large() {
        let (stats, reads) = read_at_once(sample, "/repeated", 64 << 20);
        let (name, extent) = (&sample.name, &sample.extents("/repeated")[0]);
        assert_eq!(stats.misses, 1, "{name}: {stats:?}");
        assert!(stats.decoded_bytes <= extent.len, "{name}: {stats:?}");
        assert!(reads <= 2, "{name}: {reads} reads");
    }
}

/// A reader that fails leaves nothing behind that others wait for.
#[test]
fn all_of_them_fail_together_and_recover() {
    let sample = named("lzma");
    let medium = Medium::new(&sample.fixture.bytes);
    let fs = sample.open_on(medium.clone(), OpenOptions::default());
    let (file, extent) = (sample.file(FILE), &sample.extents(FILE)[0]);
    medium.change(|state| state.bad = place(extent));
    std::thread::scope(|scope| {
        for _ in 0..READERS {
            scope.spawn(|| fs.read(file.ino, 100, &mut [0; 100]).unwrap_err());
        }
    });
    medium.change(|state| state.bad = 0..0);
    file.compare(&fs, 100, 100, "recovered");
}
