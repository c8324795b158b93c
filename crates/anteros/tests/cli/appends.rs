//! Files of a mirror that many open, append to and close again and again.

use std::fs::{self, OpenOptions};
use std::io::Write;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use anteros_tests::judge;
use tempfile::TempDir;

use crate::mirror::{Mirror, WAYS};
use crate::wait_until;

const ROUNDS: usize = 5;
const OPENED: usize = 20;
const WRITES: usize = 3;

fn append(path: &Path, piece: &[u8]) {
    for _ in 0..OPENED {
        let mut file = OpenOptions::new().append(true).create(true).open(path);
        for _ in 0..WRITES {
            file.as_mut().unwrap().write_all(piece).unwrap();
        }
    }
}

/// The time that the kernel gives a file is not always that of the last write to it: so it must not seem to be changed
/// by others, who have nothing to do with it, and be taken for another file than the one that somebody is writing to.
#[test]
fn what_is_appended_between_opening_and_closing_is_there() {
    if !judge::has_fuse() {
        return;
    }
    for way in WAYS {
        let source = TempDir::new().unwrap();
        let mirror = Mirror::new(source.path(), way, "--timeout 0");
        for round in 0..ROUNDS {
            let name = round.to_string();
            let path = mirror.path(&name);
            thread::scope(|scope| {
                for piece in [[b'a'; 100], [b'b'; 100], [b'c'; 100]] {
                    let path = &path;
                    scope.spawn(move || append(path, &piece));
                }
            });
            let text = fs::read(source.path().join(&name)).unwrap();
            assert_eq!(text.len(), 3 * OPENED * WRITES * 100, "{way}");
            let mut pieces = text.chunks(100);
            assert!(
                pieces.all(|piece| piece.iter().all(|byte| *byte == piece[0])),
                "{way}"
            );
        }
        mirror.unmount();
    }
}

const READS: usize = 40;

/// Tests that a file which others change all the time is read, and that the end of it is seen when they are done.
///
/// The kernel tells the daemon of a `close` after it has returned. Until then the file counts as open, and where the
/// kernel keeps the content of open files it keeps their size, too: so the end may be seen a moment later.
#[test]
fn what_grows_behind_the_mount_can_be_read() {
    if !judge::has_fuse() {
        return;
    }
    for way in WAYS {
        let source = TempDir::new().unwrap();
        let mirror = Mirror::new(source.path(), way, "--timeout 0");
        let behind = source.path().join("log");
        fs::write(&behind, "").unwrap();
        let is_done = AtomicBool::new(false);
        thread::scope(|scope| {
            scope.spawn(|| {
                let mut file = OpenOptions::new().append(true).open(&behind).unwrap();
                while !is_done.load(Ordering::Relaxed) {
                    file.write_all(b"line\n").unwrap();
                    thread::yield_now();
                }
            });
            let read = |_| fs::read(mirror.path("log")).map(drop);
            let failed = (0..READS).filter_map(|number| read(number).err()).next();
            is_done.store(true, Ordering::Relaxed);
            assert!(failed.is_none(), "{way}: {failed:?}");
        });
        let there = fs::read(&behind).unwrap();
        let seen = || fs::read(mirror.path("log")).unwrap();
        match way.looks_at_source() {
            true => assert!(seen() == there, "{way}"),
            false => wait_until(|| seen() == there),
        }
        mirror.unmount();
    }
}
