//! Compression in the background that nobody has asked for.

use std::fs;
use std::process::{Child, Command};

use anteros_tests::judge;
use anteros_tests::peers::posix_judge;

use crate::log::{kill_daemon, mount, shop, unmount};
use crate::trees::stress;
use crate::{Workshop, run, wait_until};

/// Text that shrinks, but not to nothing.
fn text(lines: u32) -> Vec<u8> {
    let line = |number: u32| {
        format!(
            "{:08x} all work and no play\n",
            number.wrapping_mul(2_654_435_761)
        )
    };
    (0..lines).map(line).collect::<String>().into_bytes()
}

/// A number that the daemon tells.
pub fn number_told(shop: &Workshop, name: &str) -> f64 {
    let told = shop.run("stat --prometheus mnt").out;
    let wanted = format!("anteros_{name} ");
    let value = told.lines().find_map(|line| line.strip_prefix(&wanted));
    value.map_or(0.0, |value| value.parse().unwrap())
}

/// Writes a file and has it on the device.
fn put(shop: &Workshop, name: &str, content: &[u8]) {
    let path = shop.path("mnt").join(name);
    fs::write(&path, content).unwrap();
    assert_eq!(run(Command::new("sync").arg(&path)).status, Some(0));
}

fn assert_holds(shop: &Workshop, name: &str, content: &[u8]) {
    assert!(
        fs::read(shop.path("mnt").join(name)).unwrap() == content,
        "{name}"
    );
}

#[test]
fn a_log_that_nobody_uses_gets_smaller() {
    if !judge::has_fuse() {
        return;
    }
    let shop = shop("256M");
    // What is written while something is compressed is so already.
    let daemon = mount(&shop, "--policy none");
    let content = text(100_000);
    put(&shop, "notes", &content);
    put(&shop, "data.db", &content);
    unmount(&shop, daemon);
    let daemon = mount(&shop, "--idle-after 1 --checkpoint 1");
    let before = number_told(&shop, "log_used_bytes");
    let won = || before - number_told(&shop, "log_used_bytes");
    wait_until(|| won() > content.len() as f64 / 3.0);
    // Counted when the files that lie beside it have had their turn as well.
    let read = content.len().next_multiple_of(4096) as f64;
    wait_until(|| number_told(&shop, "log_idle_read_bytes_total") == read);
    let stat = shop.good("stat mnt");
    assert!(
        stat.contains("\nidle       2.86 MiB compressed to "),
        "{stat}"
    );
    for name in ["notes", "data.db"] {
        assert_holds(&shop, name, &content);
    }
    unmount(&shop, daemon);
    let checked = shop.good("log check --data log");
    assert!(checked.contains("; 0 faults"), "{checked}");
}

/// Tells whether a daemon has a thread for what is done while nobody uses the log.
fn has_idle_thread(daemon: &Child) -> bool {
    let threads = fs::read_dir(format!("/proc/{}/task", daemon.id())).unwrap();
    let names = threads.flat_map(|thread| fs::read_to_string(thread.unwrap().path().join("comm")));
    names.into_iter().any(|name| name.trim_end() == "log-idle")
}

#[test]
fn nothing_is_done_where_nothing_may_be() {
    if !judge::has_fuse() {
        return;
    }
    let shop = shop("64M");
    for (options, is_there) in [
        ("", true),
        ("--idle-after 0", true),
        ("--idle-cpu 0", false),
        ("--idle-bytes 0", false),
        ("--policy none", false),
        ("--read-only", false),
    ] {
        let daemon = mount(&shop, options);
        // A thread takes its name when it runs.
        match is_there {
            true => wait_until(|| has_idle_thread(&daemon)),
            false => assert!(!has_idle_thread(&daemon), "{options}"),
        }
        unmount(&shop, daemon);
    }
    for wrong in ["--idle-after soon", "--idle-cpu -1", "--idle-bytes much"] {
        let error = shop.bad(2, &format!("log mount log mnt {wrong}"));
        let option = wrong.split(' ').next().unwrap();
        assert!(error.contains(option), "{wrong}: {error}");
    }
}

#[test]
fn a_budget_that_is_used_up_ends_it() {
    if !judge::has_fuse() {
        return;
    }
    let shop = shop("256M");
    let daemon = mount(&shop, "--idle-after 0 --idle-bytes 1M");
    let content = text(300_000);
    put(&shop, "notes", &content);
    let read = || number_told(&shop, "log_idle_read_bytes_total");
    wait_until(|| read() > 0.0);
    std::thread::sleep(std::time::Duration::from_millis(500));
    // A step is not broken off for it.
    assert!(read() <= f64::from(2 << 20), "{}", read());
    assert_holds(&shop, "notes", &content);
    unmount(&shop, daemon);
}

#[test]
fn a_daemon_that_is_killed_on_the_way_leaves_all_of_it() {
    if !judge::has_fuse() {
        return;
    }
    let shop = shop("256M");
    let content = text(300_000);
    for round in 0..3 {
        let name = format!("notes{round}");
        let daemon = mount(&shop, "--idle-after 0 --checkpoint 1");
        put(&shop, &name, &content);
        wait_until(|| number_told(&shop, "log_idle_read_bytes_total") > 0.0);
        kill_daemon(&shop, daemon);
        let checked = shop.good("log check --data log");
        assert!(checked.contains("; 0 faults"), "{checked}");
    }
    let daemon = mount(&shop, "");
    for round in 0..3 {
        assert_holds(&shop, &format!("notes{round}"), &content);
    }
    unmount(&shop, daemon);
}

/// Tests that it changes nothing for those who use the log meanwhile, in as little memory as there may be.
#[test]
fn judges_find_nothing_while_it_goes_on() {
    if !judge::has_fuse() {
        return;
    }
    let shop = shop("256M");
    for options in [
        "--idle-after 0 --checkpoint 1",
        "--idle-after 0 --memory 1M",
    ] {
        let daemon = mount(&shop, options);
        if judge::has_program("stress-ng") {
            stress(&shop.path("mnt"), "log");
        }
        if let Some(mut fsx) = posix_judge("fsx") {
            fsx.args(["-N", "3000", "-S", "9", "mnt/file"]);
            let found = run(fsx.current_dir(shop.path("")));
            assert_eq!(found.status, Some(0), "{found:?}");
        }
        unmount(&shop, daemon);
    }
}
