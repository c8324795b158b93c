//! Pinned ranges: served without the device, within their budget.

use std::io::Read;
use std::os::unix::fs::FileExt;

use anteros_core::FileSystem;
use anteros_image::{ImageFs, OpenOptions, PinReport};
use anteros_tests::trees::Random;
use anteros_trace::profile::{Profile, Range};

use crate::medium::Medium;
use crate::samples::{Sample, large, named, read, without_hanging};

const FILE: &str = "/data/words";

fn hot(path: &str, offset: u64, len: u64, count: u64) -> Range {
    Range {
        path: path.into(),
        offset,
        len,
        count,
        digest: None,
    }
}

fn pinned(sample: &Sample, ranges: &[Range], bytes_max: usize) -> (ImageFs, PinReport) {
    let mut fs = sample.open(OpenOptions::default());
    let profile = Profile {
        rounds: 1,
        ranges: ranges.to_vec(),
    };
    let report = fs.pin(&profile, bytes_max);
    assert_eq!(fs.pinned_bytes(), report.bytes);
    (fs, report)
}

#[test]
fn what_is_pinned_needs_no_device() {
    for name in ["lz4", "lzma", "plain", "fragments"] {
        let sample = named(name);
        let file = sample.file(FILE);
        let (fs, report) = pinned(sample, &[hot(FILE, 5000, 9000, 1)], 1 << 20);
        assert_eq!((report.ranges, report.left_out), (1, 0), "{name}");
        // From the beginning of the first page to the end of the last.
        assert_eq!(report.bytes, 12_288, "{name}");
        let before = fs.image().read_statistics();
        let mut random = Random(1);
        for _ in 0..50 {
            let offset = 4096 + random.below(12_288);
            let len = 1 + random.below(16_384 - offset);
            file.compare(&fs, offset, len as usize, name);
        }
        let after = fs.image().read_statistics();
        assert_eq!(after.device_reads, before.device_reads, "{name}");
        assert_eq!(after.pinned_hits, before.pinned_hits + 50, "{name}");
        // Across both ends.
        file.compare(&fs, 0, file.content.len(), name);
        file.compare(&fs, 4000, 200, name);
        file.compare(&fs, 16_000, 1000, name);
    }
}

#[test]
fn ranges_may_overlap() {
    let sample = named("lz4");
    let ranges = [
        hot(FILE, 8192, 4096, 9),
        hot(FILE, 4096, 12_288, 5),
        hot(FILE, 4096, 12_288, 5),
        hot(FILE, 12_288, 8192, 1),
    ];
    let (fs, report) = pinned(sample, &ranges, 1 << 20);
    assert_eq!((report.bytes, report.ranges), (16_384, 4));
    let before = fs.image().read_statistics().device_reads;
    sample.file(FILE).compare(&fs, 4096, 16_384, "overlapping");
    assert_eq!(fs.image().read_statistics().device_reads, before);
    sample.file(FILE).compare(&fs, 0, 30_000, "overlapping");
}

#[test]
fn a_whole_file_lies_in_a_file_of_the_system() {
    let sample = named("lzma");
    let file = sample.file(FILE);
    let len = file.content.len() as u64;
    let (fs, report) = pinned(sample, &[hot(FILE, 0, u64::MAX, 1)], 1 << 20);
    assert_eq!((report.bytes, report.ranges), (len, 1));
    assert!(fs.has_memory_files());
    let memory = fs
        .memory_file(file.ino)
        .unwrap()
        .try_clone_to_owned()
        .unwrap();
    let mut memory = std::fs::File::from(memory);
    let mut content = vec![0; file.content.len()];
    memory.read_exact_at(&mut content, 0).unwrap();
    assert!(content == file.content);
    assert_eq!(memory.read(&mut [0]).unwrap().min(1), 1);
    assert!(
        memory.read_at(&mut [0], len).unwrap() == 0,
        "nothing behind it"
    );
    let before = fs.image().read_statistics().device_reads;
    file.compare(&fs, 0, file.content.len() + 10, "whole");
    file.compare(&fs, len - 1, 10, "its end");
    file.compare(&fs, len + 5, 10, "behind its end");
    assert_eq!(fs.image().read_statistics().device_reads, before);
    let other = sample.file("/data/lines");
    assert!(fs.memory_file(other.ino).is_none());
}

#[test]
fn the_budget_is_kept_by_the_least_read() {
    let sample = named("lz4");
    let ranges = [
        hot("/data/lines", 0, 8192, 1),
        hot(FILE, 0, 8192, 3),
        hot(FILE, 16_384, 4096, 2),
    ];
    let (fs, report) = pinned(sample, &ranges, 12_288);
    assert_eq!((report.bytes, report.bytes_max), (12_288, 12_288));
    assert_eq!((report.ranges, report.left_out), (2, 1));
    let before = fs.image().read_statistics().pinned_hits;
    sample.file("/data/lines").compare(&fs, 0, 100, "left out");
    assert_eq!(fs.image().read_statistics().pinned_hits, before);
    sample.file(FILE).compare(&fs, 0, 100, "pinned");
    assert_eq!(fs.image().read_statistics().pinned_hits, before + 1);
}

/// However much is asked for, reading keeps the memory that it needs.
#[test]
fn pins_leave_memory_to_read_with() {
    for sample in large() {
        let ranges: Vec<_> = sample
            .files
            .iter()
            .map(|file| hot(&file.path, 0, 1 << 20, 1))
            .collect();
        let mut fs = sample.open(OpenOptions {
            cache_bytes: 6 << 20,
            ..OpenOptions::default()
        });
        fs.pin(&Profile { rounds: 1, ranges }, usize::MAX);
        let mut random = Random(3);
        without_hanging(&sample.name, || {
            for _ in 0..10 {
                let file = sample.any_file(&mut random);
                let (offset, len) = file.any_range(&mut random);
                file.compare(&fs, offset, len, &sample.name);
            }
        });
        let stats = fs.image().read_statistics();
        assert!(stats.memory_peak_bytes <= stats.memory_max_bytes);
    }
}

#[test]
fn what_cannot_be_pinned_is_told() {
    let sample = named("lz4");
    let ranges = [
        hot("/no/such", 0, 1, 4),
        hot("/data", 0, 1, 3),
        hot("/data/words/below", 0, 1, 2),
        hot(FILE, 0, 4096, 1),
    ];
    let (_, report) = pinned(sample, &ranges, 1 << 20);
    let missing: Vec<_> = report.missing.iter().map(|(path, _)| &path[..]).collect();
    assert_eq!(
        missing,
        [b"/no/such" as &[u8], b"/data", b"/data/words/below"]
    );
    assert_eq!((report.ranges, report.bytes), (1, 4096));
}

#[test]
fn what_lies_behind_the_end_of_a_file_is_nothing() {
    let sample = named("lz4");
    let file = sample.file(FILE);
    let len = file.content.len() as u64;
    let ranges = [
        hot(FILE, len + 4096, 10, 1),
        hot(FILE, u64::MAX, u64::MAX, 1),
        hot(FILE, u64::MAX - 1, 1, 1),
        hot("/data/empty", 0, 10, 1),
    ];
    let (fs, report) = pinned(sample, &ranges, 1 << 20);
    assert_eq!(report.bytes, 0);
    file.compare(&fs, 0, file.content.len(), "nothing pinned");
    file.compare(&fs, len - 10, 20, "nothing pinned");
}

#[test]
fn a_pin_of_what_cannot_be_read_is_told_and_not_kept() {
    let sample = named("lz4");
    let medium = Medium::new(&sample.fixture.bytes);
    let fs = sample.open_on(medium.clone(), OpenOptions::default());
    let Ok(mut fs) = std::sync::Arc::try_unwrap(fs) else {
        panic!("shared");
    };
    let place = crate::cohort::place(&sample.extents(FILE)[0]);
    medium.change(|state| state.bad = place);
    let profile = Profile {
        rounds: 1,
        ranges: vec![hot(FILE, 0, 4096, 1), hot(FILE, 0, u64::MAX, 1)],
    };
    let report = fs.pin(&profile, 1 << 20);
    assert_eq!((report.bytes, report.missing.len()), (0, 2), "{report:?}");
    medium.change(|state| state.bad = 0..0);
    let file = sample.file(FILE);
    assert!(read(&fs, file.ino, 0, 100).unwrap() == file.at(0, 100));
}
