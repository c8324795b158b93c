//! Tests what others see of data that is buffered.
//!
//! Invariant W1 of `docs/design/bfuse.md`.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use anteros_buffer::{Buffered, Form};
use anteros_core::{
    Changes, FileKind, FilePosition, FileSystem, OpenFile, Seek, SetTime, Timestamp, Writable,
};
use rustix::fs::OFlags;

use crate::model::{APPEND, Model, ROOT, create, open};
use crate::{FORMS, buffered, manual};

/// Writes to a file through a buffer, makes sure that it is still there, and calls `look`.
fn with_buffered(look: impl Fn(&Buffered<Model>, OpenFile)) {
    for form in FORMS {
        let fs = buffered(manual(form));
        let file = create(&fs, "file", OFlags::RDWR);
        fs.write(file, 0, b"0123456789", false).unwrap();
        assert_eq!(fs.inner().write_count(), 0);
        look(&fs, file);
        assert_eq!(fs.inner().content(file.ino), b"0123456789");
    }
}

#[test]
fn readers_see_the_data() {
    with_buffered(|fs, file| {
        let mut buf = [0; 20];
        assert_eq!(fs.read_open(file, 2, &mut buf).unwrap(), 8);
        assert_eq!(&buf[..8], b"23456789");
    });
    with_buffered(|fs, file| {
        let mut buf = [0; 20];
        assert_eq!(fs.read(file.ino, 0, &mut buf).unwrap(), 10);
    });
    with_buffered(|fs, file| {
        let other = open(fs, file.ino, OFlags::RDONLY);
        let mut buf = [0; 20];
        assert_eq!(fs.read_open(other, 0, &mut buf).unwrap(), 10);
        assert_eq!(fs.statistics().flushes.read, 1);
    });
    with_buffered(|fs, file| assert_eq!(fs.seek(file.ino, 0, Seek::Hole).unwrap(), 10));
    with_buffered(|fs, file| assert_eq!(fs.seek_open(file, 3, Seek::Data).unwrap(), 3));
}

#[test]
fn attributes_are_those_after_the_write() {
    with_buffered(|fs, file| {
        let before = fs.inner().getattr(file.ino).unwrap();
        let attr = fs.getattr(file.ino).unwrap();
        assert_eq!((attr.size, attr.blocks), (10, 1));
        assert!(attr.mtime > before.mtime);
        fs.flush(file).unwrap();
        assert_eq!(fs.getattr(file.ino).unwrap().mtime, attr.mtime, "stays");
        assert_eq!(fs.statistics().flushes.attributes, 1);
    });
    with_buffered(|fs, file| {
        let known = fs.inner().known(file.ino);
        assert_eq!(fs.lookup(ROOT, b"file").unwrap().size, 10);
        assert_eq!(fs.inner().known(file.ino), known + 1);
    });
    with_buffered(|fs, file| {
        let known = fs.inner().known(file.ino);
        assert_eq!(fs.lookup_listed(ROOT, b"file").unwrap().size, 10);
        assert_eq!(fs.inner().known(file.ino), known + 1);
    });
    with_buffered(|fs, file| {
        let attr = fs.getattr_listed(file.ino, FileKind::Regular).unwrap();
        assert_eq!(attr.size, 10);
    });
    with_buffered(|fs, file| {
        assert_eq!(fs.link(file.ino, ROOT, b"link").unwrap().size, 10);
    });
    with_buffered(|fs, file| {
        assert_eq!(create(fs, "file", OFlags::RDONLY).ino, file.ino);
    });
}

/// Invariant W6 of `docs/design/bfuse.md`.
#[test]
fn syncing_and_closing_write_first() {
    with_buffered(|fs, file| {
        fs.fsync(file, true).unwrap();
        assert_eq!(fs.inner().fsyncs.load(Ordering::SeqCst), 1);
        assert_eq!(fs.statistics().flushes.sync, 1);
    });
    with_buffered(|fs, file| fs.flush(file).unwrap());
    with_buffered(|fs, file| fs.release(file));
    with_buffered(|fs, file| {
        // Also if another one is closed than the one that wrote.
        let other = open(fs, file.ino, OFlags::RDONLY);
        fs.flush(other).unwrap();
        assert_eq!(fs.statistics().flushes.close, 1);
    });
}

#[test]
fn names_and_attributes_change_after_the_data_is_there() {
    with_buffered(|fs, _| {
        fs.rename((ROOT, b"file"), (ROOT, b"other"), 0).unwrap();
    });
    with_buffered(|fs, file| {
        let known = fs.inner().known(file.ino);
        let other = create(fs, "other", OFlags::RDWR);
        fs.release(other);
        fs.rename((ROOT, b"other"), (ROOT, b"file"), 0).unwrap();
        assert_eq!(fs.inner().known(file.ino), known);
    });
    with_buffered(|fs, file| {
        fs.setxattr(file.ino, b"user.a", b"b", 0).unwrap();
        fs.write(file, 0, b"0", false).unwrap();
        fs.removexattr(file.ino, b"user.a").unwrap();
    });
    with_buffered(|fs, file| {
        let changes = Changes {
            mtime: Some(SetTime::At(Timestamp { secs: 77, nanos: 0 })),
            ..Changes::default()
        };
        fs.change(file.ino, Some(file), &changes).unwrap();
        fs.flush(file).unwrap();
        assert_eq!(fs.getattr(file.ino).unwrap().mtime.secs, 77);
    });
    with_buffered(|fs, file| fs.allocate(file, 0, 100, 1).unwrap());
}

#[test]
fn truncating_cuts_what_was_buffered() {
    let cut = |size| Changes {
        size: Some(size),
        ..Changes::default()
    };
    for form in FORMS {
        let fs = buffered(manual(form));
        let file = create(&fs, "file", OFlags::RDWR);
        fs.write(file, 0, b"0123456789", false).unwrap();
        assert_eq!(fs.change(file.ino, None, &cut(4)).unwrap().size, 4);
        fs.write(file, 6, b"67", false).unwrap();
        let other = open(&fs, file.ino, OFlags::RDWR | OFlags::TRUNC);
        assert_eq!(fs.getattr(file.ino).unwrap().size, 0);
        fs.write(other, 0, b"abcdef", false).unwrap();
        assert_eq!(
            create(&fs, "file", OFlags::RDWR | OFlags::TRUNC).ino,
            file.ino
        );
        fs.write(other, 1, b"x", false).unwrap();
        fs.flush(other).unwrap();
        assert_eq!(fs.inner().content(file.ino), b"\0x", "{form:?}");
    }
}

#[test]
fn copies_have_the_data_of_both() {
    for form in FORMS {
        let fs = buffered(manual(form));
        let (from, to) = (
            create(&fs, "from", OFlags::RDWR),
            create(&fs, "to", OFlags::RDWR),
        );
        fs.write(from, 0, b"abcdef", false).unwrap();
        fs.write(to, 0, b"012345", false).unwrap();
        let at = |file, offset| FilePosition { file, offset };
        assert_eq!(fs.copy_range(at(from, 1), at(to, 2), 2).unwrap(), 2);
        fs.write(to, 5, b"!", false).unwrap();
        assert_eq!(fs.copy_range(at(to, 4), at(to, 0), 2).unwrap(), 2);
        assert_eq!(fs.inner().content(to.ino), b"4!bc4!");
    }
}

#[test]
fn appenders_do_not_lose_each_others_data() {
    for form in FORMS {
        let fs = buffered(manual(form));
        let first = create(&fs, "file", APPEND);
        let second = open(&fs, first.ino, APPEND);
        let plain = open(&fs, first.ino, OFlags::WRONLY);
        let mut expected = Vec::new();
        for i in 0..200_u8 {
            let file = if i % 3 == 0 { second } else { first };
            // The caller's idea of the end is out of date.
            fs.write(file, 0, &[i; 100], false).unwrap();
            expected.extend([i; 100]);
            if i % 50 == 20 {
                fs.write(plain, expected.len() as u64, b"plain", false)
                    .unwrap();
                expected.extend(b"plain");
            }
        }
        // Entries run out: what is appended and what is not do not mix.
        assert!(fs.inner().write_count() == 0 || form == Form::Entries);
        assert!(fs.inner().stats.load(Ordering::SeqCst) <= 1, "asked once");
        fs.flush(first).unwrap();
        assert!(fs.inner().content(first.ino) == expected, "{form:?}");
    }
}

#[test]
fn appended_data_goes_to_the_end_also_if_others_moved_it() {
    for form in FORMS {
        let fs = buffered(manual(form));
        let file = create(&fs, "file", APPEND);
        fs.write(file, 0, b"one", false).unwrap();
        fs.inner().grow_outside(file.ino, b"outside");
        fs.write(file, 0, b"two", false).unwrap();
        fs.flush(file).unwrap();
        assert_eq!(fs.inner().content(file.ino), b"outsideonetwo");
    }
}

#[test]
fn synchronous_and_direct_writes_are_not_buffered() {
    for form in FORMS {
        for flag in [OFlags::SYNC, OFlags::DSYNC, OFlags::DIRECT] {
            let fs = buffered(manual(form));
            let plain = create(&fs, "file", OFlags::WRONLY);
            let file = open(&fs, plain.ino, OFlags::WRONLY | flag);
            fs.write(plain, 0, b"01234", false).unwrap();
            assert_eq!(fs.write(file, 3, b"x", false).unwrap(), 1);
            assert_eq!(fs.inner().content(file.ino), b"012x4", "in order");
            assert_eq!(fs.statistics().writes_through, 1);
            let appender = open(&fs, plain.ino, APPEND | flag);
            fs.write(appender, 0, b"y", false).unwrap();
            assert_eq!(fs.inner().content(file.ino), b"012x4y");
        }
    }
}

/// Invariant W9 of `docs/design/bfuse.md`.
#[test]
fn privileges_go_with_the_data() {
    for form in FORMS {
        let fs = buffered(manual(form));
        let file = create(&fs, "file", OFlags::WRONLY);
        let set = Changes {
            perm: Some(0o4755),
            ..Changes::default()
        };
        fs.change(file.ino, None, &set).unwrap();
        fs.setxattr(file.ino, b"security.capability", b"x", 0)
            .unwrap();
        fs.write(file, 0, b"01", false).unwrap();
        assert!(fs.getxattr(file.ino, b"security.capability").is_ok());
        assert_eq!(fs.inner().write_count(), 0, "nothing drops privileges yet");
        fs.write(file, 2, b"23", true).unwrap();
        assert_eq!(fs.inner().write_count(), 0);
        assert!(fs.getxattr(file.ino, b"security.capability").is_err());
        assert_eq!(fs.getattr(file.ino).unwrap().perm, 0o755);
        // What is set after the write stays.
        fs.write(file, 4, b"45", true).unwrap();
        fs.change(file.ino, None, &set).unwrap();
        fs.write(file, 6, b"67", false).unwrap();
        fs.flush(file).unwrap();
        assert_eq!(fs.inner().perm(file.ino), 0o4755);
        assert_eq!(fs.inner().content(file.ino), b"01234567");
    }
}

#[test]
fn unlinked_files_are_written() {
    with_buffered(|fs, file| {
        fs.unlink(ROOT, b"file").unwrap();
        assert_eq!(fs.getattr(file.ino).unwrap().size, 10);
        fs.release(file);
    });
}

#[test]
fn shutting_down_writes_everything() {
    for form in FORMS {
        for options in [manual(form), crate::untimed(form)] {
            let fs = buffered(options);
            let file = create(&fs, "file", OFlags::WRONLY);
            fs.write(file, 0, b"0123", false).unwrap();
            assert!(fs.shutdown().is_empty());
            assert_eq!(fs.inner().content(file.ino), b"0123");
            // It goes on, without a buffer.
            fs.write(file, 4, b"4", false).unwrap();
            assert_eq!(fs.inner().content(file.ino), b"01234");
            assert!(fs.shutdown().is_empty());
        }
    }
}

#[test]
fn dropping_it_writes_everything() {
    for form in FORMS {
        for options in [manual(form), crate::untimed(form)] {
            let fs = buffered(options);
            let writes = Arc::clone(&fs.inner().writes);
            for name in ["a", "b"] {
                let file = create(&fs, name, OFlags::WRONLY);
                fs.write(file, 0, b"0123", false).unwrap();
            }
            assert_eq!(writes.load(Ordering::SeqCst), 0);
            drop(fs);
            assert_eq!(writes.load(Ordering::SeqCst), 2);
        }
    }
}

#[test]
fn nothing_is_given_away_that_goes_past_the_buffer() {
    with_buffered(|fs, file| {
        assert!(fs.backing(file).is_none());
        assert!(!fs.has_memory_files());
        assert_eq!(fs.trusted_for(), Duration::from_secs(1));
        assert!(fs.writable().is_some());
        fs.flush(file).unwrap();
    });
}

#[test]
fn short_writes_are_continued() {
    for form in FORMS {
        for flags in [OFlags::WRONLY, APPEND] {
            let fs = buffered(manual(form));
            fs.inner().short.store(true, Ordering::SeqCst);
            let file = create(&fs, "file", flags);
            let data: Vec<u8> = (0..5500_u32).map(|i| i as u8).collect();
            fs.write(file, 0, &data, false).unwrap();
            fs.flush(file).unwrap();
            assert!(fs.inner().content(file.ino) == data);
            assert_eq!(fs.inner().write_count(), 6);
        }
    }
}

#[test]
fn files_that_are_closed_leave_nothing_behind() {
    let fs = buffered(manual(Form::Queues));
    for _ in 0..1000 {
        let file = create(&fs, "file", OFlags::WRONLY);
        fs.write(file, 0, b"0123", false).unwrap();
        fs.flush(file).unwrap();
        fs.release(file);
        // The name of an open file that is gone means nothing.
        assert!(fs.write(file, 0, b"x", false).is_err());
    }
    assert_eq!(fs.statistics().memory_bytes, 4096 + 4096);
}
