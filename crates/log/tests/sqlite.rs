//! SQLite on a log whose power is cut. The log is mounted by this process, so that all that reaches the device is known.
//! `ANTEROS_CRASH_STATES=10000` has so many states looked at.

mod support;

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;

use anteros_log::{Log, Options, Policy, check};
use anteros_tests::crash::{Plan, Recorder, Recording, State};
use anteros_tests::judge;
use anteros_tests::mount::{FuseMount, run};
use support::*;
use tempfile::TempDir;

/// Transactions that are done.
const TRANSACTIONS: u64 = 40;

/// Has SQLite do its transactions, with a mark for each that it said was done.
fn record(journal: &str, policy: Policy) -> Recording {
    let base = device(32 * MIB).to_vec();
    let recorder = Arc::new(Recorder::new(&base));
    // So little memory that content leaves before it is synced.
    let options = Options {
        policy,
        ..options_with(160 << 10)
    };
    let log = Arc::new(Log::open(recorder.clone(), options).unwrap());
    let mount = FuseMount::new(log.clone());
    let mut sqlite3 = Command::new("sqlite3")
        .args(["-batch", "-bail"])
        .arg(mount.path().join("database"))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut input = sqlite3.stdin.take().unwrap();
    let mut answers = BufReader::new(sqlite3.stdout.take().unwrap()).lines();
    let mut answer = || answers.next().unwrap().unwrap();
    writeln!(
        input,
        "pragma synchronous = extra; pragma wal_autocheckpoint = 20; pragma journal_mode = {journal};\n\
         create table numbers (n integer primary key, data blob); create table sum (total); \
         insert into sum values (0); select 0;"
    )
    .unwrap();
    assert_eq!([answer(), answer(), answer()], ["20", journal, "0"]);
    recorder.mark("0");
    for n in 1..=TRANSACTIONS {
        writeln!(
            input,
            "begin; insert into numbers values ({n}, hex(zeroblob({n} * 977 % 4500)) || randomblob({n} * 331 % 3000)); \
             update sum set total = total + {n}; commit; select {n};"
        )
        .unwrap();
        assert_eq!(answer(), n.to_string());
        recorder.mark(n.to_string());
        match n % 16 {
            7 => log.checkpoint().unwrap(),
            15 => drop(log.clean_all(|count| count < 2).unwrap()),
            _ => {}
        }
    }
    drop(input);
    assert!(sqlite3.wait().unwrap().success());
    drop(mount);
    log.close().unwrap();
    recorder.recording()
}

fn query(database: &Path, text: &str) -> String {
    let said = run(Command::new("sqlite3").arg(database).arg(text));
    said.unwrap().trim().to_owned()
}

/// Checks that each transaction is there as a whole or not at all, and all that were said to be done before the crash.
fn judge_state(state: &State, way: &str) {
    let place = format!("{way}, `{}`", state.id());
    let Some(done) = state.marks().last() else {
        return;
    };
    let done: u64 = done.label.parse().unwrap();
    let device = Arc::new(state.device());
    let report = check(device.clone(), options()).unwrap_or_else(|e| panic!("{place}: {e}"));
    assert_eq!(report.faults, [""; 0], "{place}");
    let tree = open(device);
    let found = TempDir::new_in(anteros_tests::scratch()).unwrap();
    for name in tree.list("").unwrap() {
        fs::write(found.path().join(&name), tree.read(&name).unwrap()).unwrap();
    }
    let database = found.path().join("database");
    assert_eq!(query(&database, "pragma integrity_check"), "ok", "{place}");
    let numbers = query(
        &database,
        "select count(*), max(n), total from numbers, sum",
    );
    let numbers: Vec<u64> = numbers.split('|').map(|n| n.parse().unwrap_or(0)).collect();
    let [count, max, total] = numbers[..] else {
        panic!("{place}: {numbers:?}");
    };
    assert!(
        (done..=TRANSACTIONS).contains(&max),
        "{place}: {max} of {done}"
    );
    assert_eq!((count, total), (max, max * (max + 1) / 2), "{place}");
}

#[test]
fn transactions_survive_every_crash() {
    if !judge::has_fuse() || !judge::has_program("sqlite3") {
        return;
    }
    let wanted = std::env::var("ANTEROS_CRASH_STATES").map_or(480, |n| n.parse().unwrap());
    let journals = ["delete", "persist", "truncate", "wal"];
    let policies = [Policy::None, Policy::Paper, Policy::Record];
    let ways = policies
        .iter()
        .flat_map(|policy| journals.map(|journal| (journal, *policy)));
    for (seed, (journal, policy)) in (0..).zip(ways) {
        let recording = record(journal, policy);
        let plan = Plan {
            subsets_max: 8,
            samples: 4,
            tears: 1,
            seed,
        };
        let states = recording.states(&plan).count();
        let step = (12 * states / wanted).max(1);
        // Not always the same ones of an epoch.
        let chosen = recording.states(&plan).step_by(step | 1);
        let place = format!("{journal}, {policy:?}");
        let looked_at = chosen.map(|state| judge_state(&state, &place)).count();
        println!("{place}: {looked_at} of {states} states");
        assert!(looked_at > 25, "{place}: {looked_at}");
    }
}
