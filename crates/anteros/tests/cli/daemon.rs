//! The daemon behind a FUSE mount: its options, its numbers, broken images, and ends of all kinds.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::os::unix::net::UnixDatagram;
use std::path::PathBuf;
use std::process::{Child, Stdio};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use anteros_tests::judge;
use anteros_tests::trees::words;
use rustix::fs::{XattrFlags, getxattr, setxattr};
use rustix::io::Errno;
use serde_json::Value;

use crate::{
    Run, Signal, Workshop, is_mounted, kill, prometheus_samples, same, wait_until,
    wait_until_served,
};

/// A workshop with an image and, while the value lives, its mount.
struct Mounted {
    shop: Workshop,
    daemon: Child,
}

impl Mounted {
    /// Mounts the image of a workshop by a daemon in the foreground, with options.
    fn new(shop: Workshop, options: &str) -> Self {
        let mut command = shop.command(&format!("mount --fuse --foreground {options} image mnt"));
        let daemon = command.spawn().unwrap();
        let mounted = Self { shop, daemon };
        wait_until_served(&mounted.path(""));
        mounted
    }

    fn path(&self, name: &str) -> PathBuf {
        self.shop.path("mnt").join(name)
    }

    fn stat(&self) -> Value {
        self.shop.json("stat --json mnt")
    }

    fn number(&self, name: &str) -> f64 {
        let stat = self.stat();
        stat[name]
            .as_f64()
            .unwrap_or_else(|| panic!("{name}: {stat}"))
    }

    /// Unmounts, once nobody uses the mount any more, and says how the daemon ended.
    fn unmount(&mut self) -> Option<i32> {
        wait_until(|| self.shop.run("umount mnt").status == Some(0));
        self.daemon.wait().unwrap().code()
    }
}

impl Drop for Mounted {
    /// Leaves no daemon behind if the test has failed.
    fn drop(&mut self) {
        let _ = self.daemon.kill();
        let _ = self.daemon.wait();
    }
}

/// A workshop with an image of LZ4; `None` without FUSE.
fn shop() -> Option<Workshop> {
    judge::has_fuse().then(|| {
        let shop = Workshop::new();
        shop.good("mkfs image src -zlz4hc,9 -C4096");
        fs::create_dir(shop.path("mnt")).unwrap();
        shop
    })
}

/// Overwrites the stream of `sub/text` with what is none.
fn break_text(shop: &Workshop) {
    let image = OpenOptions::new()
        .write(true)
        .open(shop.path("image"))
        .unwrap();
    image.write_all_at(&[0xff; 4096], 4096).unwrap();
}

fn errno(result: io::Result<Vec<u8>>) -> Errno {
    Errno::from_io_error(&result.unwrap_err()).unwrap()
}

#[test]
fn every_option_shows_the_same_tree() {
    let Some(mut shop) = shop() else { return };
    let lines = "/sub/text\t0\t8192\t9\n/hello\t0\t6\t1\n";
    fs::write(shop.path("profile"), lines).unwrap();
    for options in [
        "--memory 32M --workers 1",
        "--memory 64M --workers 9 --readahead 512K",
        "--strategy auto --neighbours all",
        "--strategy vmap",
        "--strategy buffer",
        "--strategy rolling",
        "--strategy in-place",
        "--profile profile",
        "--profile profile --pin 4K --neighbours passed",
        "--readahead 4K",
    ] {
        let mut mounted = Mounted::new(shop, options);
        assert!(
            same(&mounted.shop.path("src"), &mounted.path("")),
            "{options}"
        );
        assert!(mounted.number("served_bytes_total") > 0.0, "{options}");
        assert_eq!(mounted.number("faults_total"), 0.0, "{options}");
        assert_eq!(mounted.unmount(), Some(0), "{options}");
        shop = Workshop::new();
        shop.good("mkfs image src -zlz4hc,9");
        fs::create_dir(shop.path("mnt")).unwrap();
        fs::write(shop.path("profile"), lines).unwrap();
    }
}

#[test]
fn what_is_pinned_is_told() {
    let Some(shop) = shop() else { return };
    fs::write(shop.path("profile"), "/sub/text\t0\t8192\t9\n").unwrap();
    let mut mounted = Mounted::new(shop, "--profile profile");
    assert_eq!(mounted.number("pinned_bytes"), 8192.0);
    let text = File::open(mounted.path("sub/text")).unwrap();
    text.read_exact_at(&mut [0; 100], 0).unwrap();
    drop(text);
    assert!(mounted.number("pinned_hits_total") > 0.0);
    assert_eq!(mounted.unmount(), Some(0));
}

#[test]
fn files_that_are_packed_in_large_clusters_get_more_memory() {
    if !judge::has_fuse() {
        return;
    }
    for (how, options, memory) in [
        ("--small", "", 64),
        ("--small", "--memory 24M", 24),
        ("-zlzma,9 -C1M", "", 64),
        ("-zlzma,9 -C64K", "", 16),
        ("-zzstd,3 -C1M", "", 64),
        ("-zlzma,9 -C16K -Eall-fragments", "", 16),
    ] {
        let shop = Workshop::new();
        fs::write(shop.path("src/words"), words(1, 3 << 20)).unwrap();
        shop.good(&format!("mkfs image src {how}"));
        fs::create_dir(shop.path("mnt")).unwrap();
        let mut mounted = Mounted::new(shop, options);
        assert!(same(&mounted.shop.path("src"), &mounted.path("")));
        let ceiling = mounted.number("memory_max_bytes");
        assert_eq!(ceiling, f64::from(memory << 20), "{how} {options}");
        assert_eq!(mounted.unmount(), Some(0));
    }
}

/// A walk that asks for attributes of every file makes the daemon look for them. A kernel that was told that there are none
/// asks no more, and then numbers of the mount come by another way.
#[test]
fn an_image_without_attributes_is_asked_for_none() {
    if !judge::has_fuse() {
        return;
    }
    for has_one in [false, true] {
        let shop = Workshop::new();
        fs::create_dir_all(shop.path("src/below")).unwrap();
        for name in ["src/plain", "src/below/other"] {
            fs::write(shop.path(name), name).unwrap();
        }
        if has_one {
            let path = shop.path("src/below/other");
            setxattr(path, "user.colour", b"blue", XattrFlags::empty()).unwrap();
        }
        shop.good("mkfs image src -x1");
        fs::create_dir(shop.path("mnt")).unwrap();
        let mut mounted = Mounted::new(shop, "");
        let asked = |name: &str| getxattr(mounted.path(name), "user.colour", &mut [0; 16]);
        for _ in 0..600 {
            assert!(matches!(
                asked("plain"),
                Err(Errno::NODATA | Errno::OPNOTSUPP)
            ));
        }
        if has_one {
            assert_eq!(asked("plain"), Err(Errno::NODATA));
            assert_eq!(asked("below/other"), Ok(4));
        } else {
            wait_until(|| asked("plain") == Err(Errno::OPNOTSUPP));
        }
        let served = mounted.number("served_bytes_total");
        assert_eq!(served, 0.0, "nothing was read");
        assert_eq!(mounted.unmount(), Some(0));
    }
}

#[test]
fn its_numbers_come_in_three_forms() {
    let Some(shop) = shop() else { return };
    let mut mounted = Mounted::new(shop, "--memory 24M --workers 3");
    assert!(same(&mounted.shop.path("src"), &mounted.path("")));
    let table = mounted.shop.good("stat mnt");
    for said in ["ceiling 24", "3 workers", "read ", "faults     0"] {
        assert!(table.contains(said), "{said}: {table}");
    }
    let stat = mounted.stat();
    assert_eq!(stat["workers"], 3.0);
    assert_eq!(stat["memory_max_bytes"], f64::from(24 << 20));
    assert_eq!(stat["faults"], Value::Array(Vec::new()));
    assert!(
        stat["latencies"]["read"]["answers"].as_f64() > Some(0.0),
        "{stat}"
    );
    let text = mounted.shop.good("stat --prometheus mnt");
    prometheus_samples(&text);
    mounted.shop.bad(2, "stat --json --prometheus mnt");
    assert_eq!(mounted.unmount(), Some(0));
}

#[test]
fn what_is_no_mount_has_no_numbers() {
    let shop = Workshop::new();
    fs::create_dir(shop.path("mnt")).unwrap();
    let said = shop.bad(5, "stat mnt");
    assert!(said.contains("mnt: no FUSE mount of anteros"), "{said}");
    let said = shop.bad(5, "stat missing");
    assert!(said.contains("missing: No such file"), "{said}");
}

#[test]
fn too_little_memory_is_refused_and_enough_is_named() {
    let Some(shop) = shop() else { return };
    let said = shop.bad(2, "mount --fuse --memory 1M --workers 2 image mnt");
    assert!(said.contains("too few for 2 workers"), "{said}");
    let (_, needed) = said.split_once("--memory ").unwrap();
    let needed = needed.split(',').next().unwrap().to_owned();
    assert!(!is_mounted(&shop.path("mnt")));
    let options = format!("--memory {needed} --workers 2");
    let mut mounted = Mounted::new(shop, &options);
    assert!(same(&mounted.shop.path("src"), &mounted.path("")));
    assert_eq!(mounted.unmount(), Some(0));
}

#[test]
fn a_profile_with_a_typo_is_refused_and_a_missing_file_is_not() {
    let Some(shop) = shop() else { return };
    fs::write(shop.path("profile"), "# hot\n/hello\t0\tmuch\t1\n").unwrap();
    let said = shop.bad(2, "mount --fuse --profile profile image mnt");
    assert!(said.contains("profile: line 2: length \"much\""), "{said}");
    let said = shop.bad(5, "mount --fuse --profile none image mnt");
    assert!(said.contains("none: No such file"), "{said}");
    let said = shop.bad(2, "mount --fuse --pin 1M image mnt");
    assert!(said.contains("--profile"), "{said}");
    assert!(!is_mounted(&shop.path("mnt")));

    fs::write(
        shop.path("profile"),
        "/helo\t0\t1\t1\n/sub/text\t0\t8192\t1\n",
    )
    .unwrap();
    let Run { status, err, .. } = shop.run("mount --fuse --profile profile --pin 4K image mnt");
    assert_eq!(status, Some(0), "{err}");
    assert!(
        err.contains("warning: profile: /helo: no such file"),
        "{err}"
    );
    assert!(
        err.contains("1 ranges of the profile do not fit into 4096 bytes"),
        "{err}"
    );
    wait_until(|| shop.run("umount mnt").status == Some(0));
}

#[test]
fn a_broken_file_is_an_error_and_told_by_its_name() {
    let Some(shop) = shop() else { return };
    break_text(&shop);
    let mut mounted = Mounted::new(shop, "");
    assert_eq!(errno(fs::read(mounted.path("sub/text"))), Errno::IO);
    assert_eq!(fs::read(mounted.path("hello")).unwrap(), b"hello\n");
    let is_named = |stat: &Value| {
        let faults = stat["faults"].as_array().unwrap();
        faults.iter().any(|fault| {
            fault
                .as_str()
                .unwrap()
                .starts_with("/sub/text: data of inode")
        })
    };
    // A thread of its own finds the name.
    wait_until(|| is_named(&mounted.stat()));
    assert!(mounted.number("faults_total") >= 1.0);
    assert!(
        mounted
            .shop
            .good("stat mnt")
            .contains("/sub/text: data of inode")
    );
    assert_eq!(mounted.unmount(), Some(0));
}

#[test]
fn an_image_that_is_cut_off_under_a_mount_is_an_error() {
    let Some(shop) = shop() else { return };
    let mut mounted = Mounted::new(shop, "");
    assert_eq!(fs::read(mounted.path("hello")).unwrap(), b"hello\n");
    let image = OpenOptions::new()
        .write(true)
        .open(mounted.shop.path("image"));
    image.unwrap().set_len(4096).unwrap();
    assert_eq!(errno(fs::read(mounted.path("sub/text"))), Errno::IO);
    assert!(mounted.number("faults_total") >= 1.0);
    assert_eq!(mounted.unmount(), Some(0));
}

/// Lets threads read a file of the mount over and over while `act` goes on, which sees how many have
/// met an error. Gives what they met in the end.
fn while_reading(
    mounted: &mut Mounted,
    act: impl FnOnce(&mut Mounted, &AtomicUsize),
) -> Vec<Option<Errno>> {
    const READERS: usize = 4;
    let expected = fs::read(mounted.shop.path("src/sub/text")).unwrap();
    let (path, stop) = (mounted.path("sub/text"), AtomicBool::new(false));
    let (reads, failed) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let (path, stop, reads, failed, expected) = (&path, &stop, &reads, &failed, &expected);
    std::thread::scope(|scope| {
        let reader = move || {
            let file = File::open(path).unwrap();
            let mut found = vec![0; expected.len()];
            while !stop.load(Ordering::Relaxed) {
                let advice = rustix::fs::Advice::DontNeed;
                rustix::fs::fadvise(&file, 0, None, advice).unwrap();
                if let Err(error) = file.read_exact_at(&mut found, 0) {
                    failed.fetch_add(1, Ordering::Relaxed);
                    return Errno::from_io_error(&error);
                }
                assert!(found == *expected);
                reads.fetch_add(1, Ordering::Relaxed);
            }
            None
        };
        let readers: Vec<_> = (0..READERS).map(|_| scope.spawn(reader)).collect();
        wait_until(|| reads.load(Ordering::Relaxed) >= 2 * READERS);
        act(mounted, failed);
        stop.store(true, Ordering::Relaxed);
        readers
            .into_iter()
            .map(|reader| reader.join().unwrap())
            .collect()
    })
}

#[test]
fn a_busy_mount_is_kept_and_goes_when_its_readers_are_done() {
    let Some(shop) = shop() else { return };
    let mut mounted = Mounted::new(shop, "");
    let met = while_reading(&mut mounted, |mounted, _| {
        let said = mounted.shop.bad(5, "umount mnt");
        assert!(said.contains("mnt: in use"), "{said}");
    });
    assert!(met.iter().all(Option::is_none), "{met:?}");
    assert_eq!(mounted.unmount(), Some(0));
    assert!(!is_mounted(&mounted.path("")));
}

/// Tests that what is open stays readable; nothing can be opened any more; and the daemon ends with the last reader.
#[test]
fn a_busy_daemon_that_is_told_to_stop_serves_who_is_there() {
    let Some(shop) = shop() else { return };
    let mut mounted = Mounted::new(shop, "");
    let met = while_reading(&mut mounted, |mounted, _| {
        kill(&mounted.daemon, Signal::TERM);
        let root = mounted.path("");
        wait_until(|| !is_mounted(&root));
    });
    assert!(met.iter().all(Option::is_none), "{met:?}");
    assert_eq!(mounted.daemon.wait().unwrap().code(), Some(0));
}

#[test]
fn a_daemon_that_is_killed_leaves_errors_and_a_mount_to_take_away() {
    let Some(shop) = shop() else { return };
    let mut mounted = Mounted::new(shop, "");
    let met = while_reading(&mut mounted, |mounted, failed| {
        kill(&mounted.daemon, Signal::KILL);
        mounted.daemon.wait().unwrap();
        // At once, or when the kernel has come to take what the daemon had.
        wait_until(|| {
            let look_up = fs::metadata(mounted.path("never seen")).map(|_| Vec::new());
            errno(look_up) == Errno::NOTCONN
        });
        // A reader has come to what the kernel does not keep.
        wait_until(|| failed.load(Ordering::Relaxed) > 0);
    });
    let gone = [Errno::NOTCONN, Errno::CONNABORTED, Errno::IO];
    assert!(
        met.iter().flatten().all(|errno| gone.contains(errno)),
        "{met:?}"
    );
    assert!(met.iter().any(Option::is_some), "{met:?}");
    wait_until(|| mounted.shop.run("umount mnt").status == Some(0));
    assert!(!is_mounted(&mounted.path("")));
}

/// In a mount namespace with a log of its own. A daemon that mirrors the mount of a broken image meets what that one's
/// daemon told it.
#[test]
fn daemons_in_the_background_log_what_they_meet() {
    let Some(shop) = shop() else { return };
    if !judge::is_root() {
        return judge::missing("a log of the test's own (only root can mount)");
    }
    break_text(&shop);
    for name in ["dev", "mirror"] {
        fs::create_dir(shop.path(name)).unwrap();
    }
    let log = UnixDatagram::bind(shop.path("log")).unwrap();
    log.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    let mut session = shop.apart(LOGGED).stdin(Stdio::piped()).spawn().unwrap();
    let place = shop.path("mnt").display().to_string();
    // Each daemon tells when it has found the name, in any order, and more than once where whoever was refused asks again.
    let mut awaited = vec![
        ": /sub/text: data of inode".to_owned(),
        format!(": {place}/sub/text: "),
    ];
    while !awaited.is_empty() {
        let line = next_line(&log);
        awaited.retain(|text| !line.contains(text));
    }
    // The session waits for its end.
    drop(session.stdin.take());
    assert!(session.wait().unwrap().success());
}

/// The next line of a daemon in a log.
fn next_line(log: &UnixDatagram) -> String {
    let mut line = [0; 1000];
    let len = loop {
        match log.recv(&mut line) {
            // What waits with a timeout is interrupted by whatever stops and continues this process.
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            received => break received.unwrap(),
        }
    };
    let line = String::from_utf8_lossy(&line[..len]).into_owned();
    assert!(line.starts_with("<27>anteros["), "{line}");
    line
}

const LOGGED: &str = r"
mount -t tmpfs tmpfs dev
mknod dev/fuse c 10 229
mknod dev/null c 1 3
touch dev/log
mount --bind log dev/log
mount --rbind dev /dev
./anteros mount --fuse image mnt
./anteros passthru --data daemon mnt mirror
! dd if=mirror/sub/text of=/dev/null bs=1 count=1 2>/dev/null
cat
./anteros umount mirror
until ./anteros umount mnt 2>/dev/null; do test -x anteros; sleep 0.1; done
";

/// A daemon in the background is no child of ours: it and its guardian are found by their program.
#[test]
fn no_process_is_left_in_the_background() {
    let Some(shop) = shop() else { return };
    let daemons = || {
        let processes = fs::read_dir("/proc").unwrap().flatten();
        let programs =
            processes.filter_map(|process| fs::read_link(process.path().join("exe")).ok());
        programs.filter(|program| *program == shop.program).count()
    };
    shop.good("mount --fuse image mnt");
    // The daemon and its guardian.
    assert_eq!(daemons(), 2);
    assert!(same(&shop.path("src"), &shop.path("mnt")));
    wait_until(|| shop.run("umount mnt").status == Some(0));
    wait_until(|| daemons() == 0);
}
