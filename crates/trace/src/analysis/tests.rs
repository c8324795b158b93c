use super::*;
use crate::mode;
use crate::report::Class;

const NAMES: [&str; 3] = ["/first", "/second", "/third"];

/// An access that comes `at` so many microseconds and takes 3.
fn access(at: u64, operation: Operation, file: u64, offset: u64, len: u64) -> Access {
    Access {
        at: Duration::from_micros(at),
        took: Duration::from_micros(3),
        operation,
        file,
        pid: 10 + file as u32,
        offset,
        len,
        modes: 0,
        error: 0,
    }
}

fn report(accesses: &[Access]) -> Report {
    let mut analysis = Analysis::default();
    for (number, path) in (0..).zip(NAMES) {
        analysis.take(Item::File {
            number,
            ino: 100 + number,
            path: path.as_bytes(),
        });
    }
    for access in accesses {
        analysis.take(Item::Access(*access));
    }
    analysis.report()
}

use Operation::{Fsync, Read, Write};

#[test]
fn an_access_is_sequential_where_the_last_of_its_kind_ended() {
    let report = report(&[
        access(1, Write, 0, 0, 100),
        access(2, Write, 0, 100, 100),
        // Another file, another kind.
        access(3, Write, 1, 200, 100),
        access(4, Read, 0, 0, 50),
        access(5, Write, 0, 200, 100),
        access(6, Read, 0, 50, 50),
        // Over again, and with a gap.
        access(7, Write, 0, 200, 100),
        access(8, Write, 0, 301, 1),
    ]);
    assert_eq!(
        (report.writes.tally.sequential, report.writes.tally.count),
        (3, 6)
    );
    assert_eq!(
        (report.reads.tally.sequential, report.reads.tally.count),
        (2, 2)
    );
    let first = &report.files[0];
    assert_eq!(first.path, b"/first");
    assert_eq!(first.usage.writes.sequential, 3);
    assert_eq!(report.files[1].usage.writes.sequential, 0);
}

#[test]
fn accesses_are_looked_at_in_the_order_in_which_they_came() {
    let mut accesses: Vec<_> = (0..1000)
        .map(|n| access(n, Read, 0, n * 4096, 4096))
        .collect();
    accesses.reverse();
    let report = report(&accesses);
    assert_eq!(report.reads.tally.sequential, 1000);
    assert_eq!(report.lasted, Duration::from_micros(999 + 3));
}

#[test]
fn what_is_synced_before_anything_else_is_not_buffered() {
    let opened = |modes, access| Access { modes, ..access };
    let report = report(&[
        access(1, Write, 0, 0, 100),
        access(2, Write, 0, 100, 100),
        // Another file's is none of its business.
        access(3, Fsync, 1, 0, 0),
        access(4, Fsync, 0, 0, 0),
        access(5, Fsync, 0, 0, 0),
        access(6, Write, 0, 200, 100),
        access(7, Read, 0, 0, 100),
        access(8, Fsync, 0, 0, 0),
        opened(mode::SYNC, access(9, Write, 1, 0, 10)),
        access(10, Fsync, 1, 0, 0),
        opened(mode::DIRECT, access(11, Write, 1, 10, 10)),
        opened(mode::SYNC, access(12, Read, 1, 0, 10)),
        opened(mode::DIRECT, access(13, Read, 1, 10, 10)),
    ]);
    assert_eq!(
        (
            report.writes.tally.synchronous,
            report.writes.tally.buffered()
        ),
        (3, 2)
    );
    assert_eq!(
        (
            report.reads.tally.synchronous,
            report.reads.tally.buffered()
        ),
        (1, 2)
    );
    assert_eq!(report.fsyncs.count, 5);
    let first = report.files[0].usage;
    assert_eq!((first.writes.synchronous, first.fsyncs), (1, 3));
    let process = &report.processes[0];
    assert_eq!(
        (process.pid, process.usage.writes.synchronous),
        (Some(10), 1)
    );
}

#[test]
fn sizes_are_counted_by_number_and_by_bytes() {
    let report = report(&[
        access(1, Write, 0, 0, 4096),
        access(2, Write, 0, 4096, 4097),
        access(3, Write, 0, 9000, 512 << 10),
        access(4, Write, 0, 0, 1),
    ]);
    let class = |count, bytes| Class { count, bytes };
    let mut wanted = [Class::default(); 8];
    wanted[0] = class(2, 4097);
    wanted[1] = class(1, 4097);
    wanted[7] = class(1, 512 << 10);
    assert_eq!(report.writes.sizes, wanted);
    assert_eq!(report.writes.tally.bytes, 4097 + 4097 + (512 << 10));
    let within = report.writes.latencies.within(1.0);
    assert_eq!(within, Some(Duration::from_micros(4)));
}

#[test]
fn what_failed_is_counted_apart() {
    let failed = |access| Access {
        error: 28,
        ..access
    };
    let report = report(&[
        failed(access(1, Write, 0, 0, 100)),
        access(2, Write, 0, 0, 100),
        failed(access(3, Fsync, 0, 0, 0)),
        failed(access(4, Read, 0, 0, 100)),
    ]);
    assert_eq!((report.writes.failed, report.writes.tally.count), (1, 1));
    assert_eq!(
        (
            report.writes.tally.sequential,
            report.writes.tally.synchronous
        ),
        (1, 0)
    );
    assert_eq!((report.fsyncs.failed, report.fsyncs.count), (1, 0));
    assert_eq!((report.reads.failed, report.reads.tally.count), (1, 0));
    assert_eq!(report.accesses, 4);
}

#[test]
fn files_of_one_path_are_one_and_keep_their_last() {
    let mut analysis = Analysis::default();
    let name = |number, path: &'static [u8]| Item::File {
        number,
        ino: 100 + number,
        path,
    };
    for item in [
        name(0, b"/tmp"),
        Item::Access(access(1, Write, 0, 0, 10)),
        name(0, b"/file"),
        name(1, b"/file"),
        Item::Access(access(2, Write, 1, 0, 5)),
        name(2, b"/other"),
        name(3, b""),
        Item::Access(access(3, Write, 3, 0, 7)),
        // Removed: its name is no longer known.
        name(1, b""),
        Item::Dropped(3),
        Item::Dropped(4),
    ] {
        analysis.take(item);
    }
    let report = analysis.report();
    let told = report.files.iter().map(|file| {
        let path = String::from_utf8_lossy(&file.path).into_owned();
        (path, file.ino, file.usage.writes.count, file.usage.bytes())
    });
    assert_eq!(
        told.collect::<Vec<_>>(),
        [
            ("/file".to_owned(), Some(101), 2, 15),
            (String::new(), Some(103), 1, 7)
        ]
    );
    assert_eq!(report.dropped, 7);
}
