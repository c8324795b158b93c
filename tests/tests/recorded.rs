//! Whether recorded writes are read in full, and what comes of them is what the applications had.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::Path;
use std::process::Command;

use anteros_tests::judge::has_program;
use anteros_tests::mount::run;
use anteros_tests::recorded::{self, Action, Replayed, Trace, replay};

const NAMES: [&str; 3] = ["app_DELETE", "app_WAL", "chromium"];

fn open(name: &str) -> Trace {
    Trace::open(recorded::path(name)).unwrap()
}

fn scratch() -> tempfile::TempDir {
    tempfile::tempdir_in(anteros_tests::scratch()).unwrap()
}

/// All files below a directory.
fn files(root: &Path) -> BTreeMap<String, Vec<u8>> {
    let mut files = BTreeMap::new();
    for directory in fs::read_dir(root).unwrap() {
        for file in fs::read_dir(directory.unwrap().path()).unwrap() {
            let path = file.unwrap().path();
            let name = path.strip_prefix(root).unwrap().display().to_string();
            files.insert(name, fs::read(path).unwrap());
        }
    }
    files
}

/// What a trace leaves behind, by the plainest means.
fn plainly(name: &str) -> BTreeMap<String, Vec<u8>> {
    let mut files: BTreeMap<String, Vec<u8>> = BTreeMap::new();
    for record in open(name) {
        let record = record.unwrap();
        match record.action {
            Action::Write { offset, data } => {
                let file = files.entry(record.path).or_default();
                let end = offset as usize + data.len();
                file.resize(file.len().max(end), 0);
                file[offset as usize..end].copy_from_slice(&data);
            }
            Action::Truncate { size } => {
                files
                    .entry(record.path)
                    .or_default()
                    .resize(size as usize, 0);
            }
            Action::Unlink => drop(files.remove(&record.path)),
            Action::Rename { from } => {
                let file = files.remove(&from).unwrap();
                files.insert(record.path, file);
            }
            Action::Fsync | Action::Fdatasync => {}
        }
    }
    files
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
        assert!(files(dir.path()) == plainly(name), "{name}");
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
