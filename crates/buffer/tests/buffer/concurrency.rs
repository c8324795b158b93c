//! Many threads.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use anteros_buffer::Options;
use anteros_core::{Changes, FileSystem, Writable};
use rustix::fs::OFlags;

use crate::model::{APPEND, Numbers, create, open};
use crate::{FORMS, buffered, manual, untimed, wait_until};

/// Invariant W3 of `docs/design/bfuse.md`.
#[test]
fn memory_is_bounded_while_nothing_can_be_written() {
    for form in FORMS {
        for (threaded, len) in [
            (true, 4000),
            (true, 100_000),
            (false, 4000),
            (false, 100_000),
        ] {
            let fs = buffered(Options {
                threaded,
                ..untimed(form)
            });
            fs.inner().gate(true);
            let done = AtomicUsize::new(0);
            thread::scope(|scope| {
                for writer in 0..16 {
                    let (fs, done) = (&fs, &done);
                    scope.spawn(move || {
                        let file = create(fs, &format!("{writer}"), OFlags::WRONLY);
                        for i in 0..(256 << 10) / len as u64 {
                            fs.write(file, i * len as u64, &vec![writer; len], false)
                                .unwrap();
                        }
                        done.fetch_add(1, Ordering::SeqCst);
                        fs.release(file);
                    });
                }
                wait_until(|| fs.inner().entered.load(Ordering::SeqCst) > 0);
                // Time for the writers to get as far as they can.
                thread::sleep(Duration::from_millis(20));
                assert!(done.load(Ordering::SeqCst) < 16, "no back-pressure");
                assert!(fs.statistics().memory_bytes <= 1 << 20);
                fs.inner().gate(false);
            });
            let counts = fs.statistics();
            // Without a thread, writers may never get that far: they flush what is deep enough.
            assert!(counts.waits > 0 || !threaded, "{counts:?}");
            assert!(counts.memory_bytes_peak <= 1 << 20, "{counts:?}");
            assert!(counts.buffered_bytes_peak <= 1 << 20, "{counts:?}");
            assert_eq!(counts.buffered_bytes, 0);
        }
    }
}

#[test]
fn many_writers_of_many_files() {
    for form in FORMS {
        for (threaded, writers) in [(true, 16), (true, 64), (false, 16)] {
            let fs = buffered(Options {
                threaded,
                interval: Duration::from_millis(1),
                ..untimed(form)
            });
            let expected: Vec<_> = thread::scope(|scope| {
                let write = |seed: u64| {
                    let fs = &fs;
                    move || {
                        let mut numbers = Numbers(seed);
                        let files =
                            [0, 1, 2].map(|i| create(fs, &format!("{seed}.{i}"), OFlags::RDWR));
                        let mut contents = [vec![], vec![], vec![]];
                        for step in 0..60 {
                            let i = numbers.below(3) as usize;
                            let len = [100, 4096, 70_000][numbers.below(3) as usize];
                            let data = vec![step as u8 + 1; len];
                            let content: &mut Vec<u8> = &mut contents[i];
                            let offset = content.len() as u64;
                            assert_eq!(fs.write(files[i], offset, &data, false).unwrap(), len);
                            content.extend(data);
                            match numbers.below(20) {
                                0 => fs.fsync(files[i], false).unwrap(),
                                1 => {
                                    let size = fs.getattr(files[i].ino).unwrap().size;
                                    assert_eq!(size, content.len() as u64);
                                }
                                _ => {}
                            }
                        }
                        for file in files {
                            fs.flush(file).unwrap();
                            fs.release(file);
                        }
                        (files, contents)
                    }
                };
                let threads: Vec<_> = (1..=writers).map(|seed| scope.spawn(write(seed))).collect();
                threads.into_iter().map(|t| t.join().unwrap()).collect()
            });
            for (files, contents) in expected {
                for (file, content) in files.into_iter().zip(contents) {
                    assert!(fs.inner().content(file.ino) == content, "{form:?}");
                }
            }
            let counts = fs.statistics();
            assert_eq!(counts.buffered_bytes, 0);
            assert!(counts.memory_bytes_peak <= 1 << 20, "{counts:?}");
            println!("{form:?} threaded {threaded}, {writers} writers: {counts:?}");
        }
    }
}

#[test]
fn many_small_writers_are_gathered_also_when_memory_runs_out() {
    const WRITERS: u64 = 64;
    let fs = buffered(Options::default());
    thread::scope(|scope| {
        for writer in 0..WRITERS {
            let fs = &fs;
            scope.spawn(move || {
                let file = create(fs, &format!("{writer}"), OFlags::WRONLY);
                for i in 0..256 {
                    fs.write(file, i * 4096, &[1; 4096], false).unwrap();
                }
                fs.flush(file).unwrap();
                assert!(fs.inner().content(file.ino) == [1; 256 * 4096]);
            });
        }
    });
    let counts = fs.statistics();
    assert!(counts.writes_out < counts.writes_in / 2, "{counts:?}");
    assert!(counts.waits < counts.writes_in / 2, "{counts:?}");
}

/// Invariant W4 of `docs/design/bfuse.md`.
#[test]
fn appenders_side_by_side() {
    const RECORD: usize = 1000;
    for form in FORMS {
        for threaded in [true, false] {
            let fs = buffered(Options {
                threaded,
                interval: Duration::from_millis(1),
                ..untimed(form)
            });
            let ino = create(&fs, "file", APPEND).ino;
            thread::scope(|scope| {
                for writer in 0..8_u8 {
                    let fs = &fs;
                    scope.spawn(move || {
                        let file = open(fs, ino, APPEND);
                        for i in 0..100 {
                            let mut record = vec![writer; RECORD];
                            record[0] = i;
                            fs.write(file, 0, &record, false).unwrap();
                        }
                        fs.flush(file).unwrap();
                        fs.release(file);
                    });
                }
            });
            let content = fs.inner().content(ino);
            assert_eq!(content.len(), 800 * RECORD, "{form:?}");
            let mut next = [0; 8];
            for record in content.chunks(RECORD) {
                let writer = record[1];
                assert!(record[1..].iter().all(|&byte| byte == writer), "torn");
                assert_eq!(record[0], next[usize::from(writer)], "out of order");
                next[usize::from(writer)] += 1;
            }
        }
    }
}

#[test]
fn one_slow_inode_does_not_keep_others_from_being_written_to() {
    for form in FORMS {
        let fs = buffered(manual(form));
        let (slow, other) = (
            create(&fs, "slow", OFlags::WRONLY),
            create(&fs, "other", OFlags::WRONLY),
        );
        fs.write(slow, 0, b"0123", false).unwrap();
        fs.inner().gate(true);
        thread::scope(|scope| {
            scope.spawn(|| fs.flush(slow).unwrap());
            wait_until(|| fs.inner().entered.load(Ordering::SeqCst) == 1);
            // Both are accepted while the flush is under way.
            fs.write(other, 0, b"0123", false).unwrap();
            fs.write(slow, 4, b"4567", false).unwrap();
            scope.spawn(|| fs.flush(other).unwrap());
            wait_until(|| fs.inner().entered.load(Ordering::SeqCst) == 2);
            fs.inner().gate(false);
        });
        fs.flush(slow).unwrap();
        assert_eq!(fs.inner().content(slow.ino), b"01234567");
    }
}

#[test]
fn changes_beside_writers() {
    for form in FORMS {
        let fs = buffered(Options {
            interval: Duration::from_millis(1),
            ..untimed(form)
        });
        let ino = create(&fs, "file", OFlags::RDWR).ino;
        thread::scope(|scope| {
            for writer in 0..4 {
                let fs = &fs;
                scope.spawn(move || {
                    let flags = if writer % 2 == 0 {
                        APPEND
                    } else {
                        OFlags::RDWR
                    };
                    let file = open(fs, ino, flags);
                    for i in 0..200 {
                        fs.write(file, i * 10, &[1; 5000], i % 7 == 0).unwrap();
                    }
                    fs.release(file);
                });
            }
            let fs = &fs;
            scope.spawn(move || {
                for i in 0..100 {
                    let changes = Changes {
                        size: Some(i * 100),
                        ..Changes::default()
                    };
                    fs.change(ino, None, &changes).unwrap();
                    fs.getattr(ino).unwrap();
                    fs.rename((fs.root(), b"file"), (fs.root(), b"file"), 0)
                        .unwrap();
                }
            });
        });
        assert_eq!(fs.statistics().buffered_bytes, 0);
    }
}
