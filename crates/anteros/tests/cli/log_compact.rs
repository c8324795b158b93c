//! `anteros log compact`: files that are compressed in the background.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anteros_tests::judge;
use rustix::fs::XattrFlags;
use serde_json::Value;

use crate::log::{kill_daemon, mount, shop, umount, unmount};
use crate::{Signal, Workshop, kill, run, wait_until};

/// Puts this program itself into a log, and something that is none.
fn install(shop: &Workshop) -> PathBuf {
    let program = shop.path("mnt/bin/program");
    fs::create_dir(shop.path("mnt/bin")).unwrap();
    // By another process: a copy of our own may stay open for writing for a moment.
    let copied = run(Command::new("cp").arg(&shop.program).arg(&program));
    assert_eq!(copied.status, Some(0), "{copied:?}");
    fs::write(shop.path("mnt/bin/notes.txt"), b"notes").unwrap();
    assert_eq!(run(Command::new("sync").arg(&program)).status, Some(0));
    program
}

fn used(shop: &Workshop) -> u64 {
    let space = rustix::fs::statvfs(shop.path("mnt")).unwrap();
    (space.f_blocks - space.f_bfree) * space.f_frsize
}

fn assert_runs(shop: &Workshop, program: &PathBuf) {
    assert!(fs::read(program).unwrap() == fs::read(&shop.program).unwrap());
    let told = run(Command::new(program).arg("--version"));
    assert_eq!(told.status, Some(0), "{told:?}");
}

#[test]
fn programs_shrink_and_run() {
    let shop = shop("2G");
    let daemon = mount(&shop, "--policy none");
    let program = install(&shop);
    let before = used(&shop);
    unmount(&shop, daemon);
    let daemon = mount(&shop, "--policy record");
    let told = shop.good("log compact mnt/bin");
    assert!(told.starts_with("2 files, 0 left alone; "), "{told}");
    let now = used(&shop);
    assert!(now < before * 7 / 10, "{before} bytes became {now}");
    assert_runs(&shop, &program);
    umount(&shop);
    unmounted(daemon);
    // Cold, and with all of it read ahead.
    let daemon = mount(&shop, "--policy record");
    assert_runs(&shop, &program);
    unmount(&shop, daemon);
}

fn unmounted(mut daemon: std::process::Child) {
    assert_eq!(daemon.wait().unwrap().code(), Some(0));
}

/// Returns whether some of what is mounted has been compressed in the background.
fn is_begun(shop: &Workshop) -> bool {
    let told = shop.run("stat --prometheus mnt").out;
    let mut samples = told.lines().filter(|line| !line.starts_with('#'));
    samples.any(|sample| sample.contains("background") && !sample.ends_with(" 0"))
}

#[test]
fn a_daemon_that_is_killed_on_the_way_leaves_all_of_it() {
    let shop = shop("2G");
    let daemon = mount(&shop, "--policy record");
    let program = install(&shop);
    let mut compact = shop
        .command("log compact mnt/bin --rate 8M")
        .spawn()
        .unwrap();
    wait_until(|| is_begun(&shop));
    kill_daemon(&shop, daemon);
    assert_ne!(compact.wait().unwrap().code(), Some(0));
    assert!(shop.good("log check log").contains("; 0 faults"));
    let daemon = mount(&shop, "--policy record");
    assert_runs(&shop, &program);
    unmount(&shop, daemon);
}

#[test]
fn it_may_be_stopped_and_keeps_what_is_done() {
    let shop = shop("2G");
    let daemon = mount(&shop, "--policy record");
    let program = install(&shop);
    let compact = shop
        .heeding("log compact mnt/bin --rate 2M")
        .spawn()
        .unwrap();
    wait_until(|| is_begun(&shop));
    kill(&compact, Signal::INT);
    let output = compact.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(130));
    let told = shop.good("log compact mnt/bin");
    assert!(told.starts_with("2 files"), "{told}");
    assert_runs(&shop, &program);
    unmount(&shop, daemon);
}

/// Returns what the kernel reads ahead of a file that is opened now; whoever may mount as root may change it.
fn readahead_kib(shop: &Workshop) -> u64 {
    let device = rustix::fs::stat(shop.path("mnt")).unwrap().st_dev;
    let (major, minor) = (rustix::fs::major(device), rustix::fs::minor(device));
    let told = fs::read_to_string(format!("/sys/class/bdi/{major}:{minor}/read_ahead_kb"));
    told.unwrap().trim().parse().unwrap()
}

/// Launches are recorded, the program is compressed by them, and started again: what it reads comes along.
#[test]
fn programs_are_compressed_by_their_launches() {
    let shop = shop("2G");
    let daemon = mount(&shop, "--policy record");
    let program = install(&shop);
    unmount(&shop, daemon);
    for _ in 0..2 {
        let daemon = mount(&shop, "--policy record --launches rec");
        assert_eq!(run(Command::new(&program).arg("--version")).status, Some(0));
        unmount(&shop, daemon);
    }
    let told = shop.good("log launches rec");
    assert!(told.contains("1 files and 2 inodes of the log "), "{told}");
    let daemon = mount(&shop, "--policy record --launches rec");
    let told = shop.good("log compact mnt/bin");
    assert!(told.starts_with("2 files"), "{told}");
    unmount(&shop, daemon);
    for (options, text_kib, program_kib) in [
        ("", 128, 4),
        ("--readahead 64K", 64, 64),
        ("--prefetch 0", 128, 128),
    ] {
        let daemon = mount(&shop, &format!("--policy record {options}"));
        let ahead = |path: &Path| {
            fs::File::open(path).unwrap();
            readahead_kib(&shop)
        };
        if judge::is_root() {
            assert_eq!(ahead(&shop.path("mnt/bin/notes.txt")), text_kib);
            assert_eq!(ahead(&program), program_kib, "{options}");
        } else {
            judge::missing("a mount's readahead, which only root may change");
        }
        let told = run(Command::new(&program).arg("--version"));
        assert_eq!(told.status, Some(0), "{told:?}");
        assert_runs(&shop, &program);
        unmount(&shop, daemon);
    }
}

#[test]
fn what_cannot_be_compressed_is_refused_with_a_reason() {
    let shop = shop("512M");
    let refused = |status, command: &str, word: &str| {
        let error = shop.bad(status, command);
        assert!(error.contains(word), "{command}: {error}");
    };
    refused(5, "log compact mnt", "no log is mounted here");
    let daemon = mount(&shop, "--policy none");
    fs::write(shop.path("mnt/lib.so"), [1; 9000]).unwrap();
    refused(4, "log compact mnt/lib.so", "--policy");
    refused(5, "log compact mnt/none", "none");
    refused(2, "log compact mnt/lib.so src", "not in the log");
    refused(2, "log compact", "FILES");
    refused(2, "log compact mnt --rate fast", "fast");
    unmount(&shop, daemon);
}

/// Tests that a profile says of a program what a record of its launches would.
#[test]
fn programs_are_compressed_by_a_profile() {
    let shop = shop("2G");
    let daemon = mount(&shop, "--policy record");
    let program = install(&shop);
    let ranges = "/bin/program\t0\t1000000\t3\n/none\t0\t1\t3\n/bin/program\t4000000\t5000\t1\n";
    fs::write(
        shop.path("p"),
        format!("# anteros profile, 3 rounds\n{ranges}"),
    )
    .unwrap();
    let told = shop.bad(2, "log compact mnt/bin --profile src/hello");
    assert!(told.contains("hello: line 1"), "{told}");
    let told = shop.good("log compact mnt/bin --profile p");
    assert!(told.starts_with("2 files, 0 left alone; "), "{told}");
    unmount(&shop, daemon);
    shop.good("log check log");
    let daemon = mount(&shop, "--policy record");
    fs::File::open(&program).unwrap();
    if judge::is_root() {
        // Whoever opens what launches read gets no more than that.
        assert_eq!(readahead_kib(&shop), 4);
    }
    assert_runs(&shop, &program);
    unmount(&shop, daemon);
}

/// Has the daemon write all that it has.
fn write_all(shop: &Workshop) {
    let flags = XattrFlags::empty();
    rustix::fs::setxattr(shop.path("mnt"), "user.anteros.writing", b"all", flags).unwrap();
}

/// Puts the program into a log without compression, and the documents and sources of this one beside it.
fn fill(shop: &Workshop) {
    let daemon = mount(shop, "--policy none");
    install(shop);
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    for directory in ["docs", "crates/log"] {
        let mut copy = Command::new("cp");
        copy.arg("-r")
            .arg(root.join(directory))
            .arg(shop.path("mnt"));
        assert_eq!(run(&mut copy).status, Some(0), "{directory}");
    }
    fs::write(shop.path("mnt/a.db"), vec![1; 40_960]).unwrap();
    unmount(shop, daemon);
}

/// Returns what was written to the device until now, and why.
fn written(shop: &Workshop) -> Vec<String> {
    let told = shop.good("stat --prometheus mnt");
    let causes = told
        .lines()
        .filter(|line| line.contains("log_device_bytes_total{"));
    causes.map(str::to_owned).collect()
}

fn json(told: &str) -> Value {
    serde_json::from_str(told).unwrap()
}

fn number(value: &Value) -> u64 {
    value.as_u64().unwrap()
}

#[test]
fn what_would_be_gained_is_told_before_and_nothing_is_changed() {
    let shop = shop("2G");
    fill(&shop);
    let daemon = mount(&shop, "--policy record --idle-cpu 0 --scrub 0");
    write_all(&shop);
    let before = written(&shop);
    assert!(!before.is_empty());
    let told = shop.good("log compact mnt --dry-run");
    for word in ["directory", "bin/", "docs/", "log/", "executable", "total"] {
        assert!(told.contains(word), "{word}: {told}");
    }
    assert!(
        told.contains("were looked at; nothing was changed"),
        "{told}"
    );
    let told = json(&shop.good("log compact mnt --dry-run --json"));
    let inside = json(&shop.good("log compact mnt/docs mnt/log --dry-run --json"));
    write_all(&shop);
    assert_eq!(written(&shop), before);
    let taken = |of: &Value| ["stored_bytes", "stored_bytes_after"].map(|name| number(&of[name]));
    let sums = |list: &Value| {
        let list = list.as_array().unwrap().iter().map(taken);
        list.fold([0, 0], |sum, of| [sum[0] + of[0], sum[1] + of[1]])
    };
    let total = taken(&told["total"]);
    assert_eq!(sums(&told["directories"]), total);
    assert_eq!(sums(&told["types"]), total);
    let directories = told["directories"].as_array().unwrap();
    let paths: Vec<&str> = directories
        .iter()
        .flat_map(|of| of["path"].as_str())
        .collect();
    assert_eq!(paths.len(), 4, "{paths:?}");
    assert_eq!(paths[0], "bin/");
    assert!(paths.contains(&"."), "{paths:?}");
    let paths = inside["directories"].as_array().unwrap().iter();
    let paths: Vec<&str> = paths.flat_map(|of| of["path"].as_str()).collect();
    assert!(
        paths.contains(&"log/src/") && paths.contains(&"docs"),
        "{paths:?}"
    );
    assert_eq!(told["due_bytes"], told["tried_bytes"]);
    let before = used(&shop);
    shop.good("log compact mnt");
    let gained = before - used(&shop);
    let expected = total[0] - total[1];
    let all = format!("{expected} expected, {gained} gained");
    assert!(expected.abs_diff(gained) * 10 <= gained, "{all}");
    unmount(&shop, daemon);
    let refused = shop.bad(2, "log compact mnt --dry-run --rate 8M");
    assert!(refused.contains("--rate"), "{refused}");
}

#[test]
fn what_lies_in_a_log_is_told_by_type() {
    let shop = shop("2G");
    fill(&shop);
    let device = json(&shop.good("log stat log --types --json"));
    let types = &device["types"];
    assert_eq!(number(&types["database"]["files"]), 1);
    assert_eq!(number(&types["database"]["plain_bytes"]["left"]), 40_960);
    let program = &types["executable"];
    assert_eq!(program["bytes"], program["plain_bytes"]["new"]);
    let daemon = mount(&shop, "--policy record");
    assert_eq!(json(&shop.good("log stat mnt --types --json")), device);
    let told = shop.good("log stat mnt --types");
    for word in [
        "executable",
        "database",
        "other",
        "total",
        "futile",
        "new",
        "left",
    ] {
        assert!(told.contains(word), "{word}: {told}");
    }
    shop.good("log compact mnt/bin");
    let told = json(&shop.good("log stat mnt --types --json"));
    let program = &told["types"]["executable"];
    assert!(program["ratio"].as_f64().unwrap() < 0.8, "{program}");
    assert_eq!(number(&program["plain_bytes"]["new"]), 0);
    unmount(&shop, daemon);
    let refused = shop.bad(5, "log stat src --types");
    assert!(refused.contains("no log is mounted here"), "{refused}");
}
