//! The last checkpoint of a log: daemons that are killed while they write it, and readers who come too early.

use std::fs::{self, File};
use std::io::Write;
use std::path::Path;
use std::process::Command;
use std::thread;
use std::time::Duration;

use anteros_tests::judge;

use crate::log::{mount, shop, unmount};
use crate::log_resize::Loop;
use crate::{Signal, kill, run, wait_until};

/// Files of each round, of which the first is synced.
const FILES: usize = 24;

fn content(round: u64, file: usize) -> Vec<u8> {
    format!("round {round} file {file}\n").repeat(2000).into()
}

fn write_round(directory: &Path, round: u64) {
    for file in 0..FILES {
        let mut target = File::create(directory.join(file.to_string())).unwrap();
        target.write_all(&content(round, file)).unwrap();
        if file == 0 {
            target.sync_all().unwrap();
        }
    }
}

/// Checks that what was synced is there, and of the rest nothing else than was written.
fn judge_round(directory: &Path, round: u64) {
    assert!(fs::read(directory.join("0")).unwrap() == content(round, 0));
    for file in 1..FILES {
        let Ok(found) = fs::read(directory.join(file.to_string())) else {
            continue;
        };
        let is_known = (0..=round).any(|round| content(round, file).starts_with(&found));
        assert!(is_known, "round {round}, file {file}");
    }
}

/// Unmounts, and kills the daemon while it writes what it has: a moment later each time.
fn kill_daemons_that_end(rounds: u64, step: Duration) {
    let shop = shop("64M");
    let mnt = shop.path("mnt");
    let mut cut_short = 0;
    for round in 0..rounds {
        let mut daemon = mount(&shop, "");
        if round > 0 {
            judge_round(&mnt, round - 1);
        }
        write_round(&mnt, round);
        wait_until(|| run(Command::new("umount").arg(&mnt)).status == Some(0));
        thread::sleep(step * u32::try_from(round).unwrap());
        // It may have ended.
        kill(&daemon, Signal::KILL);
        cut_short += u32::from(!daemon.wait().unwrap().success());
        let checked = shop.good("log check log");
        assert!(checked.contains("; 0 faults"), "round {round}: {checked}");
    }
    let daemon = mount(&shop, "");
    judge_round(&mnt, rounds - 1);
    unmount(&shop, daemon);
    eprintln!("{cut_short} of {rounds} daemons were killed before they had ended");
}

#[test]
fn a_daemon_that_is_killed_while_it_unmounts_loses_nothing_synced() {
    if judge::has_fuse() {
        kill_daemons_that_end(6, Duration::from_millis(2));
    }
}

#[test]
#[ignore = "takes some minutes"]
fn hundreds_of_daemons_are_killed_while_they_unmount() {
    if judge::has_fuse() {
        kill_daemons_that_end(400, Duration::from_micros(100));
    }
}

#[test]
fn readers_wait_for_the_writer_whatever_way_they_come() {
    if !judge::has_fuse() {
        return;
    }
    let shop = shop("64M");
    fs::create_dir(shop.path("behind")).unwrap();
    let Some(device) = Loop::of(&shop.path("log")) else {
        return;
    };
    let readers = [
        format!("log mount --read-only {} behind", device.0),
        "log mount --read-only log behind".into(),
        format!("log mount -o ro {} behind", device.0),
    ];
    let daemon = mount(&shop, "");
    fs::write(shop.path("mnt/file"), "new").unwrap();
    for reader in &readers {
        let error = shop.bad(5, reader);
        assert!(error.contains("in use"), "{reader}: {error}");
    }
    unmount(&shop, daemon);
    // Two readers do not mind each other, and a writer waits for both.
    shop.good(&readers[0]);
    shop.good("log mount --read-only log mnt");
    for place in ["mnt", "behind"] {
        let found = fs::read_to_string(shop.path(place).join("file"));
        assert_eq!(found.unwrap(), "new");
    }
    shop.good("umount mnt");
    let error = shop.bad(5, "log mount log mnt");
    assert!(error.contains("in use"), "{error}");
    shop.good("umount behind");
    let daemon = mount(&shop, "");
    unmount(&shop, daemon);
}
