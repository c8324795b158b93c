//! Many threads, little memory.

use anteros_image::{OpenOptions, Strategy};
use anteros_tests::trees::Random;

use crate::samples::{STRATEGIES, Sample, large, named, without_hanging};

const THREADS: u64 = 8;

fn stress(sample: &Sample, strategies: &[Strategy], reads: usize) {
    for (index, &strategy) in strategies.iter().enumerate() {
        let cache_bytes = index << 20;
        let fs = sample.open(OpenOptions {
            verify_checksum: false,
            cache_bytes,
            readers: THREADS as usize,
            strategy,
            ..OpenOptions::default()
        });
        std::thread::scope(|scope| {
            for seed in 0..THREADS {
                let fs = &fs;
                scope.spawn(move || {
                    let mut random = Random(seed);
                    for _ in 0..reads {
                        let file = sample.any_file(&mut random);
                        let (offset, len) = file.any_range(&mut random);
                        file.compare(fs, offset, len, &sample.name);
                    }
                });
            }
        });
        let stats = fs.image().read_statistics();
        let max = stats.memory_max_bytes;
        assert!(
            stats.memory_bytes <= max && stats.memory_peak_bytes <= max,
            "{}: {stats:?}",
            sample.name
        );
    }
}

#[test]
fn of_the_fixtures() {
    for name in [
        "lz4",
        "lzma",
        "metabox-lzma",
        "fragments-dedupe",
        "zstd",
        "ztailpacking",
    ] {
        stress(named(name), &STRATEGIES, 150);
    }
}

#[test]
fn of_long_extents() {
    let strategies = [Strategy::Auto, Strategy::Buffer];
    for sample in large() {
        without_hanging(&sample.name, || stress(sample, &strategies, 4));
    }
}
