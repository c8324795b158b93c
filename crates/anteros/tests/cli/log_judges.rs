//! `anteros log` under the tests that others have written for theirs.

use std::fs;
use std::os::unix::fs::chown;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use anteros_tests::judge;
use anteros_tests::peers::sqlite_tests;

use crate::log::{mount, mounted, shop, unmount};
use crate::trees::stress;
use crate::{NOBODY, Workshop, run};

/// SQLite's tests that ask most of a file system, but for the longest: some half a minute.
const SQLITE_TESTS: [&str; 18] = [
    "backup.test",
    "exclusive.test",
    "io.test",
    "journal1.test",
    "journal2.test",
    "journal3.test",
    "lock.test",
    "lock2.test",
    "lock5.test",
    "mmap1.test",
    "nolock.test",
    "pager1.test",
    "superlock.test",
    "sync.test",
    "vacuum.test",
    "wal.test",
    "wal2.test",
    "walmode.test",
];

/// Holds what SQLite's tests found.
#[derive(Debug, PartialEq, Eq)]
pub struct Verdict {
    pub tests: u64,
    pub failed: Vec<String>,
}

/// Returns where SQLite's tests were built, if they can judge a log here.
pub fn judge_of_sqlite() -> Option<PathBuf> {
    if !judge::has_fuse() {
        return None;
    }
    if !judge::is_root() {
        judge::missing("SQLite's tests (only root can give them to a user without rights)");
        return None;
    }
    sqlite_tests()
}

/// Returns the arguments that choose some of SQLite's tests, as one of its permutations runs them.
pub fn some_of(tests: &Path, permutation: &str, names: &[&str]) -> Vec<String> {
    let names = names.iter().copied();
    let script = script(tests, "permutations.test");
    [script.as_str(), permutation]
        .into_iter()
        .chain(names)
        .map(str::to_owned)
        .collect()
}

fn script(tests: &Path, name: &str) -> String {
    tests.join("test").join(name).display().to_string()
}

/// Copies SQLite's tests to where others may come: not to where they were built.
pub fn copy_of(built: &Path, shop: &Workshop) -> PathBuf {
    let tests = shop.path("sqlite");
    let mut copy = Command::new("cp");
    let copied = run(copy.arg("-a").arg(built).arg(&tests));
    assert_eq!(copied.status, Some(0), "{built:?}");
    tests
}

/// Runs SQLite's tests in a directory, as a user without rights: some are of what such a user must not do.
pub fn judged_by_sqlite(tests: &Path, place: &Path, chosen: &[String]) -> Verdict {
    fs::create_dir(place).unwrap();
    chown(place, Some(NOBODY), Some(NOBODY)).unwrap();
    let mut testfixture = Command::new(tests.join("testfixture"));
    testfixture
        .args(chosen)
        .current_dir(place)
        .uid(NOBODY)
        .gid(NOBODY);
    let said = run(&mut testfixture).out;
    let counted = said
        .lines()
        .find_map(|line| line.split_once(" errors out of "));
    let (_, counted) = counted.unwrap_or_else(|| panic!("no verdict: {said}"));
    let failed = said
        .lines()
        .find_map(|line| line.strip_prefix("!Failures on these tests: "));
    Verdict {
        tests: counted
            .split(' ')
            .next()
            .and_then(|number| number.parse().ok())
            .unwrap(),
        failed: failed
            .unwrap_or("")
            .split_whitespace()
            .map(str::to_owned)
            .collect(),
    }
}

/// Tests that what SQLite's tests find in a log they find in a directory as well. `ANTEROS_SQLITE=all` has all of those
/// run that SQLite calls very quick: some ten minutes.
#[test]
fn sqlite_s_tests_find_nothing_in_a_log() {
    let Some(built) = judge_of_sqlite() else {
        return;
    };
    let shop = shop("2G");
    // Else no journal would be tested.
    let daemon = mount(&shop, "--no-atomic-writes");
    let tests = copy_of(&built, &shop);
    let chosen = match std::env::var("ANTEROS_SQLITE").as_deref() {
        Ok("all") => vec![script(&tests, "veryquick.test")],
        _ => some_of(&tests, "veryquick", &SQLITE_TESTS),
    };
    let plain = judged_by_sqlite(&tests, &shop.path("plain"), &chosen);
    let here = judged_by_sqlite(&tests, &shop.path("mnt/here"), &chosen);
    assert!(plain.tests > 3000, "{plain:?}");
    assert_eq!(here, plain);
    unmount(&shop, daemon);
    // Tests of atomic writes, which do nothing where there are none.
    let daemon = mount(&shop, "");
    let atomic = some_of(&tests, "veryquick", &["atomic.test", "atomic2.test"]);
    let atomic = judged_by_sqlite(&tests, &shop.path("mnt/atomic"), &atomic);
    assert!(atomic.tests > 60 && atomic.failed.is_empty(), "{atomic:?}");
    judge::say(format_args!(
        "SQLite's tests: {} in a log and in a directory, of which fail in both: {:?}; {} of atomic writes",
        here.tests, here.failed, atomic.tests
    ));
    unmount(&shop, daemon);
}

/// The result of a mixture of a hundred statements, in each way to commit.
#[test]
fn sqlite_s_benchmark_has_the_same_result_in_a_log() {
    if !judge::has_fuse() {
        return;
    }
    let Some(tests) = sqlite_tests().filter(|_| judge::has_program("sqlite3")) else {
        return;
    };
    let result = |database: &Path, journal: &str| {
        let mut speedtest1 = Command::new(tests.join("speedtest1"));
        speedtest1.args(["--size", "2", "--testset", "main", "--verify"]);
        let said = run(speedtest1.args(["--journal", journal]).arg(database)).out;
        let hash = said
            .lines()
            .find_map(|line| line.strip_prefix("Verification Hash: "));
        hash.unwrap_or_else(|| panic!("{journal}: {said}"))
            .to_owned()
    };
    for journal in ["delete", "persist", "truncate", "wal"] {
        let shop = shop("64M");
        let daemon = mount(&shop, "--no-atomic-writes");
        let (plain, here) = (shop.path("plain"), shop.path("mnt/database"));
        assert_eq!(result(&here, journal), result(&plain, journal), "{journal}");
        unmount(&shop, daemon);
        let daemon = mount(&shop, "");
        let dump = |database: &Path| run(Command::new("sqlite3").arg(database).arg(".sha3sum"));
        let (plain, here) = (dump(&plain), dump(&here));
        assert_eq!(here.out, plain.out, "{journal}");
        assert!(here.status == Some(0) && here.out.len() > 32, "{here:?}");
        unmount(&shop, daemon);
    }
}

#[test]
fn stress_ng_finds_nothing_in_a_log() {
    if !judge::has_fuse() || !judge::has_program("stress-ng") {
        return;
    }
    let (shop, daemon) = mounted("256M");
    stress(&shop.path("mnt"), "log");
    assert_eq!(fs::read_dir(shop.path("mnt")).unwrap().count(), 0);
    unmount(&shop, daemon);
}
