//! Daemons that are killed at any moment: whoever reads goes on with an error, what was synced is there, and the mount can
//! be synced and taken away.

use std::fs::{self, File};
use std::io::Write;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::{self, JoinHandle, Scope};
use std::time::{Duration, Instant};

use anteros_tests::judge;
use anteros_tests::trees::{Random, words};
use rustix::fs::{Mode, OFlags, minor, open, stat, syncfs};
use rustix::io::Errno;
use rustix::mount::{UnmountFlags, unmount};

use crate::log::{shop as log_shop, umount};
use crate::{Signal, Workshop, kill, run, wait_until, wait_until_served};

/// States what the kernel may take to end everything behind a daemon that was killed.
const LIMIT: Duration = Duration::from_secs(30);

/// The longest time that a daemon serves before it is killed.
const SERVES_MS: u64 = 60;

const READERS: u32 = 6;
const BLOCK: usize = 4096;

/// Ends a connection that stays behind its daemon, or nothing of this machine would go on: a test that has it do
/// so has failed.
struct Watchdog {
    done: Sender<()>,
    waits: JoinHandle<bool>,
}

impl Watchdog {
    /// Over the connection of what is mounted here.
    fn over(directory: &Path) -> Self {
        let connection = minor(stat(directory).unwrap().st_dev);
        let abort = format!("/sys/fs/fuse/connections/{connection}/abort");
        // Opened now, it can mean no other mount later.
        let abort = File::options().write(true).open(abort).ok();
        let directory = directory.to_owned();
        let (done, ended): (_, Receiver<()>) = channel();
        let waits = thread::spawn(move || {
            let frozen = ended.recv_timeout(LIMIT) == Err(RecvTimeoutError::Timeout);
            match abort {
                Some(mut abort) if frozen => drop(abort.write_all(b"1")),
                // Without fusectl, by what `umount -f` does.
                None if frozen => drop(unmount(&directory, UnmountFlags::FORCE)),
                _ => {}
            }
            frozen
        });
        Self { done, waits }
    }

    /// Returns whether all that was watched went on by itself.
    fn ends_content(self) -> bool {
        drop(self.done);
        !self.waits.join().unwrap()
    }
}

/// How guardians end connections: as is usual here, or by answers, as of users where there is no fusectl.
const USUALLY: &str = "";
const BY_ANSWERS: &str = "answer";

fn mount(shop: &Workshop, arguments: &str, guardian: &str) -> Child {
    let mut command = shop.command(&format!("{arguments} --foreground"));
    command.env("ANTEROS_GUARDIAN", guardian);
    let daemon = command.spawn().unwrap();
    wait_until_served(&shop.path("mnt"));
    daemon
}

/// Reads here and there until it cannot.
fn read_about(path: &Path, random: &mut Random, has_ended: &AtomicBool) {
    let Ok(file) = File::open(path) else { return };
    let blocks = file.metadata().map_or(1, |data| data.len() / BLOCK as u64);
    let mut bytes = [0; 4 * BLOCK];
    while !has_ended.load(Ordering::Relaxed) {
        let offset = random.below(blocks.max(1)) * BLOCK as u64;
        if file.read_at(&mut bytes, offset).is_err() {
            return;
        }
    }
}

/// Kills the daemon of a mount that so many read, and what `along` starts beside them, at a random moment. Returns how
/// long it takes until all of that has ended, and the mount is synced and gone.
fn kill_under_readers<'env>(
    shop: &'env Workshop,
    mut daemon: Child,
    files: &'env [PathBuf],
    random: &mut Random,
    has_ended: &'env AtomicBool,
    along: impl for<'scope> FnOnce(&'scope Scope<'scope, 'env>),
) -> Duration {
    let mount = shop.path("mnt");
    let root: OwnedFd = open(&mount, OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty()).unwrap();
    let watchdog = Watchdog::over(&mount);
    let killed = thread::scope(|scope| {
        for reader in 0..READERS {
            let mut random = Random(random.next());
            let file = &files[reader as usize % files.len()];
            scope.spawn(move || read_about(file, &mut random, has_ended));
        }
        along(scope);
        thread::sleep(Duration::from_millis(random.below(SERVES_MS)));
        kill(&daemon, Signal::KILL);
        let killed = Instant::now();
        daemon.wait().unwrap();
        has_ended.store(true, Ordering::Relaxed);
        killed
    });
    // It returns. What the kernel had yet to write is lost with the daemon, and it may say so; over io_uring, that it was
    // about to hand it over.
    if let Err(error) = syncfs(&root) {
        let lost = [
            Errno::CONNABORTED,
            Errno::NOTCONN,
            Errno::IO,
            Errno::CANCELED,
        ];
        assert!(lost.contains(&error), "{error}");
    }
    drop(root);
    umount(shop);
    let took = killed.elapsed();
    assert!(
        watchdog.ends_content(),
        "frozen for {LIMIT:?} until the connection was aborted"
    );
    took
}

/// Images of large pclusters, and daemons that serve them.
fn kill_daemons_of_images(kills: u32, seed: u64, guardian: &str) {
    let mut random = Random(seed);
    let shop = Workshop::new();
    fs::create_dir(shop.path("mnt")).unwrap();
    for name in ["src/one", "src/two"] {
        fs::write(shop.path(name), words(random.next(), 3 << 20)).unwrap();
    }
    shop.good("mkfs large src -zlz4hc,9 -C1048576");
    shop.good("mkfs small src -zlz4 -C65536");
    let files = ["one", "two"].map(|name| shop.path("mnt").join(name));
    let mut longest = Duration::ZERO;
    for round in 0..kills {
        let image = ["large", "small"][round as usize % 2];
        let neighbours = ["passed", "all"][round as usize / 2 % 2];
        let daemon = mount(
            &shop,
            &format!("mount --fuse {image} mnt --neighbours {neighbours}"),
            guardian,
        );
        let has_ended = AtomicBool::new(false);
        let took = kill_under_readers(&shop, daemon, &files, &mut random, &has_ended, |_| ());
        longest = longest.max(took);
    }
    eprintln!("{kills} kills of daemons of images; the longest end took {longest:?}");
}

/// Writes and syncs block after block, each with its number in it, and says how many are synced.
fn write_numbers(path: &Path, synced: &AtomicU64, has_ended: &AtomicBool) {
    let Ok(file) = File::options().write(true).open(path) else {
        return;
    };
    while !has_ended.load(Ordering::Relaxed) {
        let number = synced.load(Ordering::Relaxed);
        let block = (number + 1).to_le_bytes().repeat(BLOCK / 8);
        if file
            .write_all_at(&block, number % 64 * BLOCK as u64)
            .is_err()
            || file.sync_data().is_err()
        {
            return;
        }
        synced.store(number + 1, Ordering::Relaxed);
    }
}

/// Checks that each of the last numbers that were synced is there, or a later one in its place.
fn assert_numbers(path: &Path, synced: u64) {
    let file = File::open(path).unwrap();
    for number in synced.saturating_sub(64)..synced {
        let mut block = [0; BLOCK];
        file.read_exact_at(&mut block, number % 64 * BLOCK as u64)
            .unwrap();
        let found = u64::from_le_bytes(block[..8].try_into().unwrap());
        assert!(
            found > number,
            "of {synced} synced blocks {number} has {found}"
        );
        assert!(block == found.to_le_bytes().repeat(BLOCK / 8)[..]);
    }
}

/// A program that is there and is not small.
fn program() -> &'static Path {
    let known = ["/usr/bin/git", "/bin/bash"].map(Path::new);
    known
        .into_iter()
        .find(|path| path.exists())
        .unwrap_or(Path::new("/bin/sh"))
}

/// Programs that were compressed in the background are launched from a log, which hands their pages to the kernel.
fn kill_daemons_of_logs(kills: u32, seed: u64, guardian: &str) {
    let mut random = Random(seed);
    let shop = log_shop("256M");
    let mut daemon = mount(&shop, "log mount log mnt", guardian);
    let (started, numbers) = (shop.path("mnt/program"), shop.path("mnt/numbers"));
    fs::create_dir(shop.path("mnt/lib")).unwrap();
    let lib = shop.path("mnt/lib/lib.so");
    fs::write(&lib, words(random.next(), 3 << 20)).unwrap();
    fs::write(&numbers, "").unwrap();
    assert_eq!(
        run(Command::new("cp").arg(program()).arg(&started)).status,
        Some(0)
    );
    assert_eq!(
        run(Command::new("sync").arg(&lib).arg(&started)).status,
        Some(0)
    );
    shop.good("log compact mnt");
    umount(&shop);
    daemon.wait().unwrap();
    let files = [lib, started.clone()];
    let synced = AtomicU64::new(0);
    let mut longest = Duration::ZERO;
    for _ in 0..kills {
        let daemon = mount(&shop, "log mount log mnt", guardian);
        assert_numbers(&numbers, synced.load(Ordering::Relaxed));
        let has_ended = &AtomicBool::new(false);
        let (numbers, started, synced) = (&numbers, &started, &synced);
        let took = kill_under_readers(&shop, daemon, &files, &mut random, has_ended, |scope| {
            scope.spawn(move || write_numbers(numbers, synced, has_ended));
            scope.spawn(move || launch(started, has_ended));
        });
        longest = longest.max(took);
    }
    let checked = shop.good("log check log");
    assert!(checked.contains("; 0 faults"), "{checked}");
    let synced = synced.into_inner();
    eprintln!(
        "{kills} kills of daemons of logs, {synced} synced blocks; the longest end took {longest:?}"
    );
}

/// Starts a program again and again, until it cannot be started.
fn launch(program: &Path, has_ended: &AtomicBool) {
    while !has_ended.load(Ordering::Relaxed) {
        let mut command = Command::new(program);
        command.arg("--version").stdin(Stdio::null());
        let started = command.stdout(Stdio::null()).stderr(Stdio::null()).status();
        if !started.is_ok_and(|status| status.success()) {
            return;
        }
    }
}

/// Mirrors are killed while one writes and syncs, and others read.
fn kill_mirrors(kills: u32, seed: u64, guardian: &str) {
    let mut random = Random(seed);
    let shop = Workshop::new();
    for name in ["mnt", "back"] {
        fs::create_dir(shop.path(name)).unwrap();
    }
    for name in ["one", "numbers"] {
        fs::write(
            shop.path("back").join(name),
            words(random.next(), 64 * BLOCK),
        )
        .unwrap();
    }
    let files = ["one", "numbers"].map(|name| shop.path("mnt").join(name));
    let (numbers, source) = (&files[1], shop.path("back/numbers"));
    let synced = &AtomicU64::new(0);
    let mut longest = Duration::ZERO;
    for round in 0..kills {
        let way = ["auto", "cache", "buffer"][round as usize % 3];
        let daemon = mount(&shop, &format!("passthru back mnt --data {way}"), guardian);
        assert_numbers(numbers, synced.load(Ordering::Relaxed));
        let has_ended = &AtomicBool::new(false);
        let took = kill_under_readers(&shop, daemon, &files, &mut random, has_ended, |scope| {
            scope.spawn(move || write_numbers(numbers, synced, has_ended));
        });
        assert_numbers(&source, synced.load(Ordering::Relaxed));
        longest = longest.max(took);
    }
    let synced = synced.load(Ordering::Relaxed);
    eprintln!("{kills} kills of mirrors, {synced} synced blocks; the longest end took {longest:?}");
}

/// Processes that guard the mount here: such a process is named so, and its arguments end with the mount.
fn guardians(mount: &Path) -> usize {
    guardians_of(&mount.canonicalize().unwrap())
}

/// Counts the guardians of a mount with this canonical path.
fn guardians_of(mount: &Path) -> usize {
    let ends = format!("{}\0", mount.display());
    let processes = fs::read_dir("/proc")
        .unwrap()
        .map(|entry| entry.unwrap().path());
    let arguments =
        processes.filter_map(|process| fs::read_to_string(process.join("cmdline")).ok());
    arguments
        .filter(|line| line.starts_with("anteros-guardian\0") && line.ends_with(&ends))
        .count()
}

#[test]
fn each_daemon_has_a_guardian_as_long_as_it_lives() {
    if !judge::has_fuse() {
        return;
    }
    let shop = log_shop("32M");
    shop.good("mkfs --quiet image src");
    let place = shop.path("mnt");
    for command in [
        "mount --fuse image mnt",
        "passthru src mnt",
        "log mount log mnt",
    ] {
        let mut daemon = mount(&shop, command, USUALLY);
        wait_until(|| guardians(&place) == 1);
        umount(&shop);
        assert_eq!(daemon.wait().unwrap().code(), Some(0), "{command}");
        wait_until(|| guardians(&place) == 0);
    }
}

/// Somebody who asks again and again does not keep a guardian that answers.
#[test]
fn a_guardian_that_answers_goes_while_others_ask() {
    if !judge::has_fuse() {
        return;
    }
    let shop = Workshop::new();
    fs::create_dir(shop.path("mnt")).unwrap();
    let place = shop.path("mnt").canonicalize().unwrap();
    let mut daemon = mount(&shop, "passthru src mnt", BY_ANSWERS);
    let has_ended = AtomicBool::new(false);
    let went = thread::scope(|scope| {
        let asks = || {
            // The kernel knows the answer for a name that it has asked for.
            for name in 0.. {
                let _ = stat(place.join(name.to_string()));
                if has_ended.load(Ordering::Relaxed) {
                    return;
                }
            }
        };
        scope.spawn(asks);
        scope.spawn(asks);
        kill(&daemon, Signal::KILL);
        daemon.wait().unwrap();
        let killed = Instant::now();
        while guardians_of(&place) > 0 && killed.elapsed() < LIMIT {}
        has_ended.store(true, Ordering::Relaxed);
        killed.elapsed()
    });
    umount(&shop);
    assert!(went < LIMIT, "it is still there after {went:?}");
}

#[test]
fn a_killed_daemon_of_an_image_freezes_nobody() {
    if judge::has_fuse() {
        kill_daemons_of_images(8, 1, USUALLY);
    }
}

#[test]
fn a_killed_daemon_of_a_log_freezes_nobody_and_keeps_what_was_synced() {
    if judge::has_fuse() {
        kill_daemons_of_logs(6, 2, USUALLY);
    }
}

#[test]
fn a_killed_mirror_freezes_nobody_and_keeps_what_was_synced() {
    if judge::has_fuse() {
        kill_mirrors(6, 5, USUALLY);
    }
}

#[test]
fn a_guardian_that_answers_for_a_killed_daemon_lets_nobody_freeze() {
    if judge::has_fuse() {
        kill_daemons_of_images(8, 7, BY_ANSWERS);
        kill_daemons_of_logs(6, 8, BY_ANSWERS);
        kill_mirrors(6, 9, BY_ANSWERS);
    }
}

#[test]
#[ignore = "takes some minutes"]
fn two_hundred_kills() {
    if judge::has_fuse() {
        kill_daemons_of_images(200, 3, USUALLY);
        kill_daemons_of_logs(200, 4, USUALLY);
        kill_mirrors(200, 6, USUALLY);
        kill_daemons_of_images(200, 10, BY_ANSWERS);
        kill_daemons_of_logs(200, 11, BY_ANSWERS);
        kill_mirrors(200, 12, BY_ANSWERS);
    }
}
