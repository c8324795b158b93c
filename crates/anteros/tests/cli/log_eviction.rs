//! Judges of a log where nothing that is clean stays in memory, and where memory is as small as can be.

use std::fs;
use std::path::PathBuf;
use std::thread;

use anteros_tests::judge;
use anteros_tests::model::{Ops, Plain, World, compare};
use anteros_tests::peers::posix_judge;

use crate::log::{mount, shop, unmount};
use crate::log_judges::{copy_of, judge_of_sqlite, judged_by_sqlite, some_of};
use crate::passthru::{has_pjdfstest, run_pjdfstest};
use crate::{Workshop, run, same};

const WAYS: [&str; 2] = ["--evicts-always", "--memory 0"];

#[test]
fn fsx_finds_nothing_in_a_log_where_memory_holds_nothing() {
    if !judge::has_fuse() || posix_judge("fsx").is_none() {
        return;
    }
    for way in WAYS {
        let shop = shop("64M");
        let daemon = mount(&shop, way);
        let mut fsx = posix_judge("fsx").unwrap();
        fsx.args(["-N", "3000", "-S", "7", "mnt/file"])
            .current_dir(shop.dir.path());
        let found = run(&mut fsx);
        assert_eq!(found.status, Some(0), "{way}: {}", found.out);
        unmount(&shop, daemon);
    }
}

#[test]
#[ignore = "a campaign: it takes minutes"]
fn pjdfstest_finds_nothing_in_a_log_where_memory_holds_nothing() {
    if !has_pjdfstest() {
        return;
    }
    for way in WAYS {
        let shop = shop("256M");
        let daemon = mount(&shop, way);
        run_pjdfstest(&shop, "log");
        unmount(&shop, daemon);
    }
}

/// Changes a directory of the log and one elsewhere at random, and compares them at each step; both, the plain one first.
fn witness(shop: &Workshop, seed: u64, steps: u32) -> (PathBuf, PathBuf) {
    let [plain, here] = ["plain", "mnt/here"].map(|name| shop.path(&format!("{name}{seed}")));
    fs::create_dir(&plain).unwrap();
    fs::create_dir(&here).unwrap();
    let mut world = Plain::new(&here);
    let ops = Ops::new(seed).without_collapsing().without_seeking();
    let tested = (&mut world as &mut dyn World, &*here);
    compare(seed, steps, ops, tested, &plain);
    (plain, here)
}

#[test]
fn a_log_does_at_random_what_a_directory_does_where_memory_holds_nothing() {
    const STEPS: u32 = 1500;
    if !judge::has_fuse() {
        return;
    }
    for (seed, way) in (10..).zip(WAYS) {
        let shop = shop("256M");
        let daemon = mount(&shop, way);
        let (plain, here) = witness(&shop, seed, STEPS);
        unmount(&shop, daemon);
        let daemon = mount(&shop, way);
        assert!(same(&plain, &here), "{way}, after a mount");
        unmount(&shop, daemon);
    }
}

/// SQLite's tests in which a program ends before what it has written is on the device.
const CRASHES: [&str; 10] = [
    "crash.test",
    "crash2.test",
    "crash3.test",
    "crash4.test",
    "crash5.test",
    "crash6.test",
    "crash7.test",
    "crash8.test",
    "writecrash.test",
    "walcrash.test",
];

/// Tests that none of them fails in a log that it would not fail in a directory as well. How many they are depends on when
/// their programs end.
fn crash_sqlite(way: &str) {
    let Some(built) = judge_of_sqlite() else {
        return;
    };
    let shop = shop("1G");
    // Else no journal would be tested.
    let daemon = mount(&shop, &format!("{way} --no-atomic-writes"));
    let tests = copy_of(&built, &shop);
    let chosen = some_of(&tests, "full", &CRASHES);
    let plain = judged_by_sqlite(&tests, &shop.path("plain"), &chosen);
    let here = judged_by_sqlite(&tests, &shop.path("mnt/here"), &chosen);
    judge::say(format_args!(
        "{way}: {} tests of SQLite, {} elsewhere",
        here.tests, plain.tests
    ));
    assert!(
        plain.tests > 5000 && here.tests > 5000,
        "{here:?}, {plain:?}"
    );
    assert_eq!(here.failed, plain.failed, "{way}");
    unmount(&shop, daemon);
}

#[test]
#[ignore = "a campaign: it takes some ten minutes"]
fn sqlite_s_crash_tests_find_nothing_in_a_log_where_nothing_clean_stays() {
    crash_sqlite(WAYS[0]);
}

#[test]
#[ignore = "a campaign: it takes some ten minutes"]
fn sqlite_s_crash_tests_find_nothing_in_a_log_with_the_least_memory() {
    crash_sqlite(WAYS[1]);
}

/// Four that change things at random at the same time, each with a directory elsewhere that says what must be there.
#[test]
#[ignore = "a campaign: it takes minutes"]
fn witnesses_of_four_at_work_find_nothing_in_a_log_where_memory_holds_nothing() {
    const STEPS: u32 = 4000;
    if !judge::has_fuse() {
        return;
    }
    for (round, way) in (0..).zip(WAYS) {
        let shop = shop("512M");
        let daemon = mount(&shop, way);
        let work = |seed| witness(&shop, seed, STEPS);
        let seeds = 100 + 4 * round..104 + 4 * round;
        let places: Vec<_> = thread::scope(|scope| {
            let workers: Vec<_> = seeds.map(|seed| scope.spawn(move || work(seed))).collect();
            let done = workers.into_iter().map(|worker| worker.join().unwrap());
            done.collect()
        });
        unmount(&shop, daemon);
        let daemon = mount(&shop, way);
        for (plain, here) in places {
            assert!(same(&plain, &here), "{way}, after a mount: {here:?}");
        }
        unmount(&shop, daemon);
    }
}
