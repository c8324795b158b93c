//! `anteros log`: a file system in a file, judged by those who judge others.

use std::cell::Cell;
use std::fs;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, SystemTime};

use anteros_tests::judge;
use anteros_tests::model::{Ops, Plain, World, compare};
use anteros_tests::peers::{posix_judge, sqlite_tests};
use anteros_tests::trees::Random;

use crate::crash::Transactions;
use crate::passthru::{SCRIPTS, has_pjdfstest, run_pjdfstest, script};
use crate::{
    Signal, Workshop, file_system_at, is_mounted, kill, run, same, trees, wait_until,
    wait_until_served,
};

/// A log in the file `log`, and a directory `mnt`.
pub fn shop(size: &str) -> Workshop {
    let shop = Workshop::new();
    fs::create_dir(shop.path("mnt")).unwrap();
    shop.good(&format!("log mkfs log --size {size}"));
    shop
}

/// A workshop with a log that is mounted.
pub fn mounted(size: &str) -> (Workshop, Child) {
    let shop = shop(size);
    let daemon = mount(&shop, "");
    (shop, daemon)
}

/// Mounts a new log in which nothing is compressed, where a test is about the room that content takes.
pub fn mounted_plainly(size: &str) -> (Workshop, Child) {
    let shop = shop(size);
    let daemon = mount(&shop, "--policy none");
    (shop, daemon)
}

/// Mounts a log. `ANTEROS_LOG_IDLE=always` has each compressed in the background all the time.
pub fn mount(shop: &Workshop, options: &str) -> Child {
    let mut command = shop.command(&format!("log mount log mnt --foreground {options}"));
    let idle = std::env::var("ANTEROS_LOG_IDLE").ok();
    assert!(
        idle.as_deref().is_none_or(|when| when == "always"),
        "ANTEROS_LOG_IDLE is `always` or not set"
    );
    if idle.is_some() && !options.contains("--idle") {
        command.args(["--idle-after", "0"]);
    }
    let daemon = command.stdin(Stdio::null()).spawn().unwrap();
    wait_until_served(&shop.path("mnt"));
    daemon
}

/// Unmounts, sees the daemon end well, and checks what it leaves.
pub fn unmount(shop: &Workshop, mut daemon: Child) {
    umount(shop);
    assert_eq!(daemon.wait().unwrap().code(), Some(0));
    let said = shop.good("log check log");
    assert!(said.contains("; 0 faults"), "{said}");
    assert!(!said.contains("not unmounted"), "{said}");
}

pub fn umount(shop: &Workshop) {
    wait_until(|| run(Command::new("umount").arg(shop.path("mnt"))).status == Some(0));
}

/// Kills the daemon, and takes away what it leaves mounted.
pub fn kill_daemon(shop: &Workshop, mut daemon: Child) {
    kill(&daemon, Signal::KILL);
    daemon.wait().unwrap();
    umount(shop);
}

#[test]
fn a_log_keeps_what_it_is_given() {
    if !judge::has_fuse() {
        return;
    }
    let shop = shop("64M");
    shop.good("log mount log mnt");
    assert_eq!(
        file_system_at(&shop.path("mnt")).as_deref(),
        Some("fuse.anteros-log")
    );
    let copied = run(Command::new("cp")
        .arg("-a")
        .arg(shop.path("src"))
        .arg(shop.path("mnt")));
    assert_eq!(copied.status, Some(0), "{copied:?}");
    assert!(same(&shop.path("src"), &shop.path("mnt/src")));
    let error = shop.bad(5, "log mount log behind");
    assert!(error.contains("in use by another process"), "{error}");
    wait_until(|| shop.run("umount mnt").status == Some(0));
    shop.good("log mount log mnt");
    assert!(same(&shop.path("src"), &shop.path("mnt/src")));
    wait_until(|| shop.run("umount mnt").status == Some(0));
    let checked = shop.good("log check log");
    assert!(
        checked.contains("2 files, 3 directories, 1 others"),
        "{checked}"
    );
}

/// Whoever unmounts finds the log written and free, unless it is asked not to wait.
#[test]
fn unmounting_waits_for_the_daemon() {
    if !judge::has_fuse() {
        return;
    }
    let shop = shop("256M");
    for round in 0..3 {
        shop.good("log mount log mnt");
        fs::write(shop.path("mnt/file"), vec![round; 40 << 20]).unwrap();
        wait_until(|| shop.run("umount mnt").status == Some(0));
        let checked = shop.good("log check log");
        assert!(checked.contains("1 files"), "{checked}");
        assert!(!checked.contains("not unmounted"), "{checked}");
    }
    let mut daemon = mount(&shop, "");
    kill(&daemon, Signal::STOP);
    wait_until(|| shop.run("umount mnt --no-wait").status == Some(0));
    assert!(!is_mounted(&shop.path("mnt")));
    // What its daemon has not let go of is not looked at.
    let error = shop.bad(5, "log check log");
    assert!(error.contains("in use"), "{error}");
    kill(&daemon, Signal::CONT);
    assert_eq!(daemon.wait().unwrap().code(), Some(0));
    assert!(!shop.good("log check log").contains("not unmounted"));
}

/// A daemon goes on for those who see its file system elsewhere, and nobody waits for it.
#[test]
fn unmounting_one_of_two_places_waits_for_nobody() {
    if !judge::has_fuse() || !judge::is_root() {
        return judge::missing("a second place (only root can mount)");
    }
    let (shop, mut daemon) = mounted("64M");
    fs::create_dir(shop.path("bound")).unwrap();
    let mut bind = Command::new("mount");
    let bound = run(bind
        .arg("--bind")
        .args([shop.path("mnt"), shop.path("bound")]));
    assert_eq!(bound.status, Some(0), "{bound:?}");
    shop.umount("mnt");
    fs::write(shop.path("bound/file"), "more").unwrap();
    shop.umount("bound");
    assert_eq!(daemon.wait().unwrap().code(), Some(0));
}

/// Each mount reads what those before have written.
#[test]
fn how_to_compress_is_chosen_for_each_mount() {
    let shop = shop("64M");
    for (wrong, reason) in [
        ("--codec gzip", "possible values: lz4, lzo, zstd"),
        ("-o codec=none", "no codec none; there are lz4"),
        ("-o policy=all", "no policy all; there are none, comp"),
        ("-o rox", "no option rox; there are mode=NAME, policy=NAME"),
    ] {
        let error = shop.bad(2, &format!("log mount log mnt {wrong}"));
        assert!(error.contains(reason), "{wrong}: {error}");
    }
    if !judge::has_fuse() {
        return;
    }
    let data = b"all work and no play ".repeat(5000);
    let has_zstd = || {
        let bytes = fs::read(shop.path("log")).unwrap();
        bytes.windows(4).any(|four| four == b"\x28\xb5\x2f\xfd")
    };
    let mounts = [
        "--policy paper --codec lzo --background-codec zstd",
        "-o policy=force",
        "-o policy=record,codec=zstd",
    ];
    for (number, options) in mounts.into_iter().enumerate() {
        assert!(!has_zstd(), "{options}");
        let daemon = mount(&shop, options);
        for before in 0..number {
            let found = fs::read(shop.path(&format!("mnt/{before}.db"))).unwrap();
            assert!(found == data, "{before}, {options}");
        }
        fs::write(shop.path(&format!("mnt/{number}.db")), &data).unwrap();
        unmount(&shop, daemon);
    }
    assert!(has_zstd());
}

/// Nobody but the mount changes a log: what the kernel has of a file, it need not read again.
#[test]
fn a_file_that_is_opened_again_is_not_read_again() {
    let (shop, daemon) = mounted("64M");
    let data = vec![7; 300_000];
    fs::write(shop.path("mnt/file"), &data).unwrap();
    unmount(&shop, daemon);
    let daemon = mount(&shop, "");
    let reads = || {
        let told = shop.good("stat --prometheus mnt");
        let count = "anteros_answer_seconds_count{op=\"read\"} ";
        let line = told.lines().find_map(|line| line.strip_prefix(count));
        line.map_or(0, |count| count.parse::<u64>().unwrap())
    };
    // An answer is counted a moment after the reader has got it.
    let counted = || {
        let before = Cell::new(0);
        wait_until(|| {
            std::thread::sleep(Duration::from_millis(300));
            let count = reads();
            count > 0 && before.replace(count) == count
        });
        before.get()
    };
    let read = || assert!(fs::read(shop.path("mnt/file")).unwrap() == data);
    let asks_for_none = || {
        read();
        let once = counted();
        (0..3).for_each(|_| read());
        counted() == once
    };
    // The kernel may drop a page of its own accord now and then.
    assert!((0..5).any(|_| asks_for_none()));
    fs::write(shop.path("mnt/file"), "other").unwrap();
    assert_eq!(fs::read(shop.path("mnt/file")).unwrap(), b"other");
    unmount(&shop, daemon);
}

#[test]
fn what_cannot_be_is_refused_with_a_reason() {
    let shop = Workshop::new();
    fs::create_dir(shop.path("mnt")).unwrap();
    let error = shop.bad(2, "log mkfs log");
    assert!(
        error.contains("log: does not exist") && error.contains("--size"),
        "{error}"
    );
    let error = shop.bad(5, "log mkfs log --size 20M");
    assert!(
        error.contains("too few") && !shop.path("log").exists(),
        "{error}"
    );
    fs::write(shop.path("other"), "something").unwrap();
    let error = shop.bad(2, "log mkfs other --size 64M");
    assert!(
        error.contains("holds something already") && error.contains("--force"),
        "{error}"
    );
    assert_eq!(fs::read_to_string(shop.path("other")).unwrap(), "something");
    for command in ["log mount other mnt --foreground", "log check other"] {
        let run = shop.run(command);
        assert!(matches!(run.status, Some(3 | 5)), "{command}: {run:?}");
        assert!(run.err.contains("other"), "{run:?}");
    }
    shop.good("log mkfs log --size 64M --label here");
    for wrong in ["-1", "1.5", "4294967296", "soon"] {
        let error = shop.bad(2, &format!("log mount log mnt --checkpoint {wrong}"));
        assert!(
            error.contains("whole seconds from 0 to 4294967295"),
            "{error}"
        );
    }
    let whole = fs::read(shop.path("log")).unwrap();
    fs::write(shop.path("short"), &whole[..40 << 20]).unwrap();
    let error = shop.bad(3, "log check short");
    assert!(error.contains("16384 blocks"), "{error}");
    let mut newer = whole;
    newer[1024 + 0x18] ^= 0x80;
    fs::write(shop.path("newer"), newer).unwrap();
    // The other copy is whole.
    shop.good("log check newer");
}

#[test]
fn programs_do_what_they_do_elsewhere() {
    if !judge::has_fuse() {
        return;
    }
    let (shop, daemon) = mounted("256M");
    fs::create_dir(shop.path("plain")).unwrap();
    for text in SCRIPTS {
        // How much space a file takes is each file system's own.
        let text = text
            .replace("'%s %b' sparse", "%s sparse")
            .replace("| sed", "| grep -v ^total | sed");
        let wanted = script(&shop.path("plain"), &text);
        assert_eq!(script(&shop.path("mnt"), &text), wanted, "{text}");
    }
    assert!(same(&shop.path("plain"), &shop.path("mnt")));
    unmount(&shop, daemon);
}

#[test]
fn a_log_does_at_random_what_a_directory_does() {
    const STEPS: u32 = 3000;
    if !judge::has_fuse() {
        return;
    }
    for seed in 0..3 {
        let (shop, daemon) = mounted("256M");
        let [plain, here] = ["plain", "mnt/here"].map(|name| shop.path(name));
        fs::create_dir(&plain).unwrap();
        fs::create_dir(&here).unwrap();
        let mut world = Plain::new(&here);
        let ops = Ops::new(seed).without_collapsing().without_seeking();
        let tested = (&mut world as &mut dyn World, &*here);
        compare(seed, STEPS, ops, tested, &plain);
        // It has files open.
        drop(world);
        unmount(&shop, daemon);
        let daemon = mount(&shop, "");
        assert!(same(&plain, &here), "seed {seed}, after a mount");
        unmount(&shop, daemon);
    }
}

#[test]
fn fsx_finds_nothing_in_a_log() {
    if !judge::has_fuse() || posix_judge("fsx").is_none() {
        return;
    }
    for seed in 1..4 {
        let (shop, daemon) = mounted("64M");
        let mut fsx = posix_judge("fsx").unwrap();
        fsx.args(["-N", "5000", "-S", &format!("{seed}"), "mnt/file"])
            .current_dir(shop.dir.path());
        let found = run(&mut fsx);
        assert_eq!(found.status, Some(0), "seed {seed}: {}", found.out);
        unmount(&shop, daemon);
    }
}

#[test]
fn pjdfstest_finds_nothing_in_a_log() {
    if !has_pjdfstest() {
        return;
    }
    let (shop, daemon) = mounted("256M");
    run_pjdfstest(&shop, "log");
    unmount(&shop, daemon);
}

#[test]
fn programs_keep_real_trees_whole_in_a_log() {
    if !judge::has_fuse() || !judge::has_program("git") {
        return;
    }
    let place = trees::trees();
    let (shop, daemon) = mounted("512M");
    trees::work(place.path(), &shop.path("mnt"));
    unmount(&shop, daemon);
    let daemon = mount(&shop, "");
    let said = trees::good(
        &shop.path("mnt/clone"),
        "git fsck --no-progress; git status --porcelain; rm -r .git",
    );
    assert_eq!(said, "");
    assert!(same(&place.path().join("sources"), &shop.path("mnt/clone")));
    assert!(same(&place.path().join("small"), &shop.path("mnt/small")));
    unmount(&shop, daemon);
}

/// Transactions that were said to be done are there when the daemon is killed, each of them whole.
#[test]
fn a_database_in_a_log_outlives_a_daemon_that_is_killed() {
    if !judge::has_fuse() || !judge::has_program("sqlite3") {
        return;
    }
    let mut random = Random(5);
    for journal in ["delete", "persist", "truncate", "wal"] {
        for round in 0..2 {
            let (shop, daemon) = mounted("64M");
            let database = shop.path("mnt/database");
            let mut transactions = Transactions::new(&database, journal);
            transactions.until(20 + random.below(200), || kill_daemon(&shop, daemon));
            let said = shop.good("log check log");
            assert!(
                said.contains("; 0 faults") && said.contains("not unmounted"),
                "{said}"
            );
            let daemon = mount(&shop, "");
            transactions.check(&database, journal, &format!("{journal}, round {round}"));
            unmount(&shop, daemon);
        }
    }
}

/// Kills the daemon below a database without a journal, to which SQLite writes atomically.
#[test]
fn a_database_that_is_written_atomically_outlives_a_daemon_that_is_killed() {
    if !judge::has_fuse() || !judge::has_program("sqlite3") {
        return;
    }
    let Some(sqlite3) = sqlite_tests().map(|tests| tests.join("sqlite3")) else {
        return;
    };
    let mut random = Random(6);
    for (round, policy) in ["none", "record", "paper"].into_iter().enumerate() {
        let shop = shop("64M");
        let daemon = mount(&shop, &format!("--policy {policy}"));
        let database = shop.path("mnt/database");
        let mut transactions = Transactions::by(&sqlite3, &database, "delete");
        transactions.until(20 + random.below(200), || {
            let told = shop.good("stat mnt --json");
            let told: serde_json::Value = serde_json::from_str(&told).unwrap();
            let count = &told["log_atomic_writes_total"];
            assert!(count.as_f64().unwrap() > 20.0, "{told}");
            kill_daemon(&shop, daemon);
        });
        let daemon = mount(&shop, "");
        let names = fs::read_dir(shop.path("mnt")).unwrap();
        let names: Vec<_> = names.map(|entry| entry.unwrap().file_name()).collect();
        assert_eq!(names, ["database"]);
        transactions.check(&database, "delete", &format!("round {round}"));
        unmount(&shop, daemon);
    }
}

/// Tests that what others have read of a file meanwhile is not in the kernel's cache any more when atomic writes are
/// given up.
#[test]
fn atomic_writes_that_are_given_up_leave_nothing_behind() {
    const PROGRAM: &str = r#"
        my ($begin, $commit, $abort) = (0xf501, 0xf502, 0xf505);
        sub see { print "$_[0]: ", -s "f", " ", `head -c 4 f`, "\n" }
        open(my $f, "+<", "f") or die;
        ioctl($f, $begin, 0) or die "begin: $!";
        syswrite($f, "new!" x 2048) or die;
        see("begun");
        ioctl($f, $abort, 0) or die "abort: $!";
        see("given up");
        ioctl($f, $begin, 0) or die "begin: $!";
        sysseek($f, 0, 0);
        syswrite($f, "more" x 2048) or die;
        ioctl($f, $commit, 0) or die "commit: $!";
        see("committed");
        ioctl($f, $begin, 0) or die "begin: $!";
        sysseek($f, 0, 0);
        syswrite($f, "lost" x 4096) or die;
        see("begun");
        truncate($f, 5) and die "truncated";
        print "truncate: $!\n";
        close($f);
        # The kernel tells of that when it has time.
        select(undef, undef, undef, 0.05) while -s "f" != 8192;
        see("closed");
        open($f, "<", "f") or die;
        ioctl($f, $begin, 0) and die "to read alone";
        print "to read alone: $!\n";
        ioctl($f, 0xf50b, 0) and die "unknown";
        print "unknown: $!\n";
    "#;
    if !judge::has_fuse() || !judge::has_program("perl") {
        return;
    }
    let (shop, daemon) = mounted("64M");
    fs::write(shop.path("mnt/f"), [b'-'; 4096]).unwrap();
    let mut perl = Command::new("perl");
    let said = run(perl.args(["-we", PROGRAM]).current_dir(shop.path("mnt")));
    assert_eq!(
        said.out,
        "begun: 8192 new!\ngiven up: 4096 ----\ncommitted: 8192 more\nbegun: 16384 lost\n\
         truncate: Device or resource busy\nclosed: 8192 more\nto read alone: Invalid argument\n\
         unknown: Inappropriate ioctl for device\n",
        "{said:?}"
    );
    unmount(&shop, daemon);
    let daemon = mount(&shop, "--no-atomic-writes");
    let mut perl = Command::new("perl");
    perl.args([
        "-e",
        r#"open(my $f, "+<", "f"); ioctl($f, 0xf501, 0) or print $!"#,
    ]);
    let said = run(perl.current_dir(shop.path("mnt")));
    assert_eq!(said.out, "Inappropriate ioctl for device", "{said:?}");
    unmount(&shop, daemon);
}

/// `stat` shows when a file was made, whatever became of it since.
#[test]
fn a_file_says_when_it_was_made() {
    if !judge::has_fuse() {
        return;
    }
    let (shop, daemon) = mounted("64M");
    let born = |name: &str| fs::metadata(shop.path(name)).unwrap().created().unwrap();
    let before = SystemTime::now() - Duration::from_secs(1);
    fs::write(shop.path("mnt/f"), "one").unwrap();
    let made = born("mnt/f");
    assert!(before < made && made <= SystemTime::now(), "{made:?}");
    std::thread::sleep(Duration::from_millis(20));
    fs::write(shop.path("mnt/f"), "two").unwrap();
    fs::rename(shop.path("mnt/f"), shop.path("mnt/g")).unwrap();
    unmount(&shop, daemon);
    let daemon = mount(&shop, "");
    let changed = fs::metadata(shop.path("mnt/g"))
        .unwrap()
        .modified()
        .unwrap();
    assert!(born("mnt/g") == made && changed > made, "{changed:?}");
    unmount(&shop, daemon);
}

/// Segments that are filled and freed together.
#[test]
fn a_log_of_sections_works_and_says_so() {
    if !judge::has_fuse() {
        return;
    }
    let shop = Workshop::new();
    fs::create_dir(shop.path("mnt")).unwrap();
    shop.good("log mkfs log --size 512M --section 4");
    assert!(
        shop.good("log dump log").contains("of 4 segments"),
        "{}",
        shop.good("log dump log")
    );
    let daemon = mount(&shop, "");
    for round in 0..4 {
        fs::write(shop.path("mnt/f"), vec![round; 40 << 20]).unwrap();
    }
    assert_eq!(fs::read(shop.path("mnt/f")).unwrap(), vec![3; 40 << 20]);
    unmount(&shop, daemon);
    let refused = shop.bad(2, "log mkfs new --size 512M --section 65");
    assert!(refused.contains("65"), "{refused}");
}

/// A log that is full says so, to whoever writes, and loses nothing.
#[test]
fn a_full_log_loses_nothing() {
    if !judge::has_fuse() {
        return;
    }
    let (shop, daemon) = mounted_plainly("64M");
    let piece = vec![7; 1 << 20];
    let mut count = 0;
    while fs::write(shop.path(&format!("mnt/{count}")), &piece).is_ok() {
        count += 1;
    }
    assert!(count > 20, "{count} MiB in 64 MiB");
    let _ = fs::remove_file(shop.path(&format!("mnt/{count}")));
    let said = script(
        &shop.path("mnt"),
        "sync -f . && rm 1 && echo again >new && cat new",
    );
    assert_eq!(said, "Some(0)\nagain\n");
    unmount(&shop, daemon);
    let daemon = mount(&shop, "");
    for n in (0..count).filter(|&n| n != 1) {
        assert!(
            fs::read(shop.path(&format!("mnt/{n}"))).unwrap() == piece,
            "file {n} of {count}"
        );
    }
    unmount(&shop, daemon);
}
