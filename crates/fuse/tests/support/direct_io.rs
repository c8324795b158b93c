//! Direct writes that a program does not wait for, by io_uring: this needs root, `/dev/fuse` and a kernel that lets
//! programs have rings.
#![allow(unsafe_code)]

use std::fs::OpenOptions;
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread;

use anteros_fuse::{MountOptions, Session};
use io_uring::{IoUring, opcode, types};
use rustix::fs::OFlags;
use tempfile::TempDir;

use crate::sink::Sink;
use crate::{judge, missing_judge};

const BLOCK: usize = 4096;

/// Writes that are under way at a time.
const DEPTH: usize = 8;

/// Writes as many blocks as a program may have under way, waits for all of them, and says how each ended.
fn write_at_once(ring: &mut IoUring, path: &Path, flags: OFlags) -> Vec<i32> {
    let mut options = OpenOptions::new();
    let file = options
        .write(true)
        .custom_flags((flags | OFlags::DIRECT).bits() as i32)
        .open(path)
        .unwrap();
    let buffer = vec![7_u8; 2 * BLOCK];
    let content = &buffer[buffer.as_ptr().align_offset(BLOCK)..][..BLOCK];
    for block in 0..DEPTH {
        let write = opcode::Write::new(types::Fd(file.as_raw_fd()), content.as_ptr(), BLOCK as u32);
        let write = write.offset((block * BLOCK) as u64).build();
        // SAFETY: file and content are there until all of them have ended, below.
        unsafe { ring.submission().push(&write) }.unwrap();
    }
    ring.submit_and_wait(DEPTH).unwrap();
    let ended: Vec<_> = ring.completion().map(|ended| ended.result()).collect();
    assert_eq!(ended.len(), DEPTH);
    ended
}

#[test]
fn what_is_written_asynchronously_is_durable_where_the_file_was_opened_so() {
    if !judge() {
        return;
    }
    let Ok(mut ring) = IoUring::new(DEPTH as u32) else {
        missing_judge("io_uring for programs");
        return;
    };
    let mut sink = Sink::default();
    sink.size = (DEPTH * BLOCK) as u64;
    let sink = Arc::new(sink);
    let dir = TempDir::new().unwrap();
    let session = Session::mount(sink.clone(), dir.path(), &MountOptions::default()).unwrap();
    let unmounter = session.unmounter();
    let server = thread::spawn(move || session.run());
    let path = dir.path().join("sink");
    let durable = |flags| {
        let ended = write_at_once(&mut ring, &path, flags);
        assert!(ended.iter().all(|&len| len == BLOCK as i32), "{ended:?}");
        let arrived = sink.arrivals.lock().unwrap().len();
        (arrived, sink.durable.load(Ordering::SeqCst))
    };
    let counts = [OFlags::empty(), OFlags::DSYNC, OFlags::SYNC].map(durable);
    unmounter.unmount().unwrap();
    server.join().unwrap().unwrap();
    assert_eq!(
        counts,
        [(DEPTH, 0), (2 * DEPTH, 2 * DEPTH), (3 * DEPTH, 3 * DEPTH)]
    );
}
