//! The experiment of the paper, scaled down, and when each form writes.

use std::time::{Duration, Instant};

use anteros_buffer::{Form, Options};
use anteros_core::{OpenFile, Payload, Writable};
use rustix::fs::OFlags;

use crate::model::{APPEND, Numbers, create, open};
use crate::{FORMS, buffered, manual, untimed};

const RECORD: usize = 512 << 10;
const RECORDS: u64 = 128;

#[test]
fn four_records_or_more_become_one_write() {
    for threaded in [true, false] {
        let fs = buffered(Options {
            form: Form::Entries,
            threaded,
            interval: Duration::from_secs(3600),
            passes_first: false,
            ..Options::default()
        });
        let file = create(&fs, "file", OFlags::WRONLY);
        let mut expected = Vec::new();
        for i in 0..RECORDS {
            let record = vec![i as u8 + 1; RECORD];
            let count = fs.write(file, i * RECORD as u64, &record, false).unwrap();
            assert_eq!(count, RECORD);
            expected.extend_from_slice(&record);
        }
        fs.flush(file).unwrap();
        assert!(fs.inner().content(file.ino) == expected);
        let counts = fs.statistics();
        assert!(fs.inner().write_count() <= RECORDS / 4, "{counts:?}");
        assert_eq!(counts.writes_in, RECORDS);
        assert_eq!(counts.bytes_out, RECORDS * RECORD as u64);
        assert_eq!(counts.buffered_bytes, 0);
        assert!(counts.memory_bytes_peak <= 8 << 20, "{counts:?}");
        let full = counts.flushes.full;
        // The writer itself flushes each full region when there is no thread.
        assert_eq!(full, if threaded { 0 } else { RECORDS / 4 }, "{counts:?}");
    }
}

#[test]
fn small_appends_are_gathered_and_large_ones_written_together() {
    let fs = buffered(manual(Form::Queues));
    let small = create(&fs, "small", OFlags::WRONLY);
    for i in 0..16 {
        fs.write(small, i * 4096, &[7; 4096], false).unwrap();
    }
    // The buffer, and the smaller ones that it grew out of, which are kept, and a page of each.
    assert_eq!(fs.statistics().memory_bytes, (64 + 16 + 4 + 3 * 4) << 10);
    fs.flush(small).unwrap();
    assert_eq!(fs.inner().write_count(), 1);
    let large = create(&fs, "large", OFlags::WRONLY);
    for i in 0..3 {
        fs.write(large, i << 16, &[7; 64 << 10], false).unwrap();
    }
    fs.flush(large).unwrap();
    assert_eq!(fs.inner().write_count(), 2);
    assert_eq!(
        fs.statistics().memory_bytes,
        (3 * 64 + 16 + 4 + 5 * 4) << 10
    );
}

#[test]
fn a_small_request_does_not_pin_a_region() {
    let fs = buffered(manual(Form::Queues));
    for i in 0..50 {
        let file = create(&fs, &format!("{i}"), OFlags::WRONLY);
        fs.write(file, 0, &[1; 100], false).unwrap();
    }
    let counts = fs.statistics();
    assert_eq!((counts.writes_out, counts.buffered_bytes), (0, 5000));
    assert_eq!(counts.memory_bytes, 50 * (4096 + 4096));
}

#[test]
fn streams_into_one_file_are_gathered_each() {
    for form in FORMS {
        let fs = buffered(manual(form));
        let file = create(&fs, "file", OFlags::WRONLY);
        for i in 0..20 {
            for stream in 0..2 {
                let offset = stream * 100_000 + i * 100;
                fs.write(file, offset, &[stream as u8 + 1; 100], false)
                    .unwrap();
            }
        }
        fs.flush(file).unwrap();
        assert_eq!(fs.inner().write_count(), 2, "{form:?}");
    }
}

/// Invariant W2 of `docs/design/bfuse.md`.
#[test]
fn what_was_written_later_stays_later() {
    for form in FORMS {
        let fs = buffered(manual(form));
        let file = create(&fs, "file", OFlags::WRONLY);
        fs.write(file, 0, &[1; 100], false).unwrap();
        fs.write(file, 150, &[2; 100], false).unwrap();
        // Continues the first, and lies over the second.
        fs.write(file, 100, &[3; 100], false).unwrap();
        fs.write(file, 50, &[4; 10], false).unwrap();
        fs.flush(file).unwrap();
        let content = fs.inner().content(file.ino);
        assert_eq!(content.len(), 250);
        for (at, value) in [(0, 1), (55, 4), (99, 1), (100, 3), (199, 3), (200, 2)] {
            assert_eq!(content[at], value, "{form:?} {at}");
        }
    }
}

/// Invariant W4 of `docs/design/bfuse.md`.
#[test]
fn a_request_is_never_split_over_two_entries() {
    let lens: Vec<usize> = (0..200).map(|i| 1 + i * 997 % 5000).collect();
    for form in FORMS {
        for flags in [OFlags::WRONLY, APPEND] {
            let region_bytes = 16 << 10;
            let fs = buffered(Options {
                region_bytes,
                ..manual(form)
            });
            let file = create(&fs, "file", flags);
            let mut expected = Vec::new();
            let mut ends = vec![0];
            for (i, &len) in lens.iter().enumerate() {
                let request = vec![i as u8; len];
                let written = fs.write(file, expected.len() as u64, &request, false);
                assert_eq!(written.unwrap(), len);
                expected.extend(request);
                ends.push(expected.len());
            }
            fs.flush(file).unwrap();
            assert!(fs.inner().content(file.ino) == expected);
            // Each entry goes down as a piece: from the beginning of a request to the end of one.
            let mut end = 0;
            for (_, len) in fs.inner().pieces() {
                assert!(len <= region_bytes);
                end += len;
                assert!(ends.contains(&end), "{form:?}: a request is split at {end}");
            }
            assert_eq!(end, expected.len());
        }
    }
}

/// Invariant W5 of `docs/design/bfuse.md`.
#[test]
fn time_flushes_everything() {
    for form in FORMS {
        let fs = buffered(manual(form));
        // Later than whatever is left of the interval in which it was made.
        let start = Instant::now() + Duration::from_secs(60);
        fs.tick(start);
        let file = create(&fs, "file", OFlags::WRONLY);
        fs.write(file, 0, b"data", false).unwrap();
        fs.tick(start + Duration::from_millis(1));
        assert_eq!(fs.inner().write_count(), 0, "not due");
        fs.tick(start + Duration::from_millis(20));
        assert_eq!(fs.inner().write_count(), 1);
        fs.write(file, 4, b"data", false).unwrap();
        fs.tick(start + Duration::from_millis(21));
        assert_eq!(fs.inner().write_count(), 1, "not due again");
        fs.tick(start + Duration::from_millis(30));
        assert_eq!(fs.inner().content(file.ino), b"datadata");
        assert_eq!(fs.statistics().flushes.interval, 2);
    }
}

/// Invariant W5 of `docs/design/bfuse.md`.
#[test]
fn the_thread_keeps_the_time() {
    for form in FORMS {
        let fs = buffered(Options {
            interval: Duration::from_millis(1),
            ..untimed(form)
        });
        // The second time after the thread went to sleep for good.
        for pause in [0, 300] {
            std::thread::sleep(Duration::from_millis(pause));
            let file = create(&fs, &format!("{pause}"), OFlags::WRONLY);
            fs.write(file, 0, b"data", false).unwrap();
            crate::wait_until(|| fs.inner().content(file.ino) == b"data");
        }
        crate::wait_until(|| fs.statistics().memory_bytes == 0);
    }
}

#[test]
fn depth_calls_the_thread() {
    let fs = buffered(untimed(Form::Queues));
    let files = [0, 1, 2, 3, 4, 5, 6, 7].map(|i| create(&fs, &format!("{i}"), OFlags::WRONLY));
    for file in &files[..7] {
        fs.write(*file, 0, &[1; 60 << 10], false).unwrap();
    }
    assert_eq!(fs.statistics().buffered_bytes, 7 * (60 << 10));
    fs.write(files[7], 0, &[1; 60 << 10], false).unwrap();
    crate::wait_until(|| fs.statistics().buffered_bytes == 0);
    let statistics = fs.statistics();
    assert_eq!((statistics.flushes.depth, statistics.writes_out), (8, 8));
}

#[test]
fn only_what_follows_a_write_waits() {
    for form in FORMS {
        let fs = buffered(Options {
            passes_first: true,
            ..manual(form)
        });
        let file = create(&fs, "file", OFlags::WRONLY | OFlags::APPEND);
        let write = |waits: bool| {
            let before = fs.inner().content(file.ino).len();
            fs.write(file, 0, b"data", false).unwrap();
            let after = fs.inner().content(file.ino).len();
            assert_eq!(after == before, waits, "{form:?}");
        };
        let ends: [&dyn Fn(); 3] = [&|| (), &|| fs.fsync(file, true).unwrap(), &|| {
            fs.flush(file).unwrap()
        }];
        for end in ends {
            end();
            write(false);
            write(true);
            write(true);
        }
        // The kernel lets go of a file some time after it was closed.
        let closed = open(&fs, file.ino, OFlags::WRONLY);
        fs.flush(closed).unwrap();
        write(false);
        fs.release(closed);
        write(true);
        fs.release(file);
        assert_eq!(fs.inner().content(file.ino), b"data".repeat(11));
        assert_eq!(fs.statistics().writes_through, 4);
    }
}

#[test]
fn whoever_answered_writes_what_nothing_joins() {
    for threaded in [true, false] {
        let fs = buffered(Options {
            threaded,
            ..untimed(Form::Queues)
        });
        let file = create(&fs, "file", OFlags::WRONLY);
        fs.write(file, 0, &[1; 4 << 10], false).unwrap();
        fs.hand_on(file.ino);
        assert_eq!(fs.statistics().buffered_bytes, 4 << 10, "it is gathered");
        fs.write(file, 4 << 10, &[1; 64 << 10], false).unwrap();
        assert_eq!(fs.statistics().buffered_bytes, 68 << 10);
        fs.hand_on(file.ino);
        let left = if threaded { 0 } else { 68 << 10 };
        assert_eq!(fs.statistics().buffered_bytes, left);
    }
}

/// Tests that where there is a writer for each processor, none of them goes on sooner for an early answer.
#[test]
fn in_a_crowd_of_writers_large_content_goes_down_at_once() {
    let fs = buffered(untimed(Form::Queues));
    let crowd = std::thread::available_parallelism()
        .map_or(2, usize::from)
        .max(2);
    let files: Vec<_> = (1..=crowd as u32)
        .map(|writer| {
            (
                writer,
                create(&fs, &format!("file{writer}"), OFlags::WRONLY),
            )
        })
        .collect();
    let mut request = Vec::with_capacity(80 << 10);
    let mut write = |writer, file: OpenFile| {
        request.resize(64 << 10, 7);
        let payload = Payload::new(&mut request, 0..64 << 10).by(writer);
        fs.write_payload(file, 0, payload, false).unwrap();
        fs.hand_on(file.ino);
        fs.statistics().writes_through
    };
    for _ in 0..10 {
        assert_eq!(write(1, files[0].1), 0, "alone");
    }
    // They count as many only if they come soon after each other.
    let joined = (0..1000).any(|_| files.iter().any(|&(writer, file)| write(writer, file) > 0));
    assert!(joined);
    assert_eq!(fs.statistics().buffered_bytes, 0);
}

#[test]
fn what_continues_is_written_together() {
    let fs = buffered(manual(Form::Queues));
    let file = create(&fs, "file", OFlags::RDWR);
    for place in [0, 1, 2, 5, 6, 4] {
        fs.write(file, place << 16, &[place as u8; 64 << 10], false)
            .unwrap();
    }
    fs.fsync(file, true).unwrap();
    assert_eq!(fs.statistics().writes_out, 3);
    let mut found = vec![0; 7 << 16];
    fs.read_open(file, 0, &mut found).unwrap();
    for (place, chunk) in found.chunks(1 << 16).enumerate() {
        let wanted = if place == 3 { 0 } else { place as u8 };
        assert!(chunk.iter().all(|&byte| byte == wanted), "{place}");
    }
}

#[test]
fn a_large_request_is_kept_in_its_own_buffer() {
    let fs = buffered(untimed(Form::Queues));
    let file = create(&fs, "file", OFlags::RDWR);
    let mut request = Vec::with_capacity(300 << 10);
    for round in 0..20_u64 {
        request.resize(80, 7);
        request.resize(80 + (200 << 10), round as u8);
        let before = request.as_ptr();
        let payload = Payload::new(&mut request, 80..80 + (200 << 10));
        let written = fs.write_payload(file, round * (200 << 10), payload, false);
        assert_eq!(written.unwrap(), 200 << 10);
        assert!(request.as_ptr() != before, "kept");
        assert_eq!((request.len(), request.capacity()), (0, 300 << 10));
        // A small part of a large buffer is copied.
        request.resize(80 + (64 << 10), 9);
        let before = request.as_ptr();
        let payload = Payload::new(&mut request, 80..80 + (64 << 10));
        fs.write_payload(file, 100 << 20, payload, false).unwrap();
        assert!(request.as_ptr() == before, "left");
    }
    let mut found = vec![0; 20 * (200 << 10)];
    fs.read_open(file, 0, &mut found).unwrap();
    for (round, chunk) in found.chunks(200 << 10).enumerate() {
        assert!(chunk.iter().all(|&byte| byte == round as u8), "{round}");
    }
    assert!(fs.statistics().memory_bytes_peak <= 1 << 20);
}

#[test]
fn queued_content_goes_down_from_a_page_of_memory() {
    let fs = buffered(manual(Form::Queues));
    let file = create(&fs, "file", OFlags::WRONLY);
    let mut end = 0;
    // Gathered in buffers that grow, copied whole, and gathered behind that; then something elsewhere.
    for len in [100, 4096, 30_000, 50_000, 70_000, 200_000, 1, 5000] {
        fs.write(file, end, &vec![7; len], false).unwrap();
        end += len as u64;
    }
    fs.write(file, 1 << 20, &[7; 10], false).unwrap();
    fs.fsync(file, true).unwrap();
    let pieces = fs.inner().pieces();
    assert!(pieces.len() >= 4, "{pieces:?}");
    assert!(
        pieces.iter().all(|&(addr, _)| addr % 4096 == 0),
        "{pieces:x?}"
    );
    assert_eq!(
        pieces.iter().map(|&(_, len)| len as u64).sum::<u64>(),
        end + 10
    );
}

#[test]
fn requests_of_any_size_are_taken() {
    let mut numbers = Numbers(0x5eed);
    for form in FORMS {
        for threaded in [true, false] {
            let fs = buffered(Options {
                threaded,
                bytes_max: 200_000,
                region_bytes: 100_000,
                ..untimed(form)
            });
            let file = create(&fs, "file", OFlags::WRONLY);
            let mut expected = Vec::new();
            for len in [
                0,
                1,
                4096,
                65_535,
                65_536,
                70_000,
                196_608,
                200_000,
                1 << 20,
                3,
            ] {
                let data = numbers.bytes(len);
                let offset = expected.len() as u64;
                assert_eq!(fs.write(file, offset, &data, false).unwrap(), len);
                expected.extend(data);
            }
            fs.fsync(file, false).unwrap();
            assert!(fs.inner().content(file.ino) == expected, "{form:?}");
            assert!(fs.statistics().memory_bytes_peak <= 200_000);
        }
    }
}
