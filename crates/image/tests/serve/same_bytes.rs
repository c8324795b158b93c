//! Each strategy, each cache, each fixture: the same bytes.
//!
//! Invariant S1 of `docs/design/serving.md`.

use anteros_image::{OpenOptions, Strategy};
use anteros_tests::trees::Random;

use crate::samples::{STRATEGIES, Sample, large, slow, small};

const CACHES: [usize; 4] = [0, 64 << 10, 1 << 20, 16 << 20];

fn options(strategy: Strategy, cache_bytes: usize, readers: usize) -> OpenOptions {
    OpenOptions {
        verify_checksum: false,
        cache_bytes,
        readers,
        strategy,
        ..OpenOptions::default()
    }
}

/// Reads any ranges, then each file in pieces that follow each other, then each whole.
fn compare(sample: &Sample, options: OpenOptions, ranges: usize) {
    let fs = sample.open(options);
    let what = format!("{}, {options:?}", sample.name);
    let mut random = Random(options.cache_bytes as u64 ^ options.strategy as u64);
    for _ in 0..ranges {
        let file = sample.any_file(&mut random);
        let (offset, len) = file.any_range(&mut random);
        file.compare(&fs, offset, len, &what);
    }
    for file in &sample.files {
        let piece = file.content.len() as u64 / 30 + random.length(4096);
        for offset in (0..file.content.len() as u64).step_by(piece as usize) {
            file.compare(&fs, offset, piece as usize, &what);
        }
        file.compare(&fs, 0, file.content.len() + 1, &what);
    }
    let stats = fs.image().read_statistics();
    assert!(
        stats.memory_peak_bytes <= stats.memory_max_bytes,
        "{what}: {stats:?}"
    );
}

#[test]
fn of_every_fixture() {
    for sample in small() {
        for strategy in STRATEGIES {
            for cache in CACHES {
                compare(sample, options(strategy, cache, 1), 40);
            }
            compare(sample, options(strategy, 16 << 20, 4), 40);
        }
    }
}

#[test]
fn of_long_extents() {
    for sample in large() {
        for strategy in STRATEGIES {
            compare(sample, options(strategy, 0, 4), 15);
            compare(sample, options(strategy, 16 << 20, 1), 15);
        }
    }
}

/// The strategies differ in their means, or the comparison above compares nothing.
#[test]
fn by_different_means() {
    for sample in large()
        .iter()
        .filter(|sample| sample.name.starts_with("lz4"))
    {
        let used = STRATEGIES.map(|strategy| {
            let fs = sample.open(options(strategy, 16 << 20, 1));
            for file in &sample.files {
                file.compare(&fs, 100, 200, &sample.name);
                file.compare(&fs, file.content.len() as u64 - 300, 200, &sample.name);
                file.compare(&fs, 0, file.content.len(), &sample.name);
            }
            let stats = fs.image().read_statistics();
            (
                stats.decodes_in_place > 0,
                stats.decodes_rolling > 0,
                stats.decodes_vmap > 0,
                stats.decodes_buffer > 0,
            )
        });
        let [auto, vmap, buffer, rolling, in_place] = used;
        assert!(auto.0 && in_place.0, "{}: in place", sample.name);
        assert_eq!(vmap, (false, false, true, false), "{}", sample.name);
        assert!(
            !buffer.0 && !buffer.1 && (buffer.2 || buffer.3),
            "{}",
            sample.name
        );
        assert!(
            !rolling.0 && rolling.1 && !rolling.2,
            "{}: {rolling:?}",
            sample.name
        );
    }
}

/// Slow codecs are decoded on idle cores too when a request is long.
#[test]
fn of_requests_that_several_cores_decode() {
    if std::thread::available_parallelism().map_or(1, usize::from) < 2 {
        anteros_tests::judge::missing("a second core (nothing is decoded side by side on one)");
        return;
    }
    let Some(sample) = slow() else {
        return;
    };
    let fs = sample.open(options(Strategy::Auto, 16 << 20, 2));
    for file in &sample.files {
        file.compare(&fs, 0, file.content.len(), &sample.name);
    }
    let stats = fs.image().read_statistics();
    assert!(stats.fanned_out > 0, "{stats:?}");
}
