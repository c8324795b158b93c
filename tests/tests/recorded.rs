//! Tests whether recorded writes are read in full, and what comes of them is what the applications had.

use std::fs;
use std::io;
use std::process::Command;
use std::sync::Arc;

use anteros_core::{Caller, Counted, MemoryDevice, Timestamp, WritableDevice};
use anteros_log::{Log, Options, Shape, mkfs};
use anteros_tests::judge::has_program;
use anteros_tests::mount::run;
use anteros_tests::recorded::{
    self, Action, Content, HostDirectory, Record, Replay, Replayed, Target, Trace, Tree, Writer,
    replay,
};

const NAMES: [&str; 3] = ["app_DELETE", "app_WAL", "chromium"];

fn open(name: &str) -> Trace {
    Trace::open(recorded::path(name)).unwrap()
}

fn scratch() -> tempfile::TempDir {
    tempfile::tempdir_in(anteros_tests::scratch()).unwrap()
}

#[test]
fn a_replay_leaves_what_was_recorded() {
    // As the description of the traces counts them.
    let counts = [(48_054, 6_976, 1_744), (20_533, 1_792, 6), (7_011, 463, 44)];
    for (name, (writes, syncs, directory_syncs)) in NAMES.into_iter().zip(counts) {
        let dir = scratch();
        let done = replay(open(name), dir.path()).unwrap();
        assert_eq!(
            (done.writes, done.syncs + done.directory_syncs),
            (writes, syncs),
            "{name}"
        );
        assert_eq!(done.directory_syncs, directory_syncs, "{name}");
        let count = open(name).count() as u64;
        let Replayed {
            others, skipped, ..
        } = done;
        assert_eq!(writes + syncs + others + skipped, count, "{name}");
        let found = HostDirectory::new(dir.path()).content().unwrap();
        let expected = Content::of(open(name)).unwrap();
        assert_eq!(expected.difference(&found), None, "{name}");
    }
}

#[test]
fn sqlite_finds_its_databases_whole() {
    if !has_program("sqlite3") {
        return;
    }
    for name in ["app_DELETE", "app_WAL"] {
        let dir = scratch();
        replay(open(name), dir.path()).unwrap();
        for database in ["mmssms.db", "feed_cache.db", "settings.db"] {
            let path = dir.path().join("d0").join(database);
            // Its index into the log is in memory that was mapped; SQLite makes it again.
            let _ = fs::remove_file(path.with_extension("db-shm"));
            let said = run(Command::new("sqlite3")
                .arg(&path)
                .arg("pragma integrity_check"))
            .unwrap();
            assert_eq!(said, "ok\n", "{name}: {database}");
            let tables = run(Command::new("sqlite3").arg(&path).arg(".tables")).unwrap();
            assert!(!tables.trim().is_empty(), "{name}: {database} is empty");
        }
    }
}

#[test]
fn a_trace_that_is_cut_off_is_not_taken_for_a_whole_one() {
    let whole = fs::read(recorded::path("chromium")).unwrap();
    let file = tempfile::NamedTempFile::new().unwrap();
    for len in [0, 10, whole.len() / 2, whole.len() - 1] {
        fs::write(file.path(), &whole[..len]).unwrap();
        let mut records = Trace::open(file.path()).unwrap();
        let error = records.find_map(Result::err).unwrap();
        assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof, "{len}: {error}");
        let expected = format!("{}: record ", file.path().display());
        assert!(error.to_string().starts_with(&expected), "{error}");
        assert!(records.next().is_none());
    }
    let mut broken = whole;
    broken[100_000] ^= 1;
    fs::write(file.path(), broken).unwrap();
    assert!(
        Trace::open(file.path())
            .unwrap()
            .any(|record| record.is_err())
    );
}

/// One of each kind of record.
fn all_kinds() -> Vec<Record> {
    let data = b"as it was".to_vec();
    let from = |from: &str| Action::Rename { from: from.into() };
    let actions = [
        ("d0/a", Action::Create),
        ("d0/a", Action::Write { offset: 5, data }),
        ("d0/a", Action::Fsync),
        ("d0/b", from("d0/a")),
        ("d1/c", from("d0/b")),
        ("d1", Action::SyncDirectory),
        (
            "d1/c",
            Action::Allocate {
                offset: 10,
                len: 90,
            },
        ),
        ("d1/c", Action::Fdatasync),
        ("d1/c", Action::Truncate { size: 50 }),
        ("d1/gone", Action::Create),
        ("d1/gone", Action::Unlink),
        ("d1/empty", Action::Create),
    ];
    let record = |(index, (path, action)): (usize, (&str, Action))| Record {
        micros: index as u64,
        path: path.into(),
        action,
    };
    actions.into_iter().enumerate().map(record).collect()
}

fn written(records: &[Record]) -> tempfile::NamedTempFile {
    let file = tempfile::NamedTempFile::new().unwrap();
    let mut writer = Writer::new(file.reopen().unwrap()).unwrap();
    for record in records {
        writer.write(record).unwrap();
    }
    writer.finish().unwrap();
    file
}

#[test]
fn what_is_written_is_read() {
    let records = all_kinds();
    let file = written(&records);
    let read: Vec<Record> = Trace::open(file.path())
        .unwrap()
        .map(Result::unwrap)
        .collect();
    assert_eq!(read, records);
    let rewritten: Vec<Record> = open("app_WAL").map(Result::unwrap).collect();
    let file = written(&rewritten);
    let mut again = Trace::open(file.path()).unwrap();
    assert!(
        rewritten
            .iter()
            .all(|one| again.next().unwrap().unwrap() == *one)
    );
    assert!(again.next().is_none());
}

#[test]
fn paths_that_lead_elsewhere_are_refused() {
    let record = |path: &str, action| Record {
        micros: 0,
        path: path.into(),
        action,
    };
    let from = |from: &str| Action::Rename { from: from.into() };
    for bad in [
        record("d0/../x", Action::Create),
        record("d0", Action::Create),
        record("..", Action::SyncDirectory),
        record("d0/x", Action::SyncDirectory),
        record("d0/x", from("../x")),
        record("d0/x", from("x")),
    ] {
        let file = written(std::slice::from_ref(&bad));
        let error = Trace::open(file.path()).unwrap().next().unwrap();
        assert_eq!(
            error.unwrap_err().kind(),
            io::ErrorKind::InvalidData,
            "{bad:?}"
        );
    }
}

fn clock() -> Timestamp {
    Timestamp { secs: 1, nanos: 0 }
}

/// On a log without a mount, as in a directory; and what was closed is there when it is opened again.
#[test]
fn a_log_has_what_was_recorded() {
    let kinds = written(&all_kinds());
    let chromium = recorded::path("chromium");
    for trace in [kinds.path(), &chromium] {
        let device = Arc::new(Counted::new(MemoryDevice::new(vec![0; 64 << 20])));
        let disk: Arc<dyn WritableDevice> = device.clone();
        let (shape, options) = (Shape::default(), Options::new(clock));
        mkfs(&disk, &shape, Caller::default(), &options).unwrap();
        let log = Log::open(disk.clone(), Options::new(clock)).unwrap();
        let mut replay = Replay::onto(Tree::new(&log));
        for record in Trace::open(trace).unwrap() {
            replay.step(&record.unwrap()).unwrap();
        }
        drop(replay.end());
        log.close().unwrap();
        drop(log);
        assert!(device.counts().written_bytes > 0);
        let log = Log::open(disk, Options::new(clock)).unwrap();
        let found = Tree::new(&log).content().unwrap();
        let expected = Content::of(Trace::open(trace).unwrap()).unwrap();
        assert_eq!(expected.difference(&found), None, "{}", trace.display());
    }
}
