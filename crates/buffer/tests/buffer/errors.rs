//! Data that cannot be written.

use std::sync::atomic::Ordering;
use std::thread;
use std::time::Duration;

use anteros_buffer::{Buffered, Form};
use anteros_core::{FsError, OpenFile, Writable};
use rustix::fs::OFlags;

use crate::model::{APPEND, EIO, ENOSPC, Model, create, number, open};
use crate::{FORMS, buffered, manual, untimed, wait_until};

/// A file whose buffered data was just lost, and a second open file of the same inode.
fn failed(form: Form) -> (Buffered<Model>, OpenFile, OpenFile) {
    let fs = buffered(manual(form));
    let first = create(&fs, "file", OFlags::RDWR);
    let second = open(&fs, first.ino, OFlags::RDWR);
    fs.write(first, 0, &[1; 1000], false).unwrap();
    fs.inner().fail(0, EIO, 1);
    // Reading is not told, but drains.
    fs.read_open(first, 0, &mut [0]).unwrap();
    assert_eq!(fs.statistics().errors, 1);
    assert_eq!(fs.statistics().bytes_lost, 1000);
    (fs, first, second)
}

/// Invariant W7 of `docs/design/bfuse.md`.
#[test]
fn each_open_file_is_told_once() {
    type Call = fn(&Buffered<Model>, OpenFile) -> Result<(), FsError>;
    let calls: [Call; 3] = [
        |fs, file| fs.flush(file),
        |fs, file| fs.write(file, 0, b"x", false).map(drop),
        |fs, file| fs.fsync(file, false),
    ];
    for form in FORMS {
        for first_call in &calls[1..] {
            for second_call in &calls[1..] {
                let (fs, first, second) = failed(form);
                let late = open(&fs, first.ino, OFlags::RDWR);
                assert_eq!(number(first_call(&fs, first)), EIO);
                assert_eq!(number(second_call(&fs, second)), EIO);
                for call in calls {
                    for file in [first, second, late] {
                        call(&fs, file).unwrap();
                    }
                }
                for file in [first, second, late] {
                    fs.release(file);
                }
                assert_eq!(fs.statistics().errors_unreported, 0);
                assert!(fs.shutdown().is_empty());
            }
        }
    }
}

/// Tests that an error stays: who closes one copy of a descriptor may not have looked.
#[test]
fn a_close_tells_and_does_not_use_up() {
    for form in FORMS {
        let (fs, first, second) = failed(form);
        for _ in 0..2 {
            assert_eq!(number(fs.flush(first)), EIO);
        }
        assert_eq!(number(fs.write(first, 0, b"x", false)), EIO);
        fs.flush(first).unwrap();
        assert_eq!(number(fs.flush(second)), EIO);
        fs.release(first);
        fs.release(second);
        assert_eq!(fs.statistics().errors_unreported, 0);
    }
}

#[test]
fn the_error_of_the_call_that_drains_is_told_by_it() {
    for form in FORMS {
        let fs = buffered(manual(form));
        let file = create(&fs, "file", OFlags::RDWR);
        let sync = open(&fs, file.ino, OFlags::WRONLY | OFlags::SYNC);
        for (number_, call) in [(EIO, 0), (ENOSPC, 1), (27, 2)] {
            fs.write(file, 0, &[1; 1000], false).unwrap();
            fs.inner().fail(500, number_, 1);
            let result = match call {
                0 => fs.fsync(file, false),
                1 => fs.flush(file),
                _ => fs.write(sync, 0, b"x", false).map(drop),
            };
            assert_eq!(number(result), number_);
            if call > 0 {
                assert_eq!(number(fs.fsync(file, false)), number_);
            }
            fs.flush(file).unwrap();
            _ = fs.fsync(sync, false);
        }
        assert_eq!(fs.statistics().bytes_lost, 1500);
    }
}

/// Invariant W7 of `docs/design/bfuse.md`.
#[test]
fn what_is_behind_a_failure_is_still_written() {
    for form in FORMS {
        let fs = buffered(manual(form));
        let file = create(&fs, "file", OFlags::RDWR);
        fs.write(file, 0, &[1; 100], false).unwrap();
        fs.write(file, 1000, &[2; 100], false).unwrap();
        fs.inner().fail(0, EIO, 1);
        assert_eq!(number(fs.fsync(file, false)), EIO);
        let content = fs.inner().content(file.ino);
        assert_eq!((content.len(), content[0], content[1000]), (1100, 0, 2));
    }
}

#[test]
fn appending_goes_on_at_the_end_that_is_left() {
    for form in FORMS {
        let fs = buffered(manual(form));
        let file = create(&fs, "file", APPEND);
        fs.write(file, 0, &[1; 100], false).unwrap();
        fs.inner().fail(50, ENOSPC, 1);
        assert_eq!(number(fs.fsync(file, false)), ENOSPC);
        fs.write(file, 0, &[2; 10], false).unwrap();
        fs.flush(file).unwrap();
        let expected = [vec![1; 50], vec![2; 10]].concat();
        assert_eq!(fs.inner().content(file.ino), expected);
    }
}

/// The file is closed while its data are written for both.
#[test]
fn whoever_has_all_written_is_told_of_what_is_closed_meanwhile() {
    const TURN: Duration = Duration::from_millis(5);
    for form in FORMS {
        let fs = &buffered(manual(form));
        fs.name_by(|_, _| {
            thread::sleep(TURN);
            None
        });
        for round in 0..10 {
            let file = create(fs, &round.to_string(), OFlags::WRONLY);
            fs.write(file, 0, b"data", false).unwrap();
            let entered = || fs.inner().entered.load(Ordering::SeqCst);
            let before = entered();
            fs.inner().fail(0, EIO, 1);
            fs.inner().gate(true);
            thread::scope(|scope| {
                scope.spawn(|| fs.release(file));
                wait_until(|| entered() > before);
                let told = scope.spawn(|| fs.write_all());
                // Most likely it waits by then.
                thread::sleep(TURN);
                fs.inner().gate(false);
                assert_eq!(told.join().unwrap().len(), 1, "{form:?}");
            });
        }
        assert!(fs.shutdown().is_empty());
    }
}

#[test]
fn errors_nobody_was_told_of_are_counted() {
    for form in FORMS {
        let (fs, first, second) = failed(form);
        fs.name_by(|_, file| Some(format!("file {}", file.ino.0).into()));
        fs.release(first);
        assert_eq!(fs.statistics().errors_unreported, 0, "one may still ask");
        fs.release(second);
        assert_eq!(fs.statistics().errors_unreported, 1);
        let fresh = create(&fs, "file", OFlags::RDWR);
        fs.fsync(fresh, false).unwrap();
        let unreported = fs.shutdown();
        assert_eq!(unreported.len(), 1);
        assert_eq!(unreported[0].ino, first.ino);
        let path = format!("file {}", first.ino.0);
        assert_eq!(unreported[0].path.as_deref(), Some(path.as_bytes()));
        assert!(matches!(&unreported[0].error, FsError::Host(e) if e.raw_os_error() == Some(EIO)));
    }
}

#[test]
fn shutting_down_returns_errors() {
    for form in FORMS {
        let fs = buffered(untimed(form));
        let file = create(&fs, "file", OFlags::RDWR);
        fs.write(file, 0, b"lost", false).unwrap();
        fs.inner().fail(0, EIO, 1);
        assert_eq!(fs.shutdown().len(), 1);
        assert_eq!(fs.statistics().errors_unreported, 1);
        assert!(fs.shutdown().is_empty());
    }
}

/// Invariant W8 of `docs/design/bfuse.md`.
#[test]
fn a_full_file_system_is_told_at_the_write_itself() {
    for form in FORMS {
        for options in [manual(form), untimed(form)] {
            let fs = buffered(options);
            let free = 3 << 20;
            fs.inner().free.store(free, Ordering::SeqCst);
            let file = create(&fs, "file", OFlags::WRONLY);
            let mut written = 0;
            let error = loop {
                match fs.write(file, written, &[1; 64 << 10], false) {
                    Ok(count) => written += count as u64,
                    Err(error) => break error,
                }
            };
            assert_eq!(number::<()>(Err(error)), ENOSPC);
            assert_eq!(written, free, "all that fits was taken");
            let counts = fs.statistics();
            assert_eq!(counts.errors, 0, "nothing that was accepted is lost");
            assert!(counts.writes_through < counts.writes_in);
            fs.flush(file).unwrap();
            assert_eq!(fs.inner().content(file.ino).len() as u64, free);
        }
    }
}

#[test]
fn scattered_bytes_are_counted_in_blocks() {
    for form in FORMS {
        let fs = buffered(manual(form));
        // The margin, and a block more.
        fs.inner().free.store((1 << 20) + 8192, Ordering::SeqCst);
        let file = create(&fs, "file", OFlags::WRONLY);
        fs.write(file, 0, b"x", false).unwrap();
        fs.write(file, 1 << 19, b"x", false).unwrap();
        assert_eq!(fs.statistics().writes_through, 1);
    }
}

/// Invariant W10 of `docs/design/bfuse.md`.
#[test]
fn a_panic_below_leaves_nobody_waiting() {
    for form in FORMS {
        for options in [manual(form), untimed(form)] {
            let fs = buffered(options);
            let file = create(&fs, "file", OFlags::RDWR);
            fs.inner().panics.store(true, Ordering::SeqCst);
            fs.write(file, 0, &[1; 1000], false).unwrap();
            assert!(matches!(fs.fsync(file, false), Err(FsError::Io(_))));
            // Through a hold, where it passes to the caller.
            let sync = open(&fs, file.ino, OFlags::WRONLY | OFlags::SYNC);
            thread::scope(|scope| {
                let call = || fs.write(sync, 0, b"x", false);
                assert!(scope.spawn(call).join().is_err());
            });
            // Many of them, so that writers need the memory back.
            for i in 0..64 {
                _ = fs.write(file, i << 16, &[1; 64 << 10], false);
            }
            _ = fs.fsync(file, false);
            fs.inner().panics.store(false, Ordering::SeqCst);
            fs.write(file, 0, b"fine", false).unwrap();
            fs.fsync(file, false).unwrap();
            assert_eq!(fs.inner().content(file.ino), b"fine");
            let counts = fs.statistics();
            assert_eq!(counts.buffered_bytes, 0);
        }
    }
}

#[test]
fn the_thread_survives_a_panic() {
    let fs = buffered(untimed(Form::Queues));
    let file = create(&fs, "file", OFlags::RDWR);
    fs.inner().panics.store(true, Ordering::SeqCst);
    for i in 0..8 {
        fs.write(file, i << 16, &[1; 64 << 10], false).unwrap();
    }
    wait_until(|| fs.statistics().buffered_bytes == 0);
    fs.inner().panics.store(false, Ordering::SeqCst);
    assert!(fs.fsync(file, false).is_err());
    for i in 0..8 {
        fs.write(file, i << 16, &[2; 64 << 10], false).unwrap();
    }
    wait_until(|| fs.statistics().buffered_bytes == 0);
    fs.flush(file).unwrap();
}
